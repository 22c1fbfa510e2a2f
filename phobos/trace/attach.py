"""Which statements of the schedule belong to which step of the reference.

The compiler hoists, splits, turns and merges what the text says, so this is told from source positions and iterations:
a statement belongs to the step at its place in the text, in its iteration; what runs before the loop to its first
iteration, what fills a ring ahead to the iteration for which it does.
"""

from __future__ import annotations

from collections.abc import Sequence

from phobos.ir import scheduled as s
from phobos.ir.storage import ScalarRef
from phobos.trace.events import Step
from phobos.trace.machine import Executed


def _ring(e: Executed, held: set[str]) -> str | None:
    """The ring that the statement fills ahead of the iteration that reads it. `held`: fragments on their way there."""
    x = e.statement
    if isinstance(x, (s.AsyncCopy, s.GlobalToShared)) and x.buffer.stages > 1:
        return x.buffer.name
    if isinstance(x, s.WriteShared) and x.stage is not None:
        return f"{x.buffer.name} from registers"
    if isinstance(x, s.LoadGlobal) and x.target.name in held:
        return f"{x.target.name} from memory"
    return None


def attach(steps: Sequence[Step], executed: Sequence[Executed]) -> list[list[int]]:
    """For each step, the numbers of the executed statements that do its work, in order."""
    out: list[list[int]] = [[] for _ in steps]
    if not steps:
        return out
    at_line: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        for line in range(step.mark.span.line, step.mark.span.end_line + 1):
            at_line.setdefault(line, []).append(i)
    held = {
        e.statement.source.name
        for e in executed
        if isinstance(e.statement, s.WriteShared) and e.statement.stage is not None
    }
    filled: dict[tuple[str, int, int], int] = {}
    first_fill: dict[str, int] = {}
    cursor = reached = 0
    for number, e in enumerate(executed):
        span = e.statement.span
        here = at_line.get(span.line, [])
        inside = [i for i in here if _contains(steps[i], span.line, span.column)]
        candidates = inside or here
        if not candidates:
            cursor = _elsewhere(steps, e, cursor)
            out[cursor].append(number)
            cursor = max(cursor, reached)
            continue
        ring = _ring(e, held)
        if ring is not None:
            key = (ring, span.line, span.column)
            count = filled.get(key, 0)
            filled[key] = count + 1
            base = ring.split(" ")[0]
            if isinstance(e.statement, s.GlobalToShared):
                first_fill[base] = first_fill.get(base, 0) + 1
            elif not isinstance(e.statement, s.AsyncCopy):
                # The first tile came straight from memory.
                count += first_fill.get(base, first_fill.get(base.removesuffix("_next"), 0))
            out[candidates[min(count, len(candidates) - 1)]].append(number)
            continue
        same = [i for i in candidates if _agrees(steps[i], e)] or candidates
        target = next((i for i in same if i >= cursor), same[-1])
        out[target].append(number)
        cursor = reached = target
    return out


def _elsewhere(steps: Sequence[Step], e: Executed, cursor: int) -> int:
    """The step for a statement of a line that makes none: a loop head, a scalar, the end of an iteration."""
    x = e.statement
    if isinstance(x, s.Map) and not isinstance(x.value, ScalarRef):
        # What a loop carries, set before it and at the end of each iteration, under the loop's line.
        shape = tuple(x.target.layout.shape)
        named = [
            i
            for i, step in enumerate(steps)
            if x.target.name == step.mark.name and step.mark.value is not None and step.mark.value.shape == shape
        ]
        here = [i for i in named if steps[i].path == e.path]
        if here and (e.path or here[0] <= cursor):
            return here[-1] if e.path else max(i for i in here if i <= cursor)
    if _agrees(steps[cursor], e):
        return cursor
    return next((i for i in range(cursor, len(steps)) if _agrees(steps[i], e)), cursor)


def _contains(step: Step, line: int, column: int) -> bool:
    span = step.mark.span
    return (span.line, span.column) <= (line, column) < (span.end_line, span.end_column)


def _agrees(step: Step, e: Executed) -> bool:
    """Both are in the same iteration of every loop that is around both."""
    turns = dict(e.path)
    return all(turns.get(line, turn) == turn for line, turn in step.path)
