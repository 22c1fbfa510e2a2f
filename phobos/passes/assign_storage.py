"""assign_storage: SSA ends here. Tile IR plus layouts and plans become statements over fragments, buffers and scalars.

Precondition: verified, simplified KernelIR; plans, placement and layouts for it. Postcondition: a Schedule without
byte offsets and without barriers. A value dies into its last reader's result where shape, layout and dtype agree, so a
loop-carried tile keeps its registers from one iteration to the next, and a product adds to its accumulator in place.
"""

from __future__ import annotations

from collections.abc import Mapping

from phobos.contraction.interface import ContractionPlan
from phobos.ir.abi import AbiArg, DimArg, ScalarArg, Specialization, StrideArg, TensorArg
from phobos.ir.c_names import c_identifier
from phobos.ir.scheduled import Schedule
from phobos.ir.storage import ScalarRef
from phobos.ir.tile import (
    Assert,
    Atomic,
    Block,
    Break,
    Broadcast,
    Cast,
    Cat,
    Compute,
    Constant,
    Continue,
    Dot,
    Extract,
    For,
    Gather,
    GridSize,
    If,
    Insert,
    Iota,
    KernelIR,
    Load,
    Op,
    Print,
    ProgramId,
    Reduce,
    Reshape,
    Return,
    Scan,
    Store,
    SumParts,
    Transpose,
    Value,
    While,
    Yield,
)
from phobos.ir.walk import kernel_ops
from phobos.layout.register import RegisterLayout
from phobos.passes import streams
from phobos.passes.block_order import BlockOrder
from phobos.passes.facts import ScalarFacts
from phobos.passes.lowering import control, elementwise, memory, reductions
from phobos.passes.lowering.context import Lowering
from phobos.passes.placement import Placement


def run(
    kernel: KernelIR,
    spec: Specialization,
    facts: ScalarFacts,
    placement: Placement,
    layouts: Mapping[Value, RegisterLayout],
    plans: Mapping[Dot, ContractionPlan],
    threads: int,
    order: BlockOrder,
    *,
    debug: bool,
    fast_math: bool,
) -> Schedule:
    fast = fast_math or kernel.options.precision == "fast"
    ctx = Lowering(kernel, spec, facts, placement, layouts, plans, threads, order, debug, fast)
    ctx.streamed = streams.analyse(kernel, placement, layouts)
    for s in kernel.scalars:
        ctx.scalars[s.value] = ScalarRef(s.value.dtype, c_identifier(s.name))
    for d in kernel.dims:
        ctx.scalars[d.value] = ScalarRef(d.value.dtype, c_identifier(d.name))
    loops: list[control.Loop] = []

    def lower(ctx: Lowering, block: Block) -> None:
        scope = ctx.scope
        for index, op in enumerate(block.ops):
            scope.index = index
            _lower_op(ctx, op, lower, loops)
            for v in op.defined():
                if v.is_tile and v not in placement.inlined:
                    scope.local.add(v)
                    if not isinstance(op, (For, While, If)):
                        elementwise.publish_operands(ctx, v, op.span)

    ctx.enter(kernel.body)
    lower(ctx, kernel.body)
    ctx.leave()
    names = [t.name for t in kernel.tensors]
    return Schedule(
        name=kernel.name,
        span=kernel.span,
        args=abi_args(kernel, spec),
        threads=threads,
        body=tuple(ctx.out),
        grid=kernel.grid,
        contiguous=frozenset(n for n in names if spec.tensor(n).contiguous),
        unit_inner=frozenset(n for n in names if spec.tensor(n).contiguous or spec.tensor(n).align16),
        restrict=frozenset(n for n in names if n not in spec.overlap),
        tensor_dims={t.name: t.type.dims for t in kernel.tensors},
        index_bits=spec.index_bits,
        min_blocks=kernel.launch.min_blocks,
        max_regs=kernel.launch.max_regs,
        fast_math=fast,
        debug=debug,
        decisions=tuple(dict.fromkeys(ctx.decisions)),
        names=ctx.used_names(),
        coordinates=tuple(map(order.coordinate, range(3))),
    )


def _lower_op(ctx: Lowering, op: Op, lower: control.LowerBlock, loops: list[control.Loop]) -> None:
    if isinstance(op, For):
        control.for_op(ctx, op, lower, loops)
    elif isinstance(op, While):
        control.while_op(ctx, op, lower, loops)
    elif isinstance(op, If):
        control.if_op(ctx, op, lower, loops)
    elif isinstance(op, (Yield, Break, Continue, Return)):
        control.exit_op(ctx, op, loops)
    elif isinstance(op, (Constant, ProgramId, GridSize)):
        elementwise.scalar_op(ctx, op)
    elif isinstance(op, (Compute, Cast, Broadcast, Iota)):
        if op.result.is_tile:
            elementwise.tile_op(ctx, op)
        else:
            elementwise.scalar_op(ctx, op)
    elif isinstance(op, Dot):
        elementwise.dot_op(ctx, op)
    elif isinstance(op, Reduce):
        reductions.reduce(ctx, op)
    elif isinstance(op, SumParts):
        reductions.sum_parts(ctx, op)
    else:
        table = {
            Load: memory.load, Store: memory.store, Atomic: memory.atomic, Transpose: memory.transpose,
            Reshape: memory.reshape, Cat: memory.cat, Extract: memory.extract, Insert: memory.insert,
            Gather: memory.gather, Scan: memory.scan, Print: memory.debug, Assert: memory.debug,
        }  # fmt: skip
        handler = table.get(type(op))
        if handler is None:
            raise ctx.fail("PH0521", f"{type(op).__name__.lower()} cannot be lowered to CUDA yet", op.span)
        handler(ctx, op)  # type: ignore[operator]


def abi_args(kernel: KernelIR, spec: Specialization) -> tuple[AbiArg, ...]:
    """Tensors in order, scalars in order, dims, and the strides that dims do not determine."""
    read: set[str] = set()
    written: set[str] = set()
    for op in kernel_ops(kernel):
        if isinstance(op, Load):
            read.add(op.view.tensor.name)
        elif isinstance(op, Store):
            written.add(op.view.tensor.name)
        elif isinstance(op, Atomic):
            read.add(op.view.tensor.name)
            written.add(op.view.tensor.name)
    out: list[AbiArg] = []
    for t in kernel.tensors:
        out.append(TensorArg(name=t.name, dtype=t.type.dtype, read=t.name in read, written=t.name in written))
    out.extend(ScalarArg(name=s.name, dtype=s.value.dtype) for s in kernel.scalars)
    out.extend(DimArg(name=d.name) for d in kernel.dims)
    for t in kernel.tensors:
        facts = spec.tensor(t.name)
        if not facts.contiguous:
            unit = facts.inner if facts.inner is not None else t.type.rank - 1 if facts.align16 else None
            out.extend(StrideArg(tensor=t.name, axis=a) for a in range(t.type.rank) if a != unit)
    return tuple(out)


