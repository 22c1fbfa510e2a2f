"""Lowering of elementwise ops: expression trees over fragments, and changes of layout where trees meet."""

from __future__ import annotations

import numpy as np

from phobos.contraction.interface import OpaquePlan
from phobos.ir.abi import Decision
from phobos.ir.scheduled import Contract, Map, MoveRegisters, ReadShared, WriteShared
from phobos.ir.storage import (
    Apply,
    Buffer,
    Convert,
    Expr,
    Fragment,
    FragmentRef,
    Literal,
    Opaque,
    Position,
    Special,
    expr_walk,
)
from phobos.ir.tile import Broadcast, Cast, Compute, Constant, Dot, GridSize, Iota, Op, ProgramId, Value
from phobos.ir.types import DType
from phobos.layout.register import RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.passes.lowering import opaque
from phobos.passes.lowering.context import Lowering, Place, integer, operand_places
from phobos.passes.placement import DEEPEST
from phobos.source import Span

_FAST = frozenset(
    {"exp", "exp2", "log", "log2", "sin", "cos", "tanh", "sigmoid", "div", "rsqrt", "sqrt", "pow", "erf", "gelu"}
)


def _approximate(ctx: Lowering, op: Compute) -> bool:
    return op.approximate or (ctx.fast and op.fn in _FAST)


# --- scalars ---------------------------------------------------------------------------------


def scalar_op(ctx: Lowering, op: Op) -> None:
    """Constant, ProgramId, GridSize, scalar Compute and Cast."""
    if isinstance(op, Constant):
        ctx.scalars[op.result] = Literal(op.result.dtype, op.value)
    elif isinstance(op, ProgramId):
        ctx.scalars[op.result] = ctx.order.coordinate(op.axis)
        _keep(ctx, op.result, op)
    elif isinstance(op, GridSize):
        ctx.scalars[op.result] = Special(DType.INDEX, "nctaid", op.axis)
    elif isinstance(op, Cast):
        inner = ctx.scalar(op.operand)
        ctx.scalars[op.result] = inner if op.operand.dtype is op.result.dtype else Convert(op.result.dtype, inner)
        if isinstance(inner, (Apply, Convert)) and len(ctx.placement.readers.get(op.result, [])) > 1:
            ctx.set_scalar(op.result, ctx.scalars[op.result], op.span)  # else each reader would compute it
    elif isinstance(op, Compute):
        args = tuple(ctx.scalar(a) for a in op.args)
        ctx.scalars[op.result] = Apply(op.result.dtype, op.fn, args, _approximate(ctx, op))
        _keep(ctx, op.result, op)


def _keep(ctx: Lowering, v: Value, op: Op) -> None:
    """Gives the value a variable unless its one reader is a scalar op close by."""
    readers = ctx.placement.readers.get(v, [])
    if len(readers) == 1 and isinstance(readers[0], (Compute, Cast)) and not readers[0].result.is_tile:
        if v in ctx.scope.last_use and not isinstance(op, ProgramId) and _height(ctx.scalars[v]) < DEEPEST:
            return
    ctx.set_scalar(v, ctx.scalars[v], op.span)


def _height(e: Expr) -> int:
    """Operations inside each other."""
    if isinstance(e, Convert):
        return 1 + _height(e.arg)
    return 1 + max(map(_height, e.args), default=0) if isinstance(e, Apply) else 0


# --- tiles -----------------------------------------------------------------------------------


def tile_expr(ctx: Lowering, v: Value, layout: RegisterLayout, span: Span) -> Expr:
    """The value's element at the current position of a statement over `layout` (to which its shape broadcasts)."""
    if not v.is_tile:
        return ctx.scalar(v)
    if v in ctx.placement.inlined:
        op = ctx.placement.defs[v]
        if isinstance(op, Iota):
            if v.shape[op.axis] == 1:
                return Literal(v.dtype, 0)
            position = Position(DType.INDEX, op.axis)
            return position if v.dtype is DType.INDEX else Convert(v.dtype, position)
        if isinstance(op, Broadcast):
            return tile_expr(ctx, op.operand, layout, span)
        if isinstance(op, Cast):
            return Convert(v.dtype, tile_expr(ctx, op.operand, layout, span))
        assert isinstance(op, Compute)
        args = tuple(tile_expr(ctx, a, layout, span) for a in op.args)
        return Apply(v.dtype, op.fn, args, _approximate(ctx, op))
    return FragmentRef(v.dtype, fragment_as(ctx, v, layout.broadcast_source(v.shape), span))


