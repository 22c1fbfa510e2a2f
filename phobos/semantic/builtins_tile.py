"""Built-ins on whole tiles: shapes, reductions, scans, contractions, atomics. Registered in `builtins.BUILTINS`."""

from __future__ import annotations

from phobos.ir.tile import Atomic, Cat, Dot, Reduce, Scan, Transpose, Value
from phobos.ir.types import DType, ScalarType, TileType
from phobos.semantic import codes, emit, expressions, inline, views
from phobos.semantic.builtins import ANY, all_values, axis_argument, builtin, dtype_argument, shape_arguments
from phobos.semantic.context import Context
from phobos.semantic.entities import (
    POISON,
    Binding,
    ConstVal,
    Entity,
    Nothing,
    Operand,
    Poison,
    Poly,
    TensorRef,
    Variable,
    ViewRef,
    type_text,
)
from phobos.semantic.masks import Written
from phobos.semantic.shapes import MAX_RANK, broadcast_shapes, shape_text, size
from phobos.source import Span
from phobos.syntax import ast

# --- shapes ----------------------------------------------------------------------------------


def _tile(c: Context, node: ast.Call, at: int = 0) -> Value | Poison:
    return expressions.tile(c, node.args[at], f"the operand of `{node.function.id}`")


@builtin("transpose(t)", 1)
def _transpose(c: Context, node: ast.Call) -> Entity:
    t = _tile(c, node)
    if isinstance(t, Poison):
        return t
    if len(t.shape) < 2:
        return c.error(
            codes.BAD_AXIS, f"`transpose` swaps the last two axes, and {t.type} has one", node.span,
            help="`reshape` it first",
        )  # fmt: skip
    shape = (*t.shape[:-2], t.shape[-1], t.shape[-2])
    result = c.value(TileType(t.dtype, shape), "transpose", node.span)
    c.emit(Transpose(result=result, operand=t, span=node.span))
    swap = {-1: -2, -2: -1}
    c.masks.set_state(result, {swap.get(axis, axis): fills for axis, fills in c.masks.of(t).items()})
    return result


@builtin("reshape(t, r, c)", 2, 1 + MAX_RANK)
def _reshape(c: Context, node: ast.Call) -> Entity:
    t = _tile(c, node)
    shape = shape_arguments(c, node.args[1:], node.span)
    if isinstance(t, Poison) or isinstance(shape, Poison):
        return POISON
    if size(shape) != size(t.shape):
        return c.error(
            codes.RESHAPE_COUNT,
            f"{shape_text(t.shape)} has {size(t.shape)} elements and {shape_text(shape)} has {size(shape)}",
            node.span,
        )
    return emit.reshape(c, t, shape, node.span)


@builtin("broadcast(t, r, c)", 2, 1 + MAX_RANK)
def _broadcast(c: Context, node: ast.Call) -> Entity:
    item = expressions.operand(c, node.args[0])
    shape = shape_arguments(c, node.args[1:], node.span)
    if isinstance(shape, Poison):
        return shape
    if isinstance(item, Poly):
        item = emit.materialize(c, item, node.span, shape=shape)
    value = emit.to_value(c, item, node.args[0].span)
    if isinstance(value, Poison):
        return value
    if broadcast_shapes([value.shape, shape]) != shape:
        return c.error(
            codes.NO_BROADCAST,
            f"the shape {shape_text(value.shape)} does not broadcast to {shape_text(shape)}",
            node.span,
            help="only axes of extent 1 are repeated",
        )
    return emit.broadcast(c, value, shape, node.span)


def _fill(c: Context, dtype: DType, shape: tuple[int, ...], item: Entity, span: Span) -> Entity:
    operand = emit.read(c, item, span)
    if isinstance(operand, Value) and operand.is_tile or isinstance(operand, Poly):
        return c.error(codes.WRONG_OPERAND, f"a tile is filled with a scalar, not {type_text(operand)}", span)
    value = emit.to_value(c, emit.convert(c, operand, dtype, span), span)
    return value if isinstance(value, Poison) else emit.broadcast(c, value, shape, span)


