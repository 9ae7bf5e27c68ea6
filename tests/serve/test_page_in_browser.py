"""The chat page in a browser, where Chromium and Playwright are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import until
from tests.serve.test_process import Served, serving

api = pytest.importorskip("playwright.sync_api")
BROWSER = shutil.which("chromium")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(0.01) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, served: Served) -> Iterator[Any]:
    made = browser.new_page(viewport={"width": 390, "height": 700})
    problems: list[str] = []
    asked: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda line: line.type == "error" and problems.append(line.text))
    made.on("request", lambda request: asked.append(request.url))
    made.goto(f"{served.url}/chat")
    yield made
    assert all(url.startswith(served.url) for url in asked)
    assert [p for p in problems if "Failed to load resource" not in p] == []
    made.close()


def say(page: Any, text: str) -> None:
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_a_chat_by_the_keyboard_alone(page: Any) -> None:
    page.evaluate("document.getElementById('max_tokens').value = 20")
    say(page, "Hello <b>there</b>")
    page.wait_for_selector(".stats")
    assert page.inner_text(".user") == "Hello <b>there</b>"
    assert "tok/s" in page.inner_text(".stats") and page.inner_text("#model") == "fake"
    say(page, "And more")
    page.wait_for_selector(".turn:nth-child(4) .stats")
    page.keyboard.press("Alt+n")
    assert page.inner_text("#log") == ""


def test_a_reply_can_be_stopped(page: Any, served: Served) -> None:
    page.evaluate("document.getElementById('max_tokens').value = 1500")
    say(page, "Hello")
    until(lambda: len(page.inner_text(".content")) > 5)
    page.keyboard.press("Escape")
    until(lambda: page.inner_text("#send") == "Send")
    until(served.idle)


def test_an_error_is_shown(page: Any) -> None:
    page.evaluate("document.getElementById('temperature').value = -3")
    say(page, "Hello")
    page.wait_for_selector(".error")
    assert "temperature" in page.inner_text(".error")


def test_a_phone_shows_the_whole_width(page: Any) -> None:
    page.click("#toggle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.is_visible("#key") and page.get_attribute("#toggle", "aria-expanded") == "true"


def test_decisions_by_the_keyboard_alone(page: Any) -> None:
    page.wait_for_selector("#tab-decide:visible")
    page.focus("#tab-chat")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#decide:visible")
    assert page.is_hidden("#log") and page.inner_text("#model") == "d1"
    page.focus("#state")
    page.keyboard.type('{"text": "<b>twice</b>"}')
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("Is it a complaint?")
    page.keyboard.press("Alt+q")
    page.keyboard.type("Which team?")
    page.select_option("fieldset:nth-child(2) select", "choice")
    page.fill("fieldset:nth-child(2) textarea", "billing: invoices\nsales")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("fieldset:nth-child(2) .share")
    assert page.locator(".share").count() == 4 and "tokens" in page.inner_text("#decided")
    assert page.inner_text("fieldset:nth-child(2) dt:nth-of-type(1)") == "billing"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_error_of_a_decision_is_shown(page: Any) -> None:
    page.click("#tab-decide")
    page.select_option("#questions select", "score")
    page.click("#answer")
    page.wait_for_selector("#decided.error")
    assert "2 to 10 levels" in page.inner_text("#decided")
