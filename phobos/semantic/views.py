"""Subscripts: slices of tensors (views) and of tiles."""

from __future__ import annotations

from dataclasses import dataclass

from phobos.ir.tile import AtIndex, AxisGather, AxisIndex, AxisRange, Extract, Gather, TensorParam, Value, View
from phobos.ir.types import DType
from phobos.semantic import codes, emit, expressions
from phobos.semantic.affine import Affine
from phobos.semantic.constants import FoldError, convert_implicit
from phobos.semantic.context import Context, SpanUse
from phobos.semantic.dtypes import literal_fits, saturate
from phobos.semantic.entities import (
    POISON,
    ConstVal,
    Entity,
    Operand,
    Origin,
    Poison,
    Poly,
    TensorRef,
    ViewRef,
    type_text,
)
from phobos.semantic.shapes import MAX_RANK, squeezed
from phobos.source import Span
from phobos.syntax import ast


@dataclass(frozen=True, eq=False)
class Item:
    """One evaluated subscript: `length` positions from `start`, one position (`length` None, the axis is dropped), or
    those of the tile `index`. `form` is the start as an affine form; a constant start has no value yet."""

    start: Value | None
    form: Affine
    length: int | None
    index: Value | None
    extent: int | None
    text: str
    span: Span
    stated: ast.Expr | None = None  # the length as it is written

    @property
    def whole(self) -> bool:
        return self.length == self.extent and self.index is None and self.form == ZERO

    def inside(self, extent: int) -> bool:
        """Whether all positions are known to lie inside of an axis."""
        length = 1 if self.length is None else self.length
        return self.form.is_constant and 0 <= self.form.constant <= extent - length

    def axis(self, c: Context, *, guarded: bool = True) -> AxisIndex:
        if self.index is not None:
            return AxisGather(index=self.index)
        start = self.start if self.start is not None else c.constant(self.form.constant, DType.INDEX, self.span)
        if self.length is None:
            return AtIndex(index=start)
        return AxisRange(start=start, length=self.length, guarded=guarded)


ZERO = Affine(0)


def subscript(c: Context, node: ast.Subscript) -> Entity:
    """`base[items]` as an expression."""
    base = c.evaluate(node.base)
    if isinstance(base, Poison):
        return base
    if isinstance(base, (TensorRef, ViewRef)):
        ref = view_of(c, base, node)
        if isinstance(ref, Poison):
            return ref
        if ref is not None:
            # One element is a value, read at once; a slice stays a view.
            return ref if ref.view.shape else emit.load(c, ref, node.span)
        assert isinstance(base, ViewRef)
        base = emit.load(c, base, node.span)
        if isinstance(base, Poison):
            return base
    if isinstance(base, Poly):
        base = emit.materialize(c, base, node.span)
        if isinstance(base, Poison):
            return base
    if not isinstance(base, Value) or not base.is_tile:
        return c.error(codes.WRONG_OPERAND, f"{type_text(base)} has no axes to subscript", node.span)
    if node.fill is not None:
        return c.error(
            codes.BAD_INDEX, "a fill belongs to a load of a tensor, and this is a slice of a tile", node.fill.span
        )
    return _tile_slice(c, base, node)


def view_of(c: Context, base: TensorRef | ViewRef, node: ast.Subscript) -> ViewRef | Poison | None:
    """The view `base[items]`; None where a slice of a view has to be read first, because its positions may leave it."""
    if isinstance(base, TensorRef):
        return _tensor_view(c, base.param, node)
    return _sub_view(c, base, node)


# --- items -----------------------------------------------------------------------------------


def _position(c: Context, node: ast.Expr, what: str) -> tuple[Value | None, Affine] | Poison:
    """A position as an `index` scalar (None where it is constant) and as an affine form."""
    found = expressions.operand(c, node)
    if isinstance(found, Poison):
        return found
    if isinstance(found, ConstVal):
        if not found.is_int:
            return c.error(codes.BAD_INDEX, f"{what} is an integer, not {type_text(found)}", node.span)
        if not literal_fits(found.value, DType.INDEX):
            return c.error(codes.LITERAL_OVERFLOW, f"{found.value} is out of the range of positions", node.span)
        return None, Affine(int(found.value))
    if isinstance(found, Poly) or found.is_tile or not found.dtype.is_integer:
        return c.error(codes.BAD_INDEX, f"{what} is an integer scalar, not {type_text(found)}", node.span)
    return emit.cast(c, found, DType.INDEX, node.span), c.affine.of(found)


