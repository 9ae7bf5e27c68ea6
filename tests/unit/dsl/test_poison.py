"""Lanes without a value: a masked load without `other=` must not reach memory or a decision."""

from __future__ import annotations

import pytest

from ferro.dsl import CompileError, ir
from ferro.dsl.kernel import KernelDefinition

HEAD = """def f(x: tl.ptr[f32, N], z: tl.ptr[i32, N], w: tl.ptr[f32, M, N], y: tl.out[f32, N],
      s: tl.out[f32, M], t: tl.out[f32, M, N], u: tl.inout[f32, N], lim: tl.i32[0, 1000]):
    row = tl.program_id(0, M)
    n = tl.arange(0, 64)
    m = tl.arange(0, 4)
    v = tl.load(x[n], mask=n < N)
    i = tl.load(z[n], mask=n < N)
    both = (m < M)[:, None] & (n < N)[None, :]
"""

Q = "q = tl.load(x[n], mask=n < lim)\n"
TILE = "q = tl.load(w[m[:, None], n[None, :]], mask=both)\n"

REFUSED = {
    "stored_without_a_mask": "tl.store(y[n & 3], v)",
    "stored_by_another_mask": Q + "tl.store(y[n], q * 2.0, mask=n < N)",
    "one_of_two_operands": Q + "tl.store(y[n], v + q, mask=n < N)",
    "summed": "tl.store(s[row], tl.sum(v))",
    "summed_by_another_mask": "tl.store(s[row], tl.sum(v, mask=n < lim))",
    "greatest": "tl.store(s[row], tl.max(v))",
    "the_other_axis": TILE + "tl.store(s[m], tl.sum(q, axis=1), mask=m < M)",
    "one_axis_of_two": "q = tl.load(w[m[:, None], n[None, :]],"
    " mask=(m < lim)[:, None] & (n < N)[None, :])\n"
    "tl.store(t[m[:, None], n[None, :]], q, mask=both)",
    "product": TILE + "p = tl.dot(q, tl.zeros([64, 64]))\n"
    "tl.store(t[m[:, None], n[None, :]], p, mask=both)",
    "accumulated": "p = tl.accumulate(tl.partials(), v)\ntl.store(s[row], tl.finish(p))",
    "carried": "a = tl.zeros([64])\nfor k in range(0, N, 64):\n"
    "    a = a + tl.load(x[k + n], mask=k + n < N)\ntl.store(y[n], a, mask=n < N)",
    "left_over_from_a_loop": "a = tl.zeros([64])\nfor k in range(0, N, 64):\n"
    "    a = tl.load(x[k + n], mask=k + n < N)\ntl.store(y[n], a, mask=n < N)",
    "chunks": "for c in tl.chunks(N, 64):\n    k = c.start + n\n"
    "    a = tl.combine(tl.maximum, tl.load(x[k], mask=k < c.stop))\n"
    "tl.store(y[n], a, mask=n < N)",
    "halves": "a, b = tl.split(v)\nk = tl.arange(0, 32)\ntl.store(y[k], a, mask=k < N)",
    "reshaped": "q = v.reshape([2, 32])\nk = tl.arange(0, 32)\n"
    "tl.store(y[k], tl.max(q, axis=0), mask=k < N)",
    "an_index": "tl.store(u[tl.clamp(i, 0, N - 1)], 1.0, mask=(n < lim) & (N > 0))",
    "a_mask": "tl.store(y[n], 1.0, mask=(i > 0) | (n < lim))",
    "a_branch": "if tl.max(v) > 1.0:\n    tl.store(s[row], 1.0)",
    "a_bound": "for k in range(0, tl.max(i)):\n    tl.store(s[row], 1.0)",
    "the_wrong_side_of_a_choice": Q + "tl.store(y[n], tl.where(n < lim, 1.0, q), mask=n < N)",
    "other_without_a_value": Q
    + "r = tl.load(x[n], mask=n < 8, other=q)\ntl.store(y[n], r, mask=n < N)",
}

