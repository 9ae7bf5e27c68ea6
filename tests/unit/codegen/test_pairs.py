"""Dots that share an operand come into one loop; what one of them needs from another does not."""

from __future__ import annotations

from ferro.codegen.expand import expand
from ferro.codegen.pairs import side_by_side
from ferro.dsl import kernel, tl
from ferro.dsl.ir import Kernel, walk
from kernels_src.matmul import gated_q8, matmul_q8


@kernel
def one_after_the_other(w: tl.q8[N, K], x: tl.a8[N, K], y: tl.out[tl.i32, N, N]):
    """The second dot's weights are a block that the first one's result chooses."""
    n = tl.block(0, N, 16)
    xq, xs = tl.load_block(x, n, 0, mask=n < N)
    wq, ws = tl.load_block(w, n, 0, mask=n < N)
    first = tl.dot_i8(xq, wq.T)
    chosen = tl.clamp(tl.max(tl.max(first, axis=1), axis=0), 0, tl.cdiv(K, 32) - 1)
    vq, vs = tl.load_block(w, n, chosen, mask=n < N)
    second = tl.dot_i8(xq, vq.T)
    m = tl.arange(0, 16)
    tl.store(y[n[:, None], m[None, :]], first + second, mask=(n < N)[:, None] & (m < N)[None, :])


def joined(made: Kernel) -> list[int]:
    """How many dots go along with each dot that leads."""
    body = side_by_side(expand(made, 16, True)[0]).body
    dots = [op for op in walk(body) if op.name == "dot_i8"]
    return [len(op.attrs.get("with", ())) for op in dots if not op.attrs.get("joined")]


def absent(definition: object) -> list[str]:
    return [p.name for p in definition.parameters.values() if p.optional]  # type: ignore[attr-defined]


def test_products_of_one_activation_run_together() -> None:
    assert joined(gated_q8.specialise(absent=absent(gated_q8))) == [1]


def test_a_single_product_stays_alone() -> None:
    assert joined(matmul_q8.specialise(absent=absent(matmul_q8))) == [0]


def test_a_product_that_waits_for_another_stays_behind_it() -> None:
    assert joined(one_after_the_other.specialise()) == [0, 0]
