"""approximate: marks exponentials whose results are rounded to f16 or bf16 anyway.

Precondition: kinds of products fixed. Postcondition: the same meaning under the numeric contract (exp and exp2 that feed
f16 or bf16 results may use the approximate unit, 2 ulp of f32); `approximate` is set on those ops and no others. An
exponential feeds such a result if it, or what elementwise arithmetic makes of it, is cast to f16 or bf16 or is the operand
of a product that rounds its operands to one of them.
"""

from __future__ import annotations

from dataclasses import replace

from phobos.ir.tile import Cast, Compute, Dot, KernelIR, Op, Value
from phobos.ir.types import DType
from phobos.ir.walk import kernel_ops, rewrite_kernel, uses

_NARROW = frozenset({DType.F16, DType.BF16})
_PASSING = frozenset({"mul", "where", "div", "neg", "add", "sub"})
_NARROW_KINDS = frozenset({"f16", "bf16"})


def run(kernel: KernelIR) -> KernelIR:
    readers = uses(kernel.body)
    marked = {
        op.result
        for op in kernel_ops(kernel)
        if isinstance(op, Compute) and op.fn in ("exp", "exp2") and op.result.dtype is DType.F32
        if _feeds_narrow(op.result, readers, set())
    }
    if not marked:
        return kernel

    def mark(op: Op, values: object) -> list[Op] | None:
        if isinstance(op, Compute) and op.result in marked and not op.approximate:
            return [replace(op, approximate=True)]
        return None

    return rewrite_kernel(kernel, mark)


def _feeds_narrow(v: Value, readers: dict[Value, list[Op]], seen: set[Value]) -> bool:
    if v in seen:
        return False
    seen.add(v)
    for op in readers.get(v, []):
        if isinstance(op, Cast) and op.result.dtype in _NARROW:
            return True
        if isinstance(op, Dot) and (op.kind in _NARROW_KINDS or v.dtype in _NARROW):
            return True
        if isinstance(op, Compute) and op.fn in _PASSING and _feeds_narrow(op.result, readers, seen):
            return True
    return False
