"""Traversal and rewriting of the frozen tile IR.

Reading: `walk`, `walk_blocks`, `kernel_ops`, `terminator`, `definitions`, `uses`, `free_values`, `has_effects`.
Writing: `map_operands` (one op), `substitute` (values in a block), `rewrite_block` / `Rewriter` (ops to lists of
ops), `clone_block` and `inline_block` (copies with fresh values: unrolling, peeling, versioning), `remove_dead`.

Rewriting keeps what it does not change: an op, block or kernel in which nothing changed comes back as the same
object, so `new is old` tells that a pass did nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from phobos.ir.tile import (
    TERMINATORS,
    Assert,
    AtIndex,
    Atomic,
    AxisGather,
    AxisIndex,
    AxisRange,
    Block,
    Break,
    Compute,
    Continue,
    For,
    KernelIR,
    Op,
    Print,
    Reduce,
    Return,
    Store,
    Value,
    View,
    While,
    Yield,
)

ValueMap = dict[Value, Value]
Rewrite = Callable[[Op, ValueMap], Sequence[Op] | None]


# --- reading ---------------------------------------------------------------------------------


def walk(block: Block) -> Iterator[Op]:
    """Every op of the block in textual order, an op before the ops of its nested blocks."""
    for op in block.ops:
        yield op
        for nested in op.blocks():
            yield from walk(nested)


def walk_blocks(block: Block) -> Iterator[Block]:
    """The block and every block nested in it, outer ones first."""
    yield block
    for op in block.ops:
        for nested in op.blocks():
            yield from walk_blocks(nested)


def kernel_ops(kernel: KernelIR) -> Iterator[Op]:
    """Every op of the kernel in textual order."""
    return walk(kernel.body)


def kernel_values(kernel: KernelIR) -> tuple[Value, ...]:
    """Values defined before the body: scalar arguments, then dims."""
    return (*(s.value for s in kernel.scalars), *(d.value for d in kernel.dims))


def terminator(block: Block) -> Op:
    """The op that ends the block."""
    if not block.ops or not isinstance(block.ops[-1], TERMINATORS):
        raise ValueError("the block has no terminator")
    return block.ops[-1]


def definitions(block: Block) -> dict[Value, Op]:
    """The defining op of every value defined by an op in the block or nested in it.

    Block parameters and kernel values are not in it: they have no defining op.
    """
    return {value: op for op in walk(block) for value in op.defined()}


def uses(block: Block) -> dict[Value, list[Op]]:
    """The ops that read each value, nested ones included, in textual order; an op that reads a value twice is
    listed twice. Values that nothing reads are absent."""
    out: dict[Value, list[Op]] = {}
    for op in walk(block):
        for value in op.operands():
            out.setdefault(value, []).append(op)
    return out


def views(op: Op) -> tuple[View, ...]:
    """The tensor views that the op itself touches."""
    return tuple(v for f in fields(op) if isinstance(v := getattr(op, f.name), View))


def defined_in(block: Block) -> set[Value]:
    """Every value bound in the block: its parameters, results of its ops, and the same of nested blocks."""
    out: set[Value] = set()
    for inner in walk_blocks(block):
        out.update(inner.params)
        for op in inner.ops:
            out.update(op.defined())
    return out


def partial_sum(loop: For, number: int, defs: Mapping[Value, Op]) -> Reduce | None:
    """The partial sum that each iteration adds to carried value `number`; None if there is none."""
    end = loop.body.ops[-1]
    added = defs.get(end.values[number]) if isinstance(end, Yield) else None
    if isinstance(added, Compute) and added.fn in ("add", "fma"):
        for v in added.args:
            op = defs.get(v)
            if isinstance(op, Reduce) and op.partial:
                return op
    return None


def free_values(block: Block) -> tuple[Value, ...]:
    """Values that the block (nested ones included) reads and does not define, in order of first use."""
    own = defined_in(block)
    seen: dict[Value, None] = {}
    for op in walk(block):
        for value in op.operands():
            if value not in own:
                seen.setdefault(value)
    return tuple(seen)


def has_effects(op: Op) -> bool:
    """True if the op, or an op nested in it, does more than define its results. Loads count as pure.

    A terminator counts (it must not be removed), and so does a `while`, which need not end. A Yield, Break or Continue
    inside belongs to the loop or `if` around it and is no effect of that.
    """
    return isinstance(op, TERMINATORS) or _acts(op, in_loop=False)


def _acts(op: Op, in_loop: bool) -> bool:
    if isinstance(op, Yield):
        return False
    if isinstance(op, (Break, Continue)):
        return not in_loop
    if isinstance(op, (Return, Store, Atomic, Print, Assert, While)):
        return True
    in_loop = in_loop or isinstance(op, For)
    return any(_acts(inner, in_loop) for block in op.blocks() for inner in block.ops)


# --- rewriting one op ------------------------------------------------------------------------


def map_axis(axis: AxisIndex, fn: Callable[[Value], Value]) -> AxisIndex:
    """The axis with its position replaced; the same object if nothing changed."""
    old = axis.start if isinstance(axis, AxisRange) else axis.index
    new = fn(old)
    if new is old:
        return axis
    if isinstance(axis, AxisRange):
        return replace(axis, start=new)
    if isinstance(axis, AtIndex):
        return AtIndex(index=new)
    return AxisGather(index=new)


def map_view(view: View, fn: Callable[[Value], Value]) -> View:
    axes = tuple(map_axis(axis, fn) for axis in view.axes)
    return view if all(a is b for a, b in zip(axes, view.axes, strict=True)) else replace(view, axes=axes)


def _map_item(item: object, fn: Callable[[Value], Value]) -> object:
    if isinstance(item, Value):
        return fn(item)
    if isinstance(item, View):
        return map_view(item, fn)
    if isinstance(item, (AtIndex, AxisRange, AxisGather)):
        return map_axis(item, fn)
    if isinstance(item, tuple):
        new = tuple(_map_item(x, fn) for x in item)
        return item if all(a is b for a, b in zip(new, item, strict=True)) else new
    return item


def _update(op: Op, changes: dict[str, object]) -> Op:
    return replace(op, **changes) if changes else op  # type: ignore[arg-type]


def map_operands(op: Op, fn: Callable[[Value], Value]) -> Op:
    """The op with `fn` applied to every value it reads itself (views and axes included); nested blocks and results
    stay. The same object if nothing changed."""
    changes: dict[str, object] = {}
    for f in fields(op):
        if f.name in ("result", "results", "span"):
            continue
        old = getattr(op, f.name)
        new = _map_item(old, fn)
        if new is not old:
            changes[f.name] = new
    return _update(op, changes)


def map_results(op: Op, fn: Callable[[Value], Value]) -> Op:
    """The op with `fn` applied to every value it defines."""
    changes: dict[str, object] = {}
    for f in fields(op):
        if f.name in ("result", "results"):
            old = getattr(op, f.name)
            new = _map_item(old, fn)
            if new is not old:
                changes[f.name] = new
    return _update(op, changes)


def map_blocks(op: Op, fn: Callable[[Block], Block]) -> Op:
    """The op with `fn` applied to each block it owns. The same object if nothing changed."""
    changes: dict[str, object] = {}
    for f in fields(op):
        old = getattr(op, f.name)
        if isinstance(old, Block):
            new = fn(old)
            if new is not old:
                changes[f.name] = new
    return _update(op, changes)


def with_ops(block: Block, ops: Iterable[Op]) -> Block:
    """The block with other ops, cut after the first terminator; the same object if they are the same ops."""
    kept: list[Op] = []
    for op in ops:
        kept.append(op)
        if isinstance(op, TERMINATORS):
            break
    if len(kept) == len(block.ops) and all(a is b for a, b in zip(kept, block.ops, strict=True)):
        return block
    return replace(block, ops=tuple(kept))


# --- rewriting blocks ------------------------------------------------------------------------


class Rewriter:
    """Rewrites blocks op by op; override `visit`, and `enter` where the way down matters.

    For each op in order: its operands are remapped by `values`; `enter(op)` sees it (return the op, or a replacement
    of the same kind); its nested blocks are rewritten; then `visit(op)` returns the ops that take its place. `visit`
    may `replace_value(old, new)`, so that later ops read `new`. Ops after a terminator are dropped.
    """

    def __init__(self, values: Mapping[Value, Value] | None = None):
        self.values: ValueMap = dict(values or {})

    def value(self, value: Value) -> Value:
        """What `value` is replaced by, transitively."""
        while value in self.values:
            value = self.values[value]
        return value

    def replace_value(self, old: Value, new: Value) -> None:
        if self.value(new) is not old:
            self.values[old] = new

    def enter(self, op: Op) -> Op:
        return op

    def visit(self, op: Op) -> Sequence[Op]:
        return (op,)

    def leave_block(self, block: Block) -> None:
        """Called after the last op of a block was rewritten (`block` is the old one)."""

    def block(self, block: Block) -> Block:
        out: list[Op] = []
        for op in block.ops:
            op = self.enter(map_operands(op, self.value))
            out.extend(self.visit(map_blocks(op, self.block)))
            if out and isinstance(out[-1], TERMINATORS):
                break
        self.leave_block(block)
        return with_ops(block, out)

    def kernel(self, kernel: KernelIR) -> KernelIR:
        body = self.block(kernel.body)
        return kernel if body is kernel.body else replace(kernel, body=body)


class _FunctionRewriter(Rewriter):
    def __init__(self, fn: Rewrite, values: ValueMap):
        super().__init__()
        self.values = values  # shared, not copied: the function writes replacements into it
        self._fn = fn

    def visit(self, op: Op) -> Sequence[Op]:
        out = self._fn(op, self.values)
        return (op,) if out is None else out


def rewrite_block(block: Block, fn: Rewrite, values: ValueMap | None = None) -> Block:
    """The block with every op, nested ones first, replaced by `fn(op, values)`.

    `fn` gets the op with its operands remapped and its nested blocks rewritten, and returns the ops to put in its place
    (`None` keeps it, `[]` deletes it). To make later ops read another value, it sets `values[old] = new`.
    """
    return _FunctionRewriter(fn, {} if values is None else values).block(block)


def rewrite_kernel(kernel: KernelIR, fn: Rewrite, values: ValueMap | None = None) -> KernelIR:
    """`rewrite_block` of the kernel's body."""
    body = rewrite_block(kernel.body, fn, values)
    return kernel if body is kernel.body else replace(kernel, body=body)


