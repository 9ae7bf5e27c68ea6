"""The Jinja templates: found first in the target's folder, then in ``common``."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferro.dsl import extents

if TYPE_CHECKING:
    import jinja2

_HERE = Path(__file__).parent


@functools.cache
def _environment(kind: str) -> jinja2.Environment:
    import jinja2  # not needed where every program is in the cache

    folders = [str(_HERE / kind), str(_HERE / "common")]
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    made.filters["extent"] = extents.text
    return made


@functools.cache
def _template(kind: str, name: str) -> jinja2.Template:
    return _environment(kind).get_template(f"{name}.jinja")


def render(kind: str, name: str, /, **context: Any) -> str:
    """The text of one template for the target ``kind`` ("simd" | "simt")."""
    return _template(kind, name).render(**context)


@functools.cache
def template_hash() -> str:
    """Changes when any template or any line of the code generator changes."""
    digest = hashlib.sha256()
    for path in sorted([*_HERE.rglob("*.jinja"), *_HERE.rglob("*.py")]):
        digest.update(str(path.relative_to(_HERE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
