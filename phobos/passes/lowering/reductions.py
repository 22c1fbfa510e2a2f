"""Lowering of reductions: registers, then lanes, then warps through a small scratch tile."""

from __future__ import annotations

from phobos.ir.abi import Decision
from phobos.ir.scheduled import Map, ReduceCollect, ReducePublish, ReduceRegisters
from phobos.ir.storage import Apply, Buffer, Convert, Expr, Fragment, FragmentRef, ScalarRef
from phobos.ir.tile import Block, Cast, Compute, Constant, For, Reduce, SumParts, Yield
from phobos.ir.types import DType
from phobos.ir.walk import partial_sum
from phobos.layout.register import Digit, RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.passes.lowering.context import Lowering
from phobos.passes.lowering.elementwise import convert, scalar_op, tile_expr

_WIDE = {DType.F16: DType.F32, DType.BF16: DType.F32, DType.F8E4M3: DType.F32, DType.F8E5M2: DType.F32}


def reduce(ctx: Lowering, op: Reduce) -> None:
    source = op.operand
    layout = ctx.layout(source)
    axes = tuple(range(len(source.shape))) if op.axis is None else (op.axis,)
    value = tile_expr(ctx, source, layout, op.span)
    # Narrow floats are summed in f32 and rounded once.
    wide = _WIDE.get(source.dtype, source.dtype) if op.kind in ("sum", "prod") else source.dtype
    if wide is not source.dtype:
        value = Convert(wide, value)
    sliced = layout
    for axis in axes:
        sliced = sliced.sliced(axis)
    combine, init = _combine(ctx, op)
    index = op.kind in ("argmax", "argmin")
    targets: tuple[Fragment, ...] = (ctx.new_fragment(op.result.name, wide, sliced),)
    if index:
        targets = (*targets, ctx.new_fragment(op.result.name, DType.I32, sliced))
    partial = op.partial and keeps_parts(ctx, op)
    ctx.emit(
        ReduceRegisters(
            span=op.span,
            targets=targets,
            value=value,
            layout=layout,
            axes=axes,
            kind=op.kind,
            combine=combine,
            init=init,
            lanes=not partial,
        )  # fmt: skip
    )
    if not partial:
        targets = _across_warps(ctx, op, targets, layout, axes, combine, init)
    _finish(ctx, op, targets[-1])


def _across_warps(
    ctx: Lowering, op: Reduce | SumParts, partial: tuple[Fragment, ...], layout: RegisterLayout, axes: tuple[int, ...],
    combine: Expr | None = None, init: Expr | None = None,
) -> tuple[Fragment, ...]:  # fmt: skip
    """The results of warps combined through a scratch tile, where several hold parts of a line."""
    parts = warp_parts(layout, axes)
    if parts == 1:
        return partial
    kind = op.kind if isinstance(op, Reduce) else "sum"
    scratch = tuple(_scratch(ctx, op.result.name, t, parts) for t in partial)
    ctx.emit(ReducePublish(span=op.span, scratch=scratch, sources=partial, source_layout=layout, axes=axes))
    whole = tuple(ctx.new_fragment(op.result.name, t.dtype, t.layout) for t in partial)
    ctx.emit(
        ReduceCollect(
            span=op.span, targets=whole, scratch=scratch, source_layout=layout, axes=axes, kind=kind, combine=combine,
            init=init,
        )  # fmt: skip
    )
    return whole


def keeps_parts(ctx: Lowering, op: Reduce) -> bool:
    """May every thread keep its part of a partial sum? Only if the sums lie as the reduction leaves them: a change of
    layout would move one replica and lose the others."""
    assert op.axis is not None
    return ctx.layout(op.result) == ctx.layout(op.operand).sliced(op.axis)