@builtin("zeros(T, r, c)", 2, 1 + MAX_RANK)
def _zeros(c: Context, node: ast.Call) -> Entity:
    dtype = dtype_argument(c, node.args[0], "the first argument of `zeros`")
    shape = shape_arguments(c, node.args[1:], node.span)
    if isinstance(dtype, Poison) or isinstance(shape, Poison):
        return POISON
    zero = ConstVal(False, DType.BOOL) if dtype is DType.BOOL else ConstVal(0)
    return _fill(c, dtype, shape, zero, node.span)


@builtin("full(T, r, c, value)", 3, 2 + MAX_RANK)
def _full(c: Context, node: ast.Call) -> Entity:
    dtype = dtype_argument(c, node.args[0], "the first argument of `full`")
    shape = shape_arguments(c, node.args[1:-1], node.span)
    item = c.evaluate(node.args[-1])
    if isinstance(dtype, Poison) or isinstance(shape, Poison):
        return POISON
    return _fill(c, dtype, shape, item, node.args[-1].span)


@builtin("cat(a, b, axis)", 3, ANY)
def _cat(c: Context, node: ast.Call) -> Entity:
    operands = [expressions.operand(c, a) for a in node.args[:-1]]
    values = all_values(c, operands, node.span)
    if isinstance(values, Poison):
        return values
    first = values[0]
    for value, arg in zip(values, node.args, strict=False):
        if not value.is_tile:
            return c.error(codes.WRONG_OPERAND, f"`cat` joins tiles, not the scalar {value.type}", arg.span)
    axis = axis_argument(c, node.args[-1], len(first.shape))
    if isinstance(axis, Poison):
        return axis
    for value, arg in zip(values, node.args, strict=False):
        others = [n for i, n in enumerate(value.shape) if i != axis]
        if len(value.shape) != len(first.shape) or others != [n for i, n in enumerate(first.shape) if i != axis]:
            return c.error(
                codes.SHAPE_MISMATCH,
                f"{shape_text(first.shape)} and {shape_text(value.shape)} differ in another axis than {axis}",
                arg.span,
            )
    extent = sum(v.shape[axis] for v in values)
    shape = tuple(extent if i == axis else n for i, n in enumerate(first.shape))
    result = c.value(TileType(first.dtype, shape), "cat", node.span)
    c.emit(Cat(result=result, parts=tuple(values), axis=axis, span=node.span))
    return result


@builtin("gather(table, idx)", 2)
def _gather(c: Context, node: ast.Call) -> Entity:
    entity = c.evaluate(node.args[0])
    if isinstance(entity, TensorRef):
        colons = ", :" * (len(entity.param.type.dims) - 1)
        return c.error(
            codes.WRONG_OPERAND,
            "`gather` looks up in a tile; a tensor is gathered by a subscript",
            node.span,
            help=f"`{entity.param.name}[idx{colons}]`",
        )
    table = emit.to_value(c, emit.read(c, entity, node.args[0].span), node.args[0].span)
    item = expressions.operand(c, node.args[1])
    if isinstance(item, Poly):
        item = emit.materialize(c, item, node.args[1].span, rank=1 if item.min_rank == 1 else None)
    if isinstance(table, Poison) or isinstance(item, Poison):
        return POISON
    if not table.is_tile:
        return c.error(codes.WRONG_OPERAND, f"`gather` looks up in a tile, not in {table.type}", node.args[0].span)
    if not isinstance(item, Value) or not item.is_tile:
        return c.error(codes.BAD_INDEX, f"the index of `gather` is a tile, not {type_text(item)}", node.args[1].span)
    index = views.index_tile(c, item, node.args[1].span)
    return index if isinstance(index, Poison) else views.gather(c, table, index, node.span)


