"""stage_loads: loads of a loop that go to shared memory become a ring filled ahead by asynchronous copies.

Precondition: a Schedule without offsets and barriers. Postcondition: the same meaning; in every loop that qualifies,
the tiles for the next `stages - 1` iterations are on their way while one iteration computes, at one wait and one
barrier an iteration. The barrier publishes what the wait saw arrive, and keeps the copy that follows from overwriting
the stage that the previous iteration read.

A load qualifies if its positions are computable one iteration early (from the loop's index and values from outside),
nothing in the loop writes its tensor, its elements go to shared memory unchanged, masked ones as zero, in accesses of 4
bytes or more. Where only the latter fails, the tile is taken ahead through registers (passes/prefetch.py).

`@pipeline(n)` before a loop fixes its stages, whatever the option says, and is an error (PH0550) where a load of the
loop does not qualify; n = 1 leaves the loop as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial

from phobos.contraction.interface import registers_for_tiles
from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.abi import Decision
from phobos.ir.c_names import fresh_name
from phobos.ir.scheduled import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtAxis,
    AtomicGlobal,
    AtomicScalar,
    Barrier,
    BreakStmt,
    Contract,
    ForStmt,
    GatherAxis,
    GlobalToShared,
    GlobalView,
    IfStmt,
    LoadGlobal,
    RangeAxis,
    ReturnStmt,
    Schedule,
    SetScalar,
    StepDeclare,
    StepLoad,
    StepMultiply,
    Stmt,
    StoreGlobal,
    StoreScalar,
    WhileStmt,
    nested,
    walk,
)
from phobos.ir.storage import (
    Apply,
    Buffer,
    BufferRef,
    Convert,
    Expr,
    Fragment,
    FragmentRef,
    Literal,
    ScalarRef,
    ScalarVar,
    expr_walk,
    substitute,
)
from phobos.ir.types import DType
from phobos.passes import prefetch, register_operands, whole_tiles
from phobos.passes.ring_stage import RingStage
from phobos.source import Span
from phobos.target import Target
from phobos.transfer import cp_async

# Bytes that a CTA should have on their way. A loop of one product consumes a stage in a few hundred cycles, so it needs
# several (128x256x32 tiles of f16 on an H200: 2 stages 0.34, 4 stages 0.57 of cuBLAS); an online softmax between two
# products takes long enough that one stage ahead hides the rest (2 and 3 stages equal).
_MOST_STAGES = 4
_REGISTERS_BESIDE = 72  # of a thread, beside 5/4 of its accumulators: for guessing how many CTAs an SM holds


def _spare_registers(loop: ForStmt) -> int:
    """Registers of a thread that tiles on their way may take, beside accumulators and operands of the loop's
    products."""
    products = [s for s in loop.body if isinstance(s, Contract)]
    accumulators = sum({s.accumulator: s.accumulator.layout.registers for s in products}.values())
    operands = max((s.plan.operand_registers for s in products), default=0)
    return registers_for_tiles(accumulators, operands)


def automatic_stages(schedule: Schedule, target: Target) -> int:
    """Stages by default: 2 to 4, as many as leave the other CTAs of the SM their shared memory."""
    best = 1
    for loop in walk(schedule.body):
        if not isinstance(loop, ForStmt) or loop.pipeline is not None:
            continue
        stage = sum(s.buffer.layout.bytes for s in loop.body if isinstance(s, GlobalToShared))
        products = [s for s in loop.body if isinstance(s, Contract)]
        if not stage or not products:
            continue
        accumulators = sum({s.accumulator: s.accumulator.layout.registers for s in products}.values())
        registers = min(255, accumulators * 5 // 4 + _REGISTERS_BESIDE)
        ctas = schedule.min_blocks or max(1, target.registers_per_sm // (registers * schedule.threads))
        fitting = target.shared_per_sm // ctas // stage
        wanted = _MOST_STAGES if len(products) == 1 else 2
        best = max(best, min(wanted, max(2, fitting)))
    return best


def run(schedule: Schedule, target: Target, stages: int, why_one: str = "") -> Schedule:
    """The schedule with rings of `stages` where loops qualify; 1 leaves every load where it is, `why_one` says why.

    Raises CompileError (PH0550) where a loop cannot keep the promise of its `@pipeline(n)`.
    """
    stager = _Stager(schedule, target, stages, why_one)
    body = stager.block(schedule.body)
    if stager.replaced:
        body = _rename(body, stager.replaced)
    return replace(
        schedule, body=body, names=frozenset(stager.names), decisions=(*schedule.decisions, *stager.decisions)
    )


class _Stager:
    def __init__(self, schedule: Schedule, target: Target, stages: int, why_one: str):
        self.schedule, self.target, self.stages, self.why_one = schedule, target, stages, why_one
        self.names = set(schedule.names)
        self.replaced: dict[Buffer, Buffer] = {}
        self.decisions: list[Decision] = []

    def block(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in statements:
            if isinstance(s, IfStmt):
                out.append(replace(s, then=self.block(s.then), orelse=self.block(s.orelse)))
            elif isinstance(s, WhileStmt):
                for load in (x for x in s.body if isinstance(x, GlobalToShared)):
                    self._say(load, "plain, in its iteration", "which iteration of a `while` comes next is not known")
                out.append(replace(s, body=self.block(s.body)))
            elif isinstance(s, ForStmt):
                out.extend(self._loop(replace(s, body=self.block(s.body))))
            else:
                out.append(s)
        return tuple(out)

    def _loop(self, loop: ForStmt) -> list[Stmt]:
        stages = self.stages if loop.pipeline is None else loop.pipeline
        loads = [s for s in loop.body if isinstance(s, GlobalToShared)]
        for load in _in_branches(loop):
            self._say(load, "plain, in its iteration", "it is loaded in a branch")
        if stages < 2:
            why = self.why_one if loop.pipeline is None else f"`@pipeline({stages})`"
            for load in loads if why else ():
                self._say(load, "plain, in its iteration", why)
            return [loop]
        if loop.pipeline is not None:
            for tile in register_operands.of_loop(loop):
                raise _broken(loop, f"the tile of `{tile.tensor}` goes to registers: {tile.reason}", tile.span)
        if not loads or not any(isinstance(s, Contract) for s in loop.body):
            if loop.pipeline is not None:
                raise _broken(loop, "it loads no tile that a product reads from shared memory", loop.span)
            for load in loads:
                self._say(load, "plain, in its iteration", "no product of the loop itself reads it")
            return [loop]
        if loop.pipeline is not None:
            for s in walk(loop.body):
                if isinstance(s, (GlobalToShared, AsyncCopy)) and s not in loads:
                    raise _broken(loop, f"the tile of `{s.view.tensor}` is loaded in a branch or an inner loop", s.span)
                if isinstance(s, LoadGlobal):
                    raise _broken(loop, f"the tile of `{s.view.tensor}` goes to registers in its iteration", s.span)
        known = _scalars(loop)
        ready: list[tuple[GlobalToShared, Mapping[str, Expr]]] = []
        slow: list[GlobalToShared] = []
        for load in loads:
            fixed = self._fixed(loop, load, known)
            reason = fixed or self._synchronous(load)
            if reason is None:
                ready.append((load, known))
                continue
            through = fixed or prefetch.reject(loop)
            wanted = prefetch.registers(load) + sum(map(prefetch.registers, slow))
            if through is None and wanted > _spare_registers(loop):
                through = f"{reason}, and {prefetch.registers(load)} registers are too many to hold it meanwhile"
            if loop.pipeline is not None and (through is not None or stages > 2):
                what = f"the tile of `{load.view.tensor}`"
                why = through or f"{reason}, so that it is taken ahead through registers, in two stages"
                raise _broken(loop, f"{what}: {why}", load.span)
            if through is None:
                slow.append(load)
                self._say(load, "a tile ahead through registers, double buffer", reason)
            else:
                self._say(load, "plain, in its iteration", through)
        if not ready and not slow:
            return [loop]
        if not slow:
            return self._ring(loop, ready, stages)
        ahead = prefetch.build(
            loop, slow, partial(fresh_name, self.names),
            lambda view, index: _at(view, {**known, loop.index.name: index}),
            _plus(_index(loop), loop.step, 1), lambda index: _before(index, loop),
        )  # fmt: skip
        self.replaced.update(ahead.rings)
        rest = tuple(s for s in loop.body if s not in slow)
        if ready:
            *before, staged = self._ring(replace(loop, body=(*rest, *ahead.tail)), ready, stages)
            if not isinstance(staged, ForStmt):  # a wait behind the loop, for breaks
                *before, turned = before
                after: list[Stmt] = [staged]
            else:
                turned, after = staged, []
            assert isinstance(turned, ForStmt)
            split = next(i for i, s in enumerate(turned.body) if isinstance(s, Barrier)) + 1
            body = (*turned.body[:split], *ahead.head, *turned.body[split:])
            return [*ahead.before, *before, replace(turned, body=body), *after]
        body = (prefetch.barrier(loop), *ahead.head, *rest, *ahead.tail)
        return [*ahead.before, replace(loop, body=body)]

    def _say(self, load: GlobalToShared, choice: str, reason: str) -> None:
        self.decisions.append(
            Decision(
                stage="staging",
                subject=f"{load.buffer.name} from {load.view.tensor}",
                choice=choice,
                reason=reason,
                line=load.span.line,
            )
        )

    def _fixed(self, loop: ForStmt, load: GlobalToShared, known: Mapping[str, Expr]) -> str | None:
        """Why the load cannot be started an iteration early at all, or None."""
        if loop.down is None:
            return "the sign of the loop's step is not known"
        if any(isinstance(s, ReturnStmt) for s in walk(loop.body)):
            return "the loop may return while copies are on their way"
        written = {
            s.view.tensor
            for s in walk(loop.body)
            if isinstance(s, (StoreGlobal, StoreScalar, AtomicGlobal, AtomicScalar))
        }
        mates = {t for t in self.schedule.tensor_dims if t not in self.schedule.restrict}
        if load.view.tensor in written or (load.view.tensor in mates and written & mates):
            return "the loop writes to its tensor"
        inside = _made(loop)
        for axis in load.view.axes:
            if isinstance(axis, GatherAxis):
                return "its positions are gathered"
            start = axis.start if isinstance(axis, RangeAxis) else axis.index
            for e in expr_walk(substitute(start, known)):
                name = e.name if isinstance(e, ScalarRef) else e.fragment.name if isinstance(e, FragmentRef) else None
                if name in inside:
                    return f"its position depends on `{name}`, which the iteration computes"
                if isinstance(e, BufferRef):
                    return f"its position is read from `{e.buffer.name}`, which may not be written an iteration earlier"
        return None

    def _synchronous(self, load: GlobalToShared) -> str | None:
        """Why the copy cannot be asynchronous, or None."""
        if not self.target.has_cp_async:
            return f"{self.target.arch} has no asynchronous copies"
        if load.buffer.dtype is not load.view.dtype or load.buffer.rounding:
            return f"its elements are converted to {load.buffer.rounding or load.buffer.dtype} on the way"
        if load.fill != 0:
            return f"masked elements become {load.fill}, not zero"
        vector = load.view.vector
        run_length = load.layout.contiguous_run(load.layout.rank - 1)
        while vector > 1 and run_length % vector:
            vector //= 2
        return cp_async.reject(vector, load.buffer.dtype.bytes, load.buffer.layout)

    def _ring(self, loop: ForStmt, ready: list[tuple[GlobalToShared, Mapping[str, Expr]]], n: int) -> list[Stmt]:
        span = loop.span
        stages: dict[int, RingStage] = {}
        rings: dict[GlobalToShared, Buffer] = {}
        for load, _ in ready:
            size = replace(load.buffer, stages=n).stage_bytes
            if size not in stages:
                stages[size] = RingStage.of(size, n, self.names)
            ring = replace(load.buffer, stages=n, stage=stages[size].here)
            self.replaced[load.buffer] = ring
            rings[load] = ring
            rows = f"{ring.stage_bytes} bytes a stage, {_rows(ring)}"
            self._say(load, f"ring of {n} stages by asynchronous copies", rows)
        out: list[Stmt] = []
        for ahead in range(n - 1):
            index = _plus(loop.lo, loop.step, ahead)
            copies = tuple(
                AsyncCopy(
                    span=load.span, buffer=rings[load], view=_at(load.view, {**known, loop.index.name: index}),
                    layout=load.layout, stage=Literal(DType.U32, ahead * rings[load].stage_bytes), ahead=False,
                )  # fmt: skip
                for load, known in ready
            )
            out.append(
                IfStmt(span=span, condition=_before(index, loop), then=copies, orelse=(), note="ahead of the loop")
            )
            out.append(AsyncCommit(span=span))
        out += [SetScalar(span=span, target=stage.here, value=stage.last, constant=False) for stage in stages.values()]
        index = _plus(_index(loop), loop.step, n - 1)
        copies = tuple(
            AsyncCopy(
                span=load.span, buffer=rings[load], view=_at(load.view, {**known, loop.index.name: index}),
                layout=load.layout, stage=ScalarRef(DType.U32, stages[rings[load].stage_bytes].freed.name), ahead=True,
            )  # fmt: skip
            for load, known in ready
        )
        advance = [stage.advance(span) for stage in stages.values()]
        head: list[Stmt] = [
            *advance,
            AsyncWait(span=span, pending=n - 2),
            Barrier(span=span, reasons=("publishes the stage that arrived; the stage read last is free again",)),
            IfStmt(
                span=span, condition=_before(index, loop),
                then=(*(stage.free(span) for stage in stages.values()), *copies), orelse=(),
            ),
            AsyncCommit(span=span),
        ]  # fmt: skip
        taken = {load for load, _ in ready}
        rest = tuple(s for s in loop.body if s not in taken)
        rotated = self._rotated(
            loop, head[len(advance) :], rest, {load.buffer: ring for load, ring in rings.items()},
            tuple(stages.values()), [_at(load.view, {**known, loop.index.name: _index(loop)}) for load, known in ready],
        )  # fmt: skip
        if rotated is not None:
            out.extend(rotated)
            return out
        out.append(replace(loop, body=(*head, *rest)))
        if any(isinstance(s, BreakStmt) for s in walk(loop.body)):
            out.append(AsyncWait(span=span, pending=0, note="copies for iterations that a break skipped"))
        return out

    def _rotated(
        self, loop: ForStmt, head: list[Stmt], rest: tuple[Stmt, ...], rings: Mapping[Buffer, Buffer],
        stages: tuple[RingStage, ...], views: list[GlobalView],
    ) -> list[Stmt] | None:  # fmt: skip
        """The loop of a single product of two rings, turned so that the first fragments of the next tiles are loaded
        before the last products of these ones: no gap at the barrier. None where the loop is another one.

        Iteration: copies for later, steps 0 .. n - 2 each loading its successor; wait, barrier, next stage, its step 0;
        last step.
        """
        # A product reads no scalars: those that only placed the loads are computed where these are started now.
        work = [s for s in rest if not (isinstance(s, SetScalar) and s.declare)]
        if len(work) != 1 or not isinstance(work[0], Contract):
            return None
        product = work[0]
        plan = product.plan
        if not (isinstance(product.a, Buffer) and isinstance(product.b, Buffer)):
            return None
        a, b = rings.get(product.a), rings.get(product.b)
        if a is None or b is None or plan.steps < 2 or plan.steps % 2 or not plan.ahead:
            return None
        wait, barrier, copies, commit = head
        span, name = product.span, fresh_name(self.names, "step")
        first = StepLoad(span=span, plan=plan, name=name, slot=0, step=0, a=a, b=b)
        # Copies go first: behind the first loads they cost 25 registers and 3 % (128x256x32 on an H200).
        body: list[Stmt] = [copies, commit]
        for step in range(plan.steps - 1):
            body.append(StepLoad(span=span, plan=plan, name=name, slot=(step + 1) % 2, step=step + 1, a=a, b=b))
            body.append(StepMultiply(span=span, plan=plan, name=name, slot=step % 2, accumulator=product.accumulator))
        following = _plus(_index(loop), loop.step, 1)
        body += [
            replace(wait),
            replace(barrier),
            *(stage.advance(loop.span) for stage in stages),
            IfStmt(span=span, condition=_before(following, loop), then=(replace(first),), orelse=()),
            StepMultiply(span=span, plan=plan, name=name, slot=(plan.steps - 1) % 2, accumulator=product.accumulator),
        ]
        return [
            StepDeclare(span=span, plan=plan, name=name, a=a, b=b),
            *(
                SetScalar(span=loop.span, target=stage.here, value=Literal(DType.U32, 0), declare=False)
                for stage in stages
            ),
            wait,
            barrier,
            IfStmt(span=span, condition=_before(loop.lo, loop), then=(first,), orelse=()),
            *self._versions(replace(loop, body=tuple(body)), views),
        ]

    def _versions(self, turned: ForStmt, views: list[GlobalView]) -> list[Stmt]:
        """The turned loop, for whole tiles and for others; says which there are."""
        out = whole_tiles.build(turned, views, partial(fresh_name, self.names))
        if isinstance(out[-1], IfStmt):
            choice = "two versions: without masks where no tile of it is cut off, and with masks"
        else:
            choice = "one version, with masks" if out[-1] is turned else "one version, without masks"
        reason = "copies amid the products of a step" if out[-1] is not turned else "what its tiles reach is not known"
        where = f"loop over {turned.index.name}"
        self.decisions.append(
            Decision(stage="staging", subject=where, choice=choice, reason=reason, line=turned.span.line)
        )
        return out


def _rows(buffer: Buffer) -> str:
    layout = buffer.layout
    if layout.swizzle:
        return f"16-byte chunks permuted in groups of {layout.swizzle}"
    padding = (layout.pitch - layout.shape[layout.order[-1]]) * layout.itemsize
    return f"rows padded by {padding} bytes" if padding else "rows without padding"


def _broken(loop: ForStmt, reason: str, span: Span) -> CompileError:
    """PH0550: the promise of a loop does not hold."""
    return CompileError(
        Diagnostic(
            code="PH0550",
            message=f"this loop cannot be pipelined in {loop.pipeline} stages",
            span=span,
            notes=(reason, f"`@pipeline({loop.pipeline})` stands before the `for` in line {loop.span.line}"),
            help="without `@pipeline` the loop runs as well as it can",
        )
    )


def _in_branches(s: ForStmt | IfStmt) -> Iterator[GlobalToShared]:
    """Loads in branches of the loop, not in inner loops."""
    for inner in (x for block in nested(s) for x in block):
        if isinstance(inner, IfStmt):
            yield from (x for block in nested(inner) for x in block if isinstance(x, GlobalToShared))
            yield from _in_branches(inner)


def _scalars(loop: ForStmt) -> dict[str, Expr]:
    """Constants that an iteration computes from its index, in terms of the index and outer values."""
    known: dict[str, Expr] = {}
    for s in loop.body:
        if isinstance(s, SetScalar) and s.declare and s.constant:
            known[s.target.name] = substitute(s.value, known)
    return known


def _made(loop: ForStmt) -> set[str]:
    """Names of the scalars and tiles in registers that statements of the loop's body name: what it may set."""

    def inside(x: object) -> Iterator[str]:
        if isinstance(x, (ScalarVar, Fragment)):
            yield x.name
        elif isinstance(x, tuple):
            for part in x:
                yield from inside(part)

    return {name for s in walk(loop.body) for f in fields(s) for name in inside(getattr(s, f.name))}


