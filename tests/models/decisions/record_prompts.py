"""Records the prompts that llama.cpp's tokenizer makes of requests, for ``test_recorded``.

    PYTHON tests/models/decisions/record_prompts.py ORACLE MODEL

PYTHON has llama.cpp's library, ORACLE is the folder of ``oracle.py``, MODEL a decision model with
the vocabulary of ``tests.models.tiny``. The texts of the pieces and their budgets are written down
here a second time, from the protocol alone (spec pages ``systemone``, section 2, and
``d1-decision``, section 5), so that the test compares two readings of it.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "decision_prompts.json"
MOST = 16384
WORDS = [
    "late",
    "the parcel",
    "d'é",
    "日本",
    "  two",
    "\n",
    "😀",
    "<|im_end|>",
    "<<d1omni:x",
    "12345",
]
LONG = 17000  # words of a state that is cut
ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def requests() -> list[dict[str, Any]]:
    """Some of every type, with texts that are escaped, options that are cut and states of JSON."""
    rng = random.Random(5)

    def text(most: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))

    made: list[dict[str, Any]] = []
    for number in range(30):
        states = [text(9), {"k": text(3), "n": [1, 2.5, None, True]}, [text(2)], None, 7, ""]
        question: dict[str, Any] = {"type": rng.choice(("choice", "score", "noul"))}
        question["instructions"] = text(60 if number % 5 == 0 else 8)
        if question["type"] == "choice":
            count = rng.randint(2, 9)
            question["criteria"] = {f"key{i}": rng.choice((text(30), None)) for i in range(count)}
        elif question["type"] == "score":
            question["criteria"] = [text(30) for _ in range(rng.randint(2, 6))]
        state: Any = {"repeat": text(4)} if number % 10 == 9 else rng.choice(states)
        made.append({"state": state, "questions": {"q": question}})
    return made


def grown(request: dict[str, Any]) -> dict[str, Any]:
    """The request itself: long states are kept as what they repeat."""
    state = request["state"]
    if isinstance(state, dict) and "repeat" in state:
        return {**request, "state": " ".join([state["repeat"]] * LONG)}
    return request


def escaped(value: Any) -> Any:
    if isinstance(value, str):
        return key(value).replace("<<d1omni:", "<<d1omni ")
    if isinstance(value, list):
        return [escaped(each) for each in value]
    if isinstance(value, dict):
        return {key(name): escaped(each) for name, each in value.items()}
    return value


def key(text: str) -> str:
    return re.sub(r"<\|([A-Za-z0-9_]+)\|>", "<\u00a6\\1\u00a6>", text)


def written(value: Any) -> str:
    """JSON as the template's ``tojson`` writes it."""
    if isinstance(value, str):
        return '"' + "".join(ESCAPES.get(c, c) for c in value) + '"'
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(k)}: {written(v)}" for k, v in value.items()) + "}"
    return str(value)


def options(question: dict[str, Any]) -> list[str]:
    criteria = question.get("criteria")
    if question["type"] == "noul":
        return ["false: no, the statement does not hold", "true: yes, the statement holds"]
    if isinstance(criteria, list):
        return [f"level {i}: {escaped(text)}" for i, text in enumerate(criteria)]
    assert isinstance(criteria, dict)
    return [
        f"{key(name)}: {escaped(text)}" if text else key(name) for name, text in criteria.items()
    ]


def prompt(request: dict[str, Any], tokens: Any) -> list[int]:
    """The ids of the one question; ``tokens`` makes those of a piece."""
    (question,) = request["questions"].values()
    state = escaped(request["state"])
    text = "" if state is None else state if isinstance(state, str) else written(state)
    texts = options(question)
    budget = max(96, min(24 * len(texts) + 32, MOST // 2))
    longest = max(2, (budget - 3 * len(texts)) // len(texts))
    tail = tokens("<|reserved_8|>" + escaped(question["instructions"]))[: max(16, budget)]
    for each in texts:
        tail += tokens("<|reserved_9|><|mask|>") + tokens(" " + each)[:longest]
        tail += tokens("<|reserved_10|>")
    tail += tokens("<|reserved_11|>")
    room = max(0, MOST - (2 + len(tail)))
    head = tokens("<|startoftext|><|reserved_7|>")
    return (head + (tokens(text) if text else [])[:room] + tail)[:MOST]


def main() -> None:
    folder, model = sys.argv[1:]
    sys.path.insert(0, folder)
    import oracle  # type: ignore[import-not-found]

    ask = oracle.Oracle(model)
    found = []
    for request in requests():
        ids = prompt(grown(request), ask.tokens)
        kept = ids if len(ids) < MOST else {"first": ids[:8], "last": ids[-400:]}
        found.append({"request": request, "count": len(ids), "ids": kept})
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
    DATA.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
