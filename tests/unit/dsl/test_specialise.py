"""From source text to the IR: names, constexprs, control flow, inlining, walks."""

from __future__ import annotations

import inspect

import pytest

from ferro.dsl import CompileError, f32, i32, kernel, tl
from ferro.dsl.ir import Kernel, Op, Pointer, Quantised, Value, walk
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.parameters import OPTIONS
from ferro.dsl.specialise import specialise_function
from ferro.dsl.types import TileType
from ferro.runtime.device import Device
from ferro.runtime.host import InterpreterDevice


def compiled(text: str, names: dict[str, object] | None = None, **options: object) -> Kernel:
    return KernelDefinition.from_source(text, "k.py", names).specialise(**options)


def body(statements: str, **options: object) -> Kernel:
    lines = "\n".join("    " + line for line in statements.split("\n"))
    return compiled(
        "def f(x: tl.ptr[f32, M, K], y: tl.out[f32, M, K], n: tl.i32[0, 8], s: tl.f32,\n"
        '      bias: tl.ptr[f32, K] = None, MODE: tl.const["a", "b"] = "a",\n'
        "      BLOCK: tl.schedule[16, 64] = 64):\n"
        "    row = tl.program_id(0, M)\n"
        "    k = tl.arange(0, 64)\n"
        f"    v = tl.load(x[row, k])\n{lines}\n",
        **options,
    )


def find(kernel: Kernel, name: str) -> list[Op]:
    return [op for op in walk(kernel.body) if op.name == name]


def only(kernel: Kernel, name: str) -> Op:
    (op,) = find(kernel, name)
    return op


def stored(kernel: Kernel) -> Value:
    op = only(kernel, "store")
    return op.args[op.attrs["rank"]]


def maker(kernel: Kernel, value: Value) -> Op:
    return next(op for op in walk(kernel.body) if value in op.results)


def constant(kernel: Kernel, value: Value) -> object:
    op = maker(kernel, value)
    return op.attrs["value"] if op.name == "const" else constant(kernel, op.args[0])


# declarations


@kernel
def declared(
    w: tl.q8[N, K * 2],
    x: tl.a8[M, K * 2],
    y: tl.out[f32, M, tl.cdiv(N, SIZE)],
    t: tl.inout[tl.i32, min(N, 7)],
    lo: tl.i32[-4, 4],
    scale: tl.f32,
    SIZE: tl.schedule[16, 32] = 16,
    KIND: tl.const = 2.0,
):
    """Declares one of each.

    Does nothing.
    """
    tl.store(t[0], lo)


def test_parameters() -> None:
    assert list(declared.parameters) == ["w", "x", "y", "t", "lo", "scale", "SIZE", "KIND"]
    assert list(declared.schedule) == ["SIZE"]
    assert declared.schedule["SIZE"].choices == (16, 32)
    assert declared.meaning["KIND"].default == 2.0
    assert declared.docstring == "Declares one of each.\n\nDoes nothing."
    assert not declared.is_function and add.is_function


def test_buffers_scalars_and_dimensions() -> None:
    k = declared.specialise(SIZE=32)
    w, x, y, t = k.buffers
    assert isinstance(w, Quantised) and (w.format, w.access) == ("q8", "in")
    assert isinstance(x, Quantised) and x.cols == ("*", ("name", "K"), ("const", 2))
    assert isinstance(y, Pointer) and (y.dtype, y.access) == (f32, "out")
    assert y.extents[1] == ("cdiv", ("name", "N"), ("const", 32, "schedule"))
    assert isinstance(t, Pointer) and t.extents == (("min", ("name", "N"), ("const", 7)),)
    assert [(s.name, s.lo, s.hi, s.implicit) for s in k.scalars] == [
        ("lo", -4, 4, False),
        ("scale", None, None, False),
        ("N", 0, None, True),
        ("K", 0, None, True),
        ("M", 0, None, True),
    ]
    assert [s.value.dtype for s in k.scalars] == [i32, f32, i32, i32, i32]
    assert k.constants == {"SIZE": 32, "KIND": 2.0}
    assert k.schedule == {"SIZE"}
    assert k.grid == (("const", 1),)
    assert k.file == __file__ and k.span.line == declared.line + 1


def test_kernels_are_cached_by_constants_and_absent_buffers() -> None:
    assert declared.specialise() is declared.specialise()
    assert declared.specialise(SIZE=32) is not declared.specialise()
    assert declared.specialise(KIND=3) is declared.specialise(KIND=3)
    assert declared.specialise(KIND=3).constants["KIND"] == 3.0


