"""Steps of a run: what the reference interpreter does, cut at the statements of the kernel text.

A *step* is an executed statement that makes or stores a tile or a view: `let`, `var` and assignments of tiles and
views, stores, atomics. Scalar statements, loop heads and conditions are no steps; what they read counts for the next
step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir import tile as ir
from phobos.ir.walk import walk
from phobos.reference.interpreter import run as run_reference
from phobos.reference.memory import region
from phobos.reference.numerics import from_storage
from phobos.semantic.context import Context
from phobos.semantic.entities import Binding, TensorRef, Variable, ViewRef
from phobos.source import SourceFile, Span
from phobos.syntax import ast

MAX_STEPS = 4000  # of all recorded blocks together
MAX_BLOCKS = 64

Path = tuple[tuple[int, int], ...]  # (line of a loop, how-manieth iteration of it), outermost first


@dataclass(frozen=True, eq=False)
class Read:
    """A name that a statement reads: the variable or binding that it means, and the SSA value or view behind it."""

    name: str
    what: object
    value: object


@dataclass(frozen=True, kw_only=True, eq=False)
class Mark:
    """A statement that makes a step. `kind`: "tile", "view", "store" or "atomic"; `name`: what it makes or the tensor
    that it writes; `target`: the variable or binding, None for a store."""

    span: Span
    kind: str
    name: str
    target: object
    value: ir.Value | None
    view: ir.View | None
    reads: tuple[Read, ...]
    calls: tuple[str, ...]


class Marker:
    """The checker's observer: puts an empty `print` behind each statement that makes a step; `marks` says which."""

    def __init__(self) -> None:
        self.marks: dict[ir.Op, Mark] = {}

    def __call__(self, c: Context, node: ast.Stmt, first: int) -> None:
        made = self._made(c, node, first)
        if made is None:
            return
        kind, name, target, value, view = made
        op = ir.Print(parts=(), span=node.span)
        c.emit(op)
        self.marks[op] = Mark(
            span=node.span, kind=kind, name=name, target=target, value=value, view=view,
            reads=_reads(c, node), calls=tuple(c.calls),
        )  # fmt: skip

    def _made(
        self, c: Context, node: ast.Stmt, first: int
    ) -> tuple[str, str, object, ir.Value | None, ir.View | None] | None:
        for op in reversed(c.builder.ops[first:]):
            if isinstance(op, (ir.Store, ir.Atomic)) and isinstance(node, (ast.Assign, ast.ExprStmt)):
                kind = "store" if isinstance(op, ir.Store) else "atomic"
                return kind, op.view.tensor.name, None, None, op.view
        if isinstance(node, (ast.Let, ast.Var)):
            target = c.scope.names.get(node.name.id)
        elif isinstance(node, ast.Assign):
            base = node.target
            while isinstance(base, ast.Subscript):
                base = base.base
            target = c.scope.find(base.id) if isinstance(base, ast.Name) else None
        else:
            return None
        if isinstance(target, Variable) and target.value is not None and target.value.is_tile:
            return "tile", target.name, target, target.value, None
        if isinstance(target, Binding) and target.kind == "let":
            entity = target.entity
            if isinstance(entity, ViewRef):
                return "view", target.name, target, None, entity.view
            if isinstance(entity, ir.Value) and entity.is_tile:
                return "tile", target.name, target, entity, None
        return None


def _names(node: object) -> Iterator[str]:
    if isinstance(node, ast.Call):
        for arg in node.args:
            yield from _names(arg)
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Node):
        for f in fields(node):
            yield from _names(getattr(node, f.name))
    elif isinstance(node, tuple):
        for item in node:
            yield from _names(item)


def _reads(c: Context, node: ast.Stmt) -> tuple[Read, ...]:
    """The tiles, views and tensors that the statement names on its right side (and on its left, where that is read)."""
    sources: list[object] = []
    if isinstance(node, (ast.Let, ast.Var, ast.ExprStmt)):
        sources.append(node.value)
    elif isinstance(node, ast.Assign):
        sources.append(node.value)
        target = node.target
        if node.op != "=" or not isinstance(target, ast.Subscript):
            sources += [target] if node.op != "=" else []
        elif isinstance(target.base, ast.Name) and isinstance(c.scope.find(target.base.id), Variable):
            sources.append(target)  # the rest of the tile stays
        else:
            sources.append(target.items)
    out: dict[str, Read] = {}
    for name in (n for s in sources for n in _names(s)):
        found = c.scope.find(name)
        if isinstance(found, Variable):
            if found.value is not None and found.value.is_tile:
                out.setdefault(name, Read(name, found, None))
        elif isinstance(found, Binding):
            entity = found.entity
            if isinstance(entity, ViewRef):
                out.setdefault(name, Read(name, found, entity.view))
            elif isinstance(entity, TensorRef):
                out.setdefault(name, Read(name, entity.param.name, None))
            elif isinstance(entity, ir.Value) and entity.is_tile:
                out.setdefault(name, Read(name, found, entity))
    return tuple(out.values())


