"""The scheduled IR: what threads do. Named mutable storage, statements over it, explicit barriers.

A *fragment* is an array of registers distributed by a RegisterLayout; a *buffer* is a tile in shared memory; a *scalar*
is a variable that every thread holds with the same value. Element-level work is an expression tree that is
evaluated once per register of the destination fragment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from phobos.ir.abi import AbiArg, Decision
from phobos.ir.dims import DimExpr
from phobos.ir.storage import (
    Buffer,
    Expr,
    Fragment,
    Opaque,
    ScalarVar,
    Special,
)
from phobos.ir.types import DType
from phobos.source import Span

if TYPE_CHECKING:  # layouts and contraction plans are values carried by this IR, not needed to define it
    from phobos.contraction.interface import ContractionPlan
    from phobos.layout.register import RegisterLayout


# --- views -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AtAxis:
    """One position. `low`/`high`: that side needs a check."""

    index: Expr
    low: bool
    high: bool


@dataclass(frozen=True, eq=False)
class RangeAxis:
    """`tile_axis` of the tile runs over [start, start + length). `low`/`high`: that side needs a check."""

    start: Expr
    length: int
    tile_axis: int
    low: bool
    high: bool


@dataclass(frozen=True, eq=False)
class GatherAxis:
    """The positions are read from `index`, laid out as the transfer's layout kept to `tile_axis`."""

    index: Fragment
    tile_axis: int


@dataclass(frozen=True, eq=False)
class GlobalView:
    """A view of a tensor parameter. `vector`: elements per access that are provably aligned, in one bounds check,
    and contiguous along the last tile axis.

    For hazard analysis: `key` is equal for views of the same positions in one iteration of all loops around; `spans`
    has (base, offset, length) per tensor axis, positions being base + offset .. + length with equal bases comparable
    (base None: absolute; length 0: unknown); `varies` names the loop indexes that positions may depend on ("carried"
    for anything else that changes between iterations), `distinct` those that alone decide about an axis, so that other
    iterations touch other positions.
    """

    tensor: str
    dtype: DType
    dims: tuple[int | str, ...]
    axes: tuple[AtAxis | RangeAxis | GatherAxis, ...]
    vector: int
    key: tuple[object, ...]
    spans: tuple[tuple[object, int, int], ...]
    varies: frozenset[str]
    distinct: frozenset[str]

    @property
    def guarded(self) -> bool:
        return any(isinstance(a, GatherAxis) or a.low or a.high for a in self.axes)


# --- statements --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Stmt:
    span: Span
    note: str = ""  # a comment for the reader of the emitted text


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclareFragment(Stmt):
    fragment: Fragment


