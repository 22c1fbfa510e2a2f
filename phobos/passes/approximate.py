"""approximate: marks exponentials whose results are rounded to f16 or bf16 anyway.

Precondition: kinds of products fixed. Postcondition: the same meaning under the numeric contract (exp and exp2 that
feed f16 or bf16 results may use the approximate unit, 2 ulp of f32); `approximate` is set on those ops and no others.
An exponential feeds such a result if it, or what elementwise arithmetic makes of it, in this iteration of a loop or a
later one, is cast to f16 or bf16 or is the operand of a product that rounds its operands to one of them.
"""

from __future__ import annotations

from dataclasses import replace

from phobos.ir.abi import Decision
from phobos.ir.tile import Cast, Compute, Dot, For, KernelIR, Op, Value, Yield
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
            reader = flow.narrow_reader(op.result, set())
            if reader is not None:
                marked.add(op.result)
            choice = "IEEE" if reader is None else "approximate"
            reason = (
                "no f16 or bf16 result depends on it"
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
    """Who reads a value, through loops too."""

    def __init__(self, kernel: KernelIR):
        self._readers = uses(kernel.body)
        self._loops = {op.body.ops[-1]: op for op in kernel_ops(kernel) if isinstance(op, For)}

    def narrow_reader(self, v: Value, seen: set[Value]) -> Op | None:
        """An op that rounds to 16 bits what depends on v by arithmetic; None if there is none."""
        if v in seen:
            return None
        seen.add(v)
        for op in self._readers.get(v, []):
            if isinstance(op, Cast) and op.result.dtype in _NARROW:
                return op
            if isinstance(op, Dot) and (op.kind in _NARROW_KINDS or v.dtype in _NARROW):
                return op
            for follower in self._followers(op, v):
                found = self.narrow_reader(follower, seen)
                if found is not None:
                    return found
        return None

    def _followers(self, op: Op, v: Value) -> list[Value]:
        """Values that carry on what `op` reads from v."""
        if isinstance(op, Compute) and op.fn in _PASSING:
            return [op.result]
        if isinstance(op, Yield) and (loop := self._loops.get(op)) is not None:
            pairs = zip(op.values, loop.body.params[1:], loop.results)
        elif isinstance(op, For):
            pairs = zip(op.inits, op.body.params[1:], op.results)
        else:
            return []
        return [x for value, param, result in pairs if value is v for x in (param, result)]
