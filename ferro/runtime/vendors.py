"""Finds OpenCL runtimes without any setting by the user, before pyopencl is loaded.

pyopencl's loader reads one folder of vendor entries (``OCL_ICD_VENDORS``). Ferro writes its own
folder with the system's entries and Intel's CPU runtime from pip, whose own entry names a wrong
path. PoCL from pip is found by pyopencl's loader by itself. Owns environment variables of OpenCL
runtimes; knows nothing of devices.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import site
import sys
from dataclasses import dataclass
from pathlib import Path

from ferro import temporary
from ferro.folders import cache_folder, write_atomically
from ferro.runtime.errors import CallError, DeviceUnusable

SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
MARK = "made-by-ferro"
POCL_CACHE = "ferro-pocl-"  # what its name begins with
REINSTALL = "pip install --force-reinstall 'pyopencl[pocl]'"
OCLGRIND_PLACES = ("/usr/lib/oclgrind", "/usr/local/lib/oclgrind", "/usr/lib64/oclgrind")
# How each CPU runtime is told its number of threads; Intel's takes no notice of sub-devices, and
# llvmpipe's do not survive them.
THREADS = ("CL_CONFIG_CPU_TBB_NUM_WORKERS", "POCL_MAX_PTHREAD_COUNT", "LP_NUM_THREADS")
KERNEL_DRIVERS = {"i915": "iris", "xe": "iris", "amdgpu": "radeonsi", "nouveau": "nouveau"}


@dataclass(frozen=True)
class Vendors:
    """What ``prepare`` found: the folder it made, its entries (file name to library path) and
    notes on runtimes that are installed but cannot work, each with its remedy."""

    folder: str
    entries: dict[str, str]
    notes: tuple[str, ...]
    oclgrind: bool = False
    pyopencl: bool = True


@functools.cache
def prepare(rusticl: bool = False) -> Vendors:
    """Set the environment so that pyopencl finds every runtime; the first call counts.

    ``rusticl`` enables Mesa's software device where there is no GPU.
    """
    found = discover()
    enable_rusticl(rusticl)
    keep_compiler_caches_away()
    if found.folder:
        os.environ["OCL_ICD_VENDORS"] = found.folder
    return found


def limit_threads(count: int) -> None:
    """Let CPU devices use ``count`` threads. Runtimes read this once, when they are loaded.

    Raises DeviceUnusable if this process has used OpenCL with another number, CallError for what is
    no number of threads.
    """
    if not isinstance(count, int) or count < 1:
        raise CallError(f"the number of threads must be at least 1, not {count!r}")
    wanted = {name: str(count) for name in THREADS}
    loaded = prepare.cache_info().currsize > 0
    if loaded and any(os.environ.get(name) != value for name, value in wanted.items()):
        raise DeviceUnusable("the number of threads must be set before OpenCL is first used")
    os.environ.update(wanted)


def discover() -> Vendors:
    """Like ``prepare``, but changes no variable."""
    has_pyopencl = importlib.util.find_spec("pyopencl") is not None
    if inside_oclgrind():
        library = oclgrind_library()
        entries = {"oclgrind.icd": library} if library else {}
    else:
        entries = inherited_entries()
        library = intel_library()
        if library and not any("libintelocl.so" in path for path in entries.values()):
            entries["ferro-intel-cpu.icd"] = library
    folder = vendor_folder(entries) if has_pyopencl else ""
    return Vendors(folder, entries, tuple(notes(has_pyopencl)), inside_oclgrind(), has_pyopencl)


def notes(has_pyopencl: bool) -> list[str]:
    """Sentences on what is missing, each with what to install."""
    found = []
    if not has_pyopencl:
        found.append(
            "pyopencl is not installed: only the interpreter can run (pip install pyopencl)"
        )
    if has_pyopencl and pocl_installed() and not linker():
        found.append(
            "PoCL is not offered: it links kernels with `ld`, which is not on PATH "
            "(install the package binutils)"
        )
    return found


def linker() -> str | None:
    """The path of the system's linker that PoCL calls, or None."""
    return shutil.which("ld")


def pocl_installed() -> bool:
    return importlib.util.find_spec("pocl_binary_distribution") is not None


