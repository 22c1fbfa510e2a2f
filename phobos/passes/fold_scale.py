"""fold_scale: exp(c * t - r) becomes exp2(fma(t, c log2 e, -r log2 e)), one multiply-add and one approximate exponential.

Precondition: approximable exponentials are marked. Postcondition: the same meaning under the numeric contract for those
(relative error |c t| 2^-23 more, below f16's for scores under 2^12); others are untouched. The multiplication by c
disappears where nothing else needs its result: rowmax(c t) is c rowmax(t) exactly if c > 0, since rounding is monotonic.

Conditions: c is a scalar known to be positive (a literal, or a parameter whose sign is in the specialization); masked
elements are -inf (where(mask, c t, -inf)), because a large finite stand-in would not cancel exactly after rescaling; every
reader of c t is such a maximum or exponential. Otherwise, with c = 1, only the change of base is done, where no finite
stand-in is involved. Where r is as large as t, there is nothing to share: exp2((t - r) log2 e), which is 1 for t = r.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from phobos.ir.abi import Decision, Specialization
from phobos.ir.tile import Compute, Constant, KernelIR, Op, Reduce, Value
from phobos.ir.types import DType, ScalarType
from phobos.ir.walk import Rewriter, kernel_ops, remove_dead
from phobos.passes.tile_facts import TileFacts

_LOG2E = math.log2(math.e)


def run(kernel: KernelIR, spec: Specialization) -> tuple[KernelIR, tuple[Decision, ...]]:
    analysis = _Analysis(kernel, spec)
    ops = [op for op in kernel_ops(kernel) if isinstance(op, Compute) and op.fn == "exp" and op.result.is_tile]
    exps = {op.result: chain for op in ops if (chain := analysis.exponential(op)) is not None}
    scaled = {m for chain in exps.values() for m in chain if analysis.foldable(m)}
    decisions = tuple(analysis.decision(op, scaled) for op in ops)
    if not exps:
        return kernel, decisions
    kernel = _Folder(analysis, exps, scaled).kernel(kernel)
    return replace(kernel, body=remove_dead(kernel.body)), decisions


def sign_scalars(kernel: KernelIR) -> tuple[str, ...]:
    """Float parameters whose sign decides what this pass may do: they scale tiles of a kernel with exponentials."""
    ops = list(kernel_ops(kernel))
    if not any(isinstance(op, Compute) and op.fn in ("exp", "exp2") and op.result.is_tile for op in ops):
        return ()
    defs = {op.result: op for op in ops if isinstance(op, Compute)}
    used: set[Value] = set()
    todo = [a for op in ops if isinstance(op, Compute) and op.fn == "mul" and op.result.is_tile for a in op.args]
    while todo:
        v = todo.pop()
        if not v.is_tile and v not in used:
            used.add(v)
            if v in defs and defs[v].fn in ("mul", "div"):
                todo.extend(defs[v].args)
    return tuple(s.name for s in kernel.scalars if s.value in used and s.value.dtype.is_float)


class _Analysis(TileFacts):
    def chain(self, v: Value) -> list[Value] | None:
        """v and the values that it masks with -inf, ending in what is masked; None if a finite stand-in is involved."""
        out = [v]
        while isinstance(op := self.defs.get(v), Compute) and op.fn == "where":
            if not self.is_minus_inf(op.args[2]) or op.args[1].shape != v.shape:
                return None
            v = op.args[1]
            out.append(v)
        return out

    def exponential(self, op: Op) -> list[Value] | None:
        """For an approximable exp(x - r) in f32: the chain of x."""
        if not (isinstance(op, Compute) and op.fn == "exp" and op.approximate and op.result.dtype is DType.F32):
            return None
        inner = self._difference(op)
        return self.chain(inner.args[0]) if inner is not None else None

    def _difference(self, op: Compute) -> Compute | None:
        """The op x - r of which `op` alone takes the exponential, where x is no smaller tile than the result."""
        inner = self.defs.get(op.args[0])
        if not (isinstance(inner, Compute) and inner.fn == "sub" and len(self.readers[inner.result]) == 1):
            return None
        return inner if inner.args[0].shape == op.result.shape and inner.args[1].is_tile else None

    def decision(self, op: Compute, scaled: set[Value]) -> Decision:
        """What becomes of an exponential, and why."""
        chain = self.exponential(op)
        choice = "unchanged"
        if chain is None:
            if not op.approximate or op.result.dtype is not DType.F32:
                reason = "it may not be approximate"
            elif self._difference(op) is None:
                reason = "its argument is not a difference of tiles that it alone reads"
            else:
                reason = "what masks its argument is not -inf"
        elif chain[-1] in scaled:
            choice, reason = "exp2 of one multiply-add", f"takes over the scale of {chain[-1].name}"
        else:
            choice, reason = "exp2, scale not folded", self._why_not(chain[-1])
        return Decision(stage="algebra", subject=f"exp of {op.result.name}", choice=choice, reason=reason, line=op.span.line)

    def _why_not(self, v: Value) -> str:
        op = self.defs.get(v)
        if not (isinstance(op, Compute) and op.fn == "mul"):
            return f"{v.name} is no product"
        if self.product(v) is None:
            return f"{v.name} is not a tile times a scalar known to be positive"
        return f"{v.name} is also read where the scale counts"

    def foldable(self, v: Value) -> bool:
        """v = c t, and all its readers can live with t."""
        return self.product(v) is not None and self._readers_fold(v)

    def _readers_fold(self, v: Value) -> bool:
        for op in self.readers.get(v, []):
            if isinstance(op, Reduce) and op.kind == "max" and op.result.is_tile:
                continue
            if isinstance(op, Compute) and op.fn == "where" and op.args[1] is v and self.is_minus_inf(op.args[2]):
                if self._readers_fold(op.result):
                    continue
            if isinstance(op, Compute) and op.fn == "sub" and op.args[0] is v:
                next_ops = self.readers.get(op.result, [])
                if len(next_ops) == 1 and self.exponential(next_ops[0]) is not None:
                    continue
            return False
        return True


class _Folder(Rewriter):
    def __init__(self, analysis: _Analysis, exps: dict[Value, list[Value]], scaled: set[Value]):
        super().__init__()
        self.a, self.exps, self.scaled = analysis, exps, scaled
        self.raw: dict[Value, tuple[Value, Value]] = {}  # scaled value -> (unscaled value, c)

    def visit(self, op: Op) -> Sequence[Op]:
        if isinstance(op, Compute) and op.result in self.scaled:
            product = self.a.product(op.result)
            assert product is not None
            self.raw[op.result] = (self.value(product[0]), self.value(product[1]))
            return (op,)
        if isinstance(op, Compute) and op.fn == "where" and op.args[1] in self.raw and op.result.is_tile:
            t, c = self.raw[op.args[1]]
            masked = _like(op.result)
            self.raw[op.result] = (masked, c)
            return (replace(op, result=masked, args=(op.args[0], t, op.args[2])), op)
        if isinstance(op, Reduce) and op.operand in self.raw:
            t, c = self.raw[op.operand]
            largest = _like(op.result)
            return (
                replace(op, result=largest, operand=t),
                Compute(span=op.span, result=op.result, fn="mul", args=(largest, c)),
            )
        if isinstance(op, Compute) and op.result in self.exps:
            inner = self.a.defs[op.args[0]]
            assert isinstance(inner, Compute)
            return self._exponential(op, self.value(inner.args[0]), self.value(inner.args[1]))
        return (op,)

    def _exponential(self, op: Compute, x: Value, r: Value) -> Sequence[Op]:
        out: list[Op] = []

        def constant(value: float) -> Value:
            v = Value(type=ScalarType(DType.F32), name="log2e", span=op.span)
            out.append(Constant(span=op.span, result=v, value=value))
            return v

        def compute(fn: str, like: Value, *args: Value) -> Value:
            v = _like(like)
            out.append(Compute(span=op.span, result=v, fn=fn, args=args))
            return v

        if x not in self.raw and x.shape == r.shape:
            power = compute("mul", op.result, op.args[0], constant(_LOG2E))
            return (*out, replace(op, fn="exp2", args=(power,)))
        factor = constant(_LOG2E)
        if x in self.raw:
            x, c = self.raw[x]
            factor = compute("mul", c, c, factor)
        shift = compute("mul", r, r, constant(-_LOG2E))
        power = compute("fma", op.result, x, factor, shift)
        out.append(replace(op, fn="exp2", args=(power,)))
        return out


def _like(v: Value) -> Value:
    return Value(type=v.type, name=v.name, span=v.span)
