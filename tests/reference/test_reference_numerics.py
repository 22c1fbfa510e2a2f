"""Number formats against definitions written out in Python floats (which are exact here) and table searches."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.ir.types import DType
from phobos.reference import numerics

# dtype: (exponent bits, mantissa bits, bias, has infinities)
FORMATS = {
    DType.BF16: (8, 7, 127, True),
    DType.F8E4M3: (4, 3, 7, False),
    DType.F8E5M2: (5, 2, 15, True),
}
SMALL = list(FORMATS)


def definition(code: int, dtype: DType) -> float:
    """The value of a code by the format's definition."""
    exponent_bits, mantissa_bits, bias, infinities = FORMATS[dtype]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    top = (1 << exponent_bits) - 1
    if infinities and exponent == top:
        return sign * math.inf if mantissa == 0 else math.nan
    if not infinities and exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


def codes(dtype: DType) -> np.ndarray:
    return np.arange(1 << (16 if dtype is DType.BF16 else 8)).astype(numerics.storage_dtype(dtype))


@cache
def finite_magnitudes(dtype: DType) -> np.ndarray:
    """All finite values >= 0 in order: position = code."""
    values = [definition(c, dtype) for c in range(1 << (sum(FORMATS[dtype][:2])))]
    return np.array([v for v in values if math.isfinite(v)])


def nearest_even(x: float, dtype: DType) -> float:
    """Round to nearest even by search; overflow by the format's rule (bf16 to infinity, f8 saturates)."""
    if math.isnan(x):
        return math.nan
    table = finite_magnitudes(dtype)
    magnitude = abs(x)
    high = int(np.searchsorted(table, magnitude))
    if high == len(table):
        step = table[-1] - table[-2]
        over = magnitude >= table[-1] + step / 2
        rounded = math.inf if over and dtype is DType.BF16 else float(table[-1])
    elif table[high] == magnitude:
        rounded = magnitude
    else:
        below, above = table[high - 1], table[high]
        middle = (below + above) / 2
        up = magnitude > middle or (magnitude == middle and high % 2 == 0)
        rounded = float(above if up else below)
    return math.copysign(rounded, x)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal as numbers, signs of zeros included, NaN equal to NaN."""
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.all(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("dtype", SMALL)
def test_every_code_has_its_value(dtype: DType) -> None:
    values = numerics.decode_bits(codes(dtype), dtype)
    assert values.dtype == np.float32
    assert same(values, np.array([definition(int(c), dtype) for c in codes(dtype)]))


@pytest.mark.parametrize("dtype", SMALL)
def test_every_finite_code_survives_the_round_trip(dtype: DType) -> None:
    all_codes = codes(dtype)
    values = numerics.decode_bits(all_codes, dtype)
    finite = np.isfinite(values)
    assert np.array_equal(numerics.encode_bits(values, dtype)[finite], all_codes[finite])
    assert same(numerics.round_value(values[finite], dtype), values[finite])


def test_special_values_encode_as_the_hardware_does() -> None:
    special = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30])
    assert numerics.encode_bits(special, DType.BF16).tolist()[:3] == [0x7F80, 0xFF80, 0x7FC0]
    assert numerics.encode_bits(special, DType.F8E4M3).tolist() == [0x7E, 0xFE, 0x7F, 0x7E, 0xFE]
    assert numerics.encode_bits(special, DType.F8E5M2).tolist() == [0x7B, 0xFB, 0x7F, 0x7B, 0xFB]


@pytest.mark.parametrize("dtype", SMALL)
def test_ties_between_all_neighbours_go_to_even(dtype: DType) -> None:
    table = finite_magnitudes(dtype)
    if dtype is DType.BF16:
        table = table[::257]  # neighbours are remade below
        table = np.unique(np.concatenate([table, finite_magnitudes(dtype)[:300], finite_magnitudes(dtype)[-300:]]))
        every = finite_magnitudes(dtype)
        position = np.searchsorted(every, table)
        position = position[position + 1 < len(every)]
        low, high = every[position], every[position + 1]
    else:
        position = np.arange(len(table) - 1)
        low, high = table[:-1], table[1:]
    middle = (low + high) / 2
    even = np.where(position % 2 == 0, low, high)
    for sign in (1.0, -1.0):
        assert same(numerics.round_value(sign * middle, dtype), sign * even)
        assert same(numerics.round_value(sign * np.nextafter(middle, 0), dtype), sign * low)
        assert same(numerics.round_value(sign * np.nextafter(middle, np.inf), dtype), sign * high)


@pytest.mark.parametrize("dtype", SMALL)
@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1, max_size=20))
def test_rounding_from_float64_is_to_nearest_even(dtype: DType, values: list[float]) -> None:
    expected = [nearest_even(v, dtype) for v in values]
    assert same(numerics.round_value(np.array(values), dtype), np.array(expected))


@pytest.mark.parametrize("dtype", SMALL)
def test_rounding_from_float32_is_to_nearest_even(dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(300) * 2.0 ** rng.integers(-20, 20, 300)).astype(np.float32)
    assert same(numerics.round_value(x, dtype), np.array([nearest_even(float(v), dtype) for v in x]))


def test_float32_bits_of_all_kinds_round_to_bf16_alike_on_both_paths() -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    assert same(numerics.round_value(x, DType.BF16), numerics.round_value(wide, DType.BF16))


def test_bf16_from_float64_rounds_once() -> None:
    # Through float32 this would become a tie and fall to even.
    assert numerics.round_value(1 + 2.0**-8 + 2.0**-40, DType.BF16) == 1 + 2.0**-7


def tf32_definition(x: float) -> float:
    """10 stored mantissa bits, ties away from zero."""
    if x == 0 or not math.isfinite(x):
        return x
    exponent = max(math.frexp(abs(x))[1] - 1, -126)
    step = 2.0 ** (exponent - 10)
    return math.copysign(math.floor(abs(x) / step + 0.5) * step, x)


def test_tf32_rounds_to_nearest_with_ties_away() -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(2000) * 2.0 ** rng.integers(-130, 100, 2000)).astype(np.float32)
    ties = (1 + (2 * rng.integers(0, 1024, 100) + 1) * 2.0**-11).astype(np.float32)
    x = np.concatenate([x, ties, -ties, np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)])
    assert same(numerics.round_tf32(x), np.array([tf32_definition(float(v)) for v in x]))


def test_splits_add_up_to_their_operand() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal(1000).astype(np.float32)
    hi, mid, lo = numerics.split_bf16(x)
    assert np.array_equal(hi.astype(np.float64) + mid + lo, x)  # 3 x 8 bits hold all 24
    for part in (hi, mid, lo):
        assert same(numerics.round_value(part, DType.BF16), part)
    for parts, keeps in ((numerics.split_tf32(x), 2.0**-22), (numerics.split_f16(x), 2.0**-21)):
        total = sum(p.astype(np.float64) for p in parts)
        # f16 has no exponents below -24, so a small rest is lost absolutely.
        assert np.all(np.abs(total - x) <= keeps * np.abs(x) + 2.0**-25)


def test_shapes_and_zero_dimensions_are_kept() -> None:
    for dtype in SMALL:
        assert numerics.round_value(np.float32(1.5), dtype).shape == ()
        assert numerics.encode_bits(np.ones((2, 3)), dtype).shape == (2, 3)
        strided = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-3]
        assert same(numerics.round_value(strided, dtype), numerics.round_value(strided.copy(), dtype))
    assert numerics.round_tf32(np.arange(6, dtype=np.float32)[::-2]).tolist() == [5.0, 3.0, 1.0]
