"""The typed tile IR: SSA values over whole tiles, structured control flow with carried values.

Every node is a frozen dataclass with identity equality and a `span`. What an operation means is what
`phobos.reference` computes for it. Scalars are uniform over the block; tiles have static shapes.

Conventions
- Operand dtypes are already joined: the checker inserts `Cast`, so both operands of an arithmetic
  `Compute` have one dtype (exceptions are listed at `Compute`).
- Tile operands of a `Compute` broadcast over extent-1 axes and scalars broadcast to any tile; ranks of
  tile operands are equal.
- A block ends in exactly one terminator: Yield, Break, Continue or Return.
- Reading a view is an explicit `Load` at the place of the read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from phobos.ir.dims import DimExpr
from phobos.ir.options import LaunchOptions, ScheduleOptions, TensorCoreRequest
from phobos.ir.types import DType, ScalarType, TensorType, TileType, ValueType
from phobos.source import Span


@dataclass(frozen=True, kw_only=True, eq=False)
class Value:
    """An SSA value. `name` is the user's name or a hint; names need not be unique."""

    type: ValueType
    name: str
    span: Span

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The tile's shape, () for a scalar."""
        return self.type.shape if isinstance(self.type, TileType) else ()

    @property
    def is_tile(self) -> bool:
        return isinstance(self.type, TileType)


# --- views -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorParam:
    name: str
    type: TensorType
    span: Span


@dataclass(frozen=True, kw_only=True, eq=False)
class AtIndex:
    """One position of the axis (scalar integer); the axis disappears."""

    index: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisRange:
    """`length` positions from the scalar integer `start`.

    `guarded` False means that every position is known to be inside the axis (proved by a pass or
    promised by @aligned and checked at launch), so no mask is needed.
    """

    start: Value
    length: int
    guarded: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisGather:
    """The positions named by the rank-1 integer tile `index`; at most one axis of a view."""

    index: Value


AxisIndex = AtIndex | AxisRange | AxisGather


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """A rectangular (or gathered) part of a tensor: one AxisIndex per tensor axis.

    Positions outside an axis (negative ones included) are masked: reads give the fill, stores do nothing.
    AtIndex positions are masked likewise.
    """

    tensor: TensorParam
    axes: tuple[AxisIndex, ...]
    span: Span

    @property
    def shape(self) -> tuple[int, ...]:
        out: list[int] = []
        for axis in self.axes:
            if isinstance(axis, AxisRange):
                out.append(axis.length)
            elif isinstance(axis, AxisGather):
                out.append(axis.index.shape[0])
        return tuple(out)

    def operands(self) -> tuple[Value, ...]:
        return tuple(a.start if isinstance(a, AxisRange) else a.index for a in self.axes)


# --- operations ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Op:
    span: Span

    def operands(self) -> tuple[Value, ...]:
        """Values read by this op itself (not by its nested blocks), views' positions included."""
        out: list[Value] = []
        for f in fields(self):
            if f.name in ("result", "results"):
                continue
            out.extend(_values_of(getattr(self, f.name)))
        return tuple(out)

    def defined(self) -> tuple[Value, ...]:
        """Values that this op defines for the ops after it."""
        result = getattr(self, "result", None)
        if result is not None:
            return (result,)
        return tuple(getattr(self, "results", ()))

    def blocks(self) -> tuple["Block", ...]:
        return tuple(b for f in fields(self) if isinstance(b := getattr(self, f.name), Block))


def _values_of(item: object) -> Iterator[Value]:
    if isinstance(item, Value):
        yield item
    elif isinstance(item, View):
        yield from item.operands()
    elif isinstance(item, (AtIndex, AxisGather)):
        yield item.index
    elif isinstance(item, AxisRange):
        yield item.start
    elif isinstance(item, tuple):
        for x in item:
            yield from _values_of(x)


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Straight-line ops ending in a terminator. `params` are bound by the op that owns the block."""

    params: tuple[Value, ...] = ()
    ops: tuple[Op, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant(Op):
    """A scalar literal of the result's dtype, already rounded to it."""

    result: Value
    value: int | float | bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgramId(Op):
    """ctx.block.x|y|z (axis 0, 1, 2), an index."""

    result: Value
    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class GridSize(Op):
    """ctx.grid.x|y|z, an index."""

    result: Value
    axis: int


