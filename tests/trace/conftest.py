"""Headless Chromium for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
).split()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    programs = {n: shutil.which(n) for n in ("chromium", "chromedriver")}
    missing = [n for n, path in programs.items() if path is None]
    if missing:
        pytest.fail(
            f"{' and '.join(missing)} not found (Debian: apt-get install chromium chromium-driver); "
            "PHOBOS_NO_BROWSER=1 leaves these tests out"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs["chromedriver"])))
    yield driver
    driver.quit()
