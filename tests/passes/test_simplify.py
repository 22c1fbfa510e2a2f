"""simplify: what is folded, what is shared, and what must stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir.types import DType
from phobos.ir.verify import verify
from phobos.ir.walk import kernel_ops
from phobos.passes import simplify
from phobos.reference.elementwise import compute
from phobos.reference.numerics import carrier_dtype


def names(kernel: ir.KernelIR) -> Counter[str]:
    return Counter(op.fn if isinstance(op, ir.Compute) else type(op).__name__ for op in kernel_ops(kernel))


def simplified(kernel: ir.KernelIR, overlap: frozenset[str] = frozenset()) -> ir.KernelIR:
    verify(kernel)
    out = simplify.run(kernel, overlap)
    verify(out, "simplify")
    return out


INTEGER = "add sub mul div mod neg abs min max bitand bitor bitxor eq ne lt le gt ge".split()


@pytest.mark.parametrize("dtype", [DType.I8, DType.I32, DType.I64, DType.INDEX])
@pytest.mark.parametrize("fn", INTEGER)
def test_folded_integers_are_what_the_machine_computes(fn: str, dtype: DType) -> None:
    """Or are left to the machine: where they wrap, and where a division is by zero."""
    info = np.iinfo(carrier_dtype(dtype))
    values = [0, 1, -1, 2, 7, -13, 100, int(info.max), int(info.min)]
    count = 1 if fn in ("neg", "abs") else 2
    result = DType.BOOL if fn in ("eq", "ne", "lt", "le", "gt", "ge") else dtype
    left = 0
    for args in product(values, repeat=count):
        folded = simplify.fold_integer(fn, args, result)
        with np.errstate(all="ignore"):
            wanted = compute(fn, [np.asarray(a, carrier_dtype(dtype)) for a in args], dtype, False)
        if folded is None:
            left += 1
            continue
        assert folded == int(wanted), (fn, args)
    assert left < len(values) ** count, "most are folded"


@pytest.mark.parametrize("dtype", [DType.U8, DType.U32])
def test_unsigned_integers_are_left_to_the_machine(dtype: DType) -> None:
    assert simplify.fold_integer("sub", (1, 2), dtype) is None


@pytest.mark.parametrize(
    "build, result",
    [
        (lambda b, x: b.add(x, 0), "x"),
        (lambda b, x: b.add(0, x), "x"),
        (lambda b, x: b.sub(x, 0), "x"),
        (lambda b, x: b.mul(x, 1), "x"),
        (lambda b, x: b.mul(1, x), "x"),
        (lambda b, x: b.compute("div", x, 1), "x"),
        (lambda b, x: b.cast(x, "i32"), "x"),
        (lambda b, x: b.mul(x, 0), "0"),
        (lambda b, x: b.compute("where", b.constant(True, "bool"), x, 7), "x"),
        (lambda b, x: b.mul(b.constant(3, "i32"), 5), "15"),
        (lambda b, x: b.add(b.constant(15, "i32"), x), "add"),
    ],
)
def test_identities_of_integers(build: Callable[[Builder, ir.Value], ir.Value], result: str) -> None:
    b = Builder()
    out = b.tensor("Y", "i32", "N")
    x = b.scalar("x", "i32")
    b.store(out, [b.at(0)], build(b, x))
    kernel = simplified(b.finish())
    (store,) = [op for op in kernel_ops(kernel) if isinstance(op, ir.Store)]
    value = store.value
    if result == "x":
        assert value is x
    else:
        op = next(op for op in kernel_ops(kernel) if value in op.defined())
        assert (op.fn if isinstance(op, ir.Compute) else str(op.value)) == result  # type: ignore[attr-defined]


@pytest.mark.parametrize("fn, constant", [("add", 0.0), ("sub", 0.0), ("mul", 0.0), ("div", 3.0)])
def test_floats_keep_what_would_change_a_bit(fn: str, constant: float) -> None:
    """x + 0 is not x for -0; x * 0 is not 0 for infinities; division is not multiplication."""
    b = Builder()
    out = b.tensor("Y", "f32", "N")
    b.store(out, [b.at(0)], b.compute(fn, b.scalar("x", "f32"), constant))
    assert names(simplified(b.finish()))[fn] == 1


def test_constants_of_different_type_or_sign_are_different() -> None:
    b = Builder()
    out = b.tensor("Y", "f32", "N")
    for n, value in enumerate((0.0, -0.0, 1.0, float("nan"), float("nan"))):
        b.store(out, [b.at(n)], b.constant(value, "f32"))
    kept = [
        op.value
        for op in kernel_ops(simplified(b.finish()))
        if isinstance(op, ir.Constant) and op.result.dtype is DType.F32
    ]
    assert [repr(v) for v in kept] == ["0.0", "-0.0", "1.0", "nan"]


def test_branches_of_known_conditions() -> None:
    b = Builder()
    out = b.tensor("Y", "f32", "N")
    x = b.scalar("x", "f32")

    def double() -> None:
        b.yield_(b.mul(x, 2.0))

    def negate() -> None:
        b.yield_(b.compute("neg", x))

    (result,) = b.if_(b.compute("lt", b.constant(3, "i32"), 2), double, negate, [x])
    b.store(out, [b.at(0)], result)
    found = names(simplified(b.finish()))
    assert found["neg"] == 1 and found["If"] == found["mul"] == 0


def loads(kernel: ir.KernelIR) -> int:
    return names(kernel)["Load"]


def two_loads(between: Callable[[Builder, ir.TensorParam, ir.TensorParam], None]) -> ir.KernelIR:
    """Two loads of X[0 :+ 8] with something in between; both results are stored to a third tensor."""
    b = Builder()
    x, y, z = (b.tensor(n, "f32", "N") for n in "XYZ")
    first = b.load(x, [b.range(0, 8)])
    between(b, x, y)
    second = b.load(x, [b.range(0, 8)])
    b.store(z, [b.range(0, 8)], b.add(first, second))
    return b.finish()


def test_equal_loads_are_one() -> None:
    assert loads(simplified(two_loads(lambda b, x, y: None))) == 1


def test_a_store_ends_the_life_of_loads_of_its_tensor() -> None:
    def store(b: Builder, x: ir.TensorParam, y: ir.TensorParam) -> None:
        b.store(x, [b.at(3)], 1.0)

    assert loads(simplified(two_loads(store))) == 2


def test_a_store_elsewhere_does_so_only_where_memory_overlaps() -> None:
    def store(b: Builder, x: ir.TensorParam, y: ir.TensorParam) -> None:
        b.store(y, [b.at(3)], 1.0)

    assert loads(simplified(two_loads(store))) == 1
    assert loads(simplified(two_loads(store), frozenset({"X", "Z"}))) == 1
    assert loads(simplified(two_loads(store), frozenset({"X", "Y"}))) == 2


@pytest.mark.parametrize("kind", ["for", "while", "if", "atomic"])
def test_stores_inside_control_flow_count(kind: str) -> None:
    def between(b: Builder, x: ir.TensorParam, y: ir.TensorParam) -> None:
        if kind == "for":
            with b.for_(0, 3) as loop:
                assert loop.index is not None
                b.store(x, [b.at(loop.index)], 1.0)
        elif kind == "if":
            b.if_(b.compute("lt", b.program_id(), 1), lambda: b.store(x, [b.at(0)], 1.0))
        elif kind == "atomic":
            b.atomic("add", x, [b.at(0)], b.constant(1.0, "f32"), result=False)
        else:

            def body(n: ir.Value) -> None:
                b.store(x, [b.at(0)], 1.0)
                b.yield_(b.add(n, 1))

            b.while_([b.constant(0, "i32")], lambda n: b.compute("lt", n, 3), body)

    assert loads(simplified(two_loads(between))) == 2


@pytest.mark.parametrize("kind", ["for", "while condition", "while body"])
def test_a_load_in_a_loop_that_stores_is_not_the_one_before(kind: str) -> None:
    b = Builder()
    x, z = b.tensor("X", "f32", "N"), b.tensor("Z", "f32", "N")
    first = b.load(x, [b.at(0)])
    b.store(z, [b.at(0)], first)
    if kind == "for":
        with b.for_(0, 3):
            b.store(x, [b.at(0)], b.add(b.load(x, [b.at(0)]), 1.0))
    else:

        def condition(n: ir.Value) -> ir.Value:
            limit = b.load(x, [b.at(0)]) if kind == "while condition" else b.constant(3.0, "f32")
            return b.compute("lt", limit, 10.0)

        def body(n: ir.Value) -> None:
            b.store(x, [b.at(0)], b.add(b.load(x, [b.at(0)]) if kind == "while body" else n, 1.0))
            b.yield_(n)

        b.while_([first], condition, body)
    assert loads(simplified(b.finish())) == 2


def test_what_a_branch_computes_is_not_there_after_it() -> None:
    b = Builder()
    out = b.tensor("Y", "f32", "N")
    x = b.scalar("x", "f32")
    b.if_(b.compute("lt", x, 0.0), lambda: b.store(out, [b.at(0)], b.mul(x, 3.0)))
    b.store(out, [b.at(1)], b.mul(x, 3.0))
    assert names(simplified(b.finish()))["mul"] == 2  # and verify() accepted it


def test_outer_values_are_reused_inside() -> None:
    b = Builder()
    out = b.tensor("Y", "f32", "N")
    x = b.scalar("x", "f32")
    b.store(out, [b.at(1)], b.mul(x, 3.0))
    with b.for_(0, 4):
        b.store(out, [b.at(0)], b.mul(x, 3.0))
    assert names(simplified(b.finish()))["mul"] == 1


def test_product_with_a_transpose() -> None:
    b = Builder()
    x, y, out = (b.tensor(n, "f32", 8, 8) for n in "XYZ")
    whole = [b.range(0, 8), b.range(0, 8)]
    b.store(out, whole, b.dot(b.load(x, whole), b.transpose(b.load(y, whole))))
    kernel = simplified(b.finish())
    (dot,) = [op for op in kernel_ops(kernel) if isinstance(op, ir.Dot)]
    assert dot.transpose_b and names(kernel)["Transpose"] == 0


def test_dead_code_goes_and_effects_stay() -> None:
    b = Builder()
    x, out = b.tensor("X", "f32", "N"), b.tensor("Y", "f32", "N")
    b.add(b.load(x, [b.range(0, 8)]), 1.0)
    with b.for_(0, 3):
        b.load(x, [b.at(0)])
    b.atomic("add", out, [b.at(0)], b.constant(1.0, "f32"))
    found = names(simplified(b.finish()))
    assert found["Atomic"] == 1
    assert found["Load"] == found["add"] == found["For"] == 0
