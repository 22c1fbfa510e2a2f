"""Reductions, scans and atomics on carrier arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phobos.ir import tile as ir
from phobos.ir.types import DType
from phobos.ir.walk import walk
from phobos.reference.memory import Region, occurrence_rank
from phobos.reference.numerics import Array, carrier_dtype, from_storage, round_value, to_storage

Combine = Callable[[Any, Any], Any]


def reduce(x: Array, kind: str, axis: int | None, dtype: DType, float64: bool) -> Array:
    """A built-in reduction; `axis` keeps extent 1, None gives a scalar. Float sums and products are computed in
    float64 and rounded once: the best estimate of any summation order. Integers wrap."""
    keep = axis is not None
    if kind == "max":
        return np.asarray(np.max(x, axis=axis, keepdims=keep))
    if kind == "min":
        return np.asarray(np.min(x, axis=axis, keepdims=keep))
    if kind in ("argmax", "argmin"):
        # NumPy takes the first NaN, else the first extreme.
        fn = np.argmax if kind == "argmax" else np.argmin
        return np.asarray(fn(x, axis=axis, keepdims=keep)).astype(np.int32)
    total = np.sum if kind == "sum" else np.prod
    if dtype.is_float:
        wide = np.asarray(total(x.astype(np.float64), axis=axis, keepdims=keep))
        return wide if float64 else round_value(wide, dtype)
    return np.asarray(total(x, axis=axis, keepdims=keep, dtype=carrier_dtype(dtype)))


def scan(x: Array, axis: int, dtype: DType, float64: bool) -> Array:
    """Inclusive prefix sums: floats summed in float64, each rounded once."""
    if dtype.is_float:
        wide = np.cumsum(x.astype(np.float64), axis=axis)
        return wide if float64 else round_value(wide, dtype)
    return np.asarray(np.cumsum(x, axis=axis, dtype=carrier_dtype(dtype)))


def combiner(block: ir.Block, call: Combine) -> Combine:
    """`call` on whole arrays: as it is where the block is straight-line, element by element where it branches."""
    if not any(isinstance(op, (ir.If, ir.For, ir.While)) for op in walk(block)):
        return call
    return np.vectorize(call)


def fold(x: Array, axis: int | None, combine: Combine, init: Any) -> Array:
    """combine(...combine(combine(init, x0), x1)..., xn) along the axis (kept with extent 1) or over the whole tile in
    row-major order."""
    lanes = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    total: Any = np.broadcast_to(np.asarray(init, dtype=x.dtype), lanes.shape[1:])
    for row in lanes:
        total = np.asarray(combine(total, row), dtype=x.dtype)
    total = np.broadcast_to(total, lanes.shape[1:])
    return total if axis is None else np.expand_dims(total, axis)


def atomic(array: Array, part: Region, kind: str, values: list[Array], dtype: DType, float64: bool) -> Array:
    """Read-modify-write of the elements that exist; returns the old values (0 where masked), of the region's shape.

    Elements named more than once (a gather with equal indices) are updated one after the other, in row-major order.
    """
    coordinates, places = part.coordinates()
    flat = [np.ascontiguousarray(v).reshape(-1)[places] for v in values]
    old = np.zeros(int(np.prod(part.shape, dtype=np.int64)), dtype=carrier_dtype(dtype, float64))
    keys = np.ravel_multi_index(tuple(coordinates.T), array.shape) if len(coordinates) else np.zeros(0, dtype=np.int64)
    rank = occurrence_rank(keys)
    for wave in range(int(rank.max()) + 1 if len(rank) else 0):
        chosen = rank == wave
        index = tuple(coordinates[chosen].T)
        before = from_storage(array[index], dtype, float64)
        operands = [v[chosen] for v in flat]
        if kind == "cas":
            after = np.where(before == operands[0], operands[1], before)
        elif kind == "add":
            after = before + operands[0]
            if dtype.is_float and not float64:
                after = round_value(after, dtype)
        else:
            after = (np.maximum if kind == "max" else np.minimum)(before, operands[0])
        array[index] = to_storage(after, dtype, array.dtype)
        old[places[chosen]] = before
    return old.reshape(part.shape)
