"""Transfers global -> shared by asynchronous copies of 4, 8 or 16 bytes (sm_80 and later).

No register is touched, so nothing can be computed on the way, and what is masked becomes zero.
"""

from __future__ import annotations

from phobos.layout.loops import loops, plan
from phobos.layout.positions import ThreadPositions
from phobos.layout.register import RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter
from phobos.transfer.interface import GlobalText
from phobos.transfer.plain import (
    begin,
    displaced,
    guard_text,
    padding_tests,
    pointer,
    split_offset,
    split_shared,
    two_paths,
    vector_of,
)


def reject(vector: int, itemsize: int, shared: SharedLayout) -> str | None:
    """Why a copy in accesses of `vector` elements cannot be asynchronous, or None."""
    if vector * itemsize < 4:
        return f"accesses of {vector * itemsize} bytes, an asynchronous copy moves at least 4"
    if shared.vector_width(len(shared.shape) - 1, vector) < vector:
        return "the shared tile does not take accesses of that width"
    return None


def copy(
    w: TextWriter, view: GlobalText, layout: RegisterLayout, shared: SharedLayout, target: str,
    threads: ThreadPositions, origin_name: str = "", moving: tuple[bool, ...] = (),
) -> None:  # fmt: skip
    """Starts the copies of a view into the shared tile at `target`, from a pointer that `origin` declared where there
    is one: only what the axes that are `moving` begin at is added to it."""
    vector = vector_of(view, layout)
    bytes_each = vector * shared.itemsize
    nest = plan(layout, threads, vector=vector, merge=False)
    owner = threads.owner(layout)
    base, step = split_offset(view, nest)
    shared_base, shared_step = split_shared(nest, shared)

    def emit(masked: bool) -> None:
        padding = " && ".join(f"PH_GUARD({t})" for t in padding_tests(nest))
        bounds = guard_text(view, nest, padding=False) if masked else ""
        with loops(w, nest.groups):
            if padding:
                w.open(f"if ({padding})")
            ok = f", {bounds}" if bounds else ""
            w.line(f"ph_cp_async{bytes_each}(tile + ({shared_step}), from + ({step}){ok});", memory=True)
            if padding:
                w.close()

    w.open(f"if ({owner})" if owner else "")
    pointer(w, "tile", target, shared_base)
    if origin_name:
        pointer(w, "from", origin_name, begin(view, moving))
    else:
        pointer(w, "from", view.tensor, base)
    two_paths(w, view, layout.registers // vector, emit, staged=True)
    w.close()


def origin(w: TextWriter, name: str, view: GlobalText, layout: RegisterLayout, threads: ThreadPositions) -> None:
    """Declares the pointer to this thread's first element of the view."""
    base, _ = split_offset(view, plan(layout, threads, vector=vector_of(view, layout), merge=False))
    w.line(f"const auto {name} = ph_origin({displaced(view.tensor, base)});")


def commit(w: TextWriter) -> None:
    w.line("ph_cp_commit();", memory=True)


def wait(w: TextWriter, pending: int) -> None:
    w.line(f"ph_cp_wait<{pending}>();", memory=True)
