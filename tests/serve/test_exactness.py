"""A stream's text is the same alone, among others, in slices, and from the prefix cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ferro.models.language_model import LanguageModel
from ferro.models.sampler import Sampling
from ferro.runtime import open_device
from ferro.runtime.device import Device
from tests.models import tiny
from tests.serve.fakes import Heard, engine_on, prompt, run, running, task

SAMPLINGS = (Sampling(temperature=0), Sampling(temperature=0.8, seed=11))
PROMPTS = [prompt(n, 3 + 17 * n) for n in range(8)]


@pytest.fixture(scope="module", params=["lfm2-tiny", "llama-tiny"])
def model(request: pytest.FixtureRequest) -> Iterator[LanguageModel]:
    with open_device() as device:
        skip_without_opencl(device)
        path = tiny.path(request.param, "q8_0")
        with LanguageModel.open(path, device, context=192, slots=4) as opened:
            yield opened


def skip_without_opencl(device: Device) -> None:
    if device.info.kind == "interpreter":
        pytest.skip("no OpenCL device")


def ids(heard: list[Heard]) -> list[list[int]]:
    return [each.ids() for each in heard]


@pytest.mark.device
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "seeded"])
def test_solo_among_eight_sliced_and_restored(model: LanguageModel, sampling: Sampling) -> None:
    check_all_ways(model, sampling)


@pytest.mark.device
@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "seeded"])
def test_smollm2_alone_among_eight_sliced_and_restored(sampling: Sampling) -> None:
    """With the file that FERRO_SMOLLM2 names."""
    path = os.environ.get("FERRO_SMOLLM2")
    if path is None:
        pytest.skip("FERRO_SMOLLM2 names no file of SmolLM2")
    with open_device() as device:
        skip_without_opencl(device)
        with LanguageModel.open(path, device, context=256, slots=8) as opened:
            check_all_ways(opened, sampling)


def check_all_ways(model: LanguageModel, sampling: Sampling) -> None:
    """Eight prompts of up to 122 tokens one by one, together, in slices of 16 rows, and from the
    prefix cache."""
    tasks = [task(each, 12, sampling=sampling, tail=True, boundaries=(24,)) for each in PROMPTS]
    with running(engine_on(model)) as engine:
        alone = [ids(run(engine, each))[0] for each in tasks]
    with running(engine_on(model)) as engine:
        # as slow a device would be: slices of 16 rows beside the decoding streams
        engine.pacing.passed(1, 1.0)
        assert ids(run(engine, *tasks)) == alone
    with running(engine_on(model, budget=1 << 24)) as engine:
        run(engine, *tasks)
        cached = run(engine, *tasks)
        assert ids(cached) == alone
        assert sum(each.job.clock.cached_tokens > 0 for each in cached) >= 6


@pytest.mark.device
def test_choices_of_one_prompt_are_those_of_single_requests(model: LanguageModel) -> None:
    sampling = SAMPLINGS[1]
    with running(engine_on(model)) as engine:
        (many,) = run(engine, task(PROMPTS[3], 10, sampling=sampling, choices=3))
        (first,) = run(engine, task(PROMPTS[3], 10, sampling=sampling))
    assert many.ids(0) == first.ids() and many.ids(1) != many.ids(2)
