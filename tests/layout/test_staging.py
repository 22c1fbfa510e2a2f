"""How tiles are spread over lanes on their way into shared memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phobos.layout.register import blocked
from phobos.layout.shared import SharedLayout, wavefronts
from phobos.layout.staging import staging


def _positions(layout, lane):
    """Position of register 0 of a lane of warp 0, by the definition of the digits."""
    position = [0] * layout.rank
    for digit in layout.lane:
        lane, value = lane // digit.extent, lane % digit.extent
        if digit.axis is not None:
            position[digit.axis] += value * digit.stride
    return position


def _warp_write(layout, shared, width):
    lanes = [_positions(layout, lane) for lane in range(32)]
    return wavefronts([shared.offset(p) for p in lanes if np.all(np.array(p) < layout.shape)], width)


@pytest.mark.parametrize(
    "shape, itemsize, pitch, vector, before, after",
    [
        ((128, 32), 2, 40, 8, 8, 4),  # lines of 64 bytes at 80: neighbours share banks, lines four apart do not
        ((128, 16), 4, 20, 4, 8, 4),
        ((64, 64), 2, 72, 8, 4, 4),  # a line fills a quarter-warp: nothing to gain
        ((32, 256), 2, 264, 8, 4, 4),
    ],
)
def test_neighbouring_lines_move_apart_where_that_avoids_conflicts(shape, itemsize, pitch, vector, before, after):
    shared = SharedLayout(shape, itemsize, (0, 1), pitch)
    width = vector * itemsize
    assert _warp_write(blocked(shape, 8, vector), shared, width) == before
    chosen = staging(shape, 8, vector, shared)
    assert _warp_write(chosen, shared, width) == after
    if before == after:
        assert chosen == blocked(shape, 8, vector)


@given(
    rows=st.sampled_from([1, 3, 8, 20, 48, 128]), columns=st.sampled_from([1, 5, 16, 24, 32, 96, 256]),
    itemsize=st.sampled_from([1, 2, 4]), pad=st.integers(0, 16), vector=st.sampled_from([1, 2, 4, 8]),
    warps=st.sampled_from([1, 2, 3, 4, 8]), turned=st.booleans(),
)  # fmt: skip
def test_every_element_has_one_owner_and_no_more_wavefronts_than_before(
    rows, columns, itemsize, pad, vector, warps, turned
):
    shape = (rows, columns)
    order = (1, 0) if turned else (0, 1)
    shared = SharedLayout(shape, itemsize, order, shape[order[-1]] + pad)
    plain = blocked(shape, warps, 1 if turned else vector)  # a line of memory is no line there
    chosen = staging(shape, warps, vector, shared)
    width = min(16, min(plain.contiguous_run(order[-1]), shared.vector_width(order[-1], 16)) * itemsize)
    assert _warp_write(chosen, shared, width) <= _warp_write(plain, shared, width)
    owners = np.zeros(shape, int)
    for warp in range(warps):
        for lane in range(32):
            for register in range(chosen.registers):
                slot = _slot(chosen, warp, lane, register)
                if slot is not None and all(p < e for p, e in zip(slot, shape)):
                    owners[tuple(slot)] += 1
    assert np.all(owners == 1)


def _slot(layout, warp, lane, register):
    """The position that a slot owns; None for a replica."""
    position = [0] * layout.rank
    for number, digits in ((register, layout.reg), (lane, layout.lane), (warp, layout.warp)):
        for digit in digits:
            number, value = number // digit.extent, number % digit.extent
            if digit.axis is None:
                if value:
                    return None
                continue
            position[digit.axis] += value * digit.stride
    return position
