"""Loads of a loop that cannot be copied asynchronously, taken ahead through registers (a part of stage_loads).

The tile for the next iteration is read into registers behind the loop's barrier, while this one computes, and written
into the other half of a double buffer at the end of the iteration: elements may be converted on the way. One barrier an
iteration orders both: it publishes what the last iteration wrote, and the half that is written was last read before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from phobos.ir.scheduled import (
    Barrier,
    ContinueStmt,
    DeclareFragment,
    ForStmt,
    GlobalToShared,
    GlobalView,
    IfStmt,
    LoadGlobal,
    SetScalar,
    Stmt,
    WriteShared,
    nested,
)
from phobos.ir.storage import Apply, Buffer, Expr, Fragment, Literal, Position, ScalarRef, ScalarVar
from phobos.ir.types import DType


@dataclass(frozen=True)
class Ahead:
    """What goes before the loop, behind its barrier, and at the end of its body; and the rings, by the buffer they
    replace."""

    before: tuple[Stmt, ...]
    head: tuple[Stmt, ...]
    tail: tuple[Stmt, ...]
    rings: dict[Buffer, Buffer]


def registers(load: GlobalToShared) -> int:
    return load.layout.registers * max(1, load.view.dtype.bytes // 4)


def reject(loop: ForStmt) -> str | None:
    """Why the end of the loop's body cannot take the writes, or None."""
    if _continues(loop.body):
        return "an iteration may end early by `continue`"
    return None


def _continues(statements: tuple[Stmt, ...]) -> bool:
    for s in statements:
        if isinstance(s, ContinueStmt):
            return True
        if isinstance(s, IfStmt) and any(_continues(b) for b in nested(s)):
            return True
    return False


def build(
    loop: ForStmt,
    loads: list[GlobalToShared],
    fresh: Callable[[str], str],
    at: Callable[[GlobalView, Expr], GlobalView],
    following: Expr,
    before_end: Callable[[Expr], Expr],
) -> Ahead:
    """`fresh` makes names, `at` moves a view to an iteration, `following` is the next index, `before_end` tests an
    index."""
    span = loop.span
    halves: dict[int, ScalarVar] = {}  # by the bytes of a stage
    rings: dict[Buffer, Buffer] = {}
    for load in loads:
        ring = replace(load.buffer, stages=2)
        if ring.stage_bytes not in halves:
            halves[ring.stage_bytes] = ScalarVar(fresh("half"), DType.U32)
        rings[load.buffer] = replace(ring, stage=halves[ring.stage_bytes])
    other = {
        size: Apply(DType.U32, "sub", (Literal(DType.U32, size), ScalarRef(DType.U32, half.name)))
        for size, half in halves.items()
    }
    before: list[Stmt] = [
        SetScalar(span=span, target=half, value=Literal(DType.U32, 0), constant=False) for half in halves.values()
    ]
    first = tuple(replace(load, buffer=rings[load.buffer], view=at(load.view, loop.lo)) for load in loads)
    before.append(IfStmt(span=span, condition=before_end(loop.lo), then=first, orelse=(), note="ahead of the loop"))
    fetched: list[Stmt] = []
    written: list[Stmt] = []
    for load in loads:
        held = Fragment(fresh(f"{load.buffer.name}_next"), load.view.dtype, load.layout)
        before.append(DeclareFragment(span=load.span, fragment=held))
        fetched.append(
            LoadGlobal(span=load.span, target=held, view=at(load.view, following), fill=load.fill, declare=False)
        )
        positions = tuple(Position(DType.INDEX, a) for a in range(load.layout.rank))
        ring = rings[load.buffer]
        written.append(
            WriteShared(span=load.span, buffer=ring, source=held, at=positions, stage=other[ring.stage_bytes])
        )
    more = before_end(following)
    head = (IfStmt(span=span, condition=more, then=tuple(fetched), orelse=()),)
    tail = (
        IfStmt(span=span, condition=more, then=tuple(written), orelse=()),
        *(SetScalar(span=span, target=half, value=other[size], declare=False) for size, half in halves.items()),
    )
    return Ahead(tuple(before), head, tail, rings)


def barrier(loop: ForStmt) -> Barrier:
    return Barrier(span=loop.span, reasons=("publishes the tiles written ahead; the other half is free again",))
