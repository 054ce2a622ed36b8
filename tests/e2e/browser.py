"""Chromium, driven by Playwright, for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Start the Chromium on PATH with `arguments`. Skips the test without one."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip(f"no Chromium on PATH ({', '.join(NAMES)}): install one to try the page in it")
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, chromium_sandbox=not as_root, args=list(arguments)
        )
        yield browser
        browser.close()
