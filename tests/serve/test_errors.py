"""Requests that cannot be served: the right status, OpenAI's body, and nothing lost."""

from __future__ import annotations

import json
import os
import random
import string
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from ferro.models.tokenizer import Tokenizer
from ferro.serve.app import make_app
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.serve.conftest import Connect
from tests.serve.fakes import FakeModel, until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]
GREEDY = {"messages": USER, "temperature": 0, "max_tokens": 6, "ignore_eos": True}


def error(reply: Any, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert list(body) == ["error"] and set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"] and body["error"]["type"]
    return body["error"]


def post(client: TestClient, body: bytes | str, path: str = CHAT) -> Any:
    return client.post(path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "no UTF-8"),
        (b"[]", "must be a JSON object, it is an array"),
        (b"null", "must be a JSON object"),
        (b'{"messages": NaN}', "NaN"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "no JSON"),
        (b'{"messages":' + b"[" * 90 + b"]" * 90 + b"}", "nested too deep"),
        (b"[" * 200_000, "nested too deep"),
    ],
)
def test_bodies_that_are_no_requests(client: TestClient, body: bytes, said: str) -> None:
    assert said in error(post(client, body))["message"]


def test_a_huge_body_is_refused(connect: Connect) -> None:
    client = connect(settings={"most_bytes": 1000})
    reply = client.post(CHAT, json={"messages": USER, "user": "x" * 2000})
    assert error(reply, 413)["type"] == "request_too_large_error"

    def parts() -> Iterator[bytes]:
        yield from (b" " * 600 for _ in range(3))

    assert error(client.post(CHAT, content=parts()), 413)


def test_what_is_not_there(client: TestClient) -> None:
    assert error(client.get("/v1/nothing"), 404)["code"] == "not_found"
    reply = client.get(CHAT)
    assert error(reply, 405)["code"] == "method_not_allowed" and "POST" in reply.headers["allow"]
    assert error(client.get("/v1/models/none"), 404)["code"] == "model_not_found"
    assert error(client.post(CHAT, json={**GREEDY, "model": "gpt-5"}), 404)["param"] == "model"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", "Hi"),
        ("messages", []),
        ("messages", None),
        ("messages", [1]),
        ("messages", [{"content": "Hi"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "user", "content": [{"type": "text"}]}]),
        ("messages", [{"role": "assistant", "content": "", "tool_calls": [{}]}]),
        ("model", 5),
        ("max_tokens", "many"),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("max_tokens", -2),
        ("temperature", "hot"),
        ("temperature", -1),
        ("temperature", 1e400),
        ("top_p", 1.1),
        ("top_p", []),
        ("min_p", -0.1),
        ("top_k", 0.5),
        ("seed", "x"),
        ("seed", 1e30),
        ("stop", 5),
        ("stop", [5]),
        ("stop", ["x"] * 1000),
        ("n", 0),
        ("n", 1000),
        ("stream", "yes"),
        ("stream_options", True),
        ("logit_bias", "x"),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"1": "x"}),
        ("logit_bias", {"1": 10**400}),
        ("logit_bias", [[float("inf"), 1]]),
        ("temperature", 10**400),
        ("timeout", 10**400),
        ("seed", 10**400),
        ("response_format", {"type": "json_schema", "schema": {"minimum": 10**400}}),
        ("logprobs", 3),
        ("top_logprobs", 99),
        ("presence_penalty", 3),
        ("repetition_penalty", 0),
        ("reasoning_format", "odd"),
        ("thinking_budget", "x"),
        ("chat_template_kwargs", []),
        ("tools", {}),
        ("tools", [5]),
        ("functions", [{}]),
        ("timeout", 0),
    ],
)
def test_fields_of_a_wrong_kind_are_named(client: TestClient, field: str, value: Any) -> None:
    found = error(post(client, json.dumps({**GREEDY, field: value}).replace("Infinity", "1e999")))
    assert found["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "prompt", [None, 5, [], [[]], [1.5], [["x"]], [-1], [10**6], [None], {"a": 1}, "", [True]]
)
def test_prompts_that_are_none(client: TestClient, prompt: Any) -> None:
    reply = client.post(TEXT, json={"prompt": prompt, "max_tokens": 1})
    if prompt == "":
        # the vocabulary puts a token in front
        assert reply.status_code == 200
    else:
        error(reply)


def test_a_prompt_that_is_too_long_tells_both_counts(client: TestClient) -> None:
    body = {"messages": [{"role": "user", "content": "word " * 2000}]}
    found = error(client.post(CHAT, json=body))
    assert found["code"] == "context_length_exceeded"
    assert "the context holds 512" in found["message"]


def test_a_prompt_that_is_much_too_long_is_not_even_encoded(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "encode", lambda *args, **kwargs: pytest.fail("encoded"))
    for path, body in ((TEXT, {"prompt": "a" * 10**6}), (CHAT, {"messages": [
        {"role": "user", "content": "a" * 10**6}
    ]})):  # fmt: skip
        found = error(client.post(path, json=body))
        assert found["code"] == "context_length_exceeded" and "at least" in found["message"]


def test_media_are_refused(client: TestClient) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    body = {"messages": [{"role": "user", "content": [part]}]}
    assert "no image input" in error(client.post(CHAT, json=body))["message"]


def test_lone_surrogates_are_no_obstacle(client: TestClient) -> None:
    body = '{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 2}'
    assert post(client, body).status_code == 200
    assert error(post(client, '{"messages": [], "model": "\\udfff"}'), 404)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/apply-template"])
