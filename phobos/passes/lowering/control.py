"""Lowering of control flow: carried values become variables that every iteration updates in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phobos.ir.scheduled import BreakStmt, ContinueStmt, ForStmt, IfStmt, Map, ReturnStmt, SetScalar, Stmt, WhileStmt
from phobos.ir.storage import Expr, Fragment, FragmentRef, Literal, Opaque, ScalarRef, ScalarVar, expr_walk
from phobos.ir.tile import Block, Break, Continue, For, If, Op, Return, Value, While, Yield
from phobos.ir.types import DType
from phobos.ir.walk import walk
from phobos.passes.lowering import opaque
from phobos.passes.lowering.context import Lowering
from phobos.passes.lowering.elementwise import convert, publish_operands, tile_expr
from phobos.source import Span

Place = Fragment | ScalarVar | Opaque
LowerBlock = Callable[[Lowering, Block], None]


@dataclass(frozen=True, eq=False)
class Loop:
    """The innermost loop being lowered: where its carried values live."""

    places: tuple[Place, ...]


def _read_inside(ctx: Lowering, op: Op) -> set[Value]:
    """What the op's blocks read, through inlined values too."""
    found: set[Value] = set()
    todo = [v for block in op.blocks() for inner in walk(block) for v in inner.operands()]
    while todo:
        v = todo.pop()
        if v not in found:
            found.add(v)
            if v in ctx.placement.inlined:
                todo.extend(ctx.placement.defs[v].operands())
    return found


def _place_inits(ctx: Lowering, op: For | While, params: tuple[Value, ...]) -> tuple[Place, ...]:
    """A variable for every carried value, holding its initial value; in place of the initial value where that dies."""
    inside = _read_inside(ctx, op)
    taken: set[Fragment] = set()
    places: list[Place] = []
    for number, (param, init) in enumerate(zip(params, op.inits)):
        if isinstance(op, For) and param.is_tile and (sums := opaque.carried(ctx, op, number)) is not None:
            places.append(_start_opaque(ctx, sums, param, init, op.span))
            continue
        if not param.is_tile:
            var = ScalarVar(ctx.name(param.name), param.dtype)
            ctx.emit(SetScalar(span=op.span, target=var, value=ctx.scalar(init), constant=False))
            places.append(var)
            continue
        layout = ctx.layout(param)
        fragment = ctx.fragments.get(init) if init not in ctx.placement.inlined else None
        reuse = (
            fragment is not None
            and fragment.layout == layout
            and fragment not in taken
            and init not in inside
            and ctx.dies_here(init)
        )
        if not reuse:
            value = tile_expr(ctx, init, layout, op.span)
            fragment = ctx.new_fragment(param.name, param.dtype, layout)
            ctx.emit(Map(span=op.span, target=fragment, value=value))
        assert fragment is not None
        taken.add(fragment)
        places.append(fragment)
    return tuple(places)


def _start_opaque(ctx: Lowering, sums: opaque.Carried, param: Value, init: Value, span: Span) -> Opaque:
    source: Fragment | None = None
    layout = sums.plan.c_layout
    if init not in ctx.opaques and opaque.filled_with(ctx, init) is None:
        value = tile_expr(ctx, init, layout, span)
        if isinstance(value, FragmentRef) and value.fragment.layout == layout:
            source = value.fragment
        else:
            source = ctx.new_fragment(init.name, init.dtype, layout)
            ctx.emit(Map(span=span, target=source, value=value))
    return opaque.start(ctx, sums, param, init, source, span)


def _bind(ctx: Lowering, values: tuple[Value, ...], places: tuple[Place, ...]) -> None:
    for v, place in zip(values, places):
        if isinstance(place, Fragment):
            ctx.bind(v, place)
        elif isinstance(place, Opaque):
            ctx.opaques[v] = place
        else:
            ctx.scalars[v] = ScalarRef(v.dtype, place.name)