def fragment_as(ctx: Lowering, v: Value, layout: RegisterLayout, span: Span) -> Fragment:
    """The value in registers of `layout`, converted if it lives in another one."""
    fragment = ctx.fragments[v]
    if fragment.layout == layout:
        return fragment
    cache = ctx.scope.converted
    if (v, layout) not in cache:
        cache[v, layout] = convert(ctx, fragment, layout, v.name, span)
    return cache[v, layout]


def convert(ctx: Lowering, source: Fragment, layout: RegisterLayout, hint: str, span: Span) -> Fragment:
    """A change of layout: by moving registers where every thread already has what it needs, else through shared
    memory."""
    moves = register_moves(source.layout, layout)
    target = ctx.new_fragment(hint, source.dtype, layout)
    subject = f"{hint}: {source.layout} to {layout}"
    if moves is not None:
        ctx.emit(MoveRegisters(span=span, target=target, source=source, moves=moves))
        ctx.decisions.append(
            Decision(
                stage="conversion",
                subject=subject,
                choice="registers",
                reason="no thread lacks an element",
                line=span.line,
            )
        )
        return target
    wide = min(source.layout.contiguous_run(layout.rank - 1), layout.contiguous_run(layout.rank - 1)) > 1
    shared = exchange_layout(layout.shape, source.dtype.bytes, wide)
    buffer = ctx.new_buffer(f"{hint}_x", source.dtype, shared)
    write_buffer(ctx, buffer, source, span)
    read_buffer(ctx, target, buffer, span)
    ctx.decisions.append(
        Decision(
            stage="conversion", subject=subject, choice=f"through {buffer.bytes} bytes of shared memory",
            reason="elements change threads", line=span.line,
        )  # fmt: skip
    )
    return target


def exchange_layout(shape: tuple[int, ...], itemsize: int, wide: bool = False) -> SharedLayout:
    """Row-major, with long rows spread over banks: by one word, or where both sides take several elements at a time
    (`wide`) by a 16-byte chunk."""
    pad = 0
    if len(shape) > 1 and shape[-1] * itemsize % 128 == 0:
        pad = (16 if wide else 4) // itemsize
    return SharedLayout.row_major(shape, itemsize, pad)


def positions(rank: int) -> tuple[Expr, ...]:
    return tuple(Position(DType.INDEX, a) for a in range(rank))


def write_buffer(ctx: Lowering, buffer: Buffer, source: Fragment, span: Span) -> None:
    ctx.emit(WriteShared(span=span, buffer=buffer, source=source, at=positions(source.layout.rank)))


def read_buffer(ctx: Lowering, target: Fragment, buffer: Buffer, span: Span) -> None:
    ctx.emit(ReadShared(span=span, target=target, buffer=buffer))


def tile_guard(layout: RegisterLayout) -> Expr | None:
    """True where the position is inside the tile; None if there is no padding."""
    guard: Expr | None = None
    for axis, extent in enumerate(layout.shape):
        if layout.padded(axis):
            test = Apply(DType.BOOL, "lt", (Position(DType.INDEX, axis), integer(extent)))
            guard = test if guard is None else Apply(DType.BOOL, "and", (guard, test))
    return guard


def register_moves(source: RegisterLayout, target: RegisterLayout) -> tuple[int, ...] | None:
    """For each register of `target`, the register of `source` with the same element in the same thread, if that is one
    map for all threads; None otherwise."""
    if source.warps != target.warps or source.shape != target.shape:
        return None
    if target.registers * target.warps > 1 << 16:
        return None
    ps, pt = source.positions, target.positions
    moves: list[int] = []
    for r in range(target.registers):
        want = pt[:, :, r, :]
        valid = target.valid[:, :, r]
        if not valid.any():
            moves.append(0)
            continue
        found = -1
        for s in range(source.registers):
            if bool(np.all((ps[:, :, s, :] == want).all(axis=-1) | ~valid)):
                found = s
                break
        if found < 0:
            return None
        moves.append(found)
    return tuple(moves)


