import pytest

from ferro.codegen import Config, Target, resolve
from ferro.codegen.errors import ConfigError


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
