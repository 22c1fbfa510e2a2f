"""Lowering of loads, stores, atomics, and of tile ops that rearrange elements through shared memory."""

from __future__ import annotations

from phobos.ir.scheduled import (
    AssertStmt,
    AtAxis,
    AtomicGlobal,
    AtomicScalar,
    GatherAxis,
    GlobalToShared,
    GlobalView,
    LoadGlobal,
    LoadScalar,
    Map,
    MoveRegisters,
    PrintStmt,
    RangeAxis,
    ScanShared,
    StoreGlobal,
    StoreScalar,
    WriteShared,
)
from phobos.ir.storage import (
    Apply,
    Buffer,
    BufferRef,
    Convert,
    Expr,
    Fragment,
    FragmentRef,
    Literal,
    Position,
    ScalarRef,
    ScalarVar,
)
from phobos.ir.tile import (
    Assert,
    AtIndex,
    Atomic,
    AxisGather,
    AxisIndex,
    AxisRange,
    Cat,
    Dot,
    Extract,
    Gather,
    Insert,
    Load,
    Op,
    Print,
    Reshape,
    Scan,
    Store,
    Transpose,
    Value,
    View,
)
from phobos.ir.types import DType
from phobos.layout.register import RegisterLayout, blocked
from phobos.layout.shared import SharedLayout
from phobos.layout.staging import staging
from phobos.passes.lowering.context import Lowering, integer, operand_places
from phobos.passes.lowering.elementwise import (
    convert,
    exchange_layout,
    fragment_as,
    positions,
    register_moves,
    tile_expr,
    tile_guard,
    write_buffer,
)
from phobos.source import Span

# --- views -----------------------------------------------------------------------------------


def global_view(ctx: Lowering, view: View, layout: RegisterLayout | None, transposed: bool = False) -> GlobalView:
    """The view with its positions as expressions; `layout` distributes the tile (None for one element). `transposed`:
    the tile has the view's last two axes exchanged."""
    tile_axes = list(range(len(view.shape)))
    if transposed:
        tile_axes[-2:] = reversed(tile_axes[-2:])
    axes: list[AtAxis | RangeAxis | GatherAxis] = []
    key: list[object] = [view.tensor.name]
    for axis, dim in zip(view.axes, view.tensor.type.dims):
        if isinstance(axis, AtIndex):
            low, high = not ctx.facts.nonnegative(axis.index), not ctx.facts.below_dim(axis.index, dim)
            axes.append(AtAxis(ctx.scalar(axis.index), low, high))
            key.append(("at", axis.index))
            continue
        tile_axis = tile_axes.pop(0)
        if isinstance(axis, AxisRange):
            low = axis.guarded and not ctx.facts.nonnegative(axis.start)
            axes.append(RangeAxis(ctx.start(axis.start, axis.length, dim), axis.length, tile_axis, low, axis.guarded))
            key.append(("range", axis.start, axis.length))
        else:
            assert layout is not None
            wanted = layout.kept((tile_axis,))
            axes.append(GatherAxis(as_fragment(ctx, axis.index, view.span, wanted), tile_axis))
            key.append(("gather", axis.index))
    vector = 1 if ctx.kernel.options.vectorize == "off" else ctx.facts.vector(view, transposed)
    spans, varies, distinct = _motion(ctx, view)
    return GlobalView(
        view.tensor.name, view.tensor.type.dtype, view.tensor.type.dims, tuple(axes), vector, tuple(key), spans,
        varies, distinct,
    )  # fmt: skip


def _motion(ctx: Lowering, view: View) -> tuple[tuple[tuple[object, int, int], ...], frozenset[str], frozenset[str]]:
    """How the view's positions move with the loops around it (GlobalView.spans, varies, distinct)."""
    spans: list[tuple[object, int, int]] = []
    varies: set[str] = set()
    distinct: set[str] = set()
    for axis in view.axes:
        value = axis.start if isinstance(axis, AxisRange) else axis.index
        length = axis.length if isinstance(axis, AxisRange) else 1
        loops = ctx.facts.loops_of(value)
        varies.update(ctx.loop_name(v) for v in loops)
        if isinstance(axis, AxisGather):
            spans.append((value, 0, 0))
            continue
        base, offset = ctx.facts.base_offset(value)
        spans.append((base, offset, length))
        distinct.update(ctx.loop_name(v) for v in loops if ctx.facts.steps_apart(value, v, length))
    return tuple(spans), frozenset(varies), frozenset(distinct)