def _plus(base: Expr, step: Expr, times: int) -> Expr:
    if times == 0:
        return base
    if isinstance(step, Literal):
        by: Expr = Literal(DType.INDEX, int(step.value) * times)
    else:
        by = Apply(DType.INDEX, "mul", (step, Literal(DType.INDEX, times)))
    if isinstance(base, Literal) and isinstance(by, Literal):
        return Literal(DType.INDEX, int(base.value) + int(by.value))
    return Apply(DType.INDEX, "add", (base, by))


def _index(loop: ForStmt) -> Expr:
    return ScalarRef(DType.INDEX, loop.index.name)


def _before(index: Expr, loop: ForStmt) -> Expr:
    """Is there an iteration of that index? In 64 bits where the index is a number of the text: a few steps beyond the
    last one may not fit its own type."""
    end = loop.hi
    if loop.index.dtype is not DType.INDEX:
        index, end = _wide(index, loop), _wide(end, loop)
    return Apply(DType.BOOL, "gt" if loop.down else "lt", (index, end))


def _wide(e: Expr, loop: ForStmt) -> Expr:
    """Sums and products of the loop's numbers in 64 bits."""
    if isinstance(e, Literal):
        return Literal(DType.I64, int(e.value))
    if isinstance(e, Apply) and e.fn in ("add", "mul") and e.dtype is DType.INDEX:  # those of _plus
        return Apply(DType.I64, e.fn, tuple(_wide(a, loop) for a in e.args))
    if isinstance(e, ScalarRef) and e.name == loop.index.name:
        e = ScalarRef(loop.index.dtype, e.name)
    return Convert(DType.I64, e)


