"""Runs a schedule: every statement for all threads of one block, with the addresses that its layouts give.

Values are computed too (rounded as storage rounds them, products and sums in an order of their own), because conditions
and gathered positions may depend on them. A statement that is not known here is recorded as not followed; what it would
have written is then stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos.codegen.context import Printer
from phobos.codegen.statements import global_text
from phobos.codegen.writer import Writer
from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir import scheduled as s
from phobos.ir.abi import ScalarArg
from phobos.ir.c_names import c_identifier
from phobos.ir.storage import Buffer, Expr, Fragment, Opaque
from phobos.ir.types import DType
from phobos.reference.elementwise import cast
from phobos.reference.numerics import carrier_dtype, from_storage, round_tf32, to_storage
from phobos.source import SourceFile
from phobos.trace import rooms
from phobos.trace.accesses import Log
from phobos.trace.evaluate import Evaluator
from phobos.trace.slots import from_tile, to_tile

Array = np.ndarray
MAX_STATEMENTS = 200_000

LoopPath = tuple[tuple[int, int], ...]  # (line of a loop, how-manieth iteration of it), outermost first


@dataclass(frozen=True, eq=False)
class Executed:
    """One statement done once by all threads of the block. `unknown`: why its accesses are not here, or ""."""

    statement: s.Stmt
    path: LoopPath
    log: Log
    unknown: str = ""


class _Jump(Exception):
    pass


class _Break(_Jump):
    pass


class _Continue(_Jump):
    pass


class _Return(_Jump):
    pass


class Machine:
    """Runs blocks of one launch, one after the other; writes into `arrays` (storage dtypes)."""

    def __init__(
        self,
        schedule: s.Schedule,
        arrays: Mapping[str, Array],
        scalars: Mapping[str, Any],
        dims: Mapping[str, int],
        grid: tuple[int, int, int],
    ):
        self.schedule, self.arrays, self.grid = schedule, arrays, grid
        self.warps = schedule.threads // 32
        self.printer = Printer(schedule, Writer(SourceFile("", "")))
        self.launch: dict[str, Any] = {}
        self.dims = dict(dims)
        for name, value in dims.items():
            self.launch[c_identifier(name)] = np.int64(value)
        dtypes = {a.name: a.dtype for a in schedule.args if isinstance(a, ScalarArg)}
        for name, value in scalars.items():
            if name in dtypes:
                self.launch[c_identifier(name)] = np.asarray(value).astype(carrier_dtype(dtypes[name]))[()]

    def hardware_blocks(self) -> dict[tuple[int, int, int], tuple[int, int, int]]:
        """ctx.block -> the hardware's block that it is, in the order in which the hardware counts them."""
        x, y, z = self.grid
        out: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        for block in ((i, j, k) for k in range(z) for j in range(y) for i in range(x)):
            self.block, self.scalars = block, dict(self.launch)
            where = [int(self.evaluator(Log()).scalar(e)) for e in self.schedule.coordinates]
            out[where[0], where[1], where[2]] = block
        return out

    def run(self, block: tuple[int, int, int]) -> list[Executed]:
        """Everything that the hardware's block does, in order."""
        self.block = block
        self.scalars = dict(self.launch)
        self.fragments: dict[str, Array] = {}
        self.tiles: dict[str, Array] = {}  # opaque sums, operands in registers, steps of operands
        self.buffers: dict[Buffer, Array] = {}
        self.executed: list[Executed] = []
        self.path: list[tuple[int, int]] = []
        self.turns: dict[tuple[tuple[tuple[int, int], ...], int], int] = {}
        with np.errstate(all="ignore"), suppress(_Return):
            self._all(self.schedule.body)
        return self.executed

    # --- control ---------------------------------------------------------------------------

    def _all(self, statements: tuple[s.Stmt, ...]) -> None:
        for statement in statements:
            self._one(statement)

    def _one(self, x: s.Stmt) -> None:
        if isinstance(x, s.ForStmt):
            self._for(x)
        elif isinstance(x, s.WhileStmt):
            self._while(x)
        elif isinstance(x, s.IfStmt):
            taken = bool(self._scalar(x.condition, x))
            self._all(x.then if taken else x.orelse)
        elif isinstance(x, s.BreakStmt):
            raise _Break
        elif isinstance(x, s.ContinueStmt):
            raise _Continue
        elif isinstance(x, s.ReturnStmt):
            raise _Return
        else:
            self._plain(x)

    def _plain(self, x: s.Stmt) -> None:
        if len(self.executed) >= MAX_STATEMENTS:
            raise LaunchError(
                Diagnostic(
                    code="PH1020",
                    message=f"the run has more than {MAX_STATEMENTS} statements",
                    help="choose smaller dims",
                )
            )
        log = Log()
        unknown = ""
        from phobos.trace.statements import HANDLERS

        handler: Callable[[Machine, Any, Log], None] | None = HANDLERS.get(type(x))
        if handler is None:
            unknown = f"{type(x).__name__} is not followed"
        else:
            try:
                handler(self, x, log)
            except rooms.Unknown as e:
                unknown = f"{e} is not followed"
        self.executed.append(Executed(x, tuple(self.path), log, unknown))

    def _turn(self, x: s.Stmt) -> None:
        """The path of the next iteration of the loop: pieces of a loop that was split count on."""
        line = x.span.line
        key = (tuple(self.path), line)
        turn = self.turns.get(key, 0)
        self.turns[key] = turn + 1
        self.path.append((line, turn))

    def _for(self, x: s.ForStmt) -> None:
        lo, hi, step = (int(self._scalar(e, x)) for e in (x.lo, x.hi, x.step))
        for i in range(lo, hi, step):
            self.scalars[x.index.name] = np.int64(i)
            self._turn(x)
            depth = len(self.path)
            try:
                with suppress(_Continue):
                    self._all(x.body)
            except _Break:
                break
            finally:
                del self.path[depth - 1 :]

    def _while(self, x: s.WhileStmt) -> None:
        while True:
            self._turn(x)
            depth = len(self.path)
            try:
                self._all(x.head)
                if not bool(self._scalar(x.condition, x)):
                    break
                with suppress(_Continue):
                    self._all(x.body)
            except _Break:
                break
            finally:
                del self.path[depth - 1 :]
            if len(self.executed) >= MAX_STATEMENTS:
                raise LaunchError(Diagnostic(code="PH1020", message="the run does not end", help="choose smaller dims"))

    def _scalar(self, e: Expr, at: s.Stmt) -> Any:
        """A scalar expression of control flow; where it reads shared memory, that is a statement of its own."""
        log = Log()
        value = self.evaluator(log).scalar(e)
        if log.requests:
            self.executed.append(Executed(at, tuple(self.path), log))
        return value

    # --- storage ---------------------------------------------------------------------------

    def evaluator(self, log: Log) -> Evaluator:
        return Evaluator(self, log)

    def fragment(self, f: Fragment) -> Array:
        found = self.fragments.get(f.name)
        if found is None:
            found = np.zeros((self.warps, 32, f.layout.registers), carrier_dtype(f.dtype))
            self.fragments[f.name] = found
        return found

    def set_fragment(self, f: Fragment, values: Array) -> None:
        shape = (self.warps, 32, f.layout.registers)
        self.fragments[f.name] = np.array(np.broadcast_to(values, shape).astype(carrier_dtype(f.dtype)))

    def contents(self, buffer: Buffer) -> Array:
        """Elements of the buffer: carrier array [stages, elements]."""
        found = self.buffers.get(buffer)
        if found is None:
            found = np.zeros((buffer.stages, buffer.layout.elements), carrier_dtype(buffer.dtype))
            self.buffers[buffer] = found
        return found

    def stage(self, buffer: Buffer) -> int:
        """The stage that statements mean where they name none."""
        return int(self.scalars[buffer.stage.name]) // buffer.stage_bytes if buffer.stage is not None else 0

    def base(self, buffer: Buffer, stage: int) -> int:
        return self.schedule.offsets[buffer] + stage * buffer.stage_bytes

    def stored(self, buffer: Buffer, values: Array, source: DType) -> Array:
        """Values as they are in the buffer."""
        if buffer.rounding == "tf32":
            return round_tf32(values)
        return cast(values, source, buffer.dtype, False)

    def fill(self, buffer: Buffer, stage: int, index: Array, active: Array, values: Array, source: DType) -> None:
        """Writes the values of active slots at their element indexes."""
        contents = self.contents(buffer)[stage]
        inside = active & (index >= 0) & (index < contents.size)
        contents[index[inside]] = self.stored(buffer, np.broadcast_to(values, index.shape), source)[inside]

    def buffer_tile(self, buffer: Buffer) -> Array:
        """The tile in the buffer's current stage."""
        shape = buffer.layout.shape
        grids = np.indices(shape)
        return self.contents(buffer)[self.stage(buffer)][buffer.layout.index([*grids])]

    def sums(self, accumulator: Fragment | Opaque) -> Array:
        """The tile that the accumulators hold."""
        if isinstance(accumulator, Opaque):
            return self.tiles[accumulator.name]
        return to_tile(accumulator.layout, self.fragment(accumulator))

    def add_product(self, accumulator: Fragment | Opaque, a: Array, b: Array) -> None:
        wide = np.int64 if a.dtype.kind in "iu" else np.float64
        total = self.sums(accumulator) + a.astype(wide) @ b.astype(wide)
        if isinstance(accumulator, Opaque):
            self.tiles[accumulator.name] = total.astype(np.float32)
        else:
            self.set_fragment(accumulator, from_tile(accumulator.layout, total))

    # --- global memory -----------------------------------------------------------------------

    def strides(self, tensor: str) -> tuple[int, ...]:
        """In elements."""
        array = self.arrays[tensor]
        return tuple(st // array.itemsize for st in array.strides)

    def view_text(self, view: s.GlobalView) -> Any:
        return global_text(self.printer, view)

    def read_tensor(self, tensor: str, dtype: DType, positions: list[Array], active: Array) -> Array:
        array = self.arrays[tensor]
        shape = np.broadcast_shapes(*(p.shape for p in positions), active.shape)
        if not array.size:
            return np.zeros(shape, carrier_dtype(dtype))
        at = tuple(np.clip(np.broadcast_to(p, shape), 0, n - 1) for p, n in zip(positions, array.shape))
        return from_storage(array[at], dtype)

    def write_tensor(self, tensor: str, dtype: DType, positions: list[Array], active: Array, values: Array) -> None:
        array = self.arrays[tensor]
        shape = np.broadcast_shapes(*(p.shape for p in positions), active.shape)
        inside = np.broadcast_to(active, shape)
        for p, n in zip(positions, array.shape):
            inside = inside & (p >= 0) & (p < n)
        at = tuple(np.broadcast_to(p, shape)[inside] for p in positions)
        array[at] = to_storage(np.broadcast_to(values, shape)[inside], dtype, array.dtype)
