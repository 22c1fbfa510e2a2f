"""Compile-time evaluation: folding of operators and functions, and headers (attributes, dims, file constants)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from phobos.diagnostics import nearest
from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.semantic import codes
from phobos.semantic.dtypes import (
    integer_range,
    join,
    literal_fits,
    narrows,
    round_float,
    saturate,
    widens,
    wrap_integer,
)
from phobos.semantic.entities import ConstVal, Poison, type_text
from phobos.semantic.report import Reporter
from phobos.source import Span
from phobos.syntax import ast

COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
# operator of the text -> name in ir.tile.ELEMENTWISE
BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "<<": "shl", ">>": "shr",
    "&": "bitand", "^": "bitxor", "|": "bitor", "&&": "and", "||": "or", **COMPARISONS,
}  # fmt: skip
BITWISE = frozenset({"bitand", "bitor", "bitxor", "bitnot", "shl", "shr"})
COMPARE = frozenset(COMPARISONS.values())
FLOAT_FUNCTIONS = frozenset(
    "exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid erf gelu floor ceil round pow fma isnan".split()
)


class FoldError(Exception):
    """A compile-time operation that has no value; the caller reports it at the right place."""

    def __init__(self, code: str, message: str, help: str | None = None):
        super().__init__(message)
        self.code = code
        self.help = help


def _total(fn: Callable[..., float]) -> Callable[..., float]:
    """`fn` with IEEE results where Python raises."""

    def call(*args: float) -> float:
        if any(math.isnan(a) for a in args):
            return math.nan
        try:
            return float(fn(*args))
        except OverflowError:
            return math.inf
        except (ValueError, ZeroDivisionError):
            return math.nan

    return call


def _log(x: float, base2: bool) -> float:
    if x == 0.0:
        return -math.inf
    return math.log2(x) if base2 else math.log(x)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _integral(fn: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: x if math.isinf(x) else math.copysign(fn(x), x)


_FLOAT_FOLD: dict[str, Callable[..., float]] = {
    "exp": _total(math.exp),
    "exp2": _total(lambda x: 2.0**x),
    "log": _total(lambda x: _log(x, False)),
    "log2": _total(lambda x: _log(x, True)),
    "sqrt": _total(math.sqrt),
    "rsqrt": _total(lambda x: math.copysign(math.inf, x) if x == 0.0 else 1.0 / math.sqrt(x)),
    "sin": _total(math.sin),
    "cos": _total(math.cos),
    "tanh": _total(math.tanh),
    "sigmoid": _total(_sigmoid),
    "erf": _total(math.erf),
    "gelu": _total(lambda x: 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))),
    "floor": _total(_integral(math.floor)),
    "ceil": _total(_integral(math.ceil)),
    "round": _total(_integral(round)),
    "pow": _total(math.pow),
    "fma": _total(lambda a, b, c: a * b + c),
}


def _divide(a: float, b: float) -> float:
    if b == 0.0:
        if a == 0.0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _remainder(a: float, b: float) -> float:
    return math.nan if b == 0.0 or math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)


def _trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a >= 0) == (b >= 0) else -q


def _minmax(pick: Callable[[list], float], values: list) -> float | int:
    for v in values:
        if isinstance(v, float) and math.isnan(v):
            return v
    return pick(values)


def fold_dtype(args: list[ConstVal]) -> tuple[DType | None, bool]:
    """Joined dtype of the arguments (None: all untyped) and whether the operation is one on floats."""
    dtype: DType | None = None
    for arg in args:
        if arg.dtype is None:
            continue
        joined = arg.dtype if dtype is None else join(dtype, arg.dtype)
        if joined is None:
            raise FoldError(codes.FORBIDDEN_MIX, f"`{dtype}` and `{arg.dtype}` do not mix")
        dtype = joined
    floats = any(a.untyped_float for a in args)
    if dtype is DType.BOOL and any(a.dtype is None for a in args):
        raise FoldError(codes.FORBIDDEN_MIX, "a number and `bool` do not mix")
    if dtype is not None and dtype.is_integer and floats:
        dtype = DType.F32
    return dtype, floats or (dtype is not None and dtype.is_float)


def fold(fn: str, args: list[ConstVal]) -> ConstVal:
    """The value of an elementwise function of compile-time arguments. Raises FoldError."""
    if fn in ("and", "or", "not"):
        for a in args:
            if a.dtype is not DType.BOOL:
                raise FoldError(codes.WRONG_OPERAND, f"a logical operator takes `bool`, not {type_text(a)}")
        values = [bool(a.value) for a in args]
        result = not values[0] if fn == "not" else (all(values) if fn == "and" else any(values))
        return ConstVal(result, DType.BOOL)
    if fn == "where":
        if args[0].dtype is not DType.BOOL:
            raise FoldError(codes.WRONG_OPERAND, f"the condition of `where` is a `bool`, not {type_text(args[0])}")
        dtype, is_float = fold_dtype(args[1:])
        return _finish(args[1].value if args[0].value else args[2].value, dtype, is_float)
    dtype, is_float = fold_dtype(args)
    if dtype is DType.BOOL:
        if fn in ("eq", "ne", "bitand", "bitor", "bitxor"):
            x, y = bool(args[0].value), bool(args[1].value)
            table = {"eq": x == y, "ne": x != y, "bitand": x and y, "bitor": x or y, "bitxor": x != y}
            return ConstVal(table[fn], DType.BOOL)
        raise FoldError(codes.WRONG_OPERAND, f"`{fn}` does not take `bool`")
    if fn in BITWISE and is_float:
        raise FoldError(codes.WRONG_OPERAND, "bit operations take integers, not floats")
    if fn in FLOAT_FUNCTIONS and not is_float:
        if dtype is not None:
            raise FoldError(codes.WRONG_OPERAND, f"`{fn}` takes floats, not `{dtype}`", "convert it: `f32(...)`")
        is_float = True
    raw = [float(a.value) if is_float else int(a.value) for a in args]
    if dtype is not None:
        raw = [round_float(v, dtype) if is_float else v for v in raw]
    if fn in COMPARE:
        left, right = raw
        order = {
            "eq": left == right,
            "ne": left != right,
            "lt": left < right,
            "le": left <= right,
            "gt": left > right,
            "ge": left >= right,
        }
        return ConstVal(order[fn], DType.BOOL)
    if fn == "isnan":
        return ConstVal(math.isnan(raw[0]), DType.BOOL)
    return _finish(_float_value(fn, raw) if is_float else _int_value(fn, raw), dtype, is_float)  # type: ignore[arg-type]


def _float_value(fn: str, v: list[float]) -> float:
    if fn in _FLOAT_FOLD:
        return _FLOAT_FOLD[fn](*v)
    if fn == "neg":
        return -v[0]
    if fn == "abs":
        return abs(v[0])
    if fn == "add":
        return v[0] + v[1]
    if fn == "sub":
        return v[0] - v[1]
    if fn == "mul":
        return v[0] * v[1]
    if fn == "div":
        return _divide(v[0], v[1])
    if fn == "mod":
        return _remainder(v[0], v[1])
    if fn in ("min", "max"):
        return _minmax(min if fn == "min" else max, v)
    if fn == "clamp":
        return _minmax(min, [_minmax(max, [v[0], v[1]]), v[2]])
    raise FoldError(codes.NOT_CONSTANT, f"`{fn}` has no compile-time value")


def _int_value(fn: str, v: list[int]) -> int:
    if fn in ("div", "mod", "ceildiv") and v[1] == 0:
        raise FoldError(codes.DIVISION_BY_ZERO, "division by zero")
    if fn in ("shl", "shr") and not 0 <= v[1] < 64:
        raise FoldError(codes.WRONG_OPERAND, f"a shift by {v[1]} bits is out of range")
    table: dict[str, Callable[[], int]] = {
        "neg": lambda: -v[0],
        "abs": lambda: abs(v[0]),
        "add": lambda: v[0] + v[1],
        "sub": lambda: v[0] - v[1],
        "mul": lambda: v[0] * v[1],
        "div": lambda: _trunc_div(v[0], v[1]),
        "mod": lambda: v[0] - v[1] * _trunc_div(v[0], v[1]),
        "shl": lambda: v[0] << v[1],
        "shr": lambda: v[0] >> v[1],
        "bitand": lambda: v[0] & v[1],
        "bitor": lambda: v[0] | v[1],
        "bitxor": lambda: v[0] ^ v[1],
        "bitnot": lambda: ~v[0],
        "min": lambda: min(v),
        "max": lambda: max(v),
        "clamp": lambda: min(max(v[0], v[1]), v[2]),
        "ceildiv": lambda: -(-v[0] // v[1]),
    }
    if fn not in table:
        raise FoldError(codes.NOT_CONSTANT, f"`{fn}` has no compile-time value")
    return table[fn]()


def _finish(value: float | int, dtype: DType | None, is_float: bool) -> ConstVal:
    if dtype is None:
        if not is_float and not -(2**63) <= int(value) < 2**64:
            raise FoldError(codes.LITERAL_OVERFLOW, "a compile-time integer is out of the range of 64 bits")
        return ConstVal(float(value) if is_float else int(value))
    if dtype is DType.BOOL:
        return ConstVal(bool(value), dtype)
    if is_float:
        return ConstVal(round_float(float(value), dtype), dtype)
    low, high = integer_range(dtype)
    if not low <= int(value) <= high:
        raise FoldError(codes.LITERAL_OVERFLOW, f"the compile-time value {int(value)} does not fit `{dtype}`")
    return ConstVal(int(value), dtype)


def number_text(value: int | float | bool) -> str:
    """A compile-time value as kernel text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def convert_implicit(const: ConstVal, dtype: DType, *, narrow: bool = False) -> ConstVal:
    """`const` where a `dtype` is expected. Raises FoldError where that needs an explicit conversion."""
    if const.dtype is dtype:
        return const
    text = number_text(const.value)
    if const.dtype is None:
        assert not isinstance(const.value, bool)
        if dtype is DType.BOOL:
            raise FoldError(codes.IMPLICIT_CONVERSION, f"the number {text} is not a `bool`", "write `true` or `false`")
        if dtype.is_integer and isinstance(const.value, float):
            raise FoldError(
                codes.IMPLICIT_CONVERSION, f"the float {text} does not become `{dtype}` by itself", f"`{dtype}({text})`"
            )
        if not literal_fits(const.value, dtype):
            largest = "448.0" if dtype is DType.F8E4M3 else "inf"  # the type has no infinity
            help = f"write `{'-' if const.value < 0 else ''}{largest}`" if dtype.is_float else None
            raise FoldError(codes.LITERAL_OVERFLOW, f"{text} does not fit `{dtype}`", help)
    elif not widens(const.dtype, dtype):
        allowed = narrow and narrows(const.dtype, dtype)
        if not allowed:
            raise FoldError(
                codes.IMPLICIT_CONVERSION,
                f"`{const.dtype}` does not become `{dtype}` by itself",
                f"convert it: `{dtype}(...)`",
            )
        if not literal_fits(const.value, dtype):
            raise FoldError(codes.LITERAL_OVERFLOW, f"{text} does not fit `{dtype}`")
    return ConstVal(round_float(float(const.value), dtype) if dtype.is_float else int(const.value), dtype)