def materialise(ctx: Lowering, v: Value, value: Expr, span: Span, reusable: tuple[Value, ...] = ()) -> Fragment:
    """Evaluates a tree into registers: in place of an operand that dies here if one fits, else into new ones."""
    layout = ctx.layout(v)
    read = dict.fromkeys(e.fragment for e in expr_walk(value) if isinstance(e, FragmentRef))
    loads = tuple((f, *ctx.parts[f]) for f in read if f in ctx.parts)
    for old in reusable:
        if old in ctx.streamed:
            continue
        if old.is_tile and old not in ctx.placement.inlined and ctx.dies_here(old):
            fragment = ctx.fragments.get(old)
            if fragment is not None and fragment.layout == layout and fragment.dtype is v.dtype:
                factor = _factor_near_one(ctx, v, value, fragment)
                ctx.emit(Map(span=span, target=fragment, value=value, declare=False, unless_one=factor, loads=loads))
                ctx.bind(v, fragment)
                return fragment
    fragment = ctx.new_fragment(v.name, v.dtype, layout)
    ctx.emit(Map(span=span, target=fragment, value=value, loads=loads))
    ctx.bind(v, fragment)
    return fragment


def _factor_near_one(ctx: Lowering, v: Value, value: Expr, target: Fragment) -> Fragment | None:
    """The factor by which `value` multiplies `target`, if v is a product that is to be skipped where that is 1."""
    op = ctx.placement.defs.get(v)
    if not (isinstance(op, Compute) and op.unless_one and isinstance(value, Apply) and value.fn == "mul"):
        return None
    for x, c in (value.args, value.args[::-1]):
        if isinstance(x, FragmentRef) and x.fragment is target and isinstance(c, FragmentRef):
            return c.fragment
    return None


def leaves(ctx: Lowering, v: Value) -> tuple[Value, ...]:
    """Tile values that an inlined tree reads from registers."""
    if v not in ctx.placement.inlined:
        return (v,) if v.is_tile else ()
    return tuple(x for a in ctx.placement.defs[v].operands() for x in leaves(ctx, a))


def tile_op(ctx: Lowering, op: Op) -> None:
    """Compute, Cast, Broadcast and Iota on tiles that are not inlined."""
    (v,) = op.defined()
    if v in ctx.placement.inlined:
        return
    layout = ctx.layout(v)
    if isinstance(op, Compute):
        if op.fn == "add" and any(a in ctx.placement.deferred for a in op.args):
            accumulate(ctx, op)
            return
        args = tuple(tile_expr(ctx, a, layout, op.span) for a in op.args)
        value: Expr = Apply(v.dtype, op.fn, args, _approximate(ctx, op))
    else:
        assert isinstance(op, Cast)
        value = Convert(v.dtype, tile_expr(ctx, op.operand, layout, op.span))
    operands = tuple(x for a in op.operands() for x in leaves(ctx, a))
    materialise(ctx, v, value, op.span, operands)


# --- products --------------------------------------------------------------------------------


def dot_op(ctx: Lowering, op: Dot) -> None:
    if op.result in ctx.placement.deferred:
        return
    plan = ctx.plans[op]
    target = ctx.new_fragment(op.result.name, op.result.dtype, plan.c_layout)
    if isinstance(plan, OpaquePlan):
        _contract_opaque(ctx, op, plan, target, add=False)
        ctx.bind(op.result, target)
        return
    zero: Expr = Literal(op.result.dtype, 0.0 if op.result.dtype.is_float else 0)
    ctx.emit(Map(span=op.span, target=target, value=zero))
    _contract(ctx, op, target)
    ctx.bind(op.result, target)


