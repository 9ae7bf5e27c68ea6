"""Downloads a model by its short name, and says which names there are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ferro.commands import UsageError
from ferro.report import emit, table, to_json

if TYPE_CHECKING:
    from ferro.models.known import Known


def configure(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        help="a name of --list, or OWNER/REPOSITORY/FILE.gguf of the Hugging Face hub",
    )
    parser.add_argument("--list", action="store_true", help="show the models that are known")
    parser.epilog = "models lie in FERRO_MODELS_DIR, else in ~/.local/share/ferro/models"


def run(args: argparse.Namespace) -> int:
    from ferro.models.known import known
    from ferro.models.pulling import pull

    if args.list:
        return show(args)
    if args.name is None:
        raise UsageError("name a model (`ferro pull --list` shows those that are known)")
    model = known(args.name)
    path = pull(model)
    emit(to_json(describe(model)) if args.json else str(path))
    return 0


def show(args: argparse.Namespace) -> int:
    from ferro.models.known import MODELS

    if args.json:
        emit(to_json([describe(model) for model in MODELS]))
        return 0
    rows = [[m.name, m.megabytes, m.is_here, m.about, str(m.source)] for m in MODELS]
    emit(table(["name", "MB", "here", "model", "from"], rows))
    return 0


def describe(model: Known) -> dict[str, Any]:
    return {
        "name": model.name,
        "about": model.about,
        "file": model.file,
        "megabytes": model.megabytes,
        "source": str(model.source),
        "path": str(model.path) if model.is_here else None,
    }
