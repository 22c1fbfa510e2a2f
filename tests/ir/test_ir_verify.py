"""Each invariant is broken on purpose, one at a time, and must be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimConst, DimName
from phobos.ir.types import DType, ScalarType, TensorType, TileType
from phobos.ir.verify import InternalError, verify, violations
from phobos.ir.walk import rewrite_kernel

Build = Callable[[Builder], Any]


def found(build: Build) -> list[str]:
    """Violations of a kernel that `build` fills, after tensors X f32[N, 4], I i32[4] and scalars a f32, n i32."""
    b = Builder()
    b.tensor("X", "f32", "N", 4), b.tensor("I", "i32", 4)
    b.scalar("a", "f32"), b.scalar("n", "i32")
    build(b)
    return violations(b.finish())


def tile(b: Builder, *shape: int, dtype: str = "f32") -> ir.Value:
    return b.full(dtype, shape, {"f": 0.0, "b": False}.get(dtype[0], 0))


def scalar(b: Builder, number: int = 0) -> ir.Value:
    return b.scalars[number].value


def emit(b: Builder, kind: type[ir.Op], /, **fields: Any) -> None:
    b.emit(kind(span=b.span(), **fields))


def compute(b: Builder, fn: str, *args: ir.Value, result: ir.Value) -> None:
    emit(b, ir.Compute, fn=fn, args=args, result=result)


def load(b: Builder, axes: list[ir.AxisIndex], *shape: int, dtype: str = "f32", tensor: int = 0) -> None:
    emit(b, ir.Load, view=b.view(b.tensors[tensor], axes), result=b.value(dtype, shape))


def loop(b: Builder, **changes: Any) -> ir.For:
    """A correct loop carrying one f32, with changed fields."""
    zero = b.index(0)
    index, carried = b.value("index"), b.value("f32")
    body = ir.Block(params=(index, carried), ops=(ir.Yield(span=b.span(), values=(carried,)),))
    fields: dict[str, Any] = {
        "results": (b.value("f32"),),
        "lo": zero,
        "hi": zero,
        "step": zero,
        "inits": (scalar(b),),
        "body": body,
    }
    op = ir.For(span=b.span(), **{**fields, **changes})
    b.emit(op)
    return op


def branch(b: Builder, then: tuple[ir.Op, ...], orelse: tuple[ir.Op, ...], results: tuple[ir.Value, ...] = ()) -> None:
    condition = b.compute("lt", scalar(b), 1.0)
    emit(
        b,
        ir.If,
        results=results,
        condition=condition,
        then=ir.Block(ops=then),
        orelse=ir.Block(ops=orelse),
    )


def yields(b: Builder, *values: ir.Value) -> ir.Yield:
    return ir.Yield(span=b.span(), values=values)


CASES: dict[str, tuple[Build, str]] = {
    # SSA
    "use of nothing": (lambda b: compute(b, "neg", b.value("f32"), result=b.value("f32")), "not defined before"),
    "two definitions": (
        lambda b: [compute(b, "neg", scalar(b), result=v) for v in [b.value("f32")] * 2],
        "defined twice",
    ),
    "definition of a parameter": (lambda b: compute(b, "neg", scalar(b), result=scalar(b)), "defined twice"),
    "an op twice": (
        lambda b: [b.emit(op) for op in [ir.Print(span=b.span(), parts=("x",))] * 2],
        "op object occurs twice",
    ),
    # types of values
    "tile constant": (
        lambda b: emit(b, ir.Constant, value=1.0, result=b.value("f32", (4,))),
        "a constant of type tile",
    ),
    "constant of wrong kind": (lambda b: b.constant(1, "f32"), "value 1 of a constant of type f32 is a int"),
    "bool for an integer": (lambda b: b.constant(True, "i32"), "is a bool"),
    "constant too large": (lambda b: b.constant(256, "u8"), "256 does not fit u8"),
    "constant too small": (lambda b: b.constant(-129, "i8"), "-129 does not fit i8"),
    "grid axis": (lambda b: b.program_id(3), "axis 3 of the grid"),
    "grid dtype": (lambda b: emit(b, ir.GridSize, axis=0, result=b.value("i32")), "expected index"),
    "unknown function": (lambda b: compute(b, "frob", scalar(b), result=b.value("f32")), "unknown function 'frob'"),
    "operand count": (lambda b: compute(b, "add", scalar(b), result=b.value("f32")), "add takes 2 operands, not 1"),
    "mixed dtypes": (lambda b: b.compute("add", scalar(b), scalar(b, 1)), "operand dtypes differ: f32, i32"),
    "arithmetic on bool": (lambda b: b.add(tile(b, 4, dtype="bool"), False), "add of bool"),
    "order on bool": (lambda b: b.compute("lt", tile(b, 4, dtype="bool"), False), "lt of bool"),
    "logic on numbers": (lambda b: b.compute("and", scalar(b), scalar(b)), "and of f32"),
    "bits of a float": (lambda b: b.compute("shl", scalar(b), scalar(b)), "shl of f32"),
    "exp of an integer": (lambda b: b.compute("exp", scalar(b, 1)), "exp of i32"),
    "condition": (lambda b: b.compute("where", scalar(b), scalar(b), scalar(b)), "the condition has dtype f32"),
    "comparison result": (lambda b: compute(b, "lt", scalar(b), scalar(b), result=b.value("f32")), "expected bool"),
    "no broadcast": (
        lambda b: compute(b, "add", tile(b, 4, 2), tile(b, 4, 3), result=b.value("f32", (4, 3))),
        "shapes do not broadcast: [4, 2], [4, 3]",
    ),
    "ranks differ": (
        lambda b: compute(b, "add", tile(b, 4), tile(b, 1, 4), result=b.value("f32", (1, 4))),
        "shapes do not broadcast",
    ),
    "result shape": (
        lambda b: compute(b, "add", tile(b, 4, 1), tile(b, 1, 3), result=b.value("f32", (4, 1))),
        "expected tile<f32>[4, 3]",
    ),
    "scalar from tile": (lambda b: compute(b, "neg", tile(b, 4), result=b.value("f32")), "expected tile<f32>[4]"),
    "cast shape": (
        lambda b: emit(b, ir.Cast, operand=tile(b, 4), result=b.value("f16", (2,))),
        "expected tile<f16>[4]",
    ),
    "broadcast down": (lambda b: b.broadcast(tile(b, 4, 2), 4, 1), "does not broadcast"),
    "broadcast dtype": (
        lambda b: emit(b, ir.Broadcast, operand=scalar(b), result=b.value("f16", (4,))),
        "expected tile<f32>[4]",
    ),
    "broadcast to scalar": (
        lambda b: emit(b, ir.Broadcast, operand=scalar(b), result=b.value("f32")),
        "expected a tile",
    ),
    "iota dtype": (lambda b: b.iota((4,), 0, "f32"), "expected an integer tile"),
    "iota axis": (lambda b: b.iota((4,), 1), "axis 1 of tile<i32>[4]"),
    "transpose of a row": (
        lambda b: emit(b, ir.Transpose, operand=tile(b, 4), result=b.value("f32", (4,))),
        "transpose of",
    ),
    "transpose shape": (
        lambda b: emit(b, ir.Transpose, operand=tile(b, 4, 2), result=b.value("f32", (4, 2))),
        "expected tile<f32>[2, 4]",
    ),
    "reshape": (lambda b: b.reshape(tile(b, 4, 2), 9), "does not reshape"),
    "cat extents": (lambda b: b.cat(0, tile(b, 4, 2), tile(b, 4, 3)), "cat of"),
    "cat axis": (
        lambda b: emit(b, ir.Cat, parts=(tile(b, 4),), axis=1, result=b.value("f32", (4,))),
        "cat along axis 1",
    ),
    # slices and memory
    "slice rank": (lambda b: b.extract(tile(b, 4, 2), [b.range(0, 2)]), "1 subscripts for rank 2"),
    "slice by float": (lambda b: b.extract(tile(b, 4), [b.range(scalar(b), 2)]), "a start has type f32"),
    "index by tile": (lambda b: b.extract(tile(b, 4), [b.at(tile(b, 2, dtype="i32"))]), "an index has type tile"),
    "slice length": (lambda b: load(b, [b.range(0, 0), b.at(0)]), "a slice of length 0"),
    "gather from a tile slice": (
        lambda b: emit(
            b, ir.Extract, operand=tile(b, 4), axes=(b.by(tile(b, 2, dtype="i32")),), result=b.value("f32", (2,))
        ),
        "1 index tiles in one subscript",
    ),
    "insert shape": (lambda b: b.insert(tile(b, 4), [b.range(0, 2)], tile(b, 3)), "inserted into a slice [2]"),
    "view rank": (lambda b: load(b, [b.range(0, 4)], 4), "1 subscripts for rank 2"),
    "load shape": (lambda b: load(b, [b.range(0, 4), b.at(0)], 4, 1), "expected tile<f32>[4]"),
    "load dtype": (lambda b: load(b, [b.range(0, 4), b.at(0)], 4, dtype="f16"), "expected tile<f32>[4]"),
    "gather by floats": (lambda b: load(b, [b.by(tile(b, 3)), b.at(0)], 3), "an index tile has type tile<f32>[3]"),
    "two gathers": (
        lambda b: load(b, [b.by(tile(b, 3, dtype="i32")), b.by(tile(b, 2, dtype="i32"))], 3, 2),
        "2 index tiles in one subscript",
    ),
    "store shape": (lambda b: b.store(b.tensors[0], [b.range(0, 4), b.at(0)], tile(b, 3)), "stored to a view [4]"),
    "store dtype": (
        lambda b: b.store(b.tensors[0], [b.range(0, 4), b.at(0)], tile(b, 4, dtype="f16")),
        "tile<f16>[4] stored",
    ),
    "foreign tensor": (
        lambda b: b.store(ir.TensorParam(name="Z", type=TensorType(DType.F32, (4,)), span=b.span()), [b.at(0)], 1.0),
        "tensor Z is not a parameter",
    ),
    "atomic kind": (lambda b: b.atomic("xor", b.tensors[1], [b.at(0)], scalar(b, 1)), "atomic 'xor'"),
    "atomic count": (lambda b: b.atomic("cas", b.tensors[1], [b.at(0)], scalar(b, 1)), "atomic 'cas' with 1 values"),
    "atomic value": (lambda b: b.atomic("add", b.tensors[1], [b.at(0)], scalar(b)), "f32 for a view []"),
    # reductions and contractions
    "reduction kind": (lambda b: b.reduce(tile(b, 4), "mean", 0), "unknown reduction 'mean'"),
    "reduction axis": (lambda b: b.reduce(tile(b, 4), "sum", 1), "along axis 1"),
    "reduction of bool": (lambda b: b.reduce(tile(b, 4, dtype="bool"), "sum", 0), "sum of bool"),
    "reduction dtype": (
        lambda b: emit(b, ir.Reduce, operand=tile(b, 4), kind="argmax", axis=0, result=b.value("f32", (1,))),
        "expected tile<i32>[1]",
    ),
    "reduction keeps the axis": (
        lambda b: emit(b, ir.Reduce, operand=tile(b, 4, 2), kind="sum", axis=0, result=b.value("f32", (2,))),
        "expected tile<f32>[1, 2]",
    ),
    "custom without combine": (lambda b: b.reduce(tile(b, 4), "custom", 0), "go with kind custom"),
    "combine dtype": (
        lambda b: b.reduce(tile(b, 4), "custom", 0, b.combine("f16", lambda p, q: b.add(p, q)), 0.0),
        "the combine function takes (f16, f16)",
    ),
    "combine result": (
        lambda b: b.reduce(tile(b, 4), "custom", 0, b.combine("f32", lambda p, q: b.compute("lt", p, q)), 0.0),
        "yields (bool), expected (f32)",
    ),
    "combine with a store": (
        lambda b: b.reduce(
            tile(b, 4), "custom", 0, b.combine("f32", lambda p, q: [b.store(b.tensors[0], [b.at(0)] * 2, q), p][1]), 0.0
        ),
        "an effect where only a value may be computed",
    ),
    "scan axis": (lambda b: b.scan(tile(b, 4), 2), "prefix sum along axis 2"),
    "gather index": (lambda b: b.gather(tile(b, 4), tile(b, 4)), "expected an integer tile of rank 1"),
    "dot rank": (
        lambda b: emit(
            b, ir.Dot, a=tile(b, 4), b=tile(b, 4, 4), transpose_b=False, kinds=("ieee",), result=b.value("f32", (4,))
        ),
        "dot of tile<f32>[4]",
    ),
    "dot depth": (lambda b: b.dot(tile(b, 4, 3), tile(b, 4, 5)), "dot of tile<f32>[4, 3] and tile<f32>[4, 5]"),
    "dot depth transposed": (lambda b: b.dot(tile(b, 4, 3), tile(b, 3, 4), True), "transposed"),
    "dot dtypes": (lambda b: b.dot(tile(b, 4, 4), tile(b, 4, 4, dtype="f16")), "dot of"),
    "dot of i32": (lambda b: b.dot(tile(b, 4, 4, dtype="i32"), tile(b, 4, 4, dtype="i32")), "dot of i32"),
    "dot accumulator": (
        lambda b: emit(
            b,
            ir.Dot,
            a=tile(b, 4, 4, dtype="f16"),
            b=tile(b, 4, 4, dtype="f16"),
            transpose_b=False,
            kinds=("ieee",),
            result=b.value("f16", (4, 4)),
        ),
        "expected tile<f32>[4, 4]",
    ),
    "dot kinds": (lambda b: b.dot(tile(b, 4, 4), tile(b, 4, 4), kinds=("f12",)), "kinds ['f12']"),
    "no dot kinds": (lambda b: b.dot(tile(b, 4, 4), tile(b, 4, 4), kinds=()), "kinds []"),
    "dot kind": (
        lambda b: b.dot(tile(b, 4, 4), tile(b, 4, 4), kinds=("tf32",), kind="bf16"),
        "kind bf16 is not permitted",
    ),
    "assert": (lambda b: b.check(scalar(b), "x"), "the condition has type f32"),
    # control flow
    "bounds": (lambda b: loop(b, lo=scalar(b)), "the lower bound has type f32"),
    "bounds dtype": (lambda b: loop(b, hi=scalar(b, 1)), "index and bounds differ in dtype"),
    "inits": (lambda b: loop(b, inits=(scalar(b, 1),)), "initial values have types (i32), the results (f32)"),
    "results": (
        lambda b: loop(b, results=(b.value("f16"),)),
        "the body's parameters have types (f32), the results (f16)",
    ),
    "no index": (lambda b: loop(b, body=ir.Block(ops=(yields(b, scalar(b)),))), "no parameter for the index"),
    "unroll": (lambda b: loop(b, unroll=0), "unroll 0"),
    "body yields nothing": (
        lambda b: loop(b, body=ir.Block(params=(b.value("index"), b.value("f32")), ops=(yields(b),))),
        "yields (), expected (f32)",
    ),
    "break carries": (
        lambda b: loop(
            b,
            body=ir.Block(
                params=(b.value("index"), b.value("f32")), ops=(ir.Break(span=b.span(), values=(scalar(b, 1),)),)
            ),
        ),
        "carries (i32), the loop carries (f32)",
    ),
    "open block": (lambda b: loop(b, body=ir.Block(params=(b.value("index"), b.value("f32")), ops=())), "terminator"),
    "break outside": (lambda b: branch(b, (ir.Break(span=b.span()),), (yields(b),)), "no loop to act on"),
    "branch yields": (
        lambda b: branch(b, (yields(b, scalar(b)),), (yields(b, scalar(b, 1)),), (b.value("f32"),)),
        "yields (i32), expected (f32)",
    ),
    "branch value used outside": (
        lambda b: [
            branch(b, (ir.Compute(span=b.span(), fn="neg", args=(scalar(b),), result=v), yields(b)), (yields(b),))
            or compute(b, "neg", v, result=b.value("f32"))
            for v in [b.value("f32")]
        ],
        "outside its scope",
    ),
    "branch value used in the other": (
        lambda b: [
            branch(
                b,
                (ir.Compute(span=b.span(), fn="neg", args=(scalar(b),), result=v), yields(b)),
                (ir.Compute(span=b.span(), fn="neg", args=(v,), result=b.value("f32")), yields(b)),
            )
            for v in [b.value("f32")]
        ],
        "outside its scope",
    ),
    "condition type": (
        lambda b: b.if_(scalar(b), lambda: None),
        "the condition has type f32",
    ),
    "while condition": (
        lambda b: b.while_([scalar(b)], lambda v: v, lambda v: b.yield_(v)),
        "yields (f32), expected (bool)",
    ),
    "while condition with an effect": (
        lambda b: b.while_([scalar(b)], lambda v: [b.print("x"), b.compute("lt", v, 1.0)][1], lambda v: b.yield_(v)),
        "an effect where only a value may be computed",
    ),
    "terminator in the middle": (
        lambda b: branch(b, (yields(b), yields(b)), (yields(b),)),
        "a terminator is not the last op",
    ),
    "body ends in yield": (lambda b: b.yield_(), "ends in Yield"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_invariant_is_named(name: str) -> None:
    build, text = CASES[name]
    messages = found(build)
    assert any(text in m for m in messages), messages
    assert len(messages) <= 3, messages  # no cascade


def test_a_correct_kernel_has_no_violations() -> None:
    assert found(lambda b: loop(b)) == []
    assert found(lambda b: branch(b, (ir.Return(span=b.span()),), (yields(b),))) == []


def kernel() -> ir.KernelIR:
    b = Builder("k")
    x = b.tensor("X", "f32", "N")
    b.store(x, [b.at(0)], b.scalar("a", "f32"))
    return b.finish(grid=(("N", 4),))


def dim(name: str, type: Any = ScalarType(DType.INDEX)) -> ir.DimParam:  # noqa: B008
    k = kernel()
    return ir.DimParam(name=name, value=ir.Value(type=type, name=name, span=k.span))


TABLES: dict[str, tuple[Callable[[ir.KernelIR], dict[str, Any]], str]] = {
    "order": (lambda k: {"order": ("X",)}, "does not list the parameters"),
    "unbound dim": (lambda k: {"dims": (*k.dims, dim("M"))}, "dim M is bound by no tensor"),
    "undeclared dim": (lambda k: {"dims": ()}, "dim N is not declared"),
    "dim twice": (lambda k: {"dims": (*k.dims, dim("N"))}, "dim N occurs twice"),
    "dim dtype": (lambda k: {"dims": (dim("N", ScalarType(DType.I32)),)}, "dim N has type i32"),
    "grid": (lambda k: {"grid": (DimBinary("+", DimName("Q"), DimConst(1)),) * 3}, "the grid uses Q"),
    "scalar tile": (
        lambda k: {
            "scalars": (ir.ScalarParam(name="a", value=replace(k.scalars[0].value, type=TileType(DType.F32, (4,)))),)
        },
        "scalar argument a has type tile",
    ),
    "rank": (
        lambda k: {"tensors": (replace(k.tensors[0], type=TensorType(DType.F32, ("N", 1, 1, 1, 1, 1))),)},
        "tensor X has type",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_broken_table_is_named(name: str) -> None:
    change, text = TABLES[name]
    good = kernel()
    verify(good)
    assert any(text in m for m in violations(replace(good, **change(good))))


def test_the_error_names_the_pass_the_line_and_the_op() -> None:
    good = kernel()
    stray = ir.Value(type=ScalarType(DType.F32), name="stray", span=good.span)
    bad = rewrite_kernel(good, lambda op, v: [replace(op, value=stray)] if isinstance(op, ir.Store) else None)
    with pytest.raises(InternalError, match="malformed after fold: 1 violation") as error:
        verify(bad, after="fold")
    assert isinstance(error.value, AssertionError)
    line = next(op.span.line for op in bad.body.ops if isinstance(op, ir.Store))
    assert error.value.violations == (
        f"line {line}: %?stray is read but not defined before, in `store X[0] = %?stray`",
    )
