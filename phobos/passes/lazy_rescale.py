"""lazy_rescale: the running maximum of an online softmax follows the maximum only when that has grown a lot.

Precondition: kinds of products fixed, approximable exponentials marked. Postcondition: the same meaning up to rounding.

An online softmax carries m (the maximum so far) and tiles that are sums of p = exp(x - m) times something, which it
multiplies by exp(m_old - m) whenever m changes. Any other reference r in place of m gives tiles that differ by the
factor exp(m - r) in each row, and a quotient of two of them is the same. So r = where(mnew - r <= T, r, mnew): the old
reference stays while exp(mnew - r) <= 2^8, hence p <= 2^8, which no 16-bit type overflows. The correction is then
exactly 1 in almost every iteration, and the multiplications by it are marked `unless_one`. Minus infinity takes the new
maximum at once (the difference is inf or NaN), and so does NaN, which therefore reaches the results as before.

Conditions, all read off the loop by an abstract interpretation that must understand every op it meets: the carried
maximum occurs only in exp(x - m), in exp(m_old - m) (both perhaps scaled by a positive scalar), in the guard
where(m == -inf, c, m) and, after the loop, in m + log(l); x is bounded by the new maximum; what is computed of p is
linear in it and mixes no rows; carried sums are multiplied by the correction once; after the loop they meet only in
quotients (where(l == 0, 1, l) and max(l, tiny) may stand for l, if l is the sum of p); no p is rounded to 8 bits; every
p is one that may be approximate, because a kernel in IEEE f32 keeps the rounding of its text.

Independently of this, the multiplication of a carried tile by exp(m - max(m, ...)) is marked `unless_one` if that may
be approximate. In IEEE f32 it is not worth it: a branch before a product by FMA made ptxas compute the addresses of its
operands anew in each step (566 to 630 instructions a step of flash_attention_fp32, 64 x 64 tiles).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from phobos.ir.abi import Decision, Specialization
from phobos.ir.tile import Compute, Constant, For, KernelIR, Op, Value
from phobos.ir.types import DType, ScalarType
from phobos.ir.walk import Rewriter, kernel_ops, remove_dead
from phobos.passes.softmax_loops import SoftmaxLoop, Unfit, running_maxima
from phobos.passes.softmax_results import check_results
from phobos.passes.tile_facts import TileFacts

# By what power of two in p the reference may lag behind. 2^8 is far inside f16, and p only gets larger by it.
LAG = 8.0


def run(kernel: KernelIR, spec: Specialization, *, fast: bool = False) -> tuple[KernelIR, tuple[Decision, ...]]:
    """`fast`: the whole kernel may use approximate units."""
    facts = TileFacts(kernel, spec)
    found: dict[For, SoftmaxLoop] = {}
    decisions: list[Decision] = []
    for loop in (op for op in kernel_ops(kernel) if isinstance(op, For)):
        for slot in running_maxima(facts, loop):
            try:
                if loop in found:
                    raise Unfit("the loop has another running maximum")
                found[loop] = SoftmaxLoop(facts, loop, slot, fast)
            except Unfit as why:
                decisions.append(_decision(loop, slot, "not applied", str(why)))
    for loop in reversed(tuple(found)):  # a loop whose results another loop goes on with relies on that one
        try:
            check_results(facts, kernel, found[loop], found)
        except Unfit as why:
            decisions.append(_decision(loop, found[loop].slot, "not applied", str(why)))
            del found[loop]
    for loop, match in found.items():
        reason = f"it lags by at most a factor 2^{LAG:.0f} in p; {match.description}"
        decisions.append(_decision(loop, match.slot, "lazy rescale", reason))
    kernel = _Rescaler(facts, found, fast).kernel(kernel)
    return replace(kernel, body=remove_dead(kernel.body)), tuple(decisions)


def _decision(loop: For, slot: int, choice: str, reason: str) -> Decision:
    subject = f"running maximum {loop.body.params[1 + slot].name}"
    return Decision(stage="algebra", subject=subject, choice=choice, reason=reason, line=loop.span.line)


class _Rescaler(Rewriter):
    def __init__(self, facts: TileFacts, loops: dict[For, SoftmaxLoop], fast: bool):
        super().__init__()
        self.facts, self.fast = facts, fast
        self.roots = {match.new: match for match in loops.values()}
        self.corrections = {c: match for match in loops.values() for c in match.corrections}
        self.carried: set[Value] = set()

    def enter(self, op: Op) -> Op:
        if isinstance(op, For):
            self.carried.update(op.body.params[1:])
        return op

    def visit(self, op: Op) -> Sequence[Op]:
        if not isinstance(op, Compute):
            return (op,)
        scaled = self.corrections.get(op.result)
        if scaled is not None and scaled.factor is not None and op.result in scaled.references:
            return self._scaled_correction(op)
        if op.fn == "mul" and op.result.is_tile and op.result.dtype is DType.F32:
            for x, c in (op.args, op.args[::-1]):
                if x in self.carried and c.is_tile and c.shape != x.shape and x.shape == op.result.shape:
                    if c in self.corrections or self._mostly_one(c):
                        return (replace(op, unless_one=True),)
        if op.result in self.roots:
            return self._lagging(op, self.roots[op.result])
        return (op,)

    def _mostly_one(self, c: Value) -> bool:
        op = self.facts.defs.get(c)
        return isinstance(op, Compute) and (op.approximate or self.fast) and self.facts.at_most_one(c)

    def _lagging(self, op: Compute, match: SoftmaxLoop) -> Sequence[Op]:
        """The new maximum, and the reference that stands for it from here on."""
        out: list[Op] = [op]
        new, old = op.result, match.old

        def compute(name: str, fn: str, dtype: DType, *args: Value) -> Value:
            v = Value(type=replace(new.type, dtype=dtype), name=name, span=op.span)
            out.append(Compute(span=op.span, result=v, fn=fn, args=args))
            return v

        limit = Value(type=ScalarType(DType.F32), name="lag", span=op.span)
        lag = LAG * math.log(2.0) if match.base == "exp" else LAG
        out.append(Constant(span=op.span, result=limit, value=lag))
        growth = compute("growth", "sub", DType.F32, new, old)
        if match.factor is not None:
            growth = compute("growth", "mul", DType.F32, growth, match.factor)
        keep = compute("keep", "le", DType.BOOL, growth, limit)
        used = compute(new.name, "where", DType.F32, keep, old, new)
        self.replace_value(new, used)
        return out

    def _scaled_correction(self, op: Compute) -> Sequence[Op]:
        """exp(c m_old - c m) as exp(c (m_old - m)): exactly 1 for equal maxima even if the C++ compiler contracts."""
        match = self.corrections[op.result]
        assert match.factor is not None
        reference = self.value(match.references[op.result])
        gap = Value(type=op.result.type, name=op.result.name, span=op.span)
        power = Value(type=op.result.type, name=op.result.name, span=op.span)
        return (
            Compute(span=op.span, result=gap, fn="sub", args=(match.old, reference)),
            Compute(span=op.span, result=power, fn="mul", args=(gap, match.factor)),
            replace(op, args=(power,)),
        )


