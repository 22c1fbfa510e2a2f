"""approximate: marks exponentials whose results are rounded to f16 or bf16 anyway.

Precondition: kinds of products fixed. Postcondition: the same meaning under the numeric contract (exp and exp2 that
feed f16 or bf16 results may use the approximate unit, 2 ulp of f32); `approximate` is set on those ops and no others.
An exponential feeds such a result if it, or what elementwise arithmetic and moves of elements (transposes, slices,
branches) make of it, in this iteration of a loop or a later one, is cast to f16 or bf16 or is the operand of a product
that rounds its operands to one of them. What reductions, scans and other products make of it does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from phobos.ir.abi import Decision
from phobos.ir.tile import (
    Block,
    Break,
    Broadcast,
    Cast,
    Cat,
    Compute,
    Continue,
    Dot,
    Extract,
    For,
    Gather,
    If,
    Insert,
    KernelIR,
    Op,
    Reshape,
    Transpose,
    Value,
    While,
    Yield,
)
from phobos.ir.types import DType
from phobos.ir.walk import kernel_ops, rewrite_kernel, uses

_NARROW = frozenset({DType.F16, DType.BF16})
# Functions that pass a small relative error on as such, up to cancellation, which the rounding of the text has as well.
_PASSING = frozenset(
    {
        "mul", "where", "div", "neg", "add", "sub", "fma", "max", "min", "clamp", "abs", "sqrt", "rsqrt", "tanh",
        "sigmoid",
        "erf", "gelu",
    }
)  # fmt: skip
_NARROW_KINDS = frozenset({"f16", "bf16"})


def run(kernel: KernelIR) -> tuple[KernelIR, tuple[Decision, ...]]:
    flow = _Flow(kernel)
    marked: set[Value] = set()
    decisions: list[Decision] = []
    for op in kernel_ops(kernel):
        if isinstance(op, Compute) and op.fn in ("exp", "exp2") and op.result.dtype is DType.F32:
            reader = flow.narrow_reader(op.result)
            if reader is not None:
                marked.add(op.result)
            choice = "IEEE" if reader is None else "approximate"
            reason = (
                flow.why_not(op.result)
                if reader is None
                else f"rounded to 16 bits in line {reader.span.line}"
            )
            subject = f"{op.fn} of {op.result.name}"
            decisions.append(
                Decision(stage="algebra", subject=subject, choice=choice, reason=reason, line=op.span.line)
            )
    if not marked:
        return kernel, tuple(decisions)

    def mark(op: Op, values: object) -> list[Op] | None:
        if isinstance(op, Compute) and op.result in marked and not op.approximate:
            return [replace(op, approximate=True)]
        return None

    return rewrite_kernel(kernel, mark), tuple(decisions)


class _Flow:
    """Who reads a value, through loops and branches too."""

    def __init__(self, kernel: KernelIR):
        self._readers = uses(kernel.body)
        self._owners: dict[Op, Op] = {}  # of ends of blocks: the loop or the branch that they give values to
        self._own(kernel.body, None, None)

    def _own(self, block: Block, around: Op | None, loop: Op | None) -> None:
        for op in block.ops:
            owner = loop if isinstance(op, (Break, Continue)) else around if isinstance(op, Yield) else None
            if owner is not None:
                self._owners[op] = owner
            for inner in op.blocks():
                if isinstance(op, While) and inner is op.condition:
                    self._own(inner, None, None)  # a bool goes to nobody
                    continue
                self._own(inner, op, op if isinstance(op, (For, While)) else loop)

    def narrow_reader(self, v: Value) -> Op | None:
        """An op that rounds to 16 bits what depends on v by arithmetic and moves; None if there is none."""
        return self._search(v, None, set(), sums=False)[0]

    def why_not(self, v: Value) -> str:
        """Why a value without such a reader is computed exactly."""
        reader, between = self._search(v, None, set(), sums=True)
        if reader is None or between is None:
            return "no f16 or bf16 result depends on it"
        return (
            f"what is rounded to 16 bits in line {reader.span.line} depends on it only through "
            f"{_name(between)} in line {between.span.line}"
        )

    def _search(self, v: Value, between: Op | None, seen: set[Value], *, sums: bool) -> tuple[Op | None, Op | None]:
        """(an op that rounds to 16 bits what depends on v, the first op on the way that does not pass errors on as they
        are). With `sums` the way may lead through such ops."""
        if v in seen:
            return None, None
        seen.add(v)
        for op in self._readers.get(v, []):
            if isinstance(op, Cast) and op.result.dtype in _NARROW:
                return op, between
            if isinstance(op, Dot) and (op.kind in _NARROW_KINDS or v.dtype in _NARROW):
                return op, between
        for op in self._readers.get(v, []):
            followers = self._followers(op, v)
            blocked = between
            if followers is None:
                if not sums:
                    continue
                followers, blocked = list(op.defined()), between or op
            for follower in followers:
                found = self._search(follower, blocked, seen, sums=sums)
                if found[0] is not None:
                    return found
        return None, None

    def _followers(self, op: Op, v: Value) -> list[Value] | None:
        """Values that carry on what `op` reads from v, None for an op that makes something else of it."""
        if isinstance(op, Compute):
            return [op.result] if op.fn in _PASSING and (op.fn != "where" or v is not op.args[0]) else None
        if isinstance(op, Cast):
            return [op.result] if op.result.dtype is DType.F32 else None
        if isinstance(op, (Transpose, Reshape, Broadcast, Cat)):
            return [op.result]
        if isinstance(op, (Extract, Insert)):
            return [op.result] if v in (op.operand, getattr(op, "value", None)) else None
        if isinstance(op, Gather):
            return [op.result] if v is op.table else None
        if isinstance(op, For) and v in op.inits:
            return _given(op.inits, v, op.body.params[1:], op.results)
        if isinstance(op, While) and v in op.inits:
            return _given(op.inits, v, op.condition.params, op.body.params, op.results)
        owner = self._owners.get(op)
        if isinstance(owner, For):
            return _given(op.operands(), v, owner.body.params[1:], owner.results)
        if isinstance(owner, While):  # the condition gives a bool
            return _given(op.operands(), v, owner.condition.params, owner.body.params, owner.results)
        if isinstance(owner, If):
            return _given(op.operands(), v, owner.results)
        return None


def _given(values: Iterable[Value], v: Value, *targets: Iterable[Value]) -> list[Value]:
    """What stands in the targets where v stands in the values."""
    places = [i for i, value in enumerate(values) if value is v]
    return [x for target in targets for i, x in enumerate(target) if i in places]


def _name(op: Op) -> str:
    if isinstance(op, Compute):
        return f"`{op.fn}`"
    if isinstance(op, Cast):
        return f"the conversion to {op.result.dtype}"
    return {"Reduce": "the reduction", "Scan": "the prefix sum", "Dot": "the product"}.get(
        type(op).__name__, "what is decided"
    )
