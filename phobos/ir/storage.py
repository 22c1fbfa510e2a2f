"""Named storage of the scheduled IR, and the expressions that are evaluated once per element over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from phobos.ir.types import DType

if TYPE_CHECKING:  # layouts and plans are values carried by storage, not needed to define it
    from phobos.contraction.interface import OpaquePlan
    from phobos.layout.register import RegisterLayout
    from phobos.layout.shared import SharedLayout


# --- storage ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fragment:
    """Registers of every thread: `layout.registers` elements of `dtype`."""

    name: str
    dtype: DType
    layout: "RegisterLayout"


@dataclass(frozen=True, eq=False)
class Buffer:
    """A tile in shared memory. Its byte offset is assigned by pack_shared (Schedule.offsets).

    What is written is converted to `dtype`, and rounded further by `rounding` ("tf32") where that is set. A *ring* has
    several `stages`, each a whole tile; statements that read it mean the stage whose distance from the first, in
    bytes, is in the variable `stage` (bytes, and not a number to multiply: ptxas then adds it as a uniform register in
    the addresses of loads, at no instruction; the product cost 5 % of a GEMM on an H200).
    """

    name: str
    dtype: DType
    layout: "SharedLayout"
    rounding: str = ""
    stages: int = 1
    stage: "ScalarVar | None" = None

    @property
    def stage_bytes(self) -> int:
        """Distance between two stages: whole 128-byte lines, so that every stage has the same bank pattern."""
        return self.layout.bytes if self.stages == 1 else -(-self.layout.bytes // 128) * 128

    @property
    def bytes(self) -> int:
        return self.stage_bytes * self.stages


@dataclass(frozen=True, eq=False)
class Opaque:
    """Accumulators of a product in registers that only its instructions can name elements of: no expression reads
    them."""

    name: str
    plan: "OpaquePlan"

    @property
    def layout(self) -> "RegisterLayout":
        """That in which elements enter and leave; the accumulators are as many registers."""
        return self.plan.c_layout


@dataclass(frozen=True, eq=False)
class ScalarVar:
    name: str
    dtype: DType


# --- element-level expressions -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Expr:
    dtype: DType


@dataclass(frozen=True, eq=False)
class Literal(Expr):
    value: int | float | bool


@dataclass(frozen=True, eq=False)
class ScalarRef(Expr):
    """A scalar variable, kernel parameter or dim, by its C name."""

    name: str


@dataclass(frozen=True, eq=False)
class Special(Expr):
    """Block or grid coordinate: kind "ctaid" or "nctaid", axis 0 to 2."""

    kind: str
    axis: int


@dataclass(frozen=True, eq=False)
class FragmentRef(Expr):
    """The element of `fragment` at the current position; its layout is the destination's, sliced where it broadcasts.

    `axes` (for a fragment of lower rank): its axis i runs along axis axes[i] of the destination.
    """

    fragment: Fragment
    axes: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Position(Expr):
    """The current position along `axis` of the destination tile."""

    axis: int


@dataclass(frozen=True, eq=False)
class BufferRef(Expr):
    """The element of a shared tile at these positions; `fill` where `guard` is false."""

    buffer: Buffer
    at: tuple[Expr, ...]
    guard: Expr | None = None
    fill: int | float | bool = 0


@dataclass(frozen=True, eq=False)
class Apply(Expr):
    """An elementwise function of tile.ELEMENTWISE. `fast` selects the approximate unit."""

    fn: str
    args: tuple[Expr, ...]
    fast: bool = False


@dataclass(frozen=True, eq=False)
class Convert(Expr):
    arg: Expr


def expr_children(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Apply):
        return e.args
    if isinstance(e, Convert):
        return (e.arg,)
    if isinstance(e, BufferRef):
        return (*e.at, *((e.guard,) if e.guard is not None else ()))
    return ()


def expr_walk(e: Expr) -> Iterator[Expr]:
    yield e
    for c in expr_children(e):
        yield from expr_walk(c)


def substitute(e: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with scalar variables replaced by name."""
    if isinstance(e, ScalarRef):
        return values.get(e.name, e)
    if isinstance(e, Apply):
        return replace(e, args=tuple(substitute(a, values) for a in e.args))
    if isinstance(e, Convert):
        return replace(e, arg=substitute(e.arg, values))
    if isinstance(e, BufferRef):
        guard = substitute(e.guard, values) if e.guard is not None else None
        return replace(e, at=tuple(substitute(a, values) for a in e.at), guard=guard)
    return e
