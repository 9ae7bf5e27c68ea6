"""Chat templates: llama-server's prompts byte for byte, and templates that mean harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferro.models.chat import CHATML, ChatTemplate
from ferro.models.conversation import BadConversation, Conversation, joined
from ferro.models.renderer import Renderer, TemplateError
from ferro.models.template_traits import Traits, traits
from ferro.models.templating import BadTemplate, Template, TemplateFailed
from tests.models.vocabularies import metadata, tokenizer

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"
CASES: list[dict[str, Any]] = json.loads((TEMPLATES / "cases.json").read_text())
RENDERED: dict[str, Any] = json.loads((TEMPLATES / "rendered.json").read_text())
WINTER = 1_764_547_200.0  # 2025-12-01 00:00 UTC
USER = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module", params=RENDERED)
def recorded(request: pytest.FixtureRequest) -> Iterator[tuple[ChatTemplate, list[dict[str, Any]]]]:
    source = (TEMPLATES / request.param).read_text()
    with ChatTemplate(source, bos="<|im_start|>", eos="<|im_end|>") as template:
        yield template, RENDERED[request.param]


def test_prompts_are_llama_server_s(recorded: tuple[ChatTemplate, list[dict[str, Any]]]) -> None:
    template, answers = recorded
    for case, answer in zip(CASES, answers, strict=True):
        conversation = Conversation(case["messages"], case.get("tools", ()))
        if "error" in answer:
            with pytest.raises(TemplateError):
                template.render(conversation)
        else:
            assert template.render(conversation) == answer["prompt"], case["name"]


def test_what_the_templates_can_take() -> None:
    found = {path.stem: traits(path.read_text()) for path in TEMPLATES.glob("*.jinja")}
    strings = Traits(strings=True, parts=False, system=True, objects=False)
    objects = Traits(strings=True, parts=False, system=True, objects=True)
    assert found == {
        "LFM2-8B-A1B": strings,
        "LFM2.5-8B-A1B": objects,
        "LFM2.5-Instruct": strings,
        "Qwen-Qwen2.5-7B-Instruct": objects,
        "SmolLM2-135M-Instruct": strings,
        "google-gemma-2-2b-it": Traits(True, False, False, False),
        "google-gemma-4-31B-it": Traits(True, True, True, True),
    }


def test_a_refusal_is_the_user_s_error_with_the_template_s_words() -> None:
    source = (TEMPLATES / "google-gemma-2-2b-it.jinja").read_text()
    with ChatTemplate(source) as template, pytest.raises(TemplateError) as caught:
        template.render(Conversation([USER, USER]))
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "the chat template: Conversation roles must alternate user/assistant/user/assistant/..."
    )


def rendered(source: str, *messages: Any, now: float | None = None, **options: Any) -> str:
    """The prompt of a template."""
    bare = {key: options.pop(key) for key in ("bos", "eos", "add_bos", "add_eos") if key in options}
    with ChatTemplate(source, **bare) as template:
        return template.render(Conversation(messages or [USER], **options), now)


# ----------------------------------------------------------------------------- llama.cpp's habits


def test_bos_and_eos_that_the_tokeniser_adds_are_taken_off() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    assert rendered(source, bos="<s>", eos="</s>") == "<s>Hello</s>"
    assert rendered(source, bos="<s>", eos="</s>", add_bos=True) == "Hello</s>"
    assert rendered(source, bos="<s>", eos="</s>", add_bos=True, add_eos=True) == "Hello"
    assert rendered("{{ bos_token }}" * 2, bos="<s>", add_bos=True) == "<s>"


def test_the_generation_prompt_can_be_left_out() -> None:
    assert rendered(CHATML, add_generation_prompt=False) == "<|im_start|>user\nHello<|im_end|>\n"
    seen = "{{ add_generation_prompt is defined }}"
    assert rendered(seen) == "True" and rendered(seen, add_generation_prompt=False) == "False"


def test_variables_reach_the_template() -> None:
    assert rendered("{{ enable_thinking }} {{ preserve_thinking }} {{ clear_thinking }}") == (
        "True True False"
    )
    given = {"enable_thinking": False, "preserve_reasoning": False, "extra": [1]}
    source = "{{ enable_thinking }} {{ preserve_thinking }} {{ clear_thinking }} {{ extra }}"
    assert rendered(source, variables=given) == "False False True [1]"
    effort = {"reasoning_effort": "low"}
    assert rendered("{{ reasoning_strength }}", variables=effort) == "low"


def test_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    source = "{{ strftime_now('%Y-%m-%d %H:%M') }} {{ date_string }} {{ datetime }}"
    assert rendered(source, now=WINTER) == "2025-12-01 00:00 01 Dec 2025 Dec 01 2025"


def test_json_is_readable() -> None:
    source = "{{ extra | tojson }} {{ extra | tojson(indent=1) }}"
    given = {"extra": {"b": "é<&'>\n", "a": [1, 2.5, None, True]}}
    assert rendered(source, variables=given) == (
        '{"b": "é<&\'>\\n", "a": [1, 2.5, null, true]} '
        '{\n "b": "é<&\'>\\n",\n "a": [\n  1,\n  2.5,\n  null,\n  true\n ]\n}'
    )


def test_what_is_not_there_is_forgiven() -> None:
    assert rendered("{{ 'a' + nothing.at.all + 'b' }}{{ none + 'c' }}") == "abc"
    assert rendered("{{ 'x' in nothing }}{{ nothing['x'] is defined }}") == "FalseFalse"
    with pytest.raises(TemplateError, match="line 1: `in` takes no value that is not there"):
        rendered("{{ nothing in ['x'] }}")


def test_tags_of_other_engines() -> None:
    source = (
        "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}"
        "{% endif %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}"
    )
    assert rendered(source) == "02"


@pytest.mark.parametrize(
    ("source", "turn", "end"),
    [
        (CHATML, {"content": "Once"}, "<|im_start|>assistant\nOnce"),
        (CHATML, {"content": [{"type": "text", "text": "a"}] * 2}, "<|im_start|>assistant\na\na"),
        (
            CHATML + "<think>",
            {"content": "x", "reasoning_content": "why"},
            "<think>\nwhy\n</think>\n\nx",
        ),
        (CHATML + "<think>", {"content": "", "reasoning_content": "why"}, "<think>\nwhy"),
        (
            CHATML + "{#List of tools: [#}",
            {"content": "", "reasoning_content": "why"},
            "<|im_start|>assistant\n<think>why",
        ),
        (
            CHATML + "{#List of tools: [#}",
            {"content": "x", "reasoning_content": "why"},
            "<|im_start|>assistant\n<think>why</think>x",
        ),
    ],
)
def test_an_open_turn_is_continued(source: str, turn: dict[str, Any], end: str) -> None:
    prompt = rendered(source, USER, {"role": "assistant", **turn})
    assert prompt.startswith("<|im_start|>user\nHello<|im_end|>\n")
    assert prompt.endswith(end) and not prompt.endswith("<|im_end|>\n")


def test_thoughts_are_given_to_lfm2_by_its_name_for_them() -> None:
    source = (TEMPLATES / "LFM2.5-8B-A1B.jinja").read_text()
    thought = {"role": "assistant", "content": "4", "reasoning_content": "add"}
    kept = rendered(source, USER, thought, USER)
    assert "<think>add</think>4<|im_end|>" in kept
    dropped = rendered(source, USER, thought, USER, variables={"preserve_reasoning": False})
    assert "<think>" not in dropped


def test_a_system_message_that_a_template_refuses_joins_the_next() -> None:
    source = (TEMPLATES / "google-gemma-2-2b-it.jinja").read_text()
    system = {"role": "system", "content": "Be brief."}
    assert "user\nBe brief.\nHello<end" in rendered(source, system, USER)
    assert rendered(source, system) == "<start_of_turn>model\n"


def test_a_template_that_takes_parts_only_gets_parts() -> None:
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    assert traits(source) == Traits(strings=False, parts=True, system=True, objects=False)
    assert rendered(source) == "[Hello]"


def test_developer_is_another_word_for_system() -> None:
    developer = {"role": "developer", "content": "x"}
    assert rendered(CHATML, developer, USER).startswith("<|im_start|>system\nx<|im_end|>")


def test_content_parts_are_joined_by_lines_except_around_media() -> None:
    text, medium = {"type": "text", "text": "a"}, {"type": "media_marker", "text": "<M>"}
    assert joined([text, text, medium, text, text]) == "a\na<M>a\na"
    assert joined("plain") == "plain" and joined([]) == ""


# -------------------------------------------------------------------------------- of a model file


def test_the_template_of_a_model_file() -> None:
    found = metadata("lfm2", chat_template=None)
    keys = {"tokenizer.chat_template": "{{ bos_token }}A", "tokenizer.chat_template.b": "B"}
    with ChatTemplate.of_model(found | keys, tokenizer("lfm2")) as template:
        assert (template.bos, template.eos) == ("<|startoftext|>", "<|im_end|>")
        assert template.render(Conversation([USER])) == "A"
    with ChatTemplate.of_model(found | keys, tokenizer("lfm2"), variant="b") as template:
        assert template.render(Conversation([USER])) == "B"
    with ChatTemplate.of_model(found, tokenizer("lfm2")) as template:
        assert template.source == CHATML
    with pytest.raises(TemplateError, match="`tokenizer.chat_template` must be a text"):
        ChatTemplate.of_model(found | {"tokenizer.chat_template": np.zeros(2)}, tokenizer("lfm2"))


# ----------------------------------------------------------------------------- bad conversations

CALL = {"type": "function", "function": {"name": "f", "arguments": "{"}}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (["x"], "message 0 has no role"),
        ([USER, {"content": "x"}], "message 1 has no role"),
        ([{"role": "user"}], "message 0 has neither content nor tool calls"),
        ([{"role": "user", "content": 3}], "message 0: content must be a text or a list of parts"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "message 0: content must be"),
        ([{"role": "tool", "content": "", "tool_call_id": 7}], "tool_call_id must be a text"),
        ([{"role": "assistant", "tool_calls": {}}, USER], None),
        ([{"role": "assistant", "tool_calls": "f()"}], "tool_calls must be a list"),
        ([{"role": "assistant", "tool_calls": ["f()"]}], 'a tool call must have type "function"'),
        (
            [{"role": "assistant", "tool_calls": [{"type": "function", "function": {}}]}],
            "the function has no name",
        ),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"type": "function", "function": {"name": "f"}}],
                }
            ],
            "a tool call has no arguments",
        ),
        ([{"role": "assistant", "content": "x"}] * 2, "two assistant messages at the end"),
    ],
)
def test_messages_of_another_form(messages: list[Any], problem: str | None) -> None:
    with ChatTemplate(CHATML) as template:
        if problem is None:
            assert template.render(Conversation(messages))
            return
        with pytest.raises(BadConversation) as caught:
            template.render(Conversation(messages))
    assert problem in str(caught.value) and caught.value.exit_code == 2


def test_arguments_that_are_no_json() -> None:
    source = (TEMPLATES / "Qwen-Qwen2.5-7B-Instruct.jinja").read_text()
    with pytest.raises(BadConversation, match="the arguments of a call of f are no JSON"):
        rendered(source, USER, {"role": "assistant", "tool_calls": [CALL]}, USER)


@pytest.mark.parametrize("tool", ["f", {}, {"type": "function"}, {"type": "x", "function": {}}])
def test_tools_of_another_form(tool: Any) -> None:
    with pytest.raises(BadConversation, match="tool 0"):
        rendered(CHATML, tools=[tool])


def test_variables_that_are_no_json() -> None:
    with pytest.raises(TemplateError, match="must fit in JSON"):
        rendered(CHATML, variables={"x": object()})


# ------------------------------------------------------------------------- templates that mean harm


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a\n{% if %}", "line 2: Expected an expression"),
        ("{{ 'a' }", "line 1: unexpected '}'"),
        ("{% include 'x' %}{% nonsense %}", "Encountered unknown tag 'nonsense'"),
        ("x" * 65537, "it has 65537 bytes (at most 65536)"),
        ("é" * 40000, "it has 80000 bytes"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "Error"),
    ],
)
def test_templates_that_cannot_be_read(source: str, problem: str) -> None:
    with pytest.raises(BadTemplate) as caught:
        Template(source)
    assert problem in str(caught.value)
    with pytest.raises(TemplateError, match="cannot be read"):
        rendered(source)


ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__init__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': ''}) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ self.__init__ }}",
    "{{ self._TemplateReference__context.environment }}",
    "{{ range.__self__ }}",
    "{{ loop.__class__ }}",
    "{% for x in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{% macro m() %}{% endmacro %}{{ m.__globals__ }}{{ m._func.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{% set messages[0].role = 'x' %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends 'x' %}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ ''.join.__self__.__class__ }}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{{ [''.upper]|map(attribute='__self__')|list }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    try:
        found = Template(source).render({"messages": [dict(USER)]})
    except (BadTemplate, TemplateFailed):
        return
    assert "class" not in found and "<" not in found and "os" not in found.lower(), found


ENDLESS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "power": "{% set n = 9 %}{{ n ** (n ** n) }}",
    "regular growth": "{% set ns = namespace(s='aaaaaaaa') %}"
    "{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "repetition": "{{ 'a' * 10 ** 10 }}",
    "a wide format": "{{ '%0100000000000d' % 1 }}",
    "nested lists": "{% set ns = namespace(l=[1]) %}"
    "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "calls": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "deep calls": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_template_without_end_is_stopped(case: str) -> None:
    # only when messages are there: so that its traits are found out in time
    source = "{% if go %}" + ENDLESS[case] + "{% endif %}done"
    with ChatTemplate(source, seconds=0.5) as template:
        assert template.render(Conversation([USER])) == "done"
        started = time.monotonic()
        with pytest.raises(TemplateError) as caught:
            template.render(Conversation([USER], variables={"go": True}))
        assert time.monotonic() - started < 10
        assert caught.value.exit_code == 2
        assert template.render(Conversation([USER])) == "done"  # in a new process


@pytest.mark.parametrize("source", [ENDLESS["loops"], "{{ 9 ** (9 ** 9) }}"])
def test_a_template_without_end_is_stopped_while_it_is_read(source: str) -> None:
    stopped = pytest.raises(TemplateError, match=r"took over 0\.3 s and was ended")
    with ChatTemplate(source, seconds=0.3) as template, stopped:
        template.render(Conversation([USER]))


def test_texts_without_measure_are_refused() -> None:
    source = "{% for i in range(300) %}{{ 'x' * 100000 }}{% endfor %}"
    with pytest.raises(TemplateError, match="its text has 30000000 characters"):
        rendered(source)
    with pytest.raises(TemplateError) as caught:
        rendered("{{ raise_exception('x' * 1000000) }}")
    assert len(str(caught.value)) <= 2100


FAILURES = {
    "refusal": "{{ raise_exception('no') }}",
    "failure": "{{ 1 + [] }}",
    "unreadable": "{% for %}",
    "endless": ENDLESS["loops"],
    "escape": "{{ ''.__class__ }}",
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_failure_says_whose_it_is(case: str) -> None:
    source = FAILURES[case]
    with pytest.raises(TemplateError, match="^the chat template: "):
        rendered(source, USER) if case != "endless" else brief(source)
    with pytest.raises(TemplateError, match=r"^some\.gguf: its template: "):
        brief(source, "some.gguf: its template")


def brief(source: str, name: str = "the chat template") -> str:
    with ChatTemplate(source, seconds=0.5, name=name) as template:
        return template.render(Conversation([USER]))


def test_a_process_that_dies_is_replaced() -> None:
    renderer = Renderer("{{ x }}")
    assert renderer.render({"x": "a"}) == "a"
    assert renderer._worker is not None
    process = renderer._worker.close.peek()
    assert process is not None
    process[2][0].kill()
    with pytest.raises(TemplateError):
        renderer.render({"x": "b"})
    assert renderer.render({"x": "c"}) == "c"
    renderer.close()


INTERRUPTED = """
import os, signal, sys
from ferro.models.renderer import Renderer
signal.signal(signal.SIGINT, lambda *_: None)
renderer = Renderer("{{ x }}")
if sys.argv[1] == "waits":
    renderer.render({"x": 1})
