"""What Intel's compiler makes of every shipped kernel for the N100's GPU, without one."""

from __future__ import annotations

from typing import Any

import pytest

from ferro import codegen
from ferro.catalogue import Entry, shipped
from ferro.codegen.gen12 import DEVICE, Statistics, available, statistics
from ferro.codegen.program import Config, Program, Target
from ferro.dsl import ir
from ferro.measure import Request

pytestmark = pytest.mark.skipif(
    not available(), reason="`ocloc` is not installed (Debian: intel-opencl-icd)"
)

# Limits of the N100's GPU: bytes of local memory and work-items of a work-group.
LOCAL_MEMORY, LARGEST_GROUP = 65536, 512
VARIANTS = {
    "plain": Target("simt", 16, "dp4a"),
    "block-read": Target("simt", 16, "dp4a", features=frozenset({"block_read", "vload_half"})),
}
CONSTANTS: dict[str, dict[str, Any]] = {"attention": {"D": 64}, "attention_f16": {"D": 64}}


def kernel(entry: Entry) -> ir.Kernel:
    return Request(entry.definition, constants=CONSTANTS.get(entry.name, {})).kernel()


def compiled(program: Program) -> tuple[Statistics, ...]:
    return statistics(program.source, program.options, DEVICE)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("entry", shipped(), ids=lambda entry: entry.name)
def test_builds_without_spill_and_within_limits(entry: Entry, variant: str) -> None:
    made = kernel(entry)
    program = codegen.generate(made, VARIANTS[variant], Config())
    found = compiled(program)
    assert {s.name for s in found} == {e.name for e in program.entries}
    for read in found:
        assert (read.spill, read.private) == (0, 0)
        assert read.local <= LOCAL_MEMORY
        if any(op.name == "dot_i8" for op in ir.walk(made.body)):
            assert read.dot_loop is not None
    for launched in program.entries:
        x, y, z = launched.local
        assert x * y * z <= LARGEST_GROUP