def _triangle(fn: str):
    def handler(c: Context, node: ast.Call) -> Entity:
        t = _tile(c, node)
        offset = expressions.operand(c, node.args[1]) if len(node.args) == 2 else ConstVal(0)
        if isinstance(t, Poison) or isinstance(offset, Poison):
            return POISON
        if len(t.shape) != 2:
            return c.error(codes.BAD_AXIS, f"`{fn}` takes a tile with two axes, not {t.type}", node.span)
        if isinstance(offset, Poly) or (isinstance(offset, Value) and offset.is_tile):
            return c.error(codes.WRONG_OPERAND, "the diagonal is an integer scalar", node.args[1].span)
        rows: Operand = emit.iota(c, t.shape, 0, node.span)
        columns: Operand = emit.iota(c, t.shape, 1, node.span)
        if not (isinstance(offset, ConstVal) and offset.value == 0):
            rows = expressions.apply(c, "add", [rows, offset], node.span)
        test = expressions.apply(c, "ge" if fn == "tril" else "le", [rows, columns], node.span)
        zero = ConstVal(False, DType.BOOL) if t.dtype is DType.BOOL else ConstVal(0)
        return expressions.apply(c, "where", [test, t, zero], node.span)

    builtin(f"{fn}(t[, diagonal])", 1, 2)(handler)


_triangle("tril")
_triangle("triu")

# --- reductions and scans ----------------------------------------------------------------------


def _reduce(c: Context, node: ast.Call, kind: str, axis_of) -> Entity:
    arg = node.args[0]
    t = expressions.tile(c, arg, f"the operand of `{node.function.id}`")
    if isinstance(t, Poison):
        return t
    if t.dtype is DType.BOOL:
        return c.error(
            codes.WRONG_OPERAND, f"`{node.function.id}` takes numbers, not `bool`", node.span,
            help="convert it: `i32(...)`",
        )  # fmt: skip
    if kind in ("sum", "prod"):
        t = _wide_sum(c, t, node.span)
    axis = axis_of(len(t.shape))
    dtype = DType.I32 if kind in ("argmax", "argmin") else t.dtype
    return emit_reduce(c, t, kind, axis, dtype, node, _written(c, arg))


def _written(c: Context, arg: ast.Expr, neutral: str | None = None) -> Written:
    """How the text writes an operand, for the fix of a warning about masked positions."""
    text = " ".join(c.text(arg).split())
    base = f"{arg.id}_inside" if isinstance(arg, ast.Name) else "inside"
    loaded = isinstance(arg, ast.Subscript) and isinstance(arg.base, ast.Name) and (
        isinstance(found := c.scope.find(arg.base.id), Binding) and isinstance(found.entity, TensorRef)
    )  # fmt: skip
    assignable = isinstance(arg, ast.Name) and isinstance(c.scope.find(arg.id), Variable)
    return Written(text, assignable, loaded, c.scope.free(base), neutral)


def emit_reduce(
    c: Context, t: Value, kind: str, axis: int | None, dtype: DType, node: ast.Call, written: Written, **custom
) -> Value:
    type: TileType | ScalarType = ScalarType(dtype)
    if axis is not None:
        type = TileType(dtype, tuple(1 if i == axis else n for i, n in enumerate(t.shape)))
    result = c.value(type, node.function.id, node.span)
    c.emit(Reduce(result=result, operand=t, kind=kind, axis=axis, span=node.span, **custom))
    c.masks.reduce(kind, t, axis, result, node.span, written)
    return result


def _wide_sum(c: Context, t: Value, span: Span) -> Value:
    """8-bit integers are summed as i32, as NumPy and Triton do."""
    return emit.cast(c, t, DType.I32, span) if t.dtype in (DType.I8, DType.U8) else t


def _reductions() -> None:
    def define(name: str, kind: str, axis_of, usage: str) -> None:
        builtin(usage, 1)(lambda c, node: _reduce(c, node, kind, axis_of))

    for kind in ("max", "min", "sum", "prod", "argmax", "argmin"):
        define(f"row{kind}", kind, lambda rank: rank - 1, f"row{kind}(t)")
        define(f"col{kind}", kind, lambda rank: 0, f"col{kind}(t)")
        if kind not in ("max", "min"):
            define(kind, kind, lambda rank: None, f"{kind}(t)")


_reductions()


