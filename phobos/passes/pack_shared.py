"""pack_shared: byte offsets for shared-memory tiles.

Precondition: a Schedule without offsets. Postcondition: every buffer has an offset; two buffers that hold live values
at the same time share no byte; the total fits the static cap of 48 KB, or the chip's limit with @dynshared.

Buffers used only inside one loop iteration live from their first write to their last read there. If memory allows, they
are kept apart for the whole loop instead, since sharing bytes costs a barrier in every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.abi import Decision
from phobos.ir.scheduled import ForStmt, Schedule, Stmt, WhileStmt, nested
from phobos.ir.storage import Buffer
from phobos.passes.effects import accesses
from phobos.target import STATIC_SHARED_LIMIT, Target

_ALIGN = 128  # keeps the bank pattern that a layout was chosen for


@dataclass
class _Life:
    first: int
    last: int
    loops: set[tuple[int, int]]  # (start, end) of the loops around any access
    outermost: set[tuple[int, int] | None]  # the outermost loop around each access


def lifetimes(body: tuple[Stmt, ...], whole_loops: bool) -> dict[Buffer, tuple[int, int]]:
    """Statement numbers from first to last use, extended over loops that a value lives through."""
    lives: dict[Buffer, _Life] = {}
    counter = 0

    def visit(statements: tuple[Stmt, ...], loops: list[list[int]]) -> list[tuple[Buffer, int, list[list[int]]]]:
        nonlocal counter
        found = []
        for s in statements:
            counter += 1
            for a in accesses(s):
                if isinstance(a.resource, Buffer):
                    found.append((a.resource, counter, list(loops)))
            is_loop = isinstance(s, (ForStmt, WhileStmt))
            frame = [counter, counter]
            for inner in nested(s):
                found.extend(visit(inner, [*loops, frame] if is_loop else loops))
            counter += 1
            frame[1] = counter
        return found

    for buffer, at, loops in visit(body, []):
        frames = {(f[0], f[1]) for f in loops}
        top = (loops[0][0], loops[0][1]) if loops else None
        life = lives.setdefault(buffer, _Life(at, at, set(), set()))
        life.first, life.last = min(life.first, at), max(life.last, at)
        life.loops |= frames
        life.outermost.add(top)
    out: dict[Buffer, tuple[int, int]] = {}
    for buffer, life in lives.items():
        first, last = life.first, life.last
        grown = True
        while grown:
            grown = False
            for start, end in life.loops:
                inside = start <= first and last <= end
                if inside and not whole_loops:
                    continue
                if start < first or end > last:
                    first, last, grown = min(first, start), max(last, end), True
        out[buffer] = (first, last)
    return out


def _place(lives: dict[Buffer, tuple[int, int]]) -> tuple[dict[Buffer, int], int]:
    """First fit, largest first."""
    offsets: dict[Buffer, int] = {}
    total = 0
    for buffer in sorted(lives, key=lambda b: (-b.bytes, lives[b])):
        first, last = lives[buffer]
        taken = sorted(
            (offsets[o], offsets[o] + o.bytes) for o in offsets if lives[o][0] <= last and first <= lives[o][1]
        )
        at = 0
        align = _ALIGN if buffer.bytes >= _ALIGN else 16
        for start, end in taken:
            if at + buffer.bytes <= start:
                break
            at = max(at, -(-end // align) * align)
        offsets[buffer] = at
        total = max(total, at + buffer.bytes)
    return offsets, total


def _apart(offsets: dict[Buffer, int]) -> str:
    """What is true of tiles that are kept apart within loops."""
    if len(offsets) == 1:
        return "one tile"
    spans = sorted((o, o + b.bytes) for b, o in offsets.items())
    if all(end <= start for (_, end), (start, _) in zip(spans, spans[1:])):
        return "all tiles kept apart: no barrier for reuse of bytes"
    return "tiles of one loop kept apart; others take the bytes of those that are dead"


def run(schedule: Schedule, target: Target, dynshared: bool) -> Schedule:
    """Raises CompileError (PH0530) where the tiles do not fit."""
    apart, apart_bytes = _place(lifetimes(schedule.body, whole_loops=True))
    tight, tight_bytes = _place(lifetimes(schedule.body, whole_loops=False))
    limit = target.shared_per_block if dynshared else STATIC_SHARED_LIMIT
    if apart_bytes <= limit:
        offsets, total, why = apart, apart_bytes, _apart(apart)
    else:
        offsets, total, why = tight, tight_bytes, "tiles share bytes as soon as one is dead"
    if total > limit:
        tiles = ", ".join(f"{b.name} {b.bytes}" for b in sorted(tight, key=lambda b: -b.bytes)[:6])
        cap = f"{target.arch} has {limit} bytes for a block" if dynshared else "the static cap is 49152 bytes"
        raise CompileError(
            Diagnostic(
                code="PH0530",
                message=f"the shared-memory tiles need {total} bytes, {cap}",
                span=schedule.span,
                notes=(f"largest tiles in bytes: {tiles}",),
                help="use smaller tiles" if dynshared else "use smaller tiles, or @dynshared for up to "
                f"{target.shared_per_block} bytes on {target.arch}",
            )
        )
    listing = ", ".join(f"{b.name} [{o}, {o + b.bytes})" for b, o in sorted(offsets.items(), key=lambda x: x[1]))
    decision = Decision(
        stage="shared",
        subject="shared memory",
        choice=f"{total} bytes",
        reason=f"{why}: {listing}" if offsets else "no tile needs it",
    )
    return replace(
        schedule, offsets=offsets, shared_bytes=total, dynamic_shared=dynshared and total > STATIC_SHARED_LIMIT,
        decisions=(*schedule.decisions, decision),
    )  # fmt: skip
