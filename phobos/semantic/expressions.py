"""Typing of expressions: names, literals, operators. Calls and subscripts have rooms of their own."""

from __future__ import annotations

from phobos.diagnostics import nearest
from phobos.ir.tile import Value
from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.semantic import codes, emit, foreign
from phobos.semantic.constants import (
    BINARY,
    BITWISE,
    FLOAT_FUNCTIONS,
    FoldError,
    fold,
)
from phobos.semantic.context import Context
from phobos.semantic.dtypes import join
from phobos.semantic.entities import (
    POISON,
    ConstVal,
    Entity,
    Operand,
    Poison,
    Poly,
    Text,
    Variable,
    type_text,
)
from phobos.source import Span
from phobos.syntax import ast

SYMBOL = {"neg": "-", "not": "!", "bitnot": "~", **{fn: op for op, fn in BINARY.items()}}
UNARY = {"-": "neg", "!": "not", "~": "bitnot"}


def evaluate(c: Context, node: ast.Expr) -> Entity:
    """The entity of an expression; views stay views."""
    from phobos.semantic import builtins, views

    if isinstance(node, ast.Name):
        return _name(c, node)
    if isinstance(node, ast.IntLiteral):
        if not node.value < 2**64:
            return c.error(codes.LITERAL_OVERFLOW, f"{node.value} does not fit 64 bits", node.span)
        return ConstVal(node.value)
    if isinstance(node, ast.FloatLiteral):
        return ConstVal(node.value)
    if isinstance(node, ast.BoolLiteral):
        return ConstVal(node.value, DType.BOOL)
    if isinstance(node, ast.StringLiteral):
        return Text(node.value)
    if isinstance(node, ast.Unary):
        return apply(c, UNARY[node.op], [operand(c, node.operand)], node.span)
    if isinstance(node, ast.Binary):
        return _binary(c, node)
    if isinstance(node, ast.Member):
        return _member(c, node)
    if isinstance(node, ast.Call):
        return builtins.call(c, node)
    if isinstance(node, ast.Subscript):
        return views.subscript(c, node)
    raise TypeError(f"unknown expression {type(node).__name__}")


def operand(c: Context, node: ast.Expr) -> Operand:
    """The value of an expression as an operation sees it: views are loaded here."""
    return emit.read(c, c.evaluate(node), node.span)


def value(c: Context, node: ast.Expr) -> Value | Poison:
    """An SSA value of an expression, literals by their default types."""
    return emit.to_value(c, operand(c, node), node.span)


def tile(c: Context, node: ast.Expr, what: str) -> Value | Poison:
    """A tile value; `what` names the role in the message."""
    found = value(c, node)
    if isinstance(found, Value) and not found.is_tile:
        return c.error(codes.WRONG_OPERAND, f"{what} is a tile, not the scalar {found.type}", node.span)
    return found


def constant(c: Context, node: ast.Expr, what: str) -> ConstVal | Poison:
    """A compile-time value; `what` starts the message, as in "a tile extent"."""
    found = c.evaluate(node)
    if isinstance(found, (ConstVal, Poison)):
        return found
    return c.error(
        codes.NOT_CONSTANT,
        f"{what} is a compile-time value, and `{c.text(node)}` is known only at launch",
        node.span,
        help="pin its names with `@autotune`, `const` or the configuration",
    )


def constant_int(c: Context, node: ast.Expr, what: str) -> int | Poison:
    found = constant(c, node, what)
    if isinstance(found, Poison):
        return found
    if not found.is_int:
        return c.error(codes.WRONG_OPERAND, f"{what} is an integer, not {type_text(found)}", node.span)
    return int(found.value)


# --- names -----------------------------------------------------------------------------------


def _name(c: Context, node: ast.Name) -> Entity:
    found = c.scope.find(node.id)
    if isinstance(found, Variable):
        if isinstance(found.type, Poison):
            return POISON
        if found.value is None:
            return c.error(
                codes.UNASSIGNED,
                f"`{node.id}` may be read before it is written",
                node.span,
                help=f"give it a value where it is declared (line {found.span.line}), or on every path to this line",
            )
        return found.value
    if found is not None:
        if found.kind == "autotune word":
            return c.error(
                codes.NOT_A_VALUE, f"`{node.id}` stands for an option word, not for a number", node.span,
                help="use it in `@options(...)` only",
            )  # fmt: skip
        return found.entity
    return unknown(c, node)


