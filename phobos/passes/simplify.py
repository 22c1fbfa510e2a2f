"""simplify: integer constant folding, identities, one form for each thing, common subexpressions (loads too), dead
code.

Precondition: a verified KernelIR. Postcondition: the same meaning; no two pure ops of one block chain compute the
same thing; no effect-free op without a reader. Floats are left alone but for exact identities, since folding must
not change rounding.

One form, so that no later pass depends on how the text says it: where(mask, x, constant) for where(!mask, constant, x);
x * 0.125 for x / 8.0, which is the same number for powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace

from phobos.ir.tile import (
    TERMINATORS,
    AtIndex,
    Atomic,
    AxisGather,
    AxisRange,
    Block,
    Broadcast,
    Cast,
    Cat,
    Compute,
    Constant,
    Dot,
    Extract,
    Gather,
    GridSize,
    If,
    Insert,
    Iota,
    KernelIR,
    Load,
    Op,
    ProgramId,
    Reduce,
    Reshape,
    Scan,
    Store,
    Transpose,
    Value,
    View,
    While,
    Yield,
)
from phobos.ir.types import DType
from phobos.ir.walk import Rewriter, remove_dead, walk

_PURE = (
    Constant, ProgramId, GridSize, Compute, Cast, Broadcast, Iota, Transpose, Reshape, Cat, Extract, Insert, Load,
    Scan, Gather, Dot,
)  # fmt: skip
_INVERSE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_RANGE = {DType.I8: 8, DType.I32: 32, DType.I64: 64, DType.INDEX: 64}


def run(kernel: KernelIR, overlap: frozenset[str] = frozenset()) -> KernelIR:
    """`overlap`: tensors that may share bytes; a store to one of them ends the life of loads of all of them."""
    kernel = _Simplifier(overlap).kernel(kernel)
    body = remove_dead(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def fold_integer(fn: str, a: Sequence[int], dtype: DType) -> int | bool | None:
    """The value of an integer or bool function of constants; None where it is not folded."""
    if fn in ("div", "mod") and a[1] == 0:
        return None
    table = {
        "add": lambda: a[0] + a[1], "sub": lambda: a[0] - a[1], "mul": lambda: a[0] * a[1], "neg": lambda: -a[0],
        "min": lambda: min(a[0], a[1]), "max": lambda: max(a[0], a[1]), "abs": lambda: abs(a[0]),
        "eq": lambda: a[0] == a[1], "ne": lambda: a[0] != a[1], "lt": lambda: a[0] < a[1], "le": lambda: a[0] <= a[1],
        "gt": lambda: a[0] > a[1], "ge": lambda: a[0] >= a[1], "and": lambda: bool(a[0] and a[1]),
        "or": lambda: bool(a[0] or a[1]), "not": lambda: not a[0],
        "bitand": lambda: a[0] & a[1], "bitor": lambda: a[0] | a[1], "bitxor": lambda: a[0] ^ a[1],
        "div": lambda: (abs(a[0]) // abs(a[1])) * (1 if (a[0] < 0) == (a[1] < 0) else -1),
        "mod": lambda: (abs(a[0]) % abs(a[1])) * (1 if a[0] >= 0 else -1),
    }  # fmt: skip
    if fn not in table:
        return None
    value = table[fn]()
    if dtype is DType.BOOL:
        return bool(value)
    bits = _RANGE.get(dtype)
    if bits is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        return None  # wraps or unsigned: left to the machine
    return value


class _Simplifier(Rewriter):
    def __init__(self, overlap: frozenset[str]):
        super().__init__()
        self._overlap = overlap
        self._scopes: list[dict[object, Value]] = [{}]
        self._constants: dict[Value, int | float | bool] = {}
        self._defs: dict[Value, Op] = {}

    def block(self, block: Block) -> Block:
        # A nested block may reuse what is available outside, but what it finds is not available after it. Loads
        # from before a loop stay available only if the loop (whose back edge is not seen yet) stores nothing there.
        self._kill_stores(block)
        self._scopes.append(dict(self._scopes[-1]))
        try:
            return super().block(block)
        finally:
            self._scopes.pop()
            self._kill_stores(block)

    def enter(self, op: Op) -> Op:
        if isinstance(op, While):  # what the body stores is seen by the condition, which comes first
            for block in op.blocks():
                self._kill_stores(block)
        return op

    def _kill_stores(self, block: Block) -> None:
        for op in walk(block):
            if isinstance(op, (Store, Atomic)):
                self._kill(op.view.tensor.name)

    def _kill(self, tensor: str) -> None:
        names = {tensor} | (self._overlap if tensor in self._overlap else frozenset())
        scope = self._scopes[-1]
        for key in [k for k in scope if isinstance(k, tuple) and k[0] == "Load" and k[1] in names]:
            del scope[key]

    def visit(self, op: Op) -> Sequence[Op]:
        if isinstance(op, (Store, Atomic)):
            self._kill(op.view.tensor.name)
            return (op,)
        if isinstance(op, If):
            chosen = self._constants.get(op.condition)
            if chosen is not None:
                taken = op.then if chosen else op.orelse
                end = taken.ops[-1]
                if isinstance(end, Yield):
                    for result, value in zip(op.results, end.values):
                        self.replace_value(result, self.value(value))
                    return taken.ops[:-1]
                return taken.ops
            return (op,)
        if not isinstance(op, (*_PURE, Reduce)) or isinstance(op, TERMINATORS):
            return (op,)
        before: list[Op] = []
        if isinstance(op, Compute):
            op = self._one_form(op, before)
        folded = self._fold(op)
        if isinstance(folded, Value):  # an identity: readers take the operand
            return before
        op = folded
        self._defs[op.defined()[0]] = op
        if isinstance(op, Constant):
            self._constants[op.result] = op.value
        if isinstance(op, Reduce) and op.combine is not None:
            return (op,)
        key = _key(op)
        known = self._scopes[-1].get(key)
        if known is not None:
            self.replace_value(op.defined()[0], known)
            return before
        self._scopes[-1][key] = op.defined()[0]
        return (*before, op)

    def _new(self, op: Op, before: list[Op]) -> Value:
        """The value of an op that this pass makes, which goes in front of the one that is visited."""
        before.extend(self.visit(op))
        return self.value(op.defined()[0])

    def _one_form(self, op: Compute, before: list[Op]) -> Compute:
        if op.fn == "where" and self._is_constant(op.args[1]) and not self._is_constant(op.args[2]):
            negation = self._negation(op.args[0], before)
            if negation is not None:
                return replace(op, args=(negation, op.args[2], op.args[1]))
        if op.fn == "div" and op.result.dtype is DType.F32:
            divisor = self._constants.get(op.args[1])
            if divisor and abs(math.frexp(divisor)[0]) == 0.5 and 2.0**-100 < abs(divisor) < 2.0**100:
                inverse = Value(type=op.args[1].type, name=op.args[1].name, span=op.span)
                constant = Constant(span=op.span, result=inverse, value=1.0 / divisor)
                return replace(op, fn="mul", args=(op.args[0], self._new(constant, before)))
        return op

    def _is_constant(self, v: Value) -> bool:
        """Are all elements of the value one constant?"""
        op = self._defs.get(v)
        return isinstance(op, Constant) or (isinstance(op, Broadcast) and self._is_constant(op.operand))

    def _negation(self, v: Value, before: list[Op]) -> Value | None:
        """!v where that takes no more work than v; None elsewhere."""
        op = self._defs.get(v)
        made: Op
        result = Value(type=v.type, name=v.name, span=v.span)
        if isinstance(op, Broadcast):
            inner = self._negation(op.operand, before)
            if inner is None:
                return None
            made = replace(op, result=result, operand=inner)
        elif not isinstance(op, Compute):
            return None
        elif op.fn == "not":
            return op.args[0]
        elif op.fn in _INVERSE and not op.args[0].dtype.is_float:  # masks compare positions; of NaN neither holds
            made = replace(op, result=result, fn=_INVERSE[op.fn])
        elif op.fn in ("and", "or"):
            parts = [self._negation(a, before) for a in op.args]
            if None in parts:
                return None
            fn = "or" if op.fn == "and" else "and"
            made = replace(op, result=result, fn=fn, args=tuple(p for p in parts if p is not None))
        else:
            return None
        return self._new(made, before)

    def _alias(self, old: Value, new: Value) -> Value:
        self.replace_value(old, new)
        return new

    def _fold(self, op: Op) -> Op | Value:  # type: ignore[return]
        if isinstance(op, Cast):
            if op.operand.dtype is op.result.dtype:
                return self._alias(op.result, op.operand)
            value = self._constants.get(op.operand)
            if (
                value is not None
                and not isinstance(value, float)
                and op.result.dtype in _RANGE
                and not op.result.is_tile
            ):
                bits = _RANGE[op.result.dtype]
                if -(1 << (bits - 1)) <= int(value) < 1 << (bits - 1):
                    return Constant(result=op.result, value=int(value), span=op.span)
            return op
        if isinstance(op, Broadcast) and op.operand.shape == op.result.shape:
            return self._alias(op.result, op.operand)
        if isinstance(op, Dot):
            source = self._defs.get(op.b)
            if isinstance(source, Transpose):  # a @ (x^T) is dot_t(a, x), and dot_t(a, x^T) is a @ x
                return replace(op, b=source.operand, transpose_b=not op.transpose_b)
        if isinstance(op, Compute):
            return self._fold_compute(op)
        return op

    def _fold_compute(self, op: Compute) -> Op | Value:
        known = [self._constants.get(a) for a in op.args]
        result = op.result
        if not result.is_tile and all(k is not None and not isinstance(k, float) for k in known):
            value = fold_integer(op.fn, [int(k) for k in known if k is not None], result.dtype)
            if value is not None:
                return Constant(result=result, value=value, span=op.span)
        if len(op.args) == 2:
            a, b = op.args
            ka, kb = known
            same_a = a.type == result.type
            same_b = b.type == result.type
            if result.dtype.is_integer:
                if (op.fn == "add" and kb == 0 or op.fn == "sub" and kb == 0) and same_a:
                    return self._alias(result, a)
                if op.fn == "add" and ka == 0 and same_b:
                    return self._alias(result, b)
                if op.fn == "mul" and 0 in (ka, kb) and not result.is_tile:
                    return Constant(result=result, value=0, span=op.span)
            if op.fn in ("mul", "div") and kb == 1 and same_a:  # exact for floats too
                return self._alias(result, a)
            if op.fn == "mul" and ka == 1 and same_b:
                return self._alias(result, b)
        if op.fn == "where" and known[0] is not None and not op.args[0].is_tile:
            chosen = op.args[1] if known[0] else op.args[2]
            if chosen.type == result.type:
                return self._alias(result, chosen)
        return op


def _key(op: Op) -> tuple[object, ...]:
    """Structural identity of a pure op: class, tensor for loads, fields with values by identity, result type."""
    parts: list[object] = [type(op).__name__]
    if isinstance(op, Load):
        parts.append(op.view.tensor.name)
    for f in fields(op):
        if f.name not in ("span", "result"):
            parts.append(_freeze(getattr(op, f.name)))
    parts.append(op.defined()[0].type)
    return tuple(parts)


def _freeze(item: object) -> object:
    if isinstance(item, View):
        return (item.tensor.name, tuple(_freeze(a) for a in item.axes))
    if isinstance(item, AxisRange):
        return ("range", item.start, item.length, item.guarded)
    if isinstance(item, AtIndex):
        return ("at", item.index)
    if isinstance(item, AxisGather):
        return ("gather", item.index)
    if isinstance(item, tuple):
        return tuple(_freeze(x) for x in item)
    if isinstance(item, (bool, int, float)):
        return (type(item).__name__, repr(item))
    return item