def _at(view: GlobalView, values: Mapping[str, Expr]) -> GlobalView:
    """The view at another iteration."""
    axes: list[AtAxis | RangeAxis | GatherAxis] = []
    for axis in view.axes:
        if isinstance(axis, RangeAxis):
            axes.append(replace(axis, start=_deep(axis.start, values)))
        elif isinstance(axis, AtAxis):
            axes.append(replace(axis, index=_deep(axis.index, values)))
        else:
            axes.append(axis)
    return replace(view, axes=tuple(axes))


def _deep(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """Substitutes the iteration's constants first and its index last, since those are written in terms of it."""
    index_last = list(values)[-1]
    inner = {k: v for k, v in values.items() if k != index_last}
    return substitute(substitute(e, inner), {index_last: values[index_last]})


def _rename(statements: tuple[Stmt, ...], rings: Mapping[Buffer, Buffer]) -> tuple[Stmt, ...]:
    """Readers of a buffer that became a ring read the ring."""
    out: list[Stmt] = []
    for s in statements:
        if isinstance(s, Contract):
            a = rings.get(s.a, s.a) if isinstance(s.a, Buffer) else s.a
            b = rings.get(s.b, s.b) if isinstance(s.b, Buffer) else s.b
            s = replace(s, a=a, b=b)
        elif isinstance(s, IfStmt):
            s = replace(s, then=_rename(s.then, rings), orelse=_rename(s.orelse, rings))
        elif isinstance(s, ForStmt):
            s = replace(s, body=_rename(s.body, rings))
        elif isinstance(s, WhileStmt):
            s = replace(s, head=_rename(s.head, rings), body=_rename(s.body, rings))
        out.append(s)
    return tuple(out)
