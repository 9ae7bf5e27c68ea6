"""Embedding models: texts, tasks, titles and dimensions; windows; values that are large."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ferro.models import tasks
from ferro.models.embedding_model import EmbeddingModel
from ferro.models.errors import UnsupportedArchitecture
from ferro.models.loaded import BadOption
from ferro.models.passes import ContextFull, PassError
from ferro.models.tasks import NoSuchTask
from ferro.models.vectors import NotFinite, normalised
from ferro.runtime import DeviceError, OutOfMemory, open_device
from ferro.runtime.device import Device
from tests.models import ggufs, reference64, tiny

OLD, NEW = "gemma-embedding", "gemma-embedding2"


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with open_device("interpreter") as opened:
        yield opened


@pytest.fixture(scope="module")
def model() -> Iterator[EmbeddingModel]:
    path = tiny.path("gemma-embedding2-tiny", "q8_0")
    how = {"context": 64, "batch": 64}
    with quick_device() as quick, EmbeddingModel.open(path, quick, **how) as opened:
        yield opened


def quick_device() -> Device:
    try:
        return open_device("intel")
    except DeviceError:
        return open_device("interpreter")  # the same bits, later


# --- texts ---------------------------------------------------------------------------------------


def test_texts_and_their_ids_give_the_same_vectors(model: EmbeddingModel) -> None:
    prefix = tasks.task(NEW, "query").prefix
    found = model.embed(["how long?", "the train"], task="query")
    assert found.shape == (2, 192) and found.dtype == np.float32
    ids = [model.encode(f"{prefix}{text}") for text in ("how long?", "the train")]
    assert ids[0][0] == 2 and ids[0][-1] == 1  # BOS and EOS
    assert model.embed(ids).tobytes() == found.tobytes()


def test_titles_of_documents(model: EmbeddingModel) -> None:
    found = model.embed(["a", "b"], task="document", titles=["t", None], normalise=False)
    texts = ["title: t | text: a", "title: none | text: b"]
    assert found.tobytes() == model.embed(texts, normalise=False).tobytes()


def test_dimensions_are_the_first_numbers(model: EmbeddingModel) -> None:
    whole = model.embed(["a"], normalise=False)
    part = model.embed(["a"], dimensions=64, normalise=False)
    assert part.tobytes() == whole[:, :64].tobytes() and part.flags.c_contiguous
    short = model.embed(["a"], dimensions=64)
    assert short.tobytes() == normalised(whole[:, :64]).tobytes()
    assert abs(np.linalg.norm(short) - 1) < 1e-6


def test_no_texts_give_no_vectors(model: EmbeddingModel) -> None:
    assert model.embed([], dimensions=7).shape == (0, 7)


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"texts": "a"}, BadOption, "texts are a list"),
        ({"texts": None}, BadOption, "texts are a list, not a NoneType"),
        ({"texts": b"a"}, BadOption, "texts are a list, not a bytes"),
        ({"texts": {"a"}}, BadOption, "texts are a list, not a set"),
        ({"texts": [b"a"]}, BadOption, "input 0: token ids are a list, not a bytes"),
        ({"texts": ["a", None]}, BadOption, "input 1: token ids are a list, not a NoneType"),
        ({"texts": [[2.5]]}, PassError, "input 0: a token is a whole number"),
        ({"texts": [np.ones((2, 2), int)]}, PassError, "not a ndarray"),
        ({"dimensions": 1.5}, BadOption, "dimensions must be 1 to 192, got 1.5"),
        ({"dimensions": "8"}, BadOption, "dimensions must be 1 to 192, got 8"),
        ({"titles": "t", "task": "document"}, BadOption, "titles are a list"),
        ({"titles": [5], "task": "document"}, BadOption, "title 0 is no text, but a int"),
        ({"task": 5}, NoSuchTask, "by its name, not by a int"),
        ({"dimensions": 0}, BadOption, "dimensions must be 1 to 192, got 0"),
        ({"dimensions": 193}, BadOption, "dimensions must be 1 to 192, got 193"),
        ({"titles": ["a", "b"], "task": "document"}, BadOption, "2 titles for 1 texts"),
        ({"titles": ["a"]}, NoSuchTask, "have no title"),
        ({"task": "quarry"}, NoSuchTask, "did you mean `query`"),
        ({"texts": [[2, 5, 1]], "task": "query"}, BadOption, "of token ids"),
        ({"texts": ["a", "zq" * 60]}, ContextFull, r"input 1 is too long: \d+ tokens \(at most 64"),
    ],
)
def test_what_cannot_be_embedded(
    model: EmbeddingModel, how: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        model.embed(**{"texts": ["a"], **how})
    assert caught.value.exit_code == 2  # type: ignore[attr-defined]


def test_numbers_of_numpy_are_ids_and_dimensions(model: EmbeddingModel) -> None:
    ids = np.array([[2, 9, 1], [2, 7, 1]])
    found = model.embed(ids, dimensions=np.int64(8))
    assert found.tobytes() == model.embed(ids.tolist(), dimensions=8).tobytes()


def test_threads_do_not_read_each_others_passes(model: EmbeddingModel) -> None:
    texts = [[f"{i} {k}" for k in range(6)] for i in range(16)]
    alone = [model.embed(each).tobytes() for each in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: model.embed(each).tobytes(), texts))
    assert found == alone


def test_vectors_of_length_0_stay() -> None:
    found = normalised(np.array([[0, 0, 0], [3, 0, 4], [1e30, 1e30, 0]], np.float32))
    assert np.allclose(found, [[0, 0, 0], [0.6, 0, 0.8], [0.5**0.5, 0.5**0.5, 0]], atol=1e-7)
    assert normalised(np.empty((0, 5), np.float32)).shape == (0, 5)


# --- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "lfm2 with a decision head"])
def test_models_of_other_kinds_are_named(tmp_path: Path, device: Device, name: str) -> None:
    path = ggufs.model(tmp_path / "model.gguf", name)
    with pytest.raises(UnsupportedArchitecture, match="is no embedding model"):
        EmbeddingModel.open(path, device)


@pytest.mark.parametrize("how", [{"batch": 0}, {"context": 0}, {"weights": "q2"}])
def test_options_that_mean_nothing(tmp_path: Path, device: Device, how: dict[str, Any]) -> None:
    path = ggufs.model(tmp_path / "model.gguf", NEW)
    with pytest.raises(BadOption, match=next(iter(how))):
        EmbeddingModel.open(path, device, **how)


def test_a_context_of_tables_that_do_not_fit(tmp_path: Path, device: Device) -> None:
    path = ggufs.model(tmp_path / "model.gguf", NEW)
    with pytest.raises(OutOfMemory, match="tables of 2147483647 positions"):
        EmbeddingModel.open(path, device, context=2**31 - 1)


# --- numbers -------------------------------------------------------------------------------------


def vector(path: Path, device: Device, ids: list[int], weights: str = "f32") -> Any:
    with EmbeddingModel.open(path, device, weights=weights) as opened:
        return opened.embed_ids([ids])[0]


def far(ours: Any, exact: Any) -> float:
    return float(np.abs(ours - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("name", [OLD, NEW])
def test_windows_reach_half_their_width_to_both_sides(
    tmp_path: Path, device: Device, name: str
) -> None:
    """Around a chunk of 64 keys: of these widths no two give the same vector."""
    ids, others = [3 + 7 * i % 31 for i in range(70)], []
    for window in (124, 126, 127, 128):  # 62, 63, 63, 64 to each side
        keys = {"attention.sliding_window": window}
        path = ggufs.model(tmp_path / f"{window}.gguf", name, "F32", keys=keys)
        exact = reference64.Model(path).pooled(ids)
        assert far(vector(path, device, ids), exact) < 1e-5
        others.append(exact)
    assert far(others[1], others[2]) == 0
    assert all(far(others[i], others[i + 1]) > 1e-4 for i in (0, 2))


@pytest.mark.parametrize("name", [OLD, NEW])
def test_files_without_dense_layers_and_with_one_number_of_heads(
    tmp_path: Path, device: Device, name: str
) -> None:
    without = ["dense_2.weight", "dense_3.weight"]
    keys = {"pooling_type": 1}
    path = ggufs.model(tmp_path / "model.gguf", name, "F32", without=without, keys=keys)
    ids = [3, 9, 4]
    assert far(vector(path, device, ids), reference64.Model(path).pooled(ids)) < 1e-5


def test_vectors_without_numbers_are_refused(tmp_path: Path, device: Device) -> None:
    path = ggufs.model(tmp_path / "model.gguf", NEW, "F32")
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.name == "output_norm.weight":
            tensor.data[:] = 3e38
    with (
        EmbeddingModel.open(path, device) as opened,
        pytest.raises(NotFinite, match="no numbers for input 0"),
    ):
        opened.embed([[3, 9]], normalise=False)


@pytest.mark.parametrize("weights", ["f32", "q8"])
@pytest.mark.parametrize("name", [OLD, NEW])
def test_activations_of_a_million(tmp_path: Path, device: Device, name: str, weights: str) -> None:
    """Float16 could not hold them, and their squares are beyond 1e12."""
    path = ggufs.model(tmp_path / "model.gguf", name, "F32")
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.name.endswith(("post_attention_norm.weight", "post_ffw_norm.weight")):
            tensor.data[:] = 1e6 * (1 + 0.1 * np.sin(np.arange(len(tensor.data))))
        if tensor.name == "token_embd.weight":
            tensor.data[:] *= 1e6 / 8
    ids = [3, 9, 4, 4, 30]
    found, exact = vector(path, device, ids, weights), reference64.Model(path).pooled(ids)
    assert np.isfinite(found).all()
    assert far(found, exact) < {"f32": 1e-4, "q8": 0.1}[weights]
