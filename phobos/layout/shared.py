"""Shared-memory layouts: which byte holds which tile element; bank conflicts and 128-byte lines from addresses.

Banks: 32 banks of 4 bytes. A warp's access of 4 bytes a lane is one wavefront when no two lanes touch different
words of one bank; 8-byte accesses are served by half-warps and 16-byte ones by quarter-warps, each part on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LINE, _CHUNK = 128, 16  # bytes: all banks once, and what a lane of a matrix load reads


@dataclass(frozen=True)
class SharedLayout:
    """A tile in shared memory: axis `order[-1]` is contiguous, `pitch` is the distance in elements between two
    neighbours along order[-2] (padding included). `swizzle` > 0 xors the 16-byte chunk number within a line with the
    number of the line's 128 bytes modulo swizzle: eight neighbours in a column of chunks then lie in different banks,
    and aligned 32 bytes stay together. It needs a pitch of whole chunks.
    """

    shape: tuple[int, ...]
    itemsize: int
    order: tuple[int, ...]
    pitch: int
    swizzle: int = 0

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.shape))):
            raise ValueError(f"order {self.order} does not name the axes of {self.shape}")
        if self.pitch < self.shape[self.order[-1]]:
            raise ValueError(f"pitch {self.pitch} is smaller than a line of {self.shape}")
        if self.swizzle and self.pitch * self.itemsize % (_CHUNK * self.swizzle):
            raise ValueError("a swizzled line must consist of whole groups of 16-byte chunks")

    @staticmethod
    def swizzled(shape: tuple[int, int], itemsize: int) -> "SharedLayout | None":
        """Row-major without padding, chunks permuted; None for rows that 128 bytes do not hold or make up evenly."""
        row = shape[1] * itemsize
        if row % _LINE and (_LINE % row or row < 2 * _CHUNK):
            return None
        return SharedLayout(shape, itemsize, (0, 1), shape[1], min(_LINE, row) // _CHUNK)

    @staticmethod
    def row_major(shape: tuple[int, ...], itemsize: int, pad: int = 0) -> "SharedLayout":
        order = tuple(range(len(shape)))
        return SharedLayout(shape, itemsize, order, shape[-1] + pad)

    @property
    def strides(self) -> tuple[int, ...]:
        """Element stride of every axis, before swizzling."""
        out = [0] * len(self.shape)
        step = 1
        for place, axis in enumerate(reversed(self.order)):
            out[axis] = step
            step = self.pitch if place == 0 else step * self.shape[axis]
        return tuple(out)

    @property
    def elements(self) -> int:
        """Elements of storage, padding included."""
        outer = 1
        for axis in self.order[:-1]:
            outer *= self.shape[axis]
        return outer * self.pitch

    @property
    def bytes(self) -> int:
        return self.elements * self.itemsize

    def offset(self, position: Sequence[int]) -> int:
        """Byte offset of an element."""
        return int(self.index([np.int64(p) for p in position])) * self.itemsize

    def index(self, position: Sequence[np.ndarray | np.int64]) -> np.ndarray:
        """Element index in storage of elements at these positions, one array for each axis."""
        linear = np.asarray(sum(p * s for p, s in zip(position, self.strides)))
        if self.swizzle:
            line = linear // self.pitch // self.lines_together % self.swizzle
            linear = (linear * self.itemsize ^ line * _CHUNK) // self.itemsize
        return linear

    @property
    def lines_together(self) -> int:
        """Lines that 128 bytes hold: they are swizzled alike."""
        return max(1, _LINE // (self.pitch * self.itemsize))

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        return _CHUNK // self.itemsize

    @property
    def period(self) -> int:
        """Lines after which the swizzle repeats."""
        return max(1, self.lines_together * self.swizzle)

    def line_text(self, line: str) -> str:
        """What chunk numbers of this line are xored with, as C text."""
        whole = line if line.isidentifier() else f"({line})"
        shared = f"{whole} / {self.lines_together}" if self.lines_together > 1 else whole
        return f"{shared} % {self.swizzle}"

    def index_text(self, line: str, column: str) -> str:
        """Element index of a position in a swizzled tile of two axes, as C text."""
        place = f"({column}) / {self.chunk} ^ {self.line_text(line)}"
        return f"({line}) * {self.pitch} + ({place}) * {self.chunk} + ({column}) % {self.chunk}"

    def vector_width(self, axis: int, at_most: int) -> int:
        """Largest power-of-two number of elements along `axis` that a naturally aligned access may take,
        if its first element's position is a multiple of that number."""
        if axis != self.order[-1]:
            return 1
        width = 1
        while width * 2 <= at_most and self.pitch % (width * 2) == 0 and width * 2 * self.itemsize <= 16:
            width *= 2
        return width

    def __str__(self) -> str:
        extra = f" swizzle {self.swizzle}" if self.swizzle else ""
        return f"{'x'.join(map(str, self.shape))} order {self.order} pitch {self.pitch}{extra}"


def wavefronts(addresses: Sequence[int], width: int) -> int:
    """Wavefronts of one warp access of `width` bytes (1 to 16) a lane at these byte addresses."""
    per_part = 32 if width <= 4 else 128 // width
    total = 0
    for start in range(0, len(addresses), per_part):
        banks: dict[int, set[int]] = {}
        for a in addresses[start : start + per_part]:
            for word in range(a // 4, (a + width - 1) // 4 + 1):
                banks.setdefault(word % 32, set()).add(word)
        total += max((len(words) for words in banks.values()), default=0)
    return total


def conflict_degree(addresses: Sequence[int], width: int) -> float:
    """Wavefronts over the minimum for that many distinct bytes at that access width; 1.0 is conflict-free."""
    per_part = 32 if width <= 4 else 128 // width
    least = sum(1 for start in range(0, len(addresses), per_part) if addresses[start : start + per_part])
    return wavefronts(addresses, width) / least if least else 1.0


def lines_128(addresses: Sequence[int] | np.ndarray, width: int) -> tuple[int, int]:
    """(128-byte lines touched, fewest lines that could hold as many distinct bytes) of one global access."""
    touched: set[int] = set()
    distinct: set[int] = set()
    for a in addresses:
        for b in range(int(a), int(a) + width):
            distinct.add(b)
            touched.add(b // 128)
    return len(touched), -(-len(distinct) // 128) if distinct else 0
