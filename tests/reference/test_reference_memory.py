"""Loads, stores, gathers, slices of tiles and atomics, against loops over single elements in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir.builder import Builder

from phobos.diagnostics import LaunchError
from phobos.ir import tile as ir
from phobos.ir.verify import verify
from phobos.reference import run
from phobos.reference.numerics import encode_bits

FILL = -5.0

# An axis: ("range", start, length), ("at", position) or ("by", positions).
Axis = tuple[Any, ...]


def positions(axis: Axis) -> list[int]:
    if axis[0] == "range":
        return list(range(axis[1], axis[1] + axis[2]))
    return [axis[1]] if axis[0] == "at" else list(axis[1])


def shape_of(axes: list[Axis]) -> tuple[int, ...]:
    return tuple(len(positions(a)) for a in axes if a[0] != "at")


def elements(axes: list[Axis]) -> list[tuple[int, ...]]:
    """Positions of all elements in row-major order."""
    out: list[tuple[int, ...]] = [()]
    for axis in axes:
        out = [(*p, i) for p in out for i in positions(axis)]
    return out


def build_axes(b: Builder, axes: list[Axis]) -> list[ir.AxisIndex]:
    out: list[ir.AxisIndex] = []
    for number, axis in enumerate(axes):
        if axis[0] == "range":
            out.append(b.range(axis[1], axis[2]))
        elif axis[0] == "at":
            out.append(b.at(axis[1]))
        else:
            table = b.tensor(f"I{number}", "i32", len(axis[1]))
            out.append(b.by(b.load(table, [b.range(0, len(axis[1]))])))
    return out


def index_arguments(axes: list[Axis]) -> dict[str, np.ndarray]:
    return {f"I{n}": np.array(a[1], np.int32) for n, a in enumerate(axes) if a[0] == "by"}


@st.composite
def accesses(draw: st.DrawFn, distinct: bool = False) -> tuple[tuple[int, ...], list[Axis]]:
    """A tensor shape of rank 1 to 4 and subscripts whose tile has at most 3 axes, partly outside."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(0, 5)) for _ in range(rank))
    axes: list[Axis] = []
    gathered = False
    for number in range(rank):
        kinds = ["at"] if len(shape_of(axes)) == 3 else ["range", "at"] + ([] if gathered else ["by"])
        kind = draw(st.sampled_from(kinds))
        if kind == "range":
            axes.append(("range", draw(st.integers(-6, 7)), draw(st.integers(1, 6))))
        elif kind == "at":
            axes.append(("at", draw(st.integers(-2, shape[number] + 1))))
        else:
            gathered = True
            index = st.lists(st.integers(-3, 6), min_size=1, max_size=5, unique=distinct)
            axes.append(("by", tuple(draw(index))))
    return shape, axes


def strided(values: np.ndarray, how: int) -> np.ndarray:
    """The same values in an array that is contiguous, reversed, transposed in memory or with gaps."""
    if how == 0:
        return values.copy()
    if how == 1:
        return values[::-1].copy()[::-1]
    if how == 2:
        return np.asfortranarray(values)
    wide = np.zeros(tuple(2 * n + 1 for n in values.shape), values.dtype)
    view = wide[tuple(slice(1, None, 2) for _ in values.shape)]
    view[...] = values
    return view


@settings(max_examples=150, deadline=None)
@given(access=accesses(), how=st.integers(0, 3), with_fill=st.booleans())
def test_load_reads_or_fills(access: tuple[tuple[int, ...], list[Axis]], how: int, with_fill: bool) -> None:
    shape, axes = access
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    out_shape = shape_of(axes)
    b = Builder()
    x, y = b.tensor("X", "f32", *shape), b.tensor("Y", "f32", *(out_shape or (1,)))
    loaded = b.load(x, build_axes(b, axes), fill=FILL if with_fill else 0)
    b.store(y, [b.range(0, n) for n in out_shape] or [b.at(0)], loaded)
    kernel = b.finish()
    verify(kernel)
    got = np.full(out_shape or (1,), np.nan, np.float32)
    run(kernel, {"X": strided(values, how), "Y": got, **index_arguments(axes)})
    expected = [
        float(values[p]) if all(0 <= i < n for i, n in zip(p, shape, strict=True)) else FILL if with_fill else 0.0
        for p in elements(axes)
    ]
    assert got.ravel().tolist() == expected


