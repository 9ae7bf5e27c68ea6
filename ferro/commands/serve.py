"""Serves models over HTTP, as OpenAI's API has it, until it is told to end."""

from __future__ import annotations

import argparse
import logging
import math
import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ferro.commands import (
    UsageError,
    encoder_options,
    engine_options,
    sampling_options,
    served_models,
)

if TYPE_CHECKING:
    from ferro.serve.engine import Models
    from ferro.serve.settings import Settings

MEGA = 1 << 20

# The option, its destination, type, default, least and most, and what it means.
NUMBERS = (
    ("--prefill-slice-ms", "slice_ms", float, 40, 1, 60_000,
     "time of a slice of a prompt, for which others wait (default 40)"),
    ("--decode-share", "decode_share", float, 40, 0, 95,
     "percent of the time that decoding streams have beside prompts (default 40)"),
    ("--queue", "queue", int, 128, 0, 100_000,
     "requests that may wait for a slot; further ones are told to come again (default 128)"),
    ("--prefix-cache-mb", "prefix_cache", float, 128, 0, 1 << 20,
     "memory for beginnings of prompts that come again (default 128, 0: none)"),
    ("--max-body-mb", "body", float, 16, 0.001, 1024, "the largest request (default 16)"),
    ("--request-timeout", "request_timeout", float, 600, 0, math.inf,
     "seconds that a request may take (default 600, 0: any)"),
    ("--shutdown-timeout", "shutdown_timeout", float, 10, 0, 3600,
     "seconds that requests have to end after SIGTERM (default 10)"),
    ("--sse-ping-interval", "ping", float, 30, 0.1, 3600,
     "seconds of silence after which a stream shows that it lives (default 30)"),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    served_models.configure(parser)
    group = parser.add_argument_group("where, and for whom")
    group.add_argument("--host", default="127.0.0.1", help="address (default 127.0.0.1)")
    group.add_argument("--port", type=int, default=8088, help="port (default 8088, 0: a free one)")
    group.add_argument("--alias", action="append", default=[], metavar="NAME",
                       help="another name of every model")  # fmt: skip
    group.add_argument("--api-key", action="append", default=[], metavar="[LABEL:]KEY",
                       help="a key that requests need (also: FERRO_API_KEY)")  # fmt: skip
    group.add_argument("--api-key-file", metavar="FILE",
                       help="keys, one a line; read again on SIGHUP")  # fmt: skip
    group.add_argument("--metrics-open", action="store_true", help="/metrics needs no key")
    group.add_argument("--cors-origin", action="append", default=[], metavar="ORIGIN",
                       help="a web page's origin that may ask (*: any)")  # fmt: skip
    group = parser.add_argument_group("how requests share the device")
    group.add_argument("--lm-slots", "--slots", dest="slots", type=int, default=4, metavar="N",
                       help="requests that are served at once (default 4)")  # fmt: skip
    encoder_options.batch_argument(group)
    group.add_argument("--no-prefix-tail", action="store_true",
                       help="keep no ends of conversations")  # fmt: skip
    group.add_argument("--no-warmup", action="store_true",
                       help="do not run every shape of pass before the first request")  # fmt: skip
    for option, name, kind, usual, _, _, text in NUMBERS:
        group.add_argument(option, dest=name, type=kind, default=usual, metavar="N", help=text)
    group = parser.add_argument_group("replies")
    group.add_argument("--reasoning-format", choices=("auto", "deepseek", "none"), default="auto",
                       help="none: reasoning stays in the content")  # fmt: skip
    group.add_argument("--thinking-budget", type=int, metavar="N",
                       help="tokens of reasoning (default: any number)")  # fmt: skip
    group = parser.add_argument_group("how tokens are chosen where a request does not say it")
    for option, name, kind, text in sampling_options.FIELDS:
        group.add_argument(option, dest=name, type=kind, metavar="N", help=text)
    group.add_argument("--penalty-scope", choices=("all", "generated"), default="generated",
                       help="whether penalties count the prompt's tokens (default generated)"
                       )  # fmt: skip
    engine_options.configure(parser)


def run(args: argparse.Namespace) -> int:
    from ferro.serve.keys import Keys
    from ferro.serve.server import Process

    chosen = settings(args)
    files = served_models.paths(args)
    given = [*args.api_key, *filter(None, [os.environ.get("FERRO_API_KEY")])]
    keys = Keys(given, args.api_key_file)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    def load(losses: int) -> AbstractContextManager[Models]:
        if losses > 1:
            args.device = fallback()
        return served_models.opened(args, files)

    Process(load, chosen, keys).run(args.host, args.port)
    return 0


def fallback() -> str:
    """The device that serves when the one that was chosen is lost again and again."""
    from ferro.runtime.listing import devices

    return next((info.alias for info in devices() if info.kind == "cpu"), "interpreter")


def settings(args: argparse.Namespace) -> Settings:
    """What the options say. Raises UsageError, BadSampling."""
    from ferro.models.sampler import Sampling
    from ferro.serve.settings import Settings

    for option, name, _, _, least, most, _ in NUMBERS:
        if not least <= getattr(args, name) <= most:
            raise UsageError(f"{option} takes numbers from {least} to {most}")
    if args.slots < 1:
        raise UsageError(f"--lm-slots takes a number above 0, got {args.slots}")
    if not 0 <= args.port < 65536:
        raise UsageError(f"--port takes numbers from 0 to 65535, got {args.port}")
    sampling: dict[str, Any] = {
        name: getattr(args, name)
        for _, name, _, _ in sampling_options.FIELDS
        if getattr(args, name) is not None
    }
    sampling["penalise_prompt"] = args.penalty_scope == "all"
    Sampling(**sampling)
    return Settings(
        slice_seconds=args.slice_ms / 1000,
        decode_share=args.decode_share / 100,
        most_waiting=args.queue,
        most_bytes=int(args.body * MEGA),
        request_seconds=args.request_timeout or None,
        ping_seconds=args.ping,
        shutdown_seconds=args.shutdown_timeout,
        prefix_cache_bytes=int(args.prefix_cache * MEGA),
        prefix_tails=not args.no_prefix_tail,
        sampling=sampling,
        reasoning_format=args.reasoning_format,
        thinking_budget=args.thinking_budget,
        aliases=tuple(args.alias),
        metrics_open=args.metrics_open,
        warm=not args.no_warmup,
        cors_origins=tuple(args.cors_origin),
    )