def convert_explicit(const: ConstVal, dtype: DType) -> ConstVal:
    """`dtype(const)`. An untyped literal must fit; a typed value converts as `Cast` does. Raises FoldError."""
    value = const.value
    if dtype is DType.BOOL:
        return ConstVal(value != 0, dtype)
    if dtype.is_float:
        if const.dtype is None and not literal_fits(value, dtype):
            raise FoldError(codes.LITERAL_OVERFLOW, f"{number_text(value)} does not fit `{dtype}`")
        return ConstVal(round_float(float(value), dtype), dtype)
    if isinstance(value, float):
        if const.dtype is None and math.isfinite(value) and saturate(value, dtype) != math.trunc(value):
            raise FoldError(codes.LITERAL_OVERFLOW, f"{number_text(value)} does not fit `{dtype}`")
        return ConstVal(saturate(value, dtype), dtype)
    if const.dtype is None and not literal_fits(value, dtype):
        raise FoldError(codes.LITERAL_OVERFLOW, f"{number_text(value)} does not fit `{dtype}`")
    return ConstVal(wrap_integer(int(value), dtype), dtype)


# Functions that headers (attributes, dims, file constants) may call.
HEADER_FUNCTIONS = {
    "min": "min", "max": "max", "tmin": "min", "tmax": "max", "ceildiv": "ceildiv", "abs": "abs", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "floor": "floor", "ceil": "ceil",
    "pow": "pow",
}  # fmt: skip
_ARITY = {"min": 2, "max": 2, "ceildiv": 2, "pow": 2}


