"""The chat at the terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ferro.commands import terminal_chat
from ferro.commands.terminal_chat import TerminalChat, stoppable
from ferro.models.chat import CHATML, ChatTemplate
from ferro.models.completion import Options
from ferro.models.generation import Stream
from ferro.models.sampler import Sampling
from tests.models.fakes import FakeModel
from tests.models.vocabularies import tokenizer

Capture = pytest.CaptureFixture[str]
LFM2 = tokenizer("lfm2")
END = LFM2.encode("<|im_end|>", add_special=False)[0]


@pytest.fixture(scope="module")
def template() -> Iterator[ChatTemplate]:
    with ChatTemplate(CHATML) as made:
        yield made


def answers(*texts: str) -> list[int]:
    return [i for text in texts for i in [*LFM2.encode(text, add_special=False), END]]


def chat(template: ChatTemplate, *texts: str, context: int = 400, **kwargs: Any) -> TerminalChat:
    model = FakeModel(answers(*texts), context=context)
    options = Options(Sampling(temperature=0))
    return TerminalChat(Stream(model), template, options, **kwargs)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts lines (or exceptions) in the user's place; then the input ends."""

    def put(*lines: str | type[BaseException]) -> None:
        coming = iter(lines)

        def read(prompt: str = "") -> str:
            line = next(coming, EOFError)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr("builtins.input", read)

    return put


def said(made: TerminalChat) -> list[str]:
    return [f"{message['role']}: {message['content']}" for message in made.messages]


def test_answers_follow_messages_and_all_is_kept(
    template: ChatTemplate, typed: Callable[..., None], capsys: Capture
) -> None:
    made = chat(template, "Hello!", "Fine.")
    typed("Hi", "How are you?")
    made.run()
    assert capsys.readouterr().out == "Hello!\nFine.\n\n"
    assert said(made) == ["user: Hi", "assistant: Hello!", "user: How are you?", "assistant: Fine."]


def test_what_was_said_is_not_computed_again(
    template: ChatTemplate, typed: Callable[..., None]
) -> None:
    made = chat(template, "Hello!", "Fine.")
    typed("Hi", "How are you?")
    made.run()
    assert made._last is not None and made._last.timings.cached_tokens > 10


def test_a_line_goes_on_after_a_backslash(
    template: ChatTemplate, typed: Callable[..., None]
) -> None:
    made = chat(template, "Yes")
    typed("one\\", "two")
    made.run()
    assert said(made)[0] == "user: one\ntwo"


def test_reset_and_system_begin_anew_and_say_so(
    template: ChatTemplate, typed: Callable[..., None], capsys: Capture
) -> None:
    made = chat(template, "a", "b", "c", system="Be brief.")
    typed("x", "/reset", "y")
    made.run()
    assert said(made) == ["system: Be brief.", "user: y", "assistant: b"]
    assert "a new conversation, with the system message: Be brief.\n" in capsys.readouterr().err
    typed("/system Be long.", "z", "/system")
    made.run()
    assert said(made) == []
    told = capsys.readouterr().err
    assert "a new conversation, with the system message: Be long.\n" in told
    assert "a new conversation, with no system message\n" in told


def test_again_answers_the_last_message_otherwise(
    template: ChatTemplate, typed: Callable[..., None], capsys: Capture
) -> None:
    made = chat(template, "a", "b")
    typed("/again", "x", "/again")
    made.run()
    assert said(made) == ["user: x", "assistant: b"]
    assert "there is no answer yet" in capsys.readouterr().err


def test_stats_and_help(
    template: ChatTemplate, typed: Callable[..., None], capsys: Capture
) -> None:
    made = chat(template, "a")
    typed("/stats", "x", "/stats", "/help", "/nonesuch", "", "  ")
    made.run()
    errors = capsys.readouterr().err
    assert "there is no answer yet" in errors and "first token after" in errors
    assert "/system TEXT" in errors and "there is no /nonesuch" in errors


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye"])
def test_quit_leaves(word: str, template: ChatTemplate, typed: Callable[..., None]) -> None:
    made = chat(template)
    typed(word, "never read")
    made.run()
    assert said(made) == []


def test_a_conversation_that_does_not_fit_is_told_and_taken_back(
    template: ChatTemplate, typed: Callable[..., None], capsys: Capture
) -> None:
    made = chat(template, "a", context=40)
    typed("x", "too long " * 40)
    made.run()
    assert said(made) == ["user: x", "assistant: a"]
    assert "the context holds 40" in capsys.readouterr().err


def test_a_template_s_refusal_is_told_and_taken_back(
    typed: Callable[..., None], capsys: Capture
) -> None:
    with ChatTemplate("{{ raise_exception('not today') }}") as refusing:
        made = chat(refusing)
        typed("x")
        made.run()
    assert said(made) == [] and "not today" in capsys.readouterr().err


def test_ctrl_c_stops_an_answer_and_keeps_its_beginning(
    template: ChatTemplate, typed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = chat(template, "abcdef", "again")
    show = terminal_chat.show

    def interrupting(pieces: Any) -> None:
        show(pieces)
        if pieces == ["c"]:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(terminal_chat, "show", interrupting)
    typed("x")
    made.run()
    assert said(made) == ["user: x", "assistant: abc"]


def test_ctrl_c_twice_leaves_an_answer(
    template: ChatTemplate, typed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = chat(template, "abcdef")

    def interrupting(pieces: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(terminal_chat, "show", interrupting)
    typed("x", "never read")
    made.run()
    assert said(made) == ["user: x"]


def test_ctrl_c_twice_at_the_prompt_leaves(
    template: ChatTemplate, typed: Callable[..., None], capsys: Capture
) -> None:
    made = chat(template, "a")
    typed(KeyboardInterrupt, "x", KeyboardInterrupt, KeyboardInterrupt, "never read")
    made.run()
    assert said(made) == ["user: x", "assistant: a"]
    assert capsys.readouterr().err.count("once more") == 2


def test_ctrl_c_is_itself_again_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stoppable() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before