def _static_length(c: Context, node: ast.Expr) -> int | Poison:
    found = c.evaluate(node)
    if isinstance(found, Poison):
        return found
    if not isinstance(found, ConstVal):
        if isinstance(found, Value) and not found.is_tile and found.dtype.is_integer:
            form = c.affine.of(found)
            found = ConstVal(form.constant) if form.is_constant else found
    if not isinstance(found, ConstVal):
        return c.error(
            codes.LENGTH_NOT_STATIC,
            f"the length of a slice is a compile-time value, and `{c.text(node)}` is known only at launch",
            node.span,
            help="pin it with `@autotune`, `const` or the configuration, or loop over tiles of a fixed length",
        )
    if not found.is_int or found.dtype is DType.BOOL:
        return c.error(codes.BAD_INDEX, f"the length of a slice is an integer, not {type_text(found)}", node.span)
    if int(found.value) < 1:
        return c.error(codes.BAD_EXTENT, f"a slice of length {found.value} is empty", node.span)
    return int(found.value)


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _items(c: Context, node: ast.Subscript, extents: list[int | Value], names: list[str]) -> list[Item] | Poison:
    """Evaluates subscripts against axes of the given extents (`names` for messages)."""
    if len(node.items) != len(extents):
        colons = [c.text(i) for i in node.items][: len(extents)] + [":"] * (len(extents) - len(node.items))
        return c.error(
            codes.SUBSCRIPT_COUNT,
            f"`{c.text(node.base)}` has {_count(len(extents), 'axis', 'axes')}, and "
            f"{_count(len(node.items), 'subscript is', 'subscripts are')} given",
            node.span,
            help=f"`{c.text(node.base)}[{', '.join(colons)}]`" if len(node.items) < len(extents) else None,
        )
    out: list[Item] = []
    failed = False
    for item, extent, name in zip(node.items, extents, names, strict=True):
        found = _item(c, item, extent, name)
        if isinstance(found, Poison):
            failed = True
        else:
            out.append(found)
    return POISON if failed else out


def _item(c: Context, item: ast.SubscriptItem, extent: int | Value, name: str) -> Item | Poison:
    span = item.span
    known = extent if isinstance(extent, int) else None
    if isinstance(item, ast.IndexItem):
        return _index_item(c, item)
    if isinstance(item, ast.SpanItem):
        first = _position(c, item.start, "the start of a slice")
        length = _static_length(c, item.length)
        if isinstance(first, Poison) or isinstance(length, Poison):
            return POISON
        return Item(*first, length, None, known, c.text(item.start), span, item.length)
    assert isinstance(item, ast.RangeItem)
    first = (None, ZERO) if item.start is None else _position(c, item.start, "the start of a slice")
    last: tuple[Value | None, Affine] | Poison
    if item.end is not None:
        last = _position(c, item.end, "the end of a slice")
    else:
        last = (None, c.affine.of(extent) if isinstance(extent, Value) else Affine(extent))
    if isinstance(first, Poison) or isinstance(last, Poison):
        return POISON
    form = last[1].plus(first[1], -1)
    text = "0" if item.start is None else c.text(item.start)
    if not form.is_constant:
        end = name if item.end is None else c.text(item.end)
        help = f"write it with a compile-time length, as in `{text} :+ 16`"
        if item.start is None and item.end is None:
            help = f"pin `{name}` with `@autotune({name} in [...])`, or loop over slices `s :+ n`"
        return c.error(
            codes.LENGTH_NOT_STATIC,
            f"the length of this slice, {end if text == '0' else f'{end} - {text}'}, is not known at compile time",
            span,
            help=help,
        )
    if form.constant < 1:
        return c.error(codes.BAD_EXTENT, f"a slice of length {form.constant} is empty", span)
    return Item(*first, form.constant, None, known, text, span)


