"""What the report says of layouts and of accesses to global memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phobos.ir.abi import Decision, Specialization
from phobos.ir.scheduled import (
    AsyncCopy,
    AtomicGlobal,
    Contract,
    ForStmt,
    GatherAxis,
    GlobalToShared,
    GlobalView,
    IfStmt,
    LoadGlobal,
    RangeAxis,
    Schedule,
    Stmt,
    StoreGlobal,
    WhileStmt,
    nested,
    walk,
)
from phobos.ir.storage import Fragment
from phobos.ir.tile import Value
from phobos.layout.register import RegisterLayout
from phobos.passes import whole_tiles
from phobos.passes.placement import Placement

_WIDEST = 16  # bytes of one access


def layout_decisions(
    layouts: Mapping[Value, RegisterLayout], reasons: Mapping[Value, str], place: Placement
) -> tuple[Decision, ...]:
    """The layout of each named value that lives in registers, once where it keeps it from line to line."""
    found: dict[tuple[str, str], Decision] = {}
    for v, layout in layouts.items():
        if v in place.inlined or v in place.staged or v in place.deferred:
            continue
        subject, choice = f"{v.name}: {v.type}", str(layout)
        found.setdefault(
            (subject, choice),
            Decision(stage="layout", subject=subject, choice=choice, reason=reasons[v], line=v.span.line),
        )
    return tuple(found.values())


def operand_decisions(schedule: Schedule) -> tuple[Decision, ...]:
    """Of left operands that the block computes and that instructions could take from registers, whether they do."""
    out: dict[Decision, None] = {}
    for s in walk(schedule.body):
        if isinstance(s, Contract) and s.plan.a_fragment is not None:
            kept = isinstance(s.a, Fragment)
            out[
                Decision(
                    stage="operand",
                    subject=f"left operand {s.a.name}",
                    choice="stays in registers" if kept else "through shared memory",
                    reason=f"it is {'' if kept else 'not '}computed in the registers in which the instruction takes it",
                    line=s.span.line,
                )
            ] = None
    return tuple(out)


def placed(
    statements: tuple[Stmt, ...], where: str = "", version: str = ""
) -> Iterator[tuple[Stmt, str]]:
    """Every statement, in order, with the loop and its version that it is in, in words."""
    for s in statements:
        yield s, where + version
        if isinstance(s, IfStmt) and s.note == whole_tiles.NOTE:
            yield from placed(s.then, where, " without masks")
            yield from placed(s.orelse, where, " with masks")
            continue
        inside = where
        if isinstance(s, (ForStmt, WhileStmt)):
            inside = f" in the loop over {s.index.name}" if isinstance(s, ForStmt) else " in the `while` loop"
        for block in nested(s):
            yield from placed(block, inside, version)


def access_decisions(schedule: Schedule, spec: Specialization) -> tuple[Decision, ...]:
    """The width of each load, store and copy, with what limits it."""
    out: dict[Decision, None] = {}
    for s, where in placed(schedule.body):
        if isinstance(s, LoadGlobal):
            what, view, layout = "load of", s.view, s.target.layout
        elif isinstance(s, StoreGlobal):
            what, view, layout = "store to", s.view, s.source.layout
        elif isinstance(s, (GlobalToShared, AsyncCopy)):
            what, view, layout = "copy to shared memory of", s.view, s.layout
        elif isinstance(s, AtomicGlobal):
            what, view, layout = f"atomic {s.kind} on", s.view, s.values[0].layout
        else:
            continue
        elements, reason = (
            (1, "atomics are element by element") if isinstance(s, AtomicGlobal) else _width(view, layout, spec)
        )
        choice = f"{elements * view.dtype.bytes} bytes an access, " + (
            "bounds checked" if view.guarded else "always within bounds"
        )
        out[
            Decision(
                stage="access", subject=f"{what} {view.tensor}{_version(where)}", choice=choice, reason=reason,
                line=s.span.line,
            )
        ] = None
    return tuple(out)


def _version(where: str) -> str:
    return where if where.endswith(" masks") else ""


def _width(view: GlobalView, layout: RegisterLayout, spec: Specialization) -> tuple[int, str]:
    """Elements that one access moves, and why not more."""
    facts = spec.tensor(view.tensor)
    last = view.axes[-1 if facts.inner is None else facts.inner]
    if isinstance(last, GatherAxis):
        return 1, "an index tile chooses the positions"
    if not isinstance(last, RangeAxis):
        return 1, f"its {'last' if facts.inner is None else 'contiguous'} axis is a single position"
    if last.tile_axis != layout.rank - 1:
        return 1, "its contiguous axis is not the last of the tile"
    run = layout.contiguous_run(last.tile_axis)
    elements = view.vector
    while elements > 1 and run % elements:
        elements //= 2
    if elements * view.dtype.bytes >= _WIDEST:
        return elements, "aligned, contiguous and within one bounds check"
    if elements < view.vector:
        return elements, f"the layout gives a thread runs of {run} element{'s' if run != 1 else ''}"
    if not facts.align16 and facts.inner is None:
        return elements, f"{view.tensor} need not be aligned to 16 bytes with a last stride of 1"
    at = "its position and its extent" if last.high or last.low else "its position"
    return elements, f"{at} are multiples of {elements} at least" if elements > 1 else f"{at} may be any"