def load(ctx: Lowering, op: Load) -> None:
    v = op.result
    if not v.is_tile:
        target = ScalarVar(ctx.name(v.name), v.dtype)
        ctx.emit(LoadScalar(span=op.span, target=target, view=global_view(ctx, op.view, None), fill=op.fill))
        ctx.scalars[v] = ScalarRef(v.dtype, target.name)
        return
    if v in ctx.placement.staged:
        _stage(ctx, op)
        return
    layout = ctx.layout(v)
    fragment = ctx.new_fragment(v.name, v.dtype, layout)
    view = global_view(ctx, op.view, layout)
    if v in ctx.streamed:
        ctx.parts[fragment] = (view, op.fill)
        ctx.fragments[v] = fragment
        return
    ctx.emit(LoadGlobal(span=op.span, target=fragment, view=view, fill=op.fill))
    ctx.bind(v, fragment)


def _stage(ctx: Lowering, op: Load) -> None:
    """Global to shared memory, once for each shared layout that a product reads it in."""
    v = op.result
    vector = 1 if ctx.kernel.options.vectorize == "off" else ctx.facts.vector(op.view, op.transposed)
    for reader in dict.fromkeys(ctx.placement.readers[v]):
        assert isinstance(reader, Dot)
        for place in operand_places(reader, ctx.plans[reader], v):
            if (v, place) in ctx.operands:
                continue
            layout = staging(v.shape, ctx.threads // 32, vector, place.layout)
            buffer = ctx.operand_buffer(v, place)
            view = global_view(ctx, op.view, layout, op.transposed)
            ctx.emit(GlobalToShared(span=op.span, buffer=buffer, view=view, layout=layout, fill=op.fill))


def store(ctx: Lowering, op: Store) -> None:
    if not op.value.is_tile:
        ctx.emit(StoreScalar(span=op.span, view=global_view(ctx, op.view, None), value=ctx.scalar(op.value)))
        return
    source = as_fragment(ctx, op.value, op.span)
    source = _widened(ctx, op, source)
    view = global_view(ctx, op.view, source.layout)
    ctx.emit(StoreGlobal(span=op.span, view=view, source=source))


def _widened(ctx: Lowering, op: Store, source: Fragment) -> Fragment:
    """The tile redistributed for 16-byte stores, if it lies in an instruction's layout that allows only narrow ones. A
    pass through shared memory costs less than the partly filled sectors (10 % of a half-precision GEMM on an H200)."""
    layout, item = source.layout, source.dtype.bytes
    vector = 1 if ctx.kernel.options.vectorize == "off" else ctx.facts.vector(op.view)
    run = layout.contiguous_run(layout.rank - 1)
    if ctx.scope.in_loop or vector * item < 16 or run * item >= 8 or layout.registers * item < 64:
        return source
    wide = blocked(layout.shape, ctx.threads // 32, vector)
    return convert(ctx, source, wide, op.value.name, op.span)


def as_fragment(ctx: Lowering, v: Value, span: Span, layout: RegisterLayout | None = None) -> Fragment:
    """The value in registers, evaluating it if it was inlined; in `layout` if one is asked for."""
    layout = layout or ctx.layout(v)
    if v in ctx.placement.inlined:
        fragment = ctx.new_fragment(v.name, v.dtype, layout)
        ctx.emit(Map(span=span, target=fragment, value=tile_expr(ctx, v, layout, span)))
        return fragment
    return fragment_as(ctx, v, layout, span)


def atomic(ctx: Lowering, op: Atomic) -> None:
    if not op.values[0].is_tile:
        scratch = None
        if op.result is not None:
            scratch = ctx.new_buffer(
                f"{op.result.name}_x", op.result.dtype, SharedLayout.row_major((1,), op.result.dtype.bytes)
            )
        values = tuple(ctx.scalar(v) for v in op.values)
        view = global_view(ctx, op.view, None)
        ctx.emit(AtomicScalar(span=op.span, kind=op.kind, view=view, values=values, scratch=scratch))
        if op.result is not None and scratch is not None:
            ctx.set_scalar(op.result, BufferRef(op.result.dtype, scratch, (integer(0),)), op.span)
        return
    layout = ctx.layout(op.values[0])
    fragments = tuple(as_fragment(ctx, v, op.span, layout) for v in op.values)
    old = None
    if op.result is not None:
        # Replicas do not take part, so the old value is spread through shared memory where there are any.
        old = ctx.new_fragment(op.result.name, op.result.dtype, layout)
        if ctx.layout(op.result) != layout:
            raise AssertionError("an atomic's result shares the layout of its operand")
    view = global_view(ctx, op.view, layout)
    ctx.emit(AtomicGlobal(span=op.span, kind=op.kind, view=view, values=fragments, old=old))
    if op.result is not None and old is not None:
        if layout.has_replicas:
            buffer = ctx.new_buffer(f"{op.result.name}_x", old.dtype, exchange_layout(layout.shape, old.dtype.bytes))
            write_buffer(ctx, buffer, old, op.span)
            spread = ctx.new_fragment(op.result.name, old.dtype, layout)
            value = BufferRef(old.dtype, buffer, positions(layout.rank), tile_guard(layout))
            ctx.emit(Map(span=op.span, target=spread, value=value))
            old = spread
        ctx.bind(op.result, old)


# --- rearrangements ----------------------------------------------------------------------------


def _put(ctx: Lowering, v: Value, hint: str, span: Span) -> Buffer:
    """The tile in a fresh exchange buffer."""
    fragment = as_fragment(ctx, v, span)
    buffer = ctx.new_buffer(f"{hint}_x", v.dtype, exchange_layout(v.shape, v.dtype.bytes))
    write_buffer(ctx, buffer, fragment, span)
    return buffer


def _take(ctx: Lowering, v: Value, buffer: Buffer, at: tuple[Expr, ...], guard: Expr | None, span: Span) -> None:
    layout = ctx.layout(v)
    fragment = ctx.new_fragment(v.name, v.dtype, layout)
    value = BufferRef(v.dtype, buffer, at, _both(tile_guard(layout), guard))
    ctx.emit(Map(span=span, target=fragment, value=value))
    ctx.bind(v, fragment)


def _both(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return a if b is None else b
    return Apply(DType.BOOL, "and", (a, b))


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(b, Literal) and b.value == 0:
        return a
    if isinstance(a, Literal) and a.value == 0:
        return b
    return Apply(DType.INDEX, "add", (a, b))


def _index(e: Expr) -> Expr:
    return e if e.dtype is DType.INDEX else Convert(DType.INDEX, e)


def _inside(e: Expr, extent: int) -> Expr:
    low = Apply(DType.BOOL, "ge", (e, integer(0)))
    high = Apply(DType.BOOL, "lt", (e, integer(extent)))
    return Apply(DType.BOOL, "and", (low, high))


def transpose(ctx: Lowering, op: Transpose) -> None:
    v = op.result
    rank = len(v.shape)
    axes = (*range(rank - 2), rank - 1, rank - 2)
    source = as_fragment(ctx, op.operand, op.span)
    moved = source.layout.permuted(axes)
    if moved == ctx.layout(v):
        # Every thread already has its elements: only their names change.
        fragment = ctx.new_fragment(v.name, v.dtype, moved)
        moves = tuple(range(moved.registers))
        ctx.emit(MoveRegisters(span=op.span, target=fragment, source=source, moves=moves))
        ctx.bind(v, fragment)
        return
    buffer = _put(ctx, op.operand, v.name, op.span)
    at = list(positions(rank))
    at[-1], at[-2] = at[-2], at[-1]
    _take(ctx, v, buffer, tuple(at), None, op.span)


def reshape(ctx: Lowering, op: Reshape) -> None:
    v, old = op.result, op.operand.shape
    moved = ctx.layout(op.operand).with_unit_axes(v.shape)
    moves = register_moves(moved, ctx.layout(v)) if moved is not None else None
    if moves is not None:
        # Axes of extent 1 came or went, and every thread already has its elements.
        source = as_fragment(ctx, op.operand, op.span)
        fragment = ctx.new_fragment(v.name, v.dtype, ctx.layout(v))
        ctx.emit(MoveRegisters(span=op.span, target=fragment, source=source, moves=moves))
        ctx.bind(v, fragment)
        return
    buffer = _put(ctx, op.operand, v.name, op.span)
    linear: Expr = integer(0)
    step = 1
    for axis in reversed(range(len(v.shape))):
        term: Expr = Position(DType.INDEX, axis)
        if step > 1:
            term = Apply(DType.INDEX, "mul", (term, integer(step)))
        if v.shape[axis] > 1:
            linear = _plus(linear, term)
        step *= v.shape[axis]
    at: list[Expr] = []
    rest = 1
    for axis in reversed(range(len(old))):
        e = linear if rest == 1 else Apply(DType.INDEX, "div", (linear, integer(rest)))
        if axis > 0:
            e = Apply(DType.INDEX, "mod", (e, integer(old[axis])))
        at.insert(0, e if old[axis] > 1 else integer(0))
        rest *= old[axis]
    _take(ctx, v, buffer, tuple(at), None, op.span)


def cat(ctx: Lowering, op: Cat) -> None:
    v = op.result
    buffer = ctx.new_buffer(f"{v.name}_x", v.dtype, exchange_layout(v.shape, v.dtype.bytes))
    offset = 0
    for part in op.parts:
        at = list(positions(len(v.shape)))
        at[op.axis] = _plus(at[op.axis], integer(offset))
        source = as_fragment(ctx, part, op.span)
        ctx.emit(WriteShared(span=op.span, buffer=buffer, source=source, at=tuple(at)))
        offset += part.shape[op.axis]
    _take(ctx, v, buffer, positions(len(v.shape)), None, op.span)


def _slice_positions(
    ctx: Lowering, axes: tuple[AxisIndex, ...], shape: tuple[int, ...]
) -> tuple[tuple[Expr, ...], Expr | None]:
    """Positions in the big tile for a position in the slice, and where they are inside it."""
    at: list[Expr] = []
    guard: Expr | None = None
    tile_axis = 0
    for axis, extent in zip(axes, shape):
        assert not isinstance(axis, AxisGather)
        if isinstance(axis, AtIndex):
            e, value, length = _index(ctx.scalar(axis.index)), axis.index, 1
        else:
            e, value, length = _index(ctx.start(axis.start, axis.length, extent)), axis.start, axis.length
        start = ctx.facts.constant(value)
        known = start is not None and 0 <= start and start + length <= extent
        if isinstance(axis, AxisRange):
            e = _plus(e, Position(DType.INDEX, tile_axis))
            tile_axis += 1
        if not known:
            guard = _both(guard, _inside(e, extent))
        at.append(e)
    return tuple(at), guard


def extract(ctx: Lowering, op: Extract) -> None:
    at, guard = _slice_positions(ctx, op.axes, op.operand.shape)
    buffer = _put(ctx, op.operand, op.result.name, op.span)
    if op.result.is_tile:
        _take(ctx, op.result, buffer, at, guard, op.span)
    else:
        ctx.set_scalar(op.result, BufferRef(op.result.dtype, buffer, at, guard), op.span)


def insert(ctx: Lowering, op: Insert) -> None:
    v = op.result
    buffer = _put(ctx, op.operand, v.name, op.span)
    at, guard = _slice_positions(ctx, op.axes, op.operand.shape)
    if op.value.is_tile:
        source = as_fragment(ctx, op.value, op.span)
    else:
        layout = blocked((1,), ctx.threads // 32)
        source = ctx.new_fragment(v.name, v.dtype, layout)
        ctx.emit(Map(span=op.span, target=source, value=ctx.scalar(op.value)))
    ctx.emit(WriteShared(span=op.span, buffer=buffer, source=source, at=at, guard=guard))
    _take(ctx, v, buffer, positions(len(v.shape)), None, op.span)


def gather(ctx: Lowering, op: Gather) -> None:
    v = op.result
    layout = ctx.layout(v)
    index = fragment_of_rank(ctx, op.index, layout, op.span)
    e: Expr = _index(FragmentRef(op.index.dtype, index, (0,)))
    buffer = _put(ctx, op.table, v.name, op.span)
    _take(ctx, v, buffer, (e, *positions(len(v.shape))[1:]), _inside(e, op.table.shape[0]), op.span)


def fragment_of_rank(ctx: Lowering, index: Value, layout: RegisterLayout, span: Span) -> Fragment:
    """The rank-1 index tile laid out like axis 0 of `layout`."""
    wanted = layout.kept((0,))
    return as_fragment(ctx, index, span, wanted)


def scan(ctx: Lowering, op: Scan) -> None:
    v = op.result
    buffer = _put(ctx, op.operand, v.name, op.span)
    ctx.emit(ScanShared(span=op.span, buffer=buffer, axis=op.axis, threads=ctx.threads))
    _take(ctx, v, buffer, positions(len(v.shape)), None, op.span)


# --- debug -----------------------------------------------------------------------------------


def debug(ctx: Lowering, op: Op) -> None:
    if not ctx.debug:
        return
    if isinstance(op, Print):
        parts: list[str | Expr | Fragment] = []
        for p in op.parts:
            if isinstance(p, str):
                parts.append(p)
            else:
                parts.append(as_fragment(ctx, p, op.span) if p.is_tile else ctx.scalar(p))
        ctx.emit(PrintStmt(span=op.span, parts=tuple(parts)))
    elif isinstance(op, Assert):
        c = op.condition
        ctx.emit(
            AssertStmt(
                span=op.span, condition=as_fragment(ctx, c, op.span) if c.is_tile else ctx.scalar(c), text=op.text
            )
        )
