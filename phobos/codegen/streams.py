"""Elementwise statements that load some of their operands from global memory as they go."""

from __future__ import annotations

from functools import partial

from phobos.codegen.context import Printer
from phobos.codegen.expressions import expression
from phobos.ir.scheduled import Map
from phobos.ir.storage import FragmentRef
from phobos.layout.loops import Group, Nest, loops, one_liner, plan
from phobos.transfer import plain
from phobos.transfer.interface import GlobalText

# 32-bit registers of each tile at a time. Twice as many of f32 spilled 72 bytes beside 128 accumulators; so few cost
# 3 us of 533 (128x256x32 tiles of f32 rounded to f16, 4096^3 on an H200).
_AT_ONCE = 16


def print_streamed(p: Printer, s: Map, views: list[tuple[str, str, GlobalText]]) -> None:
    """`views`: (name of the part, its C type, the view) of every tile that `s.loads` brings in."""
    w = p.writer
    layout = s.target.layout
    nest = plan(layout, p.threads, merge=False)
    most = 4 * _AT_ONCE // max(fragment.dtype.bytes for fragment, _, _ in s.loads)
    inner: list[Group] = []
    count = 1
    for g in reversed(nest.groups):  # innermost first
        if count * g.extent > most and inner:
            break
        inner.insert(0, g)
        count *= g.extent
    outer = nest.groups[: len(nest.groups) - len(inner)]
    kept = {n for g in inner for n in g.digits}
    parts = {fragment for fragment, _, _ in s.loads}
    target = FragmentRef(s.target.dtype, s.target)
    if not outer:
        w.open("")
    with loops(w, outer):
        for name, ctype, view in views:
            vector = plain.vector_of(view, layout)
            load = plan(layout, p.threads, vector=vector, merge=False)
            w.line(f"{ctype} {name}[{count}];")
            plain.load_part(w, view, load, load.groups[len(outer) :], name, partial(_part, load, kept))

        def fragment(ref: FragmentRef) -> str:
            if ref.fragment in parts:
                return f"{ref.fragment.name}[{_part(nest, kept)}]"
            return nest.fragment(ref)

        value = expression(s.value, p.environment(fragment, nest.position)).text
        one_liner(w, inner, f"{nest.fragment(target)} = {value};", memory="ph_smem" in value)
    if not outer:
        w.close()


def _part(nest: Nest, kept: set[int], last: str = "") -> str:
    """Register number within the part: the digits of the inner loops, `last` counting within a vector."""
    return nest.register_of(kept, last)
