"""Tile IR of the seed and of a kernel with every statement, as text. PHOBOS_UPDATE_GOLDEN=1 rewrites the goldens."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from semantic.support import check

from phobos.ir.printer import print_kernel

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "flash_attention": (ROOT / "examples" / "flash_attention_fp32.ph", {"config": {"BR": 64, "BC": 32}}),
    "gemm": (ROOT / "examples" / "gemm_fp32.ph", {}),
    "softmax": (ROOT / "examples" / "softmax_fp32.ph", {}),
    "tour": (
        Path(__file__).with_name("tour.ph"),
        {"config": {"BM": 32, "BN": 16, "TH": 128, "MM": "mma"}, "dtypes": {"T": "f16"}, "consts": {"causal": True}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    path, options = CASES[name]
    text = path.read_text(encoding="utf-8")
    if not options:
        from semantic.support import module

        from phobos.semantic.signature import signatures

        (signature,) = (s for s in signatures(module(text)) if s.name == name)
        options = {"config": {n: values[len(values) // 2] for n, values in signature.space.items()}}
    printed = print_kernel(check(text, name, **options)) + "\n"
    golden = ROOT / "tests" / "golden" / "semantic" / f"{name}.ir"
    if os.environ.get("PHOBOS_UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(printed, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == printed