# --- the run ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Touch:
    """One access of the reference to a tensor: positions along each of its axes (those outside of it are masked), which
    axes are single positions, and after a store what the tensor holds at all of them (carrier values, masked ones
    meaningless)."""

    tensor: str
    write: bool
    axes: tuple[np.ndarray, ...]
    dropped: tuple[bool, ...]
    bytes: int
    values: np.ndarray | None = None
    atomic: bool = False


@dataclass(kw_only=True, eq=False)
class Step:
    """One executed statement. `path` counts iterations within this run of a loop, `turns` on through all runs of the
    loops that stand at the same line inside of the same iteration of the loops around (a function called twice), as a
    schedule's path does. `reads`: (name, index of the step that made it, or -1, tensor name or ""). `value`: what
    it made, as a carrier array; `flops` and `bytes_*` as the reference counts them: one per element of an elementwise
    operation, 2 m n k of a product; every access in full, masked elements left out."""

    mark: Mark
    path: Path
    turns: Path = ()
    value: np.ndarray | None = None
    box: Touch | None = None
    touches: list[Touch] = field(default_factory=list)
    reads: list[tuple[str, int, str]] = field(default_factory=list)
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockRun:
    """The steps of one CTA."""

    block: tuple[int, int, int]
    steps: list[Step]


