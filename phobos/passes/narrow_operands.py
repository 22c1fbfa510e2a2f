"""narrow_operands: products take 16-bit operands as they are stored where the kernel's text widens them first.

Precondition: simplified KernelIR with a plan for every product. Postcondition: the same meaning. Where the plan of an
f32 product rounds its operands to f16 or bf16 and one of them was converted from that very type, the rounding gives
back what was converted: the product takes that operand, and the other one converted likewise. A tile that comes from
memory then needs no registers on its way, and can be copied ahead of its loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from phobos.contraction.interface import ContractionPlan
from phobos.ir.abi import Decision
from phobos.ir.tile import Cast, Dot, KernelIR, Load, Op, Value
from phobos.ir.types import DTYPE_BY_NAME, DType, TileType
from phobos.ir.walk import Rewriter, definitions


def run(kernel: KernelIR, plans: Mapping[Dot, ContractionPlan]) -> tuple[KernelIR, tuple[Decision, ...]]:
    """The kernel, the same object where nothing changed, and what was done."""
    defs = definitions(kernel.body)
    found: dict[Value, DType] = {}  # results of products -> type of their operands
    decisions = []
    for op, plan in plans.items():
        if op.a.dtype is not DType.F32 or plan.kind not in ("f16", "bf16"):
            continue
        dtype = DTYPE_BY_NAME[plan.kind]
        sources = [v for v in (op.a, op.b) if _widened(v, defs, dtype) is not None]
        # A tile of f32 beside it is rounded on its way from memory, a tile ahead; converted before, it would be late.
        if sources and not any(isinstance(defs.get(v), Load) for v in (op.a, op.b)):
            found[op.result] = dtype
            names = " and ".join(f"`{v.name}`" for v in sources)
            decisions.append(
                Decision(
                    stage="algebra", subject=f"operands of {op.result.name}", choice=f"taken as {dtype}",
                    reason=f"{names} {'was' if len(sources) == 1 else 'were'} converted from {dtype}, and the product "
                    "would round back", line=op.span.line,
                )  # fmt: skip
            )
    return _Narrower(found, defs).kernel(kernel), tuple(decisions)


def _widened(v: Value, defs: Mapping[Value, Op], dtype: DType) -> Value | None:
    """The value of `dtype` that v was converted from, or None."""
    op = defs.get(v)
    return op.operand if isinstance(op, Cast) and op.operand.dtype is dtype else None


class _Narrower(Rewriter):
    def __init__(self, found: Mapping[Value, DType], defs: Mapping[Value, Op]):
        super().__init__()
        self._found, self._defs = found, defs

    def visit(self, op: Op) -> Sequence[Op]:
        if not (isinstance(op, Dot) and op.result in self._found):
            return (op,)
        dtype = self._found[op.result]
        out: list[Op] = []
        narrow = []
        for v in (op.a, op.b):
            source = _widened(v, self._defs, dtype)
            if source is None:
                source = Value(type=TileType(dtype, v.shape), name=v.name, span=v.span)
                out.append(Cast(result=source, operand=v, span=op.span))
            narrow.append(self.value(source))
        return (*out, replace(op, a=narrow[0], b=narrow[1], kinds=("ieee",), kind=None))
