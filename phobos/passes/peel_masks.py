"""peel_masks: in loops, where(mask, a, b) is skipped for tiles that the mask does not touch.

Precondition: simplified KernelIR. Postcondition: the same meaning; a `where` over a tile whose mask compares positions
with scalars runs behind a test, uniform over the block, that the mask is true everywhere. So only tiles on the edge of
a ragged or causal loop pay for it.

The test comes from interval arithmetic: a position along an axis of extent n lies in [0, n - 1], so a < b holds
everywhere if the largest a is below the smallest b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from phobos.ir.abi import Decision
from phobos.ir.tile import (
    Block,
    Broadcast,
    Cast,
    Compute,
    Constant,
    For,
    If,
    Iota,
    KernelIR,
    Op,
    Value,
    While,
    Yield,
)
from phobos.ir.types import DType, ScalarType
from phobos.ir.walk import Rewriter, definitions
from phobos.source import Span

_SWAPPED = {"gt": "lt", "ge": "le"}


def run(kernel: KernelIR) -> tuple[KernelIR, tuple[Decision, ...]]:
    peeler = _Peeler(kernel)
    kernel = peeler.kernel(kernel)
    return kernel, tuple(peeler.decisions)


@dataclass(frozen=True)
class _Bound:
    """An end of an interval: a sum of scalar values (with sign) and a constant."""

    terms: tuple[tuple[int, Value], ...]
    constant: int

    def plus(self, other: "_Bound", sign: int = 1) -> "_Bound":
        terms = list(self.terms)
        for s, v in other.terms:
            opposite = (-s * sign, v)
            if opposite in terms:
                terms.remove(opposite)
            else:
                terms.append((s * sign, v))
        return _Bound(tuple(terms), self.constant + sign * other.constant)


class _Peeler(Rewriter):
    def __init__(self, kernel: KernelIR):
        super().__init__()
        self._defs = definitions(kernel.body)
        self._depth = 0
        self.decisions: list[Decision] = []

    def enter(self, op: Op) -> Op:
        if isinstance(op, (For, While)):
            self._depth += 1
        return op

    def visit(self, op: Op) -> Sequence[Op]:
        if isinstance(op, (For, While)):
            self._depth -= 1
            return (op,)
        if not (isinstance(op, Compute) and op.fn == "where" and op.result.is_tile):
            return (op,)
        mask, kept, _ = op.args
        if not mask.is_tile or kept.type != op.result.type or len(op.result.shape) < 2 or 1 in op.result.shape:
            return (op,)
        if not self._depth:
            return self._decide(op, "in every block", "it is in no loop")
        tests = self._tests(mask)
        if not tests:
            return self._decide(op, "in every iteration", "its condition does not compare positions with scalars")
        # A test without scalars has one answer for all tiles.
        tests = [(fn, slack if (known := self._expanded(slack)).terms else known) for fn, slack in tests]
        fixed = [slack.constant > 0 if fn == "lt" else slack.constant >= 0 for fn, slack in tests if not slack.terms]
        if not all(fixed):
            return self._decide(op, "in every iteration", "positions within the tile decide, which leave no tile whole")
        if len(fixed) == len(tests):
            self._decide(op, "left out", "it is true everywhere in every iteration")
        else:
            self._decide(op, "skipped where the mask is true everywhere", "positions and scalars tell")
        out: list[Op] = []
        condition = _all_true(tests, op.span, out)
        masked = Value(type=op.result.type, name=op.result.name, span=op.span)
        then = Block(ops=(Yield(span=op.span, values=(kept,)),))
        orelse = Block(ops=(replace(op, result=masked), Yield(span=op.span, values=(masked,))))
        out.append(If(span=op.span, results=(op.result,), condition=condition, then=then, orelse=orelse))
        return out

    def _decide(self, op: Compute, choice: str, reason: str) -> Sequence[Op]:
        decision = Decision(
            stage="algebra", subject=f"mask of {op.result.name}", choice=choice, reason=reason, line=op.span.line
        )
        self.decisions.append(decision)
        return (op,)

    def _tests(self, mask: Value) -> list[tuple[str, _Bound]] | None:
        """Of every comparison that the mask requires whether it is "lt" or "le", and the smallest right side less the
        largest left side; None if it is something else."""
        op = self._defs.get(mask)
        if isinstance(op, Broadcast):
            return self._tests(op.operand)
        if not isinstance(op, Compute):
            return None
        if op.fn == "and":
            left, right = self._tests(op.args[0]), self._tests(op.args[1])
            return None if left is None or right is None else left + right
        if op.fn not in ("lt", "le", "gt", "ge") or not op.args[0].dtype.is_integer:
            return None
        a, b = op.args if op.fn in ("lt", "le") else op.args[::-1]
        high, low = self._interval(a), self._interval(b)
        if high is None or low is None:
            return None
        return [(_SWAPPED.get(op.fn, op.fn), low[0].plus(high[1], -1))]

    def _expanded(self, bound: _Bound) -> _Bound:
        """The bound with the terms of positions that are sums."""
        out = _Bound((), bound.constant)
        for sign, v in bound.terms:
            op = self._defs.get(v)
            if isinstance(op, Constant):
                part = _Bound((), int(op.value))
            elif isinstance(op, Compute) and op.fn in ("add", "sub") and v.dtype is DType.INDEX:
                a, b = (self._expanded(_Bound(((1, x),), 0)) for x in op.args)
                part = a.plus(b, 1 if op.fn == "add" else -1)
            else:
                part = _Bound(((1, v),), 0)
            out = out.plus(part, sign)
        return out

    def _interval(self, v: Value) -> tuple[_Bound, _Bound] | None:
        """(smallest, largest) value over the tile; None where it may wrap, which positions do not."""
        op = self._defs.get(v)
        if v.dtype not in (DType.I32, DType.INDEX):
            return None
        if not v.is_tile:
            if isinstance(op, Constant):
                point = _Bound((), int(op.value))
            else:
                point = _Bound(((1, v),), 0)
            return point, point
        if isinstance(op, Iota):
            return _Bound((), 0), _Bound((), v.shape[op.axis] - 1)
        if isinstance(op, Broadcast):
            return self._interval(op.operand)
        found: tuple[_Bound, _Bound] | None = None
        if isinstance(op, Cast):
            found = self._interval(op.operand)
        elif isinstance(op, Compute) and op.fn in ("add", "sub"):
            a, b = self._interval(op.args[0]), self._interval(op.args[1])
            if a is None or b is None:
                return None
            if op.fn == "add":
                found = a[0].plus(b[0]), a[1].plus(b[1])
            else:
                found = a[0].plus(b[1], -1), a[1].plus(b[0], -1)
        if found is not None and v.dtype is not DType.INDEX and (found[0].terms or found[1].terms):
            return None
        return found


def _all_true(tests: list[tuple[str, _Bound]], span: Span, out: list[Op]) -> Value:
    """Scalar ops that test every comparison."""

    # Sums of user's integers may not fit 32 bits; positions do by their nature.
    wide = (
        DType.I64
        if any(v.dtype is not DType.INDEX for _, slack in tests for _, v in slack.terms)
        else DType.INDEX
    )

    def constant(value: int) -> Value:
        v = Value(type=ScalarType(wide), name="c", span=span)
        out.append(Constant(span=span, result=v, value=value))
        return v

    def compute(fn: str, dtype: DType, *args: Value) -> Value:
        v = Value(type=ScalarType(dtype), name="whole", span=span)
        out.append(Compute(span=span, result=v, fn=fn, args=args))
        return v

    def index(v: Value) -> Value:
        if v.dtype is wide:
            return v
        cast = Value(type=ScalarType(wide), name=v.name, span=span)
        out.append(Cast(span=span, result=cast, operand=v))
        return cast

    result: Value | None = None
    for fn, difference in tests:
        # high < low, with everything variable on one side: sum(low) - sum(high) > constant
        total: Value | None = None
        for sign, v in difference.terms:
            x = index(v)
            if total is None:
                total = x if sign > 0 else compute("neg", wide, x)
            else:
                total = compute("add" if sign > 0 else "sub", wide, total, x)
        total = constant(0) if total is None else total
        test = compute("gt" if fn == "lt" else "ge", DType.BOOL, total, constant(-difference.constant))
        result = test if result is None else compute("and", DType.BOOL, result, test)
    assert result is not None
    return result
