"""Shape functions, reductions, scans and contractions against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir.types import DTYPE_BY_NAME
from phobos.ir.verify import verify
from phobos.reference import numerics, run

NP = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "u8": np.uint8, "i32": np.int32}


def evaluate(fn: Any, *inputs: tuple[str, np.ndarray], float64: bool = False) -> np.ndarray:
    """Runs `fn(builder, *tiles)` on whole-array tiles; inputs are (dtype, storage array)."""
    b = Builder()
    tiles = []
    for number, (dtype, array) in enumerate(inputs):
        param = b.tensor(f"A{number}", dtype, *array.shape)
        tiles.append(b.load(param, [b.range(0, n) for n in array.shape]))
    result = fn(b, *tiles)
    shape = result.shape or (1,)
    y = b.tensor("Y", result.dtype, *shape)
    b.store(y, [b.range(0, n) for n in result.shape] or [b.at(0)], result)
    kernel = b.finish()
    verify(kernel)
    storage = np.float64 if float64 and result.dtype.is_float else numerics.storage_dtype(result.dtype)
    out = np.zeros(shape, storage)
    run(kernel, {**{f"A{i}": a for i, (_, a) in enumerate(inputs)}, "Y": out}, float64=float64)
    return out.reshape(result.shape)


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


# --- shapes --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(shape=shapes, data=st.data())
def test_broadcast_in_arithmetic_and_by_itself(shape: tuple[int, ...], data: st.DataObject) -> None:
    def ones() -> tuple[int, ...]:
        return tuple(1 if data.draw(st.booleans()) else n for n in shape)

    rng = np.random.default_rng(0)
    a, c = (rng.standard_normal(ones()).astype(np.float32) for _ in range(2))
    assert np.array_equal(evaluate(lambda b, x, y: b.add(x, y), ("f32", a), ("f32", c)), a + c)
    got = evaluate(lambda b, x: b.broadcast(x, *shape), ("f32", a))
    assert np.array_equal(got, np.broadcast_to(a, shape))
    condition = rng.random(ones()) < 0.5
    got = evaluate(lambda b, m, x, y: b.compute("where", m, x, y), ("bool", condition), ("f32", a), ("f32", c))
    assert np.array_equal(got, np.where(condition, a, c))


@given(shape=shapes)
@settings(max_examples=20, deadline=None)
def test_iota_counts_along_its_axis(shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        assert np.array_equal(evaluate(lambda b, axis=axis: b.iota(shape, axis)), np.indices(shape)[axis])


def test_transpose_reshape_cat() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(evaluate(lambda b, x: b.transpose(x), ("f32", a)), a.transpose(0, 2, 1))
    assert np.array_equal(evaluate(lambda b, x: b.reshape(x, 4, 6), ("f32", a)), a.reshape(4, 6))
    transposed = evaluate(lambda b, x: b.reshape(b.transpose(x), 24), ("f32", a))
    assert np.array_equal(transposed, a.transpose(0, 2, 1).ravel())
    for axis in range(3):
        got = evaluate(lambda b, x, axis=axis: b.cat(axis, x, b.mul(x, 2.0), x), ("f32", a))
        assert np.array_equal(got, np.concatenate([a, 2 * a, a], axis=axis))


# --- reductions and scans --------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99), data=st.data())
def test_reductions_of_floats(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    wide = x.astype(np.float64)
    axis = data.draw(st.sampled_from([None, *range(len(shape))]))
    keep = axis is not None
    for kind, fn in (("sum", np.sum), ("prod", np.prod)):
        expected = fn(wide, axis=axis, keepdims=keep)
        magnitude = np.sum(np.abs(wide), axis=axis, keepdims=keep) if kind == "sum" else np.abs(expected)
        got = evaluate(lambda b, t, kind=kind: b.reduce(t, kind, axis), ("f32", x))
        # 2^-149: a product below the normal range is rounded to a multiple of the least f32.
        assert np.all(np.abs(got - expected) <= 2.0**-23 * magnitude + 2.0**-149)
        oracle = evaluate(lambda b, t, kind=kind: b.reduce(t, kind, axis), ("f32", x), float64=True)
        assert np.all(np.abs(oracle - expected) <= 2.0**-48 * magnitude)
    for kind, fn in (("max", np.max), ("min", np.min)):
        got = evaluate(lambda b, t, kind=kind: b.reduce(t, kind, axis), ("f32", x))
        assert np.array_equal(got, fn(x, axis=axis, keepdims=keep))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_max_and_min_propagate_nan_and_arg_takes_the_first(axis: int | None) -> None:
    x = np.array([[3, 1, 3, 1], [2, 2, 2, 2], [1, 3, 3, 0]], np.float32)
    for kind, pick in (("argmax", max), ("argmin", min)):
        got = evaluate(lambda b, t, kind=kind: b.reduce(t, kind, axis), ("f32", x))
        lines = [x.ravel()] if axis is None else list(x.T if axis == 0 else x)
        assert got.dtype == np.int32
        assert got.ravel().tolist() == [line.tolist().index(pick(line.tolist())) for line in lines]
    x[1, 2] = np.nan
    for kind in ("max", "min"):
        got = evaluate(lambda b, t, kind=kind: b.reduce(t, kind, axis), ("f32", x))
        expected = {None: [True], 0: [False, False, True, False], 1: [False, True, False]}[axis]
        assert np.isnan(got).ravel().tolist() == expected
    masked = np.full((2, 4), -np.inf, np.float32)
    assert np.all(evaluate(lambda b, t: b.reduce(t, "max", 1), ("f32", masked)) == -np.inf)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32"])
def test_integer_sums_wrap(dtype: str) -> None:
    top = np.iinfo(NP[dtype]).max
    x = np.array([[top, 1, 1], [1, 2, 3]], NP[dtype])
    exact = [int(v) for v in x.astype(object).sum(axis=1)]
    bits = 8 * x.itemsize
    wrap = [v % (1 << bits) for v in exact]
    if dtype[0] == "i":
        wrap = [v - (1 << bits) if v >> (bits - 1) else v for v in wrap]
    assert evaluate(lambda b, t: b.reduce(t, "sum", 1), (dtype, x)).ravel().tolist() == wrap
    scanned = evaluate(lambda b, t: b.scan(t, 1), (dtype, x))
    assert scanned[:, -1].tolist() == wrap and scanned[1].tolist() == [1, 3, 6]


@settings(max_examples=40, deadline=None)
@given(shape=shapes, seed=st.integers(0, 99))
def test_scan_is_the_inclusive_prefix_sum(shape: tuple[int, ...], seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    for axis in range(len(shape)):
        got = evaluate(lambda b, t, axis=axis: b.scan(t, axis), ("f32", x))
        bound = np.cumsum(np.abs(x.astype(np.float64)), axis=axis) * 2.0**-23
        assert np.all(np.abs(got - np.cumsum(x.astype(np.float64), axis=axis)) <= bound)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_custom_reductions(axis: int | None) -> None:
    x = np.array([[3, -1, 4], [1, -5, 9]], np.float32)

    def largest_magnitude(b: Builder, t: ir.Value) -> ir.Value:
        block = b.combine("f32", lambda p, q: b.compute("max", p, b.compute("abs", q)))
        return b.reduce(t, "custom", axis, block, 0.0)

    def branching(b: Builder, t: ir.Value) -> ir.Value:
        def combine(p: ir.Value, q: ir.Value) -> ir.Value:
            size = b.compute("abs", q)
            (out,) = b.if_(b.compute("gt", size, p), lambda: b.yield_(size), lambda: b.yield_(p), results=[p])
            return out

        return b.reduce(t, "custom", axis, b.combine("f32", combine), 0.0)

    keep = axis is not None
    for fn in (largest_magnitude, branching):
        assert np.array_equal(evaluate(fn, ("f32", x)), np.max(np.abs(x), axis=axis, keepdims=keep))

    def alternating(b: Builder, t: ir.Value) -> ir.Value:  # shows the order: ((10 - x0) - x1) - ...
        return b.reduce(t, "custom", axis, b.combine("f32", b.sub), 10.0)

    assert np.array_equal(evaluate(alternating, ("f32", x)), 10 - np.sum(x, axis=axis, keepdims=keep))


def test_small_floats_are_summed_exactly_and_rounded_once() -> None:
    x = np.full((1, 4096), 1.0, np.float16)
    assert evaluate(lambda b, t: b.reduce(t, "sum", 1), ("f16", x)).item() == 4096.0
    bits = numerics.encode_bits(np.full((1, 512), 1.0), DTYPE_BY_NAME["bf16"])
    total = evaluate(lambda b, t: b.reduce(t, "sum", 1), ("bf16", bits))
    assert numerics.decode_bits(total, DTYPE_BY_NAME["bf16"]).item() == 512.0


# --- contractions ----------------------------------------------------------------------------------


def operands(dtype: str, m: int, n: int, k: int, transpose: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(a, b as stored, exact a @ b in float64)."""
    rng = np.random.default_rng(7)
    b_shape = (n, k) if transpose else (k, n)
    d = DTYPE_BY_NAME[dtype]
    if d.is_integer:
        limits = np.iinfo(NP[dtype])
        a, c = (rng.integers(limits.min, limits.max + 1, s).astype(NP[dtype]) for s in ((m, k), b_shape))
    else:
        a, c = (rng.standard_normal(s) for s in ((m, k), b_shape))
        a, c = (numerics.encode_bits(v, d) if d in numerics.BITS_ONLY else v.astype(NP[dtype]) for v in (a, c))
    wide = [numerics.from_storage(v, d).astype(np.float64) for v in (a, c)]
    return a, c, wide[0] @ (wide[1].T if transpose else wide[1])


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f32", "f64", "i8", "u8"])
def test_dot(dtype: str, transpose: bool) -> None:
    a, c, exact = operands(dtype, 5, 7, 48, transpose)
    got = evaluate(lambda b, x, y: b.dot(x, y, transpose), (dtype, a), (dtype, c))
    expected_dtype = np.int32 if dtype in ("i8", "u8") else np.float64 if dtype == "f64" else np.float32
    assert got.dtype == expected_dtype
    if expected_dtype is np.int32:
        assert np.array_equal(got, exact.astype(np.int64).astype(np.int32))
    else:
        assert np.allclose(got, exact, rtol=2.0**-23 if expected_dtype is np.float32 else 1e-13, atol=1e-13)


