"""What a device can really do, found by running small programs in a child process.

Extension strings lie and a wrong intrinsic can abort the process, so every probe builds, runs and
checks a program in a child with a timeout. Findings are kept per device, driver and processor.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ferro import system
from ferro.codegen.program import DOT_LOWERINGS, Target
from ferro.folders import cache_folder, write_atomically
from ferro.runtime import probe_checks, probe_sources
from ferro.runtime.children import environment
from ferro.runtime.errors import DeviceUnusable
from ferro.runtime.listing import (
    INTERPRETER,
    DeviceInfo,
    describe,
    opencl_devices,
    vector_extensions,
)

MARK = "ferro-probe "
TIMEOUT = 120.0
READY = "ready"
EXACTNESS = ("arithmetic", "vector arithmetic", "conversions", "vload_half")
FEATURES = ("vload_half", "block_read", "prefetch")
ABIS = dict.fromkeys(("vnni512", "vnni256", "prefetch"), ("intel", "pocl"))


@dataclass(frozen=True)
class Findings:
    """Probe name to "" (works) or why not.

    ``abi`` is how LLVM intrinsics are declared here, empty where they cannot be.
    """

    results: dict[str, str] = field(default_factory=dict)
    abi: str = ""

    def works(self, name: str) -> bool:
        return self.results.get(name) == ""

    @property
    def dots(self) -> tuple[str, ...]:
        """The int8 dot lowerings that work, the fastest first."""
        return tuple(name for name in DOT_LOWERINGS if self.works(name))

    @property
    def lanes(self) -> int:
        """Lanes of the vectors of ``simd``: 16 where the compiler makes int8 dots of 16.

        It may know less than the processor has: PoCL's LLVM 14 takes a Zen 4 for a Zen 3, and
        aborts over arguments of 16 floats.
        """
        return 16 if self.works("vnni512") else 8

    @property
    def features(self) -> frozenset[str]:
        return frozenset(name for name in FEATURES if self.works(name))

    @property
    def exact(self) -> str:
        """ "yes", or what differs from the language's arithmetic."""
        wrong = [self.results.get(name, "not probed") for name in EXACTNESS]
        return "; ".join(dict.fromkeys(filter(None, wrong))) or "yes"


_known: dict[str, Findings] = {}


def findings(info: DeviceInfo) -> Findings:
    """What the probes found, from memory, from disk, or by probing now (seconds).

    Raises DeviceUnusable, and keeps nothing, where the probes could not be run.
    """
    if info.kind == INTERPRETER:
        return Findings(dict.fromkeys(("emulated", *EXACTNESS), ""))
    found = _known.get(info.identity) or _load(info)
    if found is None:
        found = probe(info)
        _save(info, found)
    _known[info.identity] = found
    return found


def targets(info: DeviceInfo, found: Findings) -> tuple[Target, ...]:
    """Every way to lower for this device, the preferred one first.

    CPU runtimes run ``simd`` best; llvmpipe makes vectors out of work-items by itself.
    """
    simt = Target("simt", 16, best(found, ("dp4a",)), "", found.features - {"prefetch"})
    if info.kind != "cpu" or info.alias == "oclgrind":
        return (simt,)
    wanted = ("vnni512",) if found.lanes == 16 else ("vnni256", "avx2")
    features = found.features - {"block_read"}
    simd = Target("simd", found.lanes, best(found, wanted), found.abi, features)
    return (simt, simd) if info.alias in ("rusticl", "clover") else (simd, simt)


def best(found: Findings, wanted: Iterable[str]) -> str:
    return next((name for name in wanted if found.works(name)), "emulated")


def wanted_probes(info: DeviceInfo) -> list[str]:
    """The probes that make sense, "name" or "name/abi", the likelier abi first."""
    names = ["emulated", "dp4a", "block_read", *EXACTNESS]
    if info.kind == "cpu" and info.alias not in ("rusticl", "clover", "oclgrind"):
        extensions = vector_extensions()
        names += ["llvm_fma", *_forms("prefetch", info)]
        if extensions & {"avx512_vnni"}:
            names += _forms("vnni512", info)
        if extensions & {"avx_vnni", "avx512_vnni"}:
            names += _forms("vnni256", info)
        if "avx2" in extensions:
            names.append("avx2")
    return names


def _forms(name: str, info: DeviceInfo) -> list[str]:
    abis = sorted(ABIS[name], key=lambda abi: abi != info.alias)
    return [f"{name}/{abi}" for abi in abis]


def probe(info: DeviceInfo) -> Findings:
    """Run every probe in child processes; a probe that ends its child is a probe that failed.

    One that gives no answer, or whose child is killed from outside, gets a second try: the machine
    may have been busy or out of memory. Raises DeviceUnusable if a child gets to no probe.
    """
    waiting = wanted_probes(info)
    results: dict[str, str] = {}
    tried: set[str] = set()
    while waiting:
        done, end = _child(info, waiting)
        results |= done
        waiting = waiting[len(done) :]
        if not waiting:
            break
        if end.passing and waiting[0] not in tried:
            tried.add(waiting[0])
        else:
            results[waiting.pop(0)] = end.reason or "the probe gave no result"
    return _sum_up(results, info.alias)