@dataclass(frozen=True, kw_only=True, eq=False)
class SetScalar(Stmt):
    """Declares (`declare`) or assigns a scalar."""

    target: ScalarVar
    value: Expr
    declare: bool = True
    constant: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadScalar(Stmt):
    """A uniform read of one tensor element."""

    target: ScalarVar
    view: GlobalView
    fill: int | float | bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Map(Stmt):
    """target[slot] = value(position) for every slot, padding included (values there are meaningless).

    `unless_one`: the value is the target times this fragment, whose registers are mostly all 1; a thread for which they
    are skips the statement. `loads`: fragments that the value reads and that exist only inside the statement, a few
    elements at a time, with the view that each is loaded from and the fill of its masked elements.
    """

    target: Fragment
    value: Expr
    declare: bool = True
    unless_one: Fragment | None = None
    loads: tuple[tuple[Fragment, GlobalView, int | float | bool], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadGlobal(Stmt):
    """Global to registers; padding slots get the fill."""

    target: Fragment
    view: GlobalView
    fill: int | float | bool
    declare: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreGlobal(Stmt):
    """Registers to global: owners only."""

    view: GlobalView
    source: Fragment


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreScalar(Stmt):
    """One element, by one thread."""

    view: GlobalView
    value: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class GlobalToShared(Stmt):
    """Copy of a view into a buffer; `layout` distributes the copy over threads."""

    buffer: Buffer
    view: GlobalView
    layout: "RegisterLayout"
    fill: int | float | bool


@dataclass(frozen=True, kw_only=True, eq=False)
class AsyncCopy(Stmt):
    """Starts the copy of a view into the stage of a ring that lies `stage` bytes behind the first; masked elements
    become zero. `ahead`: inside the loop that reads the ring, so that the loop's own wait and barrier order it.
    `origin`: the pointer to start from, which lacks what axes that are `moving` begin at."""

    buffer: Buffer
    view: GlobalView
    layout: "RegisterLayout"
    stage: Expr
    ahead: bool
    origin: str = ""
    moving: tuple[bool, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyOrigin(Stmt):
    """Declares the pointer `name` to this thread's first element of a view, for copies that start from it."""

    name: str
    view: GlobalView
    layout: "RegisterLayout"


@dataclass(frozen=True, kw_only=True, eq=False)
class AsyncCommit(Stmt):
    """Closes the group of copies started since the last one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AsyncWait(Stmt):
    """Waits until at most `pending` of this thread's groups are unfinished."""

    pending: int


@dataclass(frozen=True, kw_only=True, eq=False)
class WriteShared(Stmt):
    """buffer[at(position)] = source, for owned positions where `guard` holds. `stage`: into the stage of a ring
    that many bytes behind the first, ahead of the iteration that reads it and ordered by its loop's own barrier."""

    buffer: Buffer
    source: Fragment
    at: tuple[Expr, ...]
    guard: Expr | None = None
    stage: Expr | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadShared(Stmt):
    """target = buffer, position by position; padding slots get 0."""

    target: Fragment
    buffer: Buffer


@dataclass(frozen=True, kw_only=True, eq=False)
class ReduceRegisters(Stmt):
    """Reduction of `value` (over `layout`) along `axes` inside each warp: registers first, then, with `lanes`, lanes by
    butterfly shuffles.

    `targets` has one fragment (value) or two (value and index for argmax/argmin), laid out as `layout` sliced along
    `axes`, whose warp digits are not yet combined. `combine` is the custom function over the scalars a and b.
    """

    targets: tuple[Fragment, ...]
    value: Expr
    layout: "RegisterLayout"
    axes: tuple[int, ...]
    kind: str
    combine: Expr | None = None
    init: Expr | None = None
    lanes: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducePublish(Stmt):
    """Each warp writes its partial results to scratch[warp part, position]."""

    scratch: tuple[Buffer, ...]
    sources: tuple[Fragment, ...]
    source_layout: "RegisterLayout"
    axes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReduceCollect(Stmt):
    """Each thread combines the partial results of all warp parts."""

    targets: tuple[Fragment, ...]
    scratch: tuple[Buffer, ...]
    source_layout: "RegisterLayout"
    axes: tuple[int, ...]
    kind: str
    combine: Expr | None = None
    init: Expr | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class MoveRegisters(Stmt):
    """target[i] = source[moves[i]] in every thread: a change of layout that costs no exchange."""

    target: Fragment
    source: Fragment
    moves: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScanShared(Stmt):
    """In-place inclusive prefix sum along `axis`, a line per thread."""

    buffer: Buffer
    axis: int
    threads: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Contract(Stmt):
    """accumulator += a @ b by the room that made the plan. `a_name`: registers into which an OperandLoad put a.
    The accumulator is an Opaque if and only if the plan is an OpaquePlan."""

    plan: "ContractionPlan"
    accumulator: Fragment | Opaque
    a: Buffer | Fragment
    b: Buffer | Fragment
    a_name: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class OperandLoad(Stmt):
    """The left operand of a product, whole, into registers called `name`."""

    plan: "ContractionPlan"
    name: str
    a: Buffer


@dataclass(frozen=True, kw_only=True, eq=False)
class StepDeclare(Stmt):
    """Registers `name...` for two steps along k of a product of two rings, and where its threads read them."""

    plan: "ContractionPlan"
    name: str
    a: Buffer
    b: Buffer


@dataclass(frozen=True, kw_only=True, eq=False)
class StepLoad(Stmt):
    """Step `step` of both operands into set `slot`."""

    plan: "ContractionPlan"
    name: str
    slot: int
    step: int
    a: Buffer
    b: Buffer


@dataclass(frozen=True, kw_only=True, eq=False)
class StepMultiply(Stmt):
    """accumulator += the product of the step in set `slot`; of its columns those of `part` (number, of how many)."""

    plan: "ContractionPlan"
    name: str
    slot: int
    accumulator: Fragment | Opaque
    part: tuple[int, int] = (0, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class OpaqueFill(Stmt):
    """Declares opaque accumulators, all of one value."""

    target: Opaque
    value: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class OpaqueLoad(Stmt):
    """Declares opaque accumulators with the elements of `source`, which go through `scratch`."""

    target: Opaque
    source: Fragment
    scratch: Buffer


@dataclass(frozen=True, kw_only=True, eq=False)
class OpaqueStore(Stmt):
    """target = source or, with `add`, target += source, through `scratch`."""

    source: Opaque
    target: Fragment
    scratch: Buffer
    add: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class AtomicGlobal(Stmt):
    """kind on every owned position; `old` receives the previous values."""

    kind: str
    view: GlobalView
    values: tuple[Fragment, ...]
    old: Fragment | None


@dataclass(frozen=True, kw_only=True, eq=False)
class AtomicScalar(Stmt):
    """One element, by one thread; `old` is published through `scratch` (written by thread 0, read after a barrier)."""

    kind: str
    view: GlobalView
    values: tuple[Expr, ...]
    scratch: Buffer | None


@dataclass(frozen=True, kw_only=True, eq=False)
class PrintStmt(Stmt):
    parts: tuple[str | Expr | Fragment, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class AssertStmt(Stmt):
    """Scalar expression or fragment of bool."""

    condition: Expr | Fragment
    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Barrier(Stmt):
    """All threads of the block; `reasons` names the hazards that it orders."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForStmt(Stmt):
    index: ScalarVar
    lo: Expr
    hi: Expr
    step: Expr
    down: bool | None  # True/False where the sign of the step is known
    body: tuple[Stmt, ...]
    unroll: int | None = None
    pipeline: int | None = None  # the stages that `@pipeline(n)` promises


@dataclass(frozen=True, kw_only=True, eq=False)
class WhileStmt(Stmt):
    """`head` computes `condition` before every iteration."""

    head: tuple[Stmt, ...]
    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class IfStmt(Stmt):
    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class BreakStmt(Stmt):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class ContinueStmt(Stmt):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class ReturnStmt(Stmt):
    pass


def nested(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The statement lists inside a statement."""
    if isinstance(s, ForStmt):
        return (s.body,)
    if isinstance(s, WhileStmt):
        return (s.head, s.body)
    if isinstance(s, IfStmt):
        return (s.then, s.orelse)
    return ()


def walk(statements: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in statements:
        yield s
        for inner in nested(s):
            yield from walk(inner)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A kernel ready to be printed. `offsets` maps buffers to bytes once pack_shared has run."""

    name: str
    span: Span
    args: tuple[AbiArg, ...]
    threads: int
    body: tuple[Stmt, ...]
    grid: tuple[DimExpr, DimExpr, DimExpr]
    contiguous: frozenset[str]  # tensors whose strides follow from their dims
    unit_inner: frozenset[str]  # tensors whose last stride is 1
    restrict: frozenset[str]  # tensors that overlap no other
    tensor_dims: dict[str, tuple[int | str, ...]]
    index_bits: int
    offsets: dict[Buffer, int] = field(default_factory=dict)
    shared_bytes: int = 0
    dynamic_shared: bool = False
    min_blocks: int | None = None
    max_regs: int | None = None
    fast_math: bool = False
    debug: bool = False
    decisions: tuple[Decision, ...] = ()
    names: frozenset[str] = frozenset()  # C names in use
    # ctx.block of the hardware's current block (passes/block_order.py)
    coordinates: tuple[Expr, ...] = tuple(Special(DType.INDEX, "ctaid", axis) for axis in range(3))
