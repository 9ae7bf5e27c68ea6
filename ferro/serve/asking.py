"""What a request asks for: fields of the protocol to sampling, options and tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferro.models.completion import BadRequest, Options
from ferro.models.sampler import BadSampling, Sampling
from ferro.serve.errors import bad
from ferro.serve.fields import Fields
from ferro.serve.parameters import Flag, Free, Object, Parameter, Real, Text, Whole
from ferro.serve.served import Served

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

REALS = {  # by fields of Sampling
    "temperature": Real(("temperature",), 0.0, 1000.0),
    "top_p": Real(("top_p",), 0.0, 1.0),
    "min_p": Real(("min_p",), 0.0, 1.0),
    "repeat_penalty": Real(("repetition_penalty", "repeat_penalty"), 0.01, 100.0),
    "presence_penalty": Real(("presence_penalty",), -2.0, 2.0),
    "frequency_penalty": Real(("frequency_penalty",), -2.0, 2.0),
}
SEED_BITS = 63
TOP_K = Whole(("top_k",), -1)
WINDOW = Whole(("repeat_last_n", "penalty_last_n"), -1)
PENALIZE_PROMPT = Flag(("penalize_prompt",))
SEED = Whole(("seed",), -(1 << SEED_BITS), (1 << SEED_BITS) - 1)
BIASES = Free(("logit_bias",), {"anyOf": [
    {"type": "object", "propertyNames": {"pattern": "^[0-9]+$"},
     "additionalProperties": {"type": "number"}},
    {"type": "array", "items": {"type": "array"}},
]})  # fmt: skip
MOST_TOKENS = Whole(("max_completion_tokens", "max_tokens", "n_predict"), -1)
STOPS = Free(("stop",), {"anyOf": [
    {"type": "string", "maxLength": LONGEST_STOP},
    {"type": "array", "maxItems": MOST_STOPS,
     "items": {"type": "string", "maxLength": LONGEST_STOP}},
]})  # fmt: skip
CHOICES = Whole(("n", "n_cmpl"), 1, MOST_CHOICES)
TIMEOUT = Real(("timeout",), 0.001)
IGNORE_EOS = Flag(("ignore_eos",))
CACHED = Flag(("cache_prompt",), usual=True)
STREAM = Flag(("stream",))
USAGE = Flag(("include_usage",))
STREAM_OPTIONS = Object(("stream_options",), (USAGE,))
MODEL = Text(("model",))

# what every request for text may have
COMMON: tuple[Parameter, ...] = (
    MODEL, MOST_TOKENS, STOPS, CHOICES, STREAM, STREAM_OPTIONS, *REALS.values(), TOP_K, SEED,
    WINDOW, PENALIZE_PROMPT, BIASES, IGNORE_EOS, CACHED, TIMEOUT,
)  # fmt: skip


@dataclass(frozen=True)
class Delivery:
    """How the answer is wanted."""

    stream: bool
    usage: bool
    warnings: tuple[str, ...]


def delivery(fields: Fields, warnings: tuple[str, ...] = ()) -> Delivery:
    """Read after everything else: fields that nobody knows are warned of."""
    stream = STREAM.read(fields)
    options = STREAM_OPTIONS.read(fields)
    usage = options is not None and USAGE.read(options)
    for name in UNSUPPORTED:
        if name in fields:
            raise fields.wrong(name, "is not supported here")
    return Delivery(stream, usage, warnings + unknown(fields))


def unknown(fields: Fields) -> tuple[str, ...]:
    """A warning of fields that nobody has read, if there are any."""
    strangers = fields.strangers(HARMLESS)
    if not strangers:
        return ()
    return (f"fields that are not known here count for nothing: {', '.join(strangers)}",)


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
            IGNORE_EOS.read(fields),
            shown=shown,
        )
    except (BadSampling, BadRequest) as error:
        raise bad(str(error)) from None


def sampling(fields: Fields, usual: Mapping[str, Any], vocabulary: int) -> Sampling:
    """How tokens are chosen: for a greedy choice nothing is recommended."""
    asked: dict[str, Any] = {}
    for name, parameter in REALS.items():
        found = parameter.read(fields)
        if found is not None:
            asked[name] = found
    top_k = TOP_K.read(fields)
    if top_k is not None:
        asked["top_k"] = max(top_k, 0)
    window = WINDOW.read(fields)
    if window is not None:
        asked["repeat_last_n"] = window
    if PENALIZE_PROMPT.name in fields:
        asked["penalise_prompt"] = PENALIZE_PROMPT.read(fields)
    seed = SEED.read(fields)
    if seed is not None and seed != -1:
        asked["seed"] = seed % (1 << SEED_BITS)
    asked["logit_bias"] = biases(fields, vocabulary)
    return Sampling(**{**({} if asked.get("temperature") == 0 else usual), **asked})


def biases(fields: Fields, vocabulary: int) -> dict[int, float]:
    """OpenAI's object of ids, or llama.cpp's array of pairs, in which false rules a token out."""
    given = BIASES.read(fields)
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list):
        raise fields.wrong("logit_bias", "must be an object of token ids and numbers")
    found = {}
    for pair in pairs:
        try:
            token, bias = int(pair[0]), -float("inf") if pair[1] is False else float(pair[1])
        except (TypeError, ValueError, OverflowError, IndexError, KeyError):
            raise fields.wrong("logit_bias", "must map token ids to numbers") from None
        if not 0 <= token < vocabulary:
            raise fields.wrong("logit_bias", f"names token {token}, there are {vocabulary}")
        # OpenAI's -100 bans a token
        found[token] = -float("inf") if bias <= -100 else min(bias, 1e6)
    return found


def most(fields: Fields, default: int | None = None) -> int | None:
    """How many tokens a completion may have; None for as many as the context holds."""
    found = MOST_TOKENS.read(fields)
    return None if found == -1 else default if found is None else found


def stops(fields: Fields) -> tuple[str, ...]:
    given = STOPS.read(fields)
    listed = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(listed, list) or not all(isinstance(stop, str) for stop in listed):
        raise fields.wrong("stop", "must be a string or an array of strings")
    if len(listed) > MOST_STOPS or any(len(stop) > LONGEST_STOP for stop in listed):
        raise fields.wrong(
            "stop", f"has more than {MOST_STOPS} strings, or one of over {LONGEST_STOP} characters"
        )
    return tuple(stop for stop in listed if stop)


def choices(fields: Fields) -> int:
    return CHOICES.read(fields) or 1


def seconds(service: Served, fields: Fields) -> float | None:
    """How long the request may take: what it asks for, within the server's limit."""
    limit = service.settings.request_seconds
    asked = TIMEOUT.read(fields)
    if asked is None:
        return limit
    return asked if limit is None else min(asked, limit)
