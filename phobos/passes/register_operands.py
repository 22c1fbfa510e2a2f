"""Operands of products that a loop brings into shared memory through registers, and why (a part of stage_loads).

Only what goes from a tensor to shared memory as it is can be copied there ahead of its use. A tile that the text
converts or computes with on the way is loaded into registers in its iteration and written from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phobos.ir.abi import Decision
from phobos.ir.scheduled import Contract, ForStmt, GlobalView, LoadGlobal, Map, Schedule, Stmt, WriteShared, walk
from phobos.ir.storage import Buffer, Convert, Expr, Fragment, FragmentRef, expr_walk
from phobos.source import Span


@dataclass(frozen=True)
class Loaded:
    """An operand `buffer` that is written from registers, the tensor that its elements come from, and why that is."""

    buffer: Buffer
    tensor: str
    reason: str
    span: Span


def of_loop(loop: ForStmt) -> list[Loaded]:
    """The operands of the loop's own products that depend on a load of the same iteration."""
    operands = {b for s in loop.body if isinstance(s, Contract) for b in (s.a, s.b) if isinstance(b, Buffer)}
    origins = _Origins(loop.body)
    out: dict[tuple[Buffer, str], Loaded] = {}
    for s in loop.body:
        if isinstance(s, WriteShared) and s.buffer in operands:
            for view, span, converted in origins.of(s.source):
                reason = _why(s, view, converted)
                out.setdefault((s.buffer, view.tensor), Loaded(s.buffer, view.tensor, reason, span))
    return list(out.values())


def decisions(schedule: Schedule) -> tuple[Decision, ...]:
    """What the report says of them."""
    return tuple(
        Decision(
            stage="staging", subject=f"{x.buffer.name} from {x.tensor}", choice="through registers, in its iteration",
            reason=x.reason, line=x.span.line,
        )
        for loop in walk(schedule.body)
        if isinstance(loop, ForStmt)
        for x in of_loop(loop)
    )  # fmt: skip


def _why(write: WriteShared, view: GlobalView, converted: bool) -> str:
    given, between = view.dtype, write.source.dtype
    if not converted:
        return f"the product reads what is computed from `{view.tensor}`"
    if between is given:
        return f"what is loaded of `{view.tensor}` is converted to and fro, or needed in registers too"
    return f"the text converts `{view.tensor}` to {between}"


class _Origins:
    """Where tiles in registers come from."""

    def __init__(self, body: tuple[Stmt, ...]):
        self._loads = {s.target: s for s in walk(body) if isinstance(s, LoadGlobal)}
        self._maps: dict[Fragment, list[Map]] = {}
        for s in walk(body):
            if isinstance(s, Map):
                self._maps.setdefault(s.target, []).append(s)

    def of(self, tile: Fragment) -> Iterator[tuple[GlobalView, Span, bool]]:
        """The loads that it depends on, and whether it is what was loaded, converted at most."""
        yield from self._of(tile, True, set())

    def _of(self, tile: Fragment, plain: bool, seen: set[Fragment]) -> Iterator[tuple[GlobalView, Span, bool]]:
        if tile in seen:
            return
        seen.add(tile)
        made = self._maps.get(tile, [])
        alone = plain and len(made) <= 1 and all(s.unless_one is None and _converts(s.value) for s in made)
        if (load := self._loads.get(tile)) is not None:  # and perhaps computed with in place
            yield load.view, load.span, alone
        for s in made:
            views = {fragment: view for fragment, view, _ in s.loads}
            for e in expr_walk(s.value):
                if isinstance(e, FragmentRef):
                    if e.fragment in views:
                        yield views[e.fragment], s.span, alone
                    else:
                        yield from self._of(e.fragment, alone, seen)


def _converts(e: Expr) -> bool:
    while isinstance(e, Convert):
        e = e.arg
    return isinstance(e, FragmentRef)
