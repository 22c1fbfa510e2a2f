"""The state of a lowering: where each value lives, and where statements go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from phobos.contraction.interface import ContractionPlan
from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.abi import Decision, Specialization
from phobos.ir.c_names import c_identifier
from phobos.ir.scheduled import DeclareFragment, GlobalView, SetScalar, Stmt
from phobos.ir.storage import Apply, Buffer, Expr, Fragment, Literal, Opaque, ScalarRef, ScalarVar
from phobos.ir.tile import Block, Cast, Dot, KernelIR, Value
from phobos.ir.types import DType
from phobos.layout.register import RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.passes.block_order import BlockOrder
from phobos.passes.facts import ScalarFacts
from phobos.passes.placement import Placement
from phobos.source import Span


@dataclass(frozen=True)
class Place:
    """How a product wants an operand in shared memory."""

    layout: SharedLayout
    dtype: DType
    rounding: str


def operand_places(op: Dot, plan: ContractionPlan, v: Value) -> list[Place]:
    """Where `op` reads `v` from shared memory (twice, if it multiplies a tile by itself)."""
    sides = ((op.a, plan.a_layout, plan.a_dtype), (op.b, plan.b_layout, plan.b_dtype))
    return [Place(layout, dtype, plan.rounding) for operand, layout, dtype in sides if operand is v]


@dataclass(eq=False)
class Scope:
    """One block of the tile IR being lowered."""

    last_use: dict[Value, int]
    local: set[Value]  # values defined in this block, whose registers may be reused here once dead
    in_loop: bool = False  # in the body of a loop, directly or not
    index: int = 0
    converted: dict[tuple[Value, RegisterLayout], Fragment] = field(default_factory=dict)


class Lowering:
    """Shared by the functions of this package; they differ in the ops that they lower."""

    def __init__(
        self, kernel: KernelIR, spec: Specialization, facts: ScalarFacts, placement: Placement,
        layouts: Mapping[Value, RegisterLayout], plans: Mapping[Dot, ContractionPlan], threads: int,
        order: BlockOrder, debug: bool, fast: bool,
    ):  # fmt: skip
        self.kernel, self.spec, self.facts, self.placement = kernel, spec, facts, placement
        self.layouts, self.plans, self.threads, self.debug, self.fast = layouts, plans, threads, debug, fast
        self.order = order
        self.out: list[Stmt] = []
        self.scopes: list[Scope] = []
        self.fragments: dict[Value, Fragment] = {}
        self.opaques: dict[Value, Opaque] = {}  # tiles that are in opaque accumulators, and nowhere else
        self.sums: set[Value] = set()  # values that loops with opaque accumulators go through
        self.scalars: dict[Value, Expr] = {}
        self.operands: dict[tuple[Value, Place], Buffer] = {}
        self.decisions: list[Decision] = []
        self.streamed: frozenset[Value] = frozenset()  # loads that happen inside the statement that reads them
        self.parts: dict[Fragment, tuple[GlobalView, int | float | bool]] = {}
        self._dims = {d.name: d.value for d in kernel.dims}
        self._names: dict[str, int] = {}
        for name in (*kernel.order, *(d.name for d in kernel.dims)):
            self._names[c_identifier(name)] = 0

    # --- names and output ------------------------------------------------------------------

    def name(self, hint: str) -> str:
        """A C name, new in this kernel, that resembles the hint."""
        base = re.sub(r"\W", "_", hint) or "t"
        numbered = f"{base}_1"  # has to be a free form of name, or no number ever gives one
        if base[0].isdigit() or c_identifier(numbered) != numbered:
            base = "t_" + base
        count = self._names.get(base)
        if count is None and c_identifier(base) == base:
            self._names[base] = 0
            return base
        count = count or 0
        while True:
            count += 1
            candidate = f"{base}_{count}"
            if candidate not in self._names and c_identifier(candidate) == candidate:
                self._names[base] = count
                self._names[candidate] = 0
                return candidate

    def used_names(self) -> frozenset[str]:
        return frozenset(self._names)

    def emit(self, statement: Stmt) -> None:
        self.out.append(statement)

    @contextmanager
    def collect(self) -> Iterator[list[Stmt]]:
        """Statements emitted inside go to the list that this gives."""
        saved, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = saved

    def fail(self, code: str, message: str, span: Span, help: str | None = None) -> CompileError:
        return CompileError(Diagnostic(code=code, message=message, span=span, help=help))

    # --- scopes ----------------------------------------------------------------------------

    def enter(self, block: Block, *, loop: bool = False) -> Scope:
        """`loop`: the block runs once for each iteration of a loop."""
        in_loop = loop or bool(self.scopes and self.scope.in_loop)
        scope = Scope(self.placement.last_uses(block), set(block.params), in_loop)
        self.scopes.append(scope)
        return scope

    def leave(self) -> None:
        self.scopes.pop()

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def dies_here(self, v: Value) -> bool:
        """Nothing after the current op reads `v`, and its registers belong to this block."""
        scope = self.scope
        return v in scope.local and scope.last_use.get(v, -1) <= scope.index

    # --- storage ---------------------------------------------------------------------------

    def new_fragment(self, hint: str, dtype: DType, layout: RegisterLayout) -> Fragment:
        return Fragment(self.name(hint), dtype, layout)

    def declare(self, fragment: Fragment, span: Span) -> Fragment:
        self.emit(DeclareFragment(span=span, fragment=fragment))
        return fragment

    def new_buffer(self, hint: str, dtype: DType, layout: SharedLayout) -> Buffer:
        return Buffer(self.name(hint), dtype, layout)

    def operand_buffer(self, v: Value, place: Place) -> Buffer:
        """A new buffer for an operand, remembered for the products that read it."""
        buffer = Buffer(self.name(f"{v.name}_s"), place.dtype, place.layout, place.rounding)
        self.operands[v, place] = buffer
        return buffer

    def stays_in_registers(self, op: Dot, v: Value) -> bool:
        """Is `v` the left operand of `op`, and already in the registers in which the instruction wants it?"""
        wanted = self.plans[op].a_fragment
        if v is not op.a or v is op.b or wanted is None or v in self.placement.inlined or v in self.placement.staged:
            return False
        return self.layouts.get(v) == wanted

    def layout(self, v: Value) -> RegisterLayout:
        return self.layouts[v]

    def bind(self, v: Value, fragment: Fragment) -> None:
        """From here on `v` is in `fragment`; places it in shared memory too if a product reads it from there."""
        self.fragments[v] = fragment
        if self.scopes:
            self.scope.local.add(v)

    # --- scalars ---------------------------------------------------------------------------

    def scalar(self, v: Value) -> Expr:
        return self.scalars[v]

    def start(self, v: Value, length: int, dim: int | str) -> Expr:
        """Where a span begins. A number that the kernel was given or has read may be anything: it is brought to where
        the span just misses the axis, or the arithmetic on it could end at positions that exist."""
        e = self.scalar(v)
        op = self.placement.defs.get(v)
        if not isinstance(op, Cast) or op.operand.dtype is DType.INDEX or self.facts.constant(v) is not None:
            return e
        if not self.facts.nonnegative(v):
            e = Apply(DType.INDEX, "max", (e, integer(-length)))
        if not self.facts.below_dim(v, dim):
            extent = integer(dim) if isinstance(dim, int) else self.scalars[self._dims[dim]]
            e = Apply(DType.INDEX, "min", (e, extent))
        return e

    def loop_name(self, index: Value) -> str:
        """The C name of a `for` loop's index; "carried" for anything else that changes from iteration to iteration."""
        known = self.scalars.get(index)
        return known.name if self.facts.is_loop_index(index) and isinstance(known, ScalarRef) else "carried"

    def set_scalar(self, v: Value, value: Expr, span: Span) -> None:
        """Gives a scalar value a variable."""
        target = ScalarVar(self.name(v.name), v.dtype)
        self.emit(SetScalar(span=span, target=target, value=value))
        self.scalars[v] = ScalarRef(v.dtype, target.name)


def integer(value: int) -> Literal:
    return Literal(DType.INDEX, value)
