"""What each architecture reads from metadata, and what it says of files that lack something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from ferro.models import errors
from ferro.models.architectures import recognise
from ferro.models.gguf import GgufFile
from ferro.models.hyperparameters import Hyperparameters, Layer
from tests.models import ggufs
from tests.models.ggufs import FF, HEAD, HEADS, KV_HEADS, LAYERS, MODELS, TOKENS, WIDTH

NEEDED = (
    "block_count context_length embedding_length feed_forward_length attention.head_count"
    " attention.layer_norm_rms_epsilon"
).split()


def read(path: Path, name: str, **changes: Any) -> Hyperparameters:
    return recognise(GgufFile(ggufs.model(path / "model.gguf", name, **changes)))


def refused(path: Path, kind: type[errors.ModelError], name: str, **changes: Any) -> str:
    with pytest.raises(kind) as caught:
        read(path, name, **changes)
    return caught.value.problem


@pytest.mark.parametrize("name", MODELS)
def test_complete_models_are_recognised(tmp_path: Path, name: str) -> None:
    made = read(tmp_path, name)
    assert (made.architecture, made.width, made.vocabulary) == (name.split()[0], WIDTH, TOKENS)
    assert made.context == 128 and made.eps == pytest.approx(1e-5)


def some(name: str) -> dict[str, tuple[int, ...]]:
    """The tensors of a model without those of its first block."""
    return {t: shape for t, shape in MODELS[name]()[1].items() if not t.startswith("blk.0.")}


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_is_needed(tmp_path: Path, name: str) -> None:
    for tensor in some(name):
        said = refused(tmp_path, errors.MissingTensor, name, without=[tensor])
        assert said == f"the tensor `{tensor}` is missing"


@pytest.mark.parametrize("name", MODELS)
def test_every_shape_is_checked(tmp_path: Path, name: str) -> None:
    for tensor, shape in some(name).items():
        wrong = (shape[0] + 32, *shape[1:])
        said = refused(tmp_path, errors.WrongShape, name, shapes={tensor: wrong})
        assert f"`{tensor}`" in said and str(list(wrong)) in said


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("key", NEEDED)
def test_keys_that_are_needed(tmp_path: Path, name: str, key: str) -> None:
    said = refused(tmp_path, errors.MissingKey, name, without=[key])
    assert said == f"the key `{name.split()[0]}.{key}` is missing"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("lfm2", "shortconv.l_cache"),
        ("gemma-embedding2", "attention.sliding_window"),
        ("gemma-embedding2", "embedding_length_per_layer_input"),
    ],
)
def test_keys_of_one_architecture(tmp_path: Path, name: str, key: str) -> None:
    assert f"{name}.{key}" in refused(tmp_path, errors.MissingKey, name, without=[key])


def test_several_missing_tensors_are_counted(tmp_path: Path) -> None:
    without = ["blk.0.ffn_up.weight", "blk.1.ffn_up.weight", "blk.2.ffn_up.weight"]
    said = refused(tmp_path, errors.MissingTensor, "llama", without=without)
    assert said == "the tensor `blk.0.ffn_up.weight` is missing (and 2 more)"


# --- values --------------------------------------------------------------------------------------


def test_llama_layers_and_defaults(tmp_path: Path) -> None:
    layer = Layer(HEADS, KV_HEADS, HEAD, FF, 0, 10000.0, HEAD)
    assert read(tmp_path, "llama").layers == (layer,) * LAYERS
    shapes = {f"blk.{i}.attn_{n}.weight": (WIDTH, WIDTH) for i in range(LAYERS) for n in "kv"}
    made = read(tmp_path, "llama", without=["attention.head_count_kv"], shapes=shapes)
    assert made.layers[0].kv_heads == HEADS


def test_lfm2_knows_its_convolutions(tmp_path: Path) -> None:
    made = read(tmp_path, "lfm2", keys={"rope.freq_base": 1e6})
    assert [layer.attends for layer in made.layers] == [False, True, False]
    assert (made.taps, made.causal, made.layers[1].rope_base) == (3, True, 1e6)


def test_decision_head(tmp_path: Path) -> None:
    made = read(tmp_path, "lfm2 with a decision head")
    assert (made.head_blocks, made.causal, len(made.layers)) == (1, False, LAYERS + 1)
    assert made.layers[-1].feed_forward == 4 * WIDTH
    keys = {"decision.block_count": LAYERS + 1}
    said = refused(tmp_path, errors.WrongValue, "lfm2 with a decision head", keys=keys)
    assert "lfm2.decision.block_count" in said


HEADED = "lfm2 with a decision head"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("decision.block_count", 2**31 - 1),
        ("attention.causal", True),
        ("attention.layer_norm_epsilon", 0.0),
        ("shortconv.l_cache", 4),
        ("attention.head_count_kv", [0, KV_HEADS, 0, 0]),
        ("tokenizer.ggml.token_type_count", 2),
    ],
)
def test_a_decision_head_that_cannot_be(tmp_path: Path, key: str, value: Any) -> None:
    assert key in refused(tmp_path, errors.WrongValue, HEADED, keys={key: value})


def test_keys_that_a_decision_head_needs(tmp_path: Path) -> None:
    for key in ("attention.layer_norm_epsilon", "tokenizer.ggml.token_type_count"):
        assert key in refused(tmp_path, errors.MissingKey, HEADED, without=[key])
    # models are causal where nothing is said
    causal = "attention.causal"
    assert causal in refused(tmp_path, errors.WrongValue, HEADED, without=[causal])


def test_the_last_product_of_a_scorer_may_have_one_dimension_or_two(tmp_path: Path) -> None:
    for shape in ((WIDTH,), (1, WIDTH)):
        assert read(tmp_path, HEADED, shapes={"cls.output.weight": shape}).head_blocks == 1
    said = refused(tmp_path, errors.WrongShape, HEADED, shapes={"cls.output.weight": (2, WIDTH)})
    assert "cls.output.weight" in said


def test_gemma3_windows(tmp_path: Path) -> None:
    made = read(tmp_path, "gemma3")
    assert [layer.window for layer in made.layers] == [8, 8, 0]
    assert [layer.rope_base for layer in made.layers] == [10000.0, 10000.0, 1e6]
    flags = read(tmp_path, "gemma3", keys={"attention.sliding_window_pattern": [False, True, True]})
    assert [layer.window for layer in flags.layers] == [0, 8, 8]
    every = read(tmp_path, "gemma3", without=["attention.sliding_window_pattern"])
    assert [layer.window for layer in every.layers] == [8, 8, 8]  # all but every sixth
    none = read(tmp_path, "gemma3", without=["attention.sliding_window"])
    assert {(layer.window, layer.rope_base) for layer in none.layers} == {(0, 1e6)}


def test_gemma_embedding2_mixes_sizes_of_heads(tmp_path: Path) -> None:
    made = read(tmp_path, "gemma-embedding2")
    assert [layer.head for layer in made.layers] == [HEAD, HEAD, 2 * HEAD]
    assert [layer.kv_heads for layer in made.layers] == [KV_HEADS, KV_HEADS, 1]
    assert [layer.window for layer in made.layers] == [8, 8, 0]
    assert (made.out, made.per_layer, made.causal) == (48, 32, False)


def test_fused_queries_keys_and_values(tmp_path: Path) -> None:
    rows = (HEADS + 2 * KV_HEADS) * HEAD
    parts = [f"blk.{i}.attn_{n}.weight" for i in range(LAYERS) for n in "qkv"]
    shapes = {f"blk.{i}.attn_qkv.weight": (rows, WIDTH) for i in range(LAYERS)}
    assert read(tmp_path, "llama", without=parts, shapes=shapes).width == WIDTH
    shapes["blk.1.attn_qkv.weight"] = (rows - 16, WIDTH)
    said = refused(tmp_path, errors.WrongShape, "llama", without=parts, shapes=shapes)
    assert "blk.1.attn_qkv.weight" in said


def test_optional_tensors_are_checked_where_they_are(tmp_path: Path) -> None:
    extra = {"output.weight": (TOKENS, WIDTH), "blk.0.attn_output.bias": (WIDTH,)}
    assert read(tmp_path, "llama", shapes=extra).vocabulary == TOKENS
    said = refused(tmp_path, errors.WrongShape, "llama", shapes={"output.weight": (TOKENS, 32)})
    assert said == f"tensor `output.weight` has shape [{TOKENS}, 32] instead of [{TOKENS}, {WIDTH}]"


def test_biases_of_queries_keys_and_values_go_together(tmp_path: Path) -> None:
    biases = {f"blk.0.attn_{n}.bias": (size,) for n, size in (("q", WIDTH), ("k", 32), ("v", 32))}
    assert read(tmp_path, "llama", shapes=biases).vocabulary == TOKENS
    del biases["blk.0.attn_v.bias"]
    said = refused(tmp_path, errors.MissingTensor, "llama", shapes=biases)
    assert said == "the tensor `blk.0.attn_v.bias` is missing"


def test_positions_may_be_scaled(tmp_path: Path) -> None:
    keys = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    assert {layer.rope_factor for layer in read(tmp_path, "llama", keys=keys).layers} == {4.0}
    # of Gemma 3 those layers alone that see all keys
    assert [layer.rope_factor for layer in read(tmp_path, "gemma3", keys=keys).layers] == [1, 1, 4]
    old = read(tmp_path, "llama", keys={"rope.scale_linear": 8.0})
    assert old.layers[0].rope_factor == 8
    for kind, factor in (("none", 4.0), ("linear", 0.0)):
        keys = {"rope.scaling.type": kind, "rope.scaling.factor": factor}
        assert read(tmp_path, "llama", keys=keys).layers[0].rope_factor == 1


@pytest.mark.parametrize("kind", ["yarn", "longrope"])
@pytest.mark.parametrize("name", ["llama", "lfm2", "gemma3"])
def test_other_ways_of_scaling_positions_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    said = refused(tmp_path, errors.WrongValue, name, keys={"rope.scaling.type": kind})
    assert said == f"the key `{name}.rope.scaling.type`: `{kind}` is not supported (none, linear)"


def test_scale_of_scores(tmp_path: Path) -> None:
    assert read(tmp_path, "llama").score_scale == HEAD**-0.5
    assert read(tmp_path, "llama", keys={"attention.scale": 0.5}).score_scale == 0.5


def test_capped_logits_are_refused(tmp_path: Path) -> None:
    keys = {"final_logit_softcapping": 30.0}
    assert "cap of logits" in refused(tmp_path, errors.WrongValue, "gemma3", keys=keys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 2**31 - 1),
        ("block_count", 2**32 - 1),
        ("block_count", 2.0),
        ("attention.head_count", 0),
        ("attention.head_count_kv", 3),
        ("attention.head_count_kv", [2, 2]),
        ("attention.head_count", 6),  # does not divide the width
        ("attention.head_count", 64),  # heads of 1
        ("attention.head_count", 65),
        ("attention.head_count", 2**31 - 1),
        ("attention.key_length", 15),
        ("attention.value_length", 8),
        ("rope.dimension_count", HEAD + 2),
        ("rope.freq_base", -1.0),
        ("attention.layer_norm_rms_epsilon", 0.0),
        ("context_length", 0),
        ("feed_forward_length", [FF, FF, -FF]),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, key: str, value: Any) -> None:
    said = refused(tmp_path, errors.WrongValue, "llama", keys={key: value})
    assert f"the key `llama.{key}`" in said


def test_the_vocabulary_fits_the_embedding(tmp_path: Path) -> None:
    shapes = {"token_embd.weight": (TOKENS + 1, WIDTH)}
    said = refused(tmp_path, errors.WrongShape, "llama", shapes=shapes)
    assert f"[{TOKENS + 1}, {WIDTH}], the vocabulary {TOKENS} tokens" in said


def test_types_that_are_not_read(tmp_path: Path) -> None:
    path = ggufs.model(tmp_path / "model.gguf", "llama", "Q8_0")
    data, name = path.read_bytes(), b"blk.1.ffn_up.weight"
    at = data.index(name) + len(name) + 4 + 2 * 8  # after the number of axes and both of them
    iq4_nl = int(gguf.GGMLQuantizationType.IQ4_NL)
    path.write_bytes(data[:at] + iq4_nl.to_bytes(4, "little") + data[at + 4 :])
    with pytest.raises(
        errors.UnsupportedType, match=r"`blk\.1\.ffn_up\.weight` has the type IQ4_NL"
    ):
        recognise(GgufFile(path))


def test_other_architectures_are_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    ggufs.finish(writer)
    with pytest.raises(errors.UnsupportedArchitecture) as caught:
        recognise(GgufFile(tmp_path / "other.gguf"))
    known = "gemma-embedding, gemma-embedding2, gemma3, lfm2, llama"
    assert caught.value.problem == f"architecture `mamba` is not supported (supported: {known})"


def test_a_file_without_an_architecture(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    path.write_bytes(ggufs.whole())
    with pytest.raises(errors.MissingKey, match=r"`general\.architecture`"):
        recognise(GgufFile(path))


def test_pieces_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "piece.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 3)
    ggufs.finish(writer)
    with pytest.raises(errors.SplitFile, match="one of 3 pieces"):
        recognise(GgufFile(path))


@pytest.mark.parametrize("name", ["gemma-embedding", "gemma-embedding2"])
def test_another_pooling_than_the_mean_is_refused(tmp_path: Path, name: str) -> None:
    said = refused(tmp_path, errors.WrongValue, name, keys={"pooling_type": 2})
    assert f"{name}.pooling_type" in said


def test_gemma_embedding_is_gemma3_with_layers_behind_it(tmp_path: Path) -> None:
    made, plain = read(tmp_path, "gemma-embedding"), read(tmp_path, "gemma3")
    assert made.layers == plain.layers and made.score_scale == plain.score_scale
    assert (made.out, made.causal) == (WIDTH, False)
    assert read(tmp_path, "gemma-embedding", without=["dense_2.weight", "dense_3.weight"]) == made
    said = refused(tmp_path, errors.MissingKey, "gemma-embedding", without=["dense_2_feat_out"])
    assert "dense_2_feat_out" in said
