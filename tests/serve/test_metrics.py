"""What Prometheus is told."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.serve.conftest import Connect


def values(client: TestClient) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    return {name.partition("{")[0]: float(value) for name, value in pairs}


def test_tokens_and_requests_are_counted(connect: Connect) -> None:
    client = connect()
    body = {"prompt": "Hello", "max_tokens": 5, "ignore_eos": True}
    reply = client.post("/v1/completions", json=body).json()
    found = values(client)
    prompt = reply["usage"]["prompt_tokens"]
    for name in ("ferro_tokens_total", "llamacpp:tokens_predicted_total"):
        assert found[name] == found["vllm:generation_tokens_total"] == 5
    assert found["ferro_prompt_tokens_total"] == found["vllm:prompt_tokens_total"] == prompt
    assert found["vllm:time_to_first_token_seconds_count"] == 1
    assert found["vllm:num_requests_running"] == found["ferro_waiting"] == 0


def test_paths_that_are_none_have_no_series_of_their_own(connect: Connect) -> None:
    client = connect()
    for i in range(3):
        client.get(f"/nothing/{i}")
    text = client.get("/metrics").text
    assert 'ferro_requests_served_total{path="other",status="404"} 3.0' in text
    assert "nothing" not in text
