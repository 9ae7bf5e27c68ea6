"""Tiny encoders against llama.cpp's recorded answers and float64, packed and alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferro.models import encoder, encoder_layers, packing
from ferro.models.decision_model import DecisionModel
from ferro.models.embedding_model import EmbeddingModel
from ferro.models.packing import Input
from ferro.models.passes import ContextFull, PassError
from ferro.models.vectors import normalised
from ferro.runtime import open_device
from tests.models import reference64, tiny
from tests.stacks import Stack, quick_stack

__all__ = ["quick_stack"]

SHORT, ALL = (1, 2, 7), (1, 2, 7, 33, 100)
FARTHER = 1.15
OLD, NEW = "gemma-embedding-tiny", "gemma-embedding2-tiny"
FORMS = {"f32": "f32", "q8_0": "q8"}


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(x * x)))


def vectors(
    stack: Stack, kind: str, lengths: tuple[int, ...], name: str = NEW
) -> tuple[Any, Any, Any]:
    """Ferro's, llama.cpp's and exact pooled vectors."""
    path, answers = tiny.path(name, kind), tiny.answers(name, kind)
    prompts = [answers[f"ids_{n}"].tolist() for n in lengths]
    how = {"target": stack.target, "weights": FORMS[kind]}
    with EmbeddingModel.open(path, stack.device, **how) as model:
        ours = model.embed_ids(prompts)
    exact = [reference64.Model(path).pooled(ids) for ids in prompts]
    return ours, np.stack([answers[f"pooled_{n}"] for n in lengths]), np.stack(exact)


def rows(stack: Stack, kind: str, lengths: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Ferro's, llama.cpp's and exact scores of every row."""
    name = "lfm2-decision-tiny"
    path, answers = tiny.path(name, kind), tiny.answers(name, kind)
    prompts = [answers[f"ids_{n}"].tolist() for n in lengths]
    how = {"target": stack.target, "weights": FORMS[kind]}
    with DecisionModel.open(path, stack.device, **how) as model:
        ours = np.concatenate([model.rows(ids) for ids in prompts])
    exact = [reference64.decision(reference64.Model(path), ids) for ids in prompts]
    theirs = np.concatenate([answers[f"scores_{n}"] for n in lengths])
    return ours, theirs, np.concatenate(exact)


@pytest.mark.parametrize("name", [OLD, NEW])
def test_vectors_of_float32_weights(name: str, quick_stack: Stack) -> None:
    ours, theirs, exact = vectors(quick_stack, "f32", ALL, name)
    for a, b, c in zip(normalised(ours), normalised(theirs), exact, strict=True):
        assert a @ b > 0.9999
        assert np.abs(a - c / np.linalg.norm(c)).max() < 1e-5


@pytest.mark.parametrize("name", [OLD, NEW])
def test_vectors_of_quantised_weights(name: str, quick_stack: Stack) -> None:
    ours, theirs, exact = vectors(quick_stack, "q8_0", ALL, name)
    assert rms(ours - exact) <= FARTHER * rms(theirs - exact)


def test_scores_of_float32_weights(quick_stack: Stack) -> None:
    ours, theirs, exact = rows(quick_stack, "f32", ALL)
    assert np.abs(ours - theirs).max() < 1e-4
    assert np.abs(ours - exact).max() < 1e-4


def test_scores_of_quantised_weights(quick_stack: Stack) -> None:
    ours, theirs, exact = rows(quick_stack, "q8_0", ALL)
    assert rms(ours - exact) <= FARTHER * rms(theirs - exact)


def test_texts_have_llama_cpps_ids() -> None:
    with open_device("interpreter") as device:
        for name, opened in (
            (OLD, EmbeddingModel.open),
            (NEW, EmbeddingModel.open),
            ("lfm2-decision-tiny", DecisionModel.open),
        ):
            answers = tiny.answers(name, "q8_0")
            with opened(tiny.path(name, "q8_0"), device) as model:
                assert model.encode(str(answers["text"])) == answers["text_ids"].tolist()


def test_every_stack_gives_the_interpreters_bits(quick_stack: Stack) -> None:
    with open_device("interpreter") as device:
        plain = Stack("interpreter", device, device.target)
        for found in (vectors, rows):
            for kind in FORMS:
                expected = found(plain, kind, SHORT)[0]
                ours = found(quick_stack, kind, SHORT)[0]
                assert ours.tobytes() == expected.tobytes()


# ------------------------------------------------------------------------------------- company


@pytest.fixture(scope="module", params=["intel", "pocl"])
def models(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddingModel, DecisionModel]]:
    try:
        device = open_device(request.param)
    except Exception as error:
        pytest.skip(str(error))
    with (
        device,
        EmbeddingModel.open(tiny.path(NEW, "q8_0"), device, batch=96) as e,
        DecisionModel.open(tiny.path("lfm2-decision-tiny", "q8_0"), device, batch=96) as d,
    ):
        yield e, d


TOKEN = st.integers(0, 400)
# few lengths, so that few plans are recorded; 63, 64 and 65 are around a chunk of keys
IDS = st.sampled_from([1, 3, 16, 63, 64, 65]).flatmap(
    lambda n: st.lists(TOKEN, min_size=n, max_size=n)
)


