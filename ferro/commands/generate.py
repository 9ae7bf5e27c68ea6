"""Generates text: one answer to a prompt or to messages, or a chat at the terminal."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferro import report
from ferro.commands import UsageError, engine_options, options, sampling_options
from ferro.report import emit, note, to_json

if TYPE_CHECKING:
    from ferro.models.conversation import Conversation
    from ferro.models.generation import Generation, Stream
    from ferro.models.language_model import LanguageModel
    from ferro.models.renderer import Worker


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    options.model_argument(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "-p",
        "--prompt",
        metavar="TEXT",
        help="the prompt (default: standard input; a chat where that is a terminal)",
    )
    source.add_argument(
        "--messages",
        metavar="FILE",
        help="JSON: a list of messages, or an object with messages and tools (-: standard input)",
    )
    parser.add_argument("--system", metavar="TEXT", help="a system message in front")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="no chat template: go on from the prompt, in which special tokens are read",
    )
    parser.add_argument("--stats", action="store_true", help="tokens and speed, on standard error")
    sampling_options.configure(parser)
    engine_options.configure(parser)


def run(args: argparse.Namespace) -> int:
    path = options.model(args)
    wanted = sampling_options.chosen(args)
    asked = source(args)
    worker = None if args.raw else started_worker()  # it starts while the model loads
    from ferro.models.generation import Stream

    started = time.perf_counter()
    with engine_options.opened(args, path) as model:
        loading = time.perf_counter() - started
        if not args.raw:
            wanted = sampling_options.chosen(args, model.file.metadata)
        stream = Stream(model)
        if asked is None:
            from ferro.commands.terminal_chat import TerminalChat

            with template_of(model, worker) as template:
                TerminalChat(stream, template, wanted, args.system, args.stats).run()
            return 0
        generation = stream.complete(tokens(model, asked, worker), wanted)
        answer(args, generation, stream, loading)
    return 0


# ---------------------------------------------------------------------------------- the prompt


def source(args: argparse.Namespace) -> str | Conversation | None:
    """The text or the conversation that is to be gone on from; None for a chat. Raises UsageError,
    OSError."""
    from ferro.models.conversation import Conversation

    if args.raw and (args.messages or args.system is not None):
        raise UsageError("--raw takes a prompt only: no --messages, no --system")
    if args.messages is not None:
        return with_system(read_messages(args.messages), args.system)
    if args.prompt is None and sys.stdin is not None and sys.stdin.isatty():
        if args.raw or args.json:
            raise UsageError(f"--{'raw' if args.raw else 'json'} needs a prompt: --prompt TEXT")
        return None
    text = options.standard_input() if args.prompt is None else args.prompt
    if args.raw:
        return str(text)
    if not text.strip():
        raise UsageError("the prompt is empty")
    return with_system(Conversation([{"role": "user", "content": text}]), args.system)


def read_messages(name: str) -> Conversation:
    """The conversation in a JSON file. Raises UsageError, OSError."""
    from ferro.models.conversation import Conversation

    try:
        found = json.loads(
            options.standard_input() if name == "-" else Path(name).read_text("utf-8")
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: this is no JSON: {error}") from None
    if isinstance(found, list):
        found = {"messages": found}
    messages = found.get("messages") if isinstance(found, dict) else None
    if not isinstance(messages, list) or not messages:
        raise UsageError(f"{name}: there must be a list of messages, or an object with one")
    tools = found.get("tools") or []
    if not isinstance(tools, list):
        raise UsageError(f"{name}: tools must be a list")
    return Conversation(messages, tools)


def with_system(conversation: Conversation, text: str | None) -> Conversation:
    """The conversation with a system message in front. Raises UsageError if it has one."""
    from dataclasses import replace

    if text is None:
        return conversation
    first = conversation.messages[0]
    if isinstance(first, dict) and first.get("role") == "system":
        raise UsageError("the messages have a system message: leave out --system")
    system = {"role": "system", "content": text}
    return replace(conversation, messages=[system, *conversation.messages])


def started_worker() -> Worker:
    """A process for the chat template."""
    from ferro.models.renderer import Worker

    return Worker()


def tokens(
    model: LanguageModel, asked: str | Conversation, worker: Worker | None = None
) -> list[int]:
    """The prompt's token ids. Raises BadConversation, TemplateError."""
    if isinstance(asked, str):
        return model.tokenizer.encode(asked)
    with template_of(model, worker) as template:
        return model.tokenizer.encode(template.render(asked))


def template_of(model: LanguageModel, worker: Worker | None) -> Any:
    """The model's chat template, read by ``worker``, whose errors name the file; says so where it
    has none."""
    from ferro.models.chat import KEY, ChatTemplate
    from ferro.models.renderer import NAME

    if KEY not in model.file.metadata:
        note("the file has no chat template: ChatML is used (--raw: none)")
    name = f"{model.file.path}: {NAME}"
    return ChatTemplate.of_model(model.file.metadata, model.tokenizer, name=name, worker=worker)


# ---------------------------------------------------------------------------------- the answer


def answer(
    args: argparse.Namespace, generation: Generation, stream: Stream, loading: float
) -> None:
    """Print the text while it comes, or all of it as JSON."""
    completion = generation.completion
    if args.json:
        text = "".join(generation)
        stats = {
            **generation.timings.to_json(),
            "finish": completion.finish.value if completion.finish else None,
            "seed": completion.sampler.seed,
            "load_seconds": loading,
            "device": str(stream.model.device.info),
        }
        found = {"prompt_ids": completion.prompt, "ids": completion.ids, "text": text}
        emit(to_json({**found, "stats": stats}))
        return
    try:
        show(generation)
    finally:
        show(["\n"])
    if args.stats:
        note(summary(generation))


def show(pieces: Iterable[str]) -> None:
    """Write pieces of text as they come."""
    for piece in pieces:
        report.show(piece, flush=True)


def summary(generation: Generation) -> str:
    """A line about a completion: tokens, speed, why it ended."""
    timings, completion = generation.timings, generation.completion
    cached = f" ({timings.cached_tokens} were there)" if timings.cached_tokens else ""
    parts = [
        f"{timings.prompt_tokens} tokens of prompt{cached}",
        f"first token after {timings.first_token_seconds:.3f} s",
        *_rates("prefill", timings.prefill_rate),
        f"{timings.tokens} tokens",
        *_rates("decode", timings.decode_rate),
        f"ended by: {completion.finish.value if completion.finish else 'interruption'}",
        f"seed {completion.sampler.seed}",
    ]
    return ", ".join(parts)


def _rates(what: str, rate: float | None) -> list[str]:
    return [] if rate is None else [f"{what} {rate:.1f} tok/s"]
