"""Number formats in NumPy: rounding to bf16, f8 and tf32, and to and from the bits that tensors hold.

Terms used here and in the rest of the package
- *storage*: the NumPy dtype of a tensor argument's elements. bf16 is `uint16` bits, f8 is `uint8` bits.
- *carrier*: the NumPy dtype that the interpreter computes on. bf16 and f8 are carried as `float32` values that
  are exactly representable in the format. Oracle mode (`float64=True`) carries every float as `float64`.

Rounding is to nearest even, except tf32, which the hardware rounds to nearest with ties away from zero (`cvt.rna`).
f16 and bf16 overflow to infinity. f8 saturates to its largest finite value, infinities included, as the
conversion instructions do (`cvt.rn.satfinite`); NaN stays NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from phobos.ir.types import DType

Array = npt.NDArray[Any]

_STORAGE: dict[DType, Any] = {
    DType.F16: np.float16,
    DType.BF16: np.uint16,
    DType.F32: np.float32,
    DType.F64: np.float64,
    DType.F8E4M3: np.uint8,
    DType.F8E5M2: np.uint8,
    DType.I8: np.int8,
    DType.U8: np.uint8,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.BOOL: np.bool_,
    DType.INDEX: np.int64,
}

# Floats that NumPy has no dtype for.
BITS_ONLY = frozenset({DType.BF16, DType.F8E4M3, DType.F8E5M2})


@dataclass(frozen=True)
class _Format:
    """A small float: `mantissa` stored bits, smallest normal exponent `emin`, largest finite value `largest`."""

    mantissa: int
    emin: int
    largest: float
    saturates: bool


_FORMATS = {
    DType.F16: _Format(10, -14, 65504.0, False),
    DType.BF16: _Format(7, -126, float.fromhex("0x1.fep127"), False),
    DType.F32: _Format(23, -126, float.fromhex("0x1.fffffep127"), False),
    DType.F8E4M3: _Format(3, -6, 448.0, True),
    DType.F8E5M2: _Format(2, -14, 57344.0, True),
}


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of a tensor's elements."""
    return np.dtype(_STORAGE[dtype])


def carrier_dtype(dtype: DType, float64: bool = False) -> np.dtype[Any]:
    """The NumPy dtype that values of `dtype` are computed on."""
    if dtype.is_float and float64:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype in BITS_ONLY else np.dtype(_STORAGE[dtype])


def largest_finite(dtype: DType) -> float:
    """The largest finite value of a float dtype."""
    return float(np.finfo(np.float64).max) if dtype is DType.F64 else _FORMATS[dtype].largest


# --- rounding --------------------------------------------------------------------------------


def round_value(values: npt.ArrayLike, dtype: DType) -> Array:
    """Floats rounded once to the float `dtype`, in its carrier dtype, same shape."""
    x = np.asarray(values)
    if x.dtype.kind != "f":
        x = x.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype in (DType.F16, DType.F32, DType.F64):
            return x.astype(_STORAGE[dtype])
        if dtype is DType.BF16 and x.dtype != np.float64:
            return _round_bf16(x.astype(np.float32))
        return _round_small(x.astype(np.float64), _FORMATS[dtype])


