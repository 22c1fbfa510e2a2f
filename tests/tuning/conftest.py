"""Fixtures of the tuner's tests: a cache folder of their own, nothing remembered from other tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phobos.runtime import cache, module
from phobos.tuning import store


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PHOBOS_NO_CACHE", raising=False)
    monkeypatch.setenv("PHOBOS_JOBS", "1")
    cache._warned.clear()
    store._warned.clear()
    store._kept.clear()
    return tmp_path / "cache"


@pytest.fixture
def use_driver() -> Iterator[object]:
    """A function that makes a driver the process's own for the test."""
    before = module.use_driver(None)
    yield module.use_driver
    module.use_driver(before)
