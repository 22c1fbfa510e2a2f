"""What oracles are made of: storage types, unit roundoffs, and the comparison of a result with its bound.

Nothing here imports phobos.

How the bounds are derived
--------------------------
`u` is the unit roundoff of the arithmetic (2^-24 for f32, 2^-53 for float64), `store` that of the stored dtype.
A sum or dot product of n terms has the worst-case error (n - 1) u sum|t|. Rounding errors are signed and nearly
independent, so with overwhelming probability the error stays below LAMBDA sqrt(n) u sum|t| whatever the order of
the additions (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41,
2019); LAMBDA = 6 makes a false alarm on any of the outputs here less likely than 1e-7. `gamma(n)` is that factor
plus the rounding of each product. An elementary function is within 2 ulp (the language's contract), which is at
most 4 u relative. An argument t that carries an absolute error d gives exp(t) a relative error of d. Every bound is
per element and uses the magnitudes of this very input, so it stays tight where values are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

Arguments = dict[str, Any]
Dims = Mapping[str, int]

F32 = 2.0**-24
F64 = 2.0**-53
LAMBDA = 6.0
FUNCTION = 4.0  # relative error of exp, erf, sqrt and the like, in units of u
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}  # roundoff of a stored element
OPERAND = {  # roundoff of an f32 operand under each kind of contraction; the split kinds keep about 22 bits
    "ieee": 0.0,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "tf32": 2.0**-11,
    "tf32x3": 2.0**-21,
    "bf16x3": 2.0**-21,
    "f16x2": 2.0**-20,
}
SMALLEST = {"f16": 2.0**-25, "bf16": 2.0**-134, "f32": 2.0**-150}  # half the spacing of the subnormals


@dataclass(frozen=True)
class Expected:
    """The exact value of an output and the largest error of a correct run, both float64 and of its shape."""

    value: np.ndarray
    bound: np.ndarray


@dataclass(frozen=True)
class Rounding:
    """What a run computes in: `u` of its arithmetic, `operand` of what a contraction rounds its f32 operands to
    (0 where it does not), `dtype` of the generic element type T."""

    u: float = F32
    operand: float = 0.0
    dtype: str = "f32"


@dataclass(frozen=True)
class Oracle:
    """`inputs(rng, dims, dtype)` makes the arguments in the kernel's order; `expect(arguments, consts, rounding)` gives
    {written tensor: Expected} for these arguments."""

    inputs: Callable[[np.random.Generator, Dims, str], Arguments]
    expect: Callable[[Mapping[str, Any], Mapping[str, Any], Rounding], dict[str, Expected]]


def gamma(terms: int, u: float) -> float:
    """Relative error of a sum of `terms` products against the sum of their magnitudes."""
    return u * (LAMBDA * sqrt(max(terms, 1)) + 2.0)


# --- storage types ---------------------------------------------------------------------------


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The bits of bfloat16, rounded to nearest even, as uint16. The values are finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def store(values: np.ndarray, dtype: str) -> np.ndarray:
    """An array as a kernel takes it: np.float16, np.float32, or np.uint16 bits for bf16."""
    return to_bf16(values) if dtype == "bf16" else values.astype({"f16": np.float16, "f32": np.float32}[dtype])


def load(array: np.ndarray, dtype: str = "f32") -> np.ndarray:
    """The float64 values of a stored array."""
    return from_bf16(array) if dtype == "bf16" and array.dtype == np.uint16 else array.astype(np.float64)


def poison(shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """An output before the run: NaN everywhere, so that an element that is never written fails the comparison."""
    return store(np.full(shape, np.nan), dtype) if dtype != "bf16" else np.full(shape, 0x7FC0, np.uint16)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def stored(value: np.ndarray, bound: np.ndarray, dtype: str = "f32") -> Expected:
    """Adds the rounding of the store to a bound."""
    return Expected(value, bound + UNIT[dtype] * np.abs(value) + SMALLEST[dtype])


def exact(value: np.ndarray) -> Expected:
    value = np.asarray(value, dtype=np.float64)
    return Expected(value, np.zeros_like(value))


def mismatch(actual: np.ndarray, expected: Expected, dtype: str = "f32") -> str | None:
    """None where every element is within its bound, else a sentence that names the worst one."""
    got = load(actual, dtype)
    if got.shape != expected.value.shape:
        return f"shape {got.shape} instead of {expected.value.shape}"
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected.value)
    same = (got == expected.value) | (np.isnan(got) & np.isnan(expected.value))
    wrong = ~same & ~(error <= expected.bound)
    if not wrong.any():
        return None
    excess = np.where(wrong, np.where(np.isfinite(error), error - expected.bound, np.inf), -1.0)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), got.shape))
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; at {at}: {got[at]!r} instead of "
        f"{expected.value[at]!r} (error {error[at]:.3g}, bound {expected.bound[at]:.3g})"
    )
