"""Positions of views and tile slices: which elements an access names, and which of them are masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos.ir.tile import AtIndex, AxisIndex, AxisRange, Value
from phobos.reference.numerics import Array

Lookup = Callable[[Value], Any]


@dataclass(frozen=True)
class Axis:
    """Positions along one axis of an array of `extent`: `index` int64 of shape [n] ([1] where `drops` the axis)."""

    index: Array
    extent: int
    drops: bool
    is_range: bool
    guarded: bool

    @property
    def inside(self) -> Array:
        """Boolean [n]: which positions exist."""
        return (self.index >= 0) & (self.index < self.extent)


@dataclass(frozen=True)
class Region:
    """The elements that an access names: the product of its axes. `shape` leaves out dropped axes."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(a.index) for a in self.axes if not a.drops)

    @property
    def full_shape(self) -> tuple[int, ...]:
        """One extent per axis of the array, 1 for dropped ones."""
        return tuple(len(a.index) for a in self.axes)

    def mask(self) -> Array | None:
        """Boolean of `full_shape`, True where the element exists; None if all do."""
        flags = [a.inside for a in self.axes]
        if all(f.all() for f in flags):
            return None
        return _outer(flags)

    def unguarded_outside(self) -> int | None:
        """The first axis whose mask was left out (`guarded` False) although a position is outside."""
        for number, axis in enumerate(self.axes):
            if not axis.guarded and not axis.inside.all():
                return number
        return None

    def slices(self) -> tuple[slice, ...] | None:
        """Basic slices naming the same elements, where all positions exist and no axis gathers."""
        out = []
        for axis in self.axes:
            if not axis.is_range:
                return None
            first, last = int(axis.index[0]), int(axis.index[-1])
            if first < 0 or last >= axis.extent:
                return None
            out.append(slice(first, last + 1))
        return tuple(out)

    def read(self, array: Array, fill: Any = 0) -> Array:
        """A copy (or a slice of `array`) of `shape`; elements that do not exist are `fill`."""
        slices = self.slices()
        if slices is not None:
            return np.asarray(array[slices]).reshape(self.shape)
        mask = self.mask()
        if mask is not None and not mask.any():
            return np.full(self.shape, fill, dtype=array.dtype)
        index = np.ix_(*(np.clip(a.index, 0, a.extent - 1) for a in self.axes))
        values = array[index]
        if mask is not None:
            values = np.where(mask, values, np.asarray(fill, dtype=array.dtype))
        return values.reshape(self.shape)

    def write(self, array: Array, values: Array) -> None:
        """Writes values of `shape` in place; elements that do not exist are skipped."""
        values = np.asarray(values).reshape(self.full_shape)
        slices = self.slices()
        if slices is not None:
            array[slices] = values
            return
        flags = [a.inside for a in self.axes]
        if not all(f.any() for f in flags):
            return
        index = np.ix_(*(a.index[f] for a, f in zip(self.axes, flags, strict=True)))
        array[index] = values[np.ix_(*flags)]

    def coordinates(self) -> tuple[Array, Array]:
        """([count, rank] int64 positions of the elements that exist, [count] their places in the flattened region)."""
        mask = self.mask()
        grids = np.broadcast_arrays(*np.ix_(*(a.index for a in self.axes))) if self.axes else []
        flat = np.stack([g.ravel() for g in grids], axis=1)
        places = np.arange(flat.shape[0]) if mask is None else np.flatnonzero(mask)
        return flat[places], places


def _outer(flags: Sequence[Array]) -> Array:
    out = np.ones((1,) * len(flags), dtype=np.bool_)
    for number, flag in enumerate(flags):
        shape = [1] * len(flags)
        shape[number] = len(flag)
        out = out & flag.reshape(shape)
    return out


def region(axes: Sequence[AxisIndex], shape: Sequence[int], lookup: Lookup) -> Region:
    """The region that `axes` name in an array of `shape`; `lookup` gives the value of an SSA value."""
    out = []
    for axis, extent in zip(axes, shape, strict=True):
        if isinstance(axis, AxisRange):
            # Beyond any tensor, and far enough from the ends of int64 that the sum does not wrap.
            start = min(max(int(lookup(axis.start)), -(2**62)), 2**62)
            index = start + np.arange(axis.length, dtype=np.int64)
            out.append(Axis(index, extent, False, True, axis.guarded))
        elif isinstance(axis, AtIndex):
            index = np.asarray([lookup(axis.index)]).astype(np.int64)
            out.append(Axis(index, extent, True, True, True))
        else:
            out.append(Axis(np.asarray(lookup(axis.index)).astype(np.int64), extent, False, False, True))
    return Region(tuple(out))


def occurrence_rank(keys: Array) -> Array:
    """For each of [n] keys, how many equal keys come before it: elements of one rank have distinct keys."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(keys) else np.zeros(0, dtype=np.bool_)
    first = np.maximum.accumulate(np.where(starts, np.arange(len(keys)), 0))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - first
    return rank
