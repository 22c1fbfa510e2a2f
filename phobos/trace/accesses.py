"""Accesses to memory by the threads of a block: which lane names which byte, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from phobos.emulator.launch import ACCESS_KINDS
from phobos.layout.shared import lines_128, wavefronts

Array = np.ndarray
LANES = 32
# Kinds of accesses, as the emulator calls them, and one more for opaque fragments, whose lanes are not defined.
PLAIN, ATOMIC, MATRIX, ASYNC = ACCESS_KINDS
OPAQUE = "opaque"


@dataclass(frozen=True)
class Site:
    """One access in the emitted text: `memory` "global" or "shared", `name` of the tensor or buffer, `size` bytes of
    each lane, `kind` as above."""

    memory: str
    name: str
    write: bool
    size: int
    kind: str = PLAIN


@dataclass(frozen=True, eq=False)
class Request:
    """All threads' turn at a site: `offsets` int64 [warps, 32], bytes from the tensor's or the shared memory's
    start, -1 where the lane takes no part."""

    site: Site
    offsets: Array


@dataclass(eq=False)
class Log:
    """Requests in the order of execution. `shuffles`: (exchange mask, how often)."""

    requests: list[Request] = field(default_factory=list)
    shuffles: list[tuple[int, int]] = field(default_factory=list)

    def add(self, site: Site, offsets: Array, active: Array | None = None) -> None:
        """`offsets` and `active` broadcast to [warps, 32]."""
        if active is not None:
            offsets = np.where(active, offsets, -1)
        if (offsets >= 0).any():
            self.requests.append(Request(site, np.array(offsets, dtype=np.int64)))


@dataclass(frozen=True)
class Cost:
    """Of one warp's request: `count` wavefronts (shared) or 128-byte lines (global), and the fewest that its bytes
    need."""

    count: int
    ideal: int


def cost(site: Site, offsets: tuple[int, ...]) -> Cost | None:
    """Cost of a warp's request; None where it is not defined."""
    if site.kind == OPAQUE:
        return None
    if site.memory == "global":
        return Cost(*lines_128([a for a in offsets if a >= 0], site.size))
    per_part = LANES if site.size <= 4 else 128 // site.size
    count = ideal = 0
    for start in range(0, LANES, per_part):
        part = [a for a in offsets[start : start + per_part] if a >= 0]
        words = {w for a in part for w in range(a // 4, (a + site.size - 1) // 4 + 1)}
        count += wavefronts(part, site.size)
        ideal += -(-len(words) // LANES)
    return Cost(count, ideal)


def by_warp(request: Request) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(warp, offsets of its lanes) of the warps that take part."""
    for warp, row in enumerate(request.offsets):
        if (row >= 0).any():
            yield warp, tuple(int(a) for a in row)
