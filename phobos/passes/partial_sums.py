"""partial_sums: a sum along rows that a loop adds to a carried sum stays in parts until after the loop.

Precondition: simplified KernelIR. Postcondition: the same meaning up to the order of additions. In
l = l * x + rowsum(p) each thread keeps the sum of its own elements of a row, scaled as the whole is, so no iteration
exchanges anything; `SumParts` after the loop adds the parts up. That is a tree order of the sums of all iterations
taken together.

Conditions: l starts at 0 and nothing else reads it in the loop; nothing else reads the row sum; x is the same for all
elements of a row (the shape of l or a scalar); unless the sums are integers, x must not be infinite, because a part may
be 0 where the sum is not: it is a finite constant, or exp(a - b) with b >= a, as in an online softmax; narrow floats,
to which a sum is rounded in each iteration, are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from phobos.ir.abi import Decision, Specialization
from phobos.ir.tile import Compute, For, KernelIR, Op, Reduce, SumParts, Value, Yield
from phobos.ir.types import DType
from phobos.ir.walk import Rewriter, fresh, kernel_ops
from phobos.passes.tile_facts import TileFacts, leaves_early

_NARROW = frozenset({DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2})


def run(kernel: KernelIR, spec: Specialization) -> tuple[KernelIR, tuple[Decision, ...]]:
    facts = TileFacts(kernel, spec)
    sums: set[Value] = set()
    results: set[Value] = set()
    decisions: list[Decision] = []
    for loop in (op for op in kernel_ops(kernel) if isinstance(op, For)):
        for n in range(len(loop.inits)):
            found = _recurrence(facts, loop, n)
            if found is None:
                continue
            param = loop.body.params[1 + n]
            why_not = _obstacle(facts, loop, n, found)
            decisions.append(
                Decision(
                    stage="algebra",
                    subject=f"row sum {param.name}",
                    choice="kept in parts" if why_not is None else "whole in every iteration",
                    reason=why_not or "the loop only scales it and adds to it: the parts are added up after the loop",
                    line=found.sum.span.line,
                )
            )
            if why_not is None:
                sums.add(found.sum.result)
                results.add(loop.results[n])
    return _Parts(sums, results).kernel(kernel), tuple(decisions)


@dataclass(frozen=True)
class _Recurrence:
    """l = l * factor + sum. `reader`: the op that reads l."""

    sum: Reduce
    factor: Value | None
    reader: Op


def _recurrence(facts: TileFacts, loop: For, n: int) -> _Recurrence | None:
    """How the loop changes carried tile n, if by adding a sum along an axis to it."""
    old = loop.body.params[1 + n]
    end = loop.body.ops[-1]
    if not (isinstance(end, Yield) and old.is_tile):
        return None
    op = facts.defs.get(end.values[n])
    if not isinstance(op, Compute):
        return None
    if op.fn == "fma":
        *factors, added = op.args
        total = facts.defs.get(added)
        if isinstance(total, Reduce) and total.kind == "sum" and old in factors:
            return _Recurrence(total, factors[1] if factors[0] is old else factors[0], op)
        return None
    if op.fn != "add":
        return None
    for kept, added in (op.args, op.args[::-1]):
        total = facts.defs.get(added)
        if not (isinstance(total, Reduce) and total.kind == "sum"):
            continue
        if kept is old:
            return _Recurrence(total, None, op)
        scaled = facts.defs.get(kept)
        if isinstance(scaled, Compute) and scaled.fn == "mul" and old in scaled.args:
            return _Recurrence(total, scaled.args[1] if scaled.args[0] is old else scaled.args[0], scaled)
    return None


def _obstacle(facts: TileFacts, loop: For, n: int, found: _Recurrence) -> str | None:
    """Why the sum must be whole in every iteration; None if it need not be."""
    old, end = loop.body.params[1 + n], loop.body.ops[-1]
    assert isinstance(end, Yield)
    if old.dtype in _NARROW:
        return f"it is rounded to {old.dtype} in every iteration"
    if leaves_early(loop.body):
        return "an iteration can end early"
    if facts.constant(loop.inits[n]) != 0:
        return "it does not start at 0"
    total = end.values[n]
    steps = {found.reader, facts.defs[total]}
    if not all(op in loop.body.ops for op in (*steps, found.sum)):
        return "it is computed in nested control flow or before the loop"
    if facts.readers[old] != [found.reader] or facts.readers[total] != [end]:
        return "the loop reads it otherwise"
    if any(len(facts.readers[v]) != 1 for op in (found.sum, *steps) for v in op.defined()):
        return "the sum of one iteration is also used otherwise"
    if found.sum.result.shape != old.shape:
        return "it is broadcast"
    x = found.factor
    if x is None:
        return None
    if x.is_tile and x.shape != old.shape:
        return "what scales it changes its shape"
    value = facts.constant(x)
    finite = value is not None and math.isfinite(value)
    if old.dtype.is_float and not finite and not facts.at_most_one(x):
        return f"{x.name}, which scales it, might be infinite"
    return None


class _Parts(Rewriter):
    def __init__(self, sums: set[Value], results: set[Value]):
        super().__init__()
        self.sums, self.results = sums, results

    def visit(self, op: Op) -> Sequence[Op]:
        if isinstance(op, Reduce) and op.result in self.sums:
            return (replace(op, partial=True),)
        if isinstance(op, For) and any(v in self.results for v in op.results):
            out: list[Op] = [op]
            for v in op.results:
                if v in self.results:
                    whole = fresh(v)
                    out.append(SumParts(span=op.span, result=whole, operand=v))
                    self.replace_value(v, whole)
            return out
        return (op,)
