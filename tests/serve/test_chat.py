"""Chat completions: bodies, streams, fields, usage."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.models.vocabularies import tokenizer
from tests.serve.conftest import Connect

LFM2 = tokenizer("lfm2")
END = LFM2.encode("<|im_end|>", add_special=False)[0]
USER = [{"role": "user", "content": "Hi"}]


def ids(text: str) -> list[int]:
    return LFM2.encode(text, add_special=False)


def asked(client: TestClient, **fields: Any) -> dict[str, Any]:
    reply = client.post("/v1/chat/completions", json={"messages": USER, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def streamed(client: TestClient, path: str = "/v1/chat/completions", **fields: Any) -> list[Any]:
    body = {"messages": USER, "stream": True, **fields}
    reply = client.post(path, json=body)
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.text
    lines = [line for line in reply.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def joined(chunks: list[Any], field: str = "content", choice: int = 0) -> str:
    found = (c for chunk in chunks for c in chunk["choices"] if c["index"] == choice)
    return "".join(c["delta"].get(field) or "" for c in found)


def test_a_reply_has_a_message_usage_and_timings(connect: Connect) -> None:
    reply = asked(connect([*ids("Blue."), END]))
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Blue."}
    assert (choice["finish_reason"], choice["index"]) == ("stop", 0)
    assert (reply["object"], reply["model"]) == ("chat.completion", "fake")
    usage, timings = reply["usage"], reply["timings"]
    assert usage["completion_tokens"] == len(ids("Blue.")) + 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert timings["prompt_n"] == usage["prompt_tokens"] and timings["predicted_per_second"] > 0


def test_a_stream_has_the_same_text(client: TestClient) -> None:
    fields = {"max_tokens": 20, "seed": 4, "ignore_eos": True}
    chunks = streamed(client, **fields)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert joined(chunks) == asked(client, **fields)["choices"][0]["message"]["content"]
    last = chunks[-1]
    assert last["choices"][0]["finish_reason"] == "length" and "timings" in last
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_usage_of_a_stream_comes_last_where_it_is_asked_for(client: TestClient) -> None:
    chunks = streamed(client, max_tokens=3, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] <= 3
    assert not any("usage" in chunk for chunk in chunks[:-1])


def test_a_seed_gives_the_same_text_again_and_another_one_another(client: TestClient) -> None:
    texts = [
        asked(client, seed=seed, temperature=1.0, max_tokens=12, ignore_eos=True)["choices"][0]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_the_number_of_tokens_is_bounded(client: TestClient, name: str) -> None:
    reply = asked(client, **{name: 5, "ignore_eos": True})
    assert reply["usage"]["completion_tokens"] == 5
    assert reply["choices"][0]["finish_reason"] == "length"


def test_no_tokens_at_all(client: TestClient) -> None:
    reply = asked(client, max_tokens=0)
    assert reply["usage"]["completion_tokens"] == 0
    assert reply["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize("stop", ["lm", ["zz", "lm"]])
def test_a_stop_string_is_never_shown(connect: Connect, stop: Any) -> None:
    client = connect([*ids("abcklmn"), END])
    assert asked(client, stop=stop)["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "abck"},
        "logprobs": None,
        "finish_reason": "stop",
    }


def test_a_stop_string_is_never_streamed(connect: Connect) -> None:
    assert joined(streamed(connect([*ids("abcklmn"), END]), stop="lm")) == "abck"


def test_several_choices(client: TestClient) -> None:
    fields = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 8, "ignore_eos": True}
    reply = asked(client, **fields)
    texts = [choice["message"]["content"] for choice in reply["choices"]]
    assert len(set(texts)) == 3 and reply["usage"]["completion_tokens"] == 24
    chunks = streamed(client, **fields)
    assert [joined(chunks, choice=i) for i in range(3)] == texts


def test_likelihoods_are_those_of_tokens(client: TestClient) -> None:
    fields = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
    reply = asked(client, logprobs=True, top_logprobs=3, **fields)
    content = reply["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        best = entry["top_logprobs"][0]
        assert len(entry["top_logprobs"]) == 3
        assert (best["token"], best["logprob"]) == (entry["token"], entry["logprob"])
        assert entry["logprob"] < 0 and bytes(entry["bytes"]).decode("utf-8", "replace")
    chunks = streamed(client, logprobs=True, top_logprobs=3, **fields)
    found = [e for c in chunks for e in (c["choices"][0].get("logprobs") or {}).get("content", [])]
    assert found == content


def test_likelihoods_without_others(client: TestClient) -> None:
    reply = asked(client, logprobs=True, max_tokens=2, ignore_eos=True)
    assert all(e["top_logprobs"] == [] for e in reply["choices"][0]["logprobs"]["content"])


def test_reasoning_is_told_from_the_answer(connect: Connect) -> None:
    client = connect([*ids("<think>\nwell\n</think>\n\nBlue"), END])
    message = asked(client)["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("Blue", "well")


def test_reasoning_is_streamed_apart(connect: Connect) -> None:
    chunks = streamed(connect([*ids("<think>\nwell\n</think>\n\nBlue"), END]))
    assert joined(chunks, "reasoning_content") == "well" and joined(chunks) == "Blue"


def test_reasoning_is_left_in_place_where_that_is_asked_for(connect: Connect) -> None:
    client = connect([*ids("<think>a</think>b"), END])
    message = asked(client, reasoning_format="none")["choices"][0]["message"]
    assert message["content"] == "<think>a</think>b"


def test_a_reply_that_ends_in_reasoning_says_so(connect: Connect) -> None:
    reply = asked(connect([*ids("<think>well well well")]), max_tokens=9)
    assert reply["choices"][0]["message"]["content"] == ""
    assert "still reasoning" in reply["warnings"][0]


def test_a_thinking_budget_ends_reasoning(connect: Connect) -> None:
    client = connect([*ids("<think>"), *ids("x" * 40), END])
    message = asked(client, thinking_budget=4, max_tokens=30)["choices"][0]["message"]
    assert len(message["reasoning_content"]) < 12 and message["content"].startswith("x")


def test_unknown_fields_are_warned_of_and_harmless_ones_are_not(client: TestClient) -> None:
    reply = asked(client, max_tokens=1, user="me", metadata={"a": "b"}, mirostat=2)
    assert reply["warnings"] == ["fields that are not known here count for nothing: mirostat"]


def test_a_long_system_message_is_filled_once(connect: Connect) -> None:
    client = connect(context=512)
    system = {"role": "system", "content": "You are a helpful assistant who knows. " * 6}
    replies = [
        asked(client, messages=[system, {"role": "user", "content": text}], max_tokens=2)
        for text in ("one", "two and more", "three")
    ]
    cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    assert cached[0] == 0 and cached[1] == cached[2] > 100
    assert replies[1]["timings"]["cache_n"] == cached[1]


def test_a_conversation_fills_only_what_is_new(connect: Connect) -> None:
    client = connect(context=512, attends=False)
    messages: list[dict[str, str]] = []
    lengths, cached = [], []
    for turn in range(5):
        messages.append({"role": "user", "content": f"a question with number {turn}"})
        reply = asked(client, messages=messages, max_tokens=6, ignore_eos=True, seed=1)
        messages.append(reply["choices"][0]["message"])
        lengths.append(reply["usage"]["prompt_tokens"])
        cached.append(reply["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached[2:] == lengths[1:4]


def test_cache_prompt_false_leaves_the_cache_alone(connect: Connect) -> None:
    client = connect(context=512)
    for _ in range(3):
        reply = asked(client, cache_prompt=False, max_tokens=1)
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert client.get("/health").json()["prefix_cache"]["entries"] == 0


def test_a_template_is_applied(client: TestClient) -> None:
    reply = client.post("/apply-template", json={"messages": USER})
    assert "<|im_start|>user\nHi<|im_end|>" in reply.json()["prompt"]


def test_a_conversation_fills_only_what_is_new_from_its_third_turn_on(connect: Connect) -> None:
    client = connect(attends=False, context=2000)
    talk = [{"role": "system", "content": "You are short. " * 5}]
    new, prompts = [], []
    for turn in range(5):
        talk.append({"role": "user", "content": f"This is what I say in turn {turn}."})
        body = {"messages": talk, "temperature": 0, "max_tokens": 8}
        reply = client.post("/v1/chat/completions", json=body).json()
        talk.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        usage = reply["usage"]
        prompts.append(usage["prompt_tokens"])
        new.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
    # the second turn's prompt is kept, its reply and what is said after it are new
    grown = [after - before for before, after in pairwise(prompts[1:])]
    assert new[2:] == grown
