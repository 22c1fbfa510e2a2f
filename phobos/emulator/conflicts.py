"""What recorded accesses cost: bank conflicts of shared memory and 128-byte lines of global memory.

The accesses of one warp that belong to one instruction are those of its lanes at one line, of one kind and size, with one
occurrence number (the how-manieth of that line in the lane). That is exact where the lanes run the same loop iterations.
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

    `space` is "shared" or "global"; `kind` is one of ACCESS_KINDS; `size` in bytes per lane; `requests` counts warp instructions.
    For shared memory `transactions` are wavefronts (32 banks of 4 bytes; a word that several lanes want is fetched once), for
    global memory 128-byte lines. `ideal` is the smallest number for the bytes that were asked for: of each group of 32 lanes (16
    lanes for 8 bytes, 8 lanes for 16 bytes) the distinct words over 32, rounded up; for global memory the distinct bytes over 128.
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
    columns = ["block", "thread", "line", "space", "kind", "is_write", "tensor", "size"]
    order = np.lexsort((accesses["sequence"], *(accesses[c] for c in reversed(columns))))
    ordered = accesses[order]
    fresh = np.ones(len(ordered), bool)
    fresh[1:] = np.any([ordered[c][1:] != ordered[c][:-1] for c in columns], axis=0)
    starts = np.flatnonzero(fresh)
    run = np.cumsum(fresh) - 1
    occurrence = np.empty(len(ordered), np.int64)
    occurrence[order] = np.arange(len(ordered)) - starts[run]
    warp = accesses["thread"].astype(np.int64) // 32
    parts = [accesses["block"], warp, *(accesses[c] for c in columns[2:]), occurrence]
    _, number = np.unique(np.stack([p.astype(np.int64) for p in parts], axis=1), axis=0, return_inverse=True)
    return number.reshape(-1)


def _wavefronts(part: Array, request: npt.NDArray[np.int64]) -> tuple[int, int]:
    size = int(part["size"][0])
    lanes_per_group = 32 * BANK_BYTES // max(size, BANK_BYTES)
    group = request * 32 + (part["thread"].astype(np.int64) % 32) // lanes_per_group
    words = _pieces(part["offset"], size, group, BANK_BYTES)
    # words: distinct (group, word); a group's wavefronts are the words of its fullest bank
    banks = np.stack([words[:, 0], words[:, 1] % BANKS], axis=1)
    bank_keys, counts = np.unique(banks, axis=0, return_counts=True)
    starts = np.flatnonzero(np.r_[True, bank_keys[1:, 0] != bank_keys[:-1, 0]])
    wavefronts = np.maximum.reduceat(counts, starts)
    _, per_group = np.unique(words[:, 0], return_counts=True)
    return int(wavefronts.sum()), int(np.ceil(per_group / BANKS).sum())


def _lines(part: Array, request: npt.NDArray[np.int64]) -> tuple[int, int]:
    size = int(part["size"][0])
    lines = _pieces(part["offset"], size, request, LINE_BYTES)
    distinct = np.unique(np.stack([request, part["offset"]], axis=1), axis=0)
    _, per_request = np.unique(distinct[:, 0], return_counts=True)
    return len(lines), int(np.ceil(per_request * size / LINE_BYTES).sum())


def _pieces(offset: Array, size: int, group: Array, unit: int) -> npt.NDArray[np.int64]:
    """Distinct (group, unit index) that the accesses touch."""
    first, last = offset // unit, (offset + size - 1) // unit
    count = int((last - first).max()) + 1
    index = first[:, None] + np.arange(count)
    keep = index <= last[:, None]
    pairs = np.stack([np.broadcast_to(group[:, None], index.shape)[keep], index[keep]], axis=1)
    return np.unique(pairs.astype(np.int64), axis=0)
