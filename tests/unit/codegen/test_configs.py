import pytest

from ferro.codegen import Config, Target, generate, resolve
from ferro.codegen.errors import ConfigError
from ferro.dsl.kernel import KernelDefinition


@pytest.mark.parametrize(
    "config",
    [Config(lanes=0), Config(lanes=7), Config(split=0), Config(split=-1), Config(dot="foo")],
    ids=str,
)
def test_a_config_that_cannot_be_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="expected"):
        resolve(Target("simd", 16), config)


def test_a_dot_that_needs_other_lanes_falls_back_to_plain_c() -> None:
    target = Target("simd", 16, "vnni512", "intel")
    assert resolve(target, Config(lanes=8)).dot == "emulated"


def test_an_axis_that_the_kernel_does_not_have_is_refused() -> None:
    text = (
        "def f(y: tl.out[f32, N]):\n"
        "    columns = tl.block(0, N, 32)\n"
        "    tl.store(y[columns], tl.zeros([32]), mask=columns < N)\n"
    )
    kernel = KernelDefinition.from_source(text, "k.py").specialise()
    generate(kernel, Target("simd", 8), Config(lane_axis=("columns",)))
    with pytest.raises(ConfigError, match=r"lane_axis=colums: did you mean `columns`\?"):
        generate(kernel, Target("simd", 8), Config(lane_axis=("columns", "colums")))


PLAIN = """def f(y: tl.out[f32, M, N]):
    n = tl.block(0, N, 32)
    m = tl.program_id(1, M)
    tl.store(y[m, n], tl.zeros([32]), mask=n < N)
"""


def test_a_group_shares_columns_between_rows_and_leaves_out_what_is_behind_the_last() -> None:
    kernel = KernelDefinition.from_source(PLAIN, "k.py").specialise()
    made = generate(kernel, Target("simd", 8), Config(group=4))
    (entry,) = made.entries
    rows, columns = ("name", "M"), ("cdiv", ("name", "N"), ("const", 32))
    four = ("const", 4)
    assert entry.groups == (("min", rows, four), columns, ("cdiv", rows, four))
    assert "if (get_group_id(2) * 4 + get_group_id(0) >= M) return;" in made.source


def test_a_group_takes_two_axes_and_no_split() -> None:
    text = "def f(y: tl.out[f32, M]):\n    tl.store(y[tl.program_id(0, M)], 1.0)\n"
    kernel = KernelDefinition.from_source(text, "k.py").specialise()
    with pytest.raises(ConfigError, match="groups need two"):
        generate(kernel, Target("simd", 8), Config(group=4))
    kernel = KernelDefinition.from_source(PLAIN, "k.py").specialise()
    for config, message in ((Config(group=-1), "expected"), (Config(split=2, group=4), "one of")):
        with pytest.raises(ConfigError, match=message):
            generate(kernel, Target("simd", 8), config)
