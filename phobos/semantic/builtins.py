"""The table of built-in functions: arity, usage and typing rule of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phobos.diagnostics import nearest
from phobos.ir.tile import Assert, Iota, Print, Value
from phobos.ir.types import DTYPE_BY_NAME, DType, TileType
from phobos.semantic import codes, emit, expressions, foreign
from phobos.semantic.constants import FoldError, convert_explicit, number_text
from phobos.semantic.context import Context
from phobos.semantic.entities import (
    POISON,
    ConstVal,
    Entity,
    Nothing,
    Operand,
    Poison,
    Poly,
    Text,
    type_text,
)
from phobos.semantic.shapes import MAX_RANK
from phobos.source import Span
from phobos.syntax import ast

Handler = Callable[[Context, ast.Call], Entity]
ANY = 1000


@dataclass(frozen=True)
class Builtin:
    """`usage` is shown where the number of arguments is wrong."""

    name: str
    least: int
    most: int
    usage: str
    handler: Handler


BUILTINS: dict[str, Builtin] = {}


def builtin(usage: str, least: int, most: int | None = None) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        name = usage.split("(")[0]
        BUILTINS[name] = Builtin(name, least, least if most is None else most, usage, handler)
        return handler

    return add


def call(c: Context, node: ast.Call) -> Entity:
    """`function(args)`: a conversion, a function of the file, or a built-in."""
    from phobos.semantic import inline

    name = node.function.id
    if name in c.functions:
        return inline.call(c, node, c.functions[name])
    dtype = c.dtypes.get(name) or DTYPE_BY_NAME.get(name)
    if dtype is not None:
        return _conversion(c, node, dtype)
    if name == "grid_barrier":
        return c.error(codes.RESERVED_FUNCTION, "`grid_barrier` is reserved and not supported yet", node.span)
    found = BUILTINS.get(name)
    if found is None:
        return _unknown(c, node)
    if not found.least <= len(node.args) <= found.most:
        count = str(found.least) if found.least == found.most else f"{found.least} to {found.most}"
        if found.most == ANY:
            count = f"at least {found.least}"
        for arg in node.args:
            if not (isinstance(arg, ast.Name) and arg.id in DTYPE_BY_NAME):
                c.evaluate(arg)
        usage = f"`{found.usage}`"
        if name in foreign.REDUCTIONS and len(node.args) == 2:
            usage = f"the axis is in the name: `row{name}(t)` is over the last axis, `col{name}(t)` over the first"
        return c.error(
            codes.ARGUMENT_COUNT,
            f"`{name}` takes {count} argument{'' if count == '1' else 's'}, not {len(node.args)}",
            node.span,
            help=usage,
        )
    return found.handler(c, node)


def _unknown(c: Context, node: ast.Call) -> Poison:
    name = node.function.id
    variable = c.scope.find(name)
    for arg in node.args:
        c.evaluate(arg)
    if variable is not None:
        return c.error(codes.UNKNOWN_FUNCTION, f"`{name}` is a value and cannot be called", node.function.span)
    if name == "range":
        return c.error(codes.UNKNOWN_FUNCTION, "`range` stands only in a `for`", node.function.span)
    close = nearest(name, [*BUILTINS, *c.functions, *DTYPE_BY_NAME])
    help = foreign.FUNCTIONS.get(name) or (f"did you mean `{close}`?" if close else None)
    return c.error(codes.UNKNOWN_FUNCTION, f"unknown function `{name}`", node.function.span, help=help)


def _conversion(c: Context, node: ast.Call, dtype: DType) -> Entity:
    if len(node.args) != 1:
        return c.error(codes.ARGUMENT_COUNT, f"`{node.function.id}(x)` converts one value", node.span)
    item = expressions.operand(c, node.args[0])
    if isinstance(item, Poison):
        return item
    if isinstance(item, ConstVal):
        try:
            return convert_explicit(item, dtype)
        except FoldError as error:
            return c.error(error.code, str(error), node.span, help=error.help)
    return emit.convert_any(c, item, dtype, node.span)


def dtype_argument(c: Context, node: ast.Expr, what: str) -> DType | Poison:
    """An argument that is the name of an element type."""
    from phobos.semantic.types import dtype_of

    if not isinstance(node, ast.Name):
        return c.error(codes.UNKNOWN_TYPE, f"{what} is an element type, as in `f32`", node.span)
    return dtype_of(node, c.dtypes, c.reporter)


def axis_argument(c: Context, node: ast.Expr, rank: int) -> int | Poison:
    axis = expressions.constant_int(c, node, "an axis")
    if isinstance(axis, Poison):
        return axis
    if not 0 <= axis < rank:
        return c.error(
            codes.BAD_AXIS, f"axis {axis} of a value with {rank} axes", node.span, help="axis 0 is the first"
        )
    return axis


# --- elementwise -----------------------------------------------------------------------------


def _elementwise(fn: str, usage: str, arity: int) -> None:
    def handler(c: Context, node: ast.Call) -> Entity:
        return expressions.apply(c, fn, [expressions.operand(c, a) for a in node.args], node.span)

    builtin(usage, arity)(handler)


for _name in (
    "exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid erf gelu abs floor ceil round isnan".split()
):  # fmt: skip
    _elementwise(_name, f"{_name}(x)", 1)
_elementwise("pow", "pow(x, y)", 2)
_elementwise("fma", "fma(a, b, c)", 3)
_elementwise("min", "tmin(a, b)", 2)
_elementwise("max", "tmax(a, b)", 2)
_elementwise("clamp", "clamp(x, low, high)", 3)
_elementwise("where", "where(condition, a, b)", 3)
_elementwise("ceildiv", "ceildiv(a, b)", 2)


# --- shapes ----------------------------------------------------------------------------------


@builtin("iota(axis[, n])", 1, 2)
def _iota(c: Context, node: ast.Call) -> Entity:
    axis = axis_argument(c, node.args[0], MAX_RANK)
    extent: int | Poison | None = None
    if len(node.args) == 2:
        extent = expressions.constant_int(c, node.args[1], "the extent of an iota")
        if isinstance(extent, int) and extent < 1:
            extent = c.error(codes.BAD_EXTENT, f"the extent of an iota is positive, not {extent}", node.args[1].span)
    if isinstance(axis, Poison) or isinstance(extent, Poison):
        return POISON
    return _iota_poly(c, axis, extent, DType.I32, node.span)


def _iota_poly(c: Context, axis: int, extent: int | None, dtype: DType, span: Span) -> Poly:
    def build(shape: tuple[int, ...]) -> Value:
        full = shape if extent is None else tuple(extent if i == axis else 1 for i in range(len(shape)))
        result = c.value(TileType(dtype, full), "iota", span)
        c.emit(Iota(result=result, axis=axis, span=span))
        return result

    def retype(wider: DType) -> Poly:
        return _iota_poly(c, axis, extent, wider, span)

    fixed = () if extent is None else ((axis, extent),)
    free = frozenset({axis}) if extent is None else frozenset[int]()
    return Poly(dtype, (), fixed, free, build, span, retype)


# --- effects ---------------------------------------------------------------------------------


@builtin("print(parts...)", 1, ANY)
def _print(c: Context, node: ast.Call) -> Entity:
    parts: list[str | Value] = []
    failed = False
    for arg in node.args:
        entity = c.evaluate(arg)
        if isinstance(entity, Text):
            parts.append(entity.value)
            continue
        item = emit.read(c, entity, arg.span)
        if isinstance(item, ConstVal):
            parts.append(number_text(item.value))
            continue
        value = emit.to_value(c, item, arg.span)
        if isinstance(value, Poison):
            failed = True
        else:
            parts.append(value)
    c.effects += 1
    if failed:
        return POISON
    c.emit(Print(parts=tuple(parts), span=node.span))
    return Nothing()


@builtin('assert(condition, "text")', 1, 2)
def _assert(c: Context, node: ast.Call) -> Entity:
    item = expressions.operand(c, node.args[0])
    text: Entity = Text(c.text(node.args[0]))
    if len(node.args) == 2:
        text = c.evaluate(node.args[1])
        if not isinstance(text, (Text, Poison)):
            text = c.error(codes.BAD_STRING, "the second argument of `assert` is a string", node.args[1].span)
    c.effects += 1
    if isinstance(item, Poison) or not isinstance(text, Text):
        return POISON
    if item.dtype is not DType.BOOL:
        return c.error(
            codes.CONDITION,
            f"`assert` takes a `bool`, not {type_text(item)}",
            node.args[0].span,
            help="compare it, as in `x != 0`",
        )
    if isinstance(item, ConstVal):
        if item.value:
            return Nothing()
        return c.error(codes.CONDITION, f"this assertion is false at compile time: {text.value}", node.span)
    value = emit.to_value(c, item, node.args[0].span)
    if isinstance(value, Poison):
        return value
    c.emit(Assert(condition=value, text=text.value, span=node.span))
    return Nothing()


def shape_arguments(c: Context, nodes: tuple[ast.Expr, ...], span: Span) -> tuple[int, ...] | Poison:
    from phobos.semantic.types import extents

    return extents(c, nodes, span)


def all_values(c: Context, operands: list[Operand], span: Span) -> list[Value] | Poison:
    """Operands as values, untyped literals by the join of the others."""
    dtype = expressions.common_dtype(c, operands, span)
    if isinstance(dtype, Poison):
        return dtype
    out: list[Value] = []
    for item in operands:
        value = emit.to_value(c, emit.convert(c, item, dtype, span), span)
        if isinstance(value, Poison):
            return value
        out.append(value)
    return out