def test_constants_of_a_wrong_kind_are_compile_errors() -> None:
    for wrong in ([1], None, "x", True):
        with pytest.raises(CompileError):
            declared.specialise(SIZE=wrong)


def test_optional_buffers_decide_branches() -> None:
    text = "if bias is not None:\n    v = v + tl.load(bias[k])\ntl.store(y[row, k], v)"
    assert len(body(text).buffers) == 3
    assert len(find(body(text), "load")) == 2
    without = body(text, absent=("bias",))
    assert [b.name for b in without.buffers] == ["x", "y"]
    assert len(find(without, "load")) == 1


# names


@kernel
def add(a, b):
    return a + b


@kernel
def twice(a, TIMES: tl.const = 2):
    return add(a, a) if TIMES == 2 else a


@kernel
def calls_later(y: tl.out[f32, 4]):
    tl.store(y[tl.arange(0, 4)], later(tl.zeros([4])))


@kernel
def later(a):
    return a - 1.0


def test_kernels_of_the_module_are_inlined() -> None:
    assert [o.name for o in walk(calls_later.specialise().body)][-2:] == ["sub", "store"]


def test_kernels_of_a_closure_are_inlined() -> None:
    @kernel
    def negate(a):
        return -a

    @kernel
    def user(y: tl.out[f32, 4]):
        tl.store(y[0], negate(tl.f32(1)))

    assert len(find(user.specialise(), "neg")) == 1


def test_functions_take_defaults_keywords_and_buffers() -> None:
    names = {"twice": twice, "add": add}
    k = body("tl.store(y[row, k], v)")
    assert find(k, "add") == []
    text = "def f(y: tl.out[f32, 4], s: tl.f32):\n    tl.store(y[0], twice({}))\n"
    assert len(find(compiled(text.format("s"), names), "add")) == 1
    assert find(compiled(text.format("a=s, TIMES=1"), names), "add") == []
    with pytest.raises(CompileError, match="TIMES"):
        compiled(text.format("s, s.to(tl.i32)"), names)
    with pytest.raises(CompileError, match="missing"):
        compiled(text.format(""), names)


def test_recursion_and_launched_kernels_cannot_be_called() -> None:
    with pytest.raises(CompileError, match="calls itself"):
        recursive.specialise()
    with pytest.raises(CompileError, match="launched, not called"):
        body_calls_kernel.specialise()


@kernel
def again(a):
    return again(a)


@kernel
def recursive(y: tl.out[f32, 4]):
    tl.store(y[0], again(tl.f32(1)))


@kernel
def body_calls_kernel(y: tl.out[f32, 4]):
    calls_later(y)


GLOBAL_SIZE = 64


@kernel
def reads_global(y: tl.out[f32, 64]):
    tl.store(y[tl.arange(0, GLOBAL_SIZE)], 0.0)


def test_global_numbers_are_refused() -> None:
    with pytest.raises(CompileError, match=r"GLOBAL_SIZE: tl\.const"):
        reads_global.specialise()


def test_a_kernel_needs_source_text() -> None:
    namespace: dict[str, object] = {"tl": tl}
    exec("def f(y: 'tl.out[tl.f32, 4]'):\n    pass\n", namespace)
    with pytest.raises(TypeError, match="from_source"):
        kernel(namespace["f"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on a function"):
        kernel(int)


def test_kernels_and_functions_of_the_language_are_not_called_from_python() -> None:
    with pytest.raises(TypeError, match=r"compiled, not called.*device\.run\(add"):
        add(1, 2)
    with pytest.raises(RuntimeError, match=r"tl\.load"):
        tl.load(3)
    assert tl.ptr[tl.f32, 3].items == (f32, 3)


@kernel
def sized(
    x: tl.ptr[f32, M, D],
    w: tl.ptr[f32, D * 2, E],
    bias: tl.ptr[f32, E] = None,
    D: tl.const = 8,
    E: tl.const = 4,
    MODE: tl.const = 1,
):
    pass


class Shaped:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


def test_constexprs_that_are_an_extent_are_read_off_the_arrays() -> None:
    assert sized.deduced({"x": Shaped(3, 64), "w": Shaped(128, 5)}) == {"D": 64, "E": 5}
    assert sized.deduced({"w": Shaped(128, 5), "bias": Shaped(6)}) == {"E": 5}
    assert sized.deduced({"x": Shaped(3), "w": 2.0, "bias": None}) == {}
    assert declared.deduced({"x": Shaped(3, 64)}) == {}


# compile-time values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-7 // 2", -3),
        ("-7 % 4", -3),
        ("7 & 3 | 8", 11),
        ("1 << 5", 32),
        ("~5", -6),
        ("tl.cdiv(65, 16)", 5),
        ("min(3, 4) + max(1, 2, 9)", 12),
        ("abs(-4)", 4),
        ("[4, 5, 6][1]", 5),
        ("(1, 2)[-1]", 2),
        ("3 if MODE == 'a' else 4", 3),
        ("tl.minimum(2, 3)", 2),
        ("5 if not (1 > 2 or MODE != 'a') else 6", 5),
    ],
)
def test_integers_are_computed_at_compile_time(text: str, value: int) -> None:
    k = body(f"t = {text}\ntl.store(y[row, k], t)")
    assert constant(k, stored(k)) == value


