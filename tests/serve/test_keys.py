"""API keys, and pages of other origins."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ferro.serve.app import make_app
from ferro.serve.keys import BadKeys, Keys
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.serve.fakes import FakeModel


def connect(keys: Keys, **settings: object) -> TestClient:
    service = Service({"language": FakeModel()}, Settings(**settings))
    return TestClient(make_app(service, keys=keys), raise_server_exceptions=False)


def test_a_request_needs_a_key_where_there_are_some() -> None:
    client = connect(Keys(["me: s3cret", "other"]))
    for headers in ({"authorization": "Bearer s3cret"}, {"x-api-key": "other"}):
        assert client.get("/v1/models", headers=headers).status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
        reply = client.get("/v1/models", headers=headers)
        assert reply.status_code == 401 and reply.headers["www-authenticate"] == "Bearer"
        assert reply.json()["error"]["code"] == "invalid_api_key"


def test_health_is_open() -> None:
    client = connect(Keys(["s3cret"]))
    assert client.get("/ready").status_code == 503  # the engine of this service was not started
    assert client.get("/metrics").status_code == 401


def test_keys_of_a_file_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# people\nme: one\n\ntwo\n")
    keys = Keys(["zero"], str(file))
    assert [keys.label(key) for key in ("zero", "one", "two", "three")] == [
        "key", "me", "key", None
    ]  # fmt: skip
    file.write_text("three\n")
    keys.reload()
    assert keys.label("one") is None and keys.label("three")
    file.write_text("a key with spaces\n")
    with pytest.raises(BadKeys, match="line 1"):
        keys.reload()
    assert keys.label("three")


def test_a_file_may_have_a_byte_order_mark_and_must_be_text(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbfone\n")
    assert Keys(file=str(file)).label("one")
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(BadKeys, match="byte 0 is no UTF-8"):
        Keys(file=str(file))


def test_a_key_may_have_any_letters() -> None:
    client = connect(Keys(["clé"]))
    headers = {b"x-api-key": "clé".encode()}
    assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("text", ["", "label:", "two words", "label: two words"])
def test_keys_that_are_none(text: str) -> None:
    with pytest.raises(BadKeys):
        Keys([text])


def test_the_log_names_the_label_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    client = connect(Keys(["me: s3cret"]))
    with caplog.at_level(logging.INFO):
        client.get("/v1/models", headers={"authorization": "Bearer s3cret"})
        client.get("/v1/models", headers={"authorization": "Bearer s3cret2"})
    assert "key='me'" in caplog.text and "s3cret" not in caplog.text


def test_other_origins_may_not_ask_unless_they_are_named() -> None:
    headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
    assert connect(Keys()).options("/v1/models", headers=headers).status_code == 405
    client = connect(Keys(["s3cret"]), cors_origins=("https://a.example",))
    reply = client.options("/v1/chat/completions", headers=headers)
    assert reply.headers["access-control-allow-origin"] == "https://a.example"
