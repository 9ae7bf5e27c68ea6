"""Conversations to prompts: a model file's chat template, fed as llama.cpp's server feeds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ferro.models.conversation import BadConversation, Conversation, Message, joined
from ferro.models.renderer import NAME, SECONDS, Renderer, TemplateError, Worker
from ferro.models.template_traits import Traits
from ferro.models.tokenizer import Tokenizer

KEY = "tokenizer.chat_template"
# What llama.cpp uses for a model that has no template.
CHATML = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""


class ChatTemplate:
    """A template with the tokens around a text. May be shared by threads; ``close`` it."""

    def __init__(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        add_bos: bool = False,
        add_eos: bool = False,
        seconds: float = SECONDS,
        name: str = NAME,
        worker: Worker | None = None,
    ) -> None:
        """``bos`` and ``eos`` are the texts of those tokens; with ``add_bos``, ``add_eos`` the
        tokeniser adds them, so that they are taken off the prompt. ``seconds`` bounds a rendering;
        errors of the template begin with ``name``; ``worker`` as for ``Renderer``."""
        self.source, self.bos, self.eos = source, bos, eos
        self._add_bos, self._add_eos = add_bos, add_eos
        self._renderer = Renderer(source, seconds, name, worker)

    @staticmethod
    def of_model(
        metadata: Mapping[str, Any],
        tokenizer: Tokenizer,
        *,
        variant: str = "",
        seconds: float = SECONDS,
        name: str = NAME,
        worker: Worker | None = None,
    ) -> ChatTemplate:
        """The template of a model file; ``variant`` (such as "tool_use") where it has several,
        ChatML where it has none; ``worker`` as for ``Renderer``. Raises TemplateError for one that
        is no text."""
        key = f"{KEY}.{variant}" if f"{KEY}.{variant}" in metadata else KEY
        source = metadata.get(key, "")
        if not isinstance(source, str):
            raise TemplateError(f"{name}: `{key}` must be a text")
        known = tokenizer.vocabulary

        def text(role: str) -> str:
            token = known.role(role)
            return "" if token is None else tokenizer.piece(token, special=True).decode()

        return ChatTemplate(
            source or CHATML,
            bos=text("bos"),
            eos=text("eos"),
            add_bos=known.add_bos,
            add_eos=known.add_eos,
            seconds=seconds,
            name=name,
            worker=worker,
        )

    @property
    def traits(self) -> Traits:
        """What the template can take. Raises TemplateError if it cannot be read."""
        return self._renderer.traits

    def render(self, conversation: Conversation, now: float | None = None) -> str:
        """The prompt; ``now`` is the time that templates may ask for (seconds since 1970).

        Raises BadConversation, and TemplateError with the template's own message.
        """
        messages = conversation.checked_messages()
        open_turn = _open_turn(messages)
        if open_turn is not None:
            messages = messages[:-1]
        variables = self._variables(conversation, self._fitted(messages))
        if open_turn is None and conversation.add_generation_prompt:
            return self._closed(self._text({**variables, "add_generation_prompt": True}, now))
        prompt = self._text(variables, now)
        if open_turn is None:
            return prompt
        return prompt + self._continued(open_turn, prompt, variables, now)

    def close(self) -> None:
        """End the process that the template runs in."""
        self._renderer.close()

    def __enter__(self) -> ChatTemplate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------- what goes in

    def _variables(self, conversation: Conversation, messages: list[Message]) -> Message:
        tools = conversation.checked_tools()
        given = dict(conversation.variables)
        keep = given.get("preserve_reasoning", True)
        kept: Message = {}
        if isinstance(keep, bool):
            kept = {"preserve_thinking": keep}
            drops = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
            kept |= dict.fromkeys(drops, not keep)
        if isinstance(given.get("reasoning_effort"), str):
            kept["reasoning_strength"] = given["reasoning_effort"]
        return {
            **kept,
            "messages": messages,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "enable_thinking": True,
            **({"tools": tools} if tools else {}),
            **given,
        }

    def _fitted(self, messages: list[Message]) -> list[Message]:
        """Messages in the form that the template can take."""
        traits = self.traits
        for message in messages:
            content = message["content"]
            if traits.strings and not traits.parts and isinstance(content, list):
                message["content"] = joined(content)
            elif traits.parts and not traits.strings and isinstance(content, str):
                message["content"] = [{"type": "text", "text": content}]
            if message["role"] == "developer" and "<|channel|>" not in self.source:
                message["role"] = "system"
            if traits.objects:
                _parse_arguments(message)
            if self._is_lfm2 and "reasoning_content" in message:
                message["thinking"] = message["reasoning_content"]
        if messages and messages[0]["role"] == "system" and not traits.system:
            system = messages.pop(0)
            if messages:
                texts = (joined(system["content"]), joined(messages[0]["content"]))
                messages[0]["content"] = "\n".join(texts)
        return messages

    # ---------------------------------------------------------------------- what comes out

    def _text(self, variables: Message, now: float | None) -> str:
        text = self._renderer.render(variables, now)
        if self._add_bos and self.bos:
            text = text.removeprefix(self.bos)
        if self._add_eos and self.eos:
            text = text.removesuffix(self.eos)
        return text

    def _closed(self, prompt: str) -> str:
        # after a tool call and a text its template leaves the model's turn closed
        ends = self._is_gemma4 and prompt.endswith("<turn|>\n")
        return f"{prompt}<|turn>model\n" if ends else prompt

    def _continued(self, turn: Message, prompt: str, variables: Message, now: float | None) -> str:
        """The beginning of the model's turn, up to where it is to go on."""
        thought, content = turn.get("reasoning_content", ""), joined(turn["content"])
        thinks = bool(thought) and not content
        if self._is_lfm2:
            start = f"<|im_start|>assistant\n<think>{thought}"
            return start if thinks else f"{start}</think>{content}"
        if self._is_gemma4:
            opened = "<|turn>model\n" if prompt.endswith("<turn|>\n") else ""
            start = f"{opened}<|channel>thought\n{thought}"
            return start if thinks else f"{start}<channel|>{content}"
        whole = self._text({**variables, "add_generation_prompt": True}, now)
        start = whole[_shared(whole, prompt) :]
        if thought and "<think>" in self.source:
            start += f"<think>\n{thought}" if thinks else f"<think>\n{thought}\n</think>\n\n"
        return start + content

    @property
    def _is_lfm2(self) -> bool:
        marked = "<|tool_list_start|>" in self.source
        listed = "<|tool_list_end|>" if marked else "List of tools: ["
        return listed in self.source

    @property
    def _is_gemma4(self) -> bool:
        return "'<|tool_call>call:'" in self.source


def _shared(a: str, b: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _parse_arguments(message: Message) -> None:
    for call in message.get("tool_calls", ()):
        function = call["function"]
        try:
            function["arguments"] = json.loads(function["arguments"])
        except ValueError as error:
            raise BadConversation(
                f"the arguments of a call of {function['name']} are no JSON: {error}"
            ) from None


def _open_turn(messages: list[Message]) -> Message | None:
    """The last message, if the model is to go on with it."""
    if not messages or messages[-1]["role"] != "assistant":
        return None
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise BadConversation("there are two assistant messages at the end: only one is continued")
    return messages[-1]
