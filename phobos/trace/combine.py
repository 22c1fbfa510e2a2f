"""What statements of the scheduled IR do to all threads of a block: reductions, scans and products.

Mirrors how they are printed, as phobos.trace.statements does for the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from phobos.codegen.reductions import _lane_masks
from phobos.ir import scheduled as s
from phobos.ir.storage import Buffer, Expr, Fragment
from phobos.ir.types import DType
from phobos.layout.loops import plan
from phobos.layout.register import RegisterLayout
from phobos.reference.elementwise import compute
from phobos.reference.numerics import carrier_dtype
from phobos.trace import rooms
from phobos.trace.accesses import Log, Site
from phobos.trace.machine import Machine
from phobos.trace.slots import from_tile, kept_registers, owner_threads, register_order, to_tile, warp_part

Array = np.ndarray


# --- reductions --------------------------------------------------------------------------------


def _identity(m: Machine, kind: str, dtype: DType, init: Expr | None, log: Log) -> Any:
    carrier = carrier_dtype(dtype)
    if kind == "custom":
        assert init is not None
        return np.asarray(m.evaluator(log).scalar(init)).astype(carrier)
    if kind in ("sum", "prod"):
        return np.asarray(kind == "prod").astype(carrier)
    low = kind in ("max", "argmax")
    if dtype is DType.BOOL:
        return np.asarray(not low)
    if dtype.is_float:
        return np.asarray(-np.inf if low else np.inf, carrier)
    return np.asarray(np.iinfo(carrier).min if low else np.iinfo(carrier).max, carrier)


class _Fold:
    """Running totals of a reduction (and indexes, of argmax and argmin) over threads."""

    def __init__(
        self, m: Machine, kind: str, dtype: DType, combine: Expr | None, init: Expr | None, log: Log, shape: Any
    ):
        self.m, self.kind, self.dtype, self.combine, self.log = m, kind, dtype, combine, log
        self.total = np.broadcast_to(_identity(m, kind, dtype, init, log), shape).copy()
        self.at = np.full(shape, 2**31 - 1, dtype=np.int64)

    def add(self, values: Array, index: Array | None = None, active: Array | None = None) -> None:
        new, at = self.total, self.at
        if self.kind in ("argmax", "argmin"):
            assert index is not None
            more = values > self.total if self.kind == "argmax" else values < self.total
            nan, old_nan = np.isnan(values), np.isnan(self.total)
            same = (values == self.total) | (nan & old_nan)
            better = more | (nan & ~old_nan) | (same & (index < self.at))
            new, at = np.where(better, values, self.total), np.where(better, index, self.at)
        elif self.combine is not None:
            scalars = self.m.scalars
            self.m.scalars = {**scalars, "a": self.total, "b": values}
            new = np.asarray(self.m.evaluator(self.log)._value(self.combine, np.ones(self.total.shape, bool)))
            self.m.scalars = scalars
        else:
            fn = {"sum": "add", "prod": "mul"}.get(self.kind, self.kind)
            new = compute(fn, [self.total, values], self.dtype, False)
        if active is not None:
            new, at = np.where(active, new, self.total), np.where(active, at, self.at)
        self.total, self.at = new.astype(self.total.dtype), at

    def finish(self, targets: tuple[Fragment, ...]) -> None:
        self.m.set_fragment(targets[0], self.total)
        if len(targets) > 1:
            self.m.set_fragment(targets[1], self.at)


def reduce_registers(m: Machine, x: s.ReduceRegisters, log: Log) -> None:
    layout = x.layout
    kept = tuple(a for a in range(layout.rank) if a not in x.axes)
    nest = plan(layout, m.printer.threads, merge=False, outer=kept)
    order = register_order(nest)
    values = m.evaluator(log).slots(x.value, layout, order)
    target = kept_registers(layout, frozenset(kept))
    registers = x.targets[0].layout.registers
    fold = _Fold(m, x.kind, x.targets[0].dtype, x.combine, x.init, log, (m.warps, 32, registers))
    inside = np.ones((m.warps, 32, layout.registers), dtype=bool)
    place = np.zeros((m.warps, 32, layout.registers), dtype=np.int64)
    weight = 1
    for axis in reversed(x.axes):
        at = layout.positions[..., axis]
        place = place + at * weight
        inside = inside & (at < layout.shape[axis])
        weight *= layout.shape[axis]
    for r in order:
        one = np.arange(registers) == target[r]
        fold.add(values[:, :, r : r + 1], place[:, :, r : r + 1], inside[:, :, r : r + 1] & one)
    if x.lanes:
        lanes = np.arange(32)
        for mask in _lane_masks(layout, x.axes):
            fold.add(fold.total[:, lanes ^ mask], fold.at[:, lanes ^ mask])
            log.shuffles.append((mask, registers * len(x.targets)))
    fold.finish(x.targets)


def _scratch_index(layout: RegisterLayout, buffer: Buffer, part: Array | int) -> Array:
    size = int(np.prod(buffer.layout.shape[1:], dtype=np.int64))
    index: Any = np.int64(0) + np.asarray(part) * size
    weight = 1
    for axis in reversed(range(layout.rank)):
        if layout.shape[axis] > 1:
            index = index + layout.positions[..., axis] * weight
        weight *= layout.shape[axis]
    return np.broadcast_to(index, (*layout.positions.shape[:-1],))


def reduce_publish(m: Machine, x: s.ReducePublish, log: Log) -> None:
    layout = x.sources[0].layout
    active = owner_threads(x.source_layout, x.axes) & layout.valid
    part = warp_part(x.source_layout, x.axes)
    for r in register_order(plan(layout, m.printer.threads, merge=False)):
        for buffer in x.scratch:
            index = _scratch_index(layout, buffer, part)
            item = buffer.dtype.bytes
            log.add(Site("shared", buffer.name, True, item), m.base(buffer, 0) + index[:, :, r] * item, active[:, :, r])
    for buffer, source in zip(x.scratch, x.sources):
        m.fill(buffer, 0, _scratch_index(layout, buffer, part), active, m.fragment(source), source.dtype)


def reduce_collect(m: Machine, x: s.ReduceCollect, log: Log) -> None:
    layout = x.targets[0].layout
    shape = (m.warps, 32, layout.registers)
    fold = _Fold(m, x.kind, x.targets[0].dtype, x.combine, x.init, log, shape)
    parts = x.scratch[0].layout.shape[0]
    for r in register_order(plan(layout, m.printer.threads, merge=False)):
        for part in range(parts):
            for buffer in x.scratch:
                index, item = _scratch_index(layout, buffer, part), buffer.dtype.bytes
                at = m.base(buffer, 0) + index[:, :, r] * item
                log.add(Site("shared", buffer.name, False, item), at, layout.valid[:, :, r])
    for part in range(parts):
        read = [m.contents(b)[0][np.minimum(_scratch_index(layout, b, part), b.layout.elements - 1)] for b in x.scratch]
        fold.add(read[0], read[1] if len(read) > 1 else None, layout.valid)
    fold.finish(x.targets)


def scan_shared(m: Machine, x: s.ScanShared, log: Log) -> None:
    layout, dtype = x.buffer.layout, x.buffer.dtype
    other = [a for a in range(len(layout.shape)) if a != x.axis]
    lines = int(np.prod([layout.shape[a] for a in other], dtype=np.int64))
    thread = np.arange(m.warps * 32).reshape(m.warps, 32)
    base, item = m.schedule.offsets[x.buffer], dtype.bytes
    for first in range(0, lines, x.threads):
        line = thread + first
        start: Array = np.zeros_like(line)
        weight = 1
        for a in reversed(other):
            start = start + line // weight % layout.shape[a] * layout.strides[a]
            weight *= layout.shape[a]
        for i in range(layout.shape[x.axis]):
            at = base + (start + i * layout.strides[x.axis]) * item
            for write in (False, True):
                log.add(Site("shared", x.buffer.name, write, item), at, line < lines)
    tile = m.buffer_tile(x.buffer)
    wide = tile.astype(np.float64 if dtype.is_float else tile.dtype)
    summed = np.cumsum(wide, axis=x.axis).astype(tile.dtype)
    m.contents(x.buffer)[m.stage(x.buffer)][layout.index([*np.indices(layout.shape)])] = summed


# --- products ----------------------------------------------------------------------------------


def _operand(m: Machine, buffer: Buffer) -> rooms.Operand:
    return rooms.Operand(buffer.name, m.base(buffer, m.stage(buffer)), buffer.dtype.bytes)


def _right(m: Machine, plan: Any, b: Buffer) -> Array:
    tile = m.buffer_tile(b)
    return tile.T if plan.query.transpose_b else tile


def contract(m: Machine, x: s.Contract, log: Log) -> None:
    assert isinstance(x.b, Buffer)
    if x.a_name is not None:
        a = m.tiles[x.a_name]
    else:
        a = to_tile(x.a.layout, m.fragment(x.a)) if isinstance(x.a, Fragment) else m.buffer_tile(x.a)
    m.add_product(x.accumulator, a, _right(m, x.plan, x.b))
    loaded = isinstance(x.a, Buffer) and x.a_name is None
    rooms.product(log, x.plan, m.warps, _operand(m, x.a) if loaded else None, _operand(m, x.b))  # type: ignore[arg-type]


def operand_load(m: Machine, x: s.OperandLoad, log: Log) -> None:
    m.tiles[x.name] = m.buffer_tile(x.a)
    rooms.operand(log, x.plan, m.warps, _operand(m, x.a))


def step_declare(m: Machine, x: s.StepDeclare, log: Log) -> None:
    return None


def step_load(m: Machine, x: s.StepLoad, log: Log) -> None:
    depth = x.plan.query.k // x.plan.steps
    here = slice(x.step * depth, (x.step + 1) * depth)
    m.tiles[f"{x.name} a {x.slot}"] = m.buffer_tile(x.a)[:, here]
    m.tiles[f"{x.name} b {x.slot}"] = _right(m, x.plan, x.b)[here]
    rooms.step(log, x.plan, m.warps, x.step, _operand(m, x.a), _operand(m, x.b))


def step_multiply(m: Machine, x: s.StepMultiply, log: Log) -> None:
    if x.part[0] + 1 < x.part[1]:
        return  # the whole sum is added with the last part
    m.add_product(x.accumulator, m.tiles[f"{x.name} a {x.slot}"], m.tiles[f"{x.name} b {x.slot}"])


def opaque_fill(m: Machine, x: s.OpaqueFill, log: Log) -> None:
    value = m.evaluator(log).scalar(x.value)
    m.tiles[x.target.name] = np.full(x.target.layout.shape, value, dtype=np.float32)


def opaque_load(m: Machine, x: s.OpaqueLoad, log: Log) -> None:
    m.tiles[x.target.name] = to_tile(x.source.layout, m.fragment(x.source))
    rooms.deliver(log, x.target.plan, m.warps, _operand(m, x.scratch), load=True)


def opaque_store(m: Machine, x: s.OpaqueStore, log: Log) -> None:
    delivered = from_tile(x.target.layout, m.tiles[x.source.name])
    m.set_fragment(x.target, m.fragment(x.target) + delivered if x.add else delivered)
    rooms.deliver(log, x.source.plan, m.warps, _operand(m, x.scratch), load=False)
