"""What Intel's Gen12 compiler makes of generated OpenCL C: `ocloc` offline, no GPU needed.

Compiles for a device such as `adl-n` (the N100's GPU), reads the assembly that the compiler dumps
and counts execution-unit cycles by loop: a SIMD16 instruction takes 2, SIMD8 and narrower (and a
`sync`) 1; sends go to other units and are counted apart.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from pathlib import Path

DEVICE = "adl-n"

# This compiler does not know the integer dot built-ins of cl_khr_integer_dot_product by name; the
# SPIR-V form becomes a real dp4a (the last argument 0 says: four packed 8-bit values).
PRELUDE = """\
int __attribute__((overloadable)) __spirv_SDotAccSatKHR(int, int, int, int);
#define cl_khr_integer_dot_product 1
#define dot_acc_sat_4x8packed_ss_int(a, b, c) __spirv_SDotAccSatKHR((int)(a), (int)(b), (c), 0)
#define dot_4x8packed_ss_int(a, b) __spirv_SDotAccSatKHR((int)(a), (int)(b), 0, 0)
#line 1
"""


class Gen12Error(Exception):
    """`ocloc` is missing or refused the source; the message is its log."""

    exit_code = 1


@dataclass(frozen=True)
class Loop:
    """One loop of a kernel, inner loops included. ``depth`` is 1 for an outermost loop."""

    label: str
    depth: int
    innermost: bool
    instructions: int
    cycles: int
    dp4a: int
    dp4a_cycles: int
    sends: int

    @property
    def dp4a_share(self) -> float:
        """The part of the loop's cycles that dp4a takes."""
        return self.dp4a_cycles / self.cycles if self.cycles else 0.0


@dataclass(frozen=True)
class Statistics:
    """One compiled kernel. Sizes are in bytes: spill and private memory of a hardware thread,
    local memory of a work-group; ``grf`` counts registers."""

    name: str
    simd: int
    grf: int
    spill: int
    private: int
    local: int
    instructions: int
    cycles: int
    sends: int
    loops: tuple[Loop, ...]

    @property
    def dot_loop(self) -> Loop | None:
        """The innermost loop with the most dp4a instructions, or None."""
        found = [loop for loop in self.loops if loop.innermost and loop.dp4a]
        return max(found, key=lambda loop: loop.dp4a, default=None)


def available() -> bool:
    """Whether `ocloc` (Debian package intel-opencl-icd or intel-ocloc) is on the PATH."""
    return shutil.which("ocloc") is not None


def statistics(
    source: str,
    options: Sequence[str] = ("-cl-std=CL3.0",),
    device: str = DEVICE,
    timeout: float = 120,
) -> tuple[Statistics, ...]:
    """Compiles OpenCL C ``source`` for ``device``; one entry a kernel, in source order.

    Raises Gen12Error where `ocloc` is missing, refuses the source or takes too long.
    """
    if not available():
        raise Gen12Error("`ocloc` is not installed (Debian: apt-get install intel-opencl-icd)")
    with tempfile.TemporaryDirectory(prefix="ferro-gen12-") as folder:
        dump = _compile(Path(folder), PRELUDE + source, options, device, timeout)
        local = local_memory("\n".join(f.read_text() for f in dump.glob("*_optimized.ll")))
        # A kernel that spills is compiled again: the last file of a name is the one that counts.
        files = sorted(dump.glob("*.asm"), key=lambda f: (f.stat().st_mtime_ns, f.name))
        found = {s.name: s for s in (parse(f.read_text(), _simd(f.name), local) for f in files)}
    order = [name for name in re.findall(r"\bvoid\s+(\w+)\s*\(", source) if name in found]
    return tuple(found.pop(name) for name in dict.fromkeys(order)) + tuple(found.values())


