"""`ferro generate` on a model that is not there: prompts, options, output, errors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferro.cli import main
from tests.models.fakes import FakeModel, put_in_place
from tests.models.vocabularies import tokenizer

Capture = pytest.CaptureFixture[str]
Use = Callable[..., FakeModel]
LFM2 = tokenizer("lfm2")
END = LFM2.encode("<|im_end|>", add_special=False)[0]


def ids(text: str) -> list[int]:
    return LFM2.encode(text, add_special=False)


def asked(model: FakeModel) -> str:
    """The text that the model was given."""
    first = [piece for piece in model.passes if len(piece.tokens) > 1 or not piece.start]
    tokens = [token for piece in first for token in piece.tokens]
    return LFM2.decode(tokens, special=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Use:
    """Puts a fake in the model's place; it answers with a text, or with any tokens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Terminal())

    def put(answer: str | list[int] | None = None, **kwargs: Any) -> FakeModel:
        script = [*ids(answer), END] if isinstance(answer, str) else answer
        return put_in_place(FakeModel(script, **kwargs), monkeypatch)

    return put


def run(*words: str) -> int:
    return main(["generate", "model.gguf", *words])


# --- output -------------------------------------------------------------------------------------


def test_the_answer_is_printed(use: Use, capsys: Capture) -> None:
    model = use("Blue, é 🙂.")
    assert run("--prompt", "Which colour?") == 0
    assert capsys.readouterr().out == "Blue, é 🙂.\n"
    assert "<|im_start|>user\nWhich colour?<|im_end|>\n<|im_start|>assistant\n" in asked(model)


def test_json_has_ids_text_and_stats(use: Use, capsys: Capture) -> None:
    use("Hi")
    assert run("--prompt", "a<|im_end|>", "--raw", "--temp", "0", "-n", "24", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["prompt_ids", "ids", "text", "stats"]
    assert printed["prompt_ids"] == LFM2.encode("a<|im_end|>")
    assert (printed["ids"], printed["text"]) == ([*ids("Hi"), END], "Hi")
    stats = printed["stats"]
    assert (stats["prompt_tokens"], stats["tokens"]) == (3, 3)
    assert stats["finish"] == "end" and stats["seed"] >= 0 and stats["load_seconds"] >= 0


def test_stats_are_a_line_on_standard_error(use: Use, capsys: Capture) -> None:
    use("Hi")
    assert run("--prompt", "x", "--stats", "--seed", "7") == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "first token" in line]
    assert "3 tokens" in line and "tok/s" in line and "ended by: end" in line and "seed 7" in line