class _Follower:
    """Collects steps from the interpreter's calls."""

    def __init__(self, kernel: ir.KernelIR, marks: Mapping[ir.Op, Mark], arrays: Mapping[str, np.ndarray]):
        self.marks, self.arrays = marks, arrays
        self.blocks: list[BlockRun] = []
        self.total = 0
        self.loops: dict[ir.Block, ir.For | ir.While] = {}
        self.parents: dict[ir.Op, tuple[ir.For | ir.While, ...]] = {}
        self.ends: dict[ir.Op, ir.For | ir.While] = {}
        self._index(kernel.body, ())
        self.combining = {
            op
            for outer in walk(kernel.body)
            if isinstance(outer, ir.Reduce) and outer.combine is not None
            for op in walk(outer.combine)
        }
        self._reset((0, 0, 0))
        self.blocks.clear()

    def _index(self, block: ir.Block, around: tuple[ir.For | ir.While, ...]) -> None:
        for op in block.ops:
            self.parents[op] = around
            if isinstance(op, (ir.Yield, ir.Continue)) and around:
                # A Yield ends an iteration only where it stands in the loop's own body, a Continue always.
                if isinstance(op, ir.Continue) or around[-1].body is block:
                    self.ends[op] = around[-1]
            for nested in op.blocks():
                inner = around
                if isinstance(op, (ir.For, ir.While)) and nested is op.body:
                    inner = (*around, op)
                self._index(nested, inner)

    def _reset(self, block: tuple[int, int, int]) -> None:
        self.counts: dict[ir.Op, int] = {}
        self.earlier: dict[tuple[Path, int], int] = {}  # iterations of the runs of a line's loops that are over
        self.broken: set[ir.Op] = set()
        self.made: dict[object, int] = {}
        self.pending = Step(mark=None, path=())  # type: ignore[arg-type]
        self.blocks.append(BlockRun(block=block, steps=[]))

    def __call__(self, op: ir.Op, block: tuple[int, int, int], env: Mapping[ir.Value, Any]) -> None:
        if not self.blocks or self.blocks[-1].block != block:
            if len(self.blocks) >= MAX_BLOCKS:
                raise _too_long(f"more than {MAX_BLOCKS} blocks")
            self._reset(block)
        if op in self.combining:
            return
        mark = self.marks.get(op)
        if mark is not None:
            self._step(op, mark, env)
            return
        if op in self.ends:
            loop = self.ends[op]
            self.counts[loop] = self.counts.get(loop, 0) + 1
        elif isinstance(op, ir.Break):
            self.broken.add(self.parents[op][-1])
        elif isinstance(op, (ir.For, ir.While)):
            self._end(op)
        self._count(op, env)

    def _turns(self, loops: Sequence[ir.For | ir.While]) -> Path:
        out: Path = ()
        for loop in loops:
            line = loop.span.line
            out += ((line, self.earlier.get((out, line), 0) + self.counts.get(loop, 0)),)
        return out

    def _end(self, loop: ir.For | ir.While) -> None:
        """A run of the loop is over. Its last iteration does not count as ended if it broke; a schedule counts the
        last look at the condition of a `while` too."""
        key = (self._turns(self.parents[loop]), loop.span.line)
        more = isinstance(loop, ir.While) or loop in self.broken
        self.earlier[key] = self.earlier.get(key, 0) + self.counts.get(loop, 0) + more
        self.counts[loop] = 0
        self.broken.discard(loop)

    def _step(self, op: ir.Op, mark: Mark, env: Mapping[ir.Value, Any]) -> None:
        step, self.pending = self.pending, Step(mark=None, path=())  # type: ignore[arg-type]
        steps = self.blocks[-1].steps
        step.mark = mark
        step.path = tuple((loop.span.line, self.counts.get(loop, 0)) for loop in self.parents[op])
        step.turns = self._turns(self.parents[op])
        if mark.value is not None:
            step.value = np.array(env[mark.value])
        if mark.view is not None:
            step.box = self._touch(mark.view, env, write=mark.kind != "view")
        for read in mark.reads:
            if isinstance(read.what, str):
                step.reads.append((read.name, -1, read.what))
            else:
                step.reads.append((read.name, self.made.get(read.what, self.made.get(read.value, -1)), ""))
        for key in (mark.target, mark.value, mark.view):
            if key is not None:
                self.made[key] = len(steps)
        steps.append(step)
        self.total += 1
        if self.total > MAX_STEPS:
            raise _too_long(f"more than {MAX_STEPS} steps")

    def _touch(self, view: ir.View, env: Mapping[ir.Value, Any], write: bool) -> Touch:
        array = self.arrays[view.tensor.name]
        part = region(view.axes, array.shape, env.__getitem__)
        count = math.prod(int(a.inside.sum()) for a in part.axes)
        return Touch(
            tensor=view.tensor.name, write=write, axes=tuple(a.index for a in part.axes),
            dropped=tuple(a.drops for a in part.axes), bytes=count * view.tensor.type.dtype.bytes,
        )  # fmt: skip

    def _count(self, op: ir.Op, env: Mapping[ir.Value, Any]) -> None:
        p = self.pending
        if isinstance(op, (ir.Load, ir.Store, ir.Atomic)):
            touch = self._touch(op.view, env, write=not isinstance(op, ir.Load))
            if touch.write:
                array, dtype = self.arrays[touch.tensor], op.view.tensor.type.dtype
                if array.size:
                    at = np.ix_(*(np.clip(a, 0, n - 1) for a, n in zip(touch.axes, array.shape)))
                    touch = replace(touch, values=from_storage(array[at], dtype))
                touch = replace(touch, atomic=isinstance(op, ir.Atomic))
            p.touches.append(touch)
            if touch.write:
                p.bytes_written += touch.bytes
            if not isinstance(op, ir.Store):
                p.bytes_read += touch.bytes
        elif isinstance(op, ir.Dot):
            m, k = op.a.shape
            p.flops += 2 * m * k * op.result.shape[1]
        elif isinstance(op, ir.Compute) and op.result.is_tile and op.args[-1].dtype.is_float:
            p.flops += math.prod(op.result.shape) * (2 if op.fn == "fma" else 0 if op.fn == "where" else 1)
        elif isinstance(op, (ir.Reduce, ir.Scan)) and op.operand.dtype.is_float:
            p.flops += math.prod(op.operand.shape)


def _too_long(what: str) -> LaunchError:
    return LaunchError(
        Diagnostic(
            code="PH1020",
            message=f"the run has {what}, too many to look at one by one",
            help="choose smaller dims, or larger tiles",
        )
    )


def follow(
    kernel: ir.KernelIR,
    marks: Mapping[ir.Op, Mark],
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    source: SourceFile,
) -> list[BlockRun]:
    """Runs the marked kernel on the reference, which writes into the arrays, and gives the steps of each block.

    Raises LaunchError: what the reference raises, PH1020 for a run too long to look at.
    """
    arrays = {t.name: arguments[t.name] for t in kernel.tensors}
    follower = _Follower(kernel, marks, arrays)
    run_reference(kernel, arguments, grid=grid, on_op=follower, on_print=lambda *_: None, source=source)
    return follower.blocks
