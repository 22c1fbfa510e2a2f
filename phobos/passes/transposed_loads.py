"""transposed_loads: right operands of products are read along the axis that is contiguous in memory.

Precondition: simplified KernelIR. Postcondition: the same meaning. Where the specialization says that a tensor's unit
stride is not along its last axis (a transposed view, B stored as [N, K]), a tile of it that is only the right operand
of products is loaded with its axes exchanged, and the products take it so: dot for dot_t and vice versa. Accesses
are then as wide as those to a tensor that is stored in the order of its axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phobos.ir.abi import Decision, Specialization
from phobos.ir.tile import AxisRange, Dot, KernelIR, Load, Op, Value
from phobos.ir.types import TileType
from phobos.ir.walk import Rewriter, kernel_ops, uses


def run(kernel: KernelIR, spec: Specialization) -> tuple[KernelIR, tuple[Decision, ...]]:
    if all(facts.inner is None for _, facts in spec.tensors):
        return kernel, ()
    readers = uses(kernel.body)
    found = {op.result: op for op in kernel_ops(kernel) if isinstance(op, Load) and _fits(op, spec, readers)}
    decisions = tuple(
        Decision(
            stage="access", subject=f"tiles of {op.view.tensor.name}", choice="read with their axes exchanged",
            reason=f"axis {spec.tensor(op.view.tensor.name).inner} is the contiguous one", line=op.span.line,
        )  # fmt: skip
        for op in found.values()
    )
    return _Exchanger(set(found)).kernel(kernel), decisions


def _fits(op: Load, spec: Specialization, readers: dict[Value, list[Op]]) -> bool:
    """Is the contiguous axis the first of a tile of two, and the tile a right operand and nothing else?

    Not the 8-bit operand of a `dot_t`: tensor cores have no transposed load for what it would become.
    """
    v, axes = op.result, op.view.axes
    along = [number for number, axis in enumerate(axes) if isinstance(axis, AxisRange)]
    if len(v.shape) != 2 or len(along) != 2 or op.transposed:
        return False
    dots = [r for r in readers.get(v, []) if isinstance(r, Dot) and r.b is v and r.a is not v]
    right = len(dots) == len(readers.get(v, []))
    if v.dtype.bytes == 1 and any(r.transpose_b for r in dots):
        return False
    return right and along[0] == spec.tensor(op.view.tensor.name).inner


class _Exchanger(Rewriter):
    def __init__(self, found: set[Value]):
        super().__init__()
        self._found = found
        self._exchanged: set[Value] = set()

    def visit(self, op: Op) -> Sequence[Op]:
        if isinstance(op, Load) and op.result in self._found:
            rows, columns = op.result.shape
            tile = Value(type=TileType(op.result.dtype, (columns, rows)), name=op.result.name, span=op.result.span)
            self._exchanged.add(tile)
            self.replace_value(op.result, tile)
            return (replace(op, result=tile, transposed=True),)
        if isinstance(op, Dot) and op.b in self._exchanged:
            return (replace(op, transpose_b=not op.transpose_b),)
        return (op,)
