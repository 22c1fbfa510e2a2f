"""Slots of threads as arrays: registers in the order in which the emitted loops visit them, positions, fragments.

Arrays over slots have the shape [warps, 32, registers], as `RegisterLayout.positions` has it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from phobos.ir.storage import FragmentRef
from phobos.layout.loops import Nest
from phobos.layout.register import WARP, Digit, RegisterLayout

Array = np.ndarray


def register_order(nest: Nest) -> list[int]:
    """Number of the first register of each turn of the loops, in the order of execution."""
    weights: list[int] = []
    total = 1
    for d in nest.layout.reg:
        weights.append(total)
        total *= d.extent
    steps = [weights[g.digits[0]] * (nest.vector if g.digits[0] == 0 else 1) for g in nest.groups]
    ranges = [range(g.extent) for g in nest.groups]
    return [sum(v * s for v, s in zip(values, steps)) for values in product(*ranges)]


@lru_cache(maxsize=512)
def _kept(reg: tuple[Digit, ...], axes: frozenset[int]) -> tuple[int, ...]:
    """For each register of a layout: the register in a fragment that has the digits of `axes` only."""
    out = [0]
    weight = 1
    for d in reg:
        step = weight if d.axis in axes else 0
        out = [base + value * step for value in range(d.extent) for base in out]
        weight *= d.extent if d.axis in axes else 1
    return tuple(out)


def kept_registers(layout: RegisterLayout, axes: frozenset[int]) -> Array:
    return np.array(_kept(layout.reg, axes))


def fragment_registers(layout: RegisterLayout, ref: FragmentRef) -> Array:
    """For each register of `layout`: the register of the fragment that a statement over `layout` reads."""
    if ref.axes is not None:
        return kept_registers(layout, frozenset(ref.axes))
    shape = ref.fragment.layout.shape
    return kept_registers(
        layout, frozenset(a for a in range(layout.rank) if not (shape[a] == 1 and layout.shape[a] != 1))
    )


def digit_zero(digits: tuple[Digit, ...], count: int, dropped: tuple[int, ...] = ()) -> Array:
    """Boolean [count]: all replica digits, and those along `dropped` axes, are 0."""
    out = np.ones(count, dtype=bool)
    index = np.arange(count)
    for d in digits:
        if d.axis is None or d.axis in dropped:
            out &= index % d.extent == 0
        index = index // d.extent
    return out


def owner_threads(layout: RegisterLayout, dropped: tuple[int, ...] = ()) -> Array:
    """Boolean [warps, 32, 1]: threads that are no replicas; of lanes along `dropped` axes only the first."""
    warp = digit_zero(layout.warp, layout.warps)
    lane = digit_zero(layout.lane, WARP, dropped)
    return (warp[:, None] & lane[None, :])[:, :, None]


def warp_part(layout: RegisterLayout, axes: tuple[int, ...]) -> Array:
    """Which of the warps that share lines along `axes` each warp is: int [warps, 1, 1]."""
    out = np.zeros(layout.warps, dtype=np.int64)
    index = np.arange(layout.warps)
    weight = 1
    for d in layout.warp:
        if d.axis in axes:
            out += index % d.extent * weight
            weight *= d.extent
        index = index // d.extent
    return out[:, None, None]


def to_tile(layout: RegisterLayout, slots: Array) -> Array:
    """The tile that slots hold, by their owners."""
    out = np.zeros(layout.shape, dtype=slots.dtype)
    owners = layout.owners
    out[tuple(layout.positions[owners].T)] = slots[owners]
    return out


def from_tile(layout: RegisterLayout, tile: Array) -> Array:
    """What each slot holds of the tile; padding holds zero."""
    at = np.minimum(layout.positions, np.array(layout.shape) - 1)
    values = tile[tuple(np.moveaxis(at, -1, 0))]
    return np.where(layout.valid, values, np.zeros((), tile.dtype))
