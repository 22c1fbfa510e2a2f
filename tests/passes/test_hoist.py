"""hoist: invariant work leaves its loop; what memory, order or definedness forbids stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir.verify import verify
from phobos.ir.walk import kernel_ops, walk
from phobos.passes import hoist, simplify


def inside(kernel: ir.KernelIR) -> list[str]:
    """Ops left in the kernel's first loop."""
    loop = next(op for op in kernel_ops(kernel) if isinstance(op, (ir.For, ir.While)))
    return [op.fn if isinstance(op, ir.Compute) else type(op).__name__ for b in loop.blocks() for op in walk(b)]


def hoisted(kernel: ir.KernelIR, overlap: frozenset[str] = frozenset()) -> ir.KernelIR:
    kernel = simplify.run(kernel, overlap)
    out = hoist.run(kernel, overlap)
    verify(out, "hoist")
    return out


def loop(body: Callable[[Builder, ir.Value, list[ir.TensorParam]], None]) -> ir.KernelIR:
    b = Builder()
    tensors = [b.tensor(n, "f32", "N", 8) for n in "XYZ"]
    with b.for_(0, b.dim("N"), 8) as handle:
        assert handle.index is not None
        body(b, handle.index, tensors)
    return b.finish()


def rows(b: Builder, start: ir.Value | int) -> list[ir.AxisIndex]:
    return [b.range(start, 4), b.range(0, 8)]


def test_invariant_loads_and_arithmetic_leave() -> None:
    def body(b: Builder, i: ir.Value, t: list[ir.TensorParam]) -> None:
        scaled = b.mul(b.load(t[0], rows(b, 0)), 2.0)
        b.store(t[1], rows(b, i), scaled)

    left = inside(hoisted(loop(body)))
    assert "Load" not in left and "mul" not in left and "Store" in left


def test_what_depends_on_the_index_stays() -> None:
    def body(b: Builder, i: ir.Value, t: list[ir.TensorParam]) -> None:
        b.store(t[1], rows(b, i), b.mul(b.load(t[0], rows(b, i)), 2.0))

    left = inside(hoisted(loop(body)))
    assert "Load" in left and "mul" in left


@pytest.mark.parametrize(
    "stored, overlap, moves", [(0, (), False), (1, (), True), (1, ("X", "Y"), False), (1, ("X", "Z"), True)]
)
def test_loads_stay_where_a_store_of_the_loop_may_change_them(
    stored: int, overlap: tuple[str, ...], moves: bool
) -> None:
    def body(b: Builder, i: ir.Value, t: list[ir.TensorParam]) -> None:
        x = b.load(t[0], rows(b, 0))
        b.store(t[stored], rows(b, i), b.add(x, 1.0))

    assert ("Load" not in inside(hoisted(loop(body), frozenset(overlap)))) == moves


def test_store_in_a_nested_block_counts() -> None:
    def body(b: Builder, i: ir.Value, t: list[ir.TensorParam]) -> None:
        x = b.load(t[0], rows(b, 0))
        b.store(t[1], rows(b, i), x)
        b.if_(b.compute("gt", i, 8), lambda: b.store(t[0], rows(b, i), x))

    assert "Load" in inside(hoisted(loop(body)))


@pytest.mark.parametrize("divisor, moves", [(3, True), (0, False), (None, False)])
def test_integer_division_moves_only_by_a_constant(divisor: int | None, moves: bool) -> None:
    """In front of the loop it might run where the loop does not, and divide by zero."""
    b = Builder()
    out = b.tensor("Y", "i32", "N")
    n, d = b.scalar("n", "i32"), b.scalar("d", "i32")
    with b.for_(0, b.dim("N")) as handle:
        assert handle.index is not None
        b.store(out, [b.at(handle.index)], b.compute("div", n, d if divisor is None else divisor))
    assert ("div" not in inside(hoisted(b.finish()))) == moves


def test_the_condition_of_a_while_sees_stores_of_its_body() -> None:
    b = Builder()
    x = b.tensor("X", "f32", "N")

    def body(n: ir.Value) -> None:
        b.store(x, [b.at(0)], b.add(b.load(x, [b.at(0)]), 1.0))
        b.yield_(n)

    b.while_([b.constant(0, "i32")], lambda n: b.compute("lt", b.load(x, [b.at(0)]), 10.0), body)
    assert inside(hoisted(b.finish())).count("Load") == 2


def test_invariant_work_leaves_two_loops() -> None:
    def body(b: Builder, i: ir.Value, t: list[ir.TensorParam]) -> None:
        with b.for_(0, 4) as inner:
            assert inner.index is not None
            b.store(t[1], rows(b, b.add(i, inner.index)), b.load(t[0], rows(b, 0)))

    assert "Load" not in inside(hoisted(loop(body)))


def test_atomics_and_reads_under_a_condition_stay() -> None:
    def body(b: Builder, i: ir.Value, t: list[ir.TensorParam]) -> None:
        old = b.atomic("add", t[2], [b.at(0), b.at(0)], b.constant(1.0, "f32"))
        assert old is not None
        b.if_(b.compute("gt", i, 8), lambda: b.store(t[1], rows(b, i), b.load(t[0], rows(b, 0))))

    left = inside(hoisted(loop(body)))
    assert "Atomic" in left and "Load" in left
