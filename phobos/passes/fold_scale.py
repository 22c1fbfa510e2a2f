"""fold_scale: exp(c * t - r) becomes exp2(fma(t, c log2 e, -r log2 e)), one multiply-add and one approximate
exponential. So does exp((t - r) * c), whatever c is, and both in base 2.

Precondition: approximable exponentials are marked. Postcondition: the same meaning under the numeric contract for those
(relative error |c t| 2^-23 more, below f16's for scores under 2^12); others are untouched. The multiplication by c
disappears where nothing else needs its result: rowmax(c t) is c rowmax(t) exactly if c > 0, since rounding is
monotonic.

Conditions: c is a scalar known to be positive (a literal, or a parameter whose sign is in the specialization); masked
elements are -inf (where(mask, c t, -inf)), because a large finite stand-in would not cancel exactly after rescaling;
every reader of c t is such a maximum or exponential. Otherwise, with c = 1, only the change of base is done, where no
finite stand-in is involved. Where r is as large as t, there is nothing to share: exp2((t - r) log2 e), which is 1 for t
= r.
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

_BASES = {"exp": math.log2(math.e), "exp2": 1.0}  # the exponential as a power of 2


def run(kernel: KernelIR, spec: Specialization) -> tuple[KernelIR, tuple[Decision, ...]]:
    analysis = _Analysis(kernel, spec)
    ops = [op for op in kernel_ops(kernel) if isinstance(op, Compute) and op.fn in _BASES and op.result.is_tile]
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
        """For an approximable exp(x - r) or exp((x - r) * c) in f32: the chain of x. None where there is nothing to
        fold."""
        if not (isinstance(op, Compute) and op.fn in _BASES and op.approximate and op.result.dtype is DType.F32):
            return None
        found = self.difference(op)
        if found is None:
            return None
        inner, factors = found
        chain = self.chain(inner.args[0])
        if op.fn == "exp2" and not factors and (chain is None or self.product(chain[-1]) is None):
            return None
        return chain

    def difference(self, op: Compute) -> tuple[Compute, tuple[Value, ...]] | None:
        """The op x - r of which `op` alone takes the exponential, where x is no smaller tile than the result, and the
        scalars by which the difference is multiplied before."""
        factors: list[Value] = []
        inner = self.defs.get(op.args[0])
        while isinstance(inner, Compute) and len(self.readers[inner.result]) == 1:
            if inner.fn == "sub":
                fits = inner.args[0].shape == op.result.shape and inner.args[1].is_tile
                return (inner, tuple(factors)) if fits else None
            scaled = self._scaled(inner)
            if scaled is None:
                return None
            factors.append(scaled[1])
            inner = self.defs.get(scaled[0])
        return None

    def _scaled(self, op: Compute) -> tuple[Value, Value] | None:
        """(t, c) if the op multiplies a tile t by a scalar c of any sign."""
        if op.fn == "mul":
            for t, c in (op.args, op.args[::-1]):
                if t.is_tile and t.shape == op.result.shape and not c.is_tile:
                    return t, c
        return None

    def decision(self, op: Compute, scaled: set[Value]) -> Decision:
        """What becomes of an exponential, and why."""
        chain = self.exponential(op)
        choice = "unchanged"
        if chain is None:
            if not op.approximate or op.result.dtype is not DType.F32:
                reason = "it may not be approximate"
            elif self.difference(op) is None:
                reason = "its argument is not a difference of tiles that it alone reads"
            elif op.fn == "exp2":
                reason = "there is no scale to fold"
            else:
                reason = "what masks its argument is not -inf"
        elif chain[-1] in scaled:
            choice, reason = "exp2 of one multiply-add", f"takes over the scale of {chain[-1].name}"
        elif (found := self.difference(op)) is not None and found[1]:
            choice, reason = "exp2 of one multiply-add", f"takes over the scale {found[1][0].name} of the difference"
        else:
            choice, reason = "exp2, scale not folded", self._why_not(chain[-1])
        return Decision(
            stage="algebra", subject=f"{op.fn} of {op.result.name}", choice=choice, reason=reason, line=op.span.line
        )

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
            if isinstance(op, Compute) and op.fn == "sub" and op.args[0] is v and self._ends_in_exponential(op):
                continue
            return False
        return True

    def _ends_in_exponential(self, op: Compute) -> bool:
        """Is the op read only by an exponential that takes part, perhaps multiplied by scalars on the way?"""
        readers = self.readers.get(op.result, [])
        if len(readers) != 1 or not isinstance(reader := readers[0], Compute):
            return False
        if reader.fn == "mul":
            return self._scaled(reader) is not None and self._ends_in_exponential(reader)
        return self.exponential(reader) is not None


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
            found = self.a.difference(op)
            assert found is not None
            inner, factors = found
            return self._exponential(op, inner, tuple(self.value(c) for c in factors))
        return (op,)

    def _exponential(self, op: Compute, inner: Compute, factors: tuple[Value, ...]) -> Sequence[Op]:
        """The exponential of (x - r) times all factors."""
        x, r = (self.value(a) for a in inner.args)
        out: list[Op] = []

        def constant(value: float) -> Value:
            v = Value(type=ScalarType(DType.F32), name="log2e", span=op.span)
            out.append(Constant(span=op.span, result=v, value=value))
            return v

        def compute(fn: str, like: Value, *args: Value) -> Value:
            v = _like(like)
            out.append(Compute(span=op.span, result=v, fn=fn, args=args))
            return v

        def times(value: float, scalars: tuple[Value, ...]) -> Value:
            """value * scalars[0] * ..., computed once where these do not change."""
            product = constant(value)
            for c in scalars:
                product = compute("mul", c, c, product)
            return product

        base = _BASES[op.fn]
        if x not in self.raw and x.shape == r.shape:
            power = compute("mul", op.result, self.value(inner.result), times(base, factors))
            return (*out, replace(op, fn="exp2", args=(power,)))
        own = factors
        if x in self.raw:
            x, c = self.raw[x]
            own = (c, *factors)
        factor = times(base, own)
        shift = compute("mul", r, r, times(-base, factors))
        power = compute("fma", op.result, x, factor, shift)
        out.append(replace(op, fn="exp2", args=(power,)))
        return out


def _like(v: Value) -> Value:
    return Value(type=v.type, name=v.name, span=v.span)
