"""Transfers by ordinary loads and stores: global <-> registers, and global -> shared through registers.

Whole tiles take a path without masks behind one uniform branch; ragged ones check every access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phobos.layout.loops import Group, Nest, loops, plan
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
    last = next((a for a in view.axes if a.tile_axis == layout.rank - 1), None)
    if last is None or last.gather is not None or last.stride:
        return 1
    run = layout.contiguous_run(layout.rank - 1)
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


def _scaled(text: str, stride: str) -> str:
    if not stride or text == "0":
        return text
    return f"{text if text.isidentifier() else f'({text})'} * {stride}"


def _step(variable: str, elements: int, stride: str) -> str:
    """`variable` steps of `elements` positions along an axis of this stride."""
    if not stride or stride.isdigit():
        factor = elements * int(stride or 1)
        return variable if factor == 1 else f"{variable} * {factor}"
    return f"{variable} * {stride}" if elements == 1 else f"{variable} * ({elements} * {stride})"


def split_offset(view: GlobalText, nest: Nest) -> tuple[str, str]:
    """Element offset from the tensor's base, as a part that is the same for all registers of the thread and one that
    moves with the loops: addresses then cost one computation and immediate offsets."""
    base: list[str] = []
    steps: list[str] = []
    for axis in view.axes:
        if axis.gather is not None:
            steps.append(_scaled(axis.cast + _axis_position(axis, nest), axis.stride))
        elif axis.tile_axis is None:
            base.append(_scaled(axis.start, axis.stride))
        else:
            base.append(_scaled(_sum(axis.start, nest.base(axis.tile_axis)), axis.stride))
            steps.extend(_step(v, n, axis.stride) for v, n in nest.steps(axis.tile_axis))
    return _sum(*base), _sum(*steps)


def begin(view: GlobalText, moving: Sequence[bool]) -> str:
    """Element offset of what the axes that are `moving` begin at."""
    return _sum(*(_scaled(axis.start, axis.stride) for axis, moves in zip(view.axes, moving) if moves))


def split_shared(nest: Nest, shared: SharedLayout) -> tuple[str, str]:
    """The same for the element index in a shared tile.

    In a swizzled one the thread's first chunk is permuted, and steps of whole periods leave that as it is; with other
    steps there is no common base.
    """
    if shared.swizzle:
        whole = shared.swizzle * shared.chunk
        periodic = all(n % shared.period == 0 for _, n in nest.steps(0)) and all(
            n % whole == 0 for _, n in nest.steps(1)
        )
        if not periodic:
            return "0", shared.index_text(nest.position(0) or "0", nest.position(1) or "0")
        start = shared.index_text(nest.base(0) or "0", nest.base(1) or "0")
    base: list[str] = []
    steps: list[str] = []
    for axis, stride in enumerate(shared.strides):
        text = "" if stride == 1 else str(stride)
        base.append(_scaled(nest.base(axis) or "0", text))
        steps.extend(_step(v, n, text) for v, n in nest.steps(axis))
    return start if shared.swizzle else _sum(*base), _sum(*steps)


def displaced(base: str, offset: str) -> str:
    """The expression base + offset."""
    return base if offset == "0" else f"{base} + ({offset})"


def pointer(w: TextWriter, name: str, base: str, offset: str) -> None:
    """Declares `name` = base + offset."""
    w.line(f"const auto {name} = {displaced(base, offset)};")


def offset_text(view: GlobalText, nest: Nest) -> str:
    """Element offset of the current register from the tensor's base."""
    return _sum(*split_offset(view, nest))


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


def two_paths(
    w: TextWriter, view: GlobalText, accesses: int, emit: Callable[[bool], None], *, staged: bool = False
) -> None:
    """`emit(masked)` once, or twice behind a branch that is uniform over the block. `staged`: on the way
    to shared memory."""
    whole = view.whole(staged=staged) if view.guarded else None
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


def load_registers(
    w: TextWriter, view: GlobalText, layout: RegisterLayout, target: str, threads: ThreadPositions
) -> None:
    """target[...] = view; masked and padding slots get the fill."""
    nest = plan(layout, threads, vector=vector_of(view, layout), merge=False)
    load_part(w, view, nest, nest.groups, target, lambda inner: nest.register(inner=inner))