def test_float_arithmetic_is_that_of_f32() -> None:
    k = body("tl.store(y[row, 0], 1.0 / 3.0 + 0.5)")
    assert [o.name for o in walk(k.body) if o.name in ("call", "add")] == ["call", "add"]
    assert set(k.functions) == {"div"}


def test_negative_literals_and_named_floats() -> None:
    for text, value in (("-tl.inf", -float("inf")), ("-0.0", -0.0), ("+2", 2.0)):
        k = body(f"tl.store(y[row, k], {text})")
        assert str(constant(k, stored(k))) == str(value)


def test_schedule_marks_follow_arithmetic() -> None:
    k = body(
        "size = min(BLOCK, 64) // 4\n"
        "for k0 in range(0, K, size):\n"
        "    j = k0 + tl.arange(0, size)\n"
        "    tl.store(y[row, j], tl.zeros([size]), mask=j < K)"
    )
    assert only(k, "arange").attrs == {"start": 0, "size": 16, "axis": "j", "schedule": True}
    assert maker(k, stored(k)).attrs["schedule_axes"] == (0,)
    assert maker(k, only(k, "for").args[2]).attrs == {"value": 16, "schedule": True}
    plain = body("tl.store(y[row, k], v, mask=k < K)")
    assert "schedule" not in only(plain, "arange").attrs


def test_static_range_unrolls_with_compile_time_counters() -> None:
    k = body("t = v\nfor i in tl.static_range(3):\n    t = t * (i + 2)\ntl.store(y[row, k], t)")
    assert find(k, "for") == []
    assert len(find(k, "mul")) == 3
    assert (
        len(find(body("for i in tl.static_range(4, 0, -2):\n    tl.store(y[i, k], s)"), "store"))
        == 2
    )


# control flow


def test_a_loop_carries_what_the_next_turn_or_the_rest_reads() -> None:
    k = body(
        "t = v\nu = v\nw = 0.5\n"
        "for i in range(n):\n"
        "    w = tl.load(x[i, k])\n"
        "    t = t + w\n"
        "    u = w\n"
        "tl.store(y[row, k], t + u)"
    )
    loop = only(k, "for")
    assert [r.name for r in loop.results] == ["t", "u"]
    assert loop.blocks[0].params[0].name == "i"


def test_numbers_become_values_where_a_loop_changes_them() -> None:
    k = body("t = 0\nfor i in range(4):\n    t += i\ntl.store(y[row, t], s)")
    assert only(k, "for").results[0].type == TileType(i32)
    k = body("t = 0.0\nfor i in range(4):\n    t = t + s\ntl.store(y[row, 0], t)")
    assert only(k, "for").results[0].type == TileType(f32)


def test_temporaries_may_be_reused_with_another_type() -> None:
    k = body(
        "t = v\ntl.store(y[row, k], t)\nfor i in range(4):\n    t = i + 1\n    tl.store(y[t, k], s)"
    )
    assert only(k, "for").results == ()


def test_a_branch_merges_what_is_read_later() -> None:
    k = body(
        "t = v\nu = v\n"
        "if n > 3:\n    t = v * 2.0\n    u = v\nelse:\n    t = v\n"
        "tl.store(y[row, k], t)"
    )
    branch = only(k, "if")
    assert [r.name for r in branch.results] == ["t"]
    assert [len(block.results) for block in branch.blocks] == [1, 1]