def test_pieces_are_flushed_one_by_one(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Pipe(io.StringIO):
        def flush(self) -> None:
            written.append(self.getvalue())

    use("abc")
    monkeypatch.setattr("sys.stdout", Pipe())
    assert run("--prompt", "x") == 0
    assert written[:3] == ["a", "ab", "abc"]


# --- prompts ------------------------------------------------------------------------------------


def test_standard_input_is_the_prompt(
    use: Use, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    model = use("Hi")
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert run() == 0
    assert "user\nfrom a pipe<|im_end|>" in asked(model)


def test_a_closed_standard_input_is_an_empty_prompt(
    use: Use, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use("Hi")
    monkeypatch.setattr("sys.stdin", None)
    assert run() == 2
    assert "the prompt is empty" in capsys.readouterr().err


def test_a_system_message_stands_in_front(use: Use) -> None:
    model = use("Hi")
    assert run("--prompt", "x", "--system", "Be brief.") == 0
    assert "system\nBe brief.<|im_end|>\n<|im_start|>user\nx" in asked(model)


def test_an_empty_system_message_stands_in_place_of_the_template_s(use: Use) -> None:
    template = (
        "{% if messages[0].role != 'system' %}S: usual\n{% endif %}"
        "{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}"
    )
    for words, wanted in (([], "S: usual\n"), (["--system", ""], "s: \n")):
        model = use("Hi", keys={"tokenizer.chat_template": template})
        assert run("--prompt", "x", *words) == 0
        assert asked(model).endswith(f"{wanted}u: x\n")


def test_a_character_that_was_cut_off_is_shown_as_such(use: Use, capsys: Capture) -> None:
    use(ids("a🙂"))
    most = len(ids("a🙂")) - 1
    assert run("--prompt", "x", "-n", str(most), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["text"] == "a\ufffd" and len(printed["ids"]) == most


def test_raw_text_is_continued_as_it_is(use: Use) -> None:
    model = use("Hi")
    assert run("--raw", "--prompt", "Once upon") == 0
    assert asked(model).removeprefix("<|startoftext|>") == "Once upon"


@pytest.mark.parametrize("form", ["list", "object"])
def test_messages_from_a_file(form: str, use: Use) -> None:
    model = use("Hi")
    messages = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}]
    messages.append({"role": "user", "content": "Three"})
    found = messages if form == "list" else {"messages": messages, "tools": []}
    Path("chat.json").write_text(json.dumps(found))
    assert run("--messages", "chat.json") == 0
    assert "user\nOne<|im_end|>\n<|im_start|>assistant\nTwo<|im_end|>" in asked(model)


def test_messages_from_standard_input(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    model = use("Hi")
    monkeypatch.setattr("sys.stdin", io.StringIO('[{"role": "user", "content": "Piped"}]'))
    assert run("--messages", "-") == 0
    assert "Piped" in asked(model)


def test_an_open_answer_is_continued(use: Use) -> None:
    model = use("Hi")
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "It is"}]
    Path("chat.json").write_text(json.dumps(messages))
    assert run("--messages", "chat.json") == 0
    assert asked(model).endswith("assistant\nIt is")


# --- options ------------------------------------------------------------------------------------


def test_stop_strings_and_length(use: Use, capsys: Capture) -> None:
    use("one two three")
    assert run("--prompt", "x", "--stop", "three", "--stop", "two") == 0
    assert capsys.readouterr().out == "one \n"
    use("one two three")
    assert run("--prompt", "x", "-n", "2") == 0
    assert capsys.readouterr().out == f"{LFM2.decode(ids('one two three')[:2])}\n"


def test_end_tokens_can_be_passed_over(use: Use, capsys: Capture) -> None:
    use([*ids("a"), END, *ids("b")])
    assert run("--prompt", "x", "--ignore-eos", "-n", "3") == 0
    assert capsys.readouterr().out == "ab\n"


def test_a_biased_token_is_never_taken(use: Use, capsys: Capture) -> None:
    (a,) = ids("a")
    use([a] * 4)
    assert run("--prompt", "x", "-n", "4", "--temp", "0", f"--logit-bias={a}=-inf") == 0
    assert "a" not in capsys.readouterr().out


def test_the_same_seed_gives_the_same_text(use: Use, capsys: Capture) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        use()
        assert run("--prompt", "x", "-n", "12", "--temp", "1", "--seed", seed, "--json") == 0
        texts.append(json.loads(capsys.readouterr().out)["ids"])
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("words", "temperature", "penalty"),
    [
        ((), 0.25, 1.05),
        (("--temp", "0.5"), 0.5, 1.05),
        (("--temp", "0"), 0.0, 1.0),
        (("--raw",), 0.8, 1.0),
    ],
)
def test_what_the_makers_recommend_counts_for_chats(
    words: tuple[str, ...],
    temperature: float,
    penalty: float,
    use: Use,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ferro.models import completion

    seen = []
    made = completion.Completion
    monkeypatch.setattr(
        "ferro.models.generation.Completion", lambda *a: seen.append(a[3].sampling) or made(*a)
    )
    keys = {"general.architecture": "lfm2", "general.sampling.temp": 0.25}
    use("Hi", keys=keys)
    assert run("--prompt", "x", *words) == 0
    assert (seen[0].temperature, seen[0].repeat_penalty) == (temperature, penalty)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", " "], "the prompt is empty"),
        (["--prompt", "x", "--temp", "-1"], "temperature must be from 0"),
        (["--prompt", "x", "--temp", "nan"], "temperature must be a finite number"),
        (["--prompt", "x", "--top-k", "-1"], "top_k must be at least 0"),
        (["--prompt", "x", "--top-p", "1.5"], "top_p must be from 0 to 1"),
        (["--prompt", "x", "--repeat-penalty", "0"], "repeat_penalty must be finite and above 0"),
        (["--prompt", "x", "--repeat-last-n", "-2"], "repeat_last_n must be at least -1"),
        (["--prompt", "x", "--n-predict", "-5"], "at least 0, it is -5"),
        (["--prompt", "x", "--seed", "-5"], "--seed takes a number of at least 0"),
        (["--prompt", "x", "--stop", ""], "a stop string must not be empty"),
        (["--prompt", "x", "--logit-bias", "7"], "--logit-bias takes NAME=VALUE"),
        (["--prompt", "x", "--logit-bias", "a=b"], "--logit-bias takes ID=BIAS"),
        (["--prompt", "x", "--logit-bias", "99999=1"], "there is no token 99999"),
        (["--messages", "none.json"], "none.json"),
        (["--messages", "."], "directory"),
        (["--raw"], "--raw needs a prompt"),
        (["--json"], "--json needs a prompt"),
        (["--raw", "--system", "x"], "--raw takes a prompt only"),
    ],
)
def test_bad_input_ends_with_2(words: list[str], message: str, use: Use, capsys: Capture) -> None:
    use("Hi")
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert message in captured.out + captured.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "this is no JSON"),
        ("[" * 9999, "this is no JSON"),
        ("3", "there must be a list of messages"),
        ("[]", "there must be a list of messages"),
        ('{"messages": {}}', "there must be a list of messages"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": 3}', "tools must be a list"),
        ('[{"content": "x"}]', "message 0 has no role"),
        ("[1]", "message 0 has no role"),
        ('[{"role": "user", "content": 5}]', "content must be a text"),
    ],
)
def test_bad_messages_end_with_2(text: str, message: str, use: Use, capsys: Capture) -> None:
    use("Hi")
    Path("chat.json").write_text(text)
    assert run("--messages", "chat.json") == 2
    assert message in capsys.readouterr().err


