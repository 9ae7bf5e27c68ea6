"""Completions of texts, tokens and models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.models.vocabularies import tokenizer

LFM2 = tokenizer("lfm2")


def asked(client: TestClient, prompt: Any = "Once", **fields: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "ignore_eos": True, "seed": 3, **fields}
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_completion(client: TestClient) -> None:
    reply = asked(client)
    (choice,) = reply["choices"]
    assert (reply["object"], choice["finish_reason"]) == ("text_completion", "length")
    assert choice["text"] and reply["usage"]["completion_tokens"] == 16


def test_token_ids_are_the_same_prompt(client: TestClient) -> None:
    assert asked(client, LFM2.encode("Once"))["choices"] == asked(client)["choices"]


def test_several_prompts_with_several_choices(client: TestClient) -> None:
    reply = asked(client, ["Once", "Twice"], n=2, max_tokens=4, temperature=1)
    texts = [choice["text"] for choice in reply["choices"]]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert texts[2:] == [
        c["text"] for c in asked(client, "Twice", n=2, max_tokens=4, temperature=1)["choices"]
    ]


def test_a_stream_has_the_same_text(client: TestClient) -> None:
    body = {"prompt": "Once", "seed": 3, "stream": True, "ignore_eos": True}
    lines = client.post("/v1/completions", json=body).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == asked(client)["choices"][0]["text"] and lines[-2] == "data: [DONE]"


@pytest.mark.parametrize("count", [0, 2])
def test_likelihoods(client: TestClient, count: int) -> None:
    told = asked(client, logprobs=count, max_tokens=5)["choices"][0]["logprobs"]
    assert {len(values) for values in told.values()} == {5}
    assert all(len(top) <= count for top in told["top_logprobs"])
    assert told["text_offset"][0] == 0 and all(p <= 0 for p in told["token_logprobs"])


def test_the_prompt_is_repeated_where_that_is_asked_for(client: TestClient) -> None:
    plain = asked(client)["choices"][0]["text"]
    assert asked(client, echo=True)["choices"][0]["text"] == "Once" + plain


def test_tokens_of_a_text_and_back(client: TestClient) -> None:
    text = "Hello é 🙂"
    ids = LFM2.encode(text, add_special=False)
    found = client.post("/tokenize", json={"content": text}).json()
    assert found["tokens"] == ids and found["count"] == len(ids)
    back = client.post("/detokenize", json={"tokens": ids}).json()
    assert back == {"content": text, "prompt": text}


def test_tokens_with_their_pieces(client: TestClient) -> None:
    found = client.post("/tokenize", json={"content": "ab", "with_pieces": True}).json()["tokens"]
    assert "".join(each["piece"] for each in found) == "ab"


def test_tokens_by_the_fields_of_vllm(client: TestClient) -> None:
    body = {"prompt": "ab", "return_token_strs": True}
    found = client.post("/tokenize", json=body).json()
    assert found["tokens"] == LFM2.encode("ab") and found["max_model_len"] == 512
    assert len(found["token_strs"]) == found["count"]
    messages = {"messages": [{"role": "user", "content": "ab"}]}
    templated = client.post("/tokenize", json=messages).json()
    prompt = client.post("/apply-template", json=messages).json()["prompt"]
    assert templated["tokens"] == LFM2.encode(prompt)


def test_models_are_listed(client: TestClient) -> None:
    model = client.get("/v1/models").json()["data"][0]
    assert model["id"] == "fake" and model["meta"]["n_ctx"] == 512
    assert client.get("/v1/models/fake").json() == model


def test_health_and_readiness(client: TestClient) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok" and health["slots"] == {"total": 4, "active": 0}
    assert client.get("/ready").json() == {"status": "ok"}
