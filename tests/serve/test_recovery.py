"""A device that is lost under a server: the same text afterwards as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from ferro.commands.serve import fallback
from ferro.models.language_model import LanguageModel
from ferro.runtime import open_device
from ferro.serve.app import make_app
from ferro.serve.server import Opened
from ferro.serve.service import Service
from ferro.serve.settings import Settings
from tests.models import tiny

BODY = {"prompt": "word " * 20, "max_tokens": 12, "ignore_eos": True, "seed": 3}


@contextmanager
def load(losses: int) -> Iterator[dict[str, LanguageModel]]:
    path = tiny.path("lfm2-tiny", "q8_0")
    with open_device() as device, LanguageModel.open(path, device, context=192, slots=2) as model:
        yield {"language": model}


@pytest.mark.device
def test_a_lost_device_is_opened_again_and_goes_on_with_the_same_bits() -> None:
    with Opened(load) as opened:
        models = opened.models(0)
        if models["language"].device.info.kind == "interpreter":
            pytest.skip("no OpenCL device")
        service = Service(models, Settings(), opened.models)
        service.start()
        client = TestClient(make_app(service), raise_server_exceptions=False)
        before = client.post("/v1/completions", json=BODY).json()["choices"]
        for losses in (1, 2):
            service.device.queue.watchdog.lose("as a test wants it")
            reply = client.post("/v1/completions", json=BODY)
            assert reply.status_code == 503 and reply.json()["error"]["code"] == "broken"
            assert client.post("/v1/completions", json=BODY).json()["choices"] == before
            health = client.get("/health").json()
            assert health["devices_lost"] == losses and health["slots"]["active"] == 0
        service.close()


def test_the_device_of_last_resort_is_a_processor() -> None:
    with open_device(fallback()) as device:
        assert device.info.kind in ("cpu", "interpreter")