os.killpg(0, signal.SIGINT)
print(renderer.render({"x": 2}))
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")
@pytest.mark.parametrize("when", ["starts", "waits"])
def test_ctrl_c_at_a_terminal_spares_the_process(when: str) -> None:
    # it reaches all processes in the terminal's foreground
    command = [sys.executable, "-c", INTERRUPTED, when]
    done = subprocess.run(
        command, start_new_session=True, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_no_process_is_left_behind() -> None:
    renderer = Renderer("{{ x }}")
    assert renderer.render({"x": "a"}) == "a"
    assert renderer._worker is not None
    found = renderer._worker.close.peek()
    assert found is not None
    process = found[2][0]
    del found
    del renderer
    assert process.poll() is not None


def test_secrets_of_the_environment_stay_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    renderer = Renderer("x")
    assert renderer.render({}) == "x"
    assert renderer._worker is not None
    found = renderer._worker.close.peek()
    assert found is not None
    environment = Path(f"/proc/{found[2][0].pid}/environ")
    if not environment.exists():
        pytest.skip("no /proc")
    assert b"secret" not in environment.read_bytes()
    assert os.environ["SOME_TOKEN"] == "secret"
    renderer.close()


def test_threads_share_a_template() -> None:
    answers: dict[int, str] = {}
    with ChatTemplate(CHATML) as template:

        def ask(n: int) -> None:
            message = {"role": "user", "content": str(n)}
            answers[n] = template.render(Conversation([message], add_generation_prompt=False))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {n: f"<|im_start|>user\n{n}<|im_end|>\n" for n in range(8)}


def test_lone_surrogates_pass_through() -> None:
    assert rendered("{{ messages[0].content }}", {"role": "user", "content": "\ud800"}) == "\ud800"