def inherited_entries() -> dict[str, str]:
    """The entries of the user's ``OCL_ICD_VENDORS``, else the system's."""
    chosen = os.environ.get("OCL_ICD_VENDORS", "")
    if not chosen:
        return folder_entries(SYSTEM_FOLDER)
    if os.path.isdir(chosen):
        return folder_entries(Path(chosen))
    if chosen.endswith(".icd"):
        path = Path(chosen) if os.path.isabs(chosen) else SYSTEM_FOLDER / chosen
        return file_entry(path)
    return {"user.icd": chosen}


def folder_entries(folder: Path) -> dict[str, str]:
    entries: dict[str, str] = {}
    if folder.is_dir():
        for path in sorted(folder.glob("*.icd")):
            entries |= file_entry(path)
    return entries


def file_entry(path: Path) -> dict[str, str]:
    """The library that an ``.icd`` file names; empty if unreadable or if that path is missing."""
    try:
        library = path.read_text().strip().splitlines()[0].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        return {}
    if os.path.isabs(library) and not os.path.exists(library):
        return {}
    return {path.name: library}


def intel_library() -> str | None:
    """Intel's CPU runtime as pip installs it, under the ``lib`` of an environment."""
    bases = [sys.prefix, sys.base_prefix, site.getuserbase() or ""]
    for base in dict.fromkeys(bases):
        library = Path(base, "lib", "libintelocl.so")
        if base and library.exists():
            return str(library)
    return None


def vendor_folder(entries: dict[str, str]) -> str:
    """A folder with these entries, named by its content so that processes can share it."""
    text = "\n".join(f"{name} {library}" for name, library in sorted(entries.items()))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        return fill(cache_folder("vendors", name), entries)
    except OSError:
        return fill(temporary.made("ferro-vendors-"), entries)


def fill(folder: Path, entries: dict[str, str]) -> str:
    """Write the entries that are not there yet; safe when several processes do it at once."""
    for name, content in [*entries.items(), (MARK, "")]:
        path = folder / name
        wanted = f"{content}\n".encode()
        if not path.exists() or path.read_bytes() != wanted:
            write_atomically(path, wanted)
    return str(folder)


def inside_oclgrind() -> bool:
    """Whether this process was started by ``oclgrind``, which takes over every OpenCL call."""
    return "liboclgrind-rt" in os.environ.get("LD_PRELOAD", "")


def oclgrind_library() -> str | None:
    places = [os.environ.get("LD_LIBRARY_PATH", "").split(":")[0], *OCLGRIND_PLACES]
    for place in places:
        library = Path(place, "liboclgrind-rt-icd.so")
        if place and library.exists():
            return str(library)
    return None


def enable_rusticl(software: bool) -> None:
    """Set ``RUSTICL_ENABLE`` unless the user did: Mesa offers no device without it."""
    if "RUSTICL_ENABLE" in os.environ:
        return
    drivers = gpu_drivers()
    if drivers:
        os.environ["RUSTICL_ENABLE"] = ",".join(drivers)
    elif software:
        os.environ["RUSTICL_ENABLE"] = "llvmpipe"


def gpu_drivers(root: Path = Path("/sys/class/drm")) -> list[str]:
    """Mesa's driver names of the GPUs whose render node this process can see."""
    names = []
    for node in sorted(root.glob("renderD*")) if root.is_dir() else []:
        kernel = os.path.basename(os.path.realpath(node / "device" / "driver"))
        if os.path.exists(f"/dev/dri/{node.name}") and kernel in KERNEL_DRIVERS:
            names.append(KERNEL_DRIVERS[kernel])
    return list(dict.fromkeys(names))


def keep_compiler_caches_away() -> None:
    """One program cache: pyopencl's is off, PoCL's lives as long as the process and its children.

    A binary that PoCL loads is unpacked into its cache folder, so it needs one that is writable.
    """
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    if not pocl_possible():
        return
    folder = Path(os.environ.get("POCL_CACHE_DIR", ""))
    from_parent = folder.name.startswith(POCL_CACHE)
    if from_parent and temporary.join(folder):
        return
    if from_parent or "POCL_CACHE_DIR" not in os.environ:
        os.environ["POCL_CACHE_DIR"] = str(temporary.made(POCL_CACHE))
        os.environ.setdefault("POCL_KERNEL_CACHE", "0")


def pocl_possible() -> bool:
    return pocl_installed() or any("pocl" in name for name in inherited_entries())
