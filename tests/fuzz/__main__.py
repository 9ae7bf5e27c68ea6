"""Fuzzes a target with atheris: ``python -m tests.fuzz gguf --seconds 300``.

What it finds lies in ``build/fuzz/TARGET``; a file of it that is put into
``tests/data/finds/TARGET`` is tried in every test run. Inputs that reached new code are kept in
``build/fuzz/TARGET-corpus``.
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from random import Random

import atheris

INSTRUMENTED = ["ferro.models", "ferro.commands.inspect", "jinja2", "ferro.dsl", "ferro.codegen"]
with atheris.instrument_imports(include=INSTRUMENTED):
    from tests.fuzz import chat_templates
    from tests.fuzz.targets import TARGETS

BUILD = Path(__file__).parents[2] / "build" / "fuzz"
MOST_MEMORY = 3 << 30  # of addresses: so that absurd sizes are refused as in the template's process


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="(default 60)")
    args = parser.parse_args()
    target = TARGETS[args.target]
    corpus, finds = BUILD / f"{args.target}-corpus", BUILD / args.target
    for folder in (corpus, finds):
        folder.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(target.seeds()):
        (corpus / f"seed-{i}").write_bytes(seed)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if args.target == "template":
        chat_templates.watch()

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        made = target.mutate(data, random) if random.random() < 0.7 else atheris.Mutate(data, most)
        return bytes(made[:most])

    options = [f"-max_total_time={args.seconds}", "-timeout=60", f"-artifact_prefix={finds}/"]
    options += ["-rss_limit_mb=0", "-len_control=0", "-max_len=524288"]
    if target.words:
        words = BUILD / f"{args.target}.words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
        options.append(f"-dict={words}")
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.run, custom_mutator=mutated)
    atheris.Fuzz()


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"')


main()