def unknown(c: Context, node: ast.Name, *, assigned: bool = False) -> Poison:
    """Reports a name that is no value here; `assigned` where a statement would give it one."""
    from phobos.semantic.builtins import BUILTINS

    name = node.id
    if name == "ctx":
        return c.error(codes.NOT_A_VALUE, "`ctx` is used as `ctx.block.x` or `ctx.grid.x`", node.span)
    if name in c.functions or name in BUILTINS:
        return c.error(
            codes.NOT_A_VALUE, f"`{name}` is a function, not a value", node.span, help=f"call it: `{name}(...)`"
        )
    if name in DTYPE_BY_NAME or name in c.dtypes:
        return c.error(codes.NOT_A_VALUE, f"`{name}` is a type, not a value", node.span)
    return c.error(codes.UNKNOWN_NAME, f"unknown name `{name}`", node.span, help=_unknown_help(c, name, assigned))


def _unknown_help(c: Context, name: str, assigned: bool) -> str | None:
    if name in foreign.NAMES:
        return foreign.NAMES[name]
    close = nearest(name, c.scope.visible())
    guess = f"did you mean `{close}`?" if close else None
    if assigned and not close:
        return f"declare it: `let {name} = ...`, or `var {name} = ...` where it changes"
    if name.isupper() and len(name) > 1:
        sizes = f"tile sizes are declared by `@autotune({name} in [16, 64])` or `const {name} = 64`"
        return f"{guess} (or: {sizes})" if guess else sizes
    return guess


def _member(c: Context, node: ast.Member) -> Entity:
    base = node.base
    if isinstance(base, ast.Member) and isinstance(base.base, ast.Name) and base.base.id == "ctx":
        if base.name in ("block", "grid") and node.name in ("x", "y", "z"):
            return c.block_value(base.name, "xyz".index(node.name), node.span)
        wrong = node.name if base.name in ("block", "grid") else base.name
        known = ("x", "y", "z") if base.name in ("block", "grid") else ("block", "grid")
        close = nearest(wrong, known)
        return c.error(
            codes.UNKNOWN_NAME,
            f"`ctx.{base.name}.{node.name}` does not exist",
            node.span,
            notes=("there are ctx.block.x|y|z and ctx.grid.x|y|z; code never speaks of threads",),
            help=f"did you mean `{close}`?" if close else None,
        )
    if isinstance(base, ast.Name) and base.id == "ctx":
        if node.name in ("block", "grid"):
            return c.error(
                codes.NOT_A_VALUE, f"`ctx.{node.name}` needs an axis", node.span, help=f"`ctx.{node.name}.x`"
            )
        return c.error(
            codes.UNKNOWN_NAME,
            f"`ctx.{node.name}` does not exist",
            node.span,
            notes=("there are ctx.block.x|y|z and ctx.grid.x|y|z; code never speaks of threads",),
        )
    if isinstance(base, ast.Name) and base.id in foreign.NAMES and c.scope.find(base.id) is None:
        return unknown(c, base)
    return c.error(
        codes.UNKNOWN_NAME,
        f"`{c.text(base)}` has no member `{node.name}`",
        node.span,
        notes=("only `ctx` has members: ctx.block.x|y|z and ctx.grid.x|y|z",),
        help=foreign.MEMBERS.get(node.name),
    )


# --- operators -------------------------------------------------------------------------------


def _binary(c: Context, node: ast.Binary) -> Entity:
    fn = BINARY[node.op]
    left = operand(c, node.left)
    if fn in ("and", "or") and isinstance(left, ConstVal) and left.dtype is DType.BOOL:
        # A compile-time condition decides without its other side, which may only be valid then.
        if bool(left.value) == (fn == "or"):
            return left
        right = operand(c, node.right)
        if not isinstance(right, Poison):
            _check_kind(c, fn, [right], node.span)
        return right
    right = operand(c, node.right)
    return apply(c, fn, [left, right], node.span)


def common_dtype(c: Context, operands: list[Operand], span: Span, *, what: str = "") -> DType | Poison:
    """The join of the operands' types. Untyped literals follow; float literals make integers f32."""
    dtype: DType | None = None
    for item in operands:
        if isinstance(item, Poison):
            return item
        if item.dtype is None:
            continue
        joined = item.dtype if dtype is None else join(dtype, item.dtype)
        if joined is None:
            return _no_join(c, dtype, item.dtype, span, what)
        dtype = joined
    literals = [o for o in operands if isinstance(o, ConstVal) and o.dtype is None]
    has_float = any(o.untyped_float for o in literals)
    if dtype is None:
        return DType.F32 if has_float else DType.INDEX
    if dtype is DType.BOOL and literals:
        return c.error(
            codes.FORBIDDEN_MIX, f"a number and `bool` do not mix{what}", span, help="convert the bool: `i32(...)`"
        )
    return DType.F32 if dtype.is_integer and has_float else dtype


