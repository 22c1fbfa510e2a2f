"""Whether a candidate's outputs are right: against the float64 reference where it is quick enough, else by agreement.

Agreement: the first output that a second configuration reproduces becomes the reference for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from phobos.diagnostics import LaunchError
from phobos.ir.tile import Dot, KernelIR
from phobos.ir.types import DType
from phobos.ir.walk import kernel_ops
from phobos.reference import run
from phobos.reference.numerics import from_storage, storage_dtype, to_storage

Arrays = Mapping[str, np.ndarray]

# Largest relative L2 error by the least precise type, or permitted kind of product, that takes part: some units in the
# last place, grown by sums of a few thousand terms.
_TOLERANCE = {
    "f64": 1e-12, "f32": 2e-5, "ieee": 2e-5, "tf32x3": 5e-5, "f16x2": 5e-5, "bf16x3": 2e-4, "f16": 4e-3, "tf32": 4e-3,
    "bf16": 3e-2, "f8e4m3": 0.2, "f8e5m2": 0.4,
}  # fmt: skip
# Integers are exact, unless floats led to them: then a rounding may move a few by one.
_INTEGER_TOLERANCE = 1e-3
# One wrong element among millions hardly moves the L2 norm, so each element is bounded too: by this many times the
# tolerance, of its own size plus the tensor's root mean square.
_ELEMENT_FACTOR = 64.0
_CHUNK = 1 << 18  # elements that are compared at a time: they fit a cache


def tolerances(kernel: KernelIR) -> dict[str, float]:
    """The largest relative L2 error of each tensor."""
    words = {t.type.dtype.value for t in kernel.tensors if t.type.dtype.is_float}
    for op in kernel_ops(kernel):
        words |= {v.dtype.value for v in op.defined() if v.dtype.is_float}
        if isinstance(op, Dot) and op.a.dtype is DType.F32:
            words |= set(op.kinds)
    loosest = max((_TOLERANCE[w] for w in words), default=0.0)
    integer = _INTEGER_TOLERANCE if words else 0.0
    return {t.name: loosest if t.type.dtype.is_float else integer for t in kernel.tensors}


# --- comparing -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`error`: relative L2. `problem` says what is wrong, None where the tensors agree."""

    error: float
    problem: str | None = None


def compare(ours: np.ndarray, expected: np.ndarray, dtype: DType, tolerance: float) -> Difference:
    """Compares whole tensors in storage form (bf16 and f8 as bits). Infinities and NaNs must be the same."""
    if ours.shape != expected.shape:
        return Difference(error=math.inf, problem=f"its shape is {ours.shape}, not {expected.shape}")
    a, b = np.ascontiguousarray(ours).reshape(-1), np.ascontiguousarray(expected).reshape(-1)
    if not dtype.is_float and tolerance == 0:  # exactly, which float64 would not be for 64 bits
        wrong = int(np.count_nonzero(a != b))
        return Difference(error=float(wrong > 0), problem=f"{wrong} elements differ" if wrong else None)
    square = base = 0.0
    strange = 0
    for start in range(0, a.size, _CHUNK):
        x, y = (_wide(t[start : start + _CHUNK], dtype) for t in (a, b))
        if dtype.is_float:
            finite = np.isfinite(x) & np.isfinite(y)
            if not finite.all():
                strange += int(np.count_nonzero(~finite & (x != y) & ~(np.isnan(x) & np.isnan(y))))
                x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
        square += float(np.sum(np.square(x - y)))
        base += float(np.sum(np.square(y)))
    error = math.sqrt(square / base) if base > 0 else math.sqrt(square)
    if strange:
        return Difference(error=math.inf, problem=f"{strange} elements are NaN, infinite or unwritten, or should be")
    if not error <= tolerance:
        return Difference(error=error, problem=f"relative L2 error {error:.1e}, allowed {tolerance:.0e}")
    if dtype.is_float and square > 0:
        allowed = _ELEMENT_FACTOR * tolerance
        rms = math.sqrt(base / a.size)
        wrong = 0
        for start in range(0, a.size, _CHUNK):
            x, y = (_wide(t[start : start + _CHUNK], dtype) for t in (a, b))
            with np.errstate(invalid="ignore"):
                wrong += int(np.count_nonzero(np.abs(x - y) > allowed * (np.abs(y) + rms)))
        if wrong:
            return Difference(error=error, problem=f"{wrong} elements are far off")
    return Difference(error=error)


