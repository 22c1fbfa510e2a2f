"""place_barriers: block-wide barriers where, and only where, hazards between threads need them.

Precondition: a Schedule with byte offsets and no barriers but those of staged loops. Postcondition: on every path, two
accesses of different threads to one byte of shared memory or one tensor element, one of them a write, have a barrier
between; and no single barrier can be removed without breaking that.
"""

from __future__ import annotations

from dataclasses import replace

from phobos.ir.abi import Decision
from phobos.ir.scheduled import (
    AsyncCopy,
    Barrier,
    BreakStmt,
    ContinueStmt,
    ForStmt,
    IfStmt,
    ReturnStmt,
    Schedule,
    Stmt,
    WhileStmt,
    walk,
)
from phobos.passes.describe import placed
from phobos.passes.effects import PIPELINE, WRITE, Access, accesses, conflict

State = frozenset[Access]


class _Conflict(Exception):
    """The analysis need not go on: the barriers do not suffice."""


class _Analysis:
    """Walks the statements with the set of accesses since the last barrier; `insert` adds barriers on conflicts, else
    the first one ends the walk, unless they are only to be listed (`listed`).

    A loop is walked until nothing more can be under way where it begins. What was found is kept for the next time that
    an outer loop comes by, which can only add to it: else the work would double with every level of nesting.
    """

    def __init__(self, schedule: Schedule, barriers: set[Stmt], insert: bool):
        self.schedule, self.barriers, self.insert = schedule, barriers, insert
        self.overlap = frozenset(a for a in schedule.tensor_dims if a not in schedule.restrict)
        self.entries: dict[Stmt, State] = {}  # of loops: what has been under way where an iteration begins
        self.settled: dict[Stmt, tuple[State, State, State]] = {}  # with such an entry: ends of the body, breaks
        self.listed: set[str] | None = None

    def run(self) -> bool:
        """Whether no conflict was left."""
        try:
            self._block(self.schedule.body, frozenset(), [])
        except _Conflict:
            return False
        return True

    def _block(self, statements: tuple[Stmt, ...], state: State | None, loops: list[list[State]]) -> State | None:
        for s in statements:
            if state is None:
                return None
            state = self._statement(s, state, loops)
        return state

    def _own(self, s: Stmt, state: State) -> State:
        if s in self.barriers:
            state = frozenset()
        own = accesses(s)
        clashes = [(a, b) for a in state for b in own if conflict(a, b, self.schedule.offsets, self.overlap)]
        if clashes and self.listed is not None:
            self.listed.update(f"{b.what} after {a.what}" for a, b in clashes)
        elif clashes:
            if not self.insert:
                raise _Conflict
            self.barriers.add(s)
            self.entries.clear()  # less may be under way now
            self.settled.clear()
            state = frozenset()
        return state | frozenset(own)

    def _statement(self, s: Stmt, state: State, loops: list[list[State]]) -> State | None:
        if isinstance(s, IfStmt):
            state = self._own(s, state)
            ends = [self._block(b, state, loops) for b in (s.then, s.orelse)]
            live = [e for e in ends if e is not None]
            return frozenset().union(*live) if live else None
        if isinstance(s, (ForStmt, WhileStmt)):
            return self._loop(s, state)
        if isinstance(s, BreakStmt):
            loops[-1][0] = loops[-1][0] | state
            return None
        if isinstance(s, ContinueStmt):
            loops[-1][1] = loops[-1][1] | state
            return None
        if isinstance(s, ReturnStmt):
            return None
        if isinstance(s, Barrier):  # a pipeline's own
            return frozenset()
        return self._own(s, state)

    def _loop(self, s: ForStmt | WhileStmt, state: State) -> State:
        name = s.index.name if isinstance(s, ForStmt) else f"while:{id(s)}"
        if isinstance(s, ForStmt):
            state = self._own(s, state)
        entry = state | self.entries.get(s, frozenset())
        while s not in self.settled or self.settled[s][0] != entry:
            frame: list[State] = [frozenset(), frozenset()]  # states at break and at continue
            if isinstance(s, WhileStmt):
                head = self._block(s.head, entry, [frame])
                assert head is not None
                entry_body = self._own(s, head)
            else:
                entry_body = entry
            end = self._block(s.body, entry_body, [frame])
            back = frame[1] | (end if end is not None else frozenset())
            # Values carried by a `while` change from one iteration to the next like an index does.
            aged = frozenset(a.aged(name, a in state) for a in back)
            if aged <= entry:
                self.settled[s] = (entry, entry_body | back, frame[0])
            entry = self.entries[s] = entry | aged
        _, ends, broken = self.settled[s]
        # A ring is filled, and its first step read, only for iterations that follow, whose barrier orders that: none of
        # it is under way where the loop ends, or made no trip at all.
        rings = {copy.buffer for copy in walk(s.body) if isinstance(copy, AsyncCopy)}
        left = [a for a in ends if a.resource not in rings or (a.mode != WRITE and a.threads != PIPELINE)]
        return frozenset(a if a in state else a.out_of(name) for a in (*left, *broken))


