"""Expression trees as C++ text, with no more parentheses than precedence asks for."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from phobos.ir.c_names import c_type
from phobos.ir.storage import (
    Apply,
    Buffer,
    BufferRef,
    Convert,
    Expr,
    FragmentRef,
    Literal,
    Position,
    ScalarRef,
    Special,
)
from phobos.ir.types import DType

PRIMARY, UNARY, MUL, ADD, RELATION, EQUAL, AND, XOR, OR, BOTH, EITHER, TERNARY = range(12, 0, -1)
_BINARY = {
    "add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MUL), "div": ("/", MUL), "mod": ("%", MUL),
    "eq": ("==", EQUAL), "ne": ("!=", EQUAL), "lt": ("<", RELATION), "le": ("<=", RELATION), "gt": (">", RELATION),
    "ge": (">=", RELATION), "and": ("&&", BOTH), "or": ("||", EITHER), "bitand": ("&", AND), "bitor": ("|", OR),
    "bitxor": ("^", XOR),
}  # fmt: skip
_NARROW = frozenset({DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2})
_WRAPPING = {DType.I32: ("int", "unsigned"), DType.I64: ("ph_i64", "ph_u64")}
# A position outside of every tensor of fewer than 2^31 elements, from which 32 bits reach as far as a tile does.
_FAR = (1 << 31) - 1 - (1 << 20)
_SPECIAL = {"ctaid": "ph_ctaid", "nctaid": "ph_nctaid"}


@dataclass(frozen=True)
class Text:
    """An expression and the precedence of its outermost operator."""

    text: str
    level: int

    def at(self, level: int) -> str:
        """In parentheses if it binds more loosely than `level`."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(frozen=True)
class Environment:
    """How leaves print: registers and positions depend on the statement around the expression."""

    index_bits: int
    offsets: dict[Buffer, int]
    fragment: Callable[[FragmentRef], str]
    position: Callable[[int], str]


def number(value: int | float | bool, dtype: DType, index_bits: int = 32) -> Text:
    """A literal of the dtype."""
    if dtype is DType.BOOL:
        return Text("true" if value else "false", PRIMARY)
    if dtype in _NARROW:
        return Text(f"ph_cvt<{c_type(dtype, index_bits)}>({number(float(value), DType.F32).text})", PRIMARY)
    if dtype.is_float:
        v = float(value)
        if math.isnan(v):
            text = "ph_nan()"
        elif math.isinf(v):
            text = "-ph_inf()" if v < 0 else "ph_inf()"
        elif dtype is DType.F32:
            text = _shortest_f32(v) + "f"
        else:
            text = _with_point(repr(v))
        if dtype is DType.F64 and not math.isfinite(v):
            text = f"(double){text}"
        return Text(text, UNARY if text[0] in "-(" else PRIMARY)
    n = int(value)
    suffix = (
        "u"
        if dtype is DType.U32
        else "LL"
        if dtype is DType.I64 or (dtype is DType.INDEX and index_bits == 64 and abs(n) >= 1 << 31)
        else ""
    )
    if n == -(1 << 31) and not suffix:
        return Text("(-2147483647 - 1)", PRIMARY)
    if n == -(1 << 63):
        return Text("(-9223372036854775807LL - 1)", PRIMARY)
    return Text(f"{n}{suffix}", UNARY if n < 0 else PRIMARY)


def _with_point(text: str) -> str:
    return text if any(c in text for c in ".einf") else text + ".0"


def _shortest_f32(v: float) -> str:
    exact = struct.pack("f", v)
    for digits in range(6, 10):
        text = f"{v:.{digits}g}"
        if struct.pack("f", float(text)) == exact:
            return _with_point(text)
    return _with_point(f"{v:.9g}")


def expression(e: Expr, env: Environment) -> Text:
    if isinstance(e, Literal):
        return number(e.value, e.dtype, env.index_bits)
    if isinstance(e, ScalarRef):
        return Text(e.name, PRIMARY)
    if isinstance(e, Special):
        text = f"{_SPECIAL[e.kind]}_{'xyz'[e.axis]}()"  # an int, whose product with another one may need more
        return Text(text, PRIMARY) if env.index_bits == 32 else Text(f"(ph_i64){text}", UNARY)
    if isinstance(e, FragmentRef):
        return Text(env.fragment(e), PRIMARY)
    if isinstance(e, Position):
        text = env.position(e.axis)
        return Text(text, PRIMARY if text.isidentifier() or text.isdigit() else ADD)
    if isinstance(e, BufferRef):
        return _buffer_ref(e, env)
    if isinstance(e, Convert):
        return _convert(e, env)
    assert isinstance(e, Apply)
    return _apply(e, env)


def linear_index(buffer: Buffer, at: tuple[Expr, ...], env: Environment) -> Text:
    """The element index of a position in a shared tile."""
    if buffer.layout.swizzle:
        line, column = (expression(e, env).text for e in at)
        return Text(buffer.layout.index_text(line, column), ADD)
    terms: list[str] = []
    for e, stride in zip(at, buffer.layout.strides):
        if isinstance(e, Literal) and e.value == 0:
            continue
        text = expression(e, env)
        terms.append(text.at(ADD) if stride == 1 else f"{text.at(MUL)} * {stride}")
    return Text(" + ".join(terms) or "0", ADD if len(terms) > 1 else MUL)


