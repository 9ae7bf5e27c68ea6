"""Why an OpenCL device is missing: looks at the machine, says the line that fixes what it finds.

Every look at the machine goes through a ``Machine``, so that a test can hand in another one.
Libraries are loaded in a child process, because a broken driver may take its process with it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ferro.runtime.children import environment
from ferro.runtime.vendors import REINSTALL

OK, NOTE, PROBLEM = "ok", "note", "problem"

# The drivers that Mesa's rusticl knows by name, and the one for each PCI vendor of a GPU.
RUSTICL_DRIVERS = frozenset(
    "asahi freedreno iris llvmpipe lp nouveau panfrost r600 radeonsi softpipe v3d zink".split()
)
RUSTICL_BY_VENDOR = {"0x8086": "iris", "0x1002": "radeonsi", "0x10de": "nouveau"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``fix`` is a line to type (or "" where nothing is wrong)."""

    status: str
    subject: str
    text: str
    fix: str = ""


def load_error(library: str) -> str:
    """Why ``library`` does not load in a fresh process, or "" if it does."""
    return _child_error("import ctypes, sys; ctypes.CDLL(sys.argv[1])", library)


def import_error() -> str:
    """Why pyopencl cannot be used in a fresh process, or "" if it can."""
    return _child_error(
        "from ferro.runtime import listing, vendors\n"
        "vendors.prepare()\n"
        "raise SystemExit(listing.pyopencl_problem() or None)"
    )


def _child_error(program: str, *words: str) -> str:
    command = [sys.executable, "-c", program, *words]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment()
        )
    except subprocess.TimeoutExpired:
        return "loading it takes longer than a minute"
    if child.returncode < 0:
        return f"loading it ended the process with signal {-child.returncode}"
    last = child.stderr.strip().splitlines()[-1:] or ["it does not load"]
    return last[0].removeprefix("OSError: ") if child.returncode else ""


def opencl_devices() -> tuple[str, ...]:
    """The OpenCL devices that Ferro sees, found in a child process (none where it fails)."""
    program = (
        "from ferro.runtime.devices import devices\n"
        "for d in devices():\n"
        "    if d.kind != 'interpreter': print(f'{d.name} ({d.platform})')"
    )
    command = [sys.executable, "-c", program]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env=environment()
        )
    except subprocess.TimeoutExpired:
        return ()
    return tuple(child.stdout.splitlines()) if child.returncode == 0 else ()


def _owner_group(path: Path) -> int:
    return path.stat().st_gid


def _own_groups() -> frozenset[int]:
    if not hasattr(os, "getgroups"):
        return frozenset()
    return frozenset({*os.getgroups(), os.getegid()})


def _usable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


@dataclass(frozen=True)
class Machine:
    """What the doctor may look at."""

    root: Path = Path("/")
    prefix: Path = Path(sys.prefix)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    groups: frozenset[int] = field(default_factory=lambda: _own_groups())
    load_error: Callable[[str], str] = load_error
    import_error: Callable[[], str] = import_error
    which: Callable[[str], str | None] = shutil.which
    group_of: Callable[[Path], int] = _owner_group
    usable: Callable[[Path], bool] = _usable
    installed: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None
    devices: Callable[[], tuple[str, ...]] = opencl_devices

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    @property
    def container(self) -> str:
        """The kind of container this is, or ""."""
        if "KUBERNETES_SERVICE_HOST" in self.environ:
            return "Kubernetes"
        if self.path("/.dockerenv").exists():
            return "Docker"
        if self.path("/run/.containerenv").exists():
            return "Podman"
        control = self.path("/proc/1/cgroup")
        text = control.read_text(errors="replace") if control.is_file() else ""
        words = {"docker": "Docker", "kubepods": "Kubernetes", "lxc": "LXC", "libpod": "Podman"}
        return next((name for word, name in words.items() if word in text), "")

    def vendor_files(self) -> list[Path]:
        """The .icd files that an OpenCL loader reads here."""
        named = self.environ.get("OCL_ICD_VENDORS")
        folder = Path(named) if named else self.path("/etc/OpenCL/vendors")
        if folder.suffix == ".icd":
            return [folder] if folder.is_file() else []
        return sorted(folder.glob("*.icd")) if folder.is_dir() else []