# kind: error of the product of two operands relative to |a| @ |b|
KIND_ERROR = {
    "ieee": 2.0**-23,
    "f16": 2.0**-10,
    "bf16": 2.0**-7,
    "tf32": 2.0**-10,
    "tf32x3": 2.0**-20,
    "bf16x3": 2.0**-22,
    "f16x2": 2.0**-20,
}


@pytest.mark.parametrize("kind", KIND_ERROR)
def test_kinds_of_f32_contractions_have_their_accuracy(kind: str) -> None:
    a, c, exact = operands("f32", 16, 16, 32, False)
    kinds = (kind, "ieee") if kind != "ieee" else ("ieee",)
    got = evaluate(lambda b, x, y: b.dot(x, y, kinds=kinds, kind=kind), ("f32", a), ("f32", c))
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(c.astype(np.float64))
    error = np.max(np.abs(got - exact) / magnitude)
    assert error <= KIND_ERROR[kind]
    if kind in ("f16", "bf16", "tf32"):  # and it does round
        assert error > KIND_ERROR[kind] / 512


def test_rounding_kinds_round_each_operand_as_named() -> None:
    a = np.array([[1 + 2.0**-11, 1 + 2.0**-8 + 2.0**-12]], np.float32)
    one = np.eye(2, dtype=np.float32)

    def product(kind: str | None) -> list[float]:
        kinds = (kind,) if kind else ("f16",)
        return evaluate(lambda b, x, y: b.dot(x, y, kinds=kinds, kind=kind), ("f32", a), ("f32", one))[0].tolist()

    assert product("f16") == [1.0, 1 + 2.0**-8]
    assert product("bf16") == [1.0, 1 + 2.0**-7]
    assert product("tf32") == [1 + 2.0**-10, 1 + 2.0**-8]  # ties away
    assert product("ieee") == a[0].tolist()
    assert product(None) == a[0].tolist()  # not chosen yet: no rounding is assumed


def test_f16_overflow_shows_in_the_f16_kinds_only() -> None:
    a = np.array([[1e5]], np.float32)
    one = np.ones((1, 1), np.float32)
    for kind, finite in (("f16", False), ("f16x2", False), ("tf32", True), ("bf16x3", True), ("ieee", True)):
        got = evaluate(lambda b, x, y, kind=kind: b.dot(x, y, kinds=(kind,), kind=kind), ("f32", a), ("f32", one))
        assert np.isfinite(got).all() == finite


def test_oracle_mode_ignores_kinds_and_integer_products_are_exact() -> None:
    a, c, exact = operands("f32", 4, 4, 8, False)
    got = evaluate(lambda b, x, y: b.dot(x, y, kinds=("f16",), kind="f16"), ("f32", a), ("f32", c), float64=True)
    assert np.allclose(got, exact, rtol=1e-14)
    a8 = np.full((1, 4096), -128, np.int8)
    got = evaluate(lambda b, x: b.dot(x, x, True), ("i8", a8))
    assert got.item() == 4096 * 128 * 128
