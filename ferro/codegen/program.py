"""What the code generators take and give: the contract between codegen, runtime and tuner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ferro.dsl.ir import Extent

DOT_LOWERINGS = ("vnni512", "vnni256", "avx2", "dp4a", "emulated")


@dataclass(frozen=True)
class Target:
    """A way to lower: ``kind`` "simd" (a program is one work-item of vectors) or "simt" (a program
    is one work-group), the lanes it prefers and what probes found to work on the device.

    ``abi`` names how an LLVM intrinsic is declared for the device's compiler ("intel" | "pocl").
    ``features`` is a subset of {"vload_half", "block_read", "prefetch"}.
    """

    kind: str
    lanes: int
    dot: str = "emulated"
    abi: str = ""
    features: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return "-".join([self.kind, str(self.lanes), self.dot, *sorted(self.features)])


@dataclass(frozen=True)
class Config:
    """A schedule: it changes speed and nothing else.

    ``constants`` sets the kernel's schedule constexprs; ``lanes`` and ``dot`` override the
    target's; ``lane_axis`` names the axis labels to put on lanes, most wanted first; ``split`` is
    the number of work-groups that share one program's ordered walk (1: not split); ``prefetch``
    False leaves out asking for weights ahead, which only pays where they come from memory;
    ``group`` is how many programs of the grid's second axis run side by side before the first axis
    goes on (Triton's grouped order; 0: the first axis runs fastest).
    """

    constants: Mapping[str, int] = field(default_factory=dict)
    lanes: int | None = None
    lane_axis: tuple[str, ...] = ()
    split: int = 1
    dot: str | None = None
    prefetch: bool = True
    group: int = 0

    def __str__(self) -> str:
        words = [f"{k}={v}" for k, v in sorted(self.constants.items())]
        words += [f"lanes={self.lanes}"] if self.lanes else []
        words += [f"lane_axis={'+'.join(self.lane_axis)}"] if self.lane_axis else []
        words += [f"split={self.split}"] if self.split != 1 else []
        words += [f"dot={self.dot}"] if self.dot else []
        words += [] if self.prefetch else ["prefetch=0"]
        words += [f"group={self.group}"] if self.group else []
        return " ".join(words) or "default"


@dataclass(frozen=True)
class Argument:
    """One argument of an OpenCL kernel, in order.

    ``kind`` "buffer" (a Pointer or Quantised of that name), "scalar" (i32, u32 or f32 by
    ``dtype``) or "scratch" (a device buffer of ``bytes`` bytes that lives between the entries).
    """

    kind: str
    name: str
    dtype: str = ""
    bytes: Extent = ("const", 0)


@dataclass(frozen=True)
class Entry:
    """One OpenCL kernel of a program. The global size is ``groups`` x ``local``, three axes."""

    name: str
    arguments: tuple[Argument, ...]
    groups: tuple[Extent, Extent, Extent]
    local: tuple[int, int, int]


@dataclass(frozen=True)
class Program:
    """Generated OpenCL C and its entries, enqueued in order on one in-order queue."""

    source: str
    options: tuple[str, ...]
    entries: tuple[Entry, ...]
    target: Target
    config: Config
