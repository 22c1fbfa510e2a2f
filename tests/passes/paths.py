"""Random walks through a schedule, and what each statement touches in shared memory, worked out without
phobos.passes.effects.

for step in walk_path(schedule, seed): ...      # statements in the order in which one block might run them
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product

import numpy as np

from phobos.ir import scheduled as s
from phobos.ir.storage import Apply, Buffer, BufferRef, Expr, Literal, Position, expr_walk
from phobos.ir.types import DType
from phobos.layout.register import RegisterLayout


class _Leave(Exception):
    def __init__(self, kind: type[s.Stmt]):
        self.kind = kind


def walk_path(schedule: s.Schedule, seed: int, most: int = 4000) -> Iterator[s.Stmt]:
    """Statements as one block runs them: loops make up to three trips, branches go either way. Where a pipeline copies
    for iterations that follow, it always does."""
    r = random.Random(seed)
    count = 0

    def block(statements: tuple[s.Stmt, ...]) -> Iterator[s.Stmt]:
        nonlocal count
        for x in statements:
            count += 1
            if count > most:
                return
            if isinstance(x, s.IfStmt):
                yield x
                ahead = x.then and not x.orelse and all(
                    isinstance(y, (s.AsyncCopy, s.SetScalar, s.StepLoad, s.GlobalToShared, s.LoadGlobal))
                    or (isinstance(y, s.WriteShared) and y.stage is not None)
                    for y in x.then
                )  # fmt: skip
                yield from block(x.then if ahead or r.random() < 0.5 else x.orelse)
            elif isinstance(x, (s.ForStmt, s.WhileStmt)):
                if isinstance(x, s.ForStmt):
                    yield x
                trips = r.choice([0, 1, 2, 3])
                for trip in range(trips + 1):
                    if isinstance(x, s.WhileStmt):
                        yield from block(x.head)
                        yield x
                    if trip == trips:
                        break
                    try:
                        yield from block(x.body)
                    except _Leave as leave:
                        if leave.kind is s.BreakStmt:
                            break
                        if leave.kind is s.ReturnStmt:
                            raise
            elif isinstance(x, (s.BreakStmt, s.ContinueStmt, s.ReturnStmt)):
                raise _Leave(type(x))
            else:
                yield x

    try:
        yield from block(schedule.body)
    except _Leave:
        return


def _expressions(x: s.Stmt) -> Iterator[Expr]:
    for f in fields(x):
        if f.name in ("body", "then", "orelse", "head"):
            continue
        value = getattr(x, f.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Expr):
                yield item


def _buffers(x: s.Stmt) -> list[Buffer]:
    found: list[Buffer] = []
    for f in fields(x):
        value = getattr(x, f.name)
        found += [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Buffer)]
    return found


_WRITES = (s.GlobalToShared, s.AsyncCopy, s.WriteShared, s.ReducePublish, s.AtomicScalar)
_READS = (s.ReadShared, s.ReduceCollect, s.Contract, s.StepLoad, s.OperandLoad)
_BOTH = (s.ScanShared, s.OpaqueLoad, s.OpaqueStore)  # their own order is their own business


def touched(x: s.Stmt) -> tuple[list[Buffer], list[Buffer]]:
    """(buffers read, buffers written). A statement with a buffer that is not known here is an error of this helper."""
    read = [e.buffer for whole in _expressions(x) for e in expr_walk(whole) if isinstance(e, BufferRef)]
    own = _buffers(x)
    if isinstance(x, s.Contract) and x.a_name is not None:
        own = [b for b in own if b is not x.a]
    if isinstance(x, _WRITES):
        return read, own
    if isinstance(x, _READS):
        return read + own, []
    if isinstance(x, _BOTH):
        return read + own, own
    assert not own, f"does {type(x).__name__} read or write its buffer?"
    return read, []


def bytes_of(buffer: Buffer, offsets: Mapping[Buffer, int]) -> range:
    return range(offsets[buffer], offsets[buffer] + buffer.bytes)


# --- which threads touch which element -----------------------------------------------------------


def _value(e: Expr, position: tuple[int, ...]) -> int | None:
    if isinstance(e, Position):
        return position[e.axis]
    if isinstance(e, Literal):
        return int(e.value)
    if isinstance(e, Apply) and e.fn in ("add", "sub", "mul", "div", "mod"):
        a, b = (_value(x, position) for x in e.args)
        if a is None or b is None:
            return None
        return {"add": a + b, "sub": a - b, "mul": a * b, "div": a // b if b else 0, "mod": a % b if b else 0}[e.fn]
    return None


def threads_of(
    layout: RegisterLayout, at: tuple[Expr, ...], shape: tuple[int, ...], owners: bool
) -> dict[tuple[int, ...], set[int]] | None:
    """Element of the buffer -> threads that touch it; None where the positions are only known at run time."""
    by_position: dict[tuple[int, ...], set[int]] = {}
    table = layout.owners if owners else layout.valid
    for w, lane, r in np.argwhere(table):
        position = tuple(int(p) for p in layout.positions[w, lane, r])
        by_position.setdefault(position, set()).add(int(w) * 32 + int(lane))
    out: dict[tuple[int, ...], set[int]] = {}
    for position in product(*map(range, layout.shape)):
        element = tuple(_value(e, position) for e in at)
        if any(v is None for v in element):
            return None
        if all(0 <= v < n for v, n in zip(element, shape, strict=True)):  # type: ignore[operator]
            out.setdefault(element, set()).update(by_position[position])  # type: ignore[arg-type]
    return out


def access_map(x: s.Stmt, buffer: Buffer, write: bool) -> dict[tuple[int, ...], set[int]] | None:
    """Element -> threads for the accesses of a statement to one of its buffers; None: any thread, any element."""
    shape = buffer.layout.shape
    if write and isinstance(x, s.WriteShared) and x.guard is None:
        return threads_of(x.source.layout, x.at, shape, owners=True)
    if not write and isinstance(x, s.ReadShared):
        straight = tuple(Position(DType.INDEX, a) for a in range(len(shape)))
        return threads_of(x.target.layout, straight, shape, owners=False)
    if not write and isinstance(x, s.Map):
        refs = [e for e in expr_walk(x.value) if isinstance(e, BufferRef) and e.buffer is buffer]
        maps = [threads_of(x.target.layout, e.at, shape, owners=False) for e in refs]
        if len(maps) == 1:
            return maps[0]
    return None


def is_ring(buffer: Buffer) -> bool:
    return buffer.stages > 1