@settings(max_examples=150, deadline=None)
@given(access=accesses(distinct=True), how=st.integers(0, 3))
def test_store_writes_only_what_exists(access: tuple[tuple[int, ...], list[Axis]], how: int) -> None:
    shape, axes = access
    in_shape = shape_of(axes)
    values = np.arange(1, np.prod(in_shape) + 1, dtype=np.int32).reshape(in_shape)
    b = Builder()
    x, y = b.tensor("X", "i32", *(in_shape or (1,))), b.tensor("Y", "i32", *shape)
    tile = b.load(x, [b.range(0, n) for n in in_shape] or [b.at(0)])
    b.store(y, build_axes(b, axes), tile)
    kernel = b.finish()
    verify(kernel)
    before = -np.arange(1, np.prod(shape) + 1, dtype=np.int32).reshape(shape)
    array = strided(before, how)
    run(kernel, {"X": values.reshape(in_shape or (1,)), "Y": array, **index_arguments(axes)})
    expected = before.copy()
    for number, p in enumerate(elements(axes)):
        if all(0 <= i < n for i, n in zip(p, shape, strict=True)):
            expected[p] = values.ravel()[number]
    assert np.array_equal(array, expected)
    if how == 3:  # the gaps between the elements are untouched
        whole = array.base
        assert whole is not None and np.count_nonzero(whole) == np.count_nonzero(expected)


@settings(max_examples=120, deadline=None)
@given(
    access=accesses(),
    kind=st.sampled_from(["add", "max", "min"]),
    dtype=st.sampled_from(["i32", "f32"]),
    data=st.data(),
)
def test_atomics_update_in_order_and_give_the_old_value(
    access: tuple[tuple[int, ...], list[Axis]], kind: str, dtype: str, data: st.DataObject
) -> None:
    shape, axes = access
    in_shape = shape_of(axes)
    count = len(elements(axes))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    np_dtype = np.dtype({"i32": np.int32, "f32": np.float32}[dtype])
    values = rng.integers(-9, 10, count).astype(np_dtype)
    memory = rng.integers(-9, 10, shape).astype(np_dtype)
    b = Builder()
    x = b.tensor("X", dtype, *(in_shape or (1,)))
    y, z = b.tensor("Y", dtype, *shape), b.tensor("Z", dtype, *(in_shape or (1,)))
    whole = [b.range(0, n) for n in in_shape] or [b.at(0)]
    old = b.atomic(kind, y, build_axes(b, axes), b.load(x, whole))
    assert old is not None
    b.store(z, whole, old)
    kernel = b.finish()
    verify(kernel)
    got, olds = memory.copy(), np.full(in_shape or (1,), 99, np_dtype)
    run(kernel, {"X": values.reshape(in_shape or (1,)), "Y": got, "Z": olds, **index_arguments(axes)})
    expected, expected_old = memory.copy(), []
    fn = {"add": lambda a, c: a + c, "max": max, "min": min}[kind]
    for value, p in zip(values.tolist(), elements(axes), strict=True):
        inside = all(0 <= i < n for i, n in zip(p, shape, strict=True))
        expected_old.append(expected[p].item() if inside else 0)
        if inside:
            expected[p] = fn(expected[p].item(), value)
    assert np.array_equal(got, expected)
    assert olds.ravel().tolist() == expected_old


def test_atomic_cas_exchanges_where_equal() -> None:
    b = Builder()
    y, z = b.tensor("Y", "i32", 4), b.tensor("Z", "i32", 4)
    whole = [b.range(0, 4)]
    old = b.atomic("cas", y, whole, b.full("i32", (4,), 3), b.full("i32", (4,), 8))
    assert old is not None
    b.store(z, whole, old)
    kernel = b.finish()
    verify(kernel)
    got, olds = np.array([3, 1, 3, 0], np.int32), np.zeros(4, np.int32)
    run(kernel, {"Y": got, "Z": olds})
    assert got.tolist() == [8, 1, 8, 0] and olds.tolist() == [3, 1, 3, 0]


def test_atomics_of_all_blocks_meet_in_one_scalar() -> None:
    b = Builder()
    x, total = b.tensor("X", "f32", "N"), b.tensor("T", "f32", 1)
    tile = b.load(x, [b.range(b.mul(b.program_id(), 8), 8)])
    b.atomic("add", total, [b.at(0)], b.reduce(tile, "sum", None), result=False)
    kernel = b.finish(grid=(("N", 8),))
    verify(kernel)
    values, out = np.arange(21, dtype=np.float32), np.zeros(1, np.float32)
    assert run(kernel, {"X": values, "T": out}).grid == (3, 1, 1)
    assert out[0] == values.sum()


@settings(max_examples=80, deadline=None)
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_slices_of_tiles(shape: list[int], data: st.DataObject) -> None:
    axes: list[Axis] = [
        ("at", data.draw(st.integers(-2, n + 1)))
        if data.draw(st.booleans())
        else ("range", data.draw(st.integers(-3, n + 1)), data.draw(st.integers(1, 5)))
        for n in shape
    ]
    part = shape_of(axes)
    b = Builder()
    x, v = b.tensor("X", "f32", *shape), b.tensor("V", "f32", *(part or (1,)))
    y, z = b.tensor("Y", "f32", *(part or (1,))), b.tensor("Z", "f32", *shape)
    tile = b.load(x, [b.range(0, n) for n in shape])
    whole = [b.range(0, n) for n in part] or [b.at(0)]
    b.store(y, whole, b.extract(tile, build_axes(b, axes)))
    b.store(z, [b.range(0, n) for n in shape], b.insert(tile, build_axes(b, axes), b.load(v, whole)))
    kernel = b.finish()
    verify(kernel)
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    new = -np.arange(1, np.prod(part) + 1, dtype=np.float32).reshape(part or (1,))
    got, inserted = np.full(part or (1,), np.nan, np.float32), np.full(shape, np.nan, np.float32)
    run(kernel, {"X": values, "V": new, "Y": got, "Z": inserted})
    expected = values.copy()
    for number, p in enumerate(elements(axes)):
        inside = all(0 <= i < n for i, n in zip(p, shape, strict=True))
        assert got.ravel()[number] == (values[p] if inside else 0)
        if inside:
            expected[p] = new.ravel()[number]
    assert np.array_equal(inserted, expected)