ACCEPTED = {
    "the_same_mask": "tl.store(y[n], v, mask=n < N)",
    "a_narrower_mask": Q + "tl.store(y[n], q, mask=(n < N) & (n < lim))",
    "a_mask_that_follows": Q + "tl.store(y[n], q, mask=n + 1 < lim)",
    "every_stored_lane_is_inside": "tl.store(y[n], v)",
    "with_other": "q = tl.load(x[n], mask=n < lim, other=0.0)\ntl.store(y[n], q, mask=n < N)",
    "never_used": "tl.store(y[n], 1.0, mask=n < N)",
    "summed_by_its_mask": "tl.store(s[row], tl.sum(v, mask=n < N))",
    "greatest_by_its_mask": "tl.store(s[row], tl.max(v, mask=n < N))",
    "chosen": "tl.store(s[row], tl.sum(tl.where(n < N, v, 0.0)))",
    "chosen_the_other_way": "tl.store(s[row], tl.sum(tl.where(n >= N, 0.0, v)))",
    "rows": TILE + "tl.store(s[m], tl.sum(q, axis=1, mask=(n < N)[None, :]), mask=m < M)",
    "transposed": "q = tl.load(w[m[None, :], n[:, None]],"
    " mask=(m < M)[None, :] & (n < N)[:, None])\n"
    "tl.store(t[m[:, None], n[None, :]], q.T, mask=both)",
    "a_mask_decided_by_its_first_part": "tl.store(y[n], 1.0, mask=(n < N) & (i > 0))",
    "an_index_by_its_mask": "tl.store(u[tl.clamp(i, 0, N - 1)], 1.0, mask=n < N)",
    "a_gather": "there = (n < N) & (i >= 0) & (i < N)\n"
    "tl.store(y[n], tl.load(x[i], mask=there), mask=there)",
    "a_branch_around_both": "if lim < N:\n    q = tl.load(x[lim], mask=lim < N)\n"
    "    tl.store(s[row], q)",
    "rows_of_a_product": "q = tl.load(w[m[:, None], n[None, :] % 2],"
    " mask=(m < M)[:, None] & (N > 1))\n"
    "p = tl.dot(q, tl.zeros([64, 64]))\n"
    "tl.store(t[m[:, None], n[None, :]], p, mask=both & (N > 1))",
    "carried_with_one_mask": "a = tl.zeros([64])\nfor k in range(0, 3):\n"
    "    a = a + tl.load(x[n], mask=n < N)\ntl.store(y[n], a, mask=n < N)",
    "stored_in_its_turn": "for k in range(0, N, 64):\n"
    "    tl.store(y[k + n], tl.load(x[k + n], mask=k + n < N), mask=k + n < N)",
    "chunks_that_are_summed": "for c in tl.chunks(N, 64):\n    k = c.start + n\n"
    "    q = tl.load(x[k], mask=k < c.stop)\n"
    "    a = tl.combine(tl.add, tl.sum(q, mask=k < c.stop))\ntl.store(s[row], a)",
    "in_place": "if row == 0:\n    tl.store(u[n], tl.load(u[n], mask=n < N) * 2.0, mask=n < N)",
}


def specialised(body: str) -> ir.Kernel:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return KernelDefinition.from_source(HEAD + lines, "kernel.py").specialise()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(CompileError) as caught:
        specialised(REFUSED[name])
    assert {d.code for d in caught.value.diagnostics} == {"FER312"}
    assert all("`other=" in d.help for d in caught.value.diagnostics)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    specialised(ACCEPTED[name])


def test_the_message_names_the_load_the_use_and_the_mask() -> None:
    with pytest.raises(CompileError) as caught:
        specialised("tl.store(s[row], tl.sum(v))")
    (found,) = caught.value.diagnostics
    assert found.span.line == 6
    assert "line 9" in found.message
    assert found.notes == ("the mask is `n < N`",)
    assert found.help.startswith("say what they are with `other=0.0`")