def _no_join(c: Context, a: DType | None, b: DType, span: Span, what: str) -> Poison:
    assert a is not None
    if DType.BOOL in (a, b):
        other = b if a is DType.BOOL else a
        return c.error(
            codes.FORBIDDEN_MIX, f"`bool` and `{other}` do not mix{what}", span,
            help=f"convert the bool: `{other}(...)`",
        )  # fmt: skip
    signed = a if a.is_signed else b
    return c.error(
        codes.FORBIDDEN_MIX,
        f"signed and unsigned do not mix: `{a}` and `{b}`{what}",
        span,
        help=f"convert one of them: `{signed}(...)`",
    )


def _check_kind(c: Context, fn: str, operands: list[Operand], span: Span) -> bool:
    """Whether the operands' types suit `fn`; reports the first that does not."""
    name = SYMBOL.get(fn, fn)
    for item in operands:
        if isinstance(item, Poison):
            return False
        dtype = item.dtype
        text = f"`{name}` does not take {_type_of(item)}"
        if fn in ("and", "or", "not"):
            if dtype is not DType.BOOL:
                c.error(codes.WRONG_OPERAND, f"{text}: it takes `bool`", span, help="compare first, as in `x != 0`")
                return False
        elif fn in BITWISE:
            shift_of_bool = dtype is DType.BOOL and fn in ("shl", "shr", "bitnot")
            is_float = (dtype is not None and dtype.is_float) or (isinstance(item, ConstVal) and item.untyped_float)
            if is_float or shift_of_bool:
                help = "use `!`" if fn == "bitnot" and shift_of_bool else None
                c.error(codes.WRONG_OPERAND, f"{text}: it takes integers", span, help=help)
                return False
        elif fn in FLOAT_FUNCTIONS:
            if dtype is not None and not dtype.is_float:
                c.error(codes.WRONG_OPERAND, f"{text}: it takes floats", span, help="convert it: `f32(...)`")
                return False
        elif fn not in ("eq", "ne", "where") and dtype is DType.BOOL:
            help = "convert it: `i32(...)`"
            c.error(codes.WRONG_OPERAND, f"{text}: it takes numbers", span, help=help)
            return False
    return True


def _type_of(item: Operand) -> str:
    if isinstance(item, (Value, Poly)) or (isinstance(item, ConstVal) and item.dtype is not None):
        return f"`{item.dtype}`"
    return type_text(item)


_BOOL_BITS = {"bitand": "and", "bitor": "or", "bitxor": "ne"}


def apply(c: Context, fn: str, operands: list[Operand], span: Span) -> Operand:
    """An elementwise function of ELEMENTWISE (or `ceildiv`) with all typing rules."""
    if any(isinstance(o, Poison) for o in operands):
        return POISON
    numeric = operands[1:] if fn == "where" else operands
    if fn == "where" and not _is_bool(operands[0]):
        return c.error(
            codes.WRONG_OPERAND,
            f"the condition of `where` is a `bool`, not {_type_of(operands[0])}",
            span,
            help="compare first, as in `x != 0`",
        )
    if not _check_kind(c, fn, numeric, span):
        return POISON
    if all(isinstance(o, ConstVal) for o in operands):
        try:
            return fold(fn, [o for o in operands if isinstance(o, ConstVal)])
        except FoldError as error:
            return c.error(error.code, str(error), span, help=error.help)
    if fn == "where" and isinstance(operands[0], ConstVal):
        # A compile-time condition still gives the join of both sides.
        operands = [c.constant(bool(operands[0].value), DType.BOOL, span), *operands[1:]]
    divisor = operands[1] if fn in ("div", "mod", "ceildiv") else None
    if isinstance(divisor, ConstVal) and divisor.is_int and divisor.value == 0:
        others = operands[0]
        if isinstance(others, (Value, Poly)) and others.dtype.is_integer:
            return c.error(codes.DIVISION_BY_ZERO, "division by zero", span)
    dtype = common_dtype(c, numeric, span, what=f" in `{SYMBOL.get(fn, fn)}`")
    if isinstance(dtype, Poison):
        return dtype
    if fn in FLOAT_FUNCTIONS and not dtype.is_float:
        dtype = DType.F32
    if dtype is DType.BOOL:
        fn = _BOOL_BITS.get(fn, fn)
    if fn == "ceildiv":
        if not dtype.is_integer:
            return c.error(codes.WRONG_OPERAND, "`ceildiv` takes integers", span)
        one = ConstVal(1)
        less = apply(c, "sub", [operands[1], one], span)
        return apply(c, "div", [apply(c, "add", [operands[0], less], span), operands[1]], span)
    return emit.elementwise(c, fn, list(operands), dtype, span)


def _is_bool(item: Operand) -> bool:
    return not isinstance(item, Poison) and item.dtype is DType.BOOL
