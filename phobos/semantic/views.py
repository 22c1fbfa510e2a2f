"""Subscripts: slices of tensors (views) and of tiles."""

from __future__ import annotations

from dataclasses import dataclass

from phobos.ir.tile import AtIndex, AxisGather, AxisIndex, AxisRange, Extract, Gather, TensorParam, Value, View
from phobos.ir.types import DType
from phobos.semantic import codes, emit, expressions
from phobos.semantic.constants import FoldError, convert_implicit
from phobos.semantic.context import Context, SpanUse
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
    """One evaluated subscript. `length` None drops the axis; `index` gathers. `start_const`: start if known."""

    start: Value | None
    start_const: int | None
    length: int | None
    index: Value | None
    whole: bool
    text: str
    span: Span

    def axis(self) -> AxisIndex:
        if self.index is not None:
            return AxisGather(index=self.index)
        assert self.start is not None
        return AtIndex(index=self.start) if self.length is None else AxisRange(start=self.start, length=self.length)


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


def _scalar_index(c: Context, node: ast.Expr, what: str) -> tuple[Value, int | None] | Poison:
    """A position as an `index` scalar, and its value if known at compile time."""
    found = expressions.operand(c, node)
    if isinstance(found, Poison):
        return found
    if isinstance(found, ConstVal):
        if not found.is_int or found.dtype is DType.BOOL:
            return c.error(codes.BAD_INDEX, f"{what} is an integer, not {type_text(found)}", node.span)
        try:
            const = convert_implicit(ConstVal(int(found.value)), DType.INDEX)
        except FoldError as error:
            return c.error(error.code, str(error), node.span)
        return c.constant(const.value, DType.INDEX, node.span), int(found.value)
    if isinstance(found, Poly) or found.is_tile or not found.dtype.is_integer:
        return c.error(codes.BAD_INDEX, f"{what} is an integer scalar, not {type_text(found)}", node.span)
    form = c.affine.of(found)
    return emit.cast(c, found, DType.INDEX, node.span), form.constant if form.is_constant else None


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


