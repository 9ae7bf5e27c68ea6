"""Kernels that are too large, too deep or too long are refused at once, with a message."""

from __future__ import annotations

import time

import pytest

from ferro.dsl import CompileError, bounds, launch, limits
from ferro.dsl.kernel import KernelDefinition
from tests.unit.dsl.test_bounds import floats

HEAD = """def f(x: tl.ptr[f32, N], y: tl.out[f32, N], B: tl.schedule[32, 64] = 32):
    n = tl.block(0, N, B)
    v = tl.load(x[n], mask=n < N, other=0.0)
    q = N
"""
TAIL = "    tl.store(y[n], v, mask=n < N)\n"


def definition(body: str, head: str = HEAD, tail: str = TAIL) -> KernelDefinition:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return KernelDefinition.from_source(head + lines + tail, "kernel.py")


def refusal(body: str, head: str = HEAD, tail: str = TAIL) -> CompileError:
    with pytest.raises(CompileError) as caught:
        definition(body, head, tail).specialise()
    return caught.value


def nested(levels: int, head: str, inner: str) -> str:
    lines = ["    " * level + head.format(level=level) for level in range(levels)]
    return "\n".join([*lines, "    " * levels + inner])


def unrolled(turns: int, *statements: str) -> str:
    return "\n".join([f"for i in tl.static_range({turns}):", *(f"    {s}" for s in statements)])


