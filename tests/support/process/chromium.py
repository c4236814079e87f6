"""Debian's Chromium, driven by Playwright; skipped with a reason where it is absent."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest
from fix_pipeline import UNIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

# Chromium's own traffic to other hosts is of no use here.
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Start a browser without a window."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def open_page(browser: Browser, **context: object) -> Iterator[Page]:
    """Open a page; an error of its scripts fails the test."""
    errors: list[str] = []
    with contextlib.closing(browser.new_context(**context)) as opened:  # type: ignore[arg-type]
        page = opened.new_page()
        page.set_default_timeout(6 * UNIT_S * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert errors == []
