"""What a statement touches that other threads touch too: the basis of barrier placement and of packing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phobos.ir.scheduled import (
    AtomicGlobal,
    AtomicScalar,
    Buffer,
    BufferRef,
    Contract,
    Expr,
    ForStmt,
    Fragment,
    GlobalToShared,
    GlobalView,
    IfStmt,
    LoadGlobal,
    LoadScalar,
    Map,
    PrintStmt,
    ReduceCollect,
    ReducePublish,
    ReduceRegisters,
    ScanShared,
    SetScalar,
    Stmt,
    StoreGlobal,
    StoreScalar,
    WhileStmt,
    WriteShared,
    expr_walk,
)
from phobos.layout.register import RegisterLayout

READ, WRITE, ATOMIC = "read", "write", "atomic"


@dataclass(frozen=True)
class Access:
    """One access by all threads together. `threads` is the layout that says which thread touches which element, or
    None where that is not one to one. `earlier` names loops of which this happened in an earlier iteration."""

    resource: Buffer | str
    mode: str
    what: str
    view: GlobalView | None = None
    threads: RegisterLayout | str | None = None
    earlier: frozenset[str] = frozenset()

    def aged(self, loop: str) -> "Access":
        return replace(self, earlier=self.earlier | {loop})


def accesses(s: Stmt) -> list[Access]:
    """Accesses of the statement itself, not of statements inside it."""
    out: list[Access] = []
    where = f"line {s.span.line}"
    for e in _expressions(s):
        for x in expr_walk(e):
            if isinstance(x, BufferRef):
                out.append(Access(x.buffer, READ, f"read of {x.buffer.name} ({where})"))
    if isinstance(s, LoadGlobal):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view, s.target.layout))
    elif isinstance(s, LoadScalar):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view))
    elif isinstance(s, GlobalToShared):
        out.append(Access(s.view.tensor, READ, f"load of {s.view.tensor} ({where})", s.view, s.layout))
        out.append(Access(s.buffer, WRITE, f"staging of {s.buffer.name} ({where})"))
    elif isinstance(s, StoreGlobal):
        out.append(Access(s.view.tensor, WRITE, f"store to {s.view.tensor} ({where})", s.view, s.source.layout))
    elif isinstance(s, StoreScalar):
        out.append(Access(s.view.tensor, WRITE, f"store to {s.view.tensor} ({where})", s.view, "thread 0"))
    elif isinstance(s, AtomicGlobal):
        out.append(Access(s.view.tensor, ATOMIC, f"atomic on {s.view.tensor} ({where})", s.view))
    elif isinstance(s, AtomicScalar):
        out.append(Access(s.view.tensor, ATOMIC, f"atomic on {s.view.tensor} ({where})", s.view))
        if s.scratch is not None:
            out.append(Access(s.scratch, WRITE, f"write of {s.scratch.name} ({where})"))
    elif isinstance(s, WriteShared):
        out.append(Access(s.buffer, WRITE, f"write of {s.buffer.name} ({where})"))
    elif isinstance(s, ReducePublish):
        out.extend(Access(b, WRITE, f"partial results {b.name} ({where})") for b in s.scratch)
    elif isinstance(s, ReduceCollect):
        out.extend(Access(b, READ, f"combining {b.name} ({where})") for b in s.scratch)
    elif isinstance(s, ScanShared):
        out.append(Access(s.buffer, READ, f"scan of {s.buffer.name} ({where})"))
        out.append(Access(s.buffer, WRITE, f"scan of {s.buffer.name} ({where})"))
    elif isinstance(s, Contract):
        for operand in (s.a, s.b):
            if isinstance(operand, Buffer):
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
    """May `a` and, later, `b` be by different threads on the same byte, one of them a write?"""
    if a.mode == b.mode and a.mode in (READ, ATOMIC):
        return False
    if isinstance(a.resource, Buffer) or isinstance(b.resource, Buffer):
        if not (isinstance(a.resource, Buffer) and isinstance(b.resource, Buffer)):
            return False
        la, lb = offsets.get(a.resource), offsets.get(b.resource)
        if la is None or lb is None:
            return a.resource is b.resource
        return la < lb + b.resource.bytes and lb < la + a.resource.bytes
    if a.resource != b.resource:
        return a.resource in overlap and b.resource in overlap
    if a.view is None or b.view is None:
        return True
    aged = a.earlier ^ b.earlier
    varies = a.view.varies | b.view.varies
    moved = {loop for loop in aged if loop in varies or "carried" in varies}
    if not moved and _disjoint(a.view, b.view):
        return False
    if a.view.key == b.view.key:
        if moved & a.view.distinct:
            return False  # another iteration, other positions
        if not moved and _same_threads(a, b):
            return False
    return True


def _disjoint(a: GlobalView, b: GlobalView) -> bool:
    for (base_a, off_a, len_a), (base_b, off_b, len_b) in zip(a.spans, b.spans):
        if base_a is base_b and len_a and len_b and (off_a + len_a <= off_b or off_b + len_b <= off_a):
            return True
    return False


def _same_threads(a: Access, b: Access) -> bool:
    """Every element is touched by one and the same thread in both."""
    if a.threads is None or a.threads != b.threads:
        return False
    if isinstance(a.threads, str):
        return True
    # Owners write, but replicas read too.
    return not a.threads.has_replicas or (a.mode == WRITE and b.mode == WRITE)
