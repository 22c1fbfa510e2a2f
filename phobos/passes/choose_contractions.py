"""choose_contractions: asks the rooms for a plan for every product.

Precondition: simplified KernelIR, CTA size known. Result: a plan for every Dot, with the reasons for the report.
The kind of a product is fixed here (`fix_kinds` writes it into the IR, so that the reference computes the same).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from phobos.contraction.interface import ContractionPlan, ContractionQuery
from phobos.contraction.registry import choose
from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.abi import Decision
from phobos.ir.tile import Block, Compute, Dot, For, KernelIR, Load, Op, Reduce, While
from phobos.ir.types import DType
from phobos.ir.walk import definitions, kernel_ops, rewrite_kernel
from phobos.target import Target


def run(kernel: KernelIR, threads: int, target: Target) -> tuple[dict[Dot, ContractionPlan], tuple[Decision, ...]]:
    """Raises CompileError (PH0510) for a product that no room takes."""
    dots = [op for op in kernel_ops(kernel) if isinstance(op, Dot)]
    queries = [_query(kernel, op, threads, target) for op in dots]
    plans: dict[Dot, ContractionPlan] = {}
    decisions: list[Decision] = []
    errors: list[Diagnostic] = []

    def asked_first(rejection: tuple[str, str]) -> bool:
        return rejection[0] != kernel.options.matmul

    for op, query, answer in zip(dots, queries, choose(queries)):
        subject = (
            f"{op.result.name} = dot{'_t' if op.transpose_b else ''} {query.m}x{query.n}x{query.k} {query.operand}"
        )
        rejected = tuple((r.room, r.reason) for r in answer.rejected)
        if answer.plan is None:
            errors.append(
                Diagnostic(
                    code="PH0510",
                    message=f"no way to compute this product ({query.m} x {query.n} x {query.k}, {query.operand})",
                    span=op.span,
                    notes=tuple(f"{room}: {reason}" for room, reason in sorted(rejected, key=asked_first)),
                    help=_way_out(query),
                )
            )
            continue
        plans[op] = answer.plan
        reason = answer.plan.description
        if answer.plan.kind == "ieee" and op.kinds[0] != "ieee":
            reason += f"; no path for kind {op.kinds[0]} took it, so operands stay unrounded"
        decisions.append(
            Decision(
                stage="contraction", subject=subject, choice=f"{answer.plan.room} ({answer.plan.kind})", reason=reason,
                line=op.span.line, rejected=rejected,
            )  # fmt: skip
        )
    if errors:
        raise CompileError(errors)
    return plans, tuple(decisions)


def fix_kinds(kernel: KernelIR, plans: Mapping[Dot, ContractionPlan]) -> KernelIR:
    """The kernel with every Dot's `kind` set to what its plan computes."""
    by_result = {op.result: plan.kind for op, plan in plans.items()}

    def fix(op: Op, values: object) -> list[Op] | None:
        if isinstance(op, Dot) and op.result in by_result and op.kind != by_result[op.result]:
            return [replace(op, kind=by_result[op.result])]
        return None

    return rewrite_kernel(kernel, fix)


def _query(kernel: KernelIR, op: Dot, threads: int, target: Target) -> ContractionQuery:
    m, n = op.result.shape
    return ContractionQuery(
        m=m, n=n, k=op.a.shape[1], operand=op.a.dtype, accumulator=op.result.dtype, kinds=op.kinds,
        transpose_b=op.transpose_b, warps=threads // 32, whole_rows=_has_row_statistics(kernel, m),
        require=kernel.tensorcore is not None and kernel.tensorcore.require,
        a_computed=not isinstance(definitions(kernel.body).get(op.a), Load),
        registers=_registers(kernel, threads, target),
        options=kernel.options, target=target,
    )  # fmt: skip


def _way_out(query: ContractionQuery) -> str | None:
    """What to leave out so that some room takes the product: the option `matmul`, `require`, or both."""
    free = replace(query, options=replace(query.options, matmul="auto"))
    fixed = query.options.matmul != "auto"
    option = f"`matmul = {query.options.matmul}`"
    kinds = tuple(dict.fromkeys((*query.kinds, "ieee")))
    attempts = [(free, option)] if fixed else []
    if query.require:
        attempts.append((replace(query, require=False, kinds=kinds), "`require`"))
        if fixed:
            attempts.append((replace(free, require=False, kinds=kinds), f"{option} and `require`"))
    for attempt, without in attempts:
        plan = choose([attempt])[0].plan
        if plan is not None:
            unrounded = query.operand is DType.F32 and plan.kind == "ieee"
            return f"without {without} it is computed by {plan.room}{' in IEEE f32' if unrounded else ''}"
    return None


def _registers(kernel: KernelIR, threads: int, target: Target) -> int:
    """Registers of a thread that @launch leaves it."""
    asked = kernel.launch
    resident = target.registers_per_sm // (threads * (asked.min_blocks or 1)) // 8 * 8
    return min(target.registers_per_thread, asked.max_regs or resident, resident)


def _has_row_statistics(kernel: KernelIR, rows: int) -> bool:
    """Is something of one value per row computed beside a product with this many rows, that is in the same iterations?
    Or are there several products, whose rows should line up where such values are applied to them? What an epilogue
    does behind the loop of the products is no reason to arrange them otherwise."""
    loops = _innermost_loops(kernel.body)
    products = [op for op in loops if isinstance(op, Dot)]
    beside = {loops[op] for op in products if op.result.shape[0] == rows}
    for op, loop in loops.items():
        if loop not in beside:
            continue
        if isinstance(op, Reduce) and op.axis == 1 and op.operand.shape[:1] == (rows,) and len(op.operand.shape) == 2:
            return True
        if isinstance(op, Compute) and op.result.shape[:1] == (rows,) and any(a.shape == (rows, 1) for a in op.args):
            if op.result.shape != (rows, 1) and len(products) > 1:
                return True
    return False


def _innermost_loops(block: Block, loop: Op | None = None) -> dict[Op, Op | None]:
    """Every op of the block or nested in it, and the innermost loop around it."""
    out: dict[Op, Op | None] = {}
    for op in block.ops:
        out[op] = loop
        for nested in op.blocks():
            out |= _innermost_loops(nested, op if isinstance(op, (For, While)) else loop)
    return out


def rebind(kernel: KernelIR, plans: Mapping[Dot, ContractionPlan]) -> list[tuple[Dot, ContractionPlan]]:
    """The plans for the Dots of a rewritten kernel, found by their results."""
    by_result = {op.result: plan for op, plan in plans.items()}
    return [(op, by_result[op.result]) for op in kernel_ops(kernel) if isinstance(op, Dot)]