def _round_bf16(x: Array) -> Array:
    """float32 to the nearest bf16 by integer arithmetic: the fast path."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) & np.uint32(0xFFFF0000)
    # The carry would turn some NaNs into infinity or zero.
    rounded = np.where(np.isnan(x), np.uint32(0x7FC00000), rounded)
    return rounded.view(np.float32).reshape(x.shape)


def _round_small(x: Array, fmt: _Format) -> Array:
    """float64 to the nearest value of `fmt`, exactly, as float32."""
    finite = np.isfinite(x)
    safe = np.where(finite, x, 0.0)
    exponent = np.maximum(np.frexp(safe)[1] - 1, fmt.emin)
    # Scaling by a power of two is exact; rint rounds half to even.
    rounded = np.ldexp(np.rint(np.ldexp(safe, fmt.mantissa - exponent)), exponent - fmt.mantissa)
    too_big = np.abs(rounded) > fmt.largest
    if fmt.saturates:
        rounded = np.clip(rounded, -fmt.largest, fmt.largest)
        special = np.where(np.isnan(x), np.nan, np.copysign(fmt.largest, x))
    else:
        rounded = np.where(too_big, np.copysign(np.inf, safe), rounded)
        special = x
    # copysign keeps the sign of zero.
    out = np.where(finite, np.copysign(rounded, safe), special)
    return out.astype(np.float32)


def round_tf32(values: npt.ArrayLike) -> Array:
    """float32 rounded to tf32 (10 stored mantissa bits) as `cvt.rna.tf32.f32` does: nearest, ties away from zero."""
    x = np.asarray(values, dtype=np.float32)
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def split_tf32(values: npt.ArrayLike) -> tuple[Array, Array]:
    """(hi, lo) with hi = tf32(x), lo = tf32(x - hi)."""
    x = np.asarray(values, dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        hi = round_tf32(x)
        return hi, round_tf32(x - hi)


def split_f16(values: npt.ArrayLike) -> tuple[Array, Array]:
    """(hi, lo) with hi = f16(x), lo = f16(x - hi), as float32. Values past 65504 give an infinite hi."""
    x = np.asarray(values, dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        hi = x.astype(np.float16).astype(np.float32)
        return hi, (x - hi).astype(np.float16).astype(np.float32)


def split_bf16(values: npt.ArrayLike) -> tuple[Array, Array, Array]:
    """(hi, mid, lo), each bf16 of what the ones before left, as float32; together 24 bits."""
    x = np.asarray(values, dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        hi = _round_bf16(x)
        mid = _round_bf16(x - hi)
        return hi, mid, _round_bf16(x - hi - mid)


# --- bits ------------------------------------------------------------------------------------


@cache
def _f8_values(dtype: DType) -> Array:
    """The value of each of the 256 codes, float32."""
    code = np.arange(256)
    fmt = _FORMATS[dtype]
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent = (code & 0x7F) >> fmt.mantissa
    fraction = code & ((1 << fmt.mantissa) - 1)
    significand = fraction + np.where(exponent > 0, 1 << fmt.mantissa, 0)
    value = sign * np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - 1 + fmt.emin - fmt.mantissa)
    if dtype is DType.F8E4M3:
        value = np.where((code & 0x7F) == 0x7F, np.nan, value)
    else:
        value = np.where(exponent == 31, np.where(fraction == 0, sign * np.inf, np.nan), value)
    table = value.astype(np.float32)
    table.flags.writeable = False
    return table


def decode_bits(bits: Array, dtype: DType) -> Array:
    """bf16 bits (uint16) or f8 bits (uint8) as float32 values, same shape."""
    if dtype is DType.BF16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _f8_values(dtype)[bits]


def encode_bits(values: npt.ArrayLike, dtype: DType) -> Array:
    """Floats rounded to bf16 or f8, as bits. NaN gives 0x7FC0 (bf16) and 0x7F (f8), as the hardware does."""
    rounded = np.asarray(round_value(values, dtype), dtype=np.float32)
    if dtype is DType.BF16:
        return (np.ascontiguousarray(rounded).view(np.uint32).reshape(rounded.shape) >> np.uint32(16)).astype(np.uint16)
    fmt = _FORMATS[dtype]
    magnitude = np.abs(rounded.astype(np.float64))
    nan = np.isnan(magnitude)
    magnitude = np.where(nan, 0.0, magnitude)
    exponent = np.where(magnitude > 0, np.maximum(np.frexp(magnitude)[1] - 1, fmt.emin), fmt.emin)
    significand = np.ldexp(magnitude, fmt.mantissa - exponent).astype(np.int64)
    # A normal's leading one adds 1 to the exponent field; a subnormal has none and field 0.
    code = ((exponent - fmt.emin) << fmt.mantissa) + significand
    code = np.where(nan, 0x7F, np.where(np.signbit(rounded), code | 0x80, code))
    return code.astype(np.uint8)


# --- tensors' elements -----------------------------------------------------------------------


def from_storage(stored: Array, dtype: DType, float64: bool = False) -> Array:
    """Elements read from a tensor, as a new array in the carrier dtype. A float64 array passed to oracle mode stays."""
    carrier = carrier_dtype(dtype, float64)
    if dtype in BITS_ONLY and stored.dtype.kind != "f":
        return decode_bits(stored, dtype).astype(carrier)
    return stored.astype(carrier)


def to_storage(values: Array, dtype: DType, target: np.dtype[Any]) -> Array:
    """Carrier values in the dtype `target` of a tensor's array."""
    if dtype in BITS_ONLY and target.kind != "f":
        return encode_bits(values, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(target)
