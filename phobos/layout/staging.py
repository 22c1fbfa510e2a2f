"""The distribution of a tile for its way from global into shared memory."""

from __future__ import annotations

from phobos.layout.register import Digit, RegisterLayout, blocked
from phobos.layout.shared import SharedLayout, wavefronts


def staging(shape: tuple[int, ...], warps: int, vector: int, shared: SharedLayout) -> RegisterLayout:
    """`blocked`, except that neighbouring lines may go to the lanes in another order, if that takes fewer wavefronts.

    A warp reads the same lines of global memory in any order. Lines shorter than 128 bytes are written two or more at a
    time, and a padding that serves the readers can put neighbouring lines on common banks: lines of 64 bytes at a pitch
    of 80 take two wavefronts a quarter-warp, lines four apart take one.
    """
    if shared.order[-1] != len(shape) - 1:
        vector = 1  # neighbours along a line of memory are not neighbours there
    best = blocked(shape, warps, vector)
    least = _write_cost(best, shared)
    for place, digit in enumerate(best.lane):
        if digit.axis is None or digit.axis == shared.order[-1]:
            continue
        for low in range(1, digit.extent.bit_length() - 1):
            if digit.extent % (1 << low):
                break
            split = (
                Digit(digit.axis, digit.extent >> low, digit.stride << low),
                Digit(digit.axis, 1 << low, digit.stride),
            )
            lane = (*best.lane[:place], *split, *best.lane[place + 1 :])
            candidate = RegisterLayout.make(shape, best.reg, lane, best.warp)
            cost = _write_cost(candidate, shared)
            if cost < least:
                return candidate
    return best


def _write_cost(layout: RegisterLayout, shared: SharedLayout) -> int:
    """Wavefronts of the first write of warp 0, as wide as the layout's run in the line allows."""
    axis = shared.order[-1]
    width = min(layout.contiguous_run(axis), shared.vector_width(axis, 16)) * shared.itemsize
    inside = (layout.lane_offsets < layout.shape).all(axis=1)
    addresses = [shared.offset(position) for position in layout.lane_offsets[inside].tolist()]
    return wavefronts(addresses, min(16, width))
