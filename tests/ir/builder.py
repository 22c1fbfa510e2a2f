"""Builds tile IR for tests without the front end.

    b = Builder("scale")
    X, Y = b.tensor("X", "f32", "N"), b.tensor("Y", "f32", "N")
    a = b.scalar("a", "f32")
    start = b.mul(b.program_id(0), 64)
    b.store(Y, [b.range(start, 64)], b.mul(b.load(X, [b.range(start, 64)]), a))
    kernel = b.finish(grid=("N", 64))

Python numbers become constants of the other operand's dtype. Statement spans count up, one line an op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimConst, DimExpr, DimName
from phobos.ir.types import DTYPE_BY_NAME, DType, ScalarType, TensorType, TileType
from phobos.source import Span

Operand = ir.Value | int | float | bool
BOOL_RESULT = {"eq", "ne", "lt", "le", "gt", "ge", "isnan"}


def dtype_of(dtype: DType | str) -> DType:
    return DTYPE_BY_NAME[dtype] if isinstance(dtype, str) else dtype


@dataclass
class Loop:
    """Handle of a loop being built: `index` (for loops), `carried` inside the body, `results` after it."""

    index: ir.Value | None
    carried: tuple[ir.Value, ...]
    results: tuple[ir.Value, ...] = ()


class Builder:
    def __init__(self, name: str = "kernel", **attributes: Any):
        self.name = name
        self.attributes = attributes
        self.order: list[str] = []
        self.tensors: list[ir.TensorParam] = []
        self.scalars: list[ir.ScalarParam] = []
        self.dims: list[ir.DimParam] = []
        self.stack: list[list[ir.Op]] = [[]]
        self.line = 0

    # --- plumbing --------------------------------------------------------------------------

    def span(self) -> Span:
        self.line += 1
        return Span(file="test.ph", line=self.line, column=1, end_line=self.line, end_column=2)

    def emit(self, op: ir.Op) -> ir.Op:
        self.stack[-1].append(op)
        return op

    def value(self, dtype: DType | str, shape: Sequence[int] = (), name: str = "t") -> ir.Value:
        d = dtype_of(dtype)
        return ir.Value(type=TileType(d, tuple(shape)) if shape else ScalarType(d), name=name, span=self.span())

    def constant(self, value: int | float | bool, dtype: DType | str) -> ir.Value:
        result = self.value(dtype, name="c")
        self.emit(ir.Constant(span=self.span(), result=result, value=value))
        return result

    def index(self, value: Operand) -> ir.Value:
        return value if isinstance(value, ir.Value) else self.constant(int(value), DType.INDEX)

    # --- parameters ------------------------------------------------------------------------

    def tensor(self, name: str, dtype: DType | str, *dims: int | str) -> ir.TensorParam:
        param = ir.TensorParam(name=name, type=TensorType(dtype_of(dtype), dims), span=self.span())
        self.tensors.append(param)
        self.order.append(name)
        for dim in dims:
            if isinstance(dim, str) and dim not in [d.name for d in self.dims]:
                self.dims.append(ir.DimParam(name=dim, value=self.value(DType.INDEX, name=dim)))
        return param

    def scalar(self, name: str, dtype: DType | str) -> ir.Value:
        value = self.value(dtype, name=name)
        self.scalars.append(ir.ScalarParam(name=name, value=value))
        self.order.append(name)
        return value

    def dim(self, name: str) -> ir.Value:
        return next(d.value for d in self.dims if d.name == name)

    # --- values ----------------------------------------------------------------------------

    def program_id(self, axis: int = 0) -> ir.Value:
        result = self.value(DType.INDEX, name="pid")
        self.emit(ir.ProgramId(span=self.span(), result=result, axis=axis))
        return result

    def grid_size(self, axis: int = 0) -> ir.Value:
        result = self.value(DType.INDEX, name="grid")
        self.emit(ir.GridSize(span=self.span(), result=result, axis=axis))
        return result

    def compute(self, fn: str, *args: Operand, name: str = "t") -> ir.Value:
        typed = args[1:] if fn == "where" else args
        dtype = next(a.dtype for a in typed if isinstance(a, ir.Value))
        values = tuple(a if isinstance(a, ir.Value) else self.constant(a, dtype) for a in args)
        shapes = [v.shape for v in values if v.shape]
        shape = tuple(max(extents) for extents in zip(*shapes, strict=True)) if shapes else ()
        result = self.value(DType.BOOL if fn in BOOL_RESULT else dtype, shape, name)
        self.emit(ir.Compute(span=self.span(), result=result, fn=fn, args=values))
        return result

    def add(self, a: Operand, b: Operand) -> ir.Value:
        return self.compute("add", a, b)

    def sub(self, a: Operand, b: Operand) -> ir.Value:
        return self.compute("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> ir.Value:
        return self.compute("mul", a, b)

    def cast(self, operand: ir.Value, dtype: DType | str) -> ir.Value:
        result = self.value(dtype, operand.shape)
        self.emit(ir.Cast(span=self.span(), result=result, operand=operand))
        return result

    def broadcast(self, operand: ir.Value, *shape: int) -> ir.Value:
        result = self.value(operand.dtype, shape)
        self.emit(ir.Broadcast(span=self.span(), result=result, operand=operand))
        return result

    def full(self, dtype: DType | str, shape: Sequence[int], value: int | float | bool) -> ir.Value:
        return self.broadcast(self.constant(value, dtype), *shape)

    def iota(self, shape: Sequence[int], axis: int, dtype: DType | str = "i32") -> ir.Value:
        result = self.value(dtype, shape)
        self.emit(ir.Iota(span=self.span(), result=result, axis=axis))
        return result

    def transpose(self, operand: ir.Value) -> ir.Value:
        *rest, a, b = operand.shape
        result = self.value(operand.dtype, (*rest, b, a))
        self.emit(ir.Transpose(span=self.span(), result=result, operand=operand))
        return result

    def reshape(self, operand: ir.Value, *shape: int) -> ir.Value:
        result = self.value(operand.dtype, shape)
        self.emit(ir.Reshape(span=self.span(), result=result, operand=operand))
        return result

    def cat(self, axis: int, *parts: ir.Value) -> ir.Value:
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        result = self.value(parts[0].dtype, shape)
        self.emit(ir.Cat(span=self.span(), result=result, parts=parts, axis=axis))
        return result

    def reduce(
        self,
        operand: ir.Value,
        kind: str,
        axis: int | None,
        combine: ir.Block | None = None,
        init: Operand | None = None,
    ) -> ir.Value:
        shape = () if axis is None else tuple(1 if i == axis else n for i, n in enumerate(operand.shape))
        dtype = DType.I32 if kind in ("argmax", "argmin") else operand.dtype
        start = self.constant(init, operand.dtype) if isinstance(init, (int, float)) else init
        result = self.value(dtype, shape)
        self.emit(
            ir.Reduce(
                span=self.span(), result=result, operand=operand, kind=kind, axis=axis, combine=combine, init=start
            )
        )
        return result

    def scan(self, operand: ir.Value, axis: int) -> ir.Value:
        result = self.value(operand.dtype, operand.shape)
        self.emit(ir.Scan(span=self.span(), result=result, operand=operand, axis=axis))
        return result

    def gather(self, table: ir.Value, index: ir.Value) -> ir.Value:
        result = self.value(table.dtype, (index.shape[0], *table.shape[1:]))
        self.emit(ir.Gather(span=self.span(), result=result, table=table, index=index))
        return result

    def dot(
        self,
        a: ir.Value,
        b: ir.Value,
        transpose_b: bool = False,
        kinds: tuple[str, ...] = ("ieee",),
        kind: str | None = None,
    ) -> ir.Value:
        accumulator = DType.F64 if a.dtype is DType.F64 else DType.F32 if a.dtype.is_float else DType.I32
        result = self.value(accumulator, (a.shape[0], b.shape[0] if transpose_b else b.shape[1]))
        self.emit(ir.Dot(span=self.span(), result=result, a=a, b=b, transpose_b=transpose_b, kinds=kinds, kind=kind))
        return result

    # --- slices and memory -----------------------------------------------------------------

    def range(self, start: Operand, length: int, guarded: bool = True) -> ir.AxisRange:
        return ir.AxisRange(start=self.index(start), length=length, guarded=guarded)

    def at(self, index: Operand) -> ir.AtIndex:
        return ir.AtIndex(index=self.index(index))

    def by(self, index: ir.Value) -> ir.AxisGather:
        return ir.AxisGather(index=index)

    def view(self, tensor: ir.TensorParam, axes: Sequence[ir.AxisIndex]) -> ir.View:
        return ir.View(tensor=tensor, axes=tuple(axes), span=self.span())

    def load(self, tensor: ir.TensorParam, axes: Sequence[ir.AxisIndex], fill: float = 0) -> ir.Value:
        view = self.view(tensor, axes)
        result = self.value(tensor.type.dtype, view.shape, name=tensor.name.lower())
        self.emit(ir.Load(span=self.span(), result=result, view=view, fill=fill))
        return result

    def store(self, tensor: ir.TensorParam, axes: Sequence[ir.AxisIndex], value: Operand) -> None:
        data = value if isinstance(value, ir.Value) else self.constant(value, tensor.type.dtype)
        view = self.view(tensor, axes)
        if view.shape and not data.shape:
            data = self.broadcast(data, *view.shape)
        self.emit(ir.Store(span=self.span(), view=view, value=data))

    def atomic(
        self, kind: str, tensor: ir.TensorParam, axes: Sequence[ir.AxisIndex], *values: ir.Value, result: bool = True
    ) -> ir.Value | None:
        view = self.view(tensor, axes)
        old = self.value(tensor.type.dtype, view.shape, name="old") if result else None
        self.emit(ir.Atomic(span=self.span(), kind=kind, view=view, values=values, result=old))
        return old

    def extract(self, operand: ir.Value, axes: Sequence[ir.AxisIndex]) -> ir.Value:
        shape = [a.length for a in axes if isinstance(a, ir.AxisRange)]
        result = self.value(operand.dtype, shape)
        self.emit(ir.Extract(span=self.span(), result=result, operand=operand, axes=tuple(axes)))
        return result

    def insert(self, operand: ir.Value, axes: Sequence[ir.AxisIndex], value: ir.Value) -> ir.Value:
        result = self.value(operand.dtype, operand.shape)
        self.emit(ir.Insert(span=self.span(), result=result, operand=operand, axes=tuple(axes), value=value))
        return result

    def print(self, *parts: str | ir.Value) -> None:
        self.emit(ir.Print(span=self.span(), parts=parts))

    def check(self, condition: ir.Value, text: str) -> None:
        self.emit(ir.Assert(span=self.span(), condition=condition, text=text))

    # --- control flow ----------------------------------------------------------------------

    def yield_(self, *values: ir.Value) -> None:
        self.emit(ir.Yield(span=self.span(), values=values))

    def break_(self, *values: ir.Value) -> None:
        self.emit(ir.Break(span=self.span(), values=values))

    def continue_(self, *values: ir.Value) -> None:
        self.emit(ir.Continue(span=self.span(), values=values))

    def return_(self) -> None:
        self.emit(ir.Return(span=self.span()))

    @contextmanager
    def block(self) -> Iterator[list[ir.Op]]:
        """Collects ops; a Yield without values is added where no terminator was."""
        self.stack.append([])
        yield self.stack[-1]
        ops = self.stack[-1]
        if not ops or not isinstance(ops[-1], ir.TERMINATORS):
            self.yield_()
        self.stack.pop()

    def like(self, values: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
        return tuple(self.value(v.dtype, v.shape, v.name) for v in values)

    @contextmanager
    def for_(
        self, lo: Operand, hi: Operand, step: Operand = 1, inits: Sequence[ir.Value] = (), **options: int
    ) -> Iterator[Loop]:
        bounds = [self.index(v) for v in (lo, hi, step)]
        index = self.value(DType.INDEX, name="i")
        loop = Loop(index, self.like(inits))
        with self.block() as ops:
            yield loop
        loop.results = self.like(inits)
        body = ir.Block(params=(index, *loop.carried), ops=tuple(ops))
        self.emit(
            ir.For(
                span=self.span(),
                results=loop.results,
                lo=bounds[0],
                hi=bounds[1],
                step=bounds[2],
                inits=tuple(inits),
                body=body,
                unroll=options.get("unroll"),
                pipeline=options.get("pipeline"),
            )
        )

    def while_(self, inits: Sequence[ir.Value], condition: Any, body: Any) -> tuple[ir.Value, ...]:
        """`condition(*carried)` returns a bool value; `body(*carried)` ends in yield_ or break_ itself."""
        blocks = []
        for fn, is_condition in ((condition, True), (body, False)):
            params = self.like(inits)
            with self.block() as ops:
                out = fn(*params)
                if is_condition:
                    self.yield_(out)
            blocks.append(ir.Block(params=params, ops=tuple(ops)))
        results = self.like(inits)
        self.emit(ir.While(span=self.span(), results=results, inits=tuple(inits), condition=blocks[0], body=blocks[1]))
        return results

    def if_(
        self, condition: ir.Value, then: Any, orelse: Any = lambda: None, results: Sequence[ir.Value] = ()
    ) -> tuple[ir.Value, ...]:
        """`then()` and `orelse()` emit the branches; `results` are values of the result types."""
        blocks = []
        for fn in (then, orelse):
            with self.block() as ops:
                fn()
            blocks.append(ir.Block(ops=tuple(ops)))
        out = self.like(results)
        self.emit(ir.If(span=self.span(), results=out, condition=condition, then=blocks[0], orelse=blocks[1]))
        return out

    def combine(self, dtype: DType | str, fn: Any) -> ir.Block:
        """A combine block of scalars; `fn(a, b)` returns its value."""
        params = (self.value(dtype, name="a"), self.value(dtype, name="b"))
        with self.block() as ops:
            self.yield_(fn(*params))
        return ir.Block(params=params, ops=tuple(ops))

    # --- the kernel ------------------------------------------------------------------------

    def finish(self, grid: Sequence[int | tuple[str, int]] = (1,), **attributes: Any) -> ir.KernelIR:
        """grid: per axis a size, or (dim, tile) for ceildiv(dim, tile)."""
        sizes: list[DimExpr] = [
            DimConst(g) if isinstance(g, int) else DimBinary("ceildiv", DimName(g[0]), DimConst(g[1])) for g in grid
        ]
        x, y, z = [*sizes, DimConst(1), DimConst(1)][:3]
        ops = self.stack[0]
        if not ops or not isinstance(ops[-1], ir.TERMINATORS):
            self.return_()
        assert len(self.stack) == 1, "a block is still open"
        return ir.KernelIR(
            name=self.name,
            span=self.span(),
            order=tuple(self.order),
            tensors=tuple(self.tensors),
            scalars=tuple(self.scalars),
            dims=tuple(self.dims),
            body=ir.Block(ops=tuple(ops)),
            grid=(x, y, z),
            **{**self.attributes, **attributes},
        )
