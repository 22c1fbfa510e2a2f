"""Fixtures of the runtime's tests: a cache folder of their own, and a fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phobos.runtime import cache, module


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PHOBOS_NO_CACHE", raising=False)
    cache._warned.clear()
    return tmp_path / "cache"


@pytest.fixture
def no_driver() -> Iterator[None]:
    """Nothing remembered of a driver before and after the test."""
    before = module.use_driver(None)
    yield
    module.use_driver(before)