# name -> number of operands. The result dtype equals the operands' dtype except where noted.
ELEMENTWISE: dict[str, int] = {
    # arithmetic; integer division and remainder truncate toward zero, as in C
    "neg": 1, "add": 2, "sub": 2, "mul": 2, "div": 2, "mod": 2,
    # comparisons: result bool
    "eq": 2, "ne": 2, "lt": 2, "le": 2, "gt": 2, "ge": 2,
    # bool
    "and": 2, "or": 2, "not": 1,
    # integer bits ("shl"/"shr": both operands the same dtype)
    "bitand": 2, "bitor": 2, "bitxor": 2, "bitnot": 1, "shl": 2, "shr": 2,
    # floats
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "sqrt": 1, "rsqrt": 1, "sin": 1, "cos": 1, "tanh": 1,
    "sigmoid": 1, "erf": 1, "gelu": 1, "floor": 1, "ceil": 1, "round": 1, "pow": 2, "fma": 3,
    "isnan": 1,  # result bool
    # any number; min and max propagate NaN
    "abs": 1, "min": 2, "max": 2, "clamp": 3,
    # operands (bool, T, T)
    "where": 3,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Compute(Op):
    """An elementwise function of ELEMENTWISE on scalars (scalar result) or broadcast tiles.

    `approximate`: the numeric contract lets the device use its approximate unit here (set by a pass).
    `unless_one`, of a mul: the operand that broadcasts is nearly always exactly 1, so that it pays to skip the
    multiplication there, which changes nothing (set by a pass).
    """

    result: Value
    fn: str
    args: tuple[Value, ...]
    approximate: bool = False
    unless_one: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Cast(Op):
    """Conversion to the result's dtype, same shape. Float to float rounds to nearest even; float to
    integer truncates and saturates, NaN gives 0; integers wrap; to bool is `!= 0`."""

    result: Value
    operand: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Broadcast(Op):
    """A scalar or a tile of equal rank with extent-1 axes, repeated to the result's shape."""

    result: Value
    operand: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Iota(Op):
    """The position along `axis`, for every element. The result is an integer tile."""

    result: Value
    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Transpose(Op):
    """Swaps the last two axes."""

    result: Value
    operand: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(Op):
    """Row-major reshape; the number of elements is unchanged."""

    result: Value
    operand: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Cat(Op):
    result: Value
    parts: tuple[Value, ...]
    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Extract(Op):
    """A slice of a tile (or one element: scalar result). Positions outside read 0. AxisGather is not allowed."""

    result: Value
    operand: Value
    axes: tuple[AxisIndex, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Insert(Op):
    """A copy of tile `operand` with the slice `axes` replaced by `value`; positions outside are dropped."""

    result: Value
    operand: Value
    axes: tuple[AxisIndex, ...]
    value: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Load(Op):
    """Reads a view of a tensor now. Masked positions give `fill`. Scalar result where no axis is left. `transposed`:
    the result has the last two axes of the view exchanged (a pass makes such loads, the checker does not)."""

    result: Value
    view: View
    fill: int | float | bool = 0
    transposed: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Store(Op):
    """Writes a tile (shape of the view) or a scalar (no axis left), cast already done. Masked positions do nothing."""

    view: View
    value: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Atomic(Op):
    """kind: add, max, min (one value) or cas (compare, value). `result` is the old value or None."""

    kind: str
    view: View
    values: tuple[Value, ...]
    result: Value | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduce(Op):
    """kind: sum, prod, max, min, argmax, argmin, custom.

    `axis` None reduces the whole tile to a scalar; else the axis stays with extent 1. argmax/argmin give the
    first index (i32). custom uses `combine` (params a, b scalars; Yield of one scalar) and scalar `init`.
    max and min propagate NaN.

    `partial`, of a sum along an axis: whoever executes the kernel may leave the sum in parts that are spread over
    it. The parts may be scaled and added to other parts, in a loop; `SumParts` gives the sum. Set by a pass.
    """

    result: Value
    operand: Value
    kind: str
    axis: int | None
    combine: Block | None = None
    init: Value | None = None
    partial: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class SumParts(Op):
    """The sum of the parts of `operand`, a result of a `for` that adds partial sums to it; the operand itself to an
    executor that keeps no parts, such as the reference."""

    result: Value
    operand: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan(Op):
    """Inclusive prefix sum along `axis`."""

    result: Value
    operand: Value
    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Gather(Op):
    """`result[i, ...] = table[index[i], ...]`: index is a rank-1 integer tile; positions outside read 0."""

    result: Value
    table: Value
    index: Value


@dataclass(frozen=True, kw_only=True, eq=False)
class Dot(Op):
    """a [M, K] @ b [K, N], or a @ b^T with b [N, K] where `transpose_b`; result [M, N] of the accumulator dtype
    (f32 for f16, bf16, f8, f32; i32 for i8/u8; f64 for f64). Operands have one dtype.

    `kinds` are the permitted roundings of operands, a subset of options.DOT_KINDS, best first; `kind` is what a
    pass chose (None before), and what the reference then computes.
    """

    result: Value
    a: Value
    b: Value
    transpose_b: bool
    kinds: tuple[str, ...]
    kind: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Print(Op):
    """Debug output: literal text and values alternate in `parts`."""

    parts: tuple[str | Value, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Assert(Op):
    """Debug builds: the scalar or every element of the tile must be true."""

    condition: Value
    text: str


# --- control flow ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class For(Op):
    """Counted loop. Body params: (index, *carried); Yield/Continue give the next carried values, Break the
    final ones. `results` are the carried values after the loop. `step` is non-zero; negative counts down."""

    results: tuple[Value, ...]
    lo: Value
    hi: Value
    step: Value
    inits: tuple[Value, ...]
    body: Block
    unroll: int | None = None
    pipeline: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class While(Op):
    """`condition` block: params carried, Yield of one bool. `body`: params carried, Yield of the next carried
    values."""

    results: tuple[Value, ...]
    inits: tuple[Value, ...]
    condition: Block
    body: Block


@dataclass(frozen=True, kw_only=True, eq=False)
class If(Op):
    """Both blocks without params; those that end in Yield give `results`."""

    results: tuple[Value, ...]
    condition: Value
    then: Block
    orelse: Block


@dataclass(frozen=True, kw_only=True, eq=False)
class Yield(Op):
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Break(Op):
    """Leaves the innermost loop with these carried values."""

    values: tuple[Value, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Continue(Op):
    """Next iteration of the innermost loop with these carried values."""

    values: tuple[Value, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Return(Op):
    """Ends the block's work."""


TERMINATORS = (Yield, Break, Continue, Return)


# --- kernels ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ScalarParam:
    """A scalar argument; `value` is its SSA value."""

    name: str
    value: Value

    @property
    def type(self) -> ScalarType:
        assert isinstance(self.value.type, ScalarType)
        return self.value.type


@dataclass(frozen=True, kw_only=True, eq=False)
class DimParam:
    """A dim bound at launch; `value` (dtype index) is its SSA value."""

    name: str
    value: Value


@dataclass(frozen=True, kw_only=True)
class AlignedPromise:
    """@aligned(dim = multiple): dim is a multiple at launch. `dim` may also be pinned (then already checked)."""

    dim: str
    multiple: int
    span: Span


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelIR:
    """One kernel under one configuration.

    `order` lists parameter names in the order of the text (tensors and scalars; compile-time `const` ones are
    gone). `written`/`read` name tensors. `grid` has three expressions over dims; `configuration` holds the pinned
    names (autotune values, consts, dtypes as text) for reports.
    """

    name: str
    span: Span
    order: tuple[str, ...]
    tensors: tuple[TensorParam, ...]
    scalars: tuple[ScalarParam, ...]
    dims: tuple[DimParam, ...]
    body: Block
    grid: tuple[DimExpr, DimExpr, DimExpr]
    aligned: tuple[AlignedPromise, ...] = ()
    launch: LaunchOptions = LaunchOptions()
    options: ScheduleOptions = ScheduleOptions()
    tensorcore: TensorCoreRequest | None = None
    dynshared: bool = False
    configuration: tuple[tuple[str, object], ...] = ()

    def tensor(self, name: str) -> TensorParam:
        for t in self.tensors:
            if t.name == name:
                return t
        raise KeyError(name)