def test_other_endpoints_say_what_is_wrong(client: TestClient, path: str) -> None:
    for body in ({}, {"content": 5}, {"tokens": ["x"]}, {"tokens": [10**9]}, {"messages": 1}):
        error(client.post(path, json=body))


def test_a_full_queue_is_503_with_a_time_to_come_again(connect: Connect) -> None:
    client = connect(settings={"most_waiting": 0}, slots=1)
    service = client.app.state.service
    service.language.model.seconds = 0.02
    reply = client.post(TEXT, json={"prompt": ["a", "b", "c"], "max_tokens": 9})
    assert error(reply, 503)["code"] == "busy" and int(reply.headers["retry-after"]) >= 1
    until(lambda: not service.language.lane.active)


def test_a_model_that_breaks_is_503_and_the_next_request_is_served(connect: Connect) -> None:
    client = connect()
    model = client.app.state.service.language.model
    model.failure = RuntimeError("lost")
    assert error(client.post(CHAT, json=GREEDY), 503)
    model.failure = None
    assert client.post(CHAT, json=GREEDY).status_code == 200


def test_a_request_that_takes_too_long_is_504(connect: Connect) -> None:
    client = connect()
    client.app.state.service.language.model.seconds = 0.02
    reply = client.post(CHAT, json={**GREEDY, "timeout": 0.05, "max_tokens": 100})
    assert error(reply, 504)["code"] == "timeout"


def test_what_breaks_in_a_stream_is_an_event(connect: Connect) -> None:
    client = connect()
    client.app.state.service.language.model.failure = RuntimeError("lost")
    reply = client.post(CHAT, json={**GREEDY, "stream": True})
    last, done, _ = reply.text.split("\n\n")[-3:]
    assert "error" in json.loads(last.removeprefix("data: ")) and done == "data: [DONE]"


def test_a_server_that_loads_says_so() -> None:
    with TestClient(make_app(), raise_server_exceptions=False) as client:
        for path in ("/health", "/ready", "/v1/models"):
            assert error(client.get(path), 503)["message"] == "Loading model"
        assert error(client.post(CHAT, json=GREEDY), 503)["code"] == "loading"


# --- fuzz ----------------------------------------------------------------------------------------

NAMES = (
    "messages prompt model max_tokens max_completion_tokens temperature top_p top_k min_p seed stop"
    " n stream stream_options logit_bias logprobs top_logprobs tools tool_choice response_format"
    " presence_penalty repetition_penalty ignore_eos cache_prompt thinking_budget content tokens"
    " chat_template_kwargs reasoning_format add_generation_prompt echo best_of timeout"
).split()
PATHS = (CHAT, TEXT, "/tokenize", "/detokenize", "/apply-template")


STRANGE = (
    b"NaN", b"-Infinity", b"1e999", b"-0", b"9" * 400, b"[" * 70 + b"]" * 70, b'{"a":' * 70,
    b'"\\ud800"', b'"\xff"', b'"' + b"x" * 50_000 + b'"', b"[" + b"0," * 9000 + b"0]", b'"\\u0000"',
)  # fmt: skip
FUZZED = int(os.environ.get("FERRO_FUZZED", "300"))


def anything(draw: random.Random, depth: int = 0) -> Any:
    kinds = 6 if depth > 2 else 9
    match draw.randrange(kinds):
        case 0:
            return draw.choice([None, True, False])
        case 1:
            return draw.choice([0, 1, -1, 2, 7, 10**6, -(10**18), 10**30])
        case 2:
            return draw.choice([0.0, 0.5, -1.5, 1e300, 1e-300])
        case 3:
            return "".join(draw.choices(string.printable + "é🙂\ud800\0", k=draw.randrange(20)))
        case 4:
            return draw.choice(["auto", "none", "json_object", "user", "text", "<|im_end|>"])
        case 5:
            return [draw.randrange(-2, 300) for _ in range(draw.randrange(9))]
        case 6:
            return [anything(draw, depth + 1) for _ in range(draw.randrange(4))]
        case 7:
            return {draw.choice([*NAMES, "role", "type", "function"]): anything(draw, depth + 1)}
        case _:
            return [{"role": "user", "content": anything(draw, depth + 1)}]


def malformed(draw: random.Random) -> bytes:
    """A body that is wrong in its fields, in its text, or not at all."""
    body = {name: anything(draw) for name in draw.sample(NAMES, draw.randrange(5))}
    if draw.random() < 0.7:
        body = {"messages": USER, "prompt": "Hi", "max_tokens": 2, **body}
    data = json.dumps(body).encode("utf-8", "surrogatepass")
    if draw.random() < 0.2:
        at = draw.randrange(len(data) + 1)
        data = data[:at] + draw.randbytes(draw.randrange(4)) + data[at + draw.randrange(4) :]
    if draw.random() < 0.2:
        # one more field, which may be there already
        name, value = draw.choice(NAMES).encode(), draw.choice(STRANGE)
        data = b'{"' + name + b'": ' + value + b", " + data[1:]
    return data


def test_malformed_requests_change_nothing() -> None:
    draw = random.Random(1)
    service = Service({"language": FakeModel(context=128, slots=2)}, Settings(request_seconds=20))
    service.start()
    with TestClient(make_app(service), raise_server_exceptions=False) as client:
        before = client.post(CHAT, json=GREEDY).json()["choices"]
        for _ in range(FUZZED):
            data = malformed(draw)
            reply = post(client, data, draw.choice(PATHS))
            assert reply.status_code in (200, 400, 404, 413), (data, reply.text)
        assert client.post(CHAT, json=GREEDY).json()["choices"] == before
        until(lambda: not service.language.lane.active and not service.language.lane.waiting)
    service.close()