def _index_item(c: Context, item: ast.IndexItem) -> Item | Poison:
    node = item.index
    text = c.text(node)
    found = expressions.operand(c, node)
    if isinstance(found, Poly):
        found = emit.materialize(c, found, node.span, rank=1 if found.min_rank == 1 else None)
    if isinstance(found, Poison):
        return found
    if isinstance(found, Value) and found.is_tile:
        index = index_tile(c, found, node.span)
        if isinstance(index, Poison):
            return index
        return Item(None, ZERO, index.shape[0], index, None, text, item.span)
    if isinstance(found, Value) and found.dtype.is_integer:
        start = emit.cast(c, found, DType.INDEX, node.span)
        return Item(start, c.affine.of(found), None, None, -1, text, item.span)
    if isinstance(found, ConstVal) and found.is_int and literal_fits(found.value, DType.INDEX):
        return Item(None, Affine(int(found.value)), None, None, -1, text, item.span)
    return c.error(codes.BAD_INDEX, f"a subscript is an integer, not {type_text(found)}", node.span)


def index_tile(c: Context, tile: Value, span: Span) -> Value | Poison:
    """An integer tile as the rank-1 index of a gather."""
    if not tile.dtype.is_integer:
        return c.error(codes.BAD_INDEX, f"an index tile holds integers, not `{tile.dtype}`", span)
    if len(tile.shape) == 1:
        return tile
    flat = squeezed(tile.shape) or (1,)
    if len(flat) > 1:
        return c.error(
            codes.BAD_INDEX,
            f"an index tile has one axis, not the shape {list(tile.shape)}",
            span,
            help="gather along one axis at a time",
        )
    return emit.reshape(c, tile, flat, span)


# --- tensors ---------------------------------------------------------------------------------


def _extents(c: Context, param: TensorParam) -> list[int | Value]:
    return [dim if isinstance(dim, int) else c.dims[dim] for dim in param.type.dims]


def _tensor_view(c: Context, param: TensorParam, node: ast.Subscript) -> ViewRef | Poison:
    fill = _fill(c, param, node)
    items = _items(c, node, _extents(c, param), [str(d) for d in param.type.dims])
    if isinstance(items, Poison) or isinstance(fill, Poison):
        return POISON
    gathers = [i for i in items if i.index is not None]
    if len(gathers) > 1:
        return c.error(codes.BAD_INDEX, "at most one axis of a slice is an index tile", gathers[1].span)
    axes: list[AxisIndex] = []
    origins: list[Origin | None] = []
    for item, dim in zip(items, param.type.dims, strict=True):
        inside = isinstance(dim, int) and item.inside(dim)
        axes.append(item.axis(c, guarded=not inside))
        if item.length is not None:
            origins.append(None if inside or item.index is not None else _origin(c, param, dim, item))
        if item.index is None:
            c.uses.append(SpanUse(dim, item.form, item.length, item.stated, item.span))
    view = View(tensor=param, axes=tuple(axes), span=node.span)
    return ViewRef(view, fill, param.name, tuple(origins), c.text(node))


def _origin(c: Context, param: TensorParam, dim: int | str, item: Item) -> Origin | None:
    """Why the axis may be masked; None where whole tiles are promised or certain."""
    assert item.length is not None
    form = item.form
    if isinstance(dim, str):
        if c.promised.get(dim, 1) % item.length == 0:
            return None
    elif dim % item.length == 0 and c.affine.divisor(form) % item.length == 0:
        return None
    text = item.text if item.text.replace("_", "").isalnum() else f"({item.text})"
    return Origin(str(dim), form, item.length, text, param.name)


def _fill(c: Context, param: TensorParam, node: ast.Subscript) -> int | float | bool | None | Poison:
    if node.fill is None:
        return None
    found = expressions.constant(c, node.fill, "a fill")
    if isinstance(found, Poison):
        return found
    try:
        return convert_implicit(found, param.type.dtype, narrow=True).value
    except FoldError as error:
        return c.error(error.code, str(error), node.fill.span, help=_fill_help(found.value, param.type.dtype, error))


