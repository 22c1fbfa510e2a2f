"""without_effect: what a kernel asks for and its schedule does not follow.

Values of options that no pass acts on are listed in `ir/options.py`. Others act where there is something to act on:
whether they did is read from the finished schedule, or from the plans of the products without them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from phobos.diagnostics import CompileError
from phobos.ir.abi import NO_EFFECT, Decision
from phobos.ir.scheduled import Contract, Schedule, StepDeclare, walk
from phobos.ir.tile import Dot, KernelIR
from phobos.ir.walk import kernel_ops
from phobos.passes import choose_contractions, hoist_operands
from phobos.target import Target

if TYPE_CHECKING:
    from phobos.passes.pipeline import Chosen

_WITH_PRODUCTS = ("matmul", "overlap", "stages", "swizzle", "pad")  # options that only products heed


def possible(kernel: KernelIR) -> bool:
    """May something of the kernel be without effect? Where not, nobody need lower it to find out."""
    return bool(kernel.options.non_default()) or (kernel.tensorcore is not None and not _products(kernel))


def run(chosen: Chosen, schedule: Schedule, target: Target) -> tuple[Decision, ...]:
    """What the kernel asks for in vain. `chosen`: its products as they were planned."""
    kernel, plans = chosen.kernel, chosen.plans
    found = [(f"{name} = {value}", reason) for name, value, reason in kernel.options.without_effect()]
    if kernel.options.state == "shared" and hoist_operands.run(schedule) is not schedule:
        found = [x for x in found if x[0] != "state = shared"]  # it keeps an operand from being held in registers
    asked = {name: getattr(kernel.options, name) for name in _WITH_PRODUCTS}
    asked = {name: value for name, value in asked.items() if value not in ("auto", "off", 1)}
    if not plans:
        nothing = f"{'this variant' if kernel.configuration else 'the kernel'} has no product"
        found += [(f"{name} = {value}", nothing) for name, value in asked.items()]
        if kernel.tensorcore is not None:
            found.insert(0, ("@tensorcore", nothing))
    else:
        for name, value in asked.items():
            if name == "stages":
                reason = _stages(int(value), schedule)
            elif name == "overlap":
                reason = _overlap(schedule)
            elif name in ("swizzle", "pad"):
                reason = _layouts(name, chosen, schedule, target)
            else:
                reason = None  # PH0510 where it does not hold
            if reason is not None:
                found.append((f"{name} = {value}", reason))
    return tuple(
        Decision(stage=NO_EFFECT, subject=subject, choice="no effect", reason=reason, line=kernel.span.line)
        for subject, reason in found
    )


def _products(kernel: KernelIR) -> bool:
    return any(isinstance(op, Dot) for op in kernel_ops(kernel))


def _stages(stages: int, schedule: Schedule) -> str | None:
    """Why no tile has that many stages, or None."""
    if any(b.stages == stages for b in schedule.offsets):
        return None
    said = [d for d in schedule.decisions if d.stage == "staging" and " from " in d.subject]
    if not said:
        return "no loop brings in a tile that a product reads"
    if all(d.choice.startswith("ring") for d in said):
        return "`@pipeline` before the loop goes first"
    first = next(d for d in said if not d.choice.startswith("ring"))
    return f"{first.subject} (line {first.line}) is {first.choice}, because {first.reason}"


def _overlap(schedule: Schedule) -> str | None:
    """Why no product loads operands a step ahead, or None."""
    products = [s for s in walk(schedule.body) if isinstance(s, Contract)]
    if any(isinstance(s, StepDeclare) for s in walk(schedule.body)):
        return None
    if any(s.plan.loads_ahead and s.a_name is None for s in products):
        return None
    plan = products[0].plan
    if products[0].a_name is not None:
        return "the left operand of the product stays in registers"
    if plan.ahead and plan.steps < 2:
        return f"k = {plan.query.k} is a single step, so that there is none to load ahead"
    return f"products by {plan.room} in this arrangement ({plan.description}) load nothing a step ahead"


def _layouts(option: str, chosen: Chosen, schedule: Schedule, target: Target) -> str | None:
    """Why operands are stored as without the option, or None where some are not."""
    kernel = chosen.kernel
    try:
        off = replace(kernel, options=replace(kernel.options, **{option: "off"}))
        others, _ = choose_contractions.run(off, chosen.threads, target)
    except CompileError:
        return None
    stored = {b.layout for b in schedule.offsets}
    pairs = [
        pair
        for op, plan in chosen.plans.items()
        for pair in ((plan.a_layout, others[op].a_layout), (plan.b_layout, others[op].b_layout))
        if pair[0] in stored
    ]
    if any(mine != other for mine, other in pairs):
        return None
    if not pairs:
        return "no operand of a product is in shared memory"
    rooms = " and ".join(dict.fromkeys(p.room for p in chosen.plans.values()))
    rows = ", ".join(dict.fromkeys(str(mine.shape[mine.order[-1]] * mine.itemsize) for mine, _ in pairs))
    if option == "swizzle":
        return f"products by {rooms} permute no rows of {rows} bytes"
    if all(mine.swizzle for mine, _ in pairs):
        return "the rows of the operands are permuted, which takes no padding"
    return f"products by {rooms} store rows of {rows} bytes the same way without it"
