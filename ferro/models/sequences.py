"""Where a text, or token ids, become the sequence that a model reads.

Whoever embeds makes inputs here: the library, the command and the server. A text is encoded as a
whole, with its prefix and title in front: merges cross their borders, BOS and EOS stand around all
of it. Rows of images and sounds come between pieces of text; they have no token, but a place in
the sequence like one, and so belong into ``Input`` beside its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ferro.models.loaded import BadOption
from ferro.models.packing import Input
from ferro.models.tasks import NONE, Task


def sequence(
    encode: Callable[[str], Sequence[int]],
    given: str | Sequence[int],
    task: Task = NONE,
    title: str | None = None,
) -> Input:
    """The input that ``given`` is: a text behind the prefix of its task, or token ids as they are.

    Raises NoSuchTask for a title where there is no place for one, BadOption for a task or a title
    of token ids, and whatever ``encode`` raises.
    """
    if isinstance(given, str):
        return Input(tuple(encode(task.text(given, title))))
    if task is not NONE or title is not None:
        raise BadOption("a task goes in front of texts, not of token ids")
    return Input(tuple(given))