def _compile(
    folder: Path, source: str, options: Sequence[str], device: str, timeout: float
) -> Path:
    file, dump = folder / "kernel.cl", folder / "dump"
    file.write_text(source)
    command = ["ocloc", "compile", "-file", str(file), "-device", device]
    command += ["-options", " ".join(options), "-output", "kernel", "-out_dir", str(folder / "out")]
    environ = {**os.environ, "IGC_ShaderDumpEnable": "1", "IGC_DumpToCustomDir": str(dump)}
    try:
        done = subprocess.run(
            command, env=environ, cwd=folder, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise Gen12Error(f"`ocloc` takes longer than {timeout:.0f} s") from None
    if done.returncode or not any(dump.glob("*.asm")):
        raise Gen12Error((done.stdout + done.stderr).strip() or "`ocloc` gives no assembly")
    return dump


# --- local memory -------------------------------------------------------------------------------

_SHARED = re.compile(r"^@(\w+)\.\w[\w.]* = .*addrspace\(3\) global (.+?) (?:undef|zero)", re.M)
_ELEMENTS = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def local_memory(llvm: str) -> dict[str, int]:
    """Bytes of local memory by kernel, from the `addrspace(3)` globals of LLVM text."""
    sizes: dict[str, int] = {}
    for kernel, declared in _SHARED.findall(llvm):
        element = re.search(r"(\w+)[\]>]*$", declared)
        counts = [int(n) for n in re.findall(r"(\d+) x ", declared)]
        size = _ELEMENTS.get(element[1] if element else "", 4) * reduce(mul, counts, 1)
        sizes[kernel] = sizes.get(kernel, 0) + size
    return sizes


# --- assembly -----------------------------------------------------------------------------------

_LABEL = re.compile(r"^(\w+):")
_INSTRUCTION = re.compile(r"^(?:\([^)]*\))?\s+([a-z][\w.]*)\s+(?:\((\d+)\|M\d+\))?\s*(.*)$")


@dataclass(frozen=True)
class _Instruction:
    name: str
    width: int
    operands: str

    @property
    def is_send(self) -> bool:
        return self.name.startswith("send")

    @property
    def cycles(self) -> int:
        return 0 if self.is_send else max(1, self.width // 8)


def _simd(file: str) -> int:
    width = re.search(r"_simd(\d+)_", file)
    return int(width[1]) if width else 0


def parse(text: str, simd: int, local: dict[str, int] | None = None) -> Statistics:
    """Reads one dumped `.asm` file; its name tells ``simd``, and ``local`` gives the local memory
    by kernel."""
    instructions, labels = _read(text.splitlines())
    name = _header(text, r"\.kernel (\w+)") or "?"
    return Statistics(
        name=name,
        simd=simd,
        grf=int(_header(text, r"numGRF=(\d+)") or 0),
        spill=int(_header(text, r"\.spill size (\d+)") or 0),
        private=int(_header(text, r"\.private memory size (\d+)") or 0),
        local=(local or {}).get(name, 0),
        instructions=len(instructions),
        cycles=sum(i.cycles for i in instructions),
        sends=sum(i.is_send for i in instructions),
        loops=tuple(_loops(instructions, labels)),
    )


def _header(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


def _read(lines: Iterable[str]) -> tuple[list[_Instruction], dict[str, int]]:
    """The instructions in order, and for each label the index of the one that follows it."""
    instructions: list[_Instruction] = []
    labels: dict[str, int] = {}
    for line in lines:
        code = line.split("//")[0].rstrip()
        if label := _LABEL.match(code):
            labels[label[1]] = len(instructions)
        elif found := _INSTRUCTION.match(code):
            name, width, operands = found.groups()
            instructions.append(_Instruction(name, int(width or 1), operands))
    return instructions, labels


def _loops(instructions: list[_Instruction], labels: dict[str, int]) -> Iterator[Loop]:
    """Every branch backwards closes a loop; several to one label close the same one."""
    ends: dict[str, int] = {}
    for index, instruction in enumerate(instructions):
        for word in re.findall(r"\b\w+\b", instruction.operands):
            if labels.get(word, index + 1) <= index:
                ends[word] = index
    spans = {label: (labels[label], end) for label, end in ends.items()}
    for label, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        others = [span for span in spans.values() if span != (start, end)]
        body = instructions[start : end + 1]
        dots = [i for i in body if i.name == "dp4a"]
        yield Loop(
            label=label,
            depth=1 + sum(s <= start and end <= e for s, e in others),
            innermost=not any(start <= s and e <= end for s, e in others),
            instructions=len(body),
            cycles=sum(i.cycles for i in body),
            dp4a=len(dots),
            dp4a_cycles=sum(i.cycles for i in dots),
            sends=sum(i.is_send for i in body),
        )
