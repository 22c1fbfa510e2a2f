"""Shapes: broadcasting, squeezing, texts."""

from __future__ import annotations

from collections.abc import Iterable

MAX_RANK = 3


def broadcast_shapes(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The NumPy broadcast of the shapes, aligned at the last axis; None where they do not fit."""
    out: list[int] = []
    for shape in shapes:
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        offset = len(out) - len(shape)
        for i, n in enumerate(shape):
            have = out[offset + i]
            if have != n and have != 1 and n != 1:
                return None
            out[offset + i] = max(have, n)
    return tuple(out)


def squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def size(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out
