"""A first cost model: estimated cycles of a kernel under one configuration, from its tile IR and layouts.

Not a simulator. It counts issue slots, bytes, waves and exposed latency well enough to rank configurations: too few
blocks, too many registers, tiles that do not fit, and padding all cost what they cost on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, prod

from phobos.compiler import default_spec
from phobos.contraction.interface import registers_for_tiles
from phobos.diagnostics import CompileError
from phobos.ir.tile import (
    Atomic,
    Block,
    Cast,
    Compute,
    Constant,
    Dot,
    For,
    GridSize,
    If,
    KernelIR,
    Load,
    Op,
    ProgramId,
    Reduce,
    Reshape,
    Scan,
    Store,
    Value,
    While,
)
from phobos.ir.walk import kernel_ops, walk
from phobos.passes import assign_layouts, choose_threads, hoist, pipeline, placement, simplify
from phobos.passes.facts import ScalarFacts
from phobos.target import STATIC_SHARED_LIMIT, Target

_SMS = {"sm_75": 48, "sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90a": 132, "sm_100a": 148, "sm_120a": 170}
_BYTES_PER_CYCLE = 19.0  # of global memory, per SM: 4.3 TB/s over 132 SMs at 1.75 GHz
_L2_BYTES_PER_CYCLE = 24.0  # of data that an earlier block already brought into the L2, per SM, by cp.async past the L1
# The same through registers: f32 tiles of 128x64x64 that are rounded to f16 on the way came at 8.1 TB/s on an H200.
_L2_BYTES_PER_CYCLE_OF_LOADS = 40.0
# Of tiles that all blocks load to registers, as the weights of a norm: they stay in the L1 (131 us for rows of 8192
# with two of them, 132 us without).
_L1_BYTES_PER_CYCLE = 64.0
_LATENCY = 700.0  # cycles from a global load to data behind a barrier
_PIPELINED = 250.0  # cycles of an iteration around its wait and barrier where loads are on their way before
_DEEP = 12.0  # the same for a loop of one product with three stages or more, whose first fragments are loaded ahead too
_TRIP = 64.0  # issue slots of an iteration beside its products: waits, barriers, addresses, first operands
_TRIP_OF_RING = 12.0  # the same where copies are asynchronous
_TRIP_OF_TURNED = 40.0  # and in a turned loop of one product, whose products fill the rest (BK = 64 gains 2 % over 32)
_COPIES = 8  # 16-byte copies that a thread may start at once before its products are held up
_BURST = 22.0  # issue slots for each more: padded tiles of 128x256x64, 12 at once, took 331 us, 6 of 128x256x32 311
# Cycles for a byte of the first stage: nothing is computed before, and all SMs ask at once.
_FILL = 2.0 / _BYTES_PER_CYCLE
_LINE = 128  # bytes that the L2 gives at once
_WARPS_TO_FILL = 4.0  # warps per SM that keep the issue slots busy, with register tiles as in FMA products
_WARPS_TO_STREAM = 16.0  # warps per SM that keep the memory system busy
_SLOTS = {"exp": 6, "exp2": 4, "log": 8, "div": 9, "sqrt": 8, "rsqrt": 4, "tanh": 16, "erf": 24, "gelu": 30, "pow": 30,
          "sin": 20, "cos": 20, "sigmoid": 16}  # fmt: skip
UNKNOWN_DIM = 4096
_BASE_REGISTERS = 32
_HELD = 200  # registers up to which left operands are kept during a loop, as in passes/hoist_operands.py
_SAFE_REGISTERS = 232  # estimates above have spilled (FMA tiles of 8 x 16 a thread: estimated 256)


@dataclass(frozen=True)
class Estimate:
    """cycles: for the whole grid. `rows`: of tiles that a block's loops load and store, each a piece of memory of its
    own. `short_rows`: those of less than 128 bytes. `why_not` is set where the configuration cannot run."""

    cycles: float
    threads: int
    registers: int
    shared_bytes: int
    blocks: int
    blocks_per_sm: int
    waves: int
    why_not: str | None = None
    rows: float = 0.0
    short_rows: float = 0.0
    across: int = 0  # blocks along the first axis of the grid
    alone: float = 0.0  # cycles of a wave of which nothing is hidden


def estimate(kernel: KernelIR, target: Target, dims: Mapping[str, int]) -> Estimate:
    """The estimate for a checked kernel; dims that are not given count as 4096."""
    try:
        return _estimate(kernel, target, dims)
    except CompileError as error:
        first = error.diagnostics[0]
        # Without the extents in brackets: configurations that fail alike should read alike.
        why_not = f"{first.message.partition(' (')[0]}: {'; '.join(first.notes)}" if first.notes else first.message
        return Estimate(float("inf"), 0, 0, 0, 0, 0, 0, why_not)


def _estimate(kernel: KernelIR, target: Target, dims: Mapping[str, int]) -> Estimate:
    spec = default_spec(kernel)
    kernel = hoist.run(simplify.run(kernel))
    threads, _ = choose_threads.run(kernel)
    kernel, plans, _ = pipeline.plan_products(kernel, threads, target)
    facts = ScalarFacts(kernel, spec)
    place = placement.analyse(kernel)
    layouts = assign_layouts.run(kernel, plans, place, facts, threads)
    counter = _Counter(kernel, plans, place, layouts, dims, target, threads)
    counter.block(kernel.body, 1.0)
    registers = min(255, _BASE_REGISTERS + counter.live_registers())
    shared = counter.shared_bytes()
    sizes = {d.name: dims.get(d.name, UNKNOWN_DIM) for d in kernel.dims}
    blocks = max(1, kernel.grid[0].evaluate(sizes) * kernel.grid[1].evaluate(sizes) * kernel.grid[2].evaluate(sizes))
    limit = target.shared_per_block if kernel.dynshared else STATIC_SHARED_LIMIT
    by_shared = target.shared_per_sm // max(1, shared + target.shared_reserved)
    fits = min(
        target.threads_per_sm // threads,
        target.registers_per_sm // (threads * max(24, -(-registers // 8) * 8)),
        by_shared,
        target.blocks_per_sm,
    )
    per_sm = max(1, fits)
    why_not = None
    if shared > limit:
        why_not = f"{shared} bytes of shared memory, the limit is {limit}"
    elif by_shared < 1:
        why_not = f"{shared} bytes of shared memory a block do not fit an SM"
    elif fits < 1:
        why_not = f"a block of {threads} threads and about {registers} registers each does not fit an SM"
    sms = _SMS[target.arch]
    waves = ceil(blocks / (sms * per_sm))
    resident = min(per_sm, ceil(blocks / sms))
    compute = counter.slots * threads / 32 / 4
    # Few blocks on an SM leave it without loads while all of them reduce or store.
    alternate = 1.3 if resident == 1 else 1.1 if resident == 2 else 1.0
    stream = min(1.0, resident * threads / 32 / _WARPS_TO_STREAM)
    first_touch = min(counter.bytes, _tensor_bytes(kernel, sizes) / blocks)
    again = max(0.0, counter.bytes - first_touch)
    through, kept = min(again, counter.converted), min(again, counter.kept)
    memory = first_touch / _BYTES_PER_CYCLE * alternate / stream
    memory += (again - through - kept) / _L2_BYTES_PER_CYCLE + through / _L2_BYTES_PER_CYCLE_OF_LOADS
    memory += kept / _L1_BYTES_PER_CYCLE
    fill = min(1.0, resident * threads / 32 / _WARPS_TO_FILL)
    alone = compute / min(1.0, threads / 32 / _WARPS_TO_FILL) + counter.latency
    per_wave = max(resident * _together(compute / fill, memory), alone) + counter.fill / resident
    cycles = per_wave * blocks / (sms * resident) if waves > 8 else per_wave * waves
    over = counter.live_registers() + _BASE_REGISTERS - _SAFE_REGISTERS
    if over > 0:
        # A few spilled addresses cost little beside tensor-core products; spilled operands of FMAs cost much.
        tensor = bool(plans) and all(p.room != "fma" for p in plans.values())
        cycles *= 1 + over / (160 if counter.converted else 420 if tensor else 64)
    return Estimate(
        cycles, threads, registers, shared, blocks, per_sm, waves, why_not, counter.rows, counter.short_rows,
        kernel.grid[0].evaluate(sizes), alone,
    )  # fmt: skip


def _quotient(whole: bool, a: float, b: float) -> float:
    quotient = a / b if b else 0.0
    return float(int(quotient)) if whole else quotient


# Scalar arithmetic: (is the result an integer, arguments) -> result.
_FOLDS: dict[str, Callable[..., float]] = {
    "add": lambda _, a, b: a + b, "sub": lambda _, a, b: a - b, "mul": lambda _, a, b: a * b, "div": _quotient,
    "min": lambda _, a, b: min(a, b), "max": lambda _, a, b: max(a, b), "neg": lambda _, a: -a,
    "lt": lambda _, a, b: float(a < b), "le": lambda _, a, b: float(a <= b), "gt": lambda _, a, b: float(a > b),
    "ge": lambda _, a, b: float(a >= b), "eq": lambda _, a, b: float(a == b), "ne": lambda _, a, b: float(a != b),
}  # fmt: skip


def _together(compute: float, memory: float) -> float:
    """Cycles of work on two units that overlap, but not perfectly."""
    return max(compute, memory) + 0.25 * min(compute, memory)


def _tensor_bytes(kernel: KernelIR, sizes: Mapping[str, int]) -> float:
    """Bytes of all tensors, those both read and written twice: what must cross to or from memory at least once."""
    read = {op.view.tensor.name for op in kernel_ops(kernel) if isinstance(op, (Load, Atomic))}
    written = {op.view.tensor.name for op in kernel_ops(kernel) if isinstance(op, (Store, Atomic))}
    total = 0.0
    for t in kernel.tensors:
        size = float(t.type.dtype.bytes)
        for d in t.type.dims:
            size *= d if isinstance(d, int) else sizes[d]
        total += size * ((t.name in read) + (t.name in written))
    return total


class _Counter:
    """Issue slots of a thread, bytes of a block, and dependent rounds of global loads, over a kernel's run."""

    def __init__(  # type: ignore[no-untyped-def]
        self, kernel: KernelIR, plans, place, layouts, dims: Mapping[str, int], target: Target, threads: int
    ):
        self.kernel, self.plans, self.place, self.layouts = kernel, plans, place, layouts
        self.target, self.threads = target, threads
        self.slots = self.bytes = self.latency = self.fill = self.rows = self.short_rows = 0.0
        self.converted = 0.0  # of the bytes those of operands that are converted on the way to shared memory
        self.kept = 0.0  # and those that all blocks load to registers
        self.of_block: set[Value] = set()  # scalars that depend on which block it is
        for op in kernel_ops(kernel):
            if isinstance(op, ProgramId) or self.of_block & set(op.operands()):
                self.of_block.update(v for v in op.defined() if not v.is_tile)
        self.known: dict[Value, float] = {d.value: float(dims.get(d.name, UNKNOWN_DIM)) for d in kernel.dims}
        self.sizes = {d.name: dims.get(d.name, UNKNOWN_DIM) for d in kernel.dims}

    def _registers(self, v: Value) -> int:
        """32-bit registers of a thread for the tile."""
        if v not in self.layouts:
            return 0
        elements = self.layouts[v].registers
        return max(1, elements * v.dtype.bytes // 4)  # halves travel in pairs

    def _round(self, loop: For, loads: list[Load]) -> float:
        """Cycles of one iteration that nothing hides within a CTA."""
        asked = loop.pipeline if loop.pipeline is not None else self.kernel.options.stages
        if not self._ahead(loads) or asked == 1:
            return _LATENCY
        products = [o for o in loop.body.ops if isinstance(o, Dot)]
        # a tile ahead through registers is two stages
        if len(products) != 1 or any(map(self._converted, loads)) or asked == 2:
            return _PIPELINED
        stage = sum(self._operand_bytes(load.result) for load in loads)
        registers = products[0].result.shape[0] * products[0].result.shape[1] // self.threads * 5 // 4 + 72
        ctas = max(1, self.target.registers_per_sm // (self.threads * min(255, registers)))
        limit = self.target.shared_per_block if self.kernel.dynshared else STATIC_SHARED_LIMIT
        stages = min(limit, self.target.shared_per_sm // ctas) // max(1, stage)
        return _DEEP if stages >= 3 else _PIPELINED if stages == 2 else _LATENCY

    def _converted(self, load: Load) -> bool:
        """Is it an operand of products that takes another type on the way to shared memory?"""
        plans = [self.plans[op] for op in self.place.readers.get(load.result, []) if isinstance(op, Dot)]
        return load.result in self.place.staged and any(p.a_dtype is not load.result.dtype for p in plans)

    def _ahead(self, loads: list[Load]) -> bool:
        """Can the tiles of a loop be on their way before their iteration: in a ring, where they go to shared memory as
        they are, or in registers, where the products leave room for them?"""
        through, spare = 0, 255
        for load in loads:
            if load.result not in self.place.staged or load.fill != 0:
                return False
            plans = [self.plans[op] for op in self.place.readers[load.result] if isinstance(op, Dot)]
            as_it_is = all(p.a_dtype is load.result.dtype and not p.rounding for p in plans)
            if not (as_it_is and self.target.has_cp_async):
                through += prod(load.result.shape) * max(1, load.result.dtype.bytes // 4) // self.threads
                spare = min(spare, *(registers_for_tiles(p.c_layout.registers, p.operand_registers) for p in plans))
        return through <= spare

    def block(self, block: Block, times: float) -> None:
        for op in block.ops:
            self._op(op, times)

    def _op(self, op: Op, times: float) -> None:
        self._evaluate(op)
        if isinstance(op, For):
            lo, hi, step = (self.known.get(v, 0.0) for v in (op.lo, op.hi, op.step))
            trips = max(0, ceil((hi - lo) / step)) if step else 1
            # The index itself: the middle of its range stands for all of them.
            self.known[op.body.params[0]] = (lo + hi) / 2
            self.block(op.body, times * trips)
            loads = [o for o in op.body.ops if isinstance(o, Load)]
            if loads:
                self.latency += times * trips * self._round(op, loads)
                plans = [self.plans[o] for o in op.body.ops if isinstance(o, Dot)]
                if plans:
                    ringed = all(p.room != "fma" and all(p.a_dtype is x.result.dtype for x in loads) for p in plans)
                    turned = ringed and len(plans) == 1 and plans[0].ahead
                    self.slots += times * trips * (_TRIP_OF_TURNED if turned else _TRIP_OF_RING if ringed else _TRIP)
                    tiles = [self._operand_bytes(load.result) for load in loads]
                    stage = sum(tiles)
                    if ringed and len(plans) == 1:
                        one_by_one = plans[0].ahead and plans[0].steps > len(tiles)  # passes/whole_tiles.py
                        at_once = (max(tiles) if one_by_one else stage) / 16 / self.threads
                        self.slots += times * trips * _BURST * max(0.0, at_once - _COPIES)
                    if self._ahead(loads):
                        self.fill += times * stage * _FILL
        elif isinstance(op, While):
            self.block(op.condition, times * 8)
            self.block(op.body, times * 8)
        elif isinstance(op, If):
            condition = self.known.get(op.condition)
            self.block(op.then, times * (0.5 if condition is None else condition != 0))
            self.block(op.orelse, times * (0.5 if condition is None else condition == 0))
        elif isinstance(op, Dot):
            plan = self.plans[op]
            self.slots += times * plan.cost
            for v in (op.a, op.b):
                if v not in self.place.staged:  # written to shared memory by its owners
                    self.slots += times * 2 * self._registers(v)
        elif isinstance(op, Load) and op.result.is_tile:
            size = op.result.type.size * op.result.dtype.bytes  # type: ignore[union-attr]
            self.bytes += times * size
            self._count_rows(op.result, times)
            self.converted += times * size if self._converted(op) else 0.0
            shared = op.result not in self.place.staged and not self.of_block & set(op.operands())
            self.kept += times * size if shared else 0.0
            self.slots += times * self._registers(op.result)
            if times == 1.0:
                self.latency += 0.5 * _LATENCY
        elif isinstance(op, Store) and op.value.is_tile:
            self.bytes += times * op.value.type.size * op.value.dtype.bytes  # type: ignore[union-attr]
            self._count_rows(op.value, times)
            self.slots += times * self._registers(op.value)
        elif isinstance(op, Atomic) and op.values[0].is_tile:
            self.slots += times * 8 * self._registers(op.values[0])
        elif isinstance(op, Reduce):
            self.slots += times * (self._registers(op.operand) + 12 * max(1, self._registers(op.result)))
        elif isinstance(op, Scan):
            self.slots += times * 8 * op.operand.shape[op.axis]
        elif isinstance(op, (Compute, Cast)) and op.result.is_tile:
            if any(a in self.place.deferred for a in op.operands()):
                return  # the product adds to its accumulator
            weight = _SLOTS.get(op.fn, 1) if isinstance(op, Compute) else 1
            self.slots += times * weight * self._registers(op.result)

    def _count_rows(self, tile: Value, times: float) -> None:
        rows = times * prod(tile.shape[:-1]) if times > 1 else 0.0
        self.rows += rows
        if tile.shape[-1] * tile.dtype.bytes < _LINE:
            self.short_rows += rows

    def _evaluate(self, op: Op) -> None:
        if isinstance(op, Constant):
            self.known[op.result] = float(op.value)
        elif isinstance(op, ProgramId):
            self.known[op.result] = self.kernel.grid[op.axis].evaluate(self.sizes) / 2
        elif isinstance(op, GridSize):
            self.known[op.result] = float(self.kernel.grid[op.axis].evaluate(self.sizes))
        elif isinstance(op, Cast) and not op.result.is_tile and op.operand in self.known:
            self.known[op.result] = self.known[op.operand]
        elif isinstance(op, Compute) and not op.result.is_tile and all(a in self.known for a in op.args):
            fold = _FOLDS.get(op.fn)
            if fold is not None:
                self.known[op.result] = fold(op.result.dtype.is_integer, *(self.known[a] for a in op.args))

    def live_registers(self) -> int:
        """The largest sum of registers of tiles that live at once."""
        return self._live(self.kernel.body, 0)

    def _live(self, block: Block, outside: int) -> int:
        last = self.place.last_uses(block)
        held: dict[Value, int] = {p: self._registers(p) for p in block.params if p.is_tile}
        peak = outside + sum(held.values())
        hidden = self.place.inlined | self.place.staged | self.place.deferred
        for index, op in enumerate(block.ops):
            if isinstance(op, (Compute, Cast)):  # the result takes the registers of an operand that dies
                held = {v: n for v, n in held.items() if last.get(v, -1) > index}
            for v in op.defined():
                if v.is_tile and v not in hidden:
                    once = isinstance(op, (Load, Reshape)) and len(self.place.readers.get(v, [])) == 1
                    # A load read once is consumed piece by piece as it arrives.
                    held[v] = self._registers(v) // 4 if once else self._registers(v)
            now = outside + sum(held.values())
            if isinstance(op, Dot):
                plan = self.plans[op]
                for v in (op.a, op.b):
                    if v in self.place.staged and v.dtype is not plan.a_dtype:  # converted on the way
                        now += v.shape[0] * v.shape[1] // self.threads
                now += plan.operand_registers + plan.address_registers
                if plan.query.a_computed:  # packed beside what it is computed from
                    now += plan.a_registers
            if isinstance(op, If):  # what a branch makes of a value that dies takes its registers
                before = sum(n for v, n in held.items() if v not in op.results)
                for inner in op.blocks():
                    read = {v for o in walk(inner) for v in o.operands()}
                    taken = sum(n for v, n in held.items() if v in read and last.get(v, -1) <= index)
                    made = sum(self._registers(v) for v in op.results if v.is_tile)
                    now = max(outside + sum(held.values()) - min(taken, made), now - min(taken, made))
                    now = max(now, self._live(inner, outside + before) - min(taken, made))
                peak = max(peak, now)
                held = {v: n for v, n in held.items() if last.get(v, -1) > index}
                continue
            for inner in op.blocks():
                carried = sum(self._registers(p) for p in inner.params if p.is_tile)
                dying = sum(n for v, n in held.items() if last.get(v, -1) <= index)
                inside = self._live(inner, outside + sum(held.values()) - max(dying, carried))
                kept = self._kept_operands(op)
                now = max(now, inside + kept if inside + kept <= _HELD else inside)
            peak = max(peak, now)
            held = {v: n for v, n in held.items() if last.get(v, -1) > index}
        return peak

    def _kept_operands(self, op: Op) -> int:
        """Registers of the left operands that a loop's products read from shared memory, and no iteration changes."""
        if not isinstance(op, For):
            return 0
        changed = {v for o in op.body.ops for v in o.defined()} | set(op.body.params)
        dots = [o for o in op.body.ops if isinstance(o, Dot) and o.a not in changed and o.a in self.place.staged]
        return sum(self.plans[o].a_registers for o in dots)

    def shared_bytes(self) -> int:
        """The largest sum of staged operands of products that live at once."""
        return self._shared(self.kernel.body, 0)

    def _operand_bytes(self, v: Value) -> int:
        layouts = {
            layout
            for op in self.place.readers.get(v, [])
            if isinstance(op, Dot)
            for operand, layout in ((op.a, self.plans[op].a_layout), (op.b, self.plans[op].b_layout))
            if operand is v
        }
        return sum(-(-layout.bytes // 128) * 128 for layout in layouts)

    def _shared(self, block: Block, outside: int) -> int:
        last = self.place.last_uses(block)
        held: dict[Value, int] = {p: self._operand_bytes(p) for p in block.params if p.is_tile}
        peak = outside + sum(held.values())
        for index, op in enumerate(block.ops):
            for v in op.defined():
                if v.is_tile:
                    held[v] = self._operand_bytes(v)
            peak = max(peak, outside + sum(held.values()))
            for inner in op.blocks():
                peak = max(peak, self._shared(inner, outside + sum(held.values())))
            held = {v: n for v, n in held.items() if last.get(v, -1) > index}
        return peak
