"""Which statements of the schedule belong to which step of the reference.

The compiler hoists, splits, turns and merges what the text says, so this is told from source positions and iterations:

- a statement whose place in the text makes a step belongs to that step in its own iteration; if it runs before the loop
  around that step, to the first iteration of it; what fills a ring ahead, to the iteration for which it does;
- a variable that a loop carries is set under the loop's line: that belongs to the step that made its value;
- a scalar belongs to the next step in the text;
- what the compiler adds on its own (barriers and waits at a loop's head, reductions put off until after a loop) belongs
  to the step whose work comes next, inside of the same iteration where there is one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from phobos.ir import scheduled as s
from phobos.ir.storage import ScalarRef
from phobos.trace.events import Path, Step
from phobos.trace.machine import Executed


def attach(steps: Sequence[Step], executed: Sequence[Executed]) -> list[list[int]]:
    """For each step, the numbers of the executed statements that do its work, in order."""
    out: list[list[int]] = [[] for _ in steps]
    if steps:
        for number, step in enumerate(_Attacher(steps, executed).run()):
            out[step].append(number)
    return out


def makes(step: Step, name: str, shape: tuple[int, ...]) -> bool:
    """Whether the step makes a tile of the shape for the variable that these registers are named after."""
    mark = step.mark
    if mark.value is None or mark.value.shape != shape:
        return False
    return re.fullmatch(rf"{re.escape(mark.name)}(_\d+)?", name) is not None


@dataclass(frozen=True)
class _Place:
    """The steps at a place in the text, in all iterations and by their iteration."""

    steps: list[int]
    body: dict[Path, list[int]]


class _Attacher:
    def __init__(self, steps: Sequence[Step], executed: Sequence[Executed]):
        self.steps, self.executed = steps, executed
        self.at_line: dict[int, list[int]] = {}
        self.places: dict[tuple[int, int], _Place] = {}
        self.body: dict[Path, list[int]] = {}  # steps straight in an iteration
        self.inside: dict[Path, list[int]] = {}  # steps in loops in it
        for i, step in enumerate(steps):
            self.body.setdefault(step.turns, []).append(i)
            for depth in range(len(step.turns)):
                self.inside.setdefault(step.turns[:depth], []).append(i)
            for line in range(step.mark.span.line, step.mark.span.end_line + 1):
                self.at_line.setdefault(line, []).append(i)
        self.loops = {line for e in executed for line, _ in e.path} | {line for step in steps for line, _ in step.turns}
        self.last: dict[Path, int] = {}  # the last statement of each iteration
        for number, e in enumerate(executed):
            for depth in range(1, len(e.path) + 1):
                self.last[e.path[:depth]] = number
        # Statements at the place of a step in its own iteration, by the iterations that they are in: the others go by
        # these.
        self.anchors: dict[Path, list[int]] = {}
        self.cursor: dict[Path, int] = {}

    def run(self) -> list[int]:
        """The step of each executed statement."""
        rings = _Rings(self.executed)
        found: list[int | None] = []
        copies: int | None = None  # the step for which copies are under way
        for number, e in enumerate(self.executed):
            place = self._place(e.statement.span.line, e.statement.span.column)
            fill = rings.fill(e) if place.steps else None
            if fill is not None:
                step: int | None = place.steps[min(fill, len(place.steps) - 1)]
            elif isinstance(e.statement, s.AsyncCommit):
                step, copies = copies, None
            else:
                step = self._own(e, number, place)
                if step is not None:
                    for depth in range(len(e.path) + 1):
                        self.anchors.setdefault(e.path[:depth], []).append(number)
                else:
                    step = self._ahead(e, number, place.steps)
            if isinstance(e.statement, s.AsyncCopy):
                copies = step
            found.append(step)
        known = list(found)
        return [self._next(n, known) if step is None else step for n, step in enumerate(found)]

    def _place(self, line: int, column: int) -> _Place:
        key = (line, column)
        if key not in self.places:
            here = self.at_line.get(line, [])
            place = _Place([i for i in here if _contains(self.steps[i], line, column)] or here, {})
            for i in place.steps:
                place.body.setdefault(self.steps[i].turns, []).append(i)
            self.places[key] = place
        return self.places[key]

    def _own(self, e: Executed, number: int, place: _Place) -> int | None:
        """The step in this very iteration that the statement does: at its place, or the one that made what a loop
        carries."""
        here = place.body.get(e.path)
        if here:
            # A function that is called twice has two steps at the place.
            step = here[min(bisect_left(here, self.cursor.get(e.path, 0)), len(here) - 1)]
            self.cursor[e.path] = step
            return step
        x = e.statement
        if not isinstance(x, (s.Map, s.MoveRegisters, s.OpaqueFill, s.OpaqueLoad)):
            return None
        if isinstance(x, s.Map) and isinstance(x.value, ScalarRef):
            return None
        body = self.body.get(e.path, [])
        named = [i for i in body if makes(self.steps[i], x.target.name, tuple(x.target.layout.shape))]
        if x.span.line in self.loops:  # before a loop or at the end of an iteration
            loop = next((i for i in self.inside.get(e.path, []) if self._to_come(i, e, number)), len(self.steps))
            named = [i for i in named if i < loop]
        else:
            named = [i for i in named if i <= self.cursor.get(e.path, 0)]
        return named[-1] if named else None

    def _to_come(self, step: int, e: Executed, number: int) -> bool:
        """Whether the step, in a loop inside of the statement's iteration, is in an iteration that is not over."""
        turns = self.steps[step].turns
        return turns[: len(e.path)] == e.path and self.last.get(turns[: len(e.path) + 1], number) >= number

    def _ahead(self, e: Executed, number: int, place: list[int]) -> int | None:
        """The first step to come at the statement's place; of a scalar, the first one behind it in the text."""
        depth = len(e.path)
        if not place and e.statement.span.line not in self.loops:
            line = e.statement.span.line
            begin = self.cursor.get(e.path, 0)
            later = [i for i in self.body.get(e.path, []) if i >= begin and self.steps[i].mark.span.line > line]
            later += [
                i
                for i in self.inside.get(e.path, [])
                if self.steps[i].mark.span.line > line and self._to_come(i, e, number)
            ]
            return min(later, key=lambda i: (self.steps[i].mark.span.line, i), default=None)
        for i in place:
            if len(self.steps[i].turns) > depth and self._to_come(i, e, number):
                return i
        # In a loop that the text does not have around it.
        around = [i for i in place if len(self.steps[i].turns) < depth and set(self.steps[i].turns) <= set(e.path)]
        begin = self.cursor.get(e.path, 0)
        return next((i for i in around if i >= begin), around[-1] if around else None)

    def _next(self, number: int, known: Sequence[int | None]) -> int:
        """The step of the work that comes next in the same iteration, or else came last; of an iteration without steps
        that of the iteration around it."""
        path = self.executed[number].path
        for depth in range(len(path), -1, -1):
            anchors = self.anchors.get(path[:depth], [])
            steps = self.body.get(path[:depth]) or self.inside.get(path[:depth])
            if not anchors and steps:
                return steps[0]  # all of them folded into others
            at = bisect_right(anchors, number)
            if at < len(anchors):
                return self._known(known, anchors[at])
            if at:
                step = self._known(known, anchors[at - 1])
                # After a loop, not in it.
                return next((i for i in self.body.get(path[:depth], []) if i > step), step) if depth == 0 else step
        return 0

    def _known(self, known: Sequence[int | None], number: int) -> int:
        step = known[number]
        assert step is not None
        return step


