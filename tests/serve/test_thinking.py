"""Reasoning in texts, cut at every place."""

from __future__ import annotations

import pytest

from ferro.serve.thinking import Thinking

# opened by the prompt, text, reasoning, answer
CORPUS = [
    (False, "Hello", "", "Hello"),
    (False, "  Hello", "", "  Hello"),
    (False, "<think>a b</think>c", "a b", "c"),
    (False, "\n<think>\n a b \n</think>\n\nc d\n", "a b", "c d\n"),
    (False, "<think></think>c", "", "c"),
    (False, "<think>a", "a", ""),
    (False, "<think>a\n", "a", ""),
    (False, "<think>a</thin", "a</thin", ""),
    (False, "<think>a < b</think>x</think>", "a < b", "x</think>"),
    (False, "see <think>a</think>", "", "see <think>a</think>"),
    (False, "<thi", "", "<thi"),
    (False, "<b>", "", "<b>"),
    (False, "", "", ""),
    (True, "a\n\nb</think>c", "a\n\nb", "c"),
    (True, "a", "a", ""),
]


def read(opened: bool, pieces: list[str]) -> tuple[str, str]:
    made = Thinking(opened)
    parts = [*map(made.push, pieces), made.finish()]
    return "".join(a for a, _ in parts), "".join(b for _, b in parts)


@pytest.mark.parametrize(("opened", "text", "reasoning", "answer"), CORPUS)
def test_reasoning_is_told_apart_wherever_it_is_cut(
    opened: bool, text: str, reasoning: str, answer: str
) -> None:
    assert read(opened, [text]) == (reasoning, answer)
    assert read(opened, list(text)) == (reasoning, answer)
    for at in range(len(text)):
        assert read(opened, [text[:at], text[at:]]) == (reasoning, answer), at


def test_an_answer_is_not_held_back() -> None:
    made = Thinking()
    assert made.push("<think>a</think>") == ("a", "")
    assert made.push("b ") == ("", "b ") and made.push("<think>") == ("", "<think>")
