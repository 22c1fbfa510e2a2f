"""The scheduled IR as text, for `--emit scheduled` and for readers: storage first, then the statements, one a line.

Every statement prints its class and all of its fields, so a new one needs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from phobos.ir import scheduled as s
from phobos.ir.printer import print_dim, print_literal
from phobos.ir.storage import (
    Apply,
    Buffer,
    BufferRef,
    Convert,
    Expr,
    Fragment,
    FragmentRef,
    Literal,
    Opaque,
    Position,
    ScalarRef,
    ScalarVar,
    Special,
    expr_walk,
)

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&&",
    "or": "||",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
    "shl": "<<",
    "shr": ">>",
}
# Said by the statement's line number, or by the statements that are printed inside it.
_SKIPPED = frozenset(("span", "note", "body", "head", "then", "orelse"))


def print_schedule(schedule: s.Schedule) -> str:
    """The whole schedule; ends with a newline."""
    grid = ", ".join(print_dim(d) for d in schedule.grid)
    out = [f"schedule {schedule.name}: grid ({grid}), {schedule.threads} threads, {schedule.index_bits}-bit index"]
    kind = "dynamic" if schedule.dynamic_shared else "static"
    out.append(f"shared {schedule.shared_bytes} bytes, {kind}")
    fragments, opaques, buffers = _storage(schedule)
    for buffer in buffers:
        offset = schedule.offsets.get(buffer)
        ring = f", ring of {buffer.stages} stages" if buffer.stages > 1 else ""
        place = f"at byte {offset}" if offset is not None else "not placed"
        out.append(f"  {buffer.name}: {buffer.dtype}, {buffer.bytes} bytes {place}, {buffer.layout}{ring}")
    out.append("registers")
    out += [f"  {f.name}: {f.dtype}, {f.layout}" for f in fragments]
    out += [f"  {o.name}: opaque accumulators of {o.plan.room}, {o.plan.description}" for o in opaques]
    out.append("body")
    out += _block(schedule.body, 1)
    return "\n".join(out) + "\n"


def _storage(schedule: s.Schedule) -> tuple[list[Fragment], list[Opaque], list[Buffer]]:
    """Fragments, opaque accumulators and buffers in the order of their first use."""
    opaques: dict[Opaque, None] = {}
    fragments: dict[Fragment, None] = {}
    buffers: dict[Buffer, None] = dict.fromkeys(schedule.offsets)
    for statement in s.walk(schedule.body):
        for item in _items(statement):
            if isinstance(item, Fragment):
                fragments.setdefault(item)
            elif isinstance(item, Opaque):
                opaques.setdefault(item)
            elif isinstance(item, Buffer):
                buffers.setdefault(item)
            elif isinstance(item, Expr):
                for e in expr_walk(item):
                    if isinstance(e, FragmentRef):
                        fragments.setdefault(e.fragment)
                    elif isinstance(e, BufferRef):
                        buffers.setdefault(e.buffer)
    return list(fragments), list(opaques), list(buffers)


def _items(statement: s.Stmt) -> Iterator[object]:
    for f in fields(statement):
        if f.name not in _SKIPPED:
            value = getattr(statement, f.name)
            yield from value if isinstance(value, tuple) else (value,)


def _block(statements: tuple[s.Stmt, ...], depth: int) -> list[str]:
    out = []
    for statement in statements:
        pad = "  " * depth
        note = f"  // {statement.note}" if statement.note else ""
        out.append(f"{statement.span.line:>4} {pad}{_statement(statement)}{note}")
        for number, inner in enumerate(s.nested(statement)):
            if number:
                out.append(f"     {pad}{'else' if isinstance(statement, s.IfStmt) else 'do'}")
            out += _block(inner, depth + 1)
    return out


def print_statement(statement: s.Stmt) -> str:
    """One statement on one line, without what is nested in it."""
    return _statement(statement)


def _statement(statement: s.Stmt) -> str:
    name = type(statement).__name__.removesuffix("Stmt")
    parts = []
    for f in fields(statement):
        value = getattr(statement, f.name)
        if f.name == "plan":
            parts.append(f"plan={value.room}({value.kind})")
        elif f.name not in _SKIPPED and value is not None and value != ():
            parts.append(f"{f.name}={_value(value)}")
    return f"{name} {' '.join(parts)}".rstrip()


def _value(value: object) -> str:
    if isinstance(value, Expr):
        return print_expression(value)
    if isinstance(value, (Fragment, Opaque, Buffer, ScalarVar)):
        return value.name
    if isinstance(value, s.GlobalView):
        return _view(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_value, value))})"
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, (bool, int, float)):
        return print_literal(value)
    return str(value)


def _view(view: s.GlobalView) -> str:
    axes = []
    for axis in view.axes:
        if isinstance(axis, s.GatherAxis):
            axes.append(axis.index.name)
            continue
        if isinstance(axis, s.AtAxis):
            text = print_expression(axis.index)
        else:
            text = f"{print_expression(axis.start)} :+ {axis.length}"
        sides = " and ".join(n for n, on in (("low", axis.low), ("high", axis.high)) if on)
        axes.append(text + (f" {sides} checked" if sides else ""))
    return f"{view.tensor}[{', '.join(axes)}] by {view.vector}"


def print_expression(e: Expr) -> str:
    """An element-level expression, fully parenthesised; `@i` is the position along axis i."""
    if isinstance(e, Literal):
        return print_literal(e.value)
    if isinstance(e, ScalarRef):
        return e.name
    if isinstance(e, Special):
        return f"{e.kind}.{'xyz'[e.axis]}"
    if isinstance(e, FragmentRef):
        return e.fragment.name + (f"<{', '.join(map(str, e.axes))}>" if e.axes is not None else "")
    if isinstance(e, Position):
        return f"@{e.axis}"
    if isinstance(e, BufferRef):
        guard = f" if {print_expression(e.guard)} else {print_literal(e.fill)}" if e.guard is not None else ""
        return f"{e.buffer.name}[{', '.join(map(print_expression, e.at))}]{guard}"
    if isinstance(e, Convert):
        return f"{e.dtype}({print_expression(e.arg)})"
    if isinstance(e, Apply):
        if e.fn in _INFIX and len(e.args) == 2:
            return f"({print_expression(e.args[0])} {_INFIX[e.fn]} {print_expression(e.args[1])})"
        return f"{e.fn}{'.fast' if e.fast else ''}({', '.join(map(print_expression, e.args))})"
    raise TypeError(f"no text for {type(e).__name__}")
