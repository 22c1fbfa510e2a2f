"""placement: which tile values exist as registers and which are evaluated inside the statement that reads them.

An analysis of the simplified KernelIR. A value is *inlined* when recomputing it is free (iota, broadcasts, arithmetic
on those) or when its single reader is an elementwise op or a reduction of the same shape in the same block. A Dot is
*deferred* when its single reader adds it to a tile in the same block: it then accumulates there in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phobos.ir.tile import Block, Broadcast, Cast, Compute, Dot, Iota, KernelIR, Load, Op, Reduce, Value
from phobos.ir.walk import definitions, kernel_ops, uses, walk, walk_blocks

_MOST_FREE = 32  # operations: more of them are no longer free for each reader
# Operations inside each other in one expression: compilers stop at some depth of parentheses, and so does Python.
DEEPEST = 64
_CHEAP = frozenset({"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "neg"})


@dataclass(frozen=True, eq=False)
class Placement:
    inlined: frozenset[Value]
    deferred: frozenset[Value]  # results of Dots that accumulate into their reader's tile
    staged: frozenset[Value]  # results of Loads that go straight to shared memory
    readers: dict[Value, list[Op]]
    defs: dict[Value, Op]
    home: dict[Op, Block]  # the block in which an op stands

    def last_uses(self, block: Block) -> dict[Value, int]:
        """For each value read in the block or below: index of the op of this block by which it is read last, an
        inlined or deferred op counting where its own reader stands."""
        last: dict[Value, int] = {}
        for index in range(len(block.ops) - 1, -1, -1):
            op = block.ops[index]
            at = index
            for v in op.defined():
                if v in self.inlined or v in self.deferred:
                    at = max(at, last.get(v, index))
            read = list(op.operands())
            for nested in op.blocks():
                for inner in walk(nested):
                    read.extend(inner.operands())
            for v in read:
                last[v] = max(last.get(v, -1), at)
        return last


def analyse(kernel: KernelIR) -> Placement:
    defs = definitions(kernel.body)
    readers = uses(kernel.body)
    home: dict[Op, Block] = {op: block for block in walk_blocks(kernel.body) for op in block.ops}
    inlined: set[Value] = set()
    deferred: set[Value] = set()
    staged: set[Value] = set()
    work: dict[Value, int] = {}  # operations of free values
    depth: dict[Value, int] = {}  # of the expressions of inlined values
    for op in kernel_ops(kernel):
        for v in op.defined():
            if not v.is_tile:
                continue
            who = readers.get(v, [])
            amount = 1 + sum(work.get(a, 0) for a in op.operands())
            height = 1 + max((depth.get(a, 0) for a in op.operands()), default=0)
            if _free(op, work) and (amount <= _MOST_FREE or isinstance(op, (Iota, Broadcast))):
                inlined.add(v)
                work[v], depth[v] = amount, height
            elif isinstance(op, (Compute, Cast)) and len(who) == 1 and home[who[0]] is home[op]:
                reader = who[0]
                same_shape = isinstance(reader, (Compute, Cast)) and reader.result.shape == v.shape
                if any(a in deferred for a in op.operands()):
                    continue  # the product accumulates in its registers
                if (same_shape or isinstance(reader, Reduce)) and height < DEEPEST:
                    inlined.add(v)
                    depth[v] = height
            elif isinstance(op, Load) and who and all(_is_operand(r, v) for r in who):
                staged.add(v)
            elif isinstance(op, Dot) and len(who) == 1 and home[who[0]] is home[op]:
                reader = who[0]
                if isinstance(reader, Compute) and reader.fn == "add" and reader.result.type == v.type:
                    other = [a for a in reader.args if a is not v]
                    if other and other[0] not in deferred and other[0].shape == v.shape:
                        deferred.add(v)
    return Placement(frozenset(inlined), frozenset(deferred), frozenset(staged), readers, defs, home)


def _free(op: Op, free: Mapping[Value, int]) -> bool:
    if isinstance(op, (Iota, Broadcast)):
        return True
    if isinstance(op, Cast):
        return op.operand in free and not op.result.dtype.is_float
    if isinstance(op, Compute) and op.fn in _CHEAP and op.result.is_tile:
        tiles = [a for a in op.args if a.is_tile]
        return bool(tiles) and all(a in free for a in tiles) and not op.result.dtype.is_float
    return False


def _is_operand(reader: Op, v: Value) -> bool:
    return isinstance(reader, Dot)