def assign(ctx: Lowering, places: tuple[Place, ...], values: tuple[Value, ...], span: Span) -> None:
    """places = values, all at once: an assignment waits for those that still read its target."""
    pending: list[tuple[Place, Expr]] = []
    for place, v in zip(places, values):
        if isinstance(place, Opaque):
            assert ctx.opaques[v] is place
            continue
        value = tile_expr(ctx, v, place.layout, span) if isinstance(place, Fragment) else ctx.scalar(v)
        if isinstance(value, FragmentRef) and value.fragment is place:
            continue
        if isinstance(value, ScalarRef) and isinstance(place, ScalarVar) and value.name == place.name:
            continue
        pending.append((place, value))
    while pending:
        for i, (place, value) in enumerate(pending):
            if not any(_reads(other, place) for j, (_, other) in enumerate(pending) if j != i):
                _set(ctx, place, value, span)
                del pending[i]
                break
        else:  # a cycle, as in swapping two variables: one value waits in a temporary
            place, value = pending[0]
            assert not isinstance(place, Opaque)
            if isinstance(place, Fragment):
                temporary = ctx.new_fragment(f"{place.name}_old", place.dtype, place.layout)
                ctx.emit(Map(span=span, target=temporary, value=value))
                pending[0] = (place, FragmentRef(place.dtype, temporary))
            else:
                var = ScalarVar(ctx.name(f"{place.name}_old"), place.dtype)
                ctx.emit(SetScalar(span=span, target=var, value=value))
                pending[0] = (place, ScalarRef(place.dtype, var.name))


def _reads(value: Expr, place: Place) -> bool:
    for e in expr_walk(value):
        if isinstance(e, FragmentRef) and e.fragment is place:
            return True
        if isinstance(e, ScalarRef) and isinstance(place, ScalarVar) and e.name == place.name:
            return True
    return False


def _set(ctx: Lowering, place: Place, value: Expr, span: Span) -> None:
    assert not isinstance(place, Opaque)
    if isinstance(place, Fragment):
        ctx.emit(Map(span=span, target=place, value=value, declare=False))
    else:
        ctx.emit(SetScalar(span=span, target=place, value=value, declare=False))


def _body(
    ctx: Lowering,
    block: Block,
    params: tuple[Value, ...],
    places: tuple[Place, ...],
    span: Span,
    lower: LowerBlock,
    loops: list[Loop],
) -> tuple[Stmt, ...]:
    with ctx.collect() as out:
        ctx.enter(block, loop=True)
        loops.append(Loop(places))
        _bind(ctx, params, places)
        for p in params:
            if p.is_tile:
                publish_operands(ctx, p, span)
        lower(ctx, block)
        loops.pop()
        ctx.leave()
    return tuple(out)


def for_op(ctx: Lowering, op: For, lower: LowerBlock, loops: list[Loop]) -> None:
    index, *carried = op.body.params
    params = tuple(carried)
    places = _place_inits(ctx, op, params)
    var = ScalarVar(ctx.name(index.name), index.dtype)
    ctx.scalars[index] = ScalarRef(index.dtype, var.name)
    step = ctx.facts.constant(op.step)
    body = _body(ctx, op.body, params, places, op.span, lower, loops)
    ctx.emit(
        ForStmt(
            span=op.span, index=var, lo=ctx.scalar(op.lo), hi=ctx.scalar(op.hi), step=ctx.scalar(op.step),
            down=None if step is None else step < 0, body=body, unroll=op.unroll, pipeline=op.pipeline,
        )  # fmt: skip
    )
    _bind(ctx, op.results, tuple(_end(ctx, op, v, place) for v, place in zip(op.results, places)))
    _publish(ctx, op.results, op.span)


