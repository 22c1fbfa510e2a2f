"""Typed emission: each function checks nothing that its caller has not, and appends ops to the current block."""

from __future__ import annotations

from phobos.ir.tile import Broadcast, Cast, Compute, Iota, Load, Reshape, Value
from phobos.ir.types import DType, ScalarType, TileType
from phobos.semantic import codes
from phobos.semantic.constants import COMPARE, FoldError, convert_implicit
from phobos.semantic.context import Context
from phobos.semantic.dtypes import narrows, widens
from phobos.semantic.entities import (
    POISON,
    ConstVal,
    Entity,
    Nothing,
    Operand,
    Poison,
    Poly,
    TensorRef,
    Text,
    ViewRef,
    type_text,
)
from phobos.semantic.shapes import MAX_RANK, broadcast_shapes, shape_text, size, squeezed
from phobos.source import Span

BOOL_RESULT = COMPARE | {"isnan", "and", "or", "not"}


def type_of(dtype: DType, shape: tuple[int, ...]) -> ScalarType | TileType:
    return TileType(dtype, shape) if shape else ScalarType(dtype)


def load(c: Context, ref: ViewRef, span: Span) -> Value | Poison:
    """Reads a view now."""
    shape = ref.view.shape
    if len(shape) > MAX_RANK:
        return c.error(
            codes.BAD_EXTENT, f"a slice of {len(shape)} axes is no tile, which has at most {MAX_RANK}", span,
            help="drop an axis with a single index",
        )  # fmt: skip
    tensor = ref.view.tensor
    result = c.value(type_of(tensor.type.dtype, shape), ref.name, span)
    fill = ref.fill if ref.fill is not None else False if tensor.type.dtype is DType.BOOL else 0
    c.emit(Load(result=result, view=ref.view, fill=fill, span=span))
    c.read_tensors.add(tensor.name)
    if ref.fill is None:
        c.masks.set_load(result, ref.origins)
    return result


def read(c: Context, entity: Entity, span: Span) -> Operand:
    """What an operation sees of an entity: views are loaded, whole tensors and strings are errors."""
    if isinstance(entity, ViewRef):
        return load(c, entity, span)
    if isinstance(entity, TensorRef):
        colons = ", ".join(":" for _ in entity.param.type.dims)
        return c.error(
            codes.NOT_A_VALUE,
            f"the tensor `{entity.param.name}` is used whole; a kernel works on slices of it",
            span,
            help=f"take a slice, as in `{entity.param.name}[{colons}]`",
        )
    if isinstance(entity, Text):
        return c.error(codes.BAD_STRING, "a string stands only in `print` and `assert`", span)
    if isinstance(entity, Nothing):
        return c.error(codes.NOT_A_VALUE, "this call has no value", span)
    return entity


def cast(c: Context, value: Value, dtype: DType, span: Span) -> Value:
    if value.dtype is dtype:
        return value
    result = c.value(type_of(dtype, value.shape), value.name, span)
    c.emit(Cast(result=result, operand=value, span=span))
    if not value.is_tile and value.dtype.is_integer and dtype.is_integer:
        c.affine.set(result, c.affine.of(value))
    c.masks.copy(value, result)
    return result


def broadcast(c: Context, value: Value, shape: tuple[int, ...], span: Span) -> Value:
    """`value` (a scalar, or a tile whose shape broadcasts to it) with exactly `shape`."""
    if value.shape == shape:
        return value
    if value.is_tile and len(value.shape) < len(shape):
        value = pad_rank(c, value, len(shape), span)
        if value.shape == shape:
            return value
    result = c.value(TileType(value.dtype, shape), value.name, span)
    c.emit(Broadcast(result=result, operand=value, span=span))
    c.masks.copy(value, result)
    return result


def reshape(c: Context, value: Value, shape: tuple[int, ...], span: Span) -> Value:
    if value.shape == shape:
        return value
    result = c.value(TileType(value.dtype, shape), value.name, span)
    c.emit(Reshape(result=result, operand=value, span=span))
    old = c.masks.of(value)
    if old and squeezed(shape) == squeezed(value.shape):
        # Only extent-1 axes came or went: the others keep their order.
        before = [i - len(value.shape) for i, n in enumerate(value.shape) if n != 1]
        after = [i - len(shape) for i, n in enumerate(shape) if n != 1]
        c.masks.set_state(result, {b: old[a] for a, b in zip(before, after, strict=True) if a in old})
    return result