def _wide(x: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return from_storage(x, dtype, float64=True).astype(np.float64, copy=False)
    return x.astype(np.float64)


# --- judges ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`good` is None while it is open."""

    good: bool | None
    error: float | None = None
    problem: str | None = None


class Judge(Protocol):
    """Judges outputs of candidates, each given once under its number."""

    description: str

    def judge(self, number: int, outputs: Arrays) -> Verdict: ...

    def settle(self) -> dict[int, Verdict]:
        """Verdicts of candidates that were open before; with `judge` these are all. Called at the end."""
        ...


@dataclass
class Against:
    """Judges against known outputs, in storage form."""

    expected: Arrays
    dtypes: Mapping[str, DType]
    tolerance: Mapping[str, float]
    description: str

    def judge(self, number: int, outputs: Arrays) -> Verdict:
        worst = 0.0
        if set(outputs) != set(self.expected):
            names = ", ".join(sorted(set(outputs) ^ set(self.expected)))
            return Verdict(good=False, problem=f"it and the reference do not both write {names}")
        for name, array in outputs.items():
            found = compare(array, self.expected[name], self.dtypes[name], self.tolerance[name])
            if found.problem is not None:
                return Verdict(good=False, error=found.error, problem=f"output {name}: {found.problem}")
            worst = max(worst, found.error)
        return Verdict(good=True, error=worst)

    def settle(self) -> dict[int, Verdict]:
        return {}


@dataclass
class Agreement:
    """Judges candidates by each other: two that agree are right, and so is what agrees with them."""

    dtypes: Mapping[str, DType]
    tolerance: Mapping[str, float]
    description: str = "each other"
    _open: dict[int, Arrays] = field(default_factory=dict)
    _accepted: Against | None = None

    def judge(self, number: int, outputs: Arrays) -> Verdict:
        if self._accepted is not None:
            return self._accepted.judge(number, outputs)
        # Both sides have an error.
        doubled = {name: 2 * t for name, t in self.tolerance.items()}
        for other, known in self._open.items():
            against = Against(known, self.dtypes, doubled, f"the output of two configurations, {self.description}")
            found = against.judge(number, outputs)
            if found.good:
                self._accepted = against
                self.description = against.description
                del other
                return found
        if len(self._open) >= _MOST_OPEN:
            return Verdict(good=False, problem="it agrees with no other configuration")
        self._open[number] = outputs
        return Verdict(good=None)

    def settle(self) -> dict[int, Verdict]:
        kept, self._open = self._open, {}
        accepted = self._accepted
        if accepted is None:
            if len(kept) == 1:  # nothing contradicts it
                self.description = "nothing: no second configuration ran and no reference is quick enough"
                return {number: Verdict(good=True) for number in kept}
            return {n: Verdict(good=False, problem="it agrees with no other configuration") for n in kept}
        return {n: accepted.judge(n, outputs) for n, outputs in kept.items()}


_MOST_OPEN = 4  # outputs that are kept while none is confirmed


# --- the reference ---------------------------------------------------------------------------


class _TooSlow(Exception):
    pass


# The reference computes on float64 copies; beyond this many elements they take too much memory.
_MOST_ELEMENTS = 1 << 28


def reference_outputs(
    kernel: KernelIR,
    arrays: Callable[[], Arrays],
    scalars: Mapping[str, Any],
    written: Mapping[str, bool],
    *,
    elements: int,
    grid: tuple[int, int, int],
    seconds: float = 10.0,
) -> dict[str, np.ndarray] | None:
    """What the float64 reference writes, in storage form; None where it would take longer than `seconds`.

    `arrays` gives all tensors in storage form, `elements` in all; they stay as they are. `written`: written tensors;
    true where the kernel reads them too, else they start poisoned as on the device.
    """
    if elements > _MOST_ELEMENTS or 0 in grid:
        return None
    dtypes = {t.name: t.type.dtype for t in kernel.tensors}
    wide: dict[str, np.ndarray] = {}
    for name, array in arrays().items():
        dtype = dtypes[name]
        if name in written and not written[name]:
            array = np.full(array.shape, poison(dtype), storage_dtype(dtype))
        wide[name] = _wide(array, dtype) if dtype.is_float else array.copy()
    begin = time.perf_counter()
    blocks = math.prod(grid)

    def watch(op: object, block: tuple[int, int, int], environment: object) -> None:
        spent = time.perf_counter() - begin
        done = block[0] + grid[0] * (block[1] + grid[1] * block[2])
        # After half a second the speed of the blocks so far tells how long all will take.
        if spent > seconds or (spent > 0.5 and done and spent / done * blocks > seconds):
            raise _TooSlow

    try:
        run(kernel, {**wide, **scalars}, grid=grid, float64=True, on_op=watch, on_print=lambda line, block: None)
    except (_TooSlow, LaunchError, MemoryError):
        return None
    out = {}
    for name in written:
        dtype = dtypes[name]
        out[name] = to_storage(wide[name], dtype, storage_dtype(dtype)) if dtype.is_float else wide[name]
    return out


def poison(dtype: DType) -> Any:
    """What fills a tensor that a kernel only writes: an element in storage form whose bytes are all `poison_byte`."""
    raw = bytes([poison_byte(dtype)]) * storage_dtype(dtype).itemsize
    return np.frombuffer(raw, storage_dtype(dtype))[0]


def poison_byte(dtype: DType) -> int:
    """NaN in every float format; a number that is rarely a result; true."""
    if dtype.is_float:
        return 0xFF
    return 0x01 if dtype is DType.BOOL else 0xA5
