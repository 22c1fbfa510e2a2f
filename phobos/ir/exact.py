"""Which compile-time values are the same: 1, 1.0 and true compile to three kernels, 0.0 and -0.0 to two, and Python
counts them as equal. Memory, keys and sets of values compare by these functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def exact(value: Any) -> tuple[str, str]:
    """Equal for values that are the same, NaN included."""
    return type(value).__name__, repr(value)


def exact_items(items: Iterable[tuple[str, Any]]) -> tuple[tuple[str, str, str], ...]:
    """The same for (name, value) pairs."""
    return tuple((name, *exact(value)) for name, value in items)


def among(value: Any, values: Iterable[Any]) -> bool:
    """Whether `value` itself is one of `values`."""
    wanted = exact(value)
    return any(exact(v) == wanted for v in values)
