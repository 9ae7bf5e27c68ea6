"""What the benchmarks make of numbers: targets, rounds in turns, the picture. Measures nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import embedding_file, embeddings, quiet
from benchmarks.products import ROWS, Matrix, numpy, product
from benchmarks.quiet import Sample, Turns, in_turns, quietly
from benchmarks.targets import Target, of_host, of_products
from ferro.models.architectures import recognise
from ferro.models.gguf import GgufFile


def matrix(**seconds: float) -> Matrix:
    named = {name.replace("_", " "): value for name, value in seconds.items()}
    samples = {name: Sample(value, 0.0) for name, value in named.items()}
    sizes = dict.fromkeys(ROWS, 100)
    return Matrix(9216, 1024, dict.fromkeys(ROWS, "BM=1"), sizes, Turns([samples] * 3))


def measured() -> Matrix:
    turns = {product(1): 1.0, product(8): 1.5, product(192): 10.0, product(762): 39.0}
    numpys = {numpy(192): 30.0, numpy(762): 156.0}
    return matrix(**{**turns, **numpys, "reading": 0.95})


def test_targets_follow_from_times_in_turns() -> None:
    found = [(round(t.reached, 3), t.met) for t in of_products("pocl", [measured()])]
    assert found == [(0.95, True), (1.5, True), (3.0, True), (4.0, True), (0.983, True)]
    intel = {t.what: t.met for t in of_products("intel", [measured()])}
    assert intel["8 rows, 9216 x 1024: times 1 row"] is False
    assert intel["192 rows, 9216 x 1024: times numpy's float32"] is False


def test_a_device_without_targets_is_measured_and_not_judged() -> None:
    found = list(of_products("rusticl", [measured()]))
    assert [t.met for t in found] == [True, None, None, None, True]
    assert found[1].line()[1:] == ["1.5 x", None, None]


def test_costs_and_times_have_their_units() -> None:
    cost, time = of_host({"friendly call": 41.0, "loaded warm": 0.25})
    assert cost.line() == ["friendly call", "41 us", "at most 40 us", False]
    assert (time.met, time.share) == (True, 2.0)


def test_a_ratio_is_taken_within_a_round() -> None:
    slowing = [{"a": Sample(2 * n, 0.0), "b": Sample(n, 0.0)} for n in (1.0, 3.0, 50.0)]
    assert Turns(slowing).ratio("a", "b") == 2.0


def test_samples_take_turns() -> None:
    order: list[str] = []

    def one(name: str) -> float:
        order.append(name)
        return 1.0

    found = in_turns({"a": lambda: one("a"), "b": lambda: one("b")}, 2)
    assert order == ["a", "b", "a", "b"] and len(found.rounds) == 2


def test_a_disturbed_sample_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def others(*shares: float) -> None:
        left = list(shares)

        class Watch:
            def __init__(self, beside: Sequence[int]) -> None:
                pass

            def others(self) -> float:
                return left.pop(0)

        monkeypatch.setattr(quiet, "Watch", Watch)

    values = iter(range(100))
    others(0.5, 0.01)
    assert quietly(lambda: float(next(values))) == Sample(1.0, 0.01)
    others(0.5, 0.2, 0.9)
    assert quietly(lambda: float(next(values))) == Sample(3.0, 0.2)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import plot

    met, missed = Target("fast", 1.0, 2.0), Target("slow", 1.0, 2.0, at_least=True)
    plot.draw({"a": [met, missed], "b": [Target("unjudged", 1.0, None)]}, tmp_path / "x.png", "now")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_the_embedding_file_has_the_shape_of_the_released_one(tmp_path: Path) -> None:
    embedding_file.write(tmp_path / "model.gguf", vocabulary=1100, layers=6)
    made = recognise(GgufFile(tmp_path / "model.gguf"))
    assert (made.architecture, made.width, made.vocabulary) == ("gemma-embedding2", 512, 1100)
    assert [layer.head for layer in made.layers] == [256] * 5 + [512]
    assert [layer.kv_heads for layer in made.layers] == [2] * 5 + [1]
    assert made.out == 768 and not made.causal


def test_a_peer_is_asked_for_the_same_sequences(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    ids = json.loads(line)\n"
        "    rows = [[float(token) for token in each] for each in ids]\n"
        "    print(json.dumps({'seconds': [2.0, 1.0], 'vectors': rows}), flush=True)\n"
    )
    peer = embeddings.Peer([sys.executable, child])
    seconds, vectors = peer.embed([[1, 2], [3, 4]])
    peer.close()
    assert seconds == 1.0 and vectors.tolist() == [[1, 2], [3, 4]]
