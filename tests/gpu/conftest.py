"""Tests here need a CUDA device and are skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from phobos.runtime.module import device_available

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = not device_available()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if missing:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