def pad_rank(c: Context, value: Value, rank: int, span: Span) -> Value:
    """A tile with extent-1 axes in front, up to `rank`."""
    if not value.is_tile or len(value.shape) >= rank:
        return value
    return reshape(c, value, (1,) * (rank - len(value.shape)) + value.shape, span)


def compute(c: Context, fn: str, args: tuple[Value, ...], span: Span, name: str | None = None) -> Value:
    """An elementwise op. Dtypes are joined and shapes broadcast already; ranks are equalised here."""
    shapes = [a.shape for a in args]
    shape = broadcast_shapes(shapes)
    assert shape is not None
    args = tuple(pad_rank(c, a, len(shape), span) for a in args)
    dtype = DType.BOOL if fn in BOOL_RESULT else args[-1].dtype
    result = c.value(type_of(dtype, shape), name or fn, span)
    c.emit(Compute(result=result, fn=fn, args=args, span=span))
    if not shape and dtype.is_integer:
        c.affine.set(result, c.affine.compute(fn, [c.affine.of(a) for a in args]))
    c.masks.compute(result, fn, args, span)
    return result


def iota(c: Context, shape: tuple[int, ...], axis: int, span: Span) -> Value:
    result = c.value(TileType(DType.I32, shape), "iota", span)
    c.emit(Iota(result=result, axis=axis, span=span))
    return result


# --- conversions -----------------------------------------------------------------------------


def convert(c: Context, operand: Operand, dtype: DType, span: Span, *, narrow: bool = False, what: str = "") -> Operand:
    """`operand` as `dtype` where that happens by itself: to a wider type, or with `narrow` (stores, declared types)
    to a narrower one. `what` continues the message, as in " in a store to `A`"."""
    if isinstance(operand, Poison) or (not isinstance(operand, ConstVal) and operand.dtype is dtype):
        return operand
    if isinstance(operand, ConstVal):
        try:
            return convert_implicit(operand, dtype, narrow=narrow)
        except FoldError as error:
            return c.error(error.code, f"{error}{what}", span, help=error.help)
    source = operand.dtype
    if not widens(source, dtype) and not (narrow and narrows(source, dtype)):
        return c.error(
            codes.IMPLICIT_CONVERSION,
            f"`{source}` does not become `{dtype}` by itself{what}",
            span,
            help="compare it: `x != 0`" if dtype is DType.BOOL else f"convert it: `{dtype}(...)`",
        )
    return convert_any(c, operand, dtype, span)


def convert_any(c: Context, operand: Value | Poly, dtype: DType, span: Span) -> Value | Poly:
    if isinstance(operand, Value):
        return cast(c, operand, dtype, span)
    if operand.dtype is dtype:
        return operand
    if operand.retype is not None and dtype in (DType.INDEX, DType.I64):
        return operand.retype(dtype)
    inner = operand.build

    def build(shape: tuple[int, ...]) -> Value | Poison:
        value = inner(shape)
        return value if isinstance(value, Poison) else cast(c, value, dtype, span)

    return Poly(dtype, operand.known, operand.fixed, operand.free, build, operand.span)


def default_dtype(const: ConstVal) -> DType:
    """The type of an untyped number that meets nothing."""
    if const.dtype is not None:
        return const.dtype
    return DType.F32 if isinstance(const.value, float) else DType.INDEX


def to_value(c: Context, operand: Operand, span: Span, dtype: DType | None = None) -> Value | Poison:
    """An SSA value for an operand, literals as `dtype` or their default type, iota by its own statement alone."""
    if isinstance(operand, ConstVal):
        target = dtype if dtype is not None and operand.dtype is None else default_dtype(operand)
        try:
            const = convert_implicit(operand, target)
        except FoldError as error:
            return c.error(error.code, str(error), span, help=error.help)
        return c.constant(const.value, target, span)
    if isinstance(operand, Poly):
        return materialize(c, operand, span)
    return operand


# --- iota without a shape of its own -----------------------------------------------------------


def poly_shape(poly: Poly, shapes: list[tuple[int, ...]], rank: int) -> tuple[int, ...] | None:
    """Broadcast of all that is known about the shape of `poly` at `rank`."""
    parts = [poly.known, *shapes]
    for axis, extent in poly.fixed:
        if axis >= rank:
            return None
        parts.append((1,) * axis + (extent,) + (1,) * (rank - axis - 1))
    parts.append((1,) * rank)
    return broadcast_shapes(parts)