def substitute(block: Block, values: Mapping[Value, Value]) -> Block:
    """The block, nested ones included, reading `values[v]` in place of each `v`."""
    return Rewriter(values).block(block) if values else block


# --- copies ----------------------------------------------------------------------------------


def fresh(value: Value, name: str | None = None) -> Value:
    """A new value of the same type (and name, unless given)."""
    return Value(type=value.type, name=value.name if name is None else name, span=value.span)


def _clone_op(op: Op, values: ValueMap) -> Op:
    def new_value(value: Value) -> Value:
        values[value] = copy = fresh(value)
        return copy

    op = map_operands(op, lambda v: values.get(v, v))
    op = map_blocks(op, lambda b: clone_block(b, values))
    op = map_results(op, new_value)
    # A copy even where nothing changed (a Yield without values), so that no op is in the tree twice.
    return replace(op)


def clone_block(block: Block, values: ValueMap | None = None) -> Block:
    """A copy in which every value defined inside, parameters included, is new.

    `values` maps values from outside to what the copy reads instead, and afterwards holds old -> new for all values
    defined inside.
    """
    values = {} if values is None else values
    params = []
    for param in block.params:
        values[param] = fresh(param)
        params.append(values[param])
    return Block(params=tuple(params), ops=tuple(_clone_op(op, values) for op in block.ops))


