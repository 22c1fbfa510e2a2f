"""Random well-typed kernels for differential tests: every pass must keep what the reference computes.

    kernel = random_kernel(seed)
    before = outputs(kernel, seed)          # runs the reference on seeded arguments
    assert same(outputs(some_pass(kernel), seed), before)

The programs load and store with and without masks' need, compute on f32, i32 and bool tiles and scalars, slice, reduce,
scan, gather and contract, and nest `for`, `while` and `if` with carried values, break, continue and return. Integer
divisors are constants, `while` loops count, so every program ends without a diagnostic.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir.types import DType
from phobos.reference import run

ROWS, COLUMNS = 4, 8
SHAPES = ((), (COLUMNS,), (ROWS, COLUMNS), (ROWS, 1), (1, COLUMNS))
N = 21  # extent of the bound dim: no multiple of anything


class Generator:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.b = Builder(f"random{seed}")
        self.pool: list[ir.Value] = []
        self.indices: list[ir.Value] = []
        # The terminators that the enclosing loop accepts: called with nothing, emits break or continue.
        self.leave: list[Callable[[], None]] = []

    # --- choosing ----------------------------------------------------------------------------

    def pick(self, dtype: DType, shape: tuple[int, ...]) -> ir.Value:
        """A value of the type from the pool, else a new one."""
        known = [v for v in self.pool if v.dtype is dtype and v.shape == shape]
        if known and self.random.random() < 0.85:
            return self.random.choice(known)
        if dtype is DType.BOOL:
            other = DType.F32 if self.random.random() < 0.5 else DType.I32
            fn = self.random.choice(["lt", "le", "eq", "ne", "ge", "gt"])
            return self.keep(self.b.compute(fn, self.pick(other, shape), self.literal(other)))
        if not shape:
            return self.keep(self.b.constant(self.literal(dtype), dtype))
        if self.random.random() < 0.4:
            return self.keep(self.b.broadcast(self.pick(dtype, ()), *shape))
        if dtype is DType.F32:
            return self.keep(self.load(shape))
        axis = self.random.randrange(len(shape))
        return self.keep(self.b.iota(shape, axis))

    def literal(self, dtype: DType) -> int | float:
        if dtype is DType.F32:
            return self.random.choice([0.0, 1.0, -1.0, 0.5, 2.0, -3.25, 0.1])
        return self.random.choice([0, 1, -1, 2, 3, 7, -5])

    def keep(self, value: ir.Value) -> ir.Value:
        self.pool.append(value)
        return value

    def dtype(self) -> DType:
        return self.random.choice([DType.F32, DType.F32, DType.I32])

    def position(self) -> ir.Value:
        """A scalar index that may lie outside."""
        base = self.random.choice(self.indices)
        shift = self.random.choice([0, 0, 1, -2, 5])
        return self.b.add(base, shift) if shift else base

    def axes(self, shape: tuple[int, ...]) -> list[ir.AxisIndex]:
        """Subscripts of a rank-2 tensor [N, COLUMNS] that leave `shape`."""
        b = self.b
        if shape == ():
            return [b.at(self.position()), b.at(self.random.randrange(COLUMNS))]
        if shape == (COLUMNS,):
            return [b.at(self.position()), b.range(0, COLUMNS)]
        start = self.position()
        if shape[0] == ROWS and self.random.random() < 0.2:
            rows: ir.AxisIndex = b.by(b.reshape(self.pick(DType.I32, (ROWS, 1)), ROWS))
        else:
            rows = b.range(start, shape[0])
        column = 0 if shape[1] == COLUMNS else self.random.randrange(COLUMNS)
        return [rows, b.range(column, shape[1])]

    def load(self, shape: tuple[int, ...]) -> ir.Value:
        tensor = self.random.choice(self.b.tensors[:2])
        return self.b.load(tensor, self.axes(shape), fill=self.random.choice([0, 0, -1.5]))

    # --- statements --------------------------------------------------------------------------

    def elementwise(self) -> None:
        b, r = self.b, self.random
        shape = r.choice(SHAPES)
        dtype = self.dtype()
        a = self.pick(dtype, shape)
        # A scalar or a tile that broadcasts.
        others = [s for s in SHAPES if s == () or (len(s) == len(shape) and shape)]
        c = self.pick(dtype, r.choice(others))
        if dtype is DType.F32:
            fn = r.choice(["add", "sub", "mul", "min", "max", "div", "neg", "abs", "floor", "sigmoid", "where", "fma"])
        else:
            fn = r.choice(["add", "sub", "mul", "min", "max", "div", "mod", "neg", "bitand", "bitxor", "where", "shl"])
        if fn in ("neg", "abs", "floor", "sigmoid"):
            value = b.compute(fn, a)
        elif fn in ("div", "mod") and dtype is DType.I32:
            value = b.compute(fn, a, r.choice([2, 3, -4, 8]))
        elif fn == "shl":
            value = b.compute(fn, a, r.choice([0, 1, 3]))
        elif fn == "where":
            value = b.compute("where", self.pick(DType.BOOL, a.shape), a, c)
        elif fn == "fma":
            value = b.compute("fma", a, c, self.literal(dtype))
        else:
            value = b.compute(fn, *((a, c) if r.random() < 0.5 else (c, a)))
        self.keep(value)

    def convert(self) -> None:
        source = self.dtype()
        value = self.pick(source, self.random.choice(SHAPES))
        self.keep(self.b.cast(value, DType.I32 if source is DType.F32 else DType.F32))

    def shapes(self) -> None:
        b, r = self.b, self.random
        tile = self.pick(self.dtype(), (ROWS, COLUMNS))
        kind = r.randrange(6)
        if kind == 0:
            self.keep(b.reduce(tile, r.choice(["sum", "max", "min"]), r.choice([None, 0, 1])))
        elif kind == 1:
            self.keep(b.reduce(tile, r.choice(["argmax", "argmin"]), r.choice([None, 1])))
        elif kind == 2:
            self.keep(b.scan(tile, r.choice([0, 1])))
        elif kind == 3:
            self.keep(b.extract(tile, [b.at(self.position()), b.range(0, COLUMNS)]))
        elif kind == 4:
            row = self.pick(tile.dtype, (1, COLUMNS))
            self.keep(b.insert(tile, [b.range(self.position(), 1), b.range(r.choice([0, 2]), COLUMNS)], row))
        elif tile.dtype is DType.F32:
            square = b.dot(tile, b.broadcast(self.pick(DType.F32, (1, COLUMNS)), ROWS, COLUMNS), True)
            self.keep(b.dot(square, tile))
        else:
            self.keep(b.gather(tile, b.reshape(self.pick(DType.I32, (ROWS, 1)), ROWS)))

    def write(self) -> None:
        b, r = self.b, self.random
        shape = r.choice(SHAPES)
        if r.random() < 0.2:
            view = [b.at(self.position()), b.at(r.randrange(COLUMNS))]
            b.atomic(r.choice(["add", "max"]), b.tensors[1], view, self.pick(DType.F32, ()), result=False)
        else:
            b.store(b.tensors[1], self.axes(shape), self.pick(DType.F32, shape))

    def carried(self) -> list[ir.Value]:
        return [self.pick(self.dtype(), self.random.choice(SHAPES)) for _ in range(self.random.randrange(3))]

    def loop(self, depth: int) -> None:
        b, r = self.b, self.random
        inits = self.carried()
        bounds = r.choice([(0, 3, 1), (0, b.dim("N"), 8), (5, -1, -2), (2, 2, 1)])
        outer = list(self.pool), list(self.indices), list(self.leave)
        with b.for_(*bounds, inits) as handle:
            assert handle.index is not None
            self.pool.extend(handle.carried)
            self.indices.append(handle.index)
            self.leave = [
                lambda: b.break_(*(self.pick(v.dtype, v.shape) for v in inits)),
                lambda: b.continue_(*(self.pick(v.dtype, v.shape) for v in inits)),
            ]
            self.statements(depth + 1)
            b.yield_(*(self.pick(v.dtype, v.shape) for v in inits))
        self.pool, self.indices, self.leave = outer
        self.pool.extend(handle.results)

    def counted_while(self, depth: int) -> None:
        b, r = self.b, self.random
        inits = [b.constant(0, DType.I32), *self.carried()]
        limit = r.choice([1, 3])
        outer = list(self.pool), list(self.leave)

        def body(count: ir.Value, *values: ir.Value) -> None:
            self.pool.extend(values)
            self.leave = [lambda: b.break_(count, *(self.pick(v.dtype, v.shape) for v in inits[1:]))]
            self.statements(depth + 1)
            b.yield_(b.add(count, 1), *(self.pick(v.dtype, v.shape) for v in inits[1:]))

        results = b.while_(inits, lambda count, *rest: b.compute("lt", count, limit), body)
        self.pool, self.leave = outer
        self.pool.extend(results[1:])

    def branch(self, depth: int) -> None:
        b, r = self.b, self.random
        condition = self.pick(DType.BOOL, ())
        like = self.carried()
        outer = list(self.pool)
        ends = [self.leave and r.choice(self.leave), lambda: b.return_()]

        def side() -> None:
            self.pool = list(outer)
            self.statements(depth + 1)
            end = ends[0] if ends[0] and r.random() < 0.3 else None
            if end is None and depth == 0 and r.random() < 0.1:
                end = ends[1]
            if end:
                end()
            else:
                b.yield_(*(self.pick(v.dtype, v.shape) for v in like))

        results = b.if_(condition, side, side, like)
        self.pool = outer
        self.pool.extend(results)

    def statements(self, depth: int) -> None:
        r = self.random
        for _ in range(r.randrange(2, 7)):
            kind = r.random()
            if depth < 2 and kind < 0.12:
                self.loop(depth)
            elif depth < 2 and kind < 0.17:
                self.counted_while(depth)
            elif depth < 2 and kind < 0.27:
                self.branch(depth)
            elif kind < 0.4:
                self.shapes()
            elif kind < 0.5:
                self.write()
            elif kind < 0.56:
                self.convert()
            else:
                self.elementwise()

    def kernel(self) -> ir.KernelIR:
        b = self.b
        b.tensor("X", "f32", "N", COLUMNS)
        b.tensor("Y", "f32", "N", COLUMNS)
        out = b.tensor("Z", "f32", "B", len(SHAPES), ROWS, COLUMNS)
        self.keep(b.scalar("a", "f32"))
        self.keep(b.scalar("n", "i32"))
        pid = b.program_id()
        self.indices = [b.mul(pid, ROWS), b.constant(0, DType.INDEX), pid]
        self.statements(0)
        # The newest value of each shape is an output, so that what was computed is seen.
        for number, shape in enumerate(SHAPES):
            value = self.pick(DType.F32, shape)
            whole = value if len(shape) == 2 else b.reshape(value, 1, COLUMNS) if shape else value
            tile = b.broadcast(whole, ROWS, COLUMNS) if whole.shape != (ROWS, COLUMNS) else whole
            b.store(out, [b.at(pid), b.at(number), b.range(0, ROWS), b.range(0, COLUMNS)], tile)
        return b.finish(grid=(("N", 8),))


def random_kernel(seed: int) -> ir.KernelIR:
    """The kernel of a seed: X, Y f32[N, 8], Z f32[B, 5, 4, 8], a f32, n i32; X is read, Y read and written."""
    return Generator(seed).kernel()


def arguments(seed: int) -> dict[str, np.ndarray | float | int]:
    """Seeded arguments for `random_kernel`, for N = 21 and its grid of 3 blocks."""
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-8, 9, (N, COLUMNS)).astype(np.float32) / 4 for _ in range(2))
    return {"X": x, "Y": y, "Z": np.zeros((3, len(SHAPES), ROWS, COLUMNS), np.float32), "a": 1.25, "n": seed % 7 - 2}


def outputs(kernel: ir.KernelIR, seed: int, float64: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(Y, Z) after the reference has run the kernel on `arguments(seed)`."""
    given = arguments(seed)
    if float64:
        given = {k: v.astype(np.float64) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    run(kernel, given, float64=float64)
    y, z = given["Y"], given["Z"]
    assert isinstance(y, np.ndarray) and isinstance(z, np.ndarray)
    return y, z


def same(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> bool:
    """Equal bit for bit up to the signs and payloads of NaN and of zero."""
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))