@settings(max_examples=6, deadline=None)
@given(st.lists(IDS, min_size=2, max_size=5))
def test_a_vector_is_the_same_in_any_company(
    models: tuple[EmbeddingModel, DecisionModel], ids: list[list[int]]
) -> None:
    packed = models[0].embed_ids(ids)
    alone = np.concatenate([models[0].embed_ids([each]) for each in ids])
    assert packed.tobytes() == alone.tobytes()


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(IDS, st.integers(0, 2)), min_size=2, max_size=5))
def test_a_score_is_the_same_in_any_company(
    models: tuple[EmbeddingModel, DecisionModel], asked: list[tuple[list[int], int]]
) -> None:
    inputs = [Input(tuple(ids), (0, len(ids) - 1), kind) for ids, kind in asked]
    packed = models[1].score(inputs)
    alone = [models[1].score([each])[0] for each in inputs]
    assert [x.tobytes() for x in packed] == [x.tobytes() for x in alone]


def test_an_input_longer_than_a_batch(models: tuple[EmbeddingModel, DecisionModel]) -> None:
    long, short = [7] * 700, [3, 5]
    found = models[0].embed_ids([short, long])
    assert found[0].tobytes() == models[0].embed_ids([short])[0].tobytes()
    assert np.isfinite(found).all()


def test_a_question_longer_than_a_batch(models: tuple[EmbeddingModel, DecisionModel]) -> None:
    long, short = (Input((7, *[i % 400 for i in range(n - 1)]), (0, n - 1), 2) for n in (700, 65))
    packed = models[1].score([short, long, short])
    alone = [models[1].score([each])[0] for each in (short, long, short)]
    assert [x.tobytes() for x in packed] == [x.tobytes() for x in alone]


def test_inputs_that_cannot_be(models: tuple[EmbeddingModel, DecisionModel]) -> None:
    embedding, decision = models
    with pytest.raises(PassError, match="input 1 has no tokens"):
        embedding.embed_ids([[1], []])
    with pytest.raises(ContextFull, match="input 0 is too long: 2049 tokens"):
        embedding.embed_ids([[1] * 2049])
    with pytest.raises(PassError, match="there is no token 9999"):
        decision.rows([9999])
    for kind in (-1, 3, 1 << 40):
        with pytest.raises(PassError, match=f"input 1: there is no type {kind} "):
            decision.score([Input((1,), (0,)), Input((1,), (0,), kind)])
    with pytest.raises(PassError, match="input 0: no rows are wanted"):
        decision.score([Input((1,))])


def test_decisions_are_the_same_alone_and_together(quick_stack: Stack) -> None:
    criteria = {"a": None, "b": "the second", "c": 3.0}
    asked = {
        "x": {"type": "noul", "instructions": "Is it?"},
        "y": {"type": "choice", "instructions": "Which?", "criteria": criteria},
        "z": {"type": "score", "instructions": "How?", "criteria": ["low", "mid", "high"]},
    }
    path = tiny.path("lfm2-decision-tiny", "q8_0")
    with DecisionModel.open(path, quick_stack.device, target=quick_stack.target) as model:
        together = model.decide([2.5], asked)
        for id, question in asked.items():
            assert model.decide([2.5], {id: question}) == {id: together[id]}


@pytest.mark.parametrize("name", [OLD, NEW])
@pytest.mark.parametrize("work", [1, 1 << 17])
def test_attention_in_several_launches_has_the_same_bits(
    name: str, work: int, quick_stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of 16 or 32 and whole inputs; launches of 64 queries or of more, and a last one."""
    path, how = tiny.path(name, "q8_0"), {"target": quick_stack.target, "batch": 32}
    lengths, found, launches = (150, 256, 100), [], []
    for most in (1 << 40, work):
        monkeypatch.setattr(encoder_layers, "MOST_WORK", most)
        with EmbeddingModel.open(path, quick_stack.device, **how) as model:
            inputs = [Input(tuple(i * 31 % 400 for i in range(n))) for n in lengths]
            found.append([model.forward([each]).tobytes() for each in inputs])
            launches.append(len(model._plans[packing.Shape.of(inputs[1:2])].plan))
    assert found[0] == found[1] and launches[0] < launches[1]


def test_a_long_pass_is_waited_for_some_launches_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[int] = []
    with (
        open_device("interpreter") as device,
        EmbeddingModel.open(tiny.path(NEW, "q8_0"), device) as model,
    ):
        monkeypatch.setattr(encoder, "BATCH", 8)
        monkeypatch.setattr(device, "finish", lambda: waits.append(1))
        model.forward([Input((7,) * 8)])
        assert not waits
        model.forward([Input((7,) * 9)])
        assert len(waits) > 5


def test_a_long_pass_in_parts_has_the_same_bits_beside_others(quick_stack: Stack) -> None:
    path = tiny.path("gemma-embedding2-tiny", "q8_0")
    long, short = Input(tuple(range(100, 180))), Input(tuple(range(100, 117)))
    how = {"target": quick_stack.target, "batch": 32}
    with EmbeddingModel.open(path, quick_stack.device, **how) as model:
        wanted, other = model.forward([long]), model.forward([short])
        found = []
        for rows in model.in_parts([long], seconds=0.0):
            assert model.forward([short]).tobytes() == other.tobytes()
            found.append(rows)
    assert len(found) > 10 and all(rows is None for rows in found[:-1])
    assert found[-1].tobytes() == wanted.tobytes()
