"""OpenAI's own client, on a server of its own process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.test_process import serving

openai = pytest.importorskip("openai")

USER: Any = [{"role": "user", "content": "Hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with serving(0.0) as served:
        yield openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)


def test_a_chat_with_all_that_is_told_of_it(client: Any) -> None:
    reply = client.chat.completions.create(
        model="fake", messages=USER, max_completion_tokens=4, n=2, seed=1, logprobs=True,
        top_logprobs=2, extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert reply.usage.prompt_tokens_details.cached_tokens == 0
    for choice in reply.choices:
        assert choice.finish_reason == "length" and len(choice.logprobs.content) == 4
        assert len(choice.logprobs.content[0].top_logprobs) == 2


def test_a_stream(client: Any) -> None:
    chunks = list(
        client.chat.completions.create(
            model="fake",
            messages=USER,
            max_tokens=5,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 5


def test_a_completion_with_likelihoods(client: Any) -> None:
    reply = client.completions.create(
        model="fake", prompt="Once", max_tokens=3, logprobs=2, extra_body={"ignore_eos": True}
    )
    told = reply.choices[0].logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.text_offset) == 3


def test_a_reply_of_a_schema(client: Any) -> None:
    reply = client.chat.completions.create(
        model="fake", messages=USER, max_tokens=200, seed=1,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": SCHEMA, "strict": True},
        },
    )  # fmt: skip
    assert '"a"' in reply.choices[0].message.content


def test_a_tool_s_call(client: Any) -> None:
    reply = client.chat.completions.create(
        model="fake", messages=USER, tools=[TOOL], tool_choice="required", seed=1, max_tokens=400,
        parallel_tool_calls=False,
    )  # fmt: skip
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "f" and "a" in call.function.arguments


def test_models_and_errors(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["fake", "encoder", "d1"]
    assert client.models.retrieve("fake").owned_by == "ferro"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("none")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="fake", messages=[])
    assert wrong.value.param == "messages"


def test_embeddings_in_both_encodings(client: Any) -> None:
    texts = ["hello", "world", "hello"]
    floats = client.embeddings.create(model="encoder", input=texts, encoding_format="float")
    packed = client.embeddings.create(model="encoder", input=texts)  # it asks for base64 itself
    short = client.embeddings.create(model="encoder", input=texts, dimensions=128)
    vectors = [each.embedding for each in floats.data]
    assert [each.index for each in floats.data] == [0, 1, 2] and vectors[0] == vectors[2]
    assert [each.embedding for each in packed.data] == vectors and len(vectors[0]) == 256
    assert {len(each.embedding) for each in short.data} == {128}
    assert floats.usage.total_tokens == floats.usage.prompt_tokens > 3
