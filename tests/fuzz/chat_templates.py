"""Chat templates: no way out of the sandbox, no error but those that are foreseen."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from ferro.models.template_worker import opened, rendered
from tests.fuzz.target import Target

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"
SECONDS = 1.0
VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_generation_prompt": True,
}
WORDS = tuple(
    """{{ }} {% %} {%- -%} {# #} | . [ ] ( ) ' " , = == in not is and or if else elif endif for
    endfor set endset macro endmacro call endcall filter endfilter generation endgeneration
    break continue namespace( range( dict( raise_exception( strftime_now( joiner cycler lipsum
    loop self caller varargs kwargs messages tools messages[0].content bos_token |tojson |attr(
    |map( |select( |list |format( |sort |groupby( |batch( |tojson(indent= .format( .format_map(
    .__class__ __globals__ __init__ __mro__ __subclasses__ __builtins__ _func gi_frame f_globals
    mro() .items() .join( import include extends block endblock with endwith without context
    recursive %s {0.__class__} ~ + - * // % 99999 1e400 -1 none true false undefined defined
    mapping iterable callable string""".split()
)


class Late(BaseException):
    """A rendering that took too long: the process that it runs in would be ended."""


class _Watch:
    """Tells what Python is asked to do by a template (PEP 578)."""

    active = False
    harmful = ("open", "import", "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pickle.")

    def __call__(self, event: str, arguments: Any) -> None:
        source = event == "open" and str(arguments[0]).endswith(".py")  # lines of a traceback
        if self.active and event.startswith(self.harmful) and not source:
            self.active = False
            raise AssertionError(f"a template reached {event}{arguments!r}"[:300])


_watch = _Watch()


@contextmanager
def watched() -> Iterator[None]:
    """Within it a template may neither touch the system nor take long."""

    def late(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    _watch.active = True
    try:
        yield
    except Late:
        pass
    finally:
        _watch.active = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def watch() -> None:
    """Begin to listen to what Python is asked to do; for the rest of the process."""
    opened("{{ messages[0].content|tojson }}")  # what is imported when it is needed first
    sys.addaudithook(_watch)


def run(data: bytes) -> None:
    """Raises what no template may cause. A power can take any time inside one operation, where no
    alarm reaches it: such templates are left to the process that they run in."""
    source = data.decode("utf-8", "surrogateescape")
    if "**" in source:
        return
    with watched():
        template, told = opened(source)
        json.dumps(told)
        assert (template is None) == ("bad" in told)
        if template is not None:
            found = rendered(template, {"variables": json.loads(json.dumps(VARIABLES)), "now": 0})
            json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")


def seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(TEMPLATES.glob("*.jinja"))]


def mutate(data: bytes, random: Random) -> bytes:
    """A few words are put in, or pieces left out or moved."""
    words = data.decode("utf-8", "surrogateescape").split(" ")
    for _ in range(random.randint(1, 4)):
        at, other = random.randrange(len(words) + 1), random.randrange(len(words) + 1)
        change = random.randrange(4)
        if change < 2:
            words.insert(at, random.choice(WORDS))
        elif change == 2:
            del words[at : at + random.randint(1, 5)]
        else:
            words[at:at] = words[other : other + random.randint(1, 20)]
    return " ".join(words).encode("utf-8", "surrogateescape")


TARGET = Target(run, seeds, mutate, WORDS)
