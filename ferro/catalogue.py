"""Finds kernels by name: the shipped ones, and those of any Python file.

A name is `rmsnorm`, `norms.rmsnorm` (file and kernel) or `path/to/file.py:kernel`. Functions under
`@kernel` that are only called by kernels are no entries of their own.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import kernels_src
from ferro.dsl.kernel import KernelDefinition

SHIPPED = Path(kernels_src.__path__[0])


class CatalogueError(Exception):
    """A name that fits no kernel, or a file that cannot be loaded."""

    exit_code = 2


@dataclass(frozen=True)
class Entry:
    """One kernel; ``module`` is the file's name without its ending."""

    module: str
    path: Path
    definition: KernelDefinition

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def summary(self) -> str:
        """The first line of the kernel's docstring, or ""."""
        return self.definition.docstring.partition("\n")[0]


@functools.cache
def shipped() -> tuple[Entry, ...]:
    """The kernels of ``kernels_src``, by file and in the order they are written."""
    files = sorted(p for p in SHIPPED.glob("*.py") if p.stem != "__init__")
    return tuple(entry for file in files for entry in load(file))


def load(path: Path) -> tuple[Entry, ...]:
    """The kernels of one file, in the order they are written. Raises CatalogueError."""
    if not path.is_file():
        raise CatalogueError(f"there is no file {path}")
    module = _module(path.resolve())
    found = [v for v in vars(module).values() if isinstance(v, KernelDefinition)]
    own = [d for d in dict.fromkeys(found) if Path(d.file).resolve() == path.resolve()]
    kernels = sorted((d for d in own if not d.is_function), key=lambda d: d.line)
    return tuple(Entry(path.stem, path, definition) for definition in kernels)


def find(name: str) -> Entry:
    """The kernel that ``name`` means. Raises CatalogueError with what is near."""
    file, _, wanted = name.rpartition(":")
    if not file and name.endswith(".py"):
        file, wanted = name, ""
    entries = load(Path(file)) if file else shipped()
    found = [e for e in entries if wanted in ("", e.name, f"{e.module}.{e.name}")]
    if len(found) == 1:
        return found[0]
    names = [e.name for e in (found or entries)]
    if found:
        raise CatalogueError(f"`{name}` has several kernels: {', '.join(names)}; say {name}:NAME")
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(names) or 'none'}"
    raise CatalogueError(f"there is no kernel `{wanted}` in {file or 'kernels_src'}; {hint}")


def _module(path: Path) -> ModuleType:
    if path.parent == SHIPPED.resolve():
        return importlib.import_module(f"kernels_src.{path.stem}")
    return _stranger(path, path.stat().st_mtime_ns)


@functools.cache
def _stranger(path: Path, changed: int) -> ModuleType:
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CatalogueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As for a script: modules beside the file can be imported by it.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise CatalogueError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module
