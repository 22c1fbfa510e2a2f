"""Lowering of reductions: registers, then lanes, then warps through a small scratch tile."""

from __future__ import annotations

from phobos.ir.scheduled import Map, ReduceCollect, ReducePublish, ReduceRegisters
from phobos.ir.storage import Apply, Buffer, Convert, Expr, Fragment, FragmentRef, ScalarRef
from phobos.ir.tile import Block, Cast, Compute, Constant, Reduce, Yield
from phobos.ir.types import DType
from phobos.layout.register import RegisterLayout
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
    targets = (ctx.new_fragment(op.result.name, wide, sliced),)
    if index:
        targets = (*targets, ctx.new_fragment(op.result.name, DType.I32, sliced))
    ctx.emit(
        ReduceRegisters(
            span=op.span, targets=targets, value=value, layout=layout, axes=axes, kind=op.kind, combine=combine, init=init
        )
    )
    parts = warp_parts(layout, axes)
    if parts > 1:
        scratch = tuple(_scratch(ctx, op.result.name, t, parts) for t in targets)
        ctx.emit(ReducePublish(span=op.span, scratch=scratch, sources=targets, source_layout=layout, axes=axes))
        whole = tuple(ctx.new_fragment(op.result.name, t.dtype, sliced) for t in targets)
        ctx.emit(
            ReduceCollect(
                span=op.span, targets=whole, scratch=scratch, source_layout=layout, axes=axes, kind=op.kind,
                combine=combine, init=init,
            )  # fmt: skip
        )
        targets = whole
    _finish(ctx, op, targets[-1])


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