TOO_LARGE = {
    "zeros": "z = tl.zeros((1 << 20, 1 << 12), f32)",
    "zeros_beyond_64_bits": "z = tl.zeros((1 << 31, 1 << 31, 1 << 31), f32)",
    "arange": "z = tl.arange(0, 1 << 30)",
    "block": "z = tl.block(1, N, 1 << 30)",
    "full": "z = tl.full([1 << 17], 1.0)",
    "broadcast": "z = tl.broadcast_to(v, [1 << 16, B])",
    "outer_sum": "z = tl.arange(0, 512)[:, None] + tl.arange(0, 512)[None, :]",
    "partials": "z = tl.partials([1 << 16])",
    "dot": "z = tl.dot(tl.zeros([512, 32]), tl.zeros([32, 512]))",
    "join": "a = tl.zeros([1 << 16])\nz = tl.join(a, a)",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_tile_that_is_too_large_is_refused(name: str) -> None:
    (found,) = refusal(TOO_LARGE[name]).diagnostics
    assert found.code == "FER230"
    assert str(limits.TILE) in found.help


def test_a_tile_of_the_limit_is_none_too_large() -> None:
    definition(f"z = tl.sum(tl.arange(0, {limits.TILE}))\nv = v + z.to(f32)").specialise()


def test_too_many_axes() -> None:
    assert [d.code for d in refusal("z = v" + "[..., None]" * 70).diagnostics] == ["FER231"]


def test_an_arange_past_32_bits() -> None:
    (found,) = refusal("z = tl.arange((1 << 31) * 2, (1 << 31) * 2 + 8)").diagnostics
    assert found.code == "FER203"


TOO_DEEP = {
    "sum": "v = " + " + ".join(["v"] * 3000),
    "signs": "v = " + "-" * 3000 + "v",
    "calls": "v = " + "tl.exp(" * 3000 + "v" + ")" * 3000,
    "subscripts": "v = v" + "[:, None]" * 3000,
    "elif": "if N > 1:\n    pass\n" + "\n".join(f"elif N > {i}:\n    pass" for i in range(500)),
    "loops": nested(300, "for i{level} in range(4):", "v = v * 2.0"),
}


@pytest.mark.parametrize("name", TOO_DEEP)
def test_a_text_that_nests_too_deep_is_refused(name: str) -> None:
    (found,) = refusal(TOO_DEEP[name]).diagnostics
    assert found.code == "FER022"
    assert found.help


@pytest.mark.parametrize("head", ["for i{level} in range(4):", "if N > {level}:"])
def test_loops_and_branches_nest_so_deep(head: str) -> None:
    inner = "v = v * 2.0"
    definition(nested(limits.NESTING, head, inner)).specialise()
    (found,) = refusal(nested(limits.NESTING + 1, head, inner)).diagnostics
    assert found.code == "FER233"


def test_functions_that_call_functions_nest_so_deep() -> None:
    names: dict[str, KernelDefinition] = {}
    for level in range(100):
        call = f"g{level - 1}(v)" if level else "v"
        text = f"def g{level}(v):\n    return {call} * 2.0\n"
        names[f"g{level}"] = KernelDefinition.from_source(text, f"{level}.py", dict(names))
    text = HEAD + "    v = g99(v)\n" + TAIL
    with pytest.raises(CompileError) as caught:
        KernelDefinition.from_source(text, "kernel.py", names).specialise()
    assert caught.value.diagnostics[0].code == "FER232"


LONG = {
    "unrolled_twice": unrolled(4096, "for j in tl.static_range(4096):", "    v = v * 1.5"),
    "unrolled_nothing": unrolled(4096, "for j in tl.static_range(4096):", "    pass"),
}


@pytest.mark.parametrize("name", LONG)
def test_too_many_statements(name: str) -> None:
    assert refusal(LONG[name]).diagnostics[-1].code == "FER234"


@pytest.mark.parametrize("bound", ["1 << 31", "(1 << 31) * (1 << 31)"])
def test_an_unrolled_loop_without_end(bound: str) -> None:
    assert refusal(unrolled(1, "pass").replace("(1)", f"({bound})")).diagnostics[0].code == "FER147"


def test_an_unrolled_loop_of_the_limit() -> None:
    definition(unrolled(4096, "pass")).specialise()


def test_compile_time_integers_stay_small() -> None:
    codes = [d.code for d in refusal("z = 3\n" + unrolled(1000, "z = z * z")).diagnostics]
    assert codes == ["FER203"]


# What doubles in each step would take 2^60 steps if it was looked at without memory.
DOUBLED = {
    "scalar": unrolled(60, "q = q * q") + "\nv = v + tl.minimum(q, 3).to(f32)",
    "minimum": unrolled(60, "q = tl.minimum(q, q + 1)") + "\nv = v + q.to(f32)",
    "tile": unrolled(60, "v = v * v + v"),
    "where": unrolled(60, "v = tl.where(v > 1.0, v * 2.0, v)"),
    "mask": "m = n < N\n" + unrolled(60, "m = m & (m | (n < i))") + "\nv = tl.where(m, v, 0.0)",
    "loops": "k = 0\n"
    + nested(15, "for i{level} in range({level}, 9):", "k = tl.minimum(k + q, 100)")
    + "\nv = v + k.to(f32)",
}


@pytest.mark.parametrize("name", DOUBLED)
def test_the_front_end_looks_at_each_value_a_few_times(name: str) -> None:
    started = time.process_time()
    kernel = definition(DOUBLED[name]).specialise()
    bound = launch.bind(kernel, {"x": floats(100), "y": floats(100)})
    bounds.check(kernel, bound.scalars, bound.grid, bound.extents)
    assert time.process_time() - started < 20


def test_a_grid_is_read_back_in_few_steps() -> None:
    body = unrolled(60, "q = q * q") + "\np = tl.program_id(0, q)\ntl.store(y[p], 1.0, mask=p < N)"
    head = "def f(y: tl.out[f32, N]):\n    q = N\n"
    assert refusal(body, head, "").diagnostics[0].code == "FER134"


def test_an_index_of_too_many_steps_is_refused_at_the_launch() -> None:
    body = "m = n\n" + unrolled(4000, "m = m + N") + "\nv = tl.load(x[m], mask=m < N, other=0.0)"
    kernel = definition(body).specialise()
    bound = launch.bind(kernel, {"x": floats(100), "y": floats(100)})
    with pytest.raises(launch.LaunchError) as caught:
        bounds.check(kernel, bound.scalars, bound.grid, bound.extents)
    assert [d.code for d in caught.value.diagnostics] == ["FER703"]
