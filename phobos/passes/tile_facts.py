"""What the algebra passes know about values of the tile IR: constants, signs, orders."""

from __future__ import annotations

import math

from phobos.ir.abi import Specialization
from phobos.ir.tile import (
    Block,
    Break,
    Broadcast,
    Compute,
    Constant,
    Continue,
    For,
    KernelIR,
    Return,
    Value,
    While,
)
from phobos.ir.types import DType
from phobos.ir.walk import definitions, uses


class TileFacts:
    """Facts about one kernel under one specialization."""

    def __init__(self, kernel: KernelIR, spec: Specialization):
        self.defs = definitions(kernel.body)
        self.readers = uses(kernel.body)
        signs = dict(spec.sign)
        self.positive_params = {s.value for s in kernel.scalars if signs.get(s.name) == 1}

    def constant(self, v: Value) -> int | float | bool | None:
        """The constant that v is, in every element; None if it is none."""
        op = self.defs.get(v)
        if isinstance(op, Broadcast):
            return self.constant(op.operand)
        return op.value if isinstance(op, Constant) else None

    def is_minus_inf(self, v: Value) -> bool:
        return v.dtype.is_float and self.constant(v) == -math.inf

    def positive(self, v: Value) -> bool:
        """Is the scalar known to be > 0?"""
        if v in self.positive_params:
            return True
        op = self.defs.get(v)
        if isinstance(op, Constant):
            return float(op.value) > 0
        return isinstance(op, Compute) and op.fn in ("mul", "div") and all(self.positive(a) for a in op.args)

    def product(self, v: Value) -> tuple[Value, Value] | None:
        """(t, c) if v is a tile t of f32 times a positive scalar c."""
        op = self.defs.get(v)
        if isinstance(op, Compute) and op.fn == "mul" and v.is_tile and v.dtype is DType.F32:
            for t, c in (op.args, op.args[::-1]):
                if t.is_tile and t.shape == v.shape and not c.is_tile and self.positive(c):
                    return t, c
        return None

    def guarded(self, op: Compute) -> tuple[Value, Value, Value] | None:
        """(w, c, x) if the op chooses c where w is -inf and x elsewhere: where(w == -inf, c, x), or the other way round
        with w != -inf or w > -inf (which chooses c where w is NaN, too)."""
        test = self.defs.get(op.args[0])
        if not (op.fn == "where" and isinstance(test, Compute) and test.fn in ("eq", "ne", "gt", "lt")):
            return None
        left, right = test.args
        for w, other, fns in ((left, right, ("eq", "ne", "gt")), (right, left, ("eq", "ne", "lt"))):
            if test.fn in fns and self.is_minus_inf(other):
                c, x = op.args[1:] if test.fn == "eq" else op.args[:0:-1]
                return w, c, x
        return None

    def not_below(self, b: Value, a: Value) -> bool:
        """Is b >= a in every element, wherever no NaN is involved? True for b = max(a, ...), where(b == -inf, 0, b)
        too."""
        if a is b:
            return True
        op = self.defs.get(b)
        if not isinstance(op, Compute):
            return False
        if op.fn == "max":
            return any(self.not_below(x, a) for x in op.args)
        if op.fn == "where":
            if (guard := self.guarded(op)) is not None:
                tested, _, x = guard
                if self.not_below(tested, a):  # where that is -inf, so is a
                    return self.not_below(x, a)
            return all(self.not_below(x, a) for x in op.args[1:])
        return False

    def at_most_one(self, v: Value) -> bool:
        """Is v an exponential of a difference that cannot be positive (or else NaN)?"""
        op = self.defs.get(v)
        if not (isinstance(op, Compute) and op.fn in ("exp", "exp2")):
            return False
        power = self.defs.get(op.args[0])
        if isinstance(power, Compute) and power.fn == "mul" and (scaled := self.product(power.result)) is not None:
            power = self.defs.get(scaled[0])
        if not (isinstance(power, Compute) and power.fn == "sub"):
            return False
        a, b = power.args
        pa, pb = self.product(a), self.product(b)
        if pa is not None and pb is not None and pa[1] is pb[1]:
            a, b = pa[0], pb[0]
        return self.not_below(b, a)


def leaves_early(body: Block) -> bool:
    """Does an iteration of the loop with this body end anywhere but at the body's own Yield?"""

    def exits(block: Block, inner: bool) -> bool:
        for op in block.ops:
            if isinstance(op, Return) or (isinstance(op, (Break, Continue)) and not inner):
                return True
            if any(exits(b, inner or isinstance(op, (For, While))) for b in op.blocks()):
                return True
        return False

    return exits(body, False)