def examine(machine: Machine | None = None) -> list[Finding]:
    """Everything worth saying about OpenCL on ``machine`` (default: this one)."""
    seen = machine if machine is not None else Machine()
    return [finding for check in CHECKS for finding in check(seen)]


def check_devices(machine: Machine) -> Iterator[Finding]:
    found = machine.devices()
    for name in found:
        yield Finding(OK, "device", name)
    if not found:
        yield Finding(
            PROBLEM,
            "device",
            "OpenCL offers no device; Ferro works with its interpreter, slowly",
            "pip install 'pyopencl[pocl]' intel-opencl-rt intel-cmplr-lib-rt",
        )


def check_pyopencl(machine: Machine) -> Iterator[Finding]:
    if not machine.installed("pyopencl"):
        yield Finding(
            PROBLEM, "pyopencl", "the package is not installed", "pip install 'pyopencl[pocl]'"
        )
        return
    reason = machine.import_error()
    if reason:
        yield Finding(PROBLEM, "pyopencl", f"is installed but cannot be used: {reason}", REINSTALL)


def check_variables(machine: Machine) -> Iterator[Finding]:
    named = machine.environ.get("OCL_ICD_VENDORS")
    if named:
        yield from _vendors_variable(machine, Path(named))
    if machine.environ.get("OCL_ICD_FILENAMES"):
        yield Finding(
            NOTE,
            "OCL_ICD_FILENAMES",
            "is set, but pyopencl's own loader does not read it",
            "export OCL_ICD_VENDORS=/a/folder/with/the/.icd/files",
        )


def _vendors_variable(machine: Machine, folder: Path) -> Iterator[Finding]:
    if not folder.exists():
        text = f"names {folder}, which does not exist: the system's entries are not seen"
        yield Finding(PROBLEM, "OCL_ICD_VENDORS", text, "unset OCL_ICD_VENDORS")
    elif not machine.vendor_files():
        text = f"names {folder}, which has no .icd file: the system's entries are not seen"
        yield Finding(PROBLEM, "OCL_ICD_VENDORS", text, "unset OCL_ICD_VENDORS")
    else:
        yield Finding(OK, "OCL_ICD_VENDORS", f"names {folder}")


def check_vendor_files(machine: Machine) -> Iterator[Finding]:
    files = machine.vendor_files()
    for file in files:
        library = file.read_text(errors="replace").strip()
        error = machine.load_error(library) if library else "the file is empty"
        if error:
            yield Finding(PROBLEM, str(file), f"{library}: {error}", _reinstall(library, file))
        else:
            yield Finding(OK, str(file), f"{library} loads")
    if not files and not machine.environ.get("OCL_ICD_VENDORS"):
        text = "no system OpenCL driver is installed (packages from pip are looked at below)"
        yield Finding(NOTE, "/etc/OpenCL/vendors", text, "apt-get install intel-opencl-icd")


def _reinstall(library: str, file: Path) -> str:
    packages = {
        "igdrcl": "intel-opencl-icd",
        "Rusticl": "mesa-opencl-icd",
        "MesaOpenCL": "mesa-opencl-icd",
        "pocl": "pocl-opencl-icd",
    }
    for word, package in packages.items():
        if word in library:
            return f"apt-get install --reinstall {package}"
    return f"rm {file}"


def check_pocl(machine: Machine) -> Iterator[Finding]:
    if not machine.installed("pocl_binary_distribution"):
        text = "the CPU device from pip is not installed"
        yield Finding(NOTE, "pocl", text, "pip install 'pyopencl[pocl]'")
    elif machine.which("ld") is None:
        text = "links every kernel with the system's `ld`, which is missing, so it is not offered"
        yield Finding(PROBLEM, "pocl", text, "apt-get install binutils")
    else:
        yield Finding(OK, "pocl", "installed from pip, and `ld` is there")


