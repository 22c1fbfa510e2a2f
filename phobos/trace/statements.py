"""What each statement of the scheduled IR does to all threads of a block, mirroring how it is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phobos.ir import scheduled as s
from phobos.ir.storage import Buffer, FragmentRef, Position
from phobos.ir.types import DType
from phobos.layout.loops import Nest, plan
from phobos.layout.register import RegisterLayout
from phobos.reference.elementwise import compute
from phobos.reference.numerics import carrier_dtype, from_storage, to_storage
from phobos.trace import combine
from phobos.trace.accesses import ASYNC, ATOMIC, PLAIN, Log, Site
from phobos.trace.machine import Machine
from phobos.trace.slots import kept_registers, owner_threads, register_order
from phobos.transfer.plain import vector_of

Array = np.ndarray


def _nest(m: Machine, layout: RegisterLayout, vector: int = 1, **options: Any) -> Nest:
    return plan(layout, m.printer.threads, vector=vector, **options)


# --- views -----------------------------------------------------------------------------------


def _positions(m: Machine, view: s.GlobalView, layout: RegisterLayout | None, log: Log) -> list[Array]:
    """Position along each axis of the tensor, over slots (scalars for a single element)."""
    out: list[Array] = []
    for axis in view.axes:
        if isinstance(axis, s.GatherAxis):
            assert layout is not None
            held = m.fragment(axis.index)
            out.append(held[:, :, kept_registers(layout, frozenset((axis.tile_axis,)))].astype(np.int64))
        elif isinstance(axis, s.RangeAxis):
            assert layout is not None
            out.append(np.int64(m.evaluator(log).scalar(axis.start)) + layout.positions[..., axis.tile_axis])
        else:
            out.append(np.asarray(m.evaluator(log).scalar(axis.index), dtype=np.int64))
    return out


def _bounds(m: Machine, view: s.GlobalView, positions: list[Array]) -> Array:
    """Where the checks that the view asks for pass."""
    inside: Any = np.True_
    for axis, at, extent in zip(view.axes, positions, m.arrays[view.tensor].shape):
        if isinstance(axis, s.GatherAxis) or axis.low:
            inside = inside & (at >= 0)
        if isinstance(axis, s.GatherAxis) or axis.high:
            inside = inside & (at < extent)
    return np.asarray(inside)


def _bytes(m: Machine, view: s.GlobalView, positions: list[Array]) -> Array:
    offset: Any = np.int64(0)
    for at, stride in zip(positions, m.strides(view.tensor)):
        offset = offset + at * stride
    return np.asarray(offset * view.dtype.bytes)


class _Transfer:
    """A view distributed over threads: accesses of `vector` elements in the order of `order`."""

    def __init__(self, m: Machine, view: s.GlobalView, layout: RegisterLayout, log: Log, vector: int | None = None):
        self.m, self.view, self.layout = m, view, layout
        self.vector = vector_of(m.view_text(view), layout) if vector is None else vector
        self.order = register_order(_nest(m, layout, self.vector, merge=False))
        shape = (m.warps, 32, layout.registers)
        self.positions = [np.broadcast_to(p, shape) for p in _positions(m, view, layout, log)]
        # A vector is checked at its first element.
        first = np.arange(layout.registers) // self.vector * self.vector
        self.bounds = np.broadcast_to(_bounds(m, view, self.positions), shape)[:, :, first]
        self.inside = layout.valid[:, :, first]
        self.offsets = np.broadcast_to(_bytes(m, view, self.positions), shape)

    def values(self, fill: int | float | bool) -> Array:
        read = self.m.read_tensor(self.view.tensor, self.view.dtype, self.positions, self.bounds)
        return np.where(self.bounds & self.inside, read, np.asarray(fill).astype(read.dtype))

    def site(self, write: bool, kind: str = PLAIN) -> Site:
        return Site("global", self.view.tensor, write, self.vector * self.view.dtype.bytes, kind)


def load_global(m: Machine, x: s.LoadGlobal, log: Log) -> None:
    t = _Transfer(m, x.view, x.target.layout, log)
    for r in t.order:
        log.add(t.site(False), t.offsets[:, :, r], (t.bounds & t.inside)[:, :, r])
    m.set_fragment(x.target, t.values(x.fill))


def store_global(m: Machine, x: s.StoreGlobal, log: Log) -> None:
    layout = x.source.layout
    t = _Transfer(m, x.view, layout, log)
    active = t.bounds & t.inside & owner_threads(layout)
    for r in t.order:
        log.add(t.site(True), t.offsets[:, :, r], active[:, :, r])
    m.write_tensor(x.view.tensor, x.view.dtype, t.positions, active & layout.valid, m.fragment(x.source))


def _shared_index(buffer: Buffer, layout: RegisterLayout) -> Array:
    """Element index in the tile of every slot."""
    return buffer.layout.index([layout.positions[..., axis] for axis in range(layout.rank)])


def global_to_shared(m: Machine, x: s.GlobalToShared, log: Log) -> None:
    layout, buffer = x.layout, x.buffer
    t = _Transfer(m, x.view, layout, log)
    owners = owner_threads(layout) & t.inside
    last, item = layout.rank - 1, buffer.dtype.bytes
    wide = t.vector > 1 and buffer.layout.vector_width(last, t.vector) == t.vector
    stage = m.stage(buffer)
    index = _shared_index(buffer, layout)
    offsets = m.base(buffer, stage) + index * item
    whole, single = (Site("shared", buffer.name, True, n * item) for n in (t.vector, 1))
    for r in t.order:
        log.add(t.site(False), t.offsets[:, :, r], (owners & t.bounds)[:, :, r])
        if wide or t.vector == 1:
            log.add(whole, offsets[:, :, r], owners[:, :, r])
        else:
            for v in range(t.vector):
                log.add(single, offsets[:, :, r + v], owners[:, :, r])
    m.fill(buffer, stage, index, owners & layout.valid, t.values(x.fill), x.view.dtype)


def async_copy(m: Machine, x: s.AsyncCopy, log: Log) -> None:
    layout, buffer = x.layout, x.buffer
    t = _Transfer(m, x.view, layout, log)
    owners = owner_threads(layout) & t.inside
    stage = int(m.evaluator(log).scalar(x.stage)) // buffer.stage_bytes
    index = _shared_index(buffer, layout)
    offsets = m.base(buffer, stage) + index * buffer.dtype.bytes
    target = Site("shared", buffer.name, True, t.vector * buffer.dtype.bytes, ASYNC)
    for r in t.order:
        log.add(t.site(False, ASYNC), t.offsets[:, :, r], (owners & t.bounds)[:, :, r])
        log.add(target, offsets[:, :, r], owners[:, :, r])
    m.fill(buffer, stage, index, owners & layout.valid, t.values(0), x.view.dtype)


def load_scalar(m: Machine, x: s.LoadScalar, log: Log) -> None:
    positions = _positions(m, x.view, None, log)
    inside = bool(_bounds(m, x.view, positions))
    log.add(
        Site("global", x.view.tensor, False, x.view.dtype.bytes),
        np.full((m.warps, 32), int(_bytes(m, x.view, positions))),
        np.full((m.warps, 32), inside),
    )
    value = m.read_tensor(x.view.tensor, x.view.dtype, positions, np.asarray(inside))
    m.scalars[x.target.name] = value[()] if inside else np.asarray(x.fill).astype(carrier_dtype(x.target.dtype))[()]


def _first_thread(m: Machine) -> Array:
    out = np.zeros((m.warps, 32), dtype=bool)
    out[0, 0] = True
    return out


def store_scalar(m: Machine, x: s.StoreScalar, log: Log) -> None:
    positions = _positions(m, x.view, None, log)
    value = m.evaluator(log).scalar(x.value)
    inside = _bounds(m, x.view, positions)
    active = _first_thread(m) & inside
    log.add(Site("global", x.view.tensor, True, x.view.dtype.bytes), _bytes(m, x.view, positions)[None, None], active)
    m.write_tensor(x.view.tensor, x.view.dtype, positions, inside, np.asarray(value))


# --- atomics ---------------------------------------------------------------------------------


def _update(kind: str, old: Any, values: list[Any], dtype: DType) -> Any:
    if kind == "cas":
        return values[1] if old == values[0] else old
    return compute(kind, [np.asarray(old), np.asarray(values[0])], dtype, False)


def atomic_global(m: Machine, x: s.AtomicGlobal, log: Log) -> None:
    layout = x.values[0].layout
    t = _Transfer(m, x.view, layout, log, vector=1)
    active = t.bounds & t.inside & owner_threads(layout)
    site = t.site(True, ATOMIC)
    old = np.zeros((m.warps, 32, layout.registers), carrier_dtype(x.view.dtype))
    array = m.arrays[x.view.tensor]
    held = [m.fragment(v) for v in x.values]
    for r in t.order:
        log.add(site, t.offsets[:, :, r], active[:, :, r])
        for w, lane in np.argwhere(active[:, :, r]):
            at = tuple(int(p[w, lane, r]) for p in t.positions)
            before = from_storage(np.asarray(array[at]), x.view.dtype)
            after = _update(x.kind, before, [h[w, lane, r] for h in held], x.view.dtype)
            array[at] = to_storage(np.asarray(after), x.view.dtype, array.dtype)
            old[w, lane, r] = before
    if x.old is not None:
        m.set_fragment(x.old, old)


def atomic_scalar(m: Machine, x: s.AtomicScalar, log: Log) -> None:
    positions = _positions(m, x.view, None, log)
    values = [m.evaluator(log).scalar(v) for v in x.values]
    inside = bool(_bounds(m, x.view, positions))
    one = _first_thread(m)
    site = Site("global", x.view.tensor, True, x.view.dtype.bytes, ATOMIC)
    log.add(site, _bytes(m, x.view, positions)[None, None], one & inside)
    before: Any = 0
    if inside:
        array = m.arrays[x.view.tensor]
        at = tuple(int(p) for p in positions)
        before = from_storage(np.asarray(array[at]), x.view.dtype)
        array[at] = to_storage(np.asarray(_update(x.kind, before, values, x.view.dtype)), x.view.dtype, array.dtype)
    if x.scratch is not None:
        log.add(
            Site("shared", x.scratch.name, True, x.scratch.dtype.bytes),
            np.full((m.warps, 32), m.base(x.scratch, 0)),
            one,
        )
        m.contents(x.scratch)[0][0] = before


# --- registers and shared memory -------------------------------------------------------------


def declare_fragment(m: Machine, x: s.DeclareFragment, log: Log) -> None:
    m.fragments.pop(x.fragment.name, None)


def set_scalar(m: Machine, x: s.SetScalar, log: Log) -> None:
    value = m.evaluator(log).scalar(x.value)
    m.scalars[x.target.name] = np.asarray(value).astype(carrier_dtype(x.target.dtype))[()]


def map_slots(m: Machine, x: s.Map, log: Log) -> None:
    layout = x.target.layout
    target = FragmentRef(x.target.dtype, x.target)
    nest = plan(layout, m.printer.threads, (x.value, target))
    m.set_fragment(x.target, m.evaluator(log).slots(x.value, layout, register_order(nest)))


def move_registers(m: Machine, x: s.MoveRegisters, log: Log) -> None:
    m.set_fragment(x.target, m.fragment(x.source)[:, :, list(x.moves)])


def write_shared(m: Machine, x: s.WriteShared, log: Log) -> None:
    layout, buffer = x.source.layout, x.buffer
    shared = buffer.layout
    last = layout.rank - 1
    straight = len(x.at) == layout.rank and all(isinstance(e, Position) and e.axis == n for n, e in enumerate(x.at))
    vector = 1
    if straight and x.guard is None and not layout.padded(last):
        run = layout.contiguous_run(last)
        vector = shared.vector_width(last, 16)
        while vector > 1 and (run % vector or vector * shared.itemsize > 16):
            vector //= 2
    order = register_order(_nest(m, layout, vector, merge=False))
    evaluator = m.evaluator(log)
    index: Any = shared.index([evaluator.slots(e, layout, order).astype(np.int64) for e in x.at])
    active = owner_threads(layout) & layout.valid
    if x.guard is not None:
        active = active & evaluator.slots(x.guard, layout, order).astype(bool)
    stage = m.stage(buffer) if x.stage is None else int(m.evaluator(log).scalar(x.stage)) // buffer.stage_bytes
    offsets = m.base(buffer, stage) + index * buffer.dtype.bytes
    site = Site("shared", buffer.name, True, vector * buffer.dtype.bytes)
    for r in order:
        log.add(site, offsets[:, :, r], active[:, :, r])
    m.fill(buffer, stage, index, active, m.fragment(x.source), x.source.dtype)


def read_shared(m: Machine, x: s.ReadShared, log: Log) -> None:
    layout, shared = x.target.layout, x.buffer.layout
    last = layout.rank - 1
    vector = shared.vector_width(last, layout.contiguous_run(last)) if not layout.padded(last) else 1
    index = _shared_index(x.buffer, layout)
    offsets = m.schedule.offsets[x.buffer] + index * x.buffer.dtype.bytes
    site = Site("shared", x.buffer.name, False, vector * x.target.dtype.bytes)
    for r in register_order(_nest(m, layout, vector, merge=False)):
        log.add(site, offsets[:, :, r], layout.valid[:, :, r])
    contents = m.contents(x.buffer)[m.stage(x.buffer)]
    values = contents[np.minimum(index, contents.size - 1)]
    m.set_fragment(x.target, np.where(layout.valid, values, np.zeros((), values.dtype)))


def nothing(m: Machine, x: s.Stmt, log: Log) -> None:
    """Order and debugging: no values and no addresses."""


HANDLERS: dict[type[s.Stmt], Callable[[Machine, Any, Log], None]] = {
    s.DeclareFragment: declare_fragment,
    s.SetScalar: set_scalar,
    s.LoadScalar: load_scalar,
    s.StoreScalar: store_scalar,
    s.Map: map_slots,
    s.MoveRegisters: move_registers,
    s.LoadGlobal: load_global,
    s.StoreGlobal: store_global,
    s.GlobalToShared: global_to_shared,
    s.AsyncCopy: async_copy,
    s.AsyncCommit: nothing,
    s.CopyOrigin: nothing,
    s.AsyncWait: nothing,
    s.WriteShared: write_shared,
    s.ReadShared: read_shared,
    s.ReduceRegisters: combine.reduce_registers,
    s.ReducePublish: combine.reduce_publish,
    s.ReduceCollect: combine.reduce_collect,
    s.ScanShared: combine.scan_shared,
    s.Contract: combine.contract,
    s.OperandLoad: combine.operand_load,
    s.StepDeclare: combine.step_declare,
    s.StepLoad: combine.step_load,
    s.StepMultiply: combine.step_multiply,
    s.OpaqueFill: combine.opaque_fill,
    s.OpaqueLoad: combine.opaque_load,
    s.OpaqueStore: combine.opaque_store,
    s.AtomicGlobal: atomic_global,
    s.AtomicScalar: atomic_scalar,
    s.PrintStmt: nothing,
    s.AssertStmt: nothing,
    s.Barrier: nothing,
}