def _minmax(fn: str) -> None:
    def handler(c: Context, node: ast.Call) -> Entity:
        if len(node.args) == 2:
            return expressions.apply(c, fn, [expressions.operand(c, a) for a in node.args], node.span)
        return _reduce(c, node, fn, lambda rank: None)

    builtin(f"{fn}(t)` or `{fn}(a, b)", 1, 2)(handler)


_minmax("min")
_minmax("max")


@builtin("cumsum(t[, axis])", 1, 2)
def _cumsum(c: Context, node: ast.Call) -> Entity:
    t = _tile(c, node)
    if isinstance(t, Poison):
        return t
    axis = axis_argument(c, node.args[1], len(t.shape)) if len(node.args) == 2 else 0
    if isinstance(axis, Poison):
        return axis
    if t.dtype is DType.BOOL:
        return c.error(codes.WRONG_OPERAND, "`cumsum` takes numbers, not `bool`", node.span, help="`i32(...)`")
    t = _wide_sum(c, t, node.span)
    result = c.value(t.type, "cumsum", node.span)
    c.emit(Scan(result=result, operand=t, axis=axis, span=node.span))
    return result


@builtin("reduce(t, axis, f, init)", 4)
def _custom_reduce(c: Context, node: ast.Call) -> Entity:
    t = _tile(c, node)
    if isinstance(t, Poison):
        return t
    axis = axis_argument(c, node.args[1], len(t.shape))
    function = node.args[2]
    init = expressions.operand(c, node.args[3])
    if not isinstance(function, ast.Name) or function.id not in c.functions:
        return c.error(
            codes.BAD_FUNCTION,
            "the third argument of `reduce` is the name of a function of this file",
            function.span,
            help="define `fn f(a, b) { return ... }`",
        )
    if isinstance(init, (Value, Poly)) and (isinstance(init, Poly) or init.is_tile):
        return c.error(codes.WRONG_OPERAND, "the initial value of `reduce` is a scalar", node.args[3].span)
    start = emit.to_value(c, emit.convert(c, init, t.dtype, node.args[3].span), node.args[3].span)
    if isinstance(axis, Poison) or isinstance(start, Poison):
        return POISON
    params = tuple(c.value(ScalarType(t.dtype), name, node.span) for name in ("a", "b"))
    combine = inline.combine(c, node, c.functions[function.id], params)
    if isinstance(combine, Poison):
        return combine
    written = _written(c, node.args[0], c.text(node.args[3]))
    return emit_reduce(c, t, "custom", axis, t.dtype, node, written, combine=combine, init=start)


# --- contraction -----------------------------------------------------------------------------

_ACCUMULATOR = {
    DType.F16: DType.F32,
    DType.BF16: DType.F32,
    DType.F32: DType.F32,
    DType.F8E4M3: DType.F32,
    DType.F8E5M2: DType.F32,
    DType.F64: DType.F64,
    DType.I8: DType.I32,
    DType.U8: DType.I32,
}