def _items(c: Context, node: ast.Subscript, extents: list[int | Value], names: list[str]) -> list[Item] | Poison:
    """Evaluates subscripts against axes of the given extents (`names` for messages)."""
    if len(node.items) != len(extents):
        colons = [c.text(i) for i in node.items][: len(extents)] + [":"] * (len(extents) - len(node.items))
        return c.error(
            codes.SUBSCRIPT_COUNT,
            f"`{c.text(node.base)}` has {len(extents)} axes, and {len(node.items)} subscripts are given",
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
    if isinstance(item, ast.IndexItem):
        return _index_item(c, item)
    if isinstance(item, ast.SpanItem):
        start = _scalar_index(c, item.start, "the start of a slice")
        length = _static_length(c, item.length)
        if isinstance(start, Poison) or isinstance(length, Poison):
            return POISON
        text = c.text(item.start)
        whole = start[1] == 0 and length == extent
        return Item(start[0], start[1], length, None, whole, text, span)
    assert isinstance(item, ast.RangeItem)
    zero = c.constant(0, DType.INDEX, span)
    first = (zero, 0) if item.start is None else _scalar_index(c, item.start, "the start of a slice")
    last: tuple[Value, int | None] | Poison
    if item.end is not None:
        last = _scalar_index(c, item.end, "the end of a slice")
    elif isinstance(extent, Value):
        last = (extent, None)
    else:
        last = (c.constant(extent, DType.INDEX, span), extent)
    if isinstance(first, Poison) or isinstance(last, Poison):
        return POISON
    form = c.affine.of(last[0]).plus(c.affine.of(first[0]), -1)
    if not form.is_constant:
        end = name if item.end is None else c.text(item.end)
        start_text = "0" if item.start is None else c.text(item.start)
        if item.start is None and item.end is None and isinstance(extent, Value):
            help = f"pin `{name}` with `@autotune({name} in [...])`, or loop over slices `s :+ n`"
        else:
            help = f"write it with a length: `{start_text} :+ n`"
        return c.error(
            codes.LENGTH_NOT_STATIC,
            f"the length of this slice, {end} - {start_text}, is not known at compile time"
            if start_text != "0"
            else f"the length of this slice, {end}, is not known at compile time",
            span,
            help=help,
        )
    if form.constant < 1:
        return c.error(codes.BAD_EXTENT, f"a slice of length {form.constant} is empty", span)
    text = "0" if item.start is None else c.text(item.start)
    return Item(first[0], first[1], form.constant, None, first[1] == 0 and form.constant == extent, text, span)


def _index_item(c: Context, item: ast.IndexItem) -> Item | Poison:
    node = item.index
    found = expressions.operand(c, node)
    if isinstance(found, Poly):
        found = emit.materialize(c, found, node.span, rank=1 if found.min_rank == 1 else None)
    if isinstance(found, Poison):
        return found
    if isinstance(found, Value) and found.is_tile:
        index = index_tile(c, found, node.span)
        if isinstance(index, Poison):
            return index
        return Item(None, None, index.shape[0], index, False, c.text(node), item.span)
    if isinstance(found, Value) and found.dtype.is_integer:
        form = c.affine.of(found)
        start = emit.cast(c, found, DType.INDEX, node.span)
        return Item(start, form.constant if form.is_constant else None, None, None, False, c.text(node), item.span)
    if isinstance(found, ConstVal) and found.is_int and found.dtype is not DType.BOOL:
        start = c.constant(int(found.value), DType.INDEX, node.span)
        return Item(start, int(found.value), None, None, False, c.text(node), item.span)
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
        axis = item.axis()
        if isinstance(axis, AxisRange):
            inside = (
                isinstance(dim, int)
                and item.start_const is not None
                and 0 <= item.start_const
                and item.start_const + axis.length <= dim
            )
            axis = AxisRange(start=axis.start, length=axis.length, guarded=not inside)
            origins.append(None if inside else _origin(c, param, dim, item))
        elif isinstance(axis, AxisGather):
            origins.append(None)
        axes.append(axis)
        if not isinstance(axis, AxisGather):
            start = axis.start if isinstance(axis, AxisRange) else axis.index
            c.uses.append(SpanUse(dim, c.affine.of(start), item.length, item.span))
    view = View(tensor=param, axes=tuple(axes), span=node.span)
    return ViewRef(view, fill, param.name, tuple(origins), c.text(node))


def _origin(c: Context, param: TensorParam, dim: int | str, item: Item) -> Origin | None:
    """Why the axis may be masked; None where whole tiles are promised or certain."""
    assert item.start is not None and item.length is not None
    form = c.affine.of(item.start)
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
        return c.error(error.code, str(error), node.fill.span, help=error.help)


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
        length = 1 if item.length is None else item.length
        inside = item.start_const is not None and 0 <= item.start_const and item.start_const + length <= extent
        if not inside or not isinstance(axis, AxisRange):
            return None
        start = axis.start
        if item.start_const != 0:
            assert item.start is not None
            start = emit.compute(c, "add", (axis.start, item.start), item.span)
        if item.length is None:
            axes[place] = AtIndex(index=start)
        else:
            axes[place] = AxisRange(start=start, length=length, guarded=axis.guarded)
            if origin is not None:
                text = origin.start_text if item.start_const == 0 else f"({origin.start_text} + {item.start_const})"
                origin = Origin(origin.dim, c.affine.of(start), length, text, origin.tensor)
            origins.append(origin)
    view = View(tensor=ref.view.tensor, axes=tuple(axes), span=node.span)
    return ViewRef(view, ref.fill, ref.name, tuple(origins), c.text(node))


# --- tiles -----------------------------------------------------------------------------------


def tile_axes(c: Context, tile: Value, node: ast.Subscript) -> list[Item] | Poison:
    return _items(c, node, list(tile.shape), [str(n) for n in tile.shape])


def extract_axes(items: list[Item], shape: tuple[int, ...]) -> tuple[AxisIndex, ...]:
    """Axes of an Extract or Insert; `guarded` is False where the range is certainly inside."""
    out: list[AxisIndex] = []
    for item, extent in zip(items, shape, strict=True):
        axis = item.axis()
        if isinstance(axis, AxisRange):
            inside = item.start_const is not None and 0 <= item.start_const <= extent - axis.length
            axis = AxisRange(start=axis.start, length=axis.length, guarded=not inside)
        out.append(axis)
    return tuple(out)


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
    c.emit(Extract(result=result, operand=tile, axes=extract_axes(items, tile.shape), span=span))
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