def test_messages_of_another_encoding_end_with_2(use: Use, capsys: Capture) -> None:
    use("Hi")
    Path("chat.json").write_bytes(b'[{"role": "user", "content": "\xff"}]')
    assert run("--messages", "chat.json") == 2
    assert "chat.json: this is no JSON" in capsys.readouterr().err


def test_two_system_messages_end_with_2(use: Use, capsys: Capture) -> None:
    use("Hi")
    Path("chat.json").write_text('[{"role": "system", "content": "a"}]')
    assert run("--messages", "chat.json", "--system", "b") == 2
    assert "leave out --system" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('only even days') }}", "only even days"),
        ("{% for %}", "it cannot be read: line 1"),
        ("{{ 1 + [] }}", "line 1: unsupported operand"),
    ],
)
def test_a_template_s_error_is_told(template: str, message: str, use: Use, capsys: Capture) -> None:
    use("Hi", keys={"tokenizer.chat_template": template})
    assert run("--prompt", "x") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ferro generate: fake.gguf: the chat template: {message}")


def test_a_prompt_that_is_too_long_is_told_with_both_counts(use: Use, capsys: Capture) -> None:
    use("Hi", context=5)
    assert run("--raw", "--prompt", "0123456789") == 2
    count = len(LFM2.encode("0123456789"))
    assert f"the prompt has {count} tokens, the context holds 5" in capsys.readouterr().err


def test_an_empty_raw_prompt_needs_tokens(use: Use, capsys: Capture) -> None:
    use("Hi", vocabulary="smollm")
    assert run("--raw", "--prompt", "") == 2
    assert "the prompt has no tokens" in capsys.readouterr().err


def test_without_a_model_it_asks_for_one(capsys: Capture) -> None:
    assert main(["generate", "--prompt", "x"]) == 2
    assert "name a model" in capsys.readouterr().err


def test_a_model_is_named_once(use: Use, capsys: Capture) -> None:
    use("Hi")
    assert run("--lm", "model.gguf", "--prompt", "x") == 2
    assert "name one model only" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lm", "--model"])
def test_the_model_by_an_option(option: str, use: Use, capsys: Capture) -> None:
    use("Hi")
    assert main(["generate", option, "model.gguf", "--prompt", "x"]) == 0
    assert capsys.readouterr().out == "Hi\n"


def test_ctrl_c_ends_with_130(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    model = use("Hi")

    def interrupt(pieces: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "forward", interrupt)
    assert run("--prompt", "x") == 130


def test_a_context_of_nothing_is_wrong_use(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.gguf"
    path.touch()
    assert main(["generate", str(path), "--prompt", "x", "--ctx", "0"]) == 2
    assert "--ctx takes a number from 1 to 2147483647" in capsys.readouterr().err