def load_part(
    w: TextWriter, view: GlobalText, nest: Nest, groups: tuple[Group, ...], target: str, slot_of: Callable[[str], str]
) -> None:
    """The same for the registers that the loops `groups` of the nest run over, the others being fixed by loops around.

    `slot_of(inner)`: the index in `target` of the current register, `inner` counting within a vector.
    """
    vector = nest.vector
    base, step = split_offset(view, nest)
    accesses = 1
    for g in groups:
        accesses *= g.extent

    def emit(masked: bool) -> None:
        guard = guard_text(view, nest, masked=masked)
        with loops(w, groups):
            if vector == 1:
                slot = f"{target}[{slot_of('')}]"
                if guard:
                    w.line(f"{slot} = {view.fill};")
                    w.line(f"if ({guard}) {slot} = from[{step}];", memory=True)
                else:
                    w.line(f"{slot} = from[{step}];", memory=True)
                return
            pack = f"ph_vec<{view.ctype}, {vector}>"
            slot = f"{target}[{slot_of('v')}]"
            each = f"for (int v = 0; v < {vector}; ++v)"
            if guard:
                w.line("PH_UNROLL")
                w.line(f"{each} {slot} = {view.fill};")
                w.open(f"if ({guard})")
            else:
                w.open("")
            w.line(f"const {pack} t = ph_ldv<{pack}>(from, {step});", memory=True)
            w.line("PH_UNROLL")
            w.line(f"{each} {slot} = t.v[v];")
            w.close()

    w.open("")
    pointer(w, "from", view.tensor, base)
    two_paths(w, view, accesses, emit)
    w.close()


def store_registers(
    w: TextWriter, view: GlobalText, layout: RegisterLayout, source: str, threads: ThreadPositions
) -> None:
    """view = source[...], by the owners."""
    vector = vector_of(view, layout)
    nest = plan(layout, threads, vector=vector, merge=False)
    owner = threads.owner(layout)
    base, step = split_offset(view, nest)

    def emit(masked: bool) -> None:
        guard = guard_text(view, nest, masked=masked)
        with loops(w, nest.groups):
            if vector == 1:
                store = f"to[{step}] = {source}[{nest.register()}];"
                w.line(f"if ({guard}) {store}" if guard else store, memory=True)
                return
            pack = f"ph_vec<{view.ctype}, {vector}>"
            w.open(f"if ({guard})" if guard else "")
            w.line(f"{pack} t;")
            w.line("PH_UNROLL")
            w.line(f"for (int v = 0; v < {vector}; ++v) t.v[v] = {source}[{nest.register(inner='v')}];")
            w.line(f"ph_stv(to, {step}, t);", memory=True)
            w.close()

    w.open(f"if ({owner})" if owner else "")
    pointer(w, "to", view.tensor, base)
    two_paths(w, view, layout.registers // vector, emit)
    w.close()


def global_to_shared(
    w: TextWriter, view: GlobalText, layout: RegisterLayout, shared: SharedLayout, ctype: str,
    convert: Callable[[str], str], target: str, threads: ThreadPositions,
) -> None:  # fmt: skip
    """Copies a view into the shared tile at `target` (an expression of its pointer); masked elements become the fill.

    The tile's elements are of type `ctype`; `convert` turns an element of the view, given as text, into one.
    """
    vector = vector_of(view, layout)
    nest = plan(layout, threads, vector=vector, merge=False)
    last = layout.rank - 1
    wide = vector > 1 and shared.vector_width(last, vector) == vector
    owner = threads.owner(layout)
    base, step = split_offset(view, nest)
    shared_base, shared_step = split_shared(nest, shared)
    along = shared.strides[last]  # elements between neighbours of a vector in the tile

    def emit(masked: bool) -> None:
        padding = " && ".join(f"PH_GUARD({t})" for t in padding_tests(nest))
        bounds = guard_text(view, nest, padding=False) if masked else ""
        with loops(w, nest.groups):
            if padding:
                w.open(f"if ({padding})")
            if vector == 1:
                first = f"{view.ctype} t = {view.fill};" if bounds else f"const {view.ctype} t = from[{step}];"
                w.line(first, memory=not bounds)
                if bounds:
                    w.line(f"if ({bounds}) t = from[{step}];", memory=True)
                w.line(f"tile[{shared_step}] = {convert('t')};", memory=True)
            else:
                pack = f"ph_vec<{view.ctype}, {vector}>"
                if bounds:
                    w.line(f"{pack} t;")
                    w.line("PH_UNROLL")
                    w.line(f"for (int v = 0; v < {vector}; ++v) t.v[v] = {view.fill};")
                    w.line(f"if ({bounds}) t = ph_ldv<{pack}>(from, {step});", memory=True)
                else:
                    w.line(f"const {pack} t = ph_ldv<{pack}>(from, {step});", memory=True)
                if wide and convert("t") == "t":
                    w.line(f"ph_stv(tile, {shared_step}, t);", memory=True)
                elif wide:
                    w.line(f"ph_vec<{ctype}, {vector}> c;")
                    w.line("PH_UNROLL")
                    w.line(f"for (int v = 0; v < {vector}; ++v) c.v[v] = {convert('t.v[v]')};")
                    w.line(f"ph_stv(tile, {shared_step}, c);", memory=True)
                else:
                    at = _sum(shared_step, "v" if along == 1 else f"v * {along}")
                    w.line("PH_UNROLL")
                    w.line(f"for (int v = 0; v < {vector}; ++v) tile[{at}] = {convert('t.v[v]')};", memory=True)
            if padding:
                w.close()

    w.open(f"if ({owner})" if owner else "")
    pointer(w, "tile", f"({target})" if "+" in target else target, shared_base)
    pointer(w, "from", view.tensor, base)
    two_paths(w, view, layout.registers // vector, emit, staged=True)
    w.close()
