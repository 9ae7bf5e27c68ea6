"""What a request asks for: fields of the protocol to sampling, options and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferro.models.completion import BadRequest, Options
from ferro.models.sampler import BadSampling, Sampling
from ferro.serve.errors import bad
from ferro.serve.fields import Fields
from ferro.serve.service import Service

MOST_CHOICES = 64
MOST_STOPS = 64
MOST_LIKELY = 20
LONGEST_STOP = 1000

# What may be left out of account without harm.
HARMLESS = (
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention"
    " verbosity id_slot return_progress timings_per_token"
).split()
# What cannot, since the answer would not be what was asked for.
UNSUPPORTED = ("functions", "function_call", "audio", "web_search_options", "grammar", "suffix")

REALS = {  # field of Sampling: names, least, most
    "temperature": (("temperature",), 0.0, 1000.0),
    "top_p": (("top_p",), 0.0, 1.0),
    "min_p": (("min_p",), 0.0, 1.0),
    "repeat_penalty": (("repetition_penalty", "repeat_penalty"), 0.01, 100.0),
    "presence_penalty": (("presence_penalty",), -2.0, 2.0),
    "frequency_penalty": (("frequency_penalty",), -2.0, 2.0),
}
SEED_BITS = 63


@dataclass(frozen=True)
class Delivery:
    """How the answer is wanted."""

    stream: bool
    usage: bool
    warnings: tuple[str, ...]


def delivery(fields: Fields, warnings: tuple[str, ...] = ()) -> Delivery:
    """Read after everything else: fields that nobody knows are warned of."""
    stream = fields.flag("stream")
    options = fields.object("stream_options")
    usage = options is not None and options.flag("include_usage")
    for name in UNSUPPORTED:
        if name in fields:
            raise fields.wrong(name, "is not supported here")
    strangers = fields.strangers(HARMLESS)
    if strangers:
        warnings += (f"fields that are not known here count for nothing: {', '.join(strangers)}",)
    return Delivery(stream, usage, warnings)


def options(
    fields: Fields,
    usual: Mapping[str, Any],
    vocabulary: int,
    shown: frozenset[int] = frozenset(),
    default_most: int | None = None,
) -> Options:
    """How a completion is made. ``usual`` are fields of ``Sampling`` where nothing else is asked
    for. Raises ApiError."""
    try:
        return Options(
            sampling(fields, usual, vocabulary),
            most(fields, default_most),
            stops(fields),
            fields.flag("ignore_eos"),
            shown=shown,
        )
    except (BadSampling, BadRequest) as error:
        raise bad(str(error)) from None


def sampling(fields: Fields, usual: Mapping[str, Any], vocabulary: int) -> Sampling:
    """How tokens are chosen: for a greedy choice nothing is recommended."""
    asked: dict[str, Any] = {}
    for name, (names, least, largest) in REALS.items():
        found = fields.number(*names, least=least, most=largest)
        if found is not None:
            asked[name] = found
    top_k = fields.integer("top_k", least=-1)
    if top_k is not None:
        asked["top_k"] = max(top_k, 0)
    window = fields.integer("repeat_last_n", "penalty_last_n", least=-1)
    if window is not None:
        asked["repeat_last_n"] = window
    if fields.value("penalize_prompt") is not None:
        asked["penalise_prompt"] = fields.flag("penalize_prompt")
    seed = fields.integer("seed", least=-(1 << SEED_BITS), most=(1 << SEED_BITS) - 1)
    if seed is not None and seed != -1:
        asked["seed"] = seed % (1 << SEED_BITS)
    asked["logit_bias"] = biases(fields, vocabulary)
    return Sampling(**{**({} if asked.get("temperature") == 0 else usual), **asked})


def biases(fields: Fields, vocabulary: int) -> dict[int, float]:
    """OpenAI's object of ids, or llama.cpp's array of pairs, in which false rules a token out."""
    given = fields.value("logit_bias")
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list):
        raise fields.wrong("logit_bias", "must be an object of token ids and numbers")
    found = {}
    for pair in pairs:
        try:
            token, bias = int(pair[0]), -float("inf") if pair[1] is False else float(pair[1])
        except (TypeError, ValueError, IndexError, KeyError):
            raise fields.wrong("logit_bias", "must map token ids to numbers") from None
        if not 0 <= token < vocabulary:
            raise fields.wrong("logit_bias", f"names token {token}, there are {vocabulary}")
        # OpenAI's -100 bans a token
        found[token] = -float("inf") if bias <= -100 else min(bias, 1e6)
    return found


def most(fields: Fields, default: int | None = None) -> int | None:
    """How many tokens a completion may have; None for as many as the context holds."""
    names = ("max_completion_tokens", "max_tokens", "n_predict")
    found = fields.integer(*names, least=-1, default=default)
    return None if found == -1 else found


def stops(fields: Fields) -> tuple[str, ...]:
    given = fields.value("stop")
    listed = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(listed, list) or not all(isinstance(stop, str) for stop in listed):
        raise fields.wrong("stop", "must be a string or an array of strings")
    if len(listed) > MOST_STOPS or any(len(stop) > LONGEST_STOP for stop in listed):
        raise fields.wrong(
            "stop", f"has more than {MOST_STOPS} strings, or one of over {LONGEST_STOP} characters"
        )
    return tuple(stop for stop in listed if stop)


def choices(fields: Fields) -> int:
    return fields.integer("n", "n_cmpl", least=1, most=MOST_CHOICES, default=1) or 1


def seconds(service: Service, fields: Fields) -> float | None:
    """How long the request may take: what it asks for, within the server's limit."""
    limit = service.settings.request_seconds
    asked = fields.number("timeout", least=0.001)
    if asked is None:
        return limit
    return asked if limit is None else min(asked, limit)
