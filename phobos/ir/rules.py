"""The typing rules of the tile IR: what each op demands of its operands and result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from phobos.ir import tile as ir
from phobos.ir.options import DOT_KINDS
from phobos.ir.types import DType, ScalarType, TileType, ValueType

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "custom")
ATOMICS = {"add": 1, "max": 1, "min": 1, "cas": 2}

_COMPARISONS = frozenset({"lt", "le", "gt", "ge"})
_ANY = frozenset({"eq", "ne", "where"})
_BOOL = frozenset({"and", "or", "not"})
_INTEGER = frozenset({"bitand", "bitor", "bitxor", "bitnot", "shl", "shr"})
_NUMBER = frozenset({"neg", "add", "sub", "mul", "div", "mod", "abs", "min", "max", "clamp"}) | _COMPARISONS
_TO_BOOL = frozenset({"eq", "ne", "isnan"}) | _COMPARISONS


def op_violations(op: ir.Op) -> list[str]:
    """What is wrong with the op's own operands, attributes and result types (not with its nested blocks)."""
    rule = _RULES.get(type(op))
    return list(rule(op)) if rule is not None else []


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common shape of scalars `()` and tiles of one rank with extent-1 axes; None if there is none."""
    tiles = [s for s in shapes if s]
    if not tiles:
        return ()
    if len({len(s) for s in tiles}) > 1:
        return None
    out = []
    for extents in zip(*tiles, strict=True):
        wide = {n for n in extents if n != 1}
        if len(wide) > 1:
            return None
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def region_shape(axes: Sequence[ir.AxisIndex]) -> tuple[int, ...]:
    """The shape that a slice leaves: dropped axes are gone."""
    out: list[int] = []
    for axis in axes:
        if isinstance(axis, ir.AxisRange):
            out.append(axis.length)
        elif isinstance(axis, ir.AxisGather):
            out.extend(axis.index.shape)
    return tuple(out)


def _expect(result: ir.Value, dtype: DType, shape: tuple[int, ...]) -> Iterator[str]:
    if result.dtype is not dtype or result.shape != shape:
        # Shapes may be of a rank that no TileType can hold, so text is made by hand.
        want = f"tile<{dtype}>{list(shape)}" if shape else str(dtype)
        yield f"the result has type {result.type}, expected {want}"


def _scalar_integer(value: ir.Value, what: str) -> Iterator[str]:
    if value.is_tile or not value.dtype.is_integer:
        yield f"{what} has type {value.type}, expected a scalar integer"


def _axis_in(axis: int, value: ir.Value) -> bool:
    return 0 <= axis < len(value.shape)


# --- values ----------------------------------------------------------------------------------


def _constant(op: ir.Constant) -> Iterator[str]:
    dtype = op.result.dtype
    if op.result.is_tile:
        yield f"a constant of type {op.result.type}"
    want: type = bool if dtype is DType.BOOL else float if dtype.is_float else int
    if type(op.value) is not want:
        yield f"value {op.value!r} of a constant of type {dtype} is a {type(op.value).__name__}"
    elif dtype.is_integer:
        bits = 8 * dtype.bytes
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
        if not low <= op.value <= high:
            yield f"value {op.value} does not fit {dtype}"


def _coordinate(op: ir.ProgramId | ir.GridSize) -> Iterator[str]:
    if op.axis not in (0, 1, 2):
        yield f"axis {op.axis} of the grid"
    yield from _expect(op.result, DType.INDEX, ())


def _compute(op: ir.Compute) -> Iterator[str]:
    count = ir.ELEMENTWISE.get(op.fn)
    if count is None:
        yield f"unknown function {op.fn!r}"
        return
    if len(op.args) != count:
        yield f"{op.fn} takes {count} operands, not {len(op.args)}"
        return
    typed = op.args
    if op.fn == "where":
        typed = op.args[1:]
        if op.args[0].dtype is not DType.BOOL:
            yield f"the condition has dtype {op.args[0].dtype}"
    dtype = typed[0].dtype
    if any(a.dtype is not dtype for a in typed):
        yield f"operand dtypes differ: {', '.join(str(a.dtype) for a in typed)}"
    elif op.fn in _BOOL and dtype is not DType.BOOL:
        yield f"{op.fn} of {dtype}"
    elif op.fn in _INTEGER and not dtype.is_integer:
        yield f"{op.fn} of {dtype}"
    elif op.fn in _NUMBER and dtype is DType.BOOL:
        yield f"{op.fn} of bool"
    elif op.fn not in _BOOL | _INTEGER | _NUMBER | _ANY and not dtype.is_float:
        yield f"{op.fn} of {dtype}"
    shape = broadcast_shape([a.shape for a in op.args])
    if shape is None:
        yield f"shapes do not broadcast: {', '.join(str(list(a.shape)) for a in op.args)}"
    else:
        yield from _expect(op.result, DType.BOOL if op.fn in _TO_BOOL else dtype, shape)


def _cast(op: ir.Cast) -> Iterator[str]:
    yield from _expect(op.result, op.result.dtype, op.operand.shape)


def _broadcast(op: ir.Broadcast) -> Iterator[str]:
    if not op.result.is_tile:
        yield f"the result has type {op.result.type}, expected a tile"
    elif broadcast_shape([op.operand.shape, op.result.shape]) != op.result.shape:
        yield f"{op.operand.type} does not broadcast to {op.result.type}"
    yield from _expect(op.result, op.operand.dtype, op.result.shape)


def _iota(op: ir.Iota) -> Iterator[str]:
    if not op.result.is_tile or not op.result.dtype.is_integer:
        yield f"the result has type {op.result.type}, expected an integer tile"
    elif not _axis_in(op.axis, op.result):
        yield f"axis {op.axis} of {op.result.type}"


def _transpose(op: ir.Transpose) -> Iterator[str]:
    shape = op.operand.shape
    if len(shape) < 2:
        yield f"transpose of {op.operand.type}"
    else:
        yield from _expect(op.result, op.operand.dtype, (*shape[:-2], shape[-1], shape[-2]))


def _reshape(op: ir.Reshape) -> Iterator[str]:
    if _size(op.operand.type) != _size(op.result.type) or not op.operand.is_tile or not op.result.is_tile:
        yield f"{op.operand.type} does not reshape to {op.result.type}"
    yield from _expect(op.result, op.operand.dtype, op.result.shape)


def _size(type: ValueType) -> int:
    return type.size if isinstance(type, TileType) else 1


def _cat(op: ir.Cat) -> Iterator[str]:
    if not op.parts or any(not _axis_in(op.axis, p) for p in op.parts):
        yield f"cat along axis {op.axis} of {', '.join(str(p.type) for p in op.parts)}"
        return
    first = op.parts[0]
    for part in op.parts[1:]:
        outer = [_without(p.shape, op.axis) for p in (first, part)]
        if part.dtype is not first.dtype or outer[0] != outer[1]:
            yield f"cat of {first.type} and {part.type} along axis {op.axis}"
            return
    total = sum(p.shape[op.axis] for p in op.parts)
    yield from _expect(op.result, first.dtype, _replaced(first.shape, op.axis, total))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _replaced(shape: tuple[int, ...], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


# --- slices and memory -----------------------------------------------------------------------


def _axes(axes: Sequence[ir.AxisIndex], rank: int, gather: bool) -> Iterator[str]:
    if len(axes) != rank:
        yield f"{len(axes)} subscripts for rank {rank}"
    gathers = 0
    for axis in axes:
        if isinstance(axis, ir.AxisGather):
            gathers += 1
            if len(axis.index.shape) != 1 or not axis.index.dtype.is_integer:
                yield f"an index tile has type {axis.index.type}, expected an integer tile of rank 1"
        elif isinstance(axis, ir.AxisRange):
            yield from _scalar_integer(axis.start, "a start")
            if axis.length < 1:
                yield f"a slice of length {axis.length}"
        else:
            yield from _scalar_integer(axis.index, "an index")
    if gathers > int(gather):
        yield f"{gathers} index tiles in one subscript"


def _tile_slice(operand: ir.Value, axes: Sequence[ir.AxisIndex]) -> Iterator[str]:
    if not operand.is_tile:
        yield f"a slice of {operand.type}"
    yield from _axes(axes, len(operand.shape), gather=False)


def _extract(op: ir.Extract) -> Iterator[str]:
    yield from _tile_slice(op.operand, op.axes)
    yield from _expect(op.result, op.operand.dtype, region_shape(op.axes))


def _insert(op: ir.Insert) -> Iterator[str]:
    yield from _tile_slice(op.operand, op.axes)
    if op.value.dtype is not op.operand.dtype or op.value.shape != region_shape(op.axes):
        yield f"{op.value.type} inserted into a slice {list(region_shape(op.axes))} of {op.operand.type}"
    yield from _expect(op.result, op.operand.dtype, op.operand.shape)


def _view(view: ir.View) -> Iterator[str]:
    yield from _axes(view.axes, view.tensor.type.rank, gather=True)


def _matches_view(value: ir.Value, view: ir.View) -> bool:
    return value.dtype is view.tensor.type.dtype and value.shape == region_shape(view.axes)


def _load(op: ir.Load) -> Iterator[str]:
    yield from _view(op.view)
    shape = region_shape(op.view.axes)
    if op.transposed:
        if len(shape) < 2:
            yield "a view of fewer than two axes cannot be transposed"
            return
        shape = (*shape[:-2], shape[-1], shape[-2])
    yield from _expect(op.result, op.view.tensor.type.dtype, shape)


def _store(op: ir.Store) -> Iterator[str]:
    yield from _view(op.view)
    if not _matches_view(op.value, op.view):
        yield f"{op.value.type} stored to a view {list(region_shape(op.view.axes))} of {op.view.tensor.type}"


def _atomic(op: ir.Atomic) -> Iterator[str]:
    yield from _view(op.view)
    if ATOMICS.get(op.kind) != len(op.values):
        yield f"atomic {op.kind!r} with {len(op.values)} values"
    for value in (*op.values, *op.defined()):
        if not _matches_view(value, op.view):
            yield f"{value.type} for a view {list(region_shape(op.view.axes))} of {op.view.tensor.type}"


def _gather(op: ir.Gather) -> Iterator[str]:
    if len(op.index.shape) != 1 or not op.index.dtype.is_integer:
        yield f"the index has type {op.index.type}, expected an integer tile of rank 1"
    elif not op.table.is_tile:
        yield f"the table has type {op.table.type}"
    else:
        yield from _expect(op.result, op.table.dtype, (op.index.shape[0], *op.table.shape[1:]))


# --- reductions and contractions ---------------------------------------------------------------


def _reduce(op: ir.Reduce) -> Iterator[str]:
    if op.kind not in REDUCTIONS:
        yield f"unknown reduction {op.kind!r}"
    if not op.operand.is_tile or (op.axis is not None and not _axis_in(op.axis, op.operand)):
        yield f"reduction along axis {op.axis} of {op.operand.type}"
        return
    if op.operand.dtype is DType.BOOL and op.kind != "custom":
        yield f"{op.kind} of bool"
    if (op.kind == "custom") != (op.combine is not None and op.init is not None):
        yield "combine and init go with kind custom, and only with it"
    element = ScalarType(op.operand.dtype)
    if op.combine is not None and [p.type for p in op.combine.params] != [element, element]:
        yield f"the combine function takes ({', '.join(str(p.type) for p in op.combine.params)})"
    if op.init is not None and op.init.type != element:
        yield f"init has type {op.init.type}"
    if op.partial and (op.kind != "sum" or op.axis is None):
        yield "only a sum along an axis can be partial"
    dtype = DType.I32 if op.kind in ("argmax", "argmin") else op.operand.dtype
    yield from _expect(op.result, dtype, () if op.axis is None else _replaced(op.operand.shape, op.axis, 1))


def _sum_parts(op: ir.SumParts) -> Iterator[str]:
    yield from _expect(op.result, op.operand.dtype, op.operand.shape)
    if not op.operand.is_tile:
        yield f"the sum of the parts of {op.operand.type}"


def _scan(op: ir.Scan) -> Iterator[str]:
    if not _axis_in(op.axis, op.operand) or op.operand.dtype is DType.BOOL:
        yield f"prefix sum along axis {op.axis} of {op.operand.type}"
    yield from _expect(op.result, op.operand.dtype, op.operand.shape)


def accumulator_dtype(dtype: DType) -> DType:
    """The result dtype of a contraction of `dtype` operands."""
    if dtype is DType.F64:
        return DType.F64
    return DType.F32 if dtype.is_float else DType.I32


def _dot(op: ir.Dot) -> Iterator[str]:
    if len(op.a.shape) != 2 or len(op.b.shape) != 2:
        yield f"dot of {op.a.type} and {op.b.type}"
        return
    n, k = op.b.shape if op.transpose_b else (op.b.shape[1], op.b.shape[0])
    if op.a.dtype is not op.b.dtype or op.a.shape[1] != k:
        yield f"dot of {op.a.type} and {op.b.type}{' transposed' if op.transpose_b else ''}"
    elif op.a.dtype not in (DType.I8, DType.U8) and not op.a.dtype.is_float:
        yield f"dot of {op.a.dtype}"
    else:
        yield from _expect(op.result, accumulator_dtype(op.a.dtype), (op.a.shape[0], n))
    unknown = [kind for kind in op.kinds if kind not in DOT_KINDS]
    if unknown or not op.kinds:
        yield f"kinds {list(op.kinds)}"
    if op.kind is not None and op.kind not in (*op.kinds, "ieee"):
        yield f"kind {op.kind} is not permitted by {list(op.kinds)}"


# --- debugging and control flow ------------------------------------------------------------------


def _assert(op: ir.Assert) -> Iterator[str]:
    if op.condition.dtype is not DType.BOOL:
        yield f"the condition has type {op.condition.type}"


def _carried(params: Sequence[ir.Value], op: ir.For | ir.While, what: str) -> Iterator[str]:
    results = [v.type for v in op.results]
    for name, types in ((what, [v.type for v in params]), ("initial values", [v.type for v in op.inits])):
        if types != results:
            yield f"{name} have types ({', '.join(map(str, types))}), the results ({', '.join(map(str, results))})"


def _for(op: ir.For) -> Iterator[str]:
    for value, what in ((op.lo, "the lower bound"), (op.hi, "the upper bound"), (op.step, "the step")):
        yield from _scalar_integer(value, what)
    if not op.body.params:
        yield "the body has no parameter for the index"
        return
    yield from _scalar_integer(op.body.params[0], "the index")
    if len({v.dtype for v in (op.lo, op.hi, op.step, op.body.params[0])}) > 1:
        yield "index and bounds differ in dtype"
    yield from _carried(op.body.params[1:], op, "the body's parameters")
    for name, number in (("unroll", op.unroll), ("pipeline", op.pipeline)):
        if number is not None and number < 1:
            yield f"{name} {number}"


def _while(op: ir.While) -> Iterator[str]:
    yield from _carried(op.condition.params, op, "the condition's parameters")
    yield from _carried(op.body.params, op, "the body's parameters")


def _if(op: ir.If) -> Iterator[str]:
    if op.condition.type != ScalarType(DType.BOOL):
        yield f"the condition has type {op.condition.type}"
    if op.then.params or op.orelse.params:
        yield "a branch has parameters"


_RULES: dict[type[ir.Op], Callable[[Any], Iterator[str]]] = {
    ir.Constant: _constant,
    ir.ProgramId: _coordinate,
    ir.GridSize: _coordinate,
    ir.Compute: _compute,
    ir.Cast: _cast,
    ir.Broadcast: _broadcast,
    ir.Iota: _iota,
    ir.Transpose: _transpose,
    ir.Reshape: _reshape,
    ir.Cat: _cat,
    ir.Extract: _extract,
    ir.Insert: _insert,
    ir.Load: _load,
    ir.Store: _store,
    ir.Atomic: _atomic,
    ir.Gather: _gather,
    ir.Reduce: _reduce,
    ir.SumParts: _sum_parts,
    ir.Scan: _scan,
    ir.Dot: _dot,
    ir.Assert: _assert,
    ir.For: _for,
    ir.While: _while,
    ir.If: _if,
}