def test_a_branch_merges_numbers_with_values() -> None:
    k = body("t = 1.0\nif n > 3:\n    t = s\ntl.store(y[row, 0], t)")
    assert only(k, "if").results[0].type == TileType(f32)
    k = body(
        "if n > 3:\n    t = 1\nelif n > 2:\n    t = 2\nelse:\n    t = 3\ntl.store(y[row, t], s)"
    )
    assert len(find(k, "if")) == 2


def test_conditions_combine_scalars() -> None:
    k = body("if n > 3 and not (n == 5) or MODE == 'b':\n    tl.store(y[row, k], v)")
    assert [op.name for op in walk(k.body) if op.name in ("and", "not", "or")] == ["not", "and"]


def test_constexpr_branches_leave_no_trace() -> None:
    text = "if MODE == 'a':\n    t = v\nelse:\n    t = missing\ntl.store(y[row, k], t)"
    assert find(body(text), "if") == []
    with pytest.raises(CompileError, match="missing"):
        body(text, MODE="b")


def test_a_constexpr_branch_may_return() -> None:
    k = body("tl.store(y[row, k], v)\nif MODE == 'a':\n    return\ntl.store(y[row, k], v)")
    assert len(find(k, "store")) == 1


def test_stores_and_branches_keep_their_order() -> None:
    k = body(
        "tl.store(y[row, k], v)\nif n > 2:\n    tl.store(y[row, k], v)\ntl.store(y[row, k], -v)"
    )
    assert [op.name for op in k.body.ops if op.name in ("store", "if")] == ["store", "if", "store"]


def test_unused_operations_are_removed() -> None:
    k = body("t = tl.exp(v)\nfor i in range(4):\n    u = v * 2.0\ntl.store(y[row, k], v)")
    assert find(k, "call") == [] and find(k, "for") == []
    assert k.functions == {}


def test_breakpoint_shows_the_variables() -> None:
    op = only(body("t = v * 2.0\nbreakpoint()"), "breakpoint")
    names = op.attrs["names"]
    assert {"row", "k", "v", "t", "n"} <= set(names)
    assert op.args[names.index("t")].type == TileType(f32, (64,))


# programs and indices


def test_block_is_a_program_and_a_range() -> None:
    k = compiled(
        "def f(y: tl.out[f32, M, N], BN: tl.schedule[16] = 16):\n"
        "    n = tl.block(0, N, BN)\n"
        "    m = tl.block(1, M, 4)\n"
        "    tl.store(y[m[:, None], n[None, :]], 1.0, mask=(m < M)[:, None] & (n < N)[None, :])\n"
    )
    assert k.grid == (
        ("cdiv", ("name", "N"), ("const", 16, "schedule")),
        ("cdiv", ("name", "M"), ("const", 4)),
    )
    assert [op.attrs["axis"] for op in find(k, "arange")] == ["n", "m"]
    assert only(k, "store").args[0].shape == (4, 16)


def test_grids_are_expressions_over_sizes() -> None:
    text = "def f(y: tl.out[f32, M, N], h: tl.i32[1, 8]):\n    i = tl.program_id(1, {})\n"
    for count, extent in {
        "M * N": ("*", ("name", "M"), ("name", "N")),
        "min(M, h) + 3": ("+", ("min", ("name", "M"), ("name", "h")), ("const", 3)),
        "tl.cdiv(M, h)": None,
        "7": ("const", 7),
    }.items():
        grid = compiled(text.format(count)).grid
        assert grid[0] == ("const", 1)
        if extent is not None:
            assert grid[1] == extent


def test_a_mask_and_an_index_share_their_value() -> None:
    k = body(
        "for k0 in range(0, K, BLOCK):\n"
        "    j = k0 + tl.arange(0, BLOCK)\n"
        "    tl.store(y[row, j], tl.load(x[row, j], mask=j < K), mask=k0 + tl.arange(0, BLOCK) < K)"
    )
    load, store = find(k, "load")[-1], only(k, "store")
    assert load.args[1] is store.args[1]


def test_new_axes() -> None:
    k = body("t = v[None, :, None] + v[..., None]\ntl.store(y[row, k[None, :, None]], t)")
    assert stored(k).shape == (1, 64, 1)


