"""Lowering of products whose accumulators are opaque: carried by a loop where nothing else needs them, else delivered.

A carried tile stays in opaque accumulators for all iterations of a `for` if each iteration does nothing to it but add
products of one arrangement, and nothing else reads it: the main loop of a GEMM. After the loop it is delivered, unless
another such loop goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from phobos.contraction.interface import OpaquePlan
from phobos.ir.abi import Decision
from phobos.ir.scheduled import DeclareFragment, OpaqueFill, OpaqueLoad, OpaqueStore
from phobos.ir.storage import Buffer, Fragment, Literal, Opaque
from phobos.ir.tile import Broadcast, Compute, Dot, For, Value, Yield
from phobos.ir.types import DType
from phobos.passes.lowering.context import Lowering
from phobos.source import Span


@dataclass(frozen=True)
class Carried:
    """A carried tile that can stay opaque: the plan of the first product added to it, and the values that are the sum
    so far, the parameter first and what the iteration yields last."""

    plan: OpaquePlan
    values: tuple[Value, ...]


def carried(ctx: Lowering, loop: For, number: int) -> Carried | None:
    """Carried value `number` of the loop, if each iteration only adds products of one arrangement to it."""
    v = loop.body.params[1 + number]
    values, plan = [v], None
    while True:
        readers = ctx.placement.readers.get(v, [])
        if len(readers) != 1 or ctx.placement.home[readers[0]] is not loop.body:
            return None
        reader = readers[0]
        if isinstance(reader, Yield):
            return Carried(plan, tuple(values)) if plan is not None and reader.values[number] is v else None
        step: OpaquePlan | None = None
        if isinstance(reader, For):
            inner = next(i for i, init in enumerate(reader.inits) if init is v)
            found = carried(ctx, reader, inner)
            step, v = found.plan if found is not None else None, reader.results[inner]
        elif isinstance(reader, Compute):
            step, v = _added(ctx, reader, v), reader.result
        if step is None or (plan is not None and plan.accumulators != step.accumulators):
            return None
        plan = plan or step
        values.append(v)


def _added(ctx: Lowering, op: Compute, v: Value) -> OpaquePlan | None:
    """The plan of the product that `op` adds to `v`, if its accumulators are opaque."""
    if op.fn != "add":
        return None
    (other,) = [a for a in op.args if a is not v]
    dot = ctx.placement.defs.get(other)
    if other not in ctx.placement.deferred or not isinstance(dot, Dot):
        return None
    plan = ctx.plans[dot]
    return plan if isinstance(plan, OpaquePlan) else None


def stays(ctx: Lowering, loop: For, result: Value, place: Opaque) -> bool:
    """Is this result of a loop read only by what goes on adding to the same accumulators?"""
    if result in ctx.sums:
        return True
    readers = ctx.placement.readers.get(result, [])
    if len(readers) != 1 or ctx.placement.home[readers[0]] is not ctx.placement.home[loop]:
        return False
    reader = readers[0]
    if not isinstance(reader, For):
        return False
    found = carried(ctx, reader, next(i for i, init in enumerate(reader.inits) if init is result))
    return found is not None and found.plan.accumulators == place.plan.accumulators


def start(ctx: Lowering, found: Carried, param: Value, init: Value, source: Fragment | None, span: Span) -> Opaque:
    """Opaque accumulators with the initial value of a carried tile, which is in `source` unless one scalar fills it."""
    ctx.sums.update(found.values)
    known = ctx.opaques.get(init)
    if known is not None:
        return known
    place = Opaque(ctx.name(param.name), found.plan)
    scalar = filled_with(ctx, init)
    if scalar is not None:
        ctx.emit(OpaqueFill(span=span, target=place, value=ctx.scalar(scalar)))
    else:
        assert source is not None
        ctx.emit(OpaqueLoad(span=span, target=place, source=source, scratch=_scratch(ctx, place)))
    ctx.decisions.append(
        Decision(
            stage="accumulation", subject=f"{param.name} of {found.plan.room}", choice="carried in opaque fragments",
            reason="iterations only add products to it", line=span.line,
        )  # fmt: skip
    )
    return place


def filled_with(ctx: Lowering, v: Value) -> Value | None:
    """The scalar that all elements of the tile are, if the tile is nothing else."""
    op = ctx.placement.defs.get(v)
    if not isinstance(op, Broadcast):
        return None
    return filled_with(ctx, op.operand) if op.operand.is_tile else op.operand


def fresh(ctx: Lowering, hint: str, plan: OpaquePlan, span: Span) -> Opaque:
    """Accumulators of zeros."""
    place = Opaque(ctx.name(f"{hint}_w"), plan)
    ctx.emit(OpaqueFill(span=span, target=place, value=Literal(DType.F32, 0.0)))
    return place


def deliver(ctx: Lowering, place: Opaque, target: Fragment, span: Span, *, add: bool, reason: str) -> None:
    """target = place or target += place; the target is declared here unless it is added to."""
    if not add:
        ctx.emit(DeclareFragment(span=span, fragment=target))
    scratch = _scratch(ctx, place)
    ctx.emit(OpaqueStore(span=span, source=place, target=target, scratch=scratch, add=add))
    ctx.decisions.append(
        Decision(
            stage="accumulation", subject=f"{target.name} of {place.plan.room}",
            choice=f"delivered through {scratch.bytes} bytes of shared memory", reason=reason, line=span.line,
        )  # fmt: skip
    )


def _scratch(ctx: Lowering, place: Opaque) -> Buffer:
    return ctx.new_buffer(f"{place.name}_x", DType.F32, place.plan.scratch)
