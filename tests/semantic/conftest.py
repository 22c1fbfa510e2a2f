"""The seed's kernel as text."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def seed() -> str:
    return (Path(__file__).resolve().parents[2] / "examples" / "flash_attention_fp32.ph").read_text(encoding="utf-8")
