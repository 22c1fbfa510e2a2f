"""assign_layouts: a register layout for every tile value.

Precondition: plans chosen, placement known. Postcondition: every tile value that lives in registers has a layout;
values that elementwise code joins share one where their shapes agree; reductions have the sliced layout of what they
reduce. Where two anchors disagree, the lowering converts on the edge.

Values of one shape joined by elementwise ops, casts or loops form a class. A class takes the accumulator layout of its
first product; else the slice of a larger class that it is reduced from or broadcast into; else the default
distribution with the widest access that its loads and stores allow.
"""

from __future__ import annotations

from collections.abc import Mapping

from phobos.contraction.interface import ContractionPlan
from phobos.ir.tile import (
    Atomic,
    Block,
    Break,
    Broadcast,
    Cast,
    Compute,
    Continue,
    Dot,
    For,
    If,
    Insert,
    KernelIR,
    Load,
    Op,
    Reduce,
    Reshape,
    Scan,
    Store,
    SumParts,
    Value,
    While,
    Yield,
)
from phobos.ir.walk import kernel_ops
from phobos.layout.register import RegisterLayout, blocked
from phobos.passes.facts import ScalarFacts
from phobos.passes.placement import Placement


class _Classes:
    """Union-find over tile values."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}

    def find(self, v: Value) -> Value:
        root = v
        while self._parent.get(root, root) is not root:
            root = self._parent[root]
        while self._parent.get(v, v) is not root:
            self._parent[v], v = root, self._parent[v]
        return root

    def join(self, a: Value, b: Value) -> None:
        if a.is_tile and b.is_tile and a.shape == b.shape:
            ra, rb = self.find(a), self.find(b)
            if ra is not rb:
                self._parent[rb] = ra


def run(
    kernel: KernelIR,
    plans: Mapping[Dot, ContractionPlan],
    placement: Placement,
    facts: ScalarFacts,
    threads: int,
    reasons: dict[Value, str] | None = None,
) -> dict[Value, RegisterLayout]:
    """The layout of every tile value; `reasons` gets why, for each of them."""
    classes = _Classes()
    values: dict[Value, None] = {}
    for op in kernel_ops(kernel):
        for v in (*op.defined(), *(p for b in op.blocks() for p in b.params)):
            if v.is_tile:
                values.setdefault(v)
        _join(op, classes)
    layouts: dict[Value, RegisterLayout] = {}
    why: dict[Value, str] = {}
    for op, plan in plans.items():
        layouts.setdefault(classes.find(op.result), plan.c_layout)
        why.setdefault(classes.find(op.result), f"follows the accumulator of the product in line {op.span.line}")
    links = _links(kernel, classes, placement)
    vectors = _vectors(kernel, classes, facts)
    warps = threads // 32
    roots = list(dict.fromkeys(classes.find(v) for v in values))
    # Larger classes first: smaller ones are slices of them.
    for root in sorted(roots, key=lambda r: (-_size(r), -len(r.shape))):
        if root in layouts:
            continue
        for big in links.get(root, ()):
            if big in layouts and (found := _adopted(layouts[big], root.shape)) is not None:
                layouts[root] = found
                why[root] = f"lines up with `{big.name}` of line {big.span.line}, which it is reduced from or meets"
                break
        else:
            vector = vectors.get(root, 1)
            layouts[root] = blocked(root.shape, warps, vector)
            why[root] = f"spread evenly over the warps, in runs of {vector} for its widest load or store"
            if root not in vectors:
                why[root] = "spread evenly over the warps; no load or store asks for more"
    if reasons is not None:
        reasons.update({v: why[classes.find(v)] for v in values})
    out = {v: layouts[classes.find(v)] for v in values}
    for op, plan in plans.items():  # a product's own result is where its plan puts it
        out[op.result] = plan.c_layout
    return out


def _adopted(big: RegisterLayout, shape: tuple[int, ...]) -> RegisterLayout | None:
    """The layout in which a tile of `shape` lines up with `big`, into which it broadcasts or of which it is a
    reshape."""
    return big.broadcast_source(shape) if len(shape) == big.rank else big.with_unit_axes(shape)


def _size(v: Value) -> int:
    n = 1
    for extent in v.shape:
        n *= extent
    return n


def _exits(block: Block) -> list[Op]:
    """Terminators of this block and of `if`s in it that belong to the loop around."""
    out: list[Op] = []
    for op in block.ops:
        if isinstance(op, (Yield, Break, Continue)):
            out.append(op)
        if isinstance(op, If):
            out.extend(e for b in op.blocks() for e in _exits(b) if not isinstance(e, Yield))
    return out


def _join(op: Op, classes: _Classes) -> None:
    if isinstance(op, Compute):
        for a in op.args:
            classes.join(op.result, a)
    elif isinstance(op, (Cast, Scan, Insert, SumParts)):
        classes.join(op.result, op.operand)
    elif isinstance(op, (For, While)):
        params = op.body.params[1:] if isinstance(op, For) else op.body.params
        for init, param, result in zip(op.inits, params, op.results):
            classes.join(param, init)
            classes.join(param, result)
        if isinstance(op, While):
            for param, other in zip(params, op.condition.params):
                classes.join(param, other)
        for end in _exits(op.body):
            for param, v in zip(params, end.operands()):
                classes.join(param, v)
    elif isinstance(op, If):
        for block in op.blocks():
            end = block.ops[-1]
            if isinstance(end, Yield):
                for result, v in zip(op.results, end.values):
                    classes.join(result, v)
    elif isinstance(op, Atomic):
        for v in (*op.values[1:], *([op.result] if op.result is not None else [])):
            classes.join(op.values[0], v)


def _links(kernel: KernelIR, classes: _Classes, placement: Placement) -> dict[Value, list[Value]]:
    """small class -> larger classes that it is reduced from (first), broadcast into, or a reshape of (more axes of
    extent 1 count as larger)."""
    reduced: dict[Value, list[Value]] = {}
    spread: dict[Value, list[Value]] = {}
    for op in kernel_ops(kernel):
        if isinstance(op, Reduce) and op.result.is_tile:
            reduced.setdefault(classes.find(op.result), []).append(classes.find(op.operand))
        elif isinstance(op, Compute) and op.result.is_tile:
            for a in op.args:
                if a.is_tile and a.shape != op.result.shape:
                    spread.setdefault(classes.find(a), []).append(classes.find(op.result))
        elif isinstance(op, Broadcast) and op.operand.is_tile and op.operand.shape != op.result.shape:
            spread.setdefault(classes.find(op.operand), []).append(classes.find(op.result))
        elif isinstance(op, Reshape) and len(op.operand.shape) != len(op.result.shape):
            small, big = sorted((op.operand, op.result), key=lambda v: len(v.shape))
            spread.setdefault(classes.find(small), []).append(classes.find(big))
    return {root: reduced.get(root, []) + spread.get(root, []) for root in {*reduced, *spread}}


def _vectors(kernel: KernelIR, classes: _Classes, facts: ScalarFacts) -> dict[Value, int]:
    """The widest access (in elements) that some load or store of the class can use."""
    out: dict[Value, int] = {}
    for op in kernel_ops(kernel):
        if isinstance(op, Load) and op.result.is_tile:
            v = op.result
        elif isinstance(op, Store) and op.value.is_tile:
            v = op.value
        else:
            continue
        if not v.is_tile:
            continue
        root = classes.find(v)
        out[root] = max(out.get(root, 1), facts.vector(op.view))
    return out


