"""``POST /v1/embeddings``: forms of inputs and vectors, and requests that make no sense."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from ferro.models import tasks
from ferro.models.vectors import normalised
from ferro.serve.app import make_app
from ferro.serve.embeddings import MOST_INPUTS
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.serve.fake_encoder import FakeEncoder, vector
from tests.serve.fakes import FakeModel
from tests.serve.test_errors import error
from tests.serve.test_metrics import values

PATH = "/v1/embeddings"
MODEL = FakeEncoder(context=64, batch=16, out=512)


@pytest.fixture(scope="module")
def alone() -> Iterator[TestClient]:
    """A server of an embedding model alone."""
    service = Service({"embedding": MODEL}, Settings(aliases=("text-embedding-3-small",)))
    service.start()
    with TestClient(make_app(service), raise_server_exceptions=False) as found:
        yield found
    service.close()


def vectors(reply: Any) -> Any:
    assert reply.status_code == 200, reply.text
    data = reply.json()["data"]
    assert [each["index"] for each in data] == list(range(len(data)))
    return np.array([each["embedding"] for each in data], np.float32)


def wanted(*texts: str, dimensions: int = 512) -> Any:
    rows = np.stack([vector(MODEL.tokenizer.encode(text), 512) for text in texts])
    return normalised(rows[:, :dimensions])


@pytest.mark.parametrize("path", [PATH, "/embeddings"])
def test_a_text_has_a_vector(alone: TestClient, path: str) -> None:
    reply = alone.post(path, json={"input": "hello", "user": "me"})
    assert np.array_equal(vectors(reply), wanted("hello"))
    body = reply.json()
    count = len(MODEL.tokenizer.encode("hello"))
    assert body["usage"] == {"prompt_tokens": count, "total_tokens": count}
    assert body["object"] == "list" and body["model"] == "encoder" and "warnings" not in body


def test_every_form_of_the_same_input_gives_the_same_vector(alone: TestClient) -> None:
    ids = MODEL.tokenizer.encode("hello")
    for given in ("hello", ["hello"], ids, [ids]):
        assert np.array_equal(vectors(alone.post(PATH, json={"input": given})), wanted("hello"))


def test_base64_is_little_endian_float32(alone: TestClient) -> None:
    reply = alone.post(PATH, json={"input": "hello", "encoding_format": "base64"})
    data = base64.b64decode(reply.json()["data"][0]["embedding"])
    assert data == wanted("hello").astype("<f4").tobytes()


def test_fewer_dimensions_are_the_first_ones_of_length_1(alone: TestClient) -> None:
    reply = alone.post(PATH, json={"input": ["a", "b"], "dimensions": 128})
    assert np.array_equal(vectors(reply), wanted("a", "b", dimensions=128))


def test_a_task_is_put_in_front_of_texts(alone: TestClient) -> None:
    text = tasks.task("gemma-embedding2", "query").text("hello")
    reply = alone.post(PATH, json={"input": "hello", "task": "query"})
    assert np.array_equal(vectors(reply), wanted(text))


def test_thousands_of_inputs_in_one_request(alone: TestClient) -> None:
    texts = [f"{i}" for i in range(MOST_INPUTS)]
    reply = alone.post(PATH, json={"input": texts, "dimensions": 128})
    assert np.array_equal(vectors(reply), wanted(*texts, dimensions=128))


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "input", "must be a string"),
        ({"input": None}, "input", "must be a string"),
        ({"input": ""}, "input", "0 is empty"),
        ({"input": []}, "input", "must be a string"),
        ({"input": ["a", ""]}, "input", "1 is empty"),
        ({"input": [[]]}, "input", "0 is empty"),
        ({"input": 5}, "input", "must be a string"),
        ({"input": {"text": "a"}}, "input", "must be a string"),
        ({"input": ["a", 5]}, "input", "1 must be a string"),
        ({"input": [[1, "a"]]}, "input", "0 must be"),
        ({"input": [[1.5]]}, "input", "0 must be"),
        ({"input": [True]}, "input", "0 must be"),
        ({"input": [-1]}, "input", "no token -1"),
        ({"input": [10**12]}, "input", "no token"),
        ({"input": ["a"] * (MOST_INPUTS + 1)}, "input", "at most 4096"),
        ({"input": ["a", "a b " * 60]}, "input", "input 1 has"),
        ({"input": [5] * 65}, "input", "65 tokens, the context holds 64"),
        ({"input": "x" * 100_000}, "input", "at least"),
        ({"input": "a", "dimensions": 300}, "dimensions", "one of 512, 256, 128"),
        ({"input": "a", "dimensions": 768}, "dimensions", "one of 512, 256, 128"),
        ({"input": "a", "dimensions": 0}, "dimensions", "from 1"),
        ({"input": "a", "dimensions": "many"}, "dimensions", "whole number"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "float, base64"),
        ({"input": "a", "encoding_format": 5}, "encoding_format", "string"),
        ({"input": "a", "task": "dancing"}, "task", "no task"),
        ({"input": [5], "task": "query"}, "task", "not of token ids"),
    ],
)
def test_what_makes_no_sense_is_400(
    alone: TestClient, body: dict[str, Any], param: str, said: str
) -> None:
    found = error(alone.post(PATH, json=body))
    assert found["param"] == param and said in found["message"]
    assert found["type"] == "invalid_request_error"


def test_a_text_that_is_too_long_has_its_own_code(alone: TestClient) -> None:
    found = error(alone.post(PATH, json={"input": "a b " * 60}))
    assert found["code"] == "context_length_exceeded"


def test_other_models_are_404(alone: TestClient) -> None:
    assert error(alone.post(PATH, json={"input": "a", "model": "x"}), 404)["param"] == "model"
    reply = alone.post(PATH, json={"input": "a", "model": "text-embedding-3-small"})
    assert reply.status_code == 200 and reply.json()["model"] == "encoder"


def test_a_full_queue_is_503() -> None:
    model = FakeEncoder()
    service = Service({"embedding": model}, Settings(most_waiting=-1))
    client = TestClient(make_app(service), raise_server_exceptions=False)
    reply = client.post(PATH, json={"input": "a"})
    assert error(reply, 503)["code"] == "busy" and reply.headers["retry-after"]


def test_a_pass_that_fails_is_503() -> None:
    model = FakeEncoder()
    model.failure = RuntimeError("out of order")
    service = Service({"embedding": model}, Settings())
    service.start()
    client = TestClient(make_app(service), raise_server_exceptions=False)
    assert error(client.post(PATH, json={"input": "a"}), 503)["code"] == "broken"
    service.close()


def test_without_a_language_model_its_endpoints_say_so(alone: TestClient) -> None:
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/apply-template", {"messages": []})):
        assert error(alone.post(path, json=body), 501)["code"] == "not_supported"
    assert alone.post("/tokenize", json={"content": "hello"}).json()["count"]
    for path in ("/health", "/ready", "/v1/models", "/v1/models/encoder", "/metrics", "/chat"):
        assert alone.get(path).status_code == 200


def test_without_an_embedding_model_the_endpoint_says_so() -> None:
    service = Service({"language": FakeModel()}, Settings())
    client = TestClient(make_app(service), raise_server_exceptions=False)
    assert error(client.post(PATH, json={"input": "a"}), 501)["code"] == "not_supported"
    service.close()


def test_models_are_listed_with_what_comes_out_of_them(client: TestClient) -> None:
    data = client.get("/v1/models").json()["data"]
    out = {each["id"]: each["architecture"]["output_modalities"] for each in data}
    assert out == {"fake": ["text"], "encoder": ["embeddings"]}
    assert data[1]["meta"]["n_embd"] == 8
    health = client.get("/health").json()
    assert set(health["models"]) == {"language", "embedding"}


def test_embeddings_are_counted(alone: TestClient) -> None:
    before = values(alone)
    alone.post(PATH, json={"input": ["a", "b"]})
    after = values(alone)
    name = "ferro_embedding_inputs_total"
    assert after[name] == before[name] + 2
    assert after["ferro_embedding_waiting"] == 0
