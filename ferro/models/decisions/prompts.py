"""Prompts of ``lfm2-d1-omni``: one for each question, in pieces that are tokenised one by one.

    <|startoftext|><|reserved_7|> STATE <|reserved_8|>INSTRUCTIONS
    ( <|reserved_9|><|mask|> OPTION <|reserved_10|> )* <|reserved_11|>

State, question and options are cut on the right to their budgets; an option's score is read at its
mask. Source: the publisher's prompt and llama.cpp's, in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from ferro.models.decisions import budgets
from ferro.models.decisions.budgets import Budget
from ferro.models.decisions.errors import CONTEXT, DecisionError, broken
from ferro.models.decisions.questions import TRUE, Option, Question, Type
from ferro.models.decisions.requests import Request
from ferro.models.decisions.values import escaped, text_of
from ferro.models.packing import Input
from ferro.models.tokenizer import Tokenizer, Unbroken

_HOLDS = {True: ": yes, the statement holds", False: ": no, the statement does not hold"}
_PLAIN = {True: ": yes", False: ": no"}


class Prompts:
    """Makes prompts for one vocabulary and context. Immutable; may be shared by threads."""

    def __init__(self, tokenizer: Tokenizer, context: int) -> None:
        """Raises BadVocabulary where there is no mask."""
        mask = tokenizer.vocabulary.role("mask")
        if mask is None:
            raise tokenizer.vocabulary.wrong("a decision model needs a mask token, there is none")
        self._tokenizer, self._context, self._mask = tokenizer, context, mask
        self._begin = self._ids("<|startoftext|><|reserved_7|>")
        self._option = self._ids("<|reserved_9|><|mask|>")
        self._option_end = self._ids("<|reserved_10|>")
        self._end = self._ids("<|reserved_11|>")

    def inputs(self, request: Request, positions: int = 0) -> list[Input]:
        """A prompt for each question of a request whose media take that many positions.

        Raises DecisionError where the options do not fit, or the context is too small.
        """
        whole = budgets.whole(positions, sounds=request.sounds)
        # what no question leaves room for is not tokenised
        state = self._ids(state_text(request), whole)
        return [self._input(request, question, state, whole) for question in request.questions]

    def _input(self, request: Request, question: Question, state: list[int], whole: int) -> Input:
        budget = budgets.budget(len(question.options), whole)
        asked = self._asked(request, question, budget)
        room = max(0, whole - len(self._begin) - len(asked))
        tokens = tuple([*self._begin, *state[:room], *asked][:whole])
        marks = tuple(i for i, token in enumerate(tokens) if token == self._mask)
        if len(marks) < len(question.options):
            raise DecisionError(
                f"questions.{question.id}: the options do not fit in the context: they need more"
                f" than {whole} tokens"
            )
        if len(marks) > len(question.options):
            raise broken("unexpected layout of the decision prompt")
        if len(tokens) > self._context:
            raise DecisionError(
                f"questions.{question.id}: the prompt has {len(tokens)} tokens, the context holds"
                f" {self._context}",
                kind=CONTEXT,
            )
        return Input(tokens, marks, int(question.type))

    def _asked(self, request: Request, question: Question, budget: Budget) -> list[int]:
        """All that comes after the state."""
        instructions = text_of(escaped(question.instructions))
        found = self._ids(f"<|reserved_8|>{instructions}", budget.question)
        for text in option_texts(request, question):
            found += self._option
            found += self._ids(f" {text}", budget.option)
            found += self._option_end
        return found + self._end

    def _ids(self, text: str, most: int | None = None) -> list[int]:
        if most is None:
            return self._tokenizer.encode(text, add_special=False)
        try:
            return self._tokenizer.first(text, most)
        except Unbroken as error:
            raise DecisionError(f"a text of the request is too long: {error}") from None


def state_text(request: Request) -> str:
    """The state as the prompt has it."""
    if request.state is None:
        return "{}" if request.sounds else ""
    return text_of(escaped(request.state))


def option_texts(request: Request, question: Question) -> Iterator[str]:
    """The options as the prompt has them, in order."""
    pictured = bool(request.media) and not request.sounds
    undescribed = all(option.description is None for option in question.options)
    for i, option in enumerate(question.options):
        key, text = escaped(option.key), text_of(escaped(option.description))
        if question.type is Type.SCORE:
            yield f"level {i}: {text}"
        elif question.type is Type.NOUL:
            yield key + _noul(option, text, request.sounds, pictured and undescribed)
        elif request.sounds:
            yield f"option_{i:03}: {text if option.described else key}"
        else:
            yield f"{key}: {text}" if option.described else key


def _noul(option: Option, text: str, sounds: bool, plain: bool) -> str:
    """What stands behind `false` or `true`."""
    holds = option.key == TRUE
    if sounds:
        return _PLAIN[holds]
    if option.described:
        return f": {text}"
    return _PLAIN[holds] if plain else _HOLDS[holds]
