"""Addresses of the machine and addresses that the emulator recorded, in one form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from phobos.emulator.launch import ACCESS_DTYPE, ACCESS_KINDS
from phobos.trace.accesses import OPAQUE, PLAIN
from phobos.trace.machine import Executed

Array = np.ndarray
_COMPARED = ["block", "line", "space", "is_write", "tensor", "kind", "size", "offset"]


def as_records(blocks: Sequence[Sequence[Executed]], tensors: Sequence[str]) -> Array:
    """Every access of each thread as the emulator would record it (ACCESS_DTYPE). `tensors`: names in the order of the
    program's tensor arguments. Opaque fragments, whose lanes are not defined, count as plain."""
    number = {name: i for i, name in enumerate(tensors)}
    parts: list[Array] = []
    for block, executed in enumerate(blocks):
        sequence: Array | None = None
        for e in executed:
            for request in e.log.requests:
                site = request.site
                if sequence is None:
                    sequence = np.zeros(request.offsets.size, dtype=np.uint32)
                flat = request.offsets.reshape(-1)
                thread = np.flatnonzero(flat >= 0)
                part = np.zeros(len(thread), dtype=ACCESS_DTYPE)
                part["block"], part["thread"] = block, thread
                part["space"], part["is_write"] = site.memory == "shared", site.write
                part["line"], part["size"] = e.statement.span.line, site.size
                part["tensor"] = number[site.name] if site.memory == "global" else -1
                part["kind"] = ACCESS_KINDS.index(PLAIN if site.kind == OPAQUE else site.kind)
                part["offset"] = flat[thread]
                part["sequence"] = sequence[thread]
                sequence[thread] += 1
                parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=ACCESS_DTYPE)


def opaque_lines(blocks: Iterable[Sequence[Executed]]) -> set[int]:
    """Lines of the kernel text at which opaque fragments touch memory."""
    return {e.statement.span.line for b in blocks for e in b for r in e.log.requests if r.site.kind == OPAQUE}


def differences(mine: Array, theirs: Array, opaque: set[int] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """What one side has and the other has not, thread by thread (warp by warp at `opaque` lines); empty if equal."""

    def count(records: Array) -> Counter[tuple[int, ...]]:
        thread = records["thread"].astype(np.int64)
        who = np.where(np.isin(records["line"], list(opaque)), thread // 32 * 32, thread)
        columns = [who, *(records[c].astype(np.int64) for c in _COMPARED)]
        return Counter(map(tuple, np.stack(columns, axis=1).tolist()))

    a, b = count(mine), count(theirs)
    out = []
    for who, more in (("only by the layouts", a - b), ("only recorded", b - a)):
        lines: Counter[tuple[int, ...]] = Counter()
        for key, n in more.items():
            lines[(key[2], key[3], key[4], key[5], key[6], key[7])] += n
        for (line, space, write, tensor, kind, size), n in sorted(lines.items()):
            what = f"{'shared' if space else f'global, tensor {tensor}'} {'write' if write else 'read'}"
            out.append(f"{who}: line {line}, {what}, {ACCESS_KINDS[kind]}, {size} bytes: {n}")
    return out
