"""What recorded accesses cost: bank conflicts of shared memory and 128-byte lines of global memory.

The accesses of one warp that belong to one instruction are those of its lanes at one line, of one kind and size, with
one occurrence number (the how-manieth of that line in the lane). That is exact where the lanes run the same loop
iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phobos.emulator.launch import ACCESS_KINDS

Array = npt.NDArray[Any]
BANKS = 32
BANK_BYTES = 4
LINE_BYTES = 128


@dataclass(frozen=True, kw_only=True)
class AccessCost:
    """All requests of one access in the kernel text.

    `space` is "shared" or "global"; `kind` is one of ACCESS_KINDS; `size` in bytes per lane; `requests` counts warp
    instructions. For shared memory `transactions` are wavefronts (32 banks of 4 bytes; a word that several lanes want
    is fetched once), for global memory 128-byte lines. `ideal` is the smallest number for the bytes that were asked
    for: of each group of 32 lanes (16 lanes for 8 bytes, 8 lanes for 16 bytes) the distinct words over 32, rounded
    up; for global memory the distinct bytes over 128.
    """

    space: str
    line: int
    kind: str
    is_write: bool
    tensor: int
    size: int
    requests: int
    transactions: int
    ideal: int

    @property
    def degree(self) -> float:
        """Transactions over the ideal: 1.0 is free of conflicts."""
        return self.transactions / self.ideal


def conflicts(accesses: Array) -> list[AccessCost]:
    """Costs of recorded accesses (EmulatorResult.accesses), one entry per line, kind, direction, tensor and size."""
    if len(accesses) == 0:
        return []
    request = _requests(accesses)
    out: list[AccessCost] = []
    keys = ["space", "line", "kind", "is_write", "tensor", "size"]
    groups, place = np.unique(accesses[keys], return_inverse=True)
    for i, key in enumerate(groups):
        mine = place.reshape(-1) == i
        part, numbers = accesses[mine], request[mine]
        shared = bool(key["space"])
        transactions, ideal = (_wavefronts if shared else _lines)(part, numbers)
        out.append(
            AccessCost(
                space="shared" if shared else "global",
                line=int(key["line"]),
                kind=ACCESS_KINDS[int(key["kind"])],
                is_write=bool(key["is_write"]),
                tensor=int(key["tensor"]),
                size=int(key["size"]),
                requests=len(np.unique(numbers)),
                transactions=transactions,
                ideal=ideal,
            )
        )
    return out


def _requests(accesses: Array) -> npt.NDArray[np.int64]:
    """The number of the warp instruction that each access belongs to."""
    what = _number([accesses[c] for c in ("space", "line", "kind", "is_write", "tensor", "size")])
    thread = _number([accesses["block"], accesses["thread"]])
    order = np.lexsort((accesses["sequence"], what, thread))
    fresh = np.ones(len(order), bool)
    fresh[1:] = (thread[order][1:] != thread[order][:-1]) | (what[order][1:] != what[order][:-1])
    starts = np.flatnonzero(fresh)
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = np.arange(len(order)) - starts[np.cumsum(fresh) - 1]
    return _number([accesses["block"], accesses["thread"] // 32, what, occurrence])


def _number(columns: list[Array]) -> npt.NDArray[np.int64]:
    """Equal rows of the columns get equal numbers, counted from 0."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        number = np.unique(number * len(values) + place.reshape(-1), return_inverse=True)[1].reshape(-1)
    return number


def _wavefronts(part: Array, request: npt.NDArray[np.int64]) -> tuple[int, int]:
    size = int(part["size"][0])
    lanes_per_group = 32 * BANK_BYTES // max(size, BANK_BYTES)
    group = _number([request, part["thread"] % 32 // lanes_per_group])
    groups, words = _pieces(part["offset"], size, group, BANK_BYTES)
    # a group's wavefronts are the distinct words of its fullest bank
    per_bank = np.bincount(groups * BANKS + words % BANKS, minlength=(groups.max() + 1) * BANKS).reshape(-1, BANKS)
    per_group = per_bank.sum(axis=1)
    return int(per_bank.max(axis=1).sum()), int((-(-per_group // BANKS)).sum())


def _lines(part: Array, request: npt.NDArray[np.int64]) -> tuple[int, int]:
    size = int(part["size"][0])
    request = _number([request])
    lines, _ = _pieces(part["offset"], size, request, LINE_BYTES)
    requests, _ = _pieces(part["offset"], size, request, 1)
    return len(lines), int((-(-np.bincount(requests) // LINE_BYTES)).sum())


def _pieces(offset: Array, size: int, group: npt.NDArray[np.int64], unit: int) -> tuple[Array, Array]:
    """Distinct (group, index of a unit of `unit` bytes) that the accesses touch; groups are counted from 0."""
    first, last = offset // unit, (offset + size - 1) // unit
    index = first[:, None] + np.arange(int((last - first).max()) + 1)
    keep = index <= last[:, None]
    base, span = int(index.min()), int(index.max() - index.min()) + 1
    keys = np.unique((group[:, None] * span + (index - base))[keep])
    return keys // span, keys % span + base
