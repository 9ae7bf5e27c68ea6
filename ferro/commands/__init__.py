"""The commands, one module each: ``configure(parser)`` declares arguments, ``run(args)`` acts.

Modules here import heavy things inside ``run`` only, so that `ferro --help` stays quick.
"""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "devices": "what OpenCL offers here and what the probes found",
    "doctor": "why a device is missing, with the line that fixes it",
    "kernels": "list, show, run and bench kernels",
    "autotune": "find the fastest schedule of kernels on a device",
    "inspect": "what a model file holds, what it costs in memory, whether it runs",
    "tokenize": "token ids of a text, by the vocabulary of a model file",
    "pull": "download a model by its short name",
    "generate": "answer a prompt, or chat at the terminal, with a language model",
    "serve": "serve a language model over HTTP, as OpenAI's API has it",
    "embed": "vectors of texts, by an embedding model",
    "decide": "answer typed questions about a state with a decision model",
    "scores": "the scores of a decision model after every token of a text, as a numpy file",
    "logits": "the logits after every token of a text, as a numpy file",
    "bench": "measure prefill and decode of a language model, or sequences of an embedding model",
    "cache": "list, remove and explain compiled programs",
    "demo": "run the main kernels here and compare every bit with the interpreter",
}


class UsageError(Exception):
    """A wrong argument that the parser could not see: exit code 2."""
