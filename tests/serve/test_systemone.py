"""`POST /v1/systemone`: replies, every error of the protocol's table, and what must not stop it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from ferro.serve.app import make_app
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.models.decisions.fakes import FakeDecisionModel
from tests.models.decisions.test_requests import CLIP, ERRORS, URL, YES_OR_NO, body, choice
from tests.serve.fake_decider import ServedDecider
from tests.serve.fakes import FakeModel

PATH = "/v1/systemone"
Served = tuple[TestClient, ServedDecider]


class Reference(FakeDecisionModel):
    name = "d1"


@pytest.fixture
def served() -> Iterator[Served]:
    model = ServedDecider()
    service = Service({"language": FakeModel(), "decision": model}, Settings())
    service.start()
    with TestClient(make_app(service), raise_server_exceptions=False) as client:
        yield client, model
    service.close()


def post(client: TestClient, given: Any) -> Any:
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return client.post(PATH, content=data)


def test_a_reply_is_the_one_of_the_command(served: Served) -> None:
    given = {"state": {"a": 1.5}, "questions": {"z": choice(b="B", a=None), "a": YES_OR_NO},
             "model": "anything"}  # fmt: skip
    reply = post(served[0], given)
    assert reply.status_code == 200
    assert reply.json() == Reference().replies([given])[0]
    assert list(reply.json()["answers"]["z"]["probabilities"]) == ["b", "a"]
    assert served[0].post("/systemone", json=given).json() == reply.json()


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_table(served: Served, name: str) -> None:
    given, _ = ERRORS[name]
    reply = post(served[0], given)
    assert reply.status_code == 400 and reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert list(error) == ["code", "message", "type"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert post(served[0], body()).status_code == 200


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff", "no UTF-8"),
        (b"[1]", "must be a JSON object"),
        (b'{"state": NaN}', "no JSON"),
        (b'{"state": 1e999, "questions": {"q": {}}}', "no JSON"),
        (b'{"state": "\\ud800", "questions": {"q": {}}}', "surrogate"),
        (b'{"state": ' + b"[" * 100 + b"]" * 100 + b"}", "too deep"),
        (b"[" * 200_000, "too deep"),
    ],
)
def test_a_body_that_makes_no_sense(served: Served, data: bytes, words: str) -> None:
    reply = post(served[0], data)
    error = reply.json()["error"]
    assert reply.status_code == error["code"] == 400 and words in error["message"]


@pytest.mark.parametrize("url", [URL, CLIP])
def test_media_are_not_supported_yet(served: Served, url: str) -> None:
    reply = post(served[0], body(files=[url]))
    assert reply.status_code == 501 and reply.json()["error"]["type"] == "not_supported_error"


def test_a_server_without_a_decision_model_says_so(client: TestClient) -> None:
    error = post(client, body()).json()["error"]
    message = "This model is not a decision model"
    assert error == {"code": 501, "message": message, "type": "not_supported_error"}


def test_scores_that_are_no_numbers_are_a_server_error(served: Served) -> None:
    client, model = served
    model.nan = True
    reply = post(client, body())
    assert reply.status_code == 500 and reply.json()["error"]["type"] == "server_error"
    model.nan, model.failure = False, RuntimeError("broken")
    assert post(client, body()).json()["error"]["code"] == 503
    model.failure = None
    assert post(client, body()).status_code == 200


def test_repeated_keys_keep_the_first_place_and_the_last_value(served: Served) -> None:
    data = b'{"state": 1, "state": "x", "questions": {"b": 1, "a": Q, "b": Q}}'
    reply = post(served[0], data.replace(b"Q", json.dumps(YES_OR_NO).encode()))
    asked = {"state": "x", "questions": {"b": YES_OR_NO, "a": YES_OR_NO}}
    assert reply.json() == Reference().replies([asked])[0]
    assert list(reply.json()["answers"]) == ["b", "a"]


def test_questions_of_several_requests_share_passes(served: Served) -> None:
    client, model = served
    model.seconds = 0.2
    bodies = [body(choice(a=1, b=i), state=i) for i in range(6)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda each: post(client, each).json(), bodies))
    assert found == [Reference().replies([each])[0] for each in bodies]
    assert len(model.passes) < 6 and sum(model.passes) == 6


def test_decisions_are_served_between_the_tokens_of_a_stream(served: Served) -> None:
    client, _ = served
    ends: dict[str, float] = {}

    def chat() -> None:
        message = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60,
                   "ignore_eos": True}  # fmt: skip
        assert client.post("/v1/chat/completions", json=message).status_code == 200
        ends["chat"] = time.monotonic()

    model = client.app.state.service.language.model  # type: ignore[attr-defined]
    model.seconds = 0.03
    thread = threading.Thread(target=chat)
    thread.start()
    time.sleep(0.2)
    assert post(client, body()).status_code == 200
    ends["decision"] = time.monotonic()
    thread.join()
    assert ends["decision"] < ends["chat"]


def test_megabytes_of_state_hold_nobody_up(served: Served) -> None:
    client, _ = served
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(post, client, body(state="the quick brown fox. " * 480_000))
        slowest = 0.0
        while not large.done():
            started = time.monotonic()
            assert client.get("/health").status_code == 200
            slowest = max(slowest, time.monotonic() - started)
        assert large.result().status_code == 200
        assert large.result().json()["usage"]["input_tokens"] == 16384
    assert slowest < 5


def test_255_long_options(served: Served) -> None:
    asked = choice(**{f"k{i}": "a long description " * 50 for i in range(255)})
    reply = post(served[0], body(asked, state="s " * 20000))
    assert len(reply.json()["answers"]["q"]["probabilities"]) == 255


def test_the_model_is_listed_and_counted(served: Served) -> None:
    client, _ = served
    listed = {each["id"]: each for each in client.get("/v1/models").json()["data"]}
    assert listed["d1"]["architecture"]["output_modalities"] == ["decisions"]
    assert post(client, body()).status_code == 200
    text = client.get("/metrics").text
    assert 'ferro_decision_inputs_total{model_name="d1"} 1.0' in text
    assert 'ferro_requests_served_total{path="/v1/systemone",status="200"} 1.0' in text
