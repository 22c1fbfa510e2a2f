"""Lowering of products whose accumulators are opaque: carried by a loop where nothing else needs them, else delivered.

A carried tile stays in opaque accumulators for all iterations of a `for` if each iteration does nothing to it but add
products of one arrangement, and nothing else reads it: the main loop of a GEMM. After the loop it is delivered, unless another
such loop goes on with it.
"""

from __future__ import annotations

from phobos.contraction.interface import OpaquePlan
from phobos.ir.abi import Decision
from phobos.ir.scheduled import DeclareFragment, OpaqueFill, OpaqueLoad, OpaqueStore
from phobos.ir.storage import Expr, Fragment, Literal, Opaque
from phobos.ir.tile import Broadcast, Compute, Dot, For, Value, Yield
from phobos.ir.types import DType
from phobos.passes.lowering.context import Lowering
from phobos.source import Span


def carried(ctx: Lowering, loop: For, number: int) -> OpaquePlan | None:
    """The plan of the products that carried value `number` of the loop sums, where it can stay in their accumulators."""
    v = loop.body.params[1 + number]
    plan: OpaquePlan | None = None
    while True:
        readers = ctx.placement.readers.get(v, [])
        if len(readers) != 1 or ctx.placement.home[readers[0]] is not loop.body:
            return None
        reader = readers[0]
        if isinstance(reader, Yield):
            return plan if reader.values[number] is v else None
        step = _added(ctx, reader, v) if isinstance(reader, Compute) else None
        if isinstance(reader, For):
            inner = next(i for i, init in enumerate(reader.inits) if init is v)
            step, v = carried(ctx, reader, inner), reader.results[inner]
        elif isinstance(reader, Compute):
            v = reader.result
        if step is None or (plan is not None and plan.accumulators != step.accumulators):
            return None
        plan = plan or step


def _added(ctx: Lowering, op: Compute, v: Value) -> OpaquePlan | None:
    """The plan of the product that `op` adds to `v` and to nothing else, if its accumulators are opaque."""
    for a, b in (op.args, op.args[::-1]) if op.fn == "add" else ():
        dot = ctx.placement.defs.get(b)
        if a is v and b in ctx.placement.deferred and isinstance(dot, Dot):
            plan = ctx.plans[dot]
            return plan if isinstance(plan, OpaquePlan) else None
    return None


def stays(ctx: Lowering, loop: For, result: Value, place: Opaque) -> bool:
    """Does only another loop read this result of a loop, which goes on adding to the same accumulators?"""
    readers = ctx.placement.readers.get(result, [])
    if len(readers) != 1 or ctx.placement.home[readers[0]] is not ctx.placement.home[loop]:
        return False
    reader = readers[0]
    if isinstance(reader, Yield):  # of a loop around, which carries it too
        return any(result is v and isinstance(p, Opaque) for v, p in zip(reader.values, ctx.carrying))
    if not isinstance(reader, For):
        return False
    plan = carried(ctx, reader, next(i for i, init in enumerate(reader.inits) if init is result))
    return plan is not None and plan.accumulators == place.plan.accumulators
