"""Bank conflicts and 128-byte lines, against a machine that serves one word of each bank at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.layout.shared import SharedLayout, conflict_degree, lines_128, wavefronts

few = settings(max_examples=150, deadline=None)


def served(addresses: list[int], width: int) -> int:
    """Rounds that the banks need: 4-byte words, 32 banks, one word of each bank a round, to all lanes that want it.
    Accesses of 8 bytes are taken a half-warp at a time, of 16 bytes a quarter-warp."""
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
    rounds = 0
    for start in range(0, len(addresses), lanes):
        missing = {byte // 4 for a in addresses[start : start + lanes] for byte in range(a, a + width)}
        while missing:
            taken: dict[int, int] = {}
            for word in sorted(missing):
                taken.setdefault(word % 32, word)
            missing -= set(taken.values())
            rounds += 1
    return rounds


@st.composite
def accesses(draw: st.DrawFn) -> tuple[list[int], int]:
    width = draw(st.sampled_from([1, 2, 4, 8, 16]))
    count = draw(st.sampled_from([32, 32, 32, 16, 8, 1, 5]))
    kind = draw(st.sampled_from(["any", "stride", "same"]))
    if kind == "any":
        units = draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    else:
        stride = draw(st.sampled_from([1, 2, 3, 8, 16, 31, 32, 33])) if kind == "stride" else 0
        units = [7 + stride * i for i in range(count)]
    return [u * width for u in units], width


@few
@given(accesses())
def test_wavefronts_are_rounds_of_the_banks(access: tuple[list[int], int]) -> None:
    assert wavefronts(*access) == served(*access)


@few
@given(accesses())
def test_conflict_degree_is_one_exactly_without_conflicts(access: tuple[list[int], int]) -> None:
    addresses, width = access
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
    parts = -(-len(addresses) // lanes)
    assert conflict_degree(addresses, width) == served(addresses, width) / parts


def test_no_access_has_no_conflict() -> None:
    assert wavefronts([], 4) == 0
    assert conflict_degree([], 4) == 1.0


@few
@given(accesses())
def test_lines_of_a_global_access(access: tuple[list[int], int]) -> None:
    addresses, width = access
    size = max(addresses) + width
    touched = bytearray(size)
    for a in addresses:
        touched[a : a + width] = b"\1" * width
    lines = sum(1 for start in range(0, size, 128) if any(touched[start : start + 128]))
    assert lines_128(addresses, width) == (lines, -(-sum(touched) // 128))


@pytest.mark.parametrize("pad, degree", [(0, 32.0), (1, 1.0), (2, 2.0)])
def test_columns_of_a_square_tile(pad: int, degree: float) -> None:
    """The textbook case: a warp that reads a column of f32[32, 32]."""
    layout = SharedLayout.row_major((32, 32), 4, pad)
    assert conflict_degree([layout.offset((lane, 5)) for lane in range(32)], 4) == degree


def test_swizzled_rows_of_16_bytes_do_not_conflict() -> None:
    """Eight rows of one chunk column, as ldmatrix reads them from f16[*, 64]: 8 conflicts without the swizzle, none
    with it."""
    plain = SharedLayout((64, 64), 2, (0, 1), 64)
    swizzled = SharedLayout((64, 64), 2, (0, 1), 64, swizzle=8)
    for chunk in range(8):
        rows = [(row, chunk * 8) for row in range(8)]
        assert conflict_degree([plain.offset(p) for p in rows], 16) == 8.0
        assert conflict_degree([swizzled.offset(p) for p in rows], 16) == 1.0