def accumulate(ctx: Lowering, op: Compute) -> None:
    """x + dot(...): the product accumulates on x, in place where x dies."""
    first, second = op.args
    product, other = (second, first) if second in ctx.placement.deferred else (first, second)
    dot = ctx.placement.defs[product]
    assert isinstance(dot, Dot)
    plan = ctx.plans[dot]
    if other in ctx.opaques:
        _contract(ctx, dot, ctx.opaques[other])
        ctx.opaques[op.result] = ctx.opaques[other]
        return
    value = tile_expr(ctx, other, plan.c_layout, op.span)
    target: Fragment | None = None
    multiplied = {x for operand in (dot.a, dot.b) for x in leaves(ctx, operand)}  # may be read after `value` is set
    for leaf in leaves(ctx, other):
        candidate = ctx.fragments.get(leaf)
        if candidate is None or leaf in multiplied or not ctx.dies_here(leaf):
            continue
        if candidate.layout == plan.c_layout and candidate.dtype is product.dtype:
            target = candidate
            if not (isinstance(value, FragmentRef) and value.fragment is target):
                factor = _factor_near_one(ctx, other, value, target)
                ctx.emit(Map(span=op.span, target=target, value=value, declare=False, unless_one=factor))
            break
    if target is None:
        target = ctx.new_fragment(op.result.name, product.dtype, plan.c_layout)
        ctx.emit(Map(span=op.span, target=target, value=value))
    if isinstance(plan, OpaquePlan):
        _contract_opaque(ctx, dot, plan, target, add=True)
    else:
        _contract(ctx, dot, target)
    layout = ctx.layout(op.result)
    if layout != plan.c_layout:
        target = convert(ctx, target, layout, op.result.name, op.span)
    ctx.bind(op.result, target)


def _contract_opaque(ctx: Lowering, op: Dot, plan: OpaquePlan, target: Fragment, *, add: bool) -> None:
    """target = a @ b or target += a @ b by way of opaque accumulators."""
    place = opaque.fresh(ctx, op.result.name, plan, op.span)
    _contract(ctx, op, place)
    reason = "the tile that it is added to is read or changed otherwise too" if add else "elements of it are read"
    opaque.deliver(ctx, place, target, op.span, add=add, reason=reason)


def _contract(ctx: Lowering, op: Dot, target: Fragment | Opaque) -> None:
    plan = ctx.plans[op]
    a: Buffer | Fragment
    if ctx.stays_in_registers(op, op.a) and ctx.fragments[op.a].layout == plan.a_fragment:
        a = ctx.fragments[op.a]
    else:
        a = _operand(ctx, op.a, Place(plan.a_layout, plan.a_dtype, plan.rounding), op.span)
    b = _operand(ctx, op.b, Place(plan.b_layout, plan.b_dtype, plan.rounding), op.span)
    ctx.emit(Contract(span=op.span, plan=plan, accumulator=target, a=a, b=b))


def _operand(ctx: Lowering, v: Value, place: Place, span: Span) -> Buffer:
    """The shared tile that holds `v`: where it was staged or published, or where it is put now from registers."""
    known = ctx.operands.get((v, place))
    if known is not None:
        return known
    source = ctx.fragments.get(v)
    if source is None:
        own = ctx.layout(v)
        source = ctx.new_fragment(v.name, v.dtype, own)
        ctx.emit(Map(span=span, target=source, value=tile_expr(ctx, v, own, span)))
    buffer = ctx.operand_buffer(v, place)
    del ctx.operands[v, place]  # written here, perhaps under a condition: nobody else may rely on it
    write_buffer(ctx, buffer, source, span)
    return buffer


def publish_operands(ctx: Lowering, v: Value, span: Span) -> None:
    """Puts a value that products read from shared memory there as soon as it exists, so that a loop which reads an
    invariant operand does not write it again and again."""
    if v in ctx.placement.inlined or v in ctx.placement.staged or v not in ctx.fragments:
        return
    for reader in dict.fromkeys(ctx.placement.readers.get(v, [])):
        if not isinstance(reader, Dot) or ctx.stays_in_registers(reader, v):
            continue
        for place in operand_places(reader, ctx.plans[reader], v):
            if (v, place) not in ctx.operands:
                write_buffer(ctx, ctx.operand_buffer(v, place), ctx.fragments[v], span)