def evaluate_header(node: ast.Expr, names: Mapping[str, ConstVal | Poison], reporter: Reporter) -> ConstVal | Poison:
    """The compile-time value of an expression outside of a body, POISON after reporting why there is none."""
    try:
        return _header(node, names, reporter)
    except FoldError as error:
        return reporter.error(error.code, str(error), node.span, help=error.help)


def _header(node: ast.Expr, names: Mapping[str, ConstVal | Poison], reporter: Reporter) -> ConstVal | Poison:
    if isinstance(node, ast.IntLiteral):
        return _finish(node.value, None, False)
    if isinstance(node, ast.FloatLiteral):
        return ConstVal(node.value)
    if isinstance(node, ast.BoolLiteral):
        return ConstVal(node.value, DType.BOOL)
    if isinstance(node, ast.Name):
        if node.id in names:
            return names[node.id]
        return unknown_name(node.id, names, node.span, reporter, what="compile-time name")
    if isinstance(node, (ast.Unary, ast.Binary, ast.Call)):
        if isinstance(node, ast.Unary):
            fn, parts = {"-": "neg", "!": "not", "~": "bitnot"}[node.op], [node.operand]
        elif isinstance(node, ast.Binary):
            fn, parts = BINARY[node.op], [node.left, node.right]
        else:
            parts = list(node.args)
            name = node.function.id
            if name in DTYPE_BY_NAME and len(parts) == 1:
                fn = name
            elif name in HEADER_FUNCTIONS:
                fn = HEADER_FUNCTIONS[name]
                if len(parts) != _ARITY.get(fn, 1):
                    raise FoldError(codes.ARGUMENT_COUNT, f"`{name}` takes {_ARITY.get(fn, 1)} argument(s) here")
            else:
                close = nearest(name, [*HEADER_FUNCTIONS, *DTYPE_BY_NAME])
                raise FoldError(
                    codes.NOT_CONSTANT,
                    f"`{name}(...)` is not a compile-time value",
                    f"did you mean `{close}`?" if close else None,
                )
        args: list[ConstVal] = []
        for part in parts:
            value = evaluate_header(part, names, reporter)
            if isinstance(value, Poison):
                return value
            args.append(value)
        if fn in DTYPE_BY_NAME:
            return convert_explicit(args[0], DTYPE_BY_NAME[fn])
        return fold(fn, args)
    raise FoldError(codes.NOT_CONSTANT, "expected a compile-time value")


def unknown_name(
    name: str, known: Mapping[str, object] | list[str], span: Span, reporter: Reporter, *, what: str = "name"
) -> Poison:
    close = nearest(name, list(known))
    return reporter.error(
        codes.UNKNOWN_NAME, f"unknown {what} `{name}`", span, help=f"did you mean `{close}`?" if close else None
    )


def file_constants(module: ast.Module, reporter: Reporter) -> dict[str, ConstVal | Poison]:
    """The `const` declarations at file level, evaluated in order."""
    out: dict[str, ConstVal | Poison] = {}
    for const in module.constants:
        name = const.name.id
        if name in out:
            reporter.error(codes.DUPLICATE_NAME, f"`{name}` is already declared", const.name.span)
            continue
        out[name] = evaluate_header(const.value, out, reporter)
    return out