def _dot(transpose_b: bool):
    def handler(c: Context, node: ast.Call) -> Entity:
        name = node.function.id
        operands = [expressions.operand(c, a) for a in node.args]
        for item, arg in zip(operands, node.args, strict=True):
            if isinstance(item, ConstVal) or (isinstance(item, Value) and not item.is_tile):
                return c.error(codes.WRONG_OPERAND, f"`{name}` multiplies tiles, not {type_text(item)}", arg.span)
        values = all_values(c, operands, node.span)
        if isinstance(values, Poison):
            return values
        a, b = values
        for value, arg in zip(values, node.args, strict=True):
            if len(value.shape) != 2:
                return c.error(codes.DOT_SHAPE, f"`{name}` takes tiles with two axes, not {value.type}", arg.span)
        n, k = b.shape if transpose_b else (b.shape[1], b.shape[0])
        if a.shape[1] != k:
            other = "dot" if transpose_b else "dot_t"
            fits = a.shape[1] == (b.shape[0] if transpose_b else b.shape[1])
            return c.error(
                codes.DOT_SHAPE,
                f"`{name}` contracts {a.shape[1]} elements of {shape_text(a.shape)} with {k} of {shape_text(b.shape)}",
                node.span,
                help=f"`{other}(a, b)` contracts the {'first' if transpose_b else 'last'} axis of b" if fits else None,
            )
        accumulator = _ACCUMULATOR.get(a.dtype)
        if accumulator is None:
            return c.error(
                codes.WRONG_OPERAND,
                f"`{name}` does not take `{a.dtype}`",
                node.span,
                help="it takes f16, bf16, f32, f64, f8e4m3, f8e5m2, i8 and u8",
            )
        result = c.value(TileType(accumulator, (a.shape[0], n)), name, node.span)
        kinds: tuple[str, ...] = ("ieee",)
        if a.dtype is DType.F32 and c.tensorcore is not None:
            kinds = (c.tensorcore.kind,) if c.tensorcore.require else (c.tensorcore.kind, "ieee")
        c.emit(Dot(result=result, a=a, b=b, transpose_b=transpose_b, kinds=kinds, span=node.span))
        written = (_written(c, node.args[0]), _written(c, node.args[1]))
        c.masks.dot(a, b, transpose_b, result, node.span, written)
        return result

    builtin("dot_t(a, b)" if transpose_b else "dot(a, b)", 2)(handler)


_dot(False)
_dot(True)

# --- atomics ---------------------------------------------------------------------------------

_ATOMIC_DTYPES = {
    "add": (DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.U32, DType.I64),
    "max": (DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.U32, DType.I64),
    "min": (DType.F16, DType.BF16, DType.F32, DType.F64, DType.I32, DType.U32, DType.I64),
    "cas": (DType.F32, DType.F64, DType.I32, DType.U32, DType.I64),
}


def _atomic(kind: str) -> None:
    name = f"atomic_{kind}"
    usage = f"{name}(A[...], compare, value)" if kind == "cas" else f"{name}(A[...], value)"

    def handler(c: Context, node: ast.Call) -> Entity:
        from phobos.semantic.statements import fit, view_target

        as_statement = c.statement is node
        target = node.args[0]
        base: Entity | None = None
        ref: ViewRef | Poison
        if isinstance(target, ast.Subscript):
            base = c.evaluate(target.base)
        if isinstance(target, ast.Subscript) and isinstance(base, (TensorRef, ViewRef)):
            ref = view_target(c, target, base)
        else:
            entity = base if isinstance(base, Poison) else c.evaluate(target)
            if isinstance(entity, (ViewRef, Poison)):
                ref = entity
            else:
                ref = c.error(
                    codes.BAD_ATOMIC, f"`{name}` works on a slice of a tensor, not on {type_text(entity)}", target.span
                )
        operands = [expressions.operand(c, a) for a in node.args[1:]]
        c.effects += 1
        if isinstance(ref, Poison):
            return ref
        view = ref.view
        tensor = view.tensor
        if tensor.type.dtype not in _ATOMIC_DTYPES[kind]:
            allowed = ", ".join(map(str, _ATOMIC_DTYPES[kind]))
            return c.error(codes.BAD_ATOMIC, f"`{name}` does not work on `{tensor.type.dtype}`: {allowed}", node.span)
        if len(view.shape) > MAX_RANK:
            return c.error(codes.BAD_EXTENT, f"a slice has at most {MAX_RANK} axes here", target.span)
        values = []
        for operand, arg in zip(operands, node.args[1:], strict=True):
            value = fit(c, operand, tensor.type.dtype, view.shape, arg.span, f" in `{name}`")
            if isinstance(value, Poison):
                return value
            values.append(value)
        result = None if as_statement else c.value(emit.type_of(tensor.type.dtype, view.shape), name, node.span)
        c.emit(Atomic(kind=kind, view=view, values=tuple(values), result=result, span=node.span))
        c.written_tensors.add(tensor.name)
        c.read_tensors.add(tensor.name)
        return Nothing() if result is None else result

    builtin(usage, 3 if kind == "cas" else 2)(handler)


for _kind in ("add", "max", "min", "cas"):
    _atomic(_kind)