def _sum_up(results: dict[str, str], alias: str) -> Findings:
    plain = {name: result for name, result in results.items() if "/" not in name}
    abi = ""
    for form, result in results.items():
        name, _, kind = form.partition("/")
        if kind and (name not in plain or plain[name] != ""):
            plain[name] = result
            abi = abi or (kind if result == "" else "")
    if plain.get("llvm_fma") != "":
        return Findings(plain, "")
    return Findings(plain, abi or ("pocl" if alias == "pocl" else "intel"))


@dataclass(frozen=True)
class _End:
    """How a child ended ("" if well); ``passing`` if it need not end so again."""

    reason: str = ""
    passing: bool = False


def _child(info: DeviceInfo, names: list[str]) -> tuple[dict[str, str], _End]:
    """The results of a child over these probes, and how it ended."""
    command = [sys.executable, "-m", "ferro.runtime.probes", info.identity, *names]
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment())
        try:
            output, _ = child.communicate(timeout=TIMEOUT)
            reason = f"the process ended with status {child.returncode}" if child.returncode else ""
            end = _End(reason, child.returncode in system.ENDED)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            end = _End(f"no answer within {TIMEOUT:g} s", True)
        lines = output.decode(errors="replace").splitlines()
        done = dict(json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK))
        if done.pop(READY, None) is None:
            errors.seek(0)
            said = errors.read().decode(errors="replace").split("\n")
            raise _unprobed(info, end, [line.strip() for line in said if line.strip()])
    return done, end


def _unprobed(info: DeviceInfo, end: _End, errors: list[str]) -> DeviceUnusable:
    """A child that did not get to its first probe: nothing is known of the device."""
    words = [end.reason or "the process ended early", *(line[:200] for line in errors[-1:])]
    return DeviceUnusable(
        f"{info.alias}: the probes that find out what it can do did not start"
        f" ({': '.join(words)}). Nothing was kept; they are tried again at the next use"
    )


def _load(info: DeviceInfo) -> Findings | None:
    try:
        data = json.loads(_path(info).read_text())
        return Findings(data["results"], data["abi"])
    except (OSError, ValueError, KeyError):
        return None


def _save(info: DeviceInfo, found: Findings) -> None:
    record = {"device": str(info), "probed": time.strftime("%Y-%m-%d"), **asdict(found)}
    try:
        write_atomically(_path(info), json.dumps(record, indent=1).encode())
    except OSError:
        pass  # found again next time


def _path(info: DeviceInfo) -> Any:
    return cache_folder("probes", f"{info.identity}-{_version()}.json")


def _version() -> str:
    forms = [(name, abi) for name in ABIS for abi in ABIS[name]]
    texts = [probe_sources.source(*form) for form in forms] + list(probe_sources.SOURCES.values())
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:8]


def run_probe(device: Any, form: str) -> str:
    """Build, run and check one probe in this process: "" or what is wrong."""
    import pyopencl as cl

    name, _, abi = form.partition("/")
    wanted = probe_checks.check(name)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    compiled = cl._cl._Program(context, probe_sources.source(name, abi))
    try:
        compiled._build(_options(device, name), [device])
        kernel = cl.Kernel(compiled, "probe")
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        inputs = [cl.Buffer(context, flags, hostbuf=array) for array in wanted.inputs]
        got = np.zeros(wanted.results, np.uint32)
        output = cl.Buffer(context, cl.mem_flags.READ_WRITE, got.nbytes)
        for index, buffer in enumerate([*inputs, output]):
            kernel.set_arg(index, buffer)
        cl.enqueue_nd_range_kernel(queue, kernel, (wanted.items,), (wanted.group,))
        cl.enqueue_copy(queue, got, output)
    except cl.Error as error:
        log = compiled.get_build_info(device, cl.program_build_info.LOG)
        lines = [line for line in log.splitlines() if "error" in line.lower()]
        return " ".join((lines or str(error).splitlines() or ["failed"])[0].split())
    return wanted.verdict(got)


def _options(device: Any, name: str) -> bytes:
    newer = device.version.split()[1] >= "3" and name == "dp4a"
    return b"-cl-std=CL3.0" if newer else b"-cl-std=CL1.2"


def main(identity: str, names: list[str]) -> None:
    """The child: a line when the device is found, and one for each probe as soon as it is known."""
    for index, device in enumerate(opencl_devices()):
        if describe(index, device).identity == identity:
            print(MARK + json.dumps([READY, ""]), flush=True)
            for name in names:
                print(MARK + json.dumps([name, run_probe(device, name)]), flush=True)
            return
    sys.exit("this process does not see the device")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