def test_gather_from_a_tile_reads_zero_outside() -> None:
    b = Builder()
    t, i, y = b.tensor("T", "f32", 3, 2), b.tensor("I", "i64", 5), b.tensor("Y", "f32", 5, 2)
    table = b.load(t, [b.range(0, 3), b.range(0, 2)])
    b.store(y, [b.range(0, 5), b.range(0, 2)], b.gather(table, b.load(i, [b.range(0, 5)])))
    kernel = b.finish()
    verify(kernel)
    values, out = np.arange(1, 7, dtype=np.float32).reshape(3, 2), np.full((5, 2), np.nan, np.float32)
    run(kernel, {"T": values, "I": np.array([2, -1, 0, 3, 2]), "Y": out})
    assert out.tolist() == [[5, 6], [0, 0], [1, 2], [0, 0], [5, 6]]


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3", "f8e5m2"])
def test_formats_without_a_numpy_dtype_are_carried_as_bits(dtype: str) -> None:
    from phobos.ir.types import DTYPE_BY_NAME

    d = DTYPE_BY_NAME[dtype]
    b = Builder()
    x, y = b.tensor("X", dtype, "N"), b.tensor("Y", dtype, "N")
    tile = b.load(x, [b.range(0, 4)], fill=2.0)
    b.store(y, [b.range(0, 4)], b.mul(tile, 0.5))
    kernel = b.finish()
    verify(kernel)
    bits = encode_bits(np.array([1.0, -6.0, 0.0]), d)
    out = np.zeros_like(bits)
    run(kernel, {"X": bits, "Y": out})
    assert out.tolist() == encode_bits(np.array([0.5, -3.0, 0.0]), d).tolist()
    oracle = np.zeros(4)
    short = np.array([1 / 3, 1.0, 2.0])
    run(kernel, {"X": short, "Y": oracle[:3]}, float64=True)
    assert oracle.tolist() == [1 / 6, 0.5, 1.0, 0.0]


def test_an_access_without_a_mask_must_be_inside() -> None:
    b = Builder()
    x, y = b.tensor("X", "f32", "N"), b.tensor("Y", "f32", 4)
    b.store(y, [b.range(0, 4)], b.load(x, [b.range(0, 4, guarded=False)]))
    kernel = b.finish()
    run(kernel, {"X": np.zeros(4, np.float32), "Y": np.ones(4, np.float32)})
    with pytest.raises(LaunchError, match="outside axis 0 of 'X': positions 0 to 3 of 3") as error:
        run(kernel, {"X": np.zeros(3, np.float32), "Y": np.ones(4, np.float32)})
    assert error.value.diagnostics[0].code == "PH0864"


def test_stores_through_one_argument_are_seen_by_loads_of_an_overlapping_one() -> None:
    b = Builder()
    x, y = b.tensor("X", "f32", 4), b.tensor("Y", "f32", 4)
    b.store(y, [b.range(0, 4)], b.add(b.load(x, [b.range(0, 4)]), 1.0))
    b.store(y, [b.range(0, 4)], b.add(b.load(x, [b.range(0, 4)]), 1.0))
    base = np.zeros(5, np.float32)
    run(b.finish(), {"X": base[1:], "Y": base[:4]})
    # First y = x + 1 = [1 1 1 1] over base[0:4], so x is [1 1 1 0] when it is read again.
    assert base.tolist() == [2, 2, 2, 1, 0]


@pytest.mark.parametrize("dtype,name", [("bf16", "bfloat16"), ("f8e4m3", "float8_e4m3fn"), ("f8e5m2", "float8_e5m2")])
def test_extension_dtypes_stand_for_their_bits(dtype: str, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    extension = getattr(ml_dtypes, name)
    b = Builder()
    x, y = b.tensor("X", dtype, "N"), b.tensor("Y", dtype, "N")
    b.store(y, [b.range(0, 8)], b.add(b.load(x, [b.range(0, 8)]), 1.0))
    out = np.zeros(10, extension)[::2]
    run(b.finish(), {"X": np.arange(5).astype(extension), "Y": out})
    assert out.astype(np.float32).tolist() == [1, 2, 3, 4, 5]