def _end(ctx: Lowering, op: For, result: Value, place: Place) -> Place:
    """Where a result of the loop is from now on: opaque accumulators are delivered unless they are added to further."""
    if not isinstance(place, Opaque) or opaque.stays(ctx, op, result, place):
        return place
    fragment = ctx.new_fragment(result.name, result.dtype, place.plan.c_layout)
    opaque.deliver(ctx, place, fragment, op.span, add=False, reason="elements are read after the loop")
    layout = ctx.layout(result)
    return fragment if fragment.layout == layout else convert(ctx, fragment, layout, result.name, op.span)


def while_op(ctx: Lowering, op: While, lower: LowerBlock, loops: list[Loop]) -> None:
    places = _place_inits(ctx, op, op.body.params)
    with ctx.collect() as head:
        ctx.enter(op.condition, loop=True)
        _bind(ctx, op.condition.params, places)
        ctx.scope.local.clear()  # the body reads the carried values after the condition has
        *_, end = op.condition.ops
        assert isinstance(end, Yield)
        lower(ctx, Block(params=op.condition.params, ops=op.condition.ops[:-1]))
        condition = ctx.scalar(end.values[0])
        ctx.leave()
    body = _body(ctx, op.body, op.body.params, places, op.span, lower, loops)
    ctx.emit(WhileStmt(span=op.span, head=tuple(head), condition=condition, body=body))
    _bind(ctx, op.results, places)
    _publish(ctx, op.results, op.span)


def _publish(ctx: Lowering, values: tuple[Value, ...], span: Span) -> None:
    for v in values:
        if v.is_tile:
            publish_operands(ctx, v, span)


def if_op(ctx: Lowering, op: If, lower: LowerBlock, loops: list[Loop]) -> None:
    condition = ctx.scalar(op.condition)
    ends = [b.ops[-1] for b in (op.then, op.orelse)]
    places: list[Place] = []
    taken: set[Fragment] = set()
    for i, result in enumerate(op.results):
        if not result.is_tile:
            var = ScalarVar(ctx.name(result.name), result.dtype)
            zero = Literal(result.dtype, False if result.dtype is DType.BOOL else 0.0 if result.dtype.is_float else 0)
            ctx.emit(SetScalar(span=op.span, target=var, value=zero, constant=False))
            places.append(var)
            continue
        layout = ctx.layout(result)
        chosen: Fragment | None = None
        for end in ends:
            if not isinstance(end, Yield):
                continue
            v = end.values[i]
            fragment = ctx.fragments.get(v)
            if fragment is None or fragment in taken or fragment.layout != layout or v in ctx.placement.inlined:
                continue
            if ctx.dies_here(v):
                chosen = fragment
                break
        if chosen is None:
            chosen = ctx.declare(ctx.new_fragment(result.name, result.dtype, layout), op.span)
        taken.add(chosen)
        places.append(chosen)
    branches: list[tuple[Stmt, ...]] = []
    for block in (op.then, op.orelse):
        with ctx.collect() as out:
            ctx.enter(block)
            end = block.ops[-1]
            if isinstance(end, Yield):
                lower(ctx, Block(params=(), ops=block.ops[:-1]))
                ctx.scope.index = len(block.ops) - 1
                assign(ctx, tuple(places), end.values, end.span)
            else:
                lower(ctx, block)
            ctx.leave()
        branches.append(tuple(out))
    ctx.emit(IfStmt(span=op.span, condition=condition, then=branches[0], orelse=branches[1]))
    _bind(ctx, op.results, tuple(places))
    _publish(ctx, op.results, op.span)


def exit_op(ctx: Lowering, op: Op, loops: list[Loop]) -> None:
    """Yield at the end of a loop body, Break, Continue, Return."""
    if isinstance(op, Return):
        ctx.emit(ReturnStmt(span=op.span))
        return
    assert isinstance(op, (Yield, Break, Continue))
    if not loops:
        return  # the end of the kernel
    assign(ctx, loops[-1].places, op.values, op.span)
    if isinstance(op, Break):
        ctx.emit(BreakStmt(span=op.span))
    elif isinstance(op, Continue):
        ctx.emit(ContinueStmt(span=op.span))