def suffice(schedule: Schedule, barriers: set[Stmt]) -> bool:
    """Whether no hazard is left with a barrier before each of these statements beside those of the schedule itself."""
    return _Analysis(schedule, barriers, insert=False).run()


def _separated(schedule: Schedule, barriers: set[Stmt]) -> tuple[str, ...]:
    """The hazards that are left with these barriers, in words."""
    analysis = _Analysis(schedule, barriers, insert=False)
    analysis.listed = set()
    analysis.run()
    return tuple(sorted(analysis.listed))


def run(schedule: Schedule) -> Schedule:
    barriers: set[Stmt] = set()
    while True:  # a barrier that the back edge of a loop asks for changes what holds further up
        before = len(barriers)
        _Analysis(schedule, barriers, insert=True).run()
        if len(barriers) == before:
            break
    # In one order whatever the run: of several barriers of which one suffices, the earliest in the text stays.
    listed = sorted(
        (s for s in walk(schedule.body) if s in barriers), key=lambda s: (s.span.line, s.span.column), reverse=True
    )
    for s in listed:
        if suffice(schedule, barriers - {s}):
            barriers.discard(s)
    reasons = {s: _separated(schedule, barriers - {s}) for s in listed if s in barriers}
    body = _insert(schedule.body, barriers, reasons)
    return replace(schedule, body=body, decisions=(*schedule.decisions, *_decisions(body)))


def _decisions(body: tuple[Stmt, ...]) -> tuple[Decision, ...]:
    """The barriers by line; those of one line, loop and reason together."""
    found = [(s, where) for s, where in placed(body) if isinstance(s, Barrier)]
    counts: dict[tuple[int, str, tuple[str, ...]], int] = {}
    for s, where in sorted(found, key=lambda x: (x[0].span.line, x[0].span.column)):
        key = s.span.line, where, s.reasons
        counts[key] = counts.get(key, 0) + 1
    return tuple(
        Decision(
            stage="barrier",
            subject=f"{f'{count} barriers' if count > 1 else 'barrier'}{where}",
            choice="block-wide, before what the line does here",
            reason="; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else ""),
            line=line,
        )
        for (line, where, reasons), count in counts.items()
    )


def _insert(
    statements: tuple[Stmt, ...], barriers: set[Stmt], reasons: dict[Stmt, tuple[str, ...]]
) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in statements:
        new = s
        if isinstance(s, ForStmt):
            new = replace(s, body=_insert(s.body, barriers, reasons))
        elif isinstance(s, WhileStmt):
            head = _insert(s.head, barriers, reasons)
            if s in barriers:  # its condition reads what the head wrote
                head = (*head, Barrier(span=s.span, reasons=reasons[s]))
            out.append(replace(s, head=head, body=_insert(s.body, barriers, reasons)))
            continue
        elif isinstance(s, IfStmt):
            new = replace(s, then=_insert(s.then, barriers, reasons), orelse=_insert(s.orelse, barriers, reasons))
        if s in barriers:
            out.append(Barrier(span=s.span, reasons=reasons[s]))
        out.append(new)
    return tuple(out)
