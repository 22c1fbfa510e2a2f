"""`dot` on carrier arrays, by kind.

Operands are rounded (or split) as the kind says. The products are exact in float64 (i8: exact integers) and are summed
in float64, then rounded once to the accumulator type. Hardware sums in f32 in an order of its own, so an executor of
the same kind may differ from this by about K * 2^-24 * (|a| @ |b|) for f32 accumulation over K products; tensor cores
that accumulate f8 in fewer bits differ by more.
"""

from __future__ import annotations

import numpy as np

from phobos.ir.types import DType
from phobos.reference.numerics import Array, round_tf32, round_value, split_bf16, split_f16, split_tf32

# Which parts (of a, of b) are multiplied, smallest first, as they are accumulated.
_PAIRS = {
    1: ((0, 0),),
    2: ((0, 1), (1, 0), (0, 0)),
    3: ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0)),
}


def _parts(x: Array, kind: str) -> tuple[Array, ...]:
    """The summands that an f32 operand is replaced by."""
    if kind == "ieee":
        return (x,)
    if kind == "f16":
        return (round_value(x, DType.F16),)
    if kind == "bf16":
        return (round_value(x, DType.BF16),)
    if kind == "tf32":
        return (round_tf32(x),)
    if kind == "tf32x3":
        return split_tf32(x)
    if kind == "f16x2":
        return split_f16(x)
    if kind == "bf16x3":
        return split_bf16(x)
    raise ValueError(f"unknown kind of contraction {kind!r}")


def dot(a: Array, b: Array, dtype: DType, kind: str | None, float64: bool) -> Array:
    """[M, K] @ [K, N] in the accumulator's carrier. `kind` (None means ieee) only concerns f32 operands."""
    if dtype.is_integer:
        # Sums of byte products are exact in float64 (K < 2^37), where BLAS is fast; then wrap to 32 bits.
        total = a.astype(np.float64) @ b.astype(np.float64)
        return total.astype(np.int64).astype(np.int32)
    if float64 or dtype is DType.F64:
        return a.astype(np.float64) @ b.astype(np.float64)
    kind = (kind or "ieee") if dtype is DType.F32 else "ieee"
    left, right = _parts(a, kind), _parts(b, kind)
    total = np.zeros((a.shape[0], b.shape[1]))
    for i, j in _PAIRS[len(left)]:
        total = total + left[i].astype(np.float64) @ right[j].astype(np.float64)
    return total.astype(np.float32)