def _buffer_ref(e: BufferRef, env: Environment) -> Text:
    ctype = c_type(e.dtype, env.index_bits)
    index = linear_index(e.buffer, e.at, env).text
    read = f"ph_smem<{ctype}>({env.offsets[e.buffer]})[{index}]"
    if e.guard is None:
        return Text(f"({ctype}){read}", UNARY)
    guard = expression(e.guard, env).text
    fill = number(e.fill, e.dtype, env.index_bits).at(TERNARY)
    return Text(f"PH_GUARD({guard}) ? ({ctype}){read} : {fill}", TERNARY)


def _convert(e: Convert, env: Environment) -> Text:
    inner = expression(e.arg, env)
    if e.arg.dtype is e.dtype:
        return inner
    if e.dtype is DType.INDEX and env.index_bits == 32 and e.arg.dtype in (DType.I64, DType.U32):
        # The low bits alone would be a position that may exist.
        low = f"ph_max<ph_i64>({inner.text}, {-_FAR}LL)" if e.arg.dtype is DType.I64 else inner.text
        return Text(f"(int)ph_min<ph_i64>({low}, {_FAR}LL)", UNARY)
    integers = {DType.INDEX, DType.I32, DType.I64}
    if e.dtype in integers and e.arg.dtype in integers:
        if c_type(e.dtype, env.index_bits) == c_type(e.arg.dtype, env.index_bits):
            return inner
        return Text(f"({c_type(e.dtype, env.index_bits)}){inner.at(UNARY)}", UNARY)
    return Text(f"ph_cvt<{c_type(e.dtype, env.index_bits)}>({inner.text})", PRIMARY)


def _as_float(e: Expr, env: Environment) -> Text:
    """A narrow float as f32 (exact)."""
    return Text(f"ph_cvt<float>({expression(e, env).text})", PRIMARY)


def _apply(e: Apply, env: Environment) -> Text:
    if e.fn == "where":
        c, a, b = (expression(x, env) for x in e.args)
        return Text(f"{c.at(EITHER)} ? {a.at(TERNARY)} : {b.at(TERNARY)}", TERNARY)
    narrow = any(a.dtype in _NARROW for a in e.args)
    args = [_as_float(a, env) if a.dtype in _NARROW else expression(a, env) for a in e.args]
    dtype = DType.F32 if e.dtype in _NARROW else e.dtype
    if e.fn == "fma" and e.dtype in _NARROW:  # to odd, so that the rounding to the narrow type is the only one
        text = Text(f"ph_fma_odd({', '.join(a.text for a in args)})", PRIMARY)
    else:
        text = _function(e, args, dtype, env)
    if narrow and e.dtype in _NARROW:
        return Text(f"ph_cvt<{c_type(e.dtype, env.index_bits)}>({text.text})", PRIMARY)
    return text


def _function(e: Apply, args: list[Text], dtype: DType, env: Environment) -> Text:
    fn = e.fn
    operand = e.args[0].dtype
    if fn == "neg":
        if operand in _WRAPPING:
            signed, unsigned = _WRAPPING[operand]
            return Text(f"({signed})(0 - ({unsigned}){args[0].at(UNARY)})", UNARY)
        return _narrow_integer(Text(f"-{args[0].at(PRIMARY)}", UNARY), dtype)
    if fn == "not":
        return Text(f"!{args[0].at(UNARY)}", UNARY)
    if fn == "bitnot":
        return _narrow_integer(Text(f"~{args[0].at(UNARY)}", UNARY), dtype)
    if fn in ("div", "mod") and not dtype.is_float:
        divisor = e.args[1]
        if not (isinstance(divisor, Literal) and int(divisor.value) > 0):
            # By zero, and of the least number by -1: defined on every machine.
            t = c_type(dtype, env.index_bits)
            return Text(f"ph_i{fn}<{t}>({args[0].text}, {args[1].text})", PRIMARY)
    if fn == "mod" and dtype.is_float:
        return Text(f"ph_mod({args[0].text}, {args[1].text})", PRIMARY)
    if fn == "div" and dtype.is_float and e.fast:
        return Text(f"ph_fast_div({args[0].text}, {args[1].text})", PRIMARY)
    if fn in ("shl", "shr"):
        t = c_type(dtype, env.index_bits)
        return Text(f"ph_{fn}<{t}>({args[0].text}, {args[1].text})", PRIMARY)
    if fn in _BINARY:
        op, level = _BINARY[fn]
        if operand in _WRAPPING and fn in ("add", "sub", "mul"):
            signed, unsigned = _WRAPPING[operand]
            return Text(f"({signed})(({unsigned}){args[0].at(UNARY)} {op} ({unsigned}){args[1].at(UNARY)})", UNARY)
        text = f"{args[0].at(level)} {op} {args[1].at(level + 1)}"
        return _narrow_integer(Text(text, level), dtype)
    arguments = ", ".join(a.text for a in args)
    if dtype.is_integer:
        # The type is named: small integers and their literals are int in C++, positions may be narrower than indexes.
        return Text(f"ph_{fn}<{c_type(dtype, env.index_bits)}>({arguments})", PRIMARY)
    return Text(f"{'ph_fast_' if e.fast and dtype.is_float else 'ph_'}{fn}({arguments})", PRIMARY)


def _narrow_integer(text: Text, dtype: DType) -> Text:
    """i8 and u8 wrap at their width."""
    if dtype in (DType.I8, DType.U8):
        return Text(f"({c_type(dtype, 32)}){text.at(UNARY)}", UNARY)
    return text