class _Rings:
    """Counts what fills rings ahead of the iterations that read them."""

    def __init__(self, executed: Sequence[Executed]):
        # Registers on their way into a ring.
        self.held = {
            e.statement.source.name
            for e in executed
            if isinstance(e.statement, s.WriteShared) and e.statement.stage is not None
        }
        self.filled: dict[tuple[str, int, int], int] = {}
        self.first: dict[str, int] = {}

    def fill(self, e: Executed) -> int | None:
        """For which iteration the statement fills a ring, None if it fills none."""
        ring = self._ring(e.statement)
        if ring is None:
            return None
        key = (ring, e.statement.span.line, e.statement.span.column)
        count = self.filled.get(key, 0)
        self.filled[key] = count + 1
        base = ring.split(" ")[0]
        if isinstance(e.statement, s.GlobalToShared):
            self.first[base] = self.first.get(base, 0) + 1
        elif not isinstance(e.statement, s.AsyncCopy):
            # The first tile came straight from memory.
            count += self.first.get(base, self.first.get(base.removesuffix("_next"), 0))
        return count

    def _ring(self, x: s.Stmt) -> str | None:
        if isinstance(x, (s.AsyncCopy, s.GlobalToShared)) and x.buffer.stages > 1:
            return x.buffer.name
        if isinstance(x, s.WriteShared) and x.stage is not None:
            return f"{x.buffer.name} from registers"
        if isinstance(x, s.LoadGlobal) and x.target.name in self.held:
            return f"{x.target.name} from memory"
        return None


def _contains(step: Step, line: int, column: int) -> bool:
    span = step.mark.span
    return (span.line, span.column) <= (line, column) < (span.end_line, span.end_column)
