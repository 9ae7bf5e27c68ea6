"""A completion: tokens in, text out, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest

from ferro.models.completion import BadRequest, Completion, Finish, Options
from ferro.models.sampler import Sampling
from tests.models.vocabularies import tokenizer

GREEDY = Sampling(temperature=0)
LFM2 = tokenizer("lfm2")
END = LFM2.encode("<|im_end|>", add_special=False)[0]


def ids(text: str) -> list[int]:
    return LFM2.encode(text, add_special=False)


def completion(prompt: str = "Hi", context: int = 100, **options: object) -> Completion:
    return Completion(LFM2, ids(prompt), context, Options(GREEDY, **options))


def fed(made: Completion, tokens: list[int]) -> list[str]:
    pieces = []
    for token in tokens:
        logits = np.zeros(len(LFM2), np.float32)
        logits[token] = 1
        pieces.append(made.feed(logits))
        if made.finish:
            break
    return pieces


def test_text_comes_piece_by_piece() -> None:
    made = completion()
    assert fed(made, ids("abc")) == [LFM2.decode([i]) for i in ids("abc")]
    assert made.ids == ids("abc") and made.finish is None


def test_no_piece_ends_inside_a_character() -> None:
    pieces = fed(completion(), ids("é🙂"))
    assert "".join(pieces) == "é🙂" and "�" not in "".join(pieces)
    assert len(pieces) > 2 and "" in pieces


def test_the_end_token_ends_and_is_not_shown() -> None:
    made = completion()
    assert "".join(fed(made, [*ids("ab"), END, *ids("c")])) == "ab"
    assert made.finish is Finish.END and made.ids[-1] == END


def test_end_tokens_can_be_ignored() -> None:
    made = completion(ignore_ends=True)
    assert "".join(fed(made, [*ids("a"), END, *ids("b")])) == "ab"
    assert made.finish is None


def test_a_stop_string_over_several_tokens_ends_and_is_not_shown() -> None:
    made = completion(stops=("bcd",))
    assert "".join(fed(made, ids("a b") + ids("c") + ids("d") + ids("e"))) == "a "
    assert made.finish is Finish.STOP


def test_what_was_held_back_for_a_stop_string_is_shown_at_the_end() -> None:
    made = completion(stops=("bX",))
    assert "".join(fed(made, [*ids("a"), *ids("b"), END])) == "ab"


def test_so_many_tokens_and_no_more() -> None:
    made = completion(most=3)
    assert "".join(fed(made, ids("a") * 9)) == "aaa"
    assert made.finish is Finish.LENGTH


def test_a_character_that_is_cut_off_at_the_end_is_replaced() -> None:
    made = completion(most=1)
    assert fed(made, ids("é")) == ["�"]


def test_no_tokens_at_all() -> None:
    assert completion(most=0).finish is Finish.LENGTH


def test_the_context_is_filled_to_its_end() -> None:
    prompt = ids("Hi")
    made = completion(context=len(prompt) + 2)
    assert len(fed(made, ids("a") * 9)) == 3
    assert made.finish is Finish.CONTEXT


def test_a_prompt_that_fills_the_context_has_one_token_after_it() -> None:
    made = completion(context=len(ids("Hi")))
    assert len(fed(made, ids("a") * 9)) == 1


def test_a_prompt_that_does_not_fit_is_refused_with_both_counts() -> None:
    with pytest.raises(BadRequest, match=f"{len(ids('Hello'))} tokens, the context holds 2"):
        completion("Hello", context=2)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(BadRequest, match="no tokens"):
        completion("")


@pytest.mark.parametrize("token", [-1, len(LFM2)])
def test_tokens_that_are_none_are_refused(token: int) -> None:
    with pytest.raises(BadRequest, match=f"{token} is no token id"):
        Completion(LFM2, [1, token], 10, Options())


def test_bad_options_are_refused() -> None:
    with pytest.raises(BadRequest, match="at least 0, it is -1"):
        Options(most=-1)
    with pytest.raises(BadRequest, match="must not be empty"):
        Options(stops=("",))


def test_the_same_seed_gives_the_same_tokens() -> None:
    def drawn(seed: int, stream: int = 0) -> list[int]:
        rng = np.random.default_rng(5)
        made = Completion(LFM2, ids("Hi"), 100, Options(Sampling(seed=seed), stream=stream))
        for _ in range(12):
            made.feed(rng.normal(0, 2, len(LFM2)).astype(np.float32))
        return made.ids

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(1)), tuple(drawn(2)), tuple(drawn(1, stream=1))}) == 3


def test_control_tokens_are_shown_where_they_are_asked_for() -> None:
    start = ids("<|im_start|>")
    assert "".join(fed(completion(), [*ids("a"), *start])) == "a"
    made = completion(shown=frozenset(start))
    assert "".join(fed(made, [*ids("a"), *start])) == "a<|im_start|>"
