"""Rounding and compile-time arithmetic against NumPy and plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phobos.ir.types import DType
from phobos.semantic.constants import FoldError, fold
from phobos.semantic.dtypes import (
    integer_range,
    join,
    literal_fits,
    narrows,
    round_float,
    saturate,
    widens,
    wrap_integer,
)
from phobos.semantic.entities import ConstVal

FLOATS = st.floats(allow_nan=False, width=64)
FLOAT_TYPES = [d for d in DType if d.is_float]
INTEGERS = [d for d in DType if d.is_integer]


@given(FLOATS)
def test_f16_rounds_as_numpy(x: float) -> None:
    with np.errstate(over="ignore"):
        assert round_float(x, DType.F16) == float(np.float16(x))


@given(FLOATS)
def test_f32_rounds_as_numpy(x: float) -> None:
    with np.errstate(over="ignore"):
        assert round_float(x, DType.F32) == float(np.float32(x))


@given(st.floats(allow_nan=False, width=32))
def test_bf16_rounds_to_nearest_even(x: float) -> None:
    # An independent way: integer arithmetic on the bits of the float32.
    bits = int(np.float32(x).view(np.uint32))
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
    assert round_float(x, DType.BF16) == float(np.uint32(rounded & 0xFFFFFFFF).view(np.float32))


def _values(mantissa: int, bias: int, exponents: int) -> list[float]:
    out = [m * 2.0 ** (1 - bias - mantissa) for m in range(2**mantissa)]
    return out + [(1 + m / 2**mantissa) * 2.0 ** (e - bias) for e in range(1, exponents) for m in range(2**mantissa)]


E4M3 = _values(3, 7, 16)[:-1]  # the last pattern is NaN
E5M2 = _values(2, 15, 31)


@pytest.mark.parametrize(("dtype", "values"), [(DType.F8E4M3, E4M3), (DType.F8E5M2, E5M2)])
@given(st.floats(0, 1e5, width=64))
def test_f8_rounds_to_the_nearest_value(dtype: DType, values: list[float], x: float) -> None:
    limit = values[-1] + (values[-1] - values[-2]) / 2
    found = round_float(x, dtype)
    if x > limit:
        assert not math.isfinite(found)
    elif x < limit:
        assert found in values and abs(found - x) == min(abs(v - x) for v in values)
    assert all(round_float(v, dtype) == v and round_float(-v, dtype) == -v for v in values)


@given(st.sampled_from(FLOAT_TYPES), FLOATS)
def test_rounding_is_idempotent(dtype: DType, x: float) -> None:
    once = round_float(x, dtype)
    assert math.isnan(once) or round_float(once, dtype) == once


@given(st.sampled_from(list(DType)), st.sampled_from(list(DType)))
def test_join_is_symmetric_and_an_upper_bound(a: DType, b: DType) -> None:
    joined = join(a, b)
    assert joined is join(b, a)
    if joined is not None:
        assert widens(a, joined) and widens(b, joined) and join(a, joined) is joined
    if DType.BOOL in (a, b):
        assert (joined is None) == (a is not b)


@given(st.sampled_from(FLOAT_TYPES), st.sampled_from(FLOAT_TYPES), FLOATS)
def test_a_join_of_floats_loses_nothing(a: DType, b: DType, x: float) -> None:
    joined = join(a, b)
    assert joined is not None
    value = round_float(x, a)
    if math.isfinite(value):
        assert round_float(value, joined) == value


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
def test_a_join_of_integers_holds_both(a: DType, b: DType) -> None:
    joined = join(a, b)
    if joined is not None:
        low, high = integer_range(joined)
        assert all(low <= n <= high for d in (a, b) for n in integer_range(d))


def test_narrowing_stays_within_a_kind() -> None:
    assert narrows(DType.F32, DType.F16) and narrows(DType.I32, DType.I8) and narrows(DType.INDEX, DType.U8)
    assert (
        not narrows(DType.F32, DType.I32) and not narrows(DType.I32, DType.U32) and not narrows(DType.I32, DType.BOOL)
    )


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["add", "sub", "mul", "div", "mod", "min", "max"]),
)
def test_integer_folding(a: int, b: int, fn: str) -> None:
    python = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "div": lambda: int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b)),
        "mod": lambda: int(math.copysign(1, a)) * (abs(a) % abs(b)),
    }
    try:
        found = fold(fn, [ConstVal(a), ConstVal(b)])
    except FoldError:
        assert (fn in ("div", "mod") and b == 0) or not -(2**63) <= python[fn]() < 2**64
        return
    assert found.value == python[fn]() and found.dtype is None


@given(FLOATS, FLOATS, st.sampled_from(["add", "sub", "mul", "div", "mod", "min", "max", "pow"]))
def test_float_folding_never_raises(a: float, b: float, fn: str) -> None:
    numpy = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "mod": np.fmod,
        "min": np.minimum,
        "max": np.maximum,
    }
    found = fold(fn, [ConstVal(a), ConstVal(b)])
    assert isinstance(found.value, float)
    if fn in numpy:
        with np.errstate(all="ignore"):
            assert np.array_equal(found.value, numpy[fn](np.float64(a), np.float64(b)), equal_nan=True)


@given(
    st.floats(width=64),
    st.sampled_from(["exp", "log", "sqrt", "rsqrt", "sin", "tanh", "sigmoid", "gelu", "floor", "round", "exp2"]),
)
def test_float_functions_never_raise(x: float, fn: str) -> None:
    assert isinstance(fold(fn, [ConstVal(x)]).value, float)


@given(st.floats(width=64), st.sampled_from(INTEGERS))
def test_float_to_integer_saturates(x: float, dtype: DType) -> None:
    low, high = integer_range(dtype)
    found = saturate(x, dtype)
    assert low <= found <= high
    if math.isnan(x):
        assert found == 0
    elif low <= x <= high and abs(x) < 2**53:
        assert found == int(x)


@given(st.integers(-(2**70), 2**70), st.sampled_from(INTEGERS))
def test_integers_wrap(n: int, dtype: DType) -> None:
    low, high = integer_range(dtype)
    found = wrap_integer(n, dtype)
    assert low <= found <= high and (found - n) % (high - low + 1) == 0
    assert literal_fits(n, dtype) == (low <= n <= high)


def test_infinities_of_literals() -> None:
    assert (
        literal_fits(math.inf, DType.F16)
        and not literal_fits(math.inf, DType.F8E4M3)
        and not literal_fits(1e6, DType.F16)
    )
    assert not literal_fits(1.5, DType.I32)
