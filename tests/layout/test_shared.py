"""Shared-memory layouts: offsets, swizzles, aligned accesses."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.layout.shared import SharedLayout, wavefronts

few = settings(max_examples=40, deadline=None)


@st.composite
def shared_layouts(draw: st.DrawFn) -> SharedLayout:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 7, 8, 16, 20]), min_size=1, max_size=3)))
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    order = tuple(draw(st.permutations(range(len(shape)))))
    pitch = shape[order[-1]] + draw(st.sampled_from([0, 0, 1, 3, 8]))
    swizzle = draw(st.sampled_from([0, 0, 2, 4, 8]))
    if swizzle:
        group = 16 * swizzle // itemsize
        pitch = -(-pitch // group) * group
    return SharedLayout(shape, itemsize, order, pitch, swizzle)


@few
@given(shared_layouts())
def test_every_element_has_bytes_of_its_own_inside_the_tile(layout: SharedLayout) -> None:
    offsets = [layout.offset(p) for p in product(*map(range, layout.shape))]
    assert len(set(offsets)) == len(offsets)
    assert all(o % layout.itemsize == 0 and 0 <= o <= layout.bytes - layout.itemsize for o in offsets)


@few
@given(shared_layouts())
def test_strides_and_sizes(layout: SharedLayout) -> None:
    shape, strides = layout.shape, layout.strides
    assert strides[layout.order[-1]] == 1
    if len(shape) > 1:
        assert strides[layout.order[-2]] == layout.pitch
    assert layout.elements == layout.pitch * int(np.prod(shape)) // shape[layout.order[-1]]
    assert layout.bytes == layout.elements * layout.itemsize
    if not layout.swizzle:
        for position in product(*map(range, shape)):
            assert layout.offset(position) == layout.itemsize * int(np.dot(position, strides))


@few
@given(shared_layouts())
def test_swizzle_permutes_the_chunks_of_a_line(layout: SharedLayout) -> None:
    plain = SharedLayout(layout.shape, layout.itemsize, layout.order, layout.pitch)
    for position in product(*map(range, layout.shape)):
        a, b = plain.offset(position), layout.offset(position)
        line = layout.pitch * layout.itemsize
        assert a // line == b // line, "an element stays in its line"
        assert a % 16 == b % 16, "and in its place of a chunk"
        assert (a ^ b) < max(16 * layout.swizzle, 1)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("row", [32, 64, 128, 256, 384, 512])
def test_swizzled_rows_are_read_and_written_without_conflicts(row: int, itemsize: int) -> None:
    """Eight rows of a matrix load, in any column of chunks, are one wavefront; so is each quarter of a copy along rows.
    An aligned half of 32 bytes stays one: it is what a copy past the L1 cache writes at a time."""
    columns = row // itemsize
    layout = SharedLayout.swizzled((64, columns), itemsize)
    assert layout is not None and layout.bytes == 64 * row
    chunk = 16 // itemsize
    for first in range(0, 64, 8):
        for column in range(0, columns, chunk):
            assert wavefronts([layout.offset((first + r, column)) for r in range(8)], 16) == 1
    chunks = [(n * chunk // columns, n * chunk % columns) for n in range(64 * columns // chunk)]
    for first in range(0, len(chunks), 8):
        assert wavefronts([layout.offset(p) for p in chunks[first : first + 8]], 16) == 1
    for a, b in zip(chunks[::2], chunks[1::2]):
        assert layout.offset(a) // 32 == layout.offset(b) // 32
    assert {layout.offset((r, c)) for r in range(64) for c in range(columns)} == set(range(0, 64 * row, itemsize))


@pytest.mark.parametrize("row", [16, 48, 96, 160, 320])
def test_rows_that_cannot_be_swizzled(row: int) -> None:
    assert SharedLayout.swizzled((64, row // 2), 2) is None


@few
@given(shared_layouts())
def test_indexes_of_many_positions(layout: SharedLayout) -> None:
    found = layout.index([*np.indices(layout.shape)]) * layout.itemsize
    for position in product(*map(range, layout.shape)):
        assert found[position] == layout.offset(position)


@few
@given(shared_layouts(), st.sampled_from([1, 2, 4, 8, 16]))
def test_vectors_are_contiguous_and_aligned(layout: SharedLayout, most: int) -> None:
    rank = len(layout.shape)
    for axis in range(rank):
        width = layout.vector_width(axis, most)
        assert 1 <= width <= most and width & (width - 1) == 0
        for position in product(*map(range, layout.shape)):
            if position[axis] % width or position[axis] + width > layout.shape[axis]:
                continue
            parts = [layout.offset((*position[:axis], position[axis] + v, *position[axis + 1 :])) for v in range(width)]
            assert parts[0] % (width * layout.itemsize) == 0
            assert parts == [parts[0] + v * layout.itemsize for v in range(width)]


def test_row_major_with_padding() -> None:
    layout = SharedLayout.row_major((4, 32), 4, pad=1)
    assert layout.strides == (33, 1)
    assert layout.bytes == 4 * 33 * 4
    assert layout.vector_width(1, 4) == 1
    assert SharedLayout.row_major((4, 32), 4).vector_width(1, 8) == 4
    assert str(layout) == "4x32 order (0, 1) pitch 33"


@pytest.mark.parametrize(
    "shape, order, pitch, swizzle, complaint",
    [
        ((4, 8), (0, 0), 8, 0, "does not name the axes"),
        ((4, 8), (0,), 8, 0, "does not name the axes"),
        ((4, 8), (0, 1), 7, 0, "smaller than a line"),
        ((4, 8), (1, 0), 3, 0, "smaller than a line"),
        ((4, 8), (0, 1), 8, 4, "whole groups of 16-byte chunks"),
    ],
)
def test_what_is_no_layout(shape: tuple, order: tuple, pitch: int, swizzle: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SharedLayout(shape, 4, order, pitch, swizzle)
