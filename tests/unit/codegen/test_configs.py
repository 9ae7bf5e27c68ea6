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
