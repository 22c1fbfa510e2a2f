"""The reference interpreter: runs a kernel's tile IR over its whole grid with NumPy.

What an operation of the IR means is what this module computes for it. Blocks run one after the other, x fastest, so
atomics and stores to the same element happen in that order; on a GPU the order is unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir import tile as ir
from phobos.reference import tile_ops
from phobos.reference.arguments import Bound, bind
from phobos.reference.contraction import dot
from phobos.reference.elementwise import cast, compute
from phobos.reference.memory import Region, region
from phobos.reference.numerics import Array, carrier_dtype, from_storage, to_storage
from phobos.source import SourceFile, Span

# Iterations of loops that one block may run where the caller sets no limit: half a minute of interpretation.
DEFAULT_MAX_STEPS = 2_000_000

Environment = dict[ir.Value, Any]
OnOp = Callable[[ir.Op, tuple[int, int, int], Mapping[ir.Value, Any]], None]
OnPrint = Callable[[str, tuple[int, int, int]], None]

# How a block ended: the terminator and the values it carries.
Outcome = tuple[type[ir.Op], tuple[Any, ...]]


@dataclass(frozen=True)
class RunResult:
    """What a run reports besides what it wrote: the grid and dims it used, and warnings (no errors: those raise)."""

    grid: tuple[int, int, int]
    dims: Mapping[str, int]
    warnings: tuple[Diagnostic, ...]


def run(
    kernel: ir.KernelIR,
    arguments: Mapping[str, Any],
    *,
    grid: tuple[int, ...] | None = None,
    float64: bool = False,
    max_steps: int | None = None,
    on_op: OnOp | None = None,
    on_print: OnPrint | None = None,
    source: SourceFile | None = None,
) -> RunResult:
    """Runs the kernel over its grid and writes into the arrays in place, whatever their strides.

    arguments: NumPy arrays by tensor name in storage dtypes (bf16 as uint16 bits, f8 as uint8 bits, or arrays of
        ml_dtypes' types) and Python or NumPy numbers by scalar name. Dims are bound from the arrays' shapes.
    grid: replaces the kernel's own grid, one to three sizes.
    float64: oracle mode. Floats are computed in float64 without rounding in between, contractions included whatever
        their kind; integers are unchanged. float64 arrays are then accepted for any float tensor, which keeps the
        full result.
    max_steps: loop iterations that one block may run, all loops together, before it counts as endless.
    on_op: called as on_op(op, block, environment) after each op has bound its results and before each terminator acts;
        for a loop or `if` after it has ended (its inner ops come first). The environment maps SSA values to arrays and
        NumPy scalars and must not be changed.
    on_print: called with each line that `print` makes and its block, in place of Python's stdout.
    source: the kernel text, for carets in errors.

    Raises LaunchError: PH0850 to PH0858 for arguments, PH0860 a failed assert, PH0861 integer division by zero of
    scalars, PH0862 the step limit, PH0863 a loop step of 0, PH0864 an unmasked access outside its tensor. Integer
    division by zero inside a tile is the warning PH0865: the elements may be masked ones that nothing uses.
    """
    bound = bind(kernel, arguments, grid=grid, float64=float64, source=source)
    steps = DEFAULT_MAX_STEPS if max_steps is None else max_steps
    machine = _Machine(kernel, bound, float64, steps, on_op, on_print, source)
    x_size, y_size, z_size = bound.grid
    # Infinities, NaNs and wrapped integers are results here, not accidents.
    with np.errstate(all="ignore"):
        for z in range(z_size):
            for y in range(y_size):
                for x in range(x_size):
                    machine.run_block((x, y, z))
    return RunResult(bound.grid, bound.dims, tuple(machine.warnings.values()))


class _Machine:
    """The state of a run. `env` is the environment of the block at hand."""

    def __init__(
        self,
        kernel: ir.KernelIR,
        bound: Bound,
        float64: bool,
        max_steps: int,
        on_op: OnOp | None,
        on_print: OnPrint | None,
        source: SourceFile | None,
    ):
        self.kernel = kernel
        self.bound = bound
        self.float64 = float64
        self.max_steps = max_steps
        self.on_op = on_op
        self.on_print = on_print
        self.source = source
        self.warnings: dict[Span, Diagnostic] = {}
        self.block = (0, 0, 0)
        self.steps = 0
        self.env: Environment = {}
        self.initial: Environment = {s.value: bound.scalars[s.name] for s in kernel.scalars}
        self.initial |= {d.value: np.int64(bound.dims[d.name]) for d in kernel.dims}

    # --- blocks and control flow ---------------------------------------------------------

    def run_block(self, block: tuple[int, int, int]) -> None:
        self.block = block
        self.steps = 0
        self.env = dict(self.initial)
        self.run_ops(self.kernel.body)

    def run_ops(self, block: ir.Block) -> Outcome:
        """Runs the ops up to a terminator and says how the block ended."""
        for op in block.ops:
            if isinstance(op, ir.TERMINATORS):
                if self.on_op is not None:
                    self.on_op(op, self.block, self.env)
                return type(op), tuple(self.env[v] for v in op.operands())
            handler = _CONTROL.get(type(op))
            if handler is not None:
                outcome = handler(self, op)
                if outcome is not None:
                    return outcome
            else:
                _PLAIN[type(op)](self, op)
            if self.on_op is not None:
                self.on_op(op, self.block, self.env)
        raise AssertionError("a block has no terminator; phobos.ir.verify reports this")

    def bind_values(self, names: tuple[ir.Value, ...], values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            self.env[name] = value

    def count_step(self, op: ir.Op) -> None:
        self.steps += 1
        if self.steps > self.max_steps:
            found = "a loop that does not end?" if isinstance(op, ir.While) else "a size that is small needs fewer"
            raise self.error(
                "PH0862",
                f"more than {self.max_steps} iterations in block {self.block}: {found}",
                op.span,
            )

    def if_op(self, op: ir.If) -> Outcome | None:
        kind, values = self.run_ops(op.then if self.env[op.condition] else op.orelse)
        if kind is not ir.Yield:
            return kind, values
        self.bind_values(op.results, values)
        return None

    def for_op(self, op: ir.For) -> Outcome | None:
        lo, hi, step = (int(self.env[v]) for v in (op.lo, op.hi, op.step))
        if step == 0:
            raise self.error("PH0863", f"the step of this range is 0 in block {self.block}", op.span)
        carried = tuple(self.env[v] for v in op.inits)
        index = carrier_dtype(op.body.params[0].dtype).type
        for i in range(lo, hi, step):
            self.count_step(op)
            self.bind_values(op.body.params, (index(i), *carried))
            kind, values = self.run_ops(op.body)
            if kind is ir.Return:
                return kind, values
            carried = values
            if kind is ir.Break:
                break
        self.bind_values(op.results, carried)
        return None

    def while_op(self, op: ir.While) -> Outcome | None:
        carried = tuple(self.env[v] for v in op.inits)
        while True:
            self.bind_values(op.condition.params, carried)
            _, (go_on,) = self.run_ops(op.condition)
            if not go_on:
                break
            self.count_step(op)
            self.bind_values(op.body.params, carried)
            kind, values = self.run_ops(op.body)
            if kind is ir.Return:
                return kind, values
            carried = values
            if kind is ir.Break:
                break
        self.bind_values(op.results, carried)
        return None

    # --- values --------------------------------------------------------------------------

    def define(self, value: ir.Value, data: Any) -> None:
        """Binds a result, brought to its type's shape (scalars as NumPy scalars) and carrier dtype."""
        array = np.asarray(data, dtype=carrier_dtype(value.dtype, self.float64))
        if value.is_tile:
            self.env[value] = array if array.shape == value.shape else np.broadcast_to(array, value.shape)
        else:
            # Arrays stand for scalars only inside a vectorised combine function.
            self.env[value] = array[()] if array.ndim == 0 else array

    def constant(self, op: ir.Constant) -> None:
        self.define(op.result, op.value)

    def program_id(self, op: ir.ProgramId) -> None:
        self.define(op.result, self.block[op.axis])

    def grid_size(self, op: ir.GridSize) -> None:
        self.define(op.result, self.bound.grid[op.axis])

    def compute(self, op: ir.Compute) -> None:
        args = [self.env[v] for v in op.args]
        dtype = op.args[-1].dtype
        if op.fn in ("div", "mod") and dtype.is_integer and not np.all(args[1]):
            self.division_by_zero(op)
        self.define(op.result, compute(op.fn, args, dtype, self.float64))

    def division_by_zero(self, op: ir.Compute) -> None:
        message = f"integer division by zero in block {self.block}"
        if not op.result.is_tile:
            raise self.error("PH0861", message, op.span)
        if op.span not in self.warnings:
            note = "a quotient by 0 has all bits set; elements outside a tensor read 0"
            self.warnings[op.span] = Diagnostic(
                code="PH0865", message=message, span=op.span, severity="warning", notes=(note,)
            )

    def cast(self, op: ir.Cast) -> None:
        value = cast(self.env[op.operand], op.operand.dtype, op.result.dtype, self.float64)
        self.define(op.result, value)

    def broadcast(self, op: ir.Broadcast) -> None:
        self.define(op.result, self.env[op.operand])

    def iota(self, op: ir.Iota) -> None:
        shape = [1] * len(op.result.shape)
        shape[op.axis] = op.result.shape[op.axis]
        self.define(op.result, np.arange(shape[op.axis]).reshape(shape))

    def transpose(self, op: ir.Transpose) -> None:
        self.define(op.result, np.swapaxes(self.env[op.operand], -1, -2))

    def reshape(self, op: ir.Reshape) -> None:
        self.define(op.result, np.reshape(self.env[op.operand], op.result.shape))

    def cat(self, op: ir.Cat) -> None:
        self.define(op.result, np.concatenate([self.env[p] for p in op.parts], axis=op.axis))

    def extract(self, op: ir.Extract) -> None:
        part = region(op.axes, op.operand.shape, self.env.__getitem__)
        self.check_unmasked(part, "the tile", op.span)
        self.define(op.result, part.read(self.env[op.operand]).copy())

    def insert(self, op: ir.Insert) -> None:
        part = region(op.axes, op.operand.shape, self.env.__getitem__)
        self.check_unmasked(part, "the tile", op.span)
        copy = np.array(self.env[op.operand])
        part.write(copy, np.broadcast_to(self.env[op.value], part.shape))
        self.define(op.result, copy)

    def reduce(self, op: ir.Reduce) -> None:
        operand = self.env[op.operand]
        if op.kind == "custom":
            assert op.combine is not None and op.init is not None
            block = op.combine
            combine = tile_ops.combiner(block, lambda a, b: self.call(block, (a, b)))
            self.define(op.result, tile_ops.fold(operand, op.axis, combine, self.env[op.init]))
        else:
            self.define(op.result, tile_ops.reduce(operand, op.kind, op.axis, op.operand.dtype, self.float64))

    def sum_parts(self, op: ir.SumParts) -> None:
        self.define(op.result, self.env[op.operand])

    def call(self, block: ir.Block, arguments: tuple[Any, ...]) -> Any:
        self.bind_values(block.params, arguments)
        return self.run_ops(block)[1][0]

    def scan(self, op: ir.Scan) -> None:
        self.define(op.result, tile_ops.scan(self.env[op.operand], op.axis, op.operand.dtype, self.float64))

    def gather(self, op: ir.Gather) -> None:
        table, index = self.env[op.table], self.env[op.index].astype(np.int64)
        inside = (index >= 0) & (index < table.shape[0])
        rows = table[np.clip(index, 0, table.shape[0] - 1)]
        self.define(op.result, np.where(inside.reshape(-1, *[1] * (table.ndim - 1)), rows, table.dtype.type(0)))

    def dot(self, op: ir.Dot) -> None:
        b = self.env[op.b].T if op.transpose_b else self.env[op.b]
        self.define(op.result, dot(self.env[op.a], b, op.a.dtype, op.kind, self.float64))

    # --- memory --------------------------------------------------------------------------

    def view_region(self, view: ir.View) -> tuple[Array, Region]:
        array = self.bound.arrays[view.tensor.name]
        part = region(view.axes, array.shape, self.env.__getitem__)
        self.check_unmasked(part, f"'{view.tensor.name}'", view.span)
        return array, part

    def check_unmasked(self, part: Region, what: str, span: Span) -> None:
        axis = part.unguarded_outside()
        if axis is not None:
            index = part.axes[axis].index
            raise self.error(
                "PH0864",
                f"an access without a mask reaches outside axis {axis} of {what}: positions {int(index.min())} to "
                f"{int(index.max())} of {part.axes[axis].extent}, in block {self.block}",
                span,
            )

    def load(self, op: ir.Load) -> None:
        array, part = self.view_region(op.view)
        dtype = op.view.tensor.type.dtype
        values = from_storage(part.read(array), dtype, self.float64)
        mask = part.mask()
        if op.fill != 0 and mask is not None:
            values = np.where(mask.reshape(part.shape), values, values.dtype.type(op.fill))
        self.define(op.result, np.swapaxes(values, -1, -2) if op.transposed else values)

    def store(self, op: ir.Store) -> None:
        array, part = self.view_region(op.view)
        values = to_storage(np.asarray(self.env[op.value]), op.view.tensor.type.dtype, array.dtype)
        part.write(array, np.broadcast_to(values, part.shape))

    def atomic(self, op: ir.Atomic) -> None:
        array, part = self.view_region(op.view)
        values = [np.broadcast_to(self.env[v], part.shape) for v in op.values]
        dtype = op.view.tensor.type.dtype
        old = tile_ops.atomic(array, part, op.kind, values, dtype, self.float64)
        if op.result is not None:
            self.define(op.result, old)

    # --- debugging -----------------------------------------------------------------------

    def print_op(self, op: ir.Print) -> None:
        text = "".join(p if isinstance(p, str) else str(self.env[p]) for p in op.parts)
        if self.on_print is not None:
            self.on_print(text, self.block)
        else:
            print(text)

    def assert_op(self, op: ir.Assert) -> None:
        condition = np.asarray(self.env[op.condition])
        if condition.all():
            return
        where = f" at element {tuple(int(i[0]) for i in np.nonzero(~condition))}" if condition.ndim else ""
        raise self.error("PH0860", f"assertion failed: {op.text} (block {self.block}{where})", op.span)

    def error(self, code: str, message: str, span: Span) -> LaunchError:
        return LaunchError(Diagnostic(code=code, message=message, span=span), self.source)


_CONTROL: dict[type[ir.Op], Callable[[_Machine, Any], Outcome | None]] = {
    ir.If: _Machine.if_op,
    ir.For: _Machine.for_op,
    ir.While: _Machine.while_op,
}
_PLAIN: dict[type[ir.Op], Callable[[_Machine, Any], None]] = {
    ir.Constant: _Machine.constant,
    ir.ProgramId: _Machine.program_id,
    ir.GridSize: _Machine.grid_size,
    ir.Compute: _Machine.compute,
    ir.Cast: _Machine.cast,
    ir.Broadcast: _Machine.broadcast,
    ir.Iota: _Machine.iota,
    ir.Transpose: _Machine.transpose,
    ir.Reshape: _Machine.reshape,
    ir.Cat: _Machine.cat,
    ir.Extract: _Machine.extract,
    ir.Insert: _Machine.insert,
    ir.Reduce: _Machine.reduce,
    ir.SumParts: _Machine.sum_parts,
    ir.Scan: _Machine.scan,
    ir.Gather: _Machine.gather,
    ir.Dot: _Machine.dot,
    ir.Load: _Machine.load,
    ir.Store: _Machine.store,
    ir.Atomic: _Machine.atomic,
    ir.Print: _Machine.print_op,
    ir.Assert: _Machine.assert_op,
}