def check_intel_runtime(machine: Machine) -> Iterator[Finding]:
    library = machine.prefix / "lib" / "libintelocl.so"
    if not library.exists():
        text = "Intel's CPU runtime from pip is not installed"
        fix = "pip install intel-opencl-rt intel-cmplr-lib-rt"
        yield Finding(NOTE, "intel-opencl-rt", text, fix)
        return
    error = machine.load_error(str(library))
    if error:
        fix = "pip install --force-reinstall intel-opencl-rt intel-cmplr-lib-rt"
        yield Finding(PROBLEM, "intel-opencl-rt", f"{library}: {error}", fix)
        return
    entry = machine.prefix / "etc" / "OpenCL" / "vendors" / "intel-cpu.icd"
    text = f"{library} loads"
    if entry.is_file() and not Path(entry.read_text().strip()).exists():
        text += "; its own .icd file names a wrong path, so Ferro writes one that is right"
    yield Finding(OK, "intel-opencl-rt", text)


def check_rusticl(machine: Machine) -> Iterator[Finding]:
    present = any("Rusticl" in f.read_text(errors="replace") for f in machine.vendor_files())
    if not present:
        return
    value = machine.environ.get("RUSTICL_ENABLE", "")
    names = {name.split(":")[0].strip() for name in value.split(",")} - {""}
    wanted = gpu_driver(machine) or "llvmpipe"
    fix = f"export RUSTICL_ENABLE={wanted}"
    unknown = sorted(names - RUSTICL_DRIVERS)
    if not names:
        text = "Mesa's OpenCL offers no device until RUSTICL_ENABLE names a driver"
        yield Finding(NOTE, "rusticl", text, fix)
    elif unknown:
        text = f"RUSTICL_ENABLE names no driver of Mesa: {', '.join(unknown)}"
        yield Finding(PROBLEM, "rusticl", text, fix)
    else:
        yield Finding(OK, "rusticl", f"RUSTICL_ENABLE={value}")


def gpu_driver(machine: Machine) -> str:
    """rusticl's driver for the first GPU that the kernel shows, or ""."""
    for file in sorted(machine.path("/sys/class/drm").glob("card*/device/vendor")):
        driver = RUSTICL_BY_VENDOR.get(file.read_text().strip())
        if driver:
            return driver
    return ""


def check_gpu_nodes(machine: Machine) -> Iterator[Finding]:
    nodes = sorted(machine.path("/dev/dri").glob("renderD*"))
    if not nodes:
        yield _no_nodes(machine)
    for node in nodes:
        name = f"/dev/dri/{node.name}"
        if machine.usable(node):
            yield Finding(OK, name, "may be opened")
            continue
        group = machine.group_of(node)
        text = f"belongs to group {group}, which this process is not in"
        if group in machine.groups:
            text = f"is not readable and writable for its group {group}"
        yield Finding(PROBLEM, name, text, _join_group(machine, group, node))


def _no_nodes(machine: Machine) -> Finding:
    shown = gpu_driver(machine)
    if machine.container:
        text = f"no GPU reaches this {machine.container} container"
        fix = "docker run --device /dev/dri --group-add $(stat -c %g /dev/dri/renderD128) ..."
        if machine.container == "Kubernetes":
            fix = "resources: {limits: {gpu.intel.com/i915: 1}}  # with Intel's device plugin"
        return Finding(NOTE, "/dev/dri", text, fix)
    if shown:
        text = "a GPU is there, but the kernel offers no render node"
        return Finding(PROBLEM, "/dev/dri", text, "modprobe i915" if shown == "iris" else "dmesg")
    return Finding(NOTE, "/dev/dri", "this machine shows no GPU")


def _join_group(machine: Machine, group: int, node: Path) -> str:
    if group in machine.groups:
        return f"chmod g+rw {node}"
    if machine.container == "Kubernetes":
        return f"securityContext: {{supplementalGroups: [{group}]}}"
    if machine.container:
        return f"docker run --device /dev/dri --group-add {group} ..."
    return f"sudo usermod -aG {_group_name(machine, group)} $USER  # then log in anew"


def _group_name(machine: Machine, group: int) -> str:
    file = machine.path("/etc/group")
    lines = file.read_text().splitlines() if file.is_file() else []
    rows = (line.split(":") for line in lines)
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(group)), str(group))


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    check_devices,
    check_pyopencl,
    check_variables,
    check_vendor_files,
    check_pocl,
    check_intel_runtime,
    check_rusticl,
    check_gpu_nodes,
)