def test_methods_and_functions_are_the_same() -> None:
    k = body(
        "t = tl.reshape(v, [8, 8]).T + tl.trans(v.reshape(8, 8))\n"
        "tl.store(y[row, k], t.reshape([64]))"
    )
    assert len(find(k, "transpose")) == 1


# walks


WALK = """t, u = 0.0, 0.0
for c in tl.chunks(K, 512):
    m = tl.max(v) + c.start.to(tl.f32)
    a, b = tl.combine({}, m, v{})
tl.store(y[row, k], a + b)"""


def test_a_walk_combines_in_order() -> None:
    op = only(body(WALK.format("tl.maximum", "")), "walk")
    assert [r.name for r in op.results] == ["a", "b"]
    assert op.attrs == {"size": 512, "when": False}
    assert [o.name for o in op.blocks[1].ops] == ["max", "max"]


def test_a_walk_takes_a_rule_a_condition_and_values_for_nothing() -> None:
    text = (
        "def f(y: tl.out[f32, 4], x: tl.ptr[f32, K]):\n"
        "    for c in tl.chunks(K, 64):\n"
        "        v = tl.load(x[c.start + tl.arange(0, 4)])\n"
        "        m, t = tl.combine(merge, v, v * 2.0, when=c.start > 64, empty=(-tl.inf, 1.0))\n"
        "    tl.store(y[tl.arange(0, 4)], m + t)\n"
    )
    k = compiled(text, {"merge": merge})
    op = only(k, "walk")
    assert op.attrs["when"] is True
    assert len(op.blocks[0].results) == 3
    assert [constant(k, a) for a in op.args[1:]] == [-float("inf"), 1.0]
    assert [p.name for p in op.blocks[1].params] == ["old", "old", "new", "new"]


@kernel
def merge(m, t, m2, t2):
    top = tl.maximum(m, m2)
    return top, tl.fma(t, tl.exp(m - top), t2)


def test_variables_of_a_walk_end_with_it() -> None:
    with pytest.raises(CompileError, match="`m` is defined only inside"):
        body(WALK.format("tl.add", "") + "\ntl.store(y[row, 0], m)")


# library functions


def test_called_functions_come_with_the_kernel() -> None:
    k = body("tl.store(y[row, k], tl.sigmoid(v))")
    called = {
        op.attrs["function"]
        for f in k.functions.values()
        for op in walk(f.body)
        if "function" in op.attrs
    }
    assert "sigmoid" in k.functions
    assert called <= set(k.functions)


def test_a_function_is_scalar_and_pure() -> None:
    function = specialise_function(add)
    assert [p.type for p in function.body.params] == [TileType(f32), TileType(f32)]
    assert [r.type for r in function.body.results] == [TileType(f32)]
    with pytest.raises(CompileError, match="cannot use `arange`"):
        specialise_function(not_elementwise)


@kernel
def not_elementwise(a):
    return a + tl.sum(tl.arange(0, 4)).to(tl.f32)


def test_every_builtin_has_a_meaning() -> None:
    from ferro.dsl.intrinsics import handled
    from ferro.dsl.language import BUILTINS, PYTHON

    assert [b.name for b in (*BUILTINS.values(), *PYTHON.values()) if not handled(b.name)] == []


def test_a_kernel_whose_bits_depend_on_a_tile_size_is_refused() -> None:
    with pytest.raises(CompileError, match=r"tl\.chunks|tl\.accumulate"):
        body(
            "t = 0.0\n"
            "for k0 in range(0, K, BLOCK):\n"
            "    j = k0 + tl.arange(0, BLOCK)\n"
            "    t = t + tl.sum(tl.load(x[row, j], mask=j < K, other=0.0))\n"
            "tl.store(y[row, 0], t)"
        )


@pytest.mark.parametrize("device", [Device, InterpreterDevice])
def test_no_parameter_takes_the_name_of_an_option_of_a_launch(device: type[Device]) -> None:
    options = inspect.signature(device.run).parameters.values()
    named = {p.name for p in options if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert named and named <= set(OPTIONS)


def test_a_function_that_is_inlined_may_use_such_a_name() -> None:
    inner = KernelDefinition.from_source(
        "def g(v, order: tl.const):\n    return v * tl.full([], order, tl.f32)\n", "g.py"
    )
    text = "def f(y: tl.out[f32, 1]):\n    tl.store(y[0], g(tl.full([], 1.0), order=2))\n"
    KernelDefinition.from_source(text, "f.py", {"g": inner}).specialise()
