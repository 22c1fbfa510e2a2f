"""Recorded accesses and their costs: wavefronts by the rule of 32 banks of 4 bytes, lines of 128 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from emulator import workloads as w
from emulator.support import Out, Shape, emulate, kernel_text

from phobos.emulator import AccessCost, conflicts
from phobos.emulator.launch import ACCESS_KINDS


def shared_text(element: str, store: str, load: str) -> str:
    """Lane l stores at element index `store` and loads at `load` of shared memory."""
    return f"""#line 1 "shared.ph"
PH_KERNEL(32, 1) k(ph_global<int> Y) {{
  const int l = ph_tid();
  const ph_shared<{element}> s = ph_smem<{element}>(0);
  for (int i = l; i < 4096; i += 32) s[i] = {element}();
  ph_syncthreads();
  ph_stv(s, {store}, {element}());
  ph_syncthreads();
  const {element} x = ph_ldv<{element}>(s, {load});
  Y[l] = x.v[0];
}}"""


def costs(text: str, granule: int = 4) -> list[AccessCost]:
    y = np.zeros(32, np.int32)
    result = emulate(text, "k", Shape(shared=65536, granule=granule), [Out(y)], record=True)
    assert not result.reports
    assert result.accesses is not None
    return conflicts(result.accesses)


# element, index of lane l, wavefronts, ideal
CASES = [
    ("ph_vec<int, 1>", "l", 1, 1),
    ("ph_vec<int, 1>", "l * 2", 2, 1),
    ("ph_vec<int, 1>", "l * 32", 32, 1),
    ("ph_vec<int, 1>", "l * 33", 1, 1),
    ("ph_vec<int, 1>", "0", 1, 1),
    ("ph_vec<int, 1>", "l / 2 * 32", 16, 1),
    ("ph_vec<int, 1>", "(l & 7) * 32 + (l >> 3)", 8, 1),
    ("ph_vec<int, 2>", "l", 2, 2),
    ("ph_vec<int, 2>", "l * 2", 4, 2),
    ("ph_vec<int, 4>", "l", 4, 4),
    ("ph_vec<int, 4>", "l * 2", 8, 4),
    ("ph_vec<int, 4>", "l * 8", 32, 4),
    ("ph_vec<int, 4>", "l * 8 + (l & 7)", 4, 4),
    ("ph_vec<int, 4>", "l / 8", 4, 4),
]


@pytest.mark.parametrize(("element", "index", "wavefronts", "ideal"), CASES)
def test_bank_conflicts(element: str, index: str, wavefronts: int, ideal: int) -> None:
    for store, load, is_write, line in ((index, "l", True, 6), ("l", index, False, 8)):
        if is_write and index in ("0", "l / 2 * 32", "l / 8"):
            continue  # lanes that write one place race
        (cost,) = [c for c in costs(shared_text(element, store, load)) if c.line == line]
        assert (cost.space, cost.kind, cost.is_write, cost.requests) == ("shared", "plain", is_write, 1)
        assert (cost.transactions, cost.ideal) == (wavefronts, ideal)
        assert cost.degree == wavefronts / ideal


def test_16_bit_elements_share_words() -> None:
    text = """#line 1 "half.ph"
PH_KERNEL(32, 1) k(ph_global<int> Y) {
  const int l = ph_tid();
  const ph_shared<unsigned short> s = ph_smem<unsigned short>(0);
  s[l] = 1;
  s[l * 64 + 64] = 1;
  Y[l] = 0;
}"""
    by_line = {c.line: c for c in costs(text, granule=2) if c.space == "shared"}
    assert (by_line[4].transactions, by_line[4].ideal) == (1, 1)
    assert (by_line[5].transactions, by_line[5].ideal) == (32, 1)


# index of lane l into an int tensor, 128-byte lines, ideal
LINES = [("l", 1, 1), ("l + 1", 2, 1), ("l * 2", 2, 1), ("l * 32", 32, 1), ("0", 1, 1), ("l * 4", 4, 1)]


@pytest.mark.parametrize(("index", "lines", "ideal"), LINES)
def test_lines_of_global_memory(index: str, lines: int, ideal: int) -> None:
    text = f"""#line 1 "lines.ph"
PH_KERNEL(32, 1) k(ph_global<const int> X, ph_global<int> Y) {{
  const int l = ph_tid();
  for (int i = 0; i < 3; i++) {{
    const int x = X[{index}];
    Y[l] = x;
  }}
}}"""
    x, y = np.zeros(4096, np.int32), np.zeros(32, np.int32)
    result = emulate(text, "k", Shape(), [x, Out(y)], record=True)
    assert result.accesses is not None
    (cost,) = [c for c in conflicts(result.accesses) if c.line == 4]
    assert (cost.space, cost.tensor, cost.requests) == ("global", 0, 3)
    assert (cost.transactions, cost.ideal) == (3 * lines, 3 * ideal)


def test_records_of_a_whole_kernel() -> None:
    arguments, _, _ = w.FLASH_MMA.make()
    result = emulate(kernel_text("flash_mma"), "flash_mma", w.FLASH_MMA.shape, arguments, record=True, workers=2)
    accesses = result.accesses
    assert accesses is not None and not result.reports
    assert set(np.unique(accesses["block"])) == {0, 1} and accesses["thread"].max() == 127
    # of each thread: copies of Q once, of 4 blocks of K and V; half as many shared writes are zero-filled: none here
    copies = accesses[accesses["kind"] == ACCESS_KINDS.index("cp_async")]
    assert len(copies) == 2 * 2 * 128 * (4 + 4 * 8)
    one = accesses[(accesses["block"] == 1) & (accesses["thread"] == 5)]
    assert np.array_equal(np.sort(one["sequence"]), np.arange(len(one)))
    # swizzled tiles: every shared access is free of conflicts
    assert all(c.degree == 1 for c in conflicts(accesses) if c.space == "shared")
    unswizzled = kernel_text("flash_mma").replace("((chunk ^ (row & 7)) << 3)", "(chunk << 3)")
    arguments, _, _ = w.FLASH_MMA.make()
    result = emulate(unswizzled, "flash_mma", w.FLASH_MMA.shape, arguments, record=True)
    assert result.accesses is not None
    assert {c.degree for c in conflicts(result.accesses) if c.kind == "ldmatrix"} == {8.0}


def test_nothing_recorded() -> None:
    arguments, _, _ = w.BLOCK_SUM.make()
    assert emulate(kernel_text("reduce"), "block_sum", w.BLOCK_SUM.shape, arguments).accesses is None
    assert conflicts(np.zeros(0, np.int64)) == []
