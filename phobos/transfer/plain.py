"""Transfers by ordinary loads and stores: global <-> registers, and global -> shared through registers.

Whole tiles take a path without masks behind one uniform branch; ragged ones check every access.
"""

from __future__ import annotations

from collections.abc import Callable

from phobos.layout.loops import Nest, loops, plan
from phobos.layout.positions import ThreadPositions
from phobos.layout.register import RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter
from phobos.transfer.interface import AxisText, GlobalText

_BRANCH_FROM = 4  # accesses of a thread from which a second, unmasked copy of the code pays


def _sum(*terms: str) -> str:
    return " + ".join(t for t in terms if t and t != "0") or "0"


def vector_of(view: GlobalText, layout: RegisterLayout) -> int:
    """Elements per access that both the view and the layout allow."""
    last = view.axes[-1]
    if last.tile_axis is None or last.gather is not None or last.stride:
        return 1
    run = layout.contiguous_run(last.tile_axis)
    vector = view.vector
    while vector > 1 and run % vector:
        vector //= 2
    return vector


def _axis_position(axis: AxisText, nest: Nest, inner: str = "") -> str:
    """Position along a tensor axis of the current register."""
    if axis.gather is not None:
        assert axis.tile_axis is not None
        kept = axis.tile_axis
        first = bool(nest.layout.reg) and nest.layout.reg[0].axis == kept
        return f"{axis.gather}[{nest.register(lambda a: a == kept, inner if first else '')}]"
    if axis.tile_axis is None:
        return axis.start
    return _sum(axis.start, nest.position(axis.tile_axis, inner))


def offset_text(view: GlobalText, nest: Nest, inner: str = "") -> str:
    """Element offset of the current register from the tensor's base."""
    terms = []
    for axis in view.axes:
        position = _axis_position(axis, nest, inner)
        if not axis.stride:
            terms.append(position)
        elif position != "0":
            terms.append(f"{position if position.isidentifier() else f'({position})'} * {axis.stride}")
    return _sum(*terms)


def guard_text(view: GlobalText, nest: Nest, inner: str = "", masked: bool = True, padding: bool = True) -> str:
    """Condition under which the current register's element may be accessed, "" if always: the tensor's bounds if
    `masked`, and that the slot is no padding if `padding`."""
    tests: list[str] = []
    if masked:
        for axis in view.axes:
            position = _axis_position(axis, nest, inner)
            if axis.low:
                tests.append(f"{position} >= 0")
            if axis.high:
                tests.append(f"{position} < {axis.dim}")
    if padding:
        tests.extend(padding_tests(nest, inner))
    return " && ".join(f"PH_GUARD({t})" for t in tests)


def padding_tests(nest: Nest, inner: str = "") -> list[str]:
    layout = nest.layout
    return [
        f"{nest.position(axis, inner)} < {extent}" for axis, extent in enumerate(layout.shape) if layout.padded(axis)
    ]


def shared_index(nest: Nest, shared: SharedLayout, inner: str = "") -> str:
    """Element index of the current register's position in an unswizzled shared tile."""
    terms = []
    for axis, stride in enumerate(shared.strides):
        position = nest.position(axis, inner)
        if position != "0":
            terms.append(position if stride == 1 else f"({position}) * {stride}")
    return _sum(*terms)


def two_paths(w: TextWriter, view: GlobalText, accesses: int, emit: Callable[[bool], None]) -> None:
    """`emit(masked)` once, or twice behind a branch that is uniform over the block."""
    whole = view.whole() if view.guarded else None
    if not view.guarded:
        emit(False)
    elif whole is not None and accesses >= _BRANCH_FROM:
        w.open(f"if (PH_LIKELY({whole}))")
        emit(False)
        w.reopen("else")
        emit(True)
        w.close()
    else:
        emit(True)


