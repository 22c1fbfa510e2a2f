"""hoist: moves loop-invariant pure work in front of its loop.

Precondition: simplified KernelIR. Postcondition: the same meaning; a pure op in a loop body reads something that
changes in the loop, or is free to recompute (constants, iota, broadcasts). A load moves only if nothing in the
loop stores to its tensor or to one that overlaps it. Integer division moves only with a constant non-zero divisor,
since in front of the loop it might run where the loop would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phobos.ir.tile import (
    Atomic,
    Block,
    Broadcast,
    Cast,
    Cat,
    Compute,
    Constant,
    Dot,
    Extract,
    For,
    Gather,
    GridSize,
    Iota,
    KernelIR,
    Load,
    Op,
    ProgramId,
    Reduce,
    Reshape,
    Scan,
    Store,
    Transpose,
    Value,
    While,
)
from phobos.ir.walk import Rewriter, defined_in, walk, with_ops

_MOVABLE = (
    Constant, ProgramId, GridSize, Compute, Cast, Broadcast, Iota, Transpose, Reshape, Cat, Extract, Load, Reduce,
    Scan, Gather, Dot,
)  # fmt: skip


def run(kernel: KernelIR, overlap: frozenset[str] = frozenset()) -> KernelIR:
    return _Hoister(overlap).kernel(kernel)


class _Hoister(Rewriter):
    def __init__(self, overlap: frozenset[str]):
        super().__init__()
        self._overlap = overlap
        self._constants: dict[Value, object] = {}

    def visit(self, op: Op) -> Sequence[Op]:
        if isinstance(op, Constant):
            self._constants[op.result] = op.value
        if isinstance(op, For):
            moved, body = self._split(op.body)
            return (*moved, replace(op, body=body)) if moved else (op,)
        if isinstance(op, While):
            moved_c, condition = self._split(op.condition, also=op.body)
            moved_b, body = self._split(op.body, also=op.condition)
            if moved_c or moved_b:
                return (*moved_c, *moved_b, replace(op, condition=condition, body=body))
        return (op,)

    def _split(self, body: Block, also: Block | None = None) -> tuple[tuple[Op, ...], Block]:
        stored = {o.view.tensor.name for o in walk(body) if isinstance(o, (Store, Atomic))}
        inside = defined_in(body)
        if also is not None:
            stored |= {o.view.tensor.name for o in walk(also) if isinstance(o, (Store, Atomic))}
        if stored & self._overlap:
            stored |= self._overlap
        moved: list[Op] = []
        kept: list[Op] = []
        for op in body.ops:
            if isinstance(op, _MOVABLE) and self._invariant(op, inside, stored):
                moved.append(op)
                inside.difference_update(op.defined())
            else:
                kept.append(op)
        return tuple(moved), with_ops(body, kept)

    def _invariant(self, op: Op, inside: set[Value], stored: set[str]) -> bool:
        if any(v in inside for v in op.operands()):
            return False
        if any(v in inside for b in op.blocks() for o in walk(b) for v in o.operands() if v not in defined_in(b)):
            return False
        if isinstance(op, Load) and op.view.tensor.name in stored:
            return False
        if isinstance(op, Compute) and op.fn in ("div", "mod") and op.result.dtype.is_integer:
            return self._constants.get(op.args[1], 0) != 0
        return True
