"""The file that decision models are measured with, in small."""

from __future__ import annotations

from pathlib import Path

from benchmarks.decision_file import Sizes, write
from benchmarks.decisions import questions
from ferro.models.decision_model import DecisionModel
from ferro.runtime import open_device

SMALL = Sizes(
    width=64, trunk=2, attends=(1,), head_blocks=1, heads=4, kv_heads=2, inner=96, vocabulary=320
)


def test_a_written_model_answers(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write(path, SMALL)
    with open_device("interpreter") as device, DecisionModel.open(path, device) as model:
        scores = model.score(questions(4, 5, SMALL.vocabulary))
        assert [each.shape for each in scores] == [(2,)] * 4
        answer = model.decide("a b", {"x": {"type": "noul", "instructions": "Is it?"}})
    assert 0 < answer["x"]["noul"] < 1


def test_its_shape_is_that_of_the_published_model() -> None:
    matrices, vectors = Sizes().matrices(), list(Sizes().vectors())
    count = sum(rows * columns for rows, columns in matrices.values())
    for _, shape, _ in vectors:
        size = 1
        for n in shape:
            size *= n
        count += size
    # encoder and head, as the publisher counts them
    assert count == 354_483_968 + 26_248_193