def _fill_help(value: int | float | bool, dtype: DType, error: FoldError) -> str | None:
    """What to write for a fill of another type: a literal, since conversions are none."""
    if dtype is DType.BOOL:
        return "leave the fill out: masked elements of a `bool` are `false`"
    if dtype.is_integer:
        return f"write `{saturate(value, dtype)}`"
    return error.help


def _sub_view(c: Context, ref: ViewRef, node: ast.Subscript) -> ViewRef | Poison | None:
    kept = [i for i, axis in enumerate(ref.view.axes) if not isinstance(axis, AtIndex)]
    items = _items(c, node, list(ref.view.shape), [ref.text] * len(kept))
    if isinstance(items, Poison):
        return items
    if node.fill is not None:
        return c.error(
            codes.BAD_INDEX, "a fill stands where the tensor is sliced, not at a slice of a view", node.fill.span
        )
    axes = list(ref.view.axes)
    origins: list[Origin | None] = []
    for place, item, extent, origin in zip(kept, items, ref.view.shape, ref.origins, strict=True):
        if item.whole:
            origins.append(origin)
            continue
        axis = axes[place]
        if item.index is not None or not item.inside(extent) or not isinstance(axis, AxisRange):
            return None
        start, offset = axis.start, item.form.constant
        if offset != 0:
            start = emit.compute(c, "add", (start, c.constant(offset, DType.INDEX, item.span)), item.span)
        if item.length is None:
            axes[place] = AtIndex(index=start)
        else:
            axes[place] = AxisRange(start=start, length=item.length, guarded=axis.guarded)
            if origin is not None:
                text = origin.start_text if offset == 0 else f"({origin.start_text} + {offset})"
                origin = Origin(origin.dim, c.affine.of(start), item.length, text, origin.tensor)
            origins.append(origin)
    view = View(tensor=ref.view.tensor, axes=tuple(axes), span=node.span)
    return ViewRef(view, ref.fill, ref.name, tuple(origins), c.text(node))


# --- tiles -----------------------------------------------------------------------------------


def tile_axes(c: Context, tile: Value, node: ast.Subscript) -> list[Item] | Poison:
    return _items(c, node, list(tile.shape), [str(n) for n in tile.shape])


def extract_axes(c: Context, items: list[Item], shape: tuple[int, ...]) -> tuple[AxisIndex, ...]:
    """Axes of an Extract or Insert; `guarded` is False where the range is certainly inside."""
    return tuple(item.axis(c, guarded=not item.inside(extent)) for item, extent in zip(items, shape, strict=True))


def _tile_slice(c: Context, tile: Value, node: ast.Subscript) -> Operand:
    items = tile_axes(c, tile, node)
    if isinstance(items, Poison):
        return items
    gathers = [i for i, item in enumerate(items) if item.index is not None]
    if gathers:
        index = items[gathers[0]].index
        if gathers != [0] or not all(i.whole for i in items[1:]):
            return c.error(
                codes.BAD_INDEX,
                "a tile is gathered along its first axis, with `:` for the others",
                items[gathers[-1]].span,
                help="`transpose` it first, or slice the result",
            )
        assert index is not None
        return gather(c, tile, index, node.span)
    return extract(c, tile, items, node.span)


def extract(c: Context, tile: Value, items: list[Item], span: Span) -> Value:
    """A slice of a tile; a scalar where no axis is left."""
    if all(i.whole for i in items):
        return tile
    shape = tuple(i.length for i in items if i.length is not None)
    result = c.value(emit.type_of(tile.dtype, shape), "slice", span)
    c.emit(Extract(result=result, operand=tile, axes=extract_axes(c, items, tile.shape), span=span))
    if len(shape) == len(tile.shape):
        c.masks.copy(tile, result)
    return result


def gather(c: Context, table: Value, index: Value, span: Span) -> Value | Poison:
    shape = (index.shape[0], *table.shape[1:])
    if len(shape) > MAX_RANK:
        return c.error(codes.BAD_EXTENT, f"a tile has at most {MAX_RANK} axes", span)
    result = c.value(emit.type_of(table.dtype, shape), "gather", span)
    c.emit(Gather(result=result, table=table, index=index, span=span))
    return result