def inline_block(block: Block, arguments: Sequence[Value], values: ValueMap | None = None) -> tuple[tuple[Op, ...], Op]:
    """Fresh copies of the block's ops with its parameters bound to `arguments`: (ops without the terminator,
    terminator). Used to unroll or peel a loop and to inline a combine function."""
    if len(arguments) != len(block.params):
        raise ValueError(f"{len(block.params)} parameters, {len(arguments)} arguments")
    values = {} if values is None else values
    values.update(zip(block.params, arguments, strict=True))
    ops = tuple(_clone_op(op, values) for op in block.ops)
    return ops[:-1], ops[-1]


# --- dead code -------------------------------------------------------------------------------


def remove_dead(block: Block, live: Iterable[Value] = ()) -> Block:
    """The block without effect-free ops whose results nothing reads. `live` are values read outside of it.

    Carried values of loops stay: removing those changes the loop's signature and is a pass of its own.
    """
    needed = set(live)

    def sweep(block: Block) -> Block:
        kept: list[Op] = []
        for op in reversed(block.ops):
            if not has_effects(op) and not any(v in needed for v in op.defined()):
                continue
            op = map_blocks(op, sweep)
            needed.update(op.operands())
            kept.append(op)
        return with_ops(block, reversed(kept))

    # A value of a loop body may be read only by a later iteration through Yield, which is an operand and so counted.
    return sweep(block)
