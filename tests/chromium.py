"""The browser that looks at pages, where it is installed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.patience import PATIENCE_S

CHROMIUM: Final = shutil.which("chromium")
QUIET: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yields Chromium without a window, which asks nobody for updates."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()