def materialize(
    c: Context, poly: Poly, span: Span, *, shape: tuple[int, ...] | None = None, rank: int | None = None
) -> Value | Poison:
    """The tile of an iota expression: with the shape of its statement, or with what it knows of its own."""
    if rank is None:
        rank = len(shape) if shape is not None else max(poly.min_rank, len(poly.known) or 2)
    if poly.min_rank > rank:
        return c.error(
            codes.BAD_AXIS,
            f"iota along axis {poly.min_rank - 1} does not fit a tile of rank {rank} here",
            poly.span,
            help="axis 0 is the first one",
        )
    full = poly_shape(poly, [shape] if shape is not None else [], rank)
    if full is None or (shape is not None and full != shape):
        return c.error(
            codes.NO_BROADCAST, f"this iota expression does not fit the shape {shape_text(shape or ())}", poly.span
        )
    fixed = {axis for axis, _ in poly.fixed}
    unknown = [axis for axis in poly.free if axis not in fixed]
    if unknown and shape is None and not poly.known:
        axis = min(unknown)
        return c.error(
            codes.IOTA_SHAPE,
            f"the extent of iota({axis}) is not given by its statement",
            poly.span,
            help=f"give it the extent of the tile that it meets: `iota({axis}, {c.scope.free('EXTENT')})`",
        )
    return poly.build(full)


def _combine_poly(c: Context, operands: list[Operand], dtype: DType, span: Span, emit_with) -> Operand:
    """An elementwise operation one of whose operands is an iota expression: one more iota expression, since only the
    whole statement gives the shape. (The tile `[R, 1]` of `iota(1) < limits` says nothing of the columns.)"""
    polys = [p for p in operands if isinstance(p, Poly)]
    tiles = [v for v in operands if isinstance(v, Value) and v.is_tile]
    known = broadcast_shapes([*(p.known for p in polys), *(t.shape for t in tiles)])
    if known is None:
        return _no_broadcast(c, operands, span)
    fixed = tuple(dict.fromkeys(pair for p in polys for pair in p.fixed))
    free = frozenset(axis for p in polys for axis in p.free)

    def build(shape: tuple[int, ...]) -> Value | Poison:
        built: list[Operand] = []
        for operand in operands:
            item = operand.build(shape) if isinstance(operand, Poly) else operand
            if isinstance(item, Poison):
                return item
            built.append(item)
        return emit_with(built)

    poly = Poly(dtype, known, fixed, free, build, polys[0].span)
    if poly_shape(poly, [], poly.min_rank) is None:
        return _no_broadcast(c, operands, span)
    return poly


def _no_broadcast(c: Context, operands: list[Operand], span: Span) -> Poison:
    shapes = " and ".join(type_text(o) for o in operands if isinstance(o, (Value, Poly)) and _is_tile(o))
    return c.error(
        codes.NO_BROADCAST, f"the shapes do not fit each other: {shapes}", span,
        help="extents must be equal, or one of them 1",
    )  # fmt: skip


def _is_tile(operand: Operand) -> bool:
    return isinstance(operand, Poly) or (isinstance(operand, Value) and operand.is_tile)


def elementwise(c: Context, fn: str, operands: list[Operand], dtype: DType, span: Span) -> Operand:
    """Emits `fn` for operands that are not all compile-time. `dtype` is the joined type of the numeric operands (of
    all but the first for `where`); converts them to it."""
    converted: list[Operand] = []
    for i, operand in enumerate(operands):
        target = DType.BOOL if fn == "where" and i == 0 else dtype
        converted.append(convert(c, operand, target, span))
    if any(isinstance(o, Poison) for o in converted):
        return POISON

    def emit_with(items: list[Operand]) -> Value | Poison:
        values: list[Value] = []
        for item in items:
            value = to_value(c, item, span)
            if isinstance(value, Poison):
                return value
            values.append(value)
        shape = broadcast_shapes(v.shape for v in values)
        if shape is None:
            return _no_broadcast(c, list(values), span)
        if size(shape) > 2**40:
            return c.error(codes.BAD_EXTENT, f"a tile of shape {shape_text(shape)} is too large", span)
        return compute(c, fn, tuple(values), span)

    if any(isinstance(o, Poly) for o in converted):
        return _combine_poly(c, converted, DType.BOOL if fn in BOOL_RESULT else dtype, span, emit_with)
    return emit_with(converted)
