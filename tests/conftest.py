"""Fixtures shared by all tests: golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with ``golden/<name>.txt`` beside the test, or write it when asked to."""
    folder = Path(request.path).parent / "golden"

    def check(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {path}: run pytest with --update-golden"
        assert path.read_text() == text

    return check
