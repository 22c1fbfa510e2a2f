"""What a statement touches that other threads touch too: the basis of barrier placement and of packing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phobos.ir.scheduled import (
    AsyncCopy,
    AtomicGlobal,
    AtomicScalar,
    Contract,
    ForStmt,
    GatherAxis,
    GlobalToShared,
    GlobalView,
    IfStmt,
    LoadGlobal,
    LoadScalar,
    Map,
    OpaqueLoad,
    OpaqueStore,
    OperandLoad,
    PrintStmt,
    ReadShared,
    ReduceCollect,
    ReducePublish,
    ReduceRegisters,
    ScanShared,
    SetScalar,
    StepLoad,
    Stmt,
    StoreGlobal,
    StoreScalar,
    WhileStmt,
    WriteShared,
)
from phobos.ir.storage import Apply, Buffer, BufferRef, Expr, Fragment, Literal, Position, expr_walk
from phobos.layout.register import RegisterLayout

READ, WRITE = "read", "write"
# Of a ring: by the loop that reads it, for an iteration that follows (ordered by that loop's own wait and barrier), or
# before that loop.
PIPELINE, PROLOGUE = "pipeline", "prologue"
_FIRST = "thread 0"
# Between which no order is needed: reads, and atomics of one kind whose old values nobody asks for.
_ANY_ORDER = frozenset({READ, "atomic add", "atomic max", "atomic min"})


def _atomic_mode(kind: str, old: bool) -> str:
    return f"atomic {kind} for its old value" if old else f"atomic {kind}"


@dataclass(frozen=True)
class Access:
    """One access by all threads together. `threads` is the layout that says which thread touches which element, or
    None where that is not one to one. `box`: the part of a buffer, as (start, end) for each axis, None for unknown.
    `earlier` names loops of which this happened in an earlier iteration, `left` those that have ended since: if they
    run again, the iteration may be an earlier one, the same or a later one."""

    resource: Buffer | str
    mode: str
    what: str
    view: GlobalView | None = None
    threads: RegisterLayout | str | None = None
    box: tuple[tuple[int, int], ...] | None = None
    earlier: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()

    def aged(self, loop: str, before: bool) -> "Access":
        """Seen from the next iteration of a loop. `before`: the access came before the loop.

        What tells nothing is left out, so that the number of entries stays linear in the depth of loops: an access of
        shared memory, whose positions are constants; one before the loop, unless its positions may be those of a
        variable that the loop changes; and iterations of a loop that has ended since.
        """
        if self.view is None or loop in self.left or (before and "carried" not in self.view.varies):
            return self
        return replace(self, earlier=self.earlier | {loop})

    def out_of(self, loop: str) -> "Access":
        """Seen from behind the loop."""
        if self.view is None:
            return self
        return replace(self, left=self.left | {loop}, earlier=self.earlier - {loop})


def accesses(s: Stmt) -> list[Access]:
    """Accesses of the statement itself, not of statements inside it."""
    out: list[Access] = []
    where = f"line {s.span.line}"
    for e in _expressions(s):
        for x in expr_walk(e):
            if isinstance(x, BufferRef):
                threads = s.target.layout if isinstance(s, Map) and _straight(x.at) else None
                out.append(Access(x.buffer, READ, f"read of {x.buffer.name} ({where})", threads=threads))
    if isinstance(s, Map):
        for part, view, _ in s.loads:
            out.append(Access(view.tensor, READ, f"load of {view.tensor} ({where})", view, part.layout))
    if isinstance(s, LoadGlobal):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view, s.target.layout))
    elif isinstance(s, LoadScalar):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view))
    elif isinstance(s, GlobalToShared):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view, s.layout))
        out.append(Access(s.buffer, WRITE, f"staging of {s.buffer.name} ({where})"))
    elif isinstance(s, AsyncCopy):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view, s.layout))
        manner = PIPELINE if s.ahead else PROLOGUE
        out.append(Access(s.buffer, WRITE, f"copy into {s.buffer.name} ({where})", threads=manner))
    elif isinstance(s, StoreGlobal):
        out.append(Access(s.view.tensor, WRITE, f"store to {s.view.tensor} ({where})", s.view, s.source.layout))
    elif isinstance(s, StoreScalar):
        out.append(Access(s.view.tensor, WRITE, f"store to {s.view.tensor} ({where})", s.view, _FIRST))
    elif isinstance(s, AtomicGlobal):
        mode = _atomic_mode(s.kind, s.old is not None)
        own = s.values[0].layout
        out.append(Access(s.view.tensor, mode, f"atomic on {s.view.tensor} ({where})", s.view, own))
    elif isinstance(s, AtomicScalar):
        mode = _atomic_mode(s.kind, s.scratch is not None)
        out.append(Access(s.view.tensor, mode, f"atomic on {s.view.tensor} ({where})", s.view, _FIRST))
        if s.scratch is not None:
            out.append(Access(s.scratch, WRITE, f"write of {s.scratch.name} ({where})"))
    elif isinstance(s, WriteShared):
        by = PIPELINE if s.stage is not None else s.source.layout if _straight(s.at) else None
        box = _box(s.at, s.source.layout.shape)
        out.append(Access(s.buffer, WRITE, f"write of {s.buffer.name} ({where})", threads=by, box=box))
    elif isinstance(s, ReadShared):
        out.append(Access(s.buffer, READ, f"read of {s.buffer.name} ({where})", threads=s.target.layout))
    elif isinstance(s, ReducePublish):
        out.extend(Access(b, WRITE, f"partial results {b.name} ({where})") for b in s.scratch)
    elif isinstance(s, ReduceCollect):
        out.extend(Access(b, READ, f"combining {b.name} ({where})") for b in s.scratch)
    elif isinstance(s, ScanShared):
        out.append(Access(s.buffer, READ, f"scan of {s.buffer.name} ({where})"))
        out.append(Access(s.buffer, WRITE, f"scan of {s.buffer.name} ({where})"))
    elif isinstance(s, StepLoad):
        first = PIPELINE if s.step == 0 else None  # the first step is loaded for an iteration that follows
        out.extend(Access(x, READ, f"product reading {x.name} ({where})", threads=first) for x in (s.a, s.b))
    elif isinstance(s, OperandLoad):
        out.append(Access(s.a, READ, f"product reading {s.a.name} ({where})"))
    elif isinstance(s, (OpaqueLoad, OpaqueStore)):
        # Ordered within itself, where each warp waits for its own lanes only.
        out.append(Access(s.scratch, WRITE, f"exchange in {s.scratch.name} ({where})"))
        out.append(Access(s.scratch, READ, f"exchange in {s.scratch.name} ({where})"))
    elif isinstance(s, Contract):
        for operand in (s.a, s.b):
            if isinstance(operand, Buffer) and not (operand is s.a and s.a_name is not None):
                out.append(Access(operand, READ, f"product reading {operand.name} ({where})"))
    return out


def _expressions(s: Stmt) -> list[Expr]:
    if isinstance(s, (SetScalar, Map, StoreScalar)):
        return [s.value]
    if isinstance(s, ReduceRegisters):
        return [s.value]
    if isinstance(s, AtomicScalar):
        return list(s.values)
    if isinstance(s, (WhileStmt, IfStmt)):
        return [s.condition]
    if isinstance(s, ForStmt):
        return [s.lo, s.hi, s.step]
    if isinstance(s, WriteShared):
        return list(s.at) + ([s.guard] if s.guard is not None else [])
    if isinstance(s, PrintStmt):
        return [p for p in s.parts if not isinstance(p, (str, Fragment))]
    return []


def conflict(a: Access, b: Access, offsets: dict[Buffer, int], overlap: frozenset[str]) -> bool:
    """May `a` and, after it, `b` (which happens now) be by different threads on the same byte, one of them a write?"""
    if a.mode == b.mode and a.mode in _ANY_ORDER:
        return False
    if isinstance(a.resource, Buffer) or isinstance(b.resource, Buffer):
        if not (isinstance(a.resource, Buffer) and isinstance(b.resource, Buffer)):
            return False
        if a.resource is b.resource and (_same_threads(a, b) or _apart(a.box, b.box)):
            return False
        if a.resource is b.resource and PIPELINE in (a.threads, b.threads):
            return False
        la, lb = offsets.get(a.resource), offsets.get(b.resource)
        if la is None or lb is None:
            return a.resource is b.resource
        return la < lb + b.resource.bytes and lb < la + a.resource.bytes
    if a.resource != b.resource:
        return a.resource in overlap and b.resource in overlap
    if a.view is None or b.view is None:
        return True
    if a.threads == b.threads == _FIRST:
        return False
    varies = a.view.varies | b.view.varies
    other = a.earlier - a.left  # loops known to be in another iteration
    moved = {loop for loop in a.earlier | a.left if loop in varies or "carried" in varies}
    if not moved and _disjoint(a.view, b.view):
        return False
    if a.view.key == b.view.key:
        if moved & other & a.view.distinct:
            return False  # another iteration, other positions
        gathered = any(isinstance(axis, GatherAxis) for axis in a.view.axes)  # two elements may be at one position
        if moved <= a.view.distinct and _same_threads(a, b) and not gathered:
            return False  # the same positions or entirely other ones
    return True


def _disjoint(a: GlobalView, b: GlobalView) -> bool:
    for (base_a, off_a, len_a), (base_b, off_b, len_b) in zip(a.spans, b.spans):
        if base_a is base_b and len_a and len_b and (off_a + len_a <= off_b or off_b + len_b <= off_a):
            return True
    return False


def _straight(at: tuple[Expr, ...]) -> bool:
    """The element at the position of the statement itself, in every iteration."""
    return all(isinstance(e, Position) and e.axis == axis for axis, e in enumerate(at))


def _box(at: tuple[Expr, ...], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...] | None:
    """The part of a buffer that positions `at` of a tile of `shape` reach: each the tile's own plus a constant."""
    if len(at) != len(shape):
        return None
    out: list[tuple[int, int]] = []
    for axis, e in enumerate(at):
        position, start = e, 0
        if isinstance(e, Apply) and e.fn == "add" and isinstance(e.args[1], Literal):
            position, start = e.args[0], int(e.args[1].value)
        if not isinstance(position, Position) or position.axis != axis:
            return None
        out.append((start, start + shape[axis]))
    return tuple(out)


def _apart(a: tuple[tuple[int, int], ...] | None, b: tuple[tuple[int, int], ...] | None) -> bool:
    return a is not None and b is not None and any(x[1] <= y[0] or y[1] <= x[0] for x, y in zip(a, b))


def _same_threads(a: Access, b: Access) -> bool:
    """Every element is touched by one and the same thread in both."""
    if a.threads is None or a.threads != b.threads:
        return False
    if isinstance(a.threads, str):
        return True
    # Owners write and do atomics, but replicas read too.
    return not a.threads.has_replicas or READ not in (a.mode, b.mode)
