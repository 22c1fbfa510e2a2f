"""How far a whole output is from its reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class ErrorNorms:
    """Absolute errors, and the L2 norm of the error over the L2 norm of the reference. NaN where an output is not
    finite and its reference is.
    """

    max_abs: float
    mean_abs: float
    rmse: float
    rel_l2: float

    def within(self, tolerance: float) -> bool:
        """False also for NaN: a poisoned element that nobody wrote fails."""
        return self.rel_l2 <= tolerance

    def __str__(self) -> str:
        return f"rel L2 {self.rel_l2:.1e}, max {self.max_abs:.1e}, mean {self.mean_abs:.1e}, RMSE {self.rmse:.1e}"


def error_norms(output: Any, reference: Any) -> ErrorNorms:
    """The norms over all elements of two NumPy arrays, or of two torch tensors on one device; computed in float64."""
    if tuple(output.shape) != tuple(reference.shape):
        raise ValueError(f"shapes differ: {tuple(output.shape)} and {tuple(reference.shape)}")
    if isinstance(output, np.ndarray):
        error = np.abs(output.astype(np.float64) - reference.astype(np.float64))
        square = float(np.sum(error * error))
        base = float(np.sum(reference.astype(np.float64) ** 2))
        largest = float(np.max(error, initial=0.0))
        mean = float(np.mean(error)) if error.size else 0.0
        count = error.size
    else:
        error = (output.double() - reference.double()).abs()
        square = float((error * error).sum())
        base = float((reference.double() ** 2).sum())
        count = error.numel()
        largest = float(error.max()) if count else 0.0
        mean = float(error.mean()) if count else 0.0
    return ErrorNorms(
        max_abs=largest,
        mean_abs=mean,
        rmse=math.sqrt(square / count) if count else 0.0,
        rel_l2=math.sqrt(square / base) if base > 0 else math.sqrt(square),
    )