def sum_parts(ctx: Lowering, op: SumParts) -> None:
    """Adds up what the threads hold of each line of a carried partial sum."""
    loop = ctx.placement.defs[op.operand]
    assert isinstance(loop, For)
    source = partial_sum(loop, loop.results.index(op.operand), ctx.placement.defs)
    assert source is not None and source.axis is not None
    fragment = ctx.fragments[op.operand]
    if not keeps_parts(ctx, source):
        ctx.bind(op.result, fragment)
        reason = "its registers do not lie as those of the reduction"
        choice = "whole in every iteration after all"
        subject = f"row sum {op.operand.name}"
        ctx.decisions.append(
            Decision(stage="algebra", subject=subject, choice=choice, reason=reason, line=source.span.line)
        )
        return
    layout, axes = _parts_layout(ctx.layout(source.operand), source.axis), (source.axis,)
    target = ctx.new_fragment(op.result.name, fragment.dtype, fragment.layout)
    value = FragmentRef(fragment.dtype, fragment)
    ctx.emit(ReduceRegisters(span=op.span, targets=(target,), value=value, layout=layout, axes=axes, kind="sum"))
    (target,) = _across_warps(ctx, op, (target,), layout, axes)
    ctx.bind(op.result, target)


def _parts_layout(layout: RegisterLayout, axis: int) -> RegisterLayout:
    """The layout of the parts of lines along `axis`: one element for each lane and warp that holds some of a line."""
    strides: dict[int, int] = {}
    extent = 1
    for d in sorted((d for d in (*layout.lane, *layout.warp) if d.axis == axis), key=lambda d: d.stride):
        strides[d.stride] = extent
        extent *= d.extent

    def renumbered(digits: tuple[Digit, ...]) -> list[Digit]:
        return [Digit(axis, d.extent, strides[d.stride]) if d.axis == axis else d for d in digits]

    shape = tuple(extent if a == axis else n for a, n in enumerate(layout.shape))
    registers = [d for d in layout.reg if d.axis != axis]
    return RegisterLayout.make(shape, registers, renumbered(layout.lane), renumbered(layout.warp))


def _finish(ctx: Lowering, op: Reduce, fragment: Fragment) -> None:
    result: Expr = FragmentRef(fragment.dtype, fragment)
    if not op.result.is_tile:
        if fragment.dtype is not op.result.dtype:
            result = Convert(op.result.dtype, result)
        ctx.set_scalar(op.result, result, op.span)
        return
    if fragment.dtype is not op.result.dtype:
        rounded = ctx.new_fragment(op.result.name, op.result.dtype, fragment.layout)
        ctx.emit(Map(span=op.span, target=rounded, value=Convert(op.result.dtype, result)))
        fragment = rounded
    if fragment.layout != ctx.layout(op.result):
        fragment = convert(ctx, fragment, ctx.layout(op.result), op.result.name, op.span)
    ctx.bind(op.result, fragment)


def warp_parts(layout: RegisterLayout, axes: tuple[int, ...]) -> int:
    """How many warps hold different parts of one line."""
    n = 1
    for d in layout.warp:
        if d.axis in axes:
            n *= d.extent
    return n


def _scratch(ctx: Lowering, hint: str, target: Fragment, parts: int) -> Buffer:
    shape = (parts, *target.layout.shape)
    return ctx.new_buffer(f"{hint}_w", target.dtype, SharedLayout.row_major(shape, target.dtype.bytes))


def _combine(ctx: Lowering, op: Reduce) -> tuple[Expr | None, Expr | None]:
    """The custom function as an expression over the scalars a and b."""
    if op.combine is None:
        return None, None
    assert op.init is not None
    a, b = op.combine.params
    ctx.scalars[a], ctx.scalars[b] = ScalarRef(a.dtype, "a"), ScalarRef(b.dtype, "b")
    return _tree(ctx, op.combine), ctx.scalar(op.init)


def _tree(ctx: Lowering, block: Block) -> Expr:
    for inner in block.ops:
        if isinstance(inner, Yield):
            return ctx.scalar(inner.values[0])
        if isinstance(inner, Compute):
            args = tuple(ctx.scalar(v) for v in inner.args)
            ctx.scalars[inner.result] = Apply(inner.result.dtype, inner.fn, args)
        elif isinstance(inner, (Constant, Cast)):
            scalar_op(ctx, inner)
        else:
            raise ctx.fail("PH0520", "a function given to reduce() may only compute with its two arguments", inner.span)
    raise AssertionError("a combine block ends in Yield")
