"""Chromium, as Debian has it, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
PATIENCE_MS = 60_000


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def tab(browser: Browser, url: str, **settings: Any) -> Iterator[Page]:
    """Nothing may go wrong in it, and nothing be loaded from elsewhere."""
    context = browser.new_context(**{"viewport": DESKTOP, **settings})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.wrong = wrong  # type: ignore[attr-defined]  # for tests that ask for a refusal

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: _check(request.url, url, wrong))
    try:
        page.goto(url)
        yield page
        assert not wrong, wrong
    finally:
        context.close()


def _check(asked: str, url: str, wrong: list[str]) -> None:
    if not asked.startswith((url, "blob:", url.replace("http", "ws", 1))):
        wrong.append(f"it asks {asked}")