def load_registers(w: TextWriter, view: GlobalText, layout: RegisterLayout, target: str, threads: ThreadPositions) -> None:
    """target[...] = view; masked and padding slots get the fill."""
    vector = vector_of(view, layout)
    nest = plan(layout, threads, vector=vector, merge=False)

    def emit(masked: bool) -> None:
        guard = guard_text(view, nest, masked=masked)
        with loops(w, nest.groups):
            offset = offset_text(view, nest)
            if vector == 1:
                slot = f"{target}[{nest.register()}]"
                if guard:
                    w.line(f"{slot} = {view.fill};")
                    w.line(f"if ({guard}) {slot} = {view.tensor}[{offset}];", memory=True)
                else:
                    w.line(f"{slot} = {view.tensor}[{offset}];", memory=True)
                return
            pack = f"ph_vec<{view.ctype}, {vector}>"
            slot = f"{target}[{nest.register(inner='v')}]"
            each = f"for (int v = 0; v < {vector}; ++v)"
            if guard:
                w.line("PH_UNROLL")
                w.line(f"{each} {slot} = {view.fill};")
                w.open(f"if ({guard})")
            else:
                w.open("")
            w.line(f"const {pack} t = ph_ldv<{pack}>({view.tensor}, {offset});", memory=True)
            w.line("PH_UNROLL")
            w.line(f"{each} {slot} = t.v[v];")
            w.close()

    two_paths(w, view, layout.registers // vector, emit)


def store_registers(w: TextWriter, view: GlobalText, layout: RegisterLayout, source: str, threads: ThreadPositions) -> None:
    """view = source[...], by the owners."""
    vector = vector_of(view, layout)
    nest = plan(layout, threads, vector=vector, merge=False)
    owner = threads.owner(layout)

    def emit(masked: bool) -> None:
        guard = guard_text(view, nest, masked=masked)
        with loops(w, nest.groups):
            offset = offset_text(view, nest)
            if vector == 1:
                store = f"{view.tensor}[{offset}] = {source}[{nest.register()}];"
                w.line(f"if ({guard}) {store}" if guard else store, memory=True)
                return
            pack = f"ph_vec<{view.ctype}, {vector}>"
            w.open(f"if ({guard})" if guard else "")
            w.line(f"{pack} t;")
            w.line("PH_UNROLL")
            w.line(f"for (int v = 0; v < {vector}; ++v) t.v[v] = {source}[{nest.register(inner='v')}];")
            w.line(f"ph_stv({view.tensor}, {offset}, t);", memory=True)
            w.close()

    if owner:
        w.open(f"if ({owner})")
    two_paths(w, view, layout.registers // vector, emit)
    if owner:
        w.close()


def global_to_shared(
    w: TextWriter, view: GlobalText, layout: RegisterLayout, shared: SharedLayout, ctype: str, convert: Callable[[str], str],
    target: str, threads: ThreadPositions,
) -> None:  # fmt: skip
    """Copies a view into the shared tile at `target` (an expression of its pointer); masked elements become the fill.

    The tile's elements are of type `ctype`; `convert` turns an element of the view, given as text, into one.
    """
    vector = vector_of(view, layout)
    nest = plan(layout, threads, vector=vector, merge=False)
    last = layout.rank - 1
    wide = vector > 1 and shared.vector_width(last, vector) == vector and not shared.swizzle
    owner = threads.owner(layout)

    def linear(inner: str = "") -> str:
        return shared_index(nest, shared, inner)

    def emit(masked: bool) -> None:
        padding = " && ".join(f"PH_GUARD({t})" for t in padding_tests(nest))
        bounds = guard_text(view, nest, padding=False) if masked else ""
        with loops(w, nest.groups):
            if padding:
                w.open(f"if ({padding})")
            offset = offset_text(view, nest)
            if vector == 1:
                w.line(f"{view.ctype} t = {view.fill};" if bounds else f"const {view.ctype} t = {view.tensor}[{offset}];", memory=not bounds)
                if bounds:
                    w.line(f"if ({bounds}) t = {view.tensor}[{offset}];", memory=True)
                w.line(f"tile[{linear()}] = {convert('t')};", memory=True)
            else:
                pack = f"ph_vec<{view.ctype}, {vector}>"
                if bounds:
                    w.line(f"{pack} t;")
                    w.line("PH_UNROLL")
                    w.line(f"for (int v = 0; v < {vector}; ++v) t.v[v] = {view.fill};")
                    w.line(f"if ({bounds}) t = ph_ldv<{pack}>({view.tensor}, {offset});", memory=True)
                else:
                    w.line(f"const {pack} t = ph_ldv<{pack}>({view.tensor}, {offset});", memory=True)
                if wide and convert("t") == "t":
                    w.line(f"ph_stv(tile, {linear()}, t);", memory=True)
                elif wide:
                    w.line(f"ph_vec<{ctype}, {vector}> c;")
                    w.line("PH_UNROLL")
                    w.line(f"for (int v = 0; v < {vector}; ++v) c.v[v] = {convert('t.v[v]')};")
                    w.line(f"ph_stv(tile, {linear()}, c);", memory=True)
                else:
                    w.line("PH_UNROLL")
                    w.line(f"for (int v = 0; v < {vector}; ++v) tile[{linear('v')}] = {convert('t.v[v]')};", memory=True)
            if padding:
                w.close()

    w.open(f"if ({owner})" if owner else "")
    w.line(f"const ph_shared<{ctype}> tile = {target};")
    two_paths(w, view, layout.registers // vector, emit)
    w.close()
