"""What Intel's compiler makes of every shipped kernel for the N100's GPU, without one.

Every kernel is built at the configs that are shipped for such a GPU, or at its default where none
is, with Intel's sub-group reads and without them (drivers differ).
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pytest

from ferro import codegen
from ferro.catalogue import Entry, shipped
from ferro.codegen.gen12 import DEVICE, Statistics, available, statistics
from ferro.codegen.program import Config, Program, Target
from ferro.dsl import ir
from ferro.measure import Request
from ferro.runtime.configs import Shipped, read_table

pytestmark = pytest.mark.skipif(
    not available(), reason="`ocloc` is not installed (Debian: intel-opencl-icd)"
)

# Limits of the N100's GPU: bytes of local memory and work-items of a work-group.
LOCAL_MEMORY, LARGEST_GROUP = 65536, 512
VARIANTS = {
    "plain": Target("simt", 16, "dp4a", features=frozenset({"vload_half"})),
    "block-read": Target("simt", 16, "dp4a", features=frozenset({"block_read", "vload_half"})),
}
# The part of the inner loop's EU cycles that the int8 dots of many rows must take.
LEAST_SHARE = {"plain": 0.50, "block-read": 0.60}
# What a shipped config that names no such size is tried with: heads and what of them turns, taps.
EXTENTS = {"D": 256, "C": 128, "L": 3}
MEANINGS = {
    "matmul_q8": [{}, {"ACT": "gelu"}, {"ACT": "gelu_tanh"}],
    "gated_q8": [{"ACT": "silu"}, {"ACT": "gelu_tanh"}],
    "gated_q4": [{"ACT": "silu"}],
}


@dataclass(frozen=True)
class Case:
    """A kernel at one config; ``sizes`` and ``variants`` are those that it is shipped for."""

    entry: Entry
    config: Config = field(default_factory=Config)
    sizes: Mapping[str, int] = field(default_factory=dict)
    variants: tuple[str, ...] = tuple(VARIANTS)

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{self.entry.name} {sizes or 'any'} {self.config}"

    def programs(self, variant: str) -> Iterator[tuple[ir.Kernel, Program]]:
        """The generated programs, one for each meaning that is tried: several at any size."""
        name, parameters = self.entry.name, self.entry.definition.parameters
        sizes = {**EXTENTS, **self.sizes}
        present = frozenset(p.name for p in parameters.values() if p.optional)
        for meaning in MEANINGS.get(name, [{}])[: 1 if self.sizes else None]:
            constants = {**{n: v for n, v in sizes.items() if n in parameters}, **meaning}
            request = Request(
                self.entry.definition, constants=constants, present=present, config=self.config
            )
            kernel = request.kernel()
            yield kernel, codegen.generate(kernel, VARIANTS[variant], self.config)


def cases() -> Iterator[Case]:
    both, plain = winners("n100.json"), winners("n100-plain.json")
    for entry in shipped():
        key = f"{entry.module}.{entry.name}"
        own = [w for w in both if w.kernel == key]
        if all(w.sizes for w in own):
            yield Case(entry)
        yield from (Case(entry, w.config, w.sizes) for w in own)
        yield from (Case(entry, w.config, w.sizes, ("plain",)) for w in plain if w.kernel == key)


def winners(name: str) -> list[Shipped]:
    table = importlib.resources.files("autotune") / "winners" / name
    return read_table(json.loads(table.read_text()))


def case(name: str, sizes: Mapping[str, Any]) -> Case:
    return next(c for c in cases() if c.entry.name == name and c.sizes == sizes)


@lru_cache(maxsize=None)
def compiled(program_text: str, options: tuple[str, ...]) -> tuple[Statistics, ...]:
    return statistics(program_text, options, DEVICE)


@pytest.mark.parametrize(
    ("case", "variant"), [(c, v) for c in cases() for v in c.variants], ids=str
)
def test_builds_without_spill_and_within_limits(case: Case, variant: str) -> None:
    for kernel, program in case.programs(variant):
        found = compiled(program.source, program.options)
        assert {s.name for s in found} == {e.name for e in program.entries}
        for read in found:
            assert (read.spill, read.private) == (0, 0)
            assert read.local <= LOCAL_MEMORY
        if any(op.name == "dot_i8" for op in ir.walk(kernel.body)):
            assert any(read.dot_loop for read in found)
        for launched in program.entries:
            x, y, z = launched.local
            assert x * y * z <= LARGEST_GROUP


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["matmul_q8", "gated_q8"])
def test_inner_loop_is_mostly_dots(name: str, variant: str) -> None:
    for _, program in case(name, {}).programs(variant):
        (read,) = compiled(program.source, program.options)
        assert read.simd == 16
        assert read.dot_loop is not None
        assert read.dot_loop.dp4a_share >= LEAST_SHARE[variant]


def test_sub_group_reads_spare_sends() -> None:
    plain, block = (
        compiled(program.source, program.options)[0].dot_loop
        for variant in VARIANTS
        for _, program in [next(case("matmul_q8", {}).programs(variant))]
    )
    assert plain is not None
    assert block is not None
    assert block.sends < plain.sends


def test_a_kernel_that_needs_too_many_registers_is_seen() -> None:
    entry = next(e for e in shipped() if e.name == "matmul_q8")
    large = Case(entry, Config({"BM": 16, "BN": 64}))
    _, program = next(large.programs("block-read"))
    (read,) = compiled(program.source, program.options)
    assert read.spill + read.private > 0
