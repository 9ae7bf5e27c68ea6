"""The server's description of itself, and that it does as it says."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from ferro.serve.app import make_app
from ferro.serve.fields import Fields
from ferro.serve.openapi import BODIES
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.serve.fake_decider import ServedDecider
from tests.serve.fake_encoder import FakeEncoder
from tests.serve.fakes import FakeModel, until

FULL = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1,
                             "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
    "/v1/embeddings": {"input": "Hi"},
    "/apply-template": {"messages": [{"role": "user", "content": "Hi"}]},
    "/tokenize": {"content": "Hi"},
    "/detokenize": {"tokens": [40]},
}  # fmt: skip


def test_every_request_that_carries_something_is_described(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    posts = [path for path, verbs in paths.items() if "post" in verbs]
    for path in posts:
        body = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["properties"], f"{path} has no table of fields in ferro.serve.openapi"


@pytest.mark.parametrize("path", [path for path in BODIES if path in FULL])
def test_what_is_read_is_what_is_described(
    client: TestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Fields] = []
    made = Fields.__init__

    def noted(self: Fields, data: Any, path: str = "") -> None:
        made(self, data, path)
        read.append(self)

    monkeypatch.setattr(Fields, "__init__", noted)
    assert client.post(path, json=FULL[path]).status_code == 200
    known = {name for parameter in BODIES[path] for name in parameter.names}
    refused = {"functions", "function_call", "audio", "web_search_options", "grammar", "suffix"}
    assert read[0]._read - known <= refused


EXAMPLES = int(os.environ.get("FERRO_SCHEMATHESIS_EXAMPLES", "8"))


def test_schemathesis_finds_nothing() -> None:
    """It draws requests that fit the description, and ones that do not."""
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import CHECKS, load_all_checks

    load_all_checks()
    # what fits may still be refused (a prompt that is too long), or take longer than it asked to
    left_out = ("positive_data_acceptance", "not_a_server_error")
    checks = [check for check in CHECKS.get_all() if check.__name__ not in left_out]
    served: set[str] = set()
    models: dict[str, Any] = {
        "language": FakeModel(context=48, slots=4),
        "embedding": FakeEncoder(),
    }
    models["decision"] = ServedDecider()
    service = Service(models, Settings(request_seconds=60))
    service.start()
    try:
        schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(service))
        for operation in (found.ok() for found in schema.get_all_operations()):
            for mode in schemathesis.GenerationMode:
                strategy = operation.as_strategy(generation_mode=mode)

                @given(case=strategy)
                @settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None,
                          suppress_health_check=list(HealthCheck))  # fmt: skip
                def holds(case: Any) -> None:
                    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
                        del case.body["model"]
                    reply = case.call_and_validate(checks=checks)
                    assert reply.status_code < 500 or reply.status_code == 504
                    if reply.status_code == 200:
                        served.add(operation.path)  # noqa: B023

                try:
                    holds()
                except Unsatisfiable:
                    continue  # nothing about it could be wrong
        assert served >= set(BODIES)
        until(lambda: not service.language.lane.active and not service.language.lane.waiting)
    finally:
        service.close()
