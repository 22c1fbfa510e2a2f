"""hoist_operands: a left operand that no iteration changes is read from shared memory once, before the loop.

Precondition: a Schedule after stage_loads, without barriers of its own. Postcondition: the same meaning; where
registers allow, a product in a loop whose left operand was put into shared memory before the loop finds its fragments
in registers.

The estimate of registers counts the tiles that live through the loop, the accumulators and the operand's fragments.
"""

from __future__ import annotations

from dataclasses import replace

from phobos.ir.abi import Decision
from phobos.ir.c_names import fresh_name
from phobos.ir.scheduled import (
    AsyncCopy,
    Contract,
    ForStmt,
    GlobalToShared,
    IfStmt,
    Map,
    OperandLoad,
    Schedule,
    Stmt,
    WhileStmt,
    WriteShared,
    walk,
)
from phobos.ir.storage import Buffer, Expr, Fragment, FragmentRef, Opaque, expr_walk

_REGISTERS = 200  # of 255: addresses, row statistics and fragments of the right operand need the rest


def run(schedule: Schedule) -> Schedule:
    hoister = _Hoister(schedule)
    body = hoister.block(schedule.body)
    if not hoister.decisions:
        return schedule
    return replace(
        schedule, body=body, names=frozenset(hoister.names), decisions=(*schedule.decisions, *hoister.decisions)
    )


class _Hoister:
    def __init__(self, schedule: Schedule):
        self.names = set(schedule.names)
        self.decisions: list[Decision] = []

    def block(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in statements:
            if isinstance(s, IfStmt):
                s = replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
            elif isinstance(s, WhileStmt):
                s = replace(s, body=self.block(s.body))
            elif isinstance(s, ForStmt):
                out.extend(self._loop(replace(s, body=self.block(s.body))))
                continue
            out.append(s)
        return tuple(out)

    def _loop(self, loop: ForStmt) -> list[Stmt]:
        written = {
            s.buffer for s in walk(loop.body) if isinstance(s, (WriteShared, GlobalToShared, AsyncCopy))
        }
        before: list[Stmt] = []
        body: list[Stmt] = []
        for s in loop.body:
            if isinstance(s, Contract) and isinstance(s.a, Buffer) and s.a.stages == 1 and s.a not in written:
                need = s.plan.a_registers
                if need and s.a_name is None and _live(loop, s) + need <= _REGISTERS:
                    name = fresh_name(self.names, f"{s.a.name}_r")
                    before.append(OperandLoad(span=s.span, plan=s.plan, name=name, a=s.a))
                    self.decisions.append(
                        Decision(
                            stage="staging", subject=f"{s.a.name} for line {s.span.line}", line=s.span.line,
                            choice=f"{need} registers, read once before the loop", reason="no iteration changes it",
                        )  # fmt: skip
                    )
                    s = replace(s, a_name=name)
            body.append(s)
        return [*before, replace(loop, body=tuple(body))] if before else [loop]


def _live(loop: ForStmt, product: Contract) -> int:
    """Registers of the tiles that come from outside the loop, plus the product's accumulators."""
    made: set[Fragment | Opaque] = set()
    used: set[Fragment | Opaque] = set()
    for s in walk(loop.body):
        if isinstance(s, Map):
            if s.declare:
                made.add(s.target)
            used.add(s.target)
            used |= _fragments(s.value)
        elif isinstance(s, Contract):
            used.add(s.accumulator)
    outside = sum(f.layout.registers for f in used - made)
    inside = product.accumulator.layout.registers if product.accumulator in made else 0
    return outside + inside


def _fragments(e: Expr) -> set[Fragment]:
    return {x.fragment for x in expr_walk(e) if isinstance(x, FragmentRef)}
