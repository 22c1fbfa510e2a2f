"""Which loads are read piece by piece inside the statement that uses them.

An analysis of the simplified KernelIR with layouts. A large tile that is loaded only to be combined, elementwise, with
values already in registers (the epilogue beta * C of a product) need not be in registers as a whole: a few of its
elements at a time suffice. That takes the peak of registers down by the size of the tile.

A load streams if it has one reader, directly or through elementwise ops that are evaluated with it, in the same block,
if that reader's result is in registers in the layout of the load, and if nothing in between writes memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from phobos.ir.tile import Assert, Atomic, AxisGather, Block, Cast, Compute, KernelIR, Load, Op, Print, Store, Value
from phobos.ir.walk import kernel_ops, walk
from phobos.layout.register import RegisterLayout
from phobos.passes.placement import Placement

# 32-bit registers of a thread. Smaller tiles fit beside the accumulators, and then the plain load is better: 128 halves
# (64 registers) streamed made a product of 128 accumulators spill 60 bytes, plain none; 128 f32 plain 272, streamed
# 192.
_LEAST = 96


def analyse(kernel: KernelIR, placement: Placement, layouts: Mapping[Value, RegisterLayout]) -> frozenset[Value]:
    out = set()
    for op in kernel_ops(kernel):
        if isinstance(op, Load) and op.result.is_tile and op.result not in placement.staged:
            if _streams(op, placement, layouts):
                out.add(op.result)
    return frozenset(out)


def _streams(load: Load, placement: Placement, layouts: Mapping[Value, RegisterLayout]) -> bool:
    layout = layouts[load.result]
    gathered = any(isinstance(a, AxisGather) for a in load.view.axes)
    if gathered or layout.registers * load.result.dtype.bytes < 4 * _LEAST:
        return False
    v = load.result
    while True:
        readers = placement.readers.get(v, [])
        if len(readers) != 1 or not isinstance(readers[0], (Compute, Cast)):
            return False
        reader = readers[0]
        if placement.home[reader] is not placement.home[load] or reader.result.shape != v.shape:
            return False
        if reader.result not in placement.inlined:
            break
        v = reader.result
    if any(a in placement.deferred for a in reader.operands()):
        return False  # that statement is a product
    if isinstance(reader, Compute) and not any(
        a.is_tile and a.shape == reader.result.shape and not _loaded(a, placement) for a in reader.args
    ):
        return False  # nothing in registers yet: a plain load is as good
    if isinstance(reader, Cast):
        return False
    return layouts[reader.result] == layout and _quiet(placement.home[load], load, reader)


def _loaded(v: Value, placement: Placement) -> bool:
    """Does the value consist of loads and scalars only?"""
    op = placement.defs.get(v)
    if isinstance(op, Load) or not v.is_tile:
        return True
    if v in placement.inlined and isinstance(op, (Compute, Cast)):
        return all(_loaded(a, placement) for a in op.operands())
    return False


def _quiet(block: Block, load: Op, reader: Op) -> bool:
    """Does nothing between the two write or observe memory?"""
    inside = False
    for op in block.ops:
        if op is reader:
            return inside
        if op is load:
            inside = True
        elif inside:
            nested = [o for b in op.blocks() for o in walk(b)]
            if any(isinstance(o, (Store, Atomic, Print, Assert)) for o in (op, *nested)):
                return False
    return False
