"""The ordered list of passes: from the checked tile IR to a schedule with barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from phobos.contraction.interface import ContractionPlan
from phobos.diagnostics import CompileError
from phobos.ir.abi import Decision, Specialization
from phobos.ir.scheduled import Schedule
from phobos.ir.tile import Dot, KernelIR, Value
from phobos.passes import (
    approximate,
    assign_layouts,
    assign_storage,
    block_order,
    choose_contractions,
    choose_threads,
    describe,
    fold_scale,
    hoist,
    hoist_operands,
    lazy_rescale,
    loop_stride,
    narrow_operands,
    pack_shared,
    partial_sums,
    peel_masks,
    place_barriers,
    placement,
    prove_bounds,
    register_operands,
    simplify,
    stage_loads,
    transposed_loads,
    without_effect,
)
from phobos.passes.facts import ScalarFacts
from phobos.target import Target

Observer = Callable[[str, KernelIR | Schedule], None]


@dataclass(frozen=True)
class Lowered:
    """The tile IR as finally scheduled (kinds of products fixed: what the reference should run) and the schedule."""

    kernel: KernelIR
    schedule: Schedule


@dataclass(frozen=True)
class Chosen:
    """The simplified tile IR with a plan for every product, whose kinds are thereby fixed."""

    kernel: KernelIR
    threads: int
    plans: dict[Dot, ContractionPlan]
    decisions: tuple[Decision, ...]


def _ignore(stage: str, state: KernelIR | Schedule) -> None:
    return None


def choose(
    kernel: KernelIR,
    target: Target,
    spec: Specialization | None = None,
    observe: Observer = _ignore,
    overlap: frozenset[str] = frozenset(),
) -> Chosen:
    """Tile IR to tile IR: algebra, bounds (where a specialization is given), and how each product is computed.

    `overlap` counts where no specialization is given: the tensors whose memory overlaps.
    """
    overlap = spec.overlap if spec is not None else overlap
    kernel = simplify.run(kernel, overlap)
    observe("simplify", kernel)
    kernel = hoist.run(kernel, overlap)
    observe("hoist", kernel)
    kernel = simplify.run(kernel, overlap)
    observe("simplify again", kernel)
    kernel = loop_stride.run(kernel)
    observe("loop_stride", kernel)
    access_decisions: tuple[Decision, ...] = ()
    if spec is not None:
        kernel = prove_bounds.run(kernel, spec)
        observe("prove_bounds", kernel)
        kernel, access_decisions = transposed_loads.run(kernel, spec)
        observe("transposed_loads", kernel)
    threads, thread_decision = choose_threads.run(kernel)
    kernel, plans, product_decisions = plan_products(kernel, threads, target, overlap, observe)
    kernel = choose_contractions.fix_kinds(kernel, plans)
    observe("choose_contractions", kernel)
    bound = dict(choose_contractions.rebind(kernel, plans))
    made = (thread_decision, *access_decisions, *product_decisions)
    return Chosen(kernel, threads, bound, made)


def plan_products(
    kernel: KernelIR, threads: int, target: Target, overlap: frozenset[str] = frozenset(), observe: Observer = _ignore
) -> tuple[KernelIR, dict[Dot, ContractionPlan], tuple[Decision, ...]]:
    """A plan for every product, and the kernel whose products they are: with operands as they are stored, where a plan
    would round back what the text widened."""
    plans, decisions = choose_contractions.run(kernel, threads, target)
    narrowed, narrow_decisions = narrow_operands.run(kernel, plans)
    if narrowed is not kernel:
        kernel = simplify.run(narrowed, overlap)
        observe("narrow_operands", kernel)
        plans, decisions = choose_contractions.run(kernel, threads, target)
    return kernel, plans, (*narrow_decisions, *decisions)


def algebra(
    kernel: KernelIR, spec: Specialization, observe: Observer = _ignore, *, fast: bool = False
) -> tuple[KernelIR, tuple[Decision, ...]]:
    """What the numeric contract allows once the kinds of products are known. `fast`: precision = fast."""
    # lazy_rescale and partial_sums recognise exponentials as written, so they come before fold_scale.
    steps: tuple[tuple[str, str | None, Callable[[KernelIR], tuple[KernelIR, tuple[Decision, ...]]]], ...] = (
        ("approximate", None, approximate.run),
        ("lazy_rescale", "rescale", lambda k: lazy_rescale.run(k, spec, fast=fast)),
        ("partial_sums", "sums", lambda k: partial_sums.run(k, spec)),
        ("fold_scale", "fold", lambda k: fold_scale.run(k, spec)),
        ("peel_masks", "peel", peel_masks.run),
    )
    decisions: list[Decision] = []
    for name, option, step in steps:
        if option is not None and getattr(kernel.options, option) == "off":
            reason = f"the option {option} = off"
            decisions.append(
                Decision(stage="algebra", subject=name, choice="off", reason=reason, line=kernel.span.line)
            )
            continue
        kernel, made = step(kernel)
        decisions.extend(made)
        observe(name, kernel)
    kernel = simplify.run(kernel, spec.overlap)
    kernel = hoist.run(kernel, spec.overlap)
    observe("algebra", kernel)
    return kernel, tuple(decisions)


def run(
    kernel: KernelIR,
    target: Target,
    spec: Specialization,
    *,
    debug: bool = False,
    fast_math: bool = False,
    observe: Observer = _ignore,
) -> Lowered:
    """Runs every pass in order; `observe` sees the state after each. Raises CompileError for what cannot be lowered."""
    chosen = choose(kernel, target, spec, observe)
    fast = fast_math or chosen.kernel.options.precision == "fast"
    (kernel, algebra_decisions), threads = algebra(chosen.kernel, spec, observe, fast=fast), chosen.threads
    plans = dict(choose_contractions.rebind(kernel, chosen.plans))
    facts = ScalarFacts(kernel, spec)
    place = placement.analyse(kernel)
    reasons: dict[Value, str] = {}
    layouts = assign_layouts.run(kernel, plans, place, facts, threads, reasons)
    # --- scheduled IR
    order, order_decisions = block_order.run(kernel, debug=debug)
    schedule = assign_storage.run(
        kernel, spec, facts, place, layouts, plans, threads, order, debug=debug, fast_math=fast_math
    )
    layout_decisions = describe.layout_decisions(layouts, reasons, place)
    products = describe.operand_decisions(schedule)
    before = (*order_decisions, *chosen.decisions, *products, *algebra_decisions, *layout_decisions)
    schedule = replace(schedule, decisions=(*before, *schedule.decisions))
    observe("assign_storage", schedule)
    schedule = _stage_and_pack(schedule, kernel, target)
    observe("pack_shared", schedule)
    schedule = replace(schedule, decisions=(*schedule.decisions, *describe.access_decisions(schedule, spec)))
    idle = without_effect.run(chosen, schedule, target)
    schedule = place_barriers.run(replace(schedule, decisions=(*idle, *schedule.decisions)))
    observe("place_barriers", schedule)
    return Lowered(kernel, schedule)


def _stage_and_pack(schedule: Schedule, kernel: KernelIR, target: Target) -> Schedule:
    """Rings of as many stages as asked for or, by default, as bring enough bytes in flight and fit shared memory."""

    asked = kernel.options.stages
    schedule = replace(schedule, decisions=(*schedule.decisions, *register_operands.decisions(schedule)))

    def attempt(stages: int) -> Schedule:
        staged = stage_loads.run(schedule, target, stages, "the option stages = 1" if asked == 1 else "")
        if kernel.options.state != "shared":
            staged = hoist_operands.run(staged)
        return pack_shared.run(staged, target, kernel.dynshared)

    if asked != "auto":
        return attempt(int(asked))
    too_large = None
    for stages in range(stage_loads.automatic_stages(schedule, target), 1, -1):
        try:
            return attempt(stages)
        except CompileError as error:  # does not fit: fewer stages
            too_large = error.diagnostics[0].message
    found = attempt(1)
    if too_large is None:
        return found
    decision = Decision(
        stage="staging", subject="rings of copies ahead", choice="none", reason=f"with two stages {too_large}",
    )  # fmt: skip
    return replace(found, decisions=(*found.decisions, decision))
