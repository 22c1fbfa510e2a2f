"""README.md shows what the files in results/ hold, and nothing else."""

import pytest

from kbench.figures import BEGIN, END, ROOT, figures, filled, rows

ROW = {
    "bench": "b", "case": "8x8 f32", "impl": "phobos", "ratio": 1.234,
    "median_us": 10.06, "peer": "torch", "peer_median_us": 12.41,
    "searched": False, "device": "a card", "driver": "1", "cuda": "13.0", "torch": "2", "date": "2026-01-01",
}  # fmt: skip


def test_readme_is_up_to_date():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert filled(text, figures(rows(ROOT / "results" / "h200"))) == text


def test_rows():
    table = figures([{**ROW, "gbps": 99.6}, {**ROW, "tflops": 1.25, "peer": None, "ratio": None, "searched": True}])
    assert "| b | 8x8 f32 | 10.1 | 100 GB/s | torch | 12.4 | 1.23 |" in table
    other = figures([{**ROW, "gbps": 1.0, "impl": "phobos:wmma"}])
    assert "| b:wmma | 8x8 f32 |" in other
    assert "| b (searched) | 8x8 f32 | 10.1 | 1.2 TFLOP/s |  |  |  |" in table
    assert "a card, driver 1, CUDA 13.0, torch 2 (2026-01-01)" in table


def test_the_place_is_kept_and_must_exist():
    assert filled(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\nnew\n{END}\nb"
    with pytest.raises(ValueError, match="no place"):
        filled("nothing here", "new")
