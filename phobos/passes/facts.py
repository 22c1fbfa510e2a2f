"""What is known about scalars at compile time: divisibility, sign, and which dim bounds them.

An analysis, not a pass: it changes nothing. All answers are conservative.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import gcd
from typing import Any

from phobos.ir.abi import Specialization
from phobos.ir.dims import DimBinary, DimConst, DimExpr, DimName
from phobos.ir.tile import (
    AtIndex,
    Atomic,
    AxisRange,
    Cast,
    Compute,
    Constant,
    For,
    GridSize,
    KernelIR,
    Load,
    Op,
    ProgramId,
    Store,
    Value,
    View,
    While,
)
from phobos.ir.types import DType
from phobos.ir.walk import kernel_ops, walk

_DEEPEST = 150


def _remembered(unknown: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method of ScalarFacts that follows definitions: each answer is computed once, or a value that is used twice at
    each of many steps would be followed 2^steps times; beyond a depth that Python allows the answer is `unknown`
    (None: the value itself, as base and offset)."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def ask(self: "ScalarFacts", v: Value, *more: Any) -> Any:
            key = (method.__name__, v, *more)
            if key not in self._answers:
                if self._depth >= _DEEPEST:
                    return (v, 0) if unknown is None else unknown[0]
                self._depth += 1
                try:
                    self._answers[key] = method(self, v, *more)
                finally:
                    self._depth -= 1
            return self._answers[key]

        return ask

    return wrap


def _changing(kernel: KernelIR, overlap: frozenset[str]) -> set[Value]:
    """Results of reads in loops, of memory that the kernel writes."""
    written = {op.view.tensor.name for op in kernel_ops(kernel) if isinstance(op, (Store, Atomic))}
    if written & overlap:
        written |= overlap
    out: set[Value] = set()
    for loop in kernel_ops(kernel):
        if isinstance(loop, (For, While)):
            for block in loop.blocks():
                for op in walk(block):
                    if isinstance(op, Atomic) or isinstance(op, Load) and op.view.tensor.name in written:
                        out.update(op.defined())
    return out


class ScalarFacts:
    """Facts about the scalar values of one kernel under one specialization."""

    def __init__(self, kernel: KernelIR, spec: Specialization):
        self._kernel = kernel
        self._spec = spec
        self._def: dict[Value, Op] = {}
        self._loop: dict[Value, For] = {}
        self._params: set[Value] = set()
        self._changing = _changing(kernel, spec.overlap)
        for op in kernel_ops(kernel):
            for v in op.defined():
                self._def[v] = op
            if isinstance(op, For):
                self._loop[op.body.params[0]] = op
            for block in op.blocks():
                self._params.update(block.params)
        self._dim = {d.value: d.name for d in kernel.dims}
        self._promise: dict[str, int] = {}
        for p in kernel.aligned:
            old = self._promise.get(p.dim, 1)
            self._promise[p.dim] = old * p.multiple // gcd(old, p.multiple)
        self._multiple: dict[Value, int] = {}
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._depth = 0  # of the questions under way

    # --- values ----------------------------------------------------------------------------

    @_remembered((None,))
    def constant(self, v: Value) -> int | None:
        """The integer that `v` is, if known."""
        op = self._def.get(v)
        if isinstance(op, Constant) and not isinstance(op.value, float):
            return int(op.value)
        if isinstance(op, Cast) and op.operand.dtype.is_integer and v.dtype.is_integer:
            value = self.constant(op.operand)
            return None if value is None or not self._fits(value, v.dtype) else value
        return None

    def _fits(self, value: int, dtype: DType) -> bool:
        bits = 8 * dtype.bytes if dtype is not DType.INDEX else self._spec.index_bits
        return -(1 << (bits - 1)) <= value < 1 << (bits - 1) if dtype.is_signed else 0 <= value < 1 << bits

    def _keeps(self, source: DType, target: DType) -> bool:
        """Has every value of the source type the same value in the target type?"""
        low, high = (-1, 1) if source.is_signed else (0, 2)
        half = 1 << (8 * source.bytes - 1 if source is not DType.INDEX else self._spec.index_bits - 1)
        return source.is_integer and self._fits(low * half, target) and self._fits(high * half - 1, target)

    def dim_name(self, v: Value) -> str | None:
        return self._dim.get(v)

    def dim_multiple(self, dim: int | str) -> int:
        """A number that divides the dim: itself if static; else what the launch checks or promises."""
        if isinstance(dim, int):
            return dim
        known, promised = self._spec.multiple(dim), self._promise.get(dim, 1)
        return known * promised // gcd(known, promised)

    def multiple(self, v: Value) -> int:
        """A number that divides `v` (0: v is 0, so everything does)."""
        if v not in self._multiple:
            self._multiple[v] = 1  # cuts cycles through loop-carried values
            self._multiple[v] = self._compute_multiple(v)
        return self._multiple[v]

    @_remembered((1,))
    def _compute_multiple(self, v: Value) -> int:
        if v in self._dim:
            return self.dim_multiple(self._dim[v])
        if v in self._loop:
            loop = self._loop[v]
            return gcd(self.multiple(loop.lo), self.multiple(loop.step))
        op = self._def.get(v)
        if isinstance(op, Constant):
            return abs(int(op.value)) if v.dtype.is_integer else 1
        if isinstance(op, Cast) and op.operand.dtype.is_integer:
            m0 = self.multiple(op.operand)
            return m0 if self._keeps(op.operand.dtype, v.dtype) else m0 & -m0  # what wraps keeps powers of two
        if isinstance(op, Compute) and v.dtype.is_integer:
            m = [self.multiple(a) if a.dtype.is_integer else 1 for a in op.args]
            if v.dtype is not DType.INDEX and op.fn in ("add", "sub", "mul", "neg", "shl"):
                m = [n & -n for n in m]
            if op.fn == "mul":
                return m[0] * m[1]
            if op.fn in ("add", "sub", "min", "max"):
                return gcd(m[0], m[1])
            if op.fn == "neg":
                return m[0]
            if op.fn == "where":
                return gcd(m[1], m[2])
            if op.fn == "mod":
                return gcd(m[0], m[1])
            if op.fn == "div":
                c = self.constant(op.args[1])
                return m[0] // abs(c) if c and m[0] % abs(c) == 0 else 1
            if op.fn == "shl":
                c = self.constant(op.args[1])
                return m[0] << c if c is not None and 0 <= c < 31 else 1
        return 1

    @_remembered((False,))
    def nonnegative(self, v: Value) -> bool:
        if v in self._dim or (v.dtype.is_integer and not v.dtype.is_signed):
            return True
        if v in self._loop:
            loop = self._loop[v]
            step = self.constant(loop.step)
            if step is not None and step < 0:
                # Counting down the index stays above hi, so hi >= -1 suffices.
                hi = self.constant(loop.hi)
                return hi is not None and hi >= -1
            return self.nonnegative(loop.lo) and (step is not None or self.nonnegative(loop.step))
        op = self._def.get(v)
        if isinstance(op, Constant):
            return v.dtype.is_integer and int(op.value) >= 0
        if isinstance(op, (ProgramId, GridSize)):
            return True
        if isinstance(op, Cast):
            return self._keeps(op.operand.dtype, v.dtype) and self.nonnegative(op.operand)
        if isinstance(op, Compute) and v.dtype.is_integer:
            if op.fn in ("min", "div") or (op.fn in ("add", "mul") and v.dtype is DType.INDEX):  # others wrap
                return all(self.nonnegative(a) for a in op.args)
            if op.fn in ("mod", "shr"):
                return self.nonnegative(op.args[0])
            if op.fn == "max":
                return any(self.nonnegative(a) for a in op.args)
            if op.fn == "where":
                return all(self.nonnegative(a) for a in op.args[1:])
        return False

    def positive(self, v: Value) -> bool:
        c = self.constant(v)
        return c is not None and c > 0

    def is_loop_index(self, v: Value) -> bool:
        return v in self._loop

    # --- motion ----------------------------------------------------------------------------

    def loops_of(self, v: Value) -> tuple[Value, ...]:
        """Loop indexes that `v` is computed from, and whatever else may change from one iteration to another:
        loop-carried values, and reads in a loop of memory that the kernel writes."""
        out: dict[Value, None] = {}
        todo, seen = [v], set()
        while todo:
            x = todo.pop()
            if x in seen:
                continue
            seen.add(x)
            if x in self._loop or x in self._params or x in self._changing:
                out.setdefault(x)
            op = self._def.get(x)
            if op is not None:
                # Whatever the op reads; an op with blocks (a loop's result) counts as what its blocks read too.
                todo.extend(op.operands())
                for block in op.blocks():
                    todo.extend(o for inner in walk(block) for o in inner.operands())
        return tuple(out)

    def steps_apart(self, v: Value, index: Value, length: int) -> bool:
        """Does the loop of `index`, and nothing else, move `v`: by at least `length` from one iteration to the next,
        and through the same values whenever the loop runs?"""
        if self.loops_of(v) != (index,) or index not in self._loop or self.loops_of(self._loop[index].lo):
            return False
        step = self.advance(v, index)
        return step is not None and abs(step) >= length

    @_remembered(None)
    def base_offset(self, v: Value) -> tuple[Value | None, int]:
        """v as base + constant; base None if v is the constant."""
        c = self.constant(v)
        if c is not None:
            return None, c
        op = self._def.get(v)
        if isinstance(op, Cast) and v.dtype is DType.INDEX and self._keeps(op.operand.dtype, v.dtype):
            # Offsets within i8 and u8 wrap too soon to tell positions apart.
            return self.base_offset(op.operand) if op.operand.dtype.bytes > 1 else (op.operand, 0)
        if isinstance(op, Compute) and op.fn in ("add", "sub") and v.dtype.is_integer:
            c = self.constant(op.args[1])
            if c is not None:
                base, offset = self.base_offset(op.args[0])
                return base, offset + (c if op.fn == "add" else -c)
            c = self.constant(op.args[0])
            if c is not None and op.fn == "add":
                base, offset = self.base_offset(op.args[1])
                return base, offset + c
        return v, 0

    @_remembered((None,))
    def advance(self, v: Value, index: Value) -> int | None:
        """By how much `v` grows from one iteration of the loop of `index` to the next; None if not a constant."""
        if v is index:
            loop = self._loop.get(index)
            return self.constant(loop.step) if loop is not None else None
        if index not in self.loops_of(v):
            return 0
        op = self._def.get(v)
        if isinstance(op, Cast) and self._keeps(op.operand.dtype, v.dtype) and op.operand.dtype.bytes > 1:
            return self.advance(op.operand, index)
        if isinstance(op, Compute) and v.dtype.is_integer:
            if op.fn in ("add", "sub"):
                a, b = (self.advance(x, index) for x in op.args)
                return None if a is None or b is None else a + b if op.fn == "add" else a - b
            if op.fn == "mul":
                for x, y in (op.args, op.args[::-1]):
                    c, a = self.constant(y), self.advance(x, index)
                    if c is not None and a is not None:
                        return a * c
        return None

    # --- bounds ----------------------------------------------------------------------------

    def below_dim(self, v: Value, dim: int | str) -> bool:
        """v < dim whenever the code runs."""
        c = self.constant(v)
        if c is not None:
            return isinstance(dim, int) and c < dim
        if v in self._loop:
            loop = self._loop[v]
            step = self.constant(loop.step)
            return step is not None and step > 0 and self._at_most_dim(loop.hi, dim)
        # pid * L is below dim when the grid has ceil(dim / L) blocks on that axis.
        axis, factor = self._program_multiple(v)
        if axis is None:
            return False
        return self._covers(self._kernel.grid[axis], dim, factor)

    @_remembered((False,))
    def _at_most_dim(self, v: Value, dim: int | str) -> bool:
        c = self.constant(v)
        if c is not None:
            return isinstance(dim, int) and c <= dim
        if isinstance(dim, str) and self._dim.get(v) == dim:
            return True
        op = self._def.get(v)
        return isinstance(op, Compute) and op.fn == "min" and any(self._at_most_dim(a, dim) for a in op.args)

    @_remembered(((None, 1),))
    def _program_multiple(self, v: Value) -> tuple[int | None, int]:
        op = self._def.get(v)
        if isinstance(op, ProgramId):
            return op.axis, 1
        if isinstance(op, Cast) and op.operand.dtype.is_integer and v.dtype.bytes > 1:  # coordinates have 31 bits
            return self._program_multiple(op.operand)
        if isinstance(op, Compute) and op.fn == "mul":
            for x, y in (op.args, op.args[::-1]):
                axis, factor = self._program_multiple(x)
                c = self.constant(y)
                if axis is not None and c is not None and c > 0:
                    return axis, factor * c
        return None, 1

    def _covers(self, grid: DimExpr, dim: int | str, factor: int) -> bool:
        """Is (grid - 1) * factor < dim for every dim?"""
        if isinstance(grid, DimConst):
            if isinstance(dim, int):
                return (grid.value - 1) * factor < dim
            return False  # not even position 0: the tensor may be empty
        same = isinstance(grid, DimName) and grid.name == dim
        if same and factor == 1:
            return True
        if isinstance(grid, DimBinary) and grid.op == "ceildiv":
            left = grid.left
            matches = (isinstance(left, DimName) and left.name == dim) or (
                isinstance(left, DimConst) and left.value == dim
            )
            return matches and grid.right == DimConst(factor)
        if isinstance(grid, DimBinary) and grid.op == "//":
            return (
                isinstance(grid.left, DimName)
                and grid.left.name == dim
                and isinstance(grid.right, DimConst)
                and grid.right.value >= factor
            )
        return False

    def whole(self, axis: AxisRange, dim: int | str) -> bool:
        """Every position of the range is inside the axis."""
        c = self.constant(axis.start)
        if c is not None and isinstance(dim, int):
            return 0 <= c and c + axis.length <= dim
        if not self.nonnegative(axis.start) or not self.below_dim(axis.start, dim):
            return False
        if axis.length == 1:
            return True
        return self.multiple(axis.start) % axis.length == 0 and self.dim_multiple(dim) % axis.length == 0

    def vector(self, view: View, transposed: bool = False) -> int:
        """Elements of the tile's last axis that one access may move: aligned, contiguous and under one bounds check.

        Limited to 16 bytes. Needs the specialization's promise that base and outer strides are multiples of 16 bytes.
        `transposed`: the tile has the view's last two axes exchanged.
        """
        facts = self._spec.tensor(view.tensor.name)
        along = [n for n, axis in enumerate(view.axes) if not isinstance(axis, AtIndex)]
        unit = len(view.axes) - 1 if facts.inner is None else facts.inner
        if len(along) < 1 + transposed or along[-2 if transposed else -1] != unit:
            return 1
        axis, dim = view.axes[unit], view.tensor.type.dims[unit]
        if not isinstance(axis, AxisRange) or (facts.inner is None and not facts.align16):
            return 1
        best = 16 // view.tensor.type.dtype.bytes
        while best > 1:
            start_ok = self.multiple(axis.start) % best == 0
            whole_chunks = not axis.guarded or self.dim_multiple(dim) % best == 0
            if start_ok and whole_chunks and axis.length % best == 0:
                return best
            best //= 2
        return 1
