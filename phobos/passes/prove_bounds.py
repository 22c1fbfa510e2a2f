"""prove_bounds: clears `guarded` on axis ranges that provably lie inside their tensor.

Precondition: simplified KernelIR. Postcondition: the same meaning for every launch that passes the launch checks
(@aligned promises and the specialization's dim multiples included); fewer guards.
"""

from __future__ import annotations

from dataclasses import replace

from phobos.ir.abi import Specialization
from phobos.ir.tile import Atomic, AxisRange, KernelIR, Load, Op, Store, View
from phobos.ir.walk import rewrite_kernel
from phobos.passes.facts import ScalarFacts


def run(kernel: KernelIR, spec: Specialization) -> KernelIR:
    facts = ScalarFacts(kernel, spec)

    def prove(op: Op, values: object) -> list[Op] | None:
        if not isinstance(op, (Load, Store, Atomic)):
            return None
        view = _proved(op.view, facts)
        return None if view is op.view else [replace(op, view=view)]

    return rewrite_kernel(kernel, prove)


def _proved(view: View, facts: ScalarFacts) -> View:
    axes = tuple(
        replace(axis, guarded=False)
        if isinstance(axis, AxisRange) and axis.guarded and facts.whole(axis, dim)
        else axis
        for axis, dim in zip(view.axes, view.tensor.type.dims)
    )
    return view if all(a is b for a, b in zip(axes, view.axes)) else replace(view, axes=axes)
