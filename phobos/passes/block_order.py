"""block_order: which block the hardware's next one is.

Precondition: the tile IR as it will be lowered. Result: where each coordinate of a block comes from, as an expression
of the hardware's coordinates. Blocks run in any order and at the same time, so the meaning stays.

The hardware starts blocks with x fastest. `longest`: where the trips of a loop rise or fall with one coordinate, blocks
of many trips come first, whatever their other coordinates: what is left at the end are short ones, which fill the
multiprocessors evenly. Causal attention of 48 heads of 2048 on an H200: 104 instead of 132 us (D = 64), 183 instead of
224 (D = 128); of 8192, where keys and values exceed the L2, still 10 and 9 % less. `grouped`: x and y in stripes of
eight y, so that blocks which run together share more of what both coordinates select.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phobos.ir.abi import NO_EFFECT, Decision
from phobos.ir.dims import DimConst
from phobos.ir.storage import Apply, Expr, Literal, Special
from phobos.ir.tile import Assert, Cast, Compute, Constant, For, If, KernelIR, Op, Print, ProgramId, Value, Yield
from phobos.ir.types import DType
from phobos.ir.walk import definitions, kernel_ops, kernel_values

_AXES = "xyz"
_STRIPE = 8  # rows of a stripe: 8 and 16 measured alike in products of f32 rounded to f16, 4096^3 on an H200
# How a value moves with a coordinate: -1, 0 or 1; None where that is not known.
Direction = int | None


@dataclass(frozen=True)
class BlockOrder:
    """`kind` linear, longest (along `axis`; `rising`: trips grow with the coordinate) or grouped."""

    kind: str
    grid: tuple[bool, bool, bool]  # axes of more than one block
    axis: int = 0
    rising: bool = True

    def coordinate(self, axis: int) -> Expr:
        """The coordinate of the block that the hardware's current one is."""
        if self.kind == "grouped" and axis < 2:
            return _grouped(axis)
        if self.kind != "longest" or not self.grid[axis]:
            return _own(axis)
        others = [a for a in range(3) if self.grid[a] and a != self.axis]
        number = _number([a for a in range(3) if self.grid[a]])
        apart = _product(others)
        if axis == self.axis:
            place = number if apart is None else _apply("div", number, apart)
            return _apply("sub", _apply("sub", _extent(axis), _integer(1)), place) if self.rising else place
        assert apart is not None
        rest = _apply("mod", number, apart)
        if len(others) == 1:
            return rest
        return _apply("mod" if axis == others[0] else "div", rest, _extent(others[0]))


def run(kernel: KernelIR, *, debug: bool = False) -> tuple[BlockOrder, tuple[Decision, ...]]:
    """The order, and what the report says of it. `debug`: what the kernel prints and asserts is kept, and then blocks
    are taken as they count where no order is asked for: messages come in that order, and name the hardware's block."""
    asked = kernel.options.order
    if asked == "auto" and debug and any(isinstance(op, (Assert, Print)) for op in kernel_ops(kernel)):
        asked = "linear"
    grid = (not _single(kernel, 0), not _single(kernel, 1), not _single(kernel, 2))
    linear = BlockOrder("linear", grid)
    if asked == "grouped":
        if grid[0] and grid[1]:
            made = _decision(kernel, "in stripes of eight y", "the option order = grouped")
            return BlockOrder("grouped", grid), (made,)
        return linear, (_idle(kernel, "the grid has less than two axes"),)
    found = _longest(kernel) if asked in ("auto", "longest") else None
    if found is None:
        if asked != "longest":
            return linear, ()
        reason = "no `for` loops are known to have trips that rise or fall alike with one coordinate"
        return linear, (_idle(kernel, reason),)
    loop, axis, direction = found
    moves = "rise" if direction > 0 else "fall"
    reason = f"the trips of the loop in line {loop.span.line} {moves} with ctx.block.{_AXES[axis]}"
    return BlockOrder("longest", grid, axis, direction > 0), (_decision(kernel, "those of many trips first", reason),)


def _decision(kernel: KernelIR, choice: str, reason: str) -> Decision:
    return Decision(stage="threads", subject="order of blocks", choice=choice, reason=reason, line=kernel.span.line)


def _idle(kernel: KernelIR, reason: str) -> Decision:
    subject = f"order = {kernel.options.order}"
    return Decision(stage=NO_EFFECT, subject=subject, choice="no effect", reason=reason, line=kernel.span.line)


def _single(kernel: KernelIR, axis: int) -> bool:
    size = kernel.grid[axis]
    return isinstance(size, DimConst) and size.value == 1


# --- trips -----------------------------------------------------------------------------------


