"""The layouts' addresses beside those that the emulator records, for one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos import emulator
from phobos.codegen.kernel import print_kernel
from phobos.emulator.conflicts import conflicts
from phobos.ir.abi import Specialization, TensorArg
from phobos.ir.tile import KernelIR
from phobos.passes import pipeline
from phobos.source import SourceFile
from phobos.target import get_target
from phobos.trace import record
from phobos.trace.accesses import OPAQUE, by_warp, cost
from phobos.trace.machine import Executed, Machine

Cost = dict[tuple[Any, ...], tuple[int, int]]


@dataclass(frozen=True)
class Compared:
    """What differs, costs by (space, line, kind, write, tensor, size) from the layouts and from the recorded addresses
    (of those whose lanes are all active or all idle in every request), and how many accesses there were."""

    differences: list[str]
    unknown: set[str]
    layouts: Cost
    recorded: Cost
    accesses: int


def compare(
    kernel: KernelIR, arguments: Mapping[str, Any], dims: Mapping[str, int], spec: Specialization, source: SourceFile,
    arch: str = "sm_90a",
) -> Compared:  # fmt: skip
    """Runs the schedule on the machine and its text on the emulator; the arguments stay as they are."""
    schedule = pipeline.run(kernel, get_target(arch), spec).schedule
    program = print_kernel(schedule, source)
    x, y, z = (g.evaluate(dims) for g in schedule.grid)
    arrays = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray)}
    scalars = {n: a for n, a in arguments.items() if n not in arrays}
    machine = Machine(schedule, _same_memory(arrays), scalars, dims, (x, y, z))
    blocks = [machine.run((i, j, k)) for k in range(z) for j in range(y) for i in range(x)]
    result = emulator.run(program, {**_same_memory(arrays), **scalars}, dims=dims, record=True)
    assert result.accesses is not None and not result.reports, result.reports
    tensors = [a.name for a in program.args if isinstance(a, TensorArg)]
    found = record.differences(record.as_records(blocks, tensors), result.accesses, record.opaque_lines(blocks))
    whole = _uniform(blocks, tensors)
    recorded = {
        key: (c.transactions, c.ideal)
        for c in conflicts(result.accesses)
        if (key := (c.space, c.line, c.kind, c.is_write, c.tensor, c.size)) in whole
    }
    return Compared(
        differences=found, unknown={e.unknown for b in blocks for e in b if e.unknown}, layouts=whole,
        recorded=recorded, accesses=len(result.accesses),
    )  # fmt: skip


def _same_memory(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies with the strides of the originals; arrays that are one object stay one."""
    out: dict[int, np.ndarray] = {}
    for array in arrays.values():
        if id(array) not in out:
            span = sum((n - 1) * st for n, st in zip(array.shape, array.strides)) + array.itemsize if array.size else 0
            copy = np.ndarray(array.shape, array.dtype, np.zeros(span + 16, np.uint8).data, 0, array.strides)
            copy[...] = array
            out[id(array)] = copy
    return {name: out[id(array)] for name, array in arrays.items()}


def _uniform(blocks: Sequence[Sequence[Executed]], tensors: Sequence[str]) -> Cost:
    """Costs as the trace has them, without keys in which some lanes of a warp sit out a request that others make: the
    emulator cannot tell which of their accesses belong together."""
    total: Cost = {}
    partial: Counter[tuple[Any, ...]] = Counter()
    for executed in blocks:
        for e in executed:
            for request in e.log.requests:
                site = request.site
                tensor = tensors.index(site.name) if site.memory == "global" else -1
                kind = "plain" if site.kind == OPAQUE else site.kind
                key = (site.memory, e.statement.span.line, kind, site.write, tensor, site.size)
                for _, offsets in by_warp(request):
                    found = cost(site, offsets)
                    if found is None or (min(offsets) < 0 and site.kind != "ldmatrix"):
                        partial[key] += 1
                        continue
                    count, ideal = total.get(key, (0, 0))
                    total[key] = (count + found.count, ideal + found.ideal)
    return {key: value for key, value in total.items() if key not in partial}
