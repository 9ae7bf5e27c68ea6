"""A client of a server in this process, on a model without a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from ferro.serve.app import make_app
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.serve.fake_encoder import FakeEncoder
from tests.serve.fakes import FakeModel

Connect = Callable[..., TestClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Serves a fake; ``settings`` are fields of Settings, the rest is the fake's."""
    opened: list[tuple[TestClient, Service]] = []

    def make(script: Any = None, settings: Any = None, **model: Any) -> TestClient:
        service = Service({"language": FakeModel(script, **model)}, Settings(**(settings or {})))
        service.start()
        client = TestClient(make_app(service), raise_server_exceptions=False)
        client.__enter__()
        opened.append((client, service))
        return client

    yield make
    for client, service in opened:
        client.__exit__(None, None, None)
        service.close()


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """One server for the tests of a module."""
    models = {"language": FakeModel(context=512, slots=4), "embedding": FakeEncoder()}
    service = Service(models, Settings())
    service.start()
    with TestClient(make_app(service), raise_server_exceptions=False) as found:
        yield found
    service.close()