def _longest(kernel: KernelIR) -> tuple[For, int, int] | None:
    """(loop, axis, direction): the first loop whose trips are known to move with a coordinate, unless another one moves
    against it."""
    defs = definitions(kernel.body)
    fixed = set(kernel_values(kernel))
    for axis in (a for a in range(3) if not _single(kernel, a)):
        found: list[tuple[For, int]] = []
        for op in kernel_ops(kernel):
            if isinstance(op, For):
                moves = _Moves(defs, fixed, axis)
                trips = _together(moves.of(op.hi), _against(moves.of(op.lo)))
                step = defs.get(op.step)
                if trips and isinstance(step, Constant):
                    found.append((op, trips if step.value > 0 else -trips))
        if found and len({direction for _, direction in found}) == 1:
            return found[0][0], axis, found[0][1]
    return None


class _Moves:
    """How scalars move with the coordinate on one axis. Extents count as positive, and integers as wide enough: an
    order of blocks changes no result."""

    def __init__(self, defs: Mapping[Value, Op], fixed: set[Value], axis: int):
        self._defs, self._fixed, self._axis = defs, fixed, axis
        self._known: dict[Value, Direction] = {}

    def of(self, v: Value) -> Direction:
        if v not in self._known:
            self._known[v] = None  # while it is looked at
            self._known[v] = self._of(v)
        return self._known[v]

    def _of(self, v: Value) -> Direction:
        op = self._defs.get(v)
        if op is None:
            return 0 if v in self._fixed else None  # an index or a carried value
        if isinstance(op, ProgramId):
            return 1 if op.axis == self._axis else 0
        if isinstance(op, Cast):
            return self.of(op.operand)
        if isinstance(op, If):
            return self._of_branches(op, v)
        moves = [self.of(a) for a in op.operands()]
        if all(m == 0 for m in moves) and not any(True for _ in op.blocks()):
            return 0
        if not isinstance(op, Compute) or v.is_tile:
            return None
        if op.fn in ("add", "min", "max"):
            return _together(*moves)
        if op.fn == "sub":
            return _together(moves[0], _against(moves[1]))
        if op.fn in ("mul", "div") and moves[1] == 0:
            return moves[0] if self._positive(op.args[1]) else None
        if op.fn == "mul" and moves[0] == 0:
            return moves[1] if self._positive(op.args[0]) else None
        if op.fn == "where" and moves[0] == 0:
            return _together(*moves[1:])
        return None

    def _of_branches(self, op: If, v: Value) -> Direction:
        if self.of(op.condition) != 0:
            return None
        number = op.results.index(v)
        ends = [b.ops[-1] for b in op.blocks() if isinstance(b.ops[-1], Yield)]
        return _together(*(self.of(end.values[number]) for end in ends if isinstance(end, Yield)))

    def _positive(self, v: Value) -> bool:
        """Is it a positive constant, or an extent or argument, which is likely to be positive?"""
        op = self._defs.get(v)
        return op is None or (isinstance(op, Constant) and op.value > 0)


def _against(a: Direction) -> Direction:
    return None if a is None else -a


def _together(*moves: Direction) -> Direction:
    """The direction of a sum."""
    out = 0
    for m in moves:
        if m is None or (m and out and m != out):
            return None
        out = out or m
    return out


# --- coordinates -----------------------------------------------------------------------------


def _integer(value: int) -> Literal:
    return Literal(DType.INDEX, value)


def _own(axis: int) -> Special:
    return Special(DType.INDEX, "ctaid", axis)


def _extent(axis: int) -> Special:
    return Special(DType.INDEX, "nctaid", axis)


def _apply(fn: str, *args: Expr) -> Apply:
    return Apply(DType.INDEX, fn, args)


def _number(axes: list[int]) -> Expr:
    """Which block of these axes the current one is, the first axis fastest."""
    *lower, last = axes
    out: Expr = _own(last)
    for axis in reversed(lower):
        out = _apply("add", _own(axis), _apply("mul", _extent(axis), out))
    return out


def _product(axes: list[int]) -> Expr | None:
    out: Expr | None = None
    for axis in axes:
        out = _extent(axis) if out is None else _apply("mul", out, _extent(axis))
    return out


def _grouped(axis: int) -> Expr:
    """x or y of the block with the current number, in stripes of y."""
    number, width = _number([0, 1]), _apply("mul", _integer(_STRIPE), _extent(0))
    first = _apply("mul", _apply("div", number, width), _integer(_STRIPE))
    height = _apply("min", _apply("sub", _extent(1), first), _integer(_STRIPE))
    inside = _apply("mod", number, width)
    return _apply("div", inside, height) if axis == 0 else _apply("add", first, _apply("mod", inside, height))
