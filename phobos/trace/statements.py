"""What each statement of the scheduled IR does to all threads of a block, mirroring how it is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phobos.codegen.reductions import _lane_masks
from phobos.ir import scheduled as s
from phobos.ir.storage import Buffer, Expr, Fragment, FragmentRef, Position
from phobos.ir.types import DType
from phobos.layout.loops import Nest, plan
from phobos.layout.register import RegisterLayout
from phobos.reference.elementwise import compute
from phobos.reference.numerics import carrier_dtype, from_storage, to_storage
from phobos.trace import rooms
from phobos.trace.accesses import ASYNC, ATOMIC, PLAIN, Log, Site
from phobos.trace.machine import Machine
from phobos.trace.slots import from_tile, kept_registers, owner_threads, register_order, to_tile, warp_part
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
        gathered = isinstance(axis, s.GatherAxis)
        if gathered or axis.low:
            inside = inside & (at >= 0)
        if gathered or axis.high:
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
    strides = np.array(buffer.layout.strides)
    index = (layout.positions * strides).sum(axis=-1)
    if buffer.layout.swizzle:
        line = index // buffer.layout.pitch % buffer.layout.swizzle
        index = (index * buffer.layout.itemsize ^ line * 16) // buffer.layout.itemsize
    return index


def _fill_buffer(m: Machine, buffer: Buffer, stage: int, index: Array, active: Array, values: Array, source: DType) -> None:
    contents = m.contents(buffer)[stage]
    inside = active & (index >= 0) & (index < contents.size)
    contents[index[inside]] = m.stored(buffer, np.broadcast_to(values, index.shape), source)[inside]


def global_to_shared(m: Machine, x: s.GlobalToShared, log: Log) -> None:
    layout, buffer = x.layout, x.buffer
    t = _Transfer(m, x.view, layout, log)
    owners = owner_threads(layout) & t.inside
    last, item = layout.rank - 1, buffer.dtype.bytes
    wide = t.vector > 1 and buffer.layout.vector_width(last, t.vector) == t.vector and not buffer.layout.swizzle
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
    _fill_buffer(m, buffer, stage, index, owners & layout.valid, t.values(x.fill), x.view.dtype)


def async_copy(m: Machine, x: s.AsyncCopy, log: Log) -> None:
    layout, buffer = x.layout, x.buffer
    t = _Transfer(m, x.view, layout, log)
    owners = owner_threads(layout) & t.inside
    stage = int(m.evaluator(log).scalar(x.stage))
    index = _shared_index(buffer, layout)
    offsets = m.base(buffer, stage) + index * buffer.dtype.bytes
    target = Site("shared", buffer.name, True, t.vector * buffer.dtype.bytes, ASYNC)
    for r in t.order:
        log.add(t.site(False, ASYNC), t.offsets[:, :, r], (owners & t.bounds)[:, :, r])
        log.add(target, offsets[:, :, r], owners[:, :, r])
    _fill_buffer(m, buffer, stage, index, owners & layout.valid, t.values(0), x.view.dtype)


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
        log.add(Site("shared", x.scratch.name, True, x.scratch.dtype.bytes), np.full((m.warps, 32), m.base(x.scratch, 0)), one)
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
    index: Any = np.int64(0)
    for e, stride in zip(x.at, shared.strides):
        index = index + evaluator.slots(e, layout, order).astype(np.int64) * stride
    active = owner_threads(layout) & layout.valid
    if x.guard is not None:
        active = active & evaluator.slots(x.guard, layout, order).astype(bool)
    stage = m.stage(buffer) if x.stage is None else int(m.evaluator(log).scalar(x.stage))
    offsets = m.base(buffer, stage) + index * buffer.dtype.bytes
    site = Site("shared", buffer.name, True, vector * buffer.dtype.bytes)
    for r in order:
        log.add(site, offsets[:, :, r], active[:, :, r])
    _fill_buffer(m, buffer, stage, index, active, m.fragment(x.source), x.source.dtype)


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
    index = sum(g * st for g, st in zip(np.indices(layout.shape), layout.strides))
    m.contents(x.buffer)[m.stage(x.buffer)][index] = summed


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

    def __init__(self, m: Machine, kind: str, dtype: DType, combine: Expr | None, init: Expr | None, log: Log, shape: Any):
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
    nest = _nest(m, layout, merge=False, outer=kept)
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
    for r in register_order(_nest(m, layout, merge=False)):
        for buffer, source in zip(x.scratch, x.sources):
            index = _scratch_index(layout, buffer, part)
            item = buffer.dtype.bytes
            log.add(Site("shared", buffer.name, True, item), m.base(buffer, 0) + index[:, :, r] * item, active[:, :, r])
    for buffer, source in zip(x.scratch, x.sources):
        _fill_buffer(m, buffer, 0, _scratch_index(layout, buffer, part), active, m.fragment(source), source.dtype)


def reduce_collect(m: Machine, x: s.ReduceCollect, log: Log) -> None:
    layout = x.targets[0].layout
    shape = (m.warps, 32, layout.registers)
    fold = _Fold(m, x.kind, x.targets[0].dtype, x.combine, x.init, log, shape)
    parts = x.scratch[0].layout.shape[0]
    for r in register_order(_nest(m, layout, merge=False)):
        for part in range(parts):
            for buffer in x.scratch:
                index, item = _scratch_index(layout, buffer, part), buffer.dtype.bytes
                at = m.base(buffer, 0) + index[:, :, r] * item
                log.add(Site("shared", buffer.name, False, item), at, layout.valid[:, :, r])
    for part in range(parts):
        read = [m.contents(b)[0][np.minimum(_scratch_index(layout, b, part), b.layout.elements - 1)] for b in x.scratch]
        fold.add(read[0], read[1] if len(read) > 1 else None, layout.valid)
    fold.finish(x.targets)


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
    s.AsyncWait: nothing,
    s.WriteShared: write_shared,
    s.ReadShared: read_shared,
    s.ReduceRegisters: reduce_registers,
    s.ReducePublish: reduce_publish,
    s.ReduceCollect: reduce_collect,
    s.ScanShared: scan_shared,
    s.Contract: contract,
    s.OperandLoad: operand_load,
    s.StepDeclare: step_declare,
    s.StepLoad: step_load,
    s.StepMultiply: step_multiply,
    s.OpaqueFill: opaque_fill,
    s.OpaqueLoad: opaque_load,
    s.OpaqueStore: opaque_store,
    s.AtomicGlobal: atomic_global,
    s.AtomicScalar: atomic_scalar,
    s.PrintStmt: nothing,
    s.AssertStmt: nothing,
    s.Barrier: nothing,
}
