"""Rules of element types: joins, implicit conversions, rounding of compile-time values."""

from __future__ import annotations

import math

from phobos.ir.types import DType

_INT_BITS = {DType.I8: 8, DType.U8: 8, DType.I32: 32, DType.U32: 32, DType.I64: 64, DType.INDEX: 64}
# precision in bits with the hidden one, exponent of the smallest normal number, largest finite number
_FLOAT_FORMAT = {
    DType.F8E4M3: (4, -6, 448.0),
    DType.F8E5M2: (3, -14, 57344.0),
    DType.F16: (11, -14, 65504.0),
    DType.BF16: (8, -126, (2.0 - 2.0**-7) * 2.0**127),
    DType.F32: (24, -126, (2.0 - 2.0**-23) * 2.0**127),
    DType.F64: (53, -1022, (2.0 - 2.0**-52) * 2.0**1023),
}
# each float type -> the float types that hold all its values
_WIDER = {
    DType.F8E4M3: {DType.F16, DType.BF16, DType.F32, DType.F64},
    DType.F8E5M2: {DType.F16, DType.BF16, DType.F32, DType.F64},
    DType.F16: {DType.F32, DType.F64},
    DType.BF16: {DType.F32, DType.F64},
    DType.F32: {DType.F64},
    DType.F64: set(),
}


def integer_range(dtype: DType) -> tuple[int, int]:
    bits = _INT_BITS[dtype]
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed else (0, 2**bits - 1)


def join(a: DType, b: DType) -> DType | None:
    """The type that an operation of `a` and `b` has; None where the mix is forbidden."""
    if a is b:
        return a
    if a is DType.BOOL or b is DType.BOOL:
        return None
    if a.is_float and b.is_float:
        if b in _WIDER[a]:
            return b
        if a in _WIDER[b]:
            return a
        # Two formats of the same width: the smallest that holds both.
        return DType.F16 if {a, b} == {DType.F8E4M3, DType.F8E5M2} else DType.F32
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if DType.INDEX in (a, b):
        return DType.I64 if DType.I64 in (a, b) else DType.INDEX
    if a.is_signed == b.is_signed:
        return a if _INT_BITS[a] > _INT_BITS[b] else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    return signed if _INT_BITS[signed] > _INT_BITS[unsigned] else None


def widens(source: DType, target: DType) -> bool:
    """Whether `source` converts to `target` without being asked: every join is such a conversion."""
    if source is target:
        return True
    if {source, target} == {DType.INDEX, DType.I64}:
        return True
    return join(source, target) is target


def narrows(source: DType, target: DType) -> bool:
    """Whether a store or a declared type may convert `source` to the narrower `target`."""
    if DType.BOOL in (source, target):
        return False
    if source.is_float and target.is_float:
        return True
    if source.is_integer and target.is_integer:
        if DType.INDEX in (source, target):
            return True
        return source.is_signed == target.is_signed and _INT_BITS[source] > _INT_BITS[target]
    return False


def round_float(value: float, dtype: DType) -> float:
    """`value` rounded to nearest even in `dtype`, to an infinity past its range (NaN where it has none)."""
    if value == 0.0 or math.isnan(value):
        return value
    precision, min_exponent, largest = _FLOAT_FORMAT[dtype]
    if math.isinf(value):
        return math.nan if dtype is DType.F8E4M3 else value
    if dtype is DType.F64:
        return value
    exponent = max(math.frexp(value)[1] - 1, min_exponent)
    quantum = math.ldexp(1.0, exponent - precision + 1)
    rounded = round(value / quantum) * quantum
    if abs(rounded) > largest:
        return math.nan if dtype is DType.F8E4M3 else math.copysign(math.inf, value)
    return math.copysign(rounded, value)


def literal_fits(value: int | float, dtype: DType) -> bool:
    """Whether a literal stays finite (or is infinite where `dtype` has infinities) and in range."""
    if dtype.is_integer:
        low, high = integer_range(dtype)
        return isinstance(value, int) and low <= value <= high
    as_float = float(value) if isinstance(value, float) or abs(value) < 2**1023 else math.inf
    if math.isinf(as_float):
        return dtype is not DType.F8E4M3
    return math.isnan(as_float) or math.isfinite(round_float(as_float, dtype))


def wrap_integer(value: int, dtype: DType) -> int:
    bits = _INT_BITS[dtype]
    value &= 2**bits - 1
    return value - 2**bits if dtype.is_signed and value >= 2 ** (bits - 1) else value


def saturate(value: float, dtype: DType) -> int:
    """Float to integer as `Cast` does it: truncates and saturates, NaN gives 0."""
    if math.isnan(value):
        return 0
    low, high = integer_range(dtype)
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)
