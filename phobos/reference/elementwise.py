"""Elementwise functions and casts of the tile IR on carrier arrays.

Correctly rounded as far as NumPy allows: transcendental functions are computed in float64 and rounded once, so the
reference is the best estimate and an executor may differ from it by its own bound (2 ulp by the language).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from phobos.ir.types import DType
from phobos.reference.numerics import Array, carrier_dtype, round_value

_SQRT_HALF = math.sqrt(0.5)


def _python_map(fn: Callable[[float], float], x: Array) -> Array:
    """`fn` of Python's math over an array; NumPy has no erf."""
    flat = np.asarray(x, dtype=np.float64)
    return np.fromiter(map(fn, flat.ravel().tolist()), dtype=np.float64, count=flat.size).reshape(flat.shape)


def _sigmoid(x: Array) -> Array:
    # The form whose exponential cannot overflow, so that small results keep their relative accuracy.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def _gelu(x: Array) -> Array:
    """x * Phi(x), the exact form; erfc keeps the accuracy of the negative tail."""
    cdf = 0.5 * _python_map(math.erfc, -_SQRT_HALF * x)
    return np.where(np.isneginf(x), -0.0, x * cdf)


# Functions computed in float64 and rounded once.
_WIDE: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": lambda x: _python_map(math.erf, x),
    "gelu": _gelu,
    "pow": np.power,
}


def _fma(a: Array, b: Array, c: Array, dtype: DType, float64: bool) -> Array:
    """a * b + c with one rounding (oracle mode of narrower types: two, in float64)."""
    if dtype is DType.F64:
        return _fma_f64(*np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (a, b, c))))
    a, b, c = (np.asarray(x, dtype=np.float64) for x in (a, b, c))
    product = a * b
    total = product + c
    if float64:
        return total
    # The product of two floats of up to 24 bits is exact in float64. The sum is made to round to odd, after which the
    # second rounding is innocuous: its error term (TwoSum) decides the last bit.
    bb = total - product
    error = (product - (total - bb)) + (c - bb)
    even = (np.ascontiguousarray(total).view(np.int64).reshape(total.shape) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    odd = np.where(np.isfinite(total) & (error != 0) & even, np.nextafter(total, toward), total)
    return round_value(odd, dtype)


def _fma_f64(a: Array, b: Array, c: Array) -> Array:
    """By exact fractions where the numbers are finite; their quotient is rounded once."""
    with np.errstate(all="ignore"):
        out = np.array(a * b + c)
    for at in np.argwhere(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        x, y, z = (float(v[tuple(at)]) for v in (a, b, c))
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact != 0:  # else the sign of zero is that of float arithmetic
            try:
                out[tuple(at)] = float(exact)
            except OverflowError:
                out[tuple(at)] = math.inf if exact > 0 else -math.inf
    return out


def truncated_division(a: Array, b: Array) -> tuple[Array, Array]:
    """Quotient and remainder of integers, truncating toward zero as in C. Where b is 0 the quotient has all bits set
    and the remainder is a. The least integer divided by -1 wraps to itself."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    zero = b == 0
    wraps = (b == -1) if a.dtype.kind == "i" else np.zeros_like(zero)
    divisor = np.where(zero | wraps, np.ones_like(b), b)
    remainder = np.fmod(a, divisor)
    quotient = (a - remainder) // divisor
    quotient = np.where(wraps, np.negative(a), quotient)
    all_ones = np.bitwise_not(np.zeros_like(a))
    return np.where(zero, all_ones, quotient), np.where(zero, a, remainder)


_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_LOGIC: dict[str, Callable[..., Any]] = {"and": np.logical_and, "or": np.logical_or, "not": np.logical_not}
_EXACT: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "clamp": lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "bitnot": np.bitwise_not,
    # NumPy clamps shifts past the width (0, or the sign for a signed right shift), as the hardware does.
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "mod": np.fmod,
}


def compute(fn: str, args: list[Array], dtype: DType, float64: bool) -> Array:
    """`fn` of ELEMENTWISE on broadcast carrier arrays whose language dtype is `dtype` (of `where`: the last two).

    Integer division by zero is defined here (see `truncated_division`); the caller decides whether it is an error.
    """
    if fn in _COMPARE:
        return np.asarray(_COMPARE[fn](*args))
    if fn in _LOGIC:
        return np.asarray(_LOGIC[fn](*args))
    if fn == "where":
        return np.where(*args)
    if fn == "isnan":
        return np.isnan(args[0])
    if fn in _EXACT:
        return np.asarray(_EXACT[fn](*args))
    if fn == "fma":
        if dtype.is_integer:
            return np.asarray(args[0] * args[1] + args[2])
        return _fma(args[0], args[1], args[2], dtype, float64)
    if fn in _ARITHMETIC:
        if dtype.is_integer and fn in ("div", "mod"):
            return truncated_division(args[0], args[1])[fn == "mod"]
        return _rounded(np.asarray(_ARITHMETIC[fn](*args)), dtype, float64)
    wide = np.asarray(_WIDE[fn](*(np.asarray(x, dtype=np.float64) for x in args)))
    return wide if float64 else round_value(wide, dtype)


def _rounded(x: Array, dtype: DType, float64: bool) -> Array:
    """Rounds what was computed on a carrier wider than the format. f16, f32, f64 and integers are already exact
    results of one rounding; for bf16 and f8 the carrier has more than twice their bits, so rounding twice is safe."""
    if float64 or dtype not in (DType.BF16, DType.F8E4M3, DType.F8E5M2):
        return x
    return round_value(x, dtype)


def cast(x: Array, source: DType, target: DType, float64: bool) -> Array:
    """Conversion: floats round to nearest even, float to integer truncates and saturates with NaN to 0, integers wrap,
    to bool is `!= 0`."""
    x = np.asarray(x)
    if source is target:
        return x
    carrier = carrier_dtype(target, float64)
    if target is DType.BOOL:
        return x != 0
    if target.is_float:
        if float64 or target is DType.F64:
            return x.astype(np.float64)
        if not source.is_float:
            # From the integer directly to f32; through float64 to the smaller formats, exact for 32-bit integers.
            return x.astype(np.float32) if target is DType.F32 else round_value(x.astype(np.float64), target)
        return round_value(x, target)
    if source.is_float:
        return _float_to_integer(x, carrier)
    return x.astype(carrier)


def _float_to_integer(x: Array, carrier: np.dtype[Any]) -> Array:
    limits = np.iinfo(carrier)
    wide = np.trunc(np.asarray(x, dtype=np.float64))
    # 2^63 - 1 is no float64: compare against the bounds one past the ends, which are powers of two.
    high = wide >= float(limits.max) if carrier.itemsize < 8 else wide >= 2.0**63
    low = wide <= float(limits.min)
    inside = np.where(np.isnan(wide) | high | low, 0.0, wide).astype(carrier)
    return np.where(high, carrier.type(limits.max), np.where(low, carrier.type(limits.min), inside)).astype(carrier)
