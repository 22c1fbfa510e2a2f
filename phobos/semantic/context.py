"""The state of the check of one kernel under one configuration, and how ops are appended to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from phobos.ir.options import TensorCoreRequest
from phobos.ir.tile import Block, Constant, GridSize, Op, ProgramId, Value
from phobos.ir.types import DType, ScalarType, ValueType
from phobos.semantic.affine import Affine, AffineTable, atom
from phobos.semantic.entities import Entity, Operand, Variable
from phobos.semantic.masks import MaskTable
from phobos.semantic.report import Reporter
from phobos.semantic.scope import Scope
from phobos.source import Span
from phobos.syntax import ast

# Functions that call functions twice grow exponentially once inlined; no real kernel comes near.
MAX_OPS = 30_000


class TooLarge(Exception):
    """The kernel has more than MAX_OPS operations."""


@dataclass(eq=False)
class BlockBuilder:
    """Ops of the block under construction. `constants` are reused by nested blocks, except by isolated ones."""

    parent: "BlockBuilder | None" = None
    ops: list[Op] = field(default_factory=list)
    constants: dict[tuple[DType, str], Value] = field(default_factory=dict)

    def find_constant(self, key: tuple[DType, str]) -> Value | None:
        builder: BlockBuilder | None = self
        while builder is not None:
            if key in builder.constants:
                return builder.constants[key]
            builder = builder.parent
        return None

    def finish(self, params: tuple[Value, ...] = ()) -> Block:
        return Block(params=params, ops=tuple(self.ops))


@dataclass(eq=False)
class Loop:
    """The innermost loop: its carried variables, and the values that each jump or the end hands on."""

    carried: list[Variable]
    handed: list[tuple[Value, ...]] = field(default_factory=list)


@dataclass(eq=False)
class SpanUse:
    """A position or a range on an axis of a tensor, as the inference of the grid looks at it. `stated`: the length as
    it is written, where it is."""

    dim: int | str
    start: Affine
    length: int | None
    stated: ast.Expr | None
    span: Span


@dataclass(eq=False)
class Context:
    """Everything that the rooms of the checker share. `evaluate` and `read` are wired by `check`."""

    module: ast.Module
    reporter: Reporter
    dtypes: dict[str, DType]
    file_scope: Scope
    scope: Scope
    builder: BlockBuilder
    masks: MaskTable
    dims: dict[str, Value] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)
    tensorcore: TensorCoreRequest | None = None
    affine: AffineTable = field(default_factory=AffineTable)
    entry: list[Op] = field(default_factory=list)
    ids: dict[tuple[str, int], Value] = field(default_factory=dict)
    uses: list[SpanUse] = field(default_factory=list)
    read_tensors: set[str] = field(default_factory=set)
    written_tensors: set[str] = field(default_factory=set)
    loop: Loop | None = None
    effects: int = 0
    emitted: int = 0
    statement: ast.Expr | None = None
    calls: list[str] = field(default_factory=list)
    named: set[Value] = field(default_factory=set)
    evaluate_node: "Callable[[Context, ast.Expr], Entity] | None" = None
    run_block: "Callable[[Context, tuple[ast.Stmt, ...]], bool] | None" = None
    # Sees every statement but control flow once its ops are emitted: (context, statement, number of its first op in the
    # current block). It may emit ops of its own.
    observe: "Callable[[Context, ast.Stmt, int], None] | None" = None

    def __post_init__(self) -> None:
        self.functions = {f.name.id: f for f in reversed(self.module.functions)}

    # --- diagnostics

    def error(
        self, code: str, message: str, span: Span | None, *, notes: tuple[str, ...] = (), help: str | None = None
    ):
        return self.reporter.error(code, message, span, notes=notes, help=help)

    def text(self, node: ast.Node) -> str:
        """The kernel text of a node, on one line."""
        span, lines = node.span, self.module.source
        if span.line == span.end_line:
            return lines.line(span.line)[span.column - 1 : span.end_column - 1]
        parts = [lines.line(span.line)[span.column - 1 :]]
        parts += [lines.line(n) for n in range(span.line + 1, span.end_line)]
        parts.append(lines.line(span.end_line)[: span.end_column - 1])
        return " ".join(p.strip() for p in parts)

    # --- evaluation, by the rooms

    def evaluate(self, node: ast.Expr) -> Entity:
        assert self.evaluate_node is not None
        return self.evaluate_node(self, node)

    def run(self, statements: tuple[ast.Stmt, ...]) -> bool:
        """Checks statements in the current scope; True where the end is not reached."""
        assert self.run_block is not None
        return self.run_block(self, statements)

    # --- scopes and blocks

    @contextmanager
    def nested_scope(self, scope: Scope | None = None) -> Iterator[Scope]:
        outer = self.scope
        self.scope = scope if scope is not None else Scope(outer)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def block(self, *, isolated: bool = False) -> Iterator[BlockBuilder]:
        """A nested block; ops emitted inside go there. An isolated one shares no constants."""
        outer = self.builder
        self.builder = BlockBuilder(None if isolated else outer)
        try:
            yield self.builder
        finally:
            self.builder = outer

    # --- values

    def value(self, type: ValueType, name: str, span: Span) -> Value:
        return Value(type=type, name=name, span=span)

    def count(self) -> None:
        """Counts an operation or an inlined call against MAX_OPS."""
        self.emitted += 1
        if self.emitted > MAX_OPS:
            raise TooLarge

    def emit(self, op: Op) -> None:
        self.count()
        self.builder.ops.append(op)

    def name_value(self, operand: Operand, name: str) -> None:
        """Gives a value that was just computed the user's name. Values are private to the builder until the kernel
        is finished, which is why this may write to a frozen object; a value is named once."""
        if not isinstance(operand, Value) or operand in self.named:
            return
        last = self.builder.ops[-1] if self.builder.ops else None
        if last is not None and not isinstance(last, Constant) and operand in last.defined():
            object.__setattr__(operand, "name", name)
            self.named.add(operand)

    def constant(self, value: int | float | bool, dtype: DType, span: Span) -> Value:
        """A scalar constant; `value` is already rounded to `dtype`."""
        key = (dtype, repr(value))
        found = self.builder.find_constant(key)
        if found is not None:
            return found
        text = "nan" if isinstance(value, float) and math.isnan(value) else str(value)
        result = self.value(ScalarType(dtype), text, span)
        self.emit(Constant(result=result, value=value, span=span))
        self.builder.constants[key] = result
        self.named.add(result)
        if dtype.is_integer:
            self.affine.set(result, Affine(int(value)))
        return result

    def block_value(self, kind: str, axis: int, span: Span) -> Value:
        """`ctx.block` (kind "block") or `ctx.grid` on an axis, emitted once at the kernel's entry."""
        found = self.ids.get((kind, axis))
        if found is None:
            name = f"{'pid' if kind == 'block' else 'grid'}_{'xyz'[axis]}"
            found = self.value(ScalarType(DType.INDEX), name, span)
            op = ProgramId if kind == "block" else GridSize
            self.entry.append(op(result=found, axis=axis, span=span))
            self.ids[(kind, axis)] = found
            self.affine.set(found, atom(found))
        return found
