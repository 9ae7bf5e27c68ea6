"""Finds kernels by name: the shipped ones, and those of any Python file.

A name is `rmsnorm`, `norms.rmsnorm` (file and kernel) or `path/to/file.py:kernel`. Functions under
`@kernel` that are inlined into kernels can be shown, but not run: they are listed apart.
"""

from __future__ import annotations

import contextlib
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
_LATER = "from __future__ import annotations"


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
    return tuple(entry for file in _shipped_files() for entry in load(file))


def load(path: Path) -> tuple[Entry, ...]:
    """The kernels of one file, in the order they are written. Raises CatalogueError."""
    return tuple(entry for entry in definitions(path) if not entry.definition.is_function)


def definitions(path: Path) -> tuple[Entry, ...]:
    """Like ``load``, with the functions that kernels of the file may call."""
    if path.is_dir():
        raise CatalogueError(f"{path} is a folder: {_files_with_kernels(path)}")
    if not path.is_file():
        raise CatalogueError(f"there is no file {path}")
    module = _module(path.resolve())
    found = [v for v in vars(module).values() if isinstance(v, KernelDefinition)]
    own = [d for d in dict.fromkeys(found) if Path(d.file).resolve() == path.resolve()]
    return tuple(Entry(path.stem, path, d) for d in sorted(own, key=lambda d: d.line))


def find(name: str) -> Entry:
    """The kernel that ``name`` means. Raises CatalogueError with what is near."""
    file, _, wanted = name.rpartition(":")
    if not file and name.endswith(".py"):
        file, wanted = name, ""
    entries = load(Path(file)) if file else shipped()
    found = [e for e in entries if _means(wanted, e)]
    if len(found) == 1:
        return found[0]
    functions = () if found else find_functions(name)
    if functions:
        shown = [name if file else f"{e.module}.{e.name}" for e in functions]
        raise CatalogueError(
            f"`{wanted}` is inlined into the kernels that call it and has no program of its own; "
            f"`ferro kernels show {' or '.join(shown)}` prints it"
        )
    names = [e.name for e in (found or entries)]
    if found:
        raise CatalogueError(f"`{name}` has several kernels: {', '.join(names)}; say {name}:NAME")
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(names) or 'none'}"
    raise CatalogueError(f"there is no kernel `{wanted}` in {file or 'kernels_src'}; {hint}")


def find_functions(name: str) -> tuple[Entry, ...]:
    """The functions of this name that are inlined into kernels."""
    file, _, wanted = name.rpartition(":")
    files = [Path(file)] if file else _shipped_files()
    entries = [entry for path in files for entry in definitions(path)]
    return tuple(e for e in entries if e.definition.is_function and wanted and _means(wanted, e))


def _means(wanted: str, entry: Entry) -> bool:
    return wanted in ("", entry.name, f"{entry.module}.{entry.name}")


def _shipped_files() -> list[Path]:
    return sorted(p for p in SHIPPED.glob("*.py") if p.stem != "__init__")


def _files_with_kernels(folder: Path) -> str:
    """Which file of a folder to name; looks at their text, since loading a file runs it."""
    found = []
    for file in sorted(folder.glob("*.py")):
        try:
            found += [file.name] if "@kernel" in file.read_text(errors="replace") else []
        except OSError:
            continue
    if not found:
        return "name a Python file with functions under @kernel (none of its files has any)"
    return f"name one of its files with kernels: {', '.join(found[:8])}"


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
        # What the file prints is no part of what a command prints.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        del sys.modules[name]
        raise
    except BaseException as error:
        del sys.modules[name]
        raise CatalogueError(f"{path} cannot be loaded: {_reason(error, path)}") from error
    finally:
        if str(path.parent) in sys.path:
            sys.path.remove(str(path.parent))
    return module


def _reason(error: BaseException, path: Path) -> str:
    if isinstance(error, SystemExit):
        return (
            f"it ends the process (exit code {error.code}) when it is imported: keep what is to be "
            'run under `if __name__ == "__main__":`'
        )
    help = ""
    if isinstance(error, NameError) and _LATER not in path.read_text("utf-8", "replace"):
        help = f": begin the file with `{_LATER}`, so that Python leaves annotations alone"
    return f"{type(error).__name__}: {error}{help}"
