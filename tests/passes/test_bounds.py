"""Facts about scalars, and the masks that they remove: nothing may be claimed that some launch breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from codegen.differential import kernel_of
from ir.builder import Builder

from phobos.ir.abi import Specialization, TensorFacts
from phobos.ir.tile import AxisRange, KernelIR, Load, Store, Value
from phobos.ir.walk import kernel_ops
from phobos.passes import prove_bounds
from phobos.passes.facts import ScalarFacts

WEAK = Specialization(tensors=tuple((n, TensorFacts(align16=False, contiguous=False)) for n in "XY"))
STRONG = Specialization(dim_multiple=(("N", 16), ("M", 16)))


def guards(text: str, spec: Specialization) -> list[bool]:
    """Is the last axis of each load and store masked, in order?"""
    kernel = prove_bounds.run(kernel_of(text), spec)
    return [
        op.view.axes[-1].guarded
        for op in kernel_ops(kernel)
        if isinstance(op, (Load, Store)) and isinstance(op.view.axes[-1], AxisRange)
    ]


def kernel(body: str, head: str = "", params: str = "X: tensor<f32>[N], Y: tensor<f32>[N]") -> str:
    return f"{head}\nkernel k({params}) {{\n  {body}\n}}\n"


XY = "X: tensor<f32>[N], Y: tensor<f32>[N]"
LOOP = "for i in range(0, 64, 16) { Y[i :+ 16] = X[i :+ 16] }"
BLOCKS = "let i = ctx.block.x * 16\n  Y[i :+ 16] = X[i :+ 16]"


@pytest.mark.parametrize(
    "text, spec, masked",
    [
        # Blocks of a grid that covers the dim.
        (kernel(BLOCKS), WEAK, True),
        (kernel(BLOCKS), STRONG, False),
        (kernel(BLOCKS, "@aligned(N = 16)"), WEAK, False),
        (kernel(BLOCKS, "@aligned(N = 32)"), WEAK, False),
        (kernel(BLOCKS, "@aligned(N = 8)"), WEAK, True),
        (kernel(BLOCKS, "@grid(N / 16)"), STRONG, False),
        (kernel(BLOCKS, "@grid(N / 8)"), STRONG, True),
        (kernel(BLOCKS, "@grid(ceildiv(N, 15))"), STRONG, True),
        (kernel(BLOCKS, "@grid(7)"), STRONG, True),
        (kernel(BLOCKS.replace("16", "32")), STRONG, True),
        (kernel(BLOCKS.replace("16", "24")), STRONG, True),
        (kernel(BLOCKS.replace("16", "8")), STRONG, False),
        (kernel("let i = ctx.block.x * 16 + 16\n  Y[i :+ 16] = X[i :+ 16]", "@grid(ceildiv(N, 16))"), STRONG, True),
        (kernel("let i = ctx.block.x * 16 - 16\n  Y[i :+ 16] = X[i :+ 16]", "@grid(ceildiv(N, 16))"), STRONG, True),
        # Loops over the dim.
        (kernel("for i in range(0, N, 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, False),
        (kernel("for i in range(0, N, 16) { Y[i :+ 16] = X[i :+ 16] }"), WEAK, True),
        (kernel("for i in range(0, N, 8) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, True),
        (kernel("for i in range(8, N, 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, True),
        (kernel("for i in range(16, N, 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, False),
        (kernel("for i in range(-16, N, 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, True),
        (kernel("for i in range(0, N + 1, 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, True),
        (kernel("for i in range(0, min(N, 64), 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, False),
        (kernel("for i in range(0, max(N, 64), 16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, True),
        (kernel("for i in range(N, 0, -16) { Y[i :+ 16] = X[i :+ 16] }"), STRONG, True),
        (kernel("var i = 0\n  for t in range(4) { Y[i :+ 16] = X[i :+ 16]\n i = i + 16 }"), STRONG, True),
        # Another dim says nothing.
        (kernel(LOOP.replace("64", "M"), params=f"{XY}, Z: tensor<f32>[M]"), STRONG, True),
        # Literal dims.
        (kernel(LOOP, params=XY.replace("N", "64")), WEAK, False),
        (kernel(LOOP, params=XY.replace("N", "72")), WEAK, True),
        # What comes from memory or wraps in a narrow type is anything.
        (kernel("let i = I[0] * 16\n  Y[i :+ 16] = X[i :+ 16]", params=f"{XY}, I: tensor<i32>[1]"), STRONG, True),
        (kernel("let i = i8(ctx.block.x) * 16\n  Y[i :+ 16] = X[i :+ 16]", "@grid(ceildiv(N, 16))"), STRONG, True),
    ],
)  # fmt: skip
def test_masks(text: str, spec: Specialization, masked: bool) -> None:
    found = guards(text, spec)
    assert found and set(found) == {masked}


def scalar(build: Callable[[Builder], Value], spec: Specialization = STRONG) -> tuple[ScalarFacts, Value, KernelIR]:
    b = Builder()
    out = b.tensor("Y", "i64", "N")
    v = build(b)
    b.store(out, [b.at(0)], b.cast(v, "i64"))
    k = b.finish()
    return ScalarFacts(k, spec), v, k


@pytest.mark.parametrize(
    "build, multiple, nonnegative",
    [
        (lambda b: b.constant(12, "index"), 12, True),
        (lambda b: b.constant(-12, "index"), 12, False),
        (lambda b: b.constant(0, "index"), 0, True),
        (lambda b: b.dim("N"), 16, True),
        (lambda b: b.program_id(), 1, True),
        (lambda b: b.mul(b.program_id(), 24), 24, True),
        (lambda b: b.add(b.mul(b.program_id(), 24), 16), 8, True),
        (lambda b: b.sub(b.mul(b.program_id(), 24), 16), 8, False),
        (lambda b: b.compute("neg", b.mul(b.program_id(), 24)), 24, False),
        (lambda b: b.compute("max", b.mul(b.program_id(), -24), 0), 24, True),
        (lambda b: b.compute("min", b.mul(b.program_id(), 24), 36), 12, True),
        (lambda b: b.compute("div", b.mul(b.program_id(), 24), 8), 3, True),
        (lambda b: b.compute("div", b.mul(b.program_id(), 24), 7), 1, True),
        (lambda b: b.compute("mod", b.mul(b.program_id(), 24), 16), 8, True),
        (lambda b: b.compute("shl", b.mul(b.program_id(), 3), 4), 48, False),
        (lambda b: b.scalar("n", "i32"), 1, False),
        (lambda b: b.scalar("n", "u32"), 1, True),
        (lambda b: b.mul(b.scalar("n", "index"), 24), 24, False),
        # A 32-bit product wraps: only powers of two are left of its factors.
        (lambda b: b.mul(b.scalar("n", "i32"), 24), 8, False),
        (lambda b: b.mul(b.scalar("n", "u32"), 24), 8, True),
        (lambda b: b.cast(b.mul(b.program_id(), 24), "i8"), 8, False),
        (lambda b: b.cast(b.mul(b.program_id(), 24), "i32"), 24, True),
        (lambda b: b.cast(b.scalar("n", "u32"), "i32"), 1, False),
        (lambda b: b.cast(b.scalar("n", "u8"), "i32"), 1, True),
    ],
)
def test_divisors_and_signs(build: Callable[[Builder], Value], multiple: int, nonnegative: bool) -> None:
    facts, v, _ = scalar(build)
    assert facts.multiple(v) == multiple
    assert facts.nonnegative(v) == nonnegative


@pytest.mark.parametrize(
    "dtype, value, known",
    [("i8", 300, None), ("u8", 300, None), ("u8", -1, None), ("i8", 100, 100), ("u32", -1, None), ("i64", 7, 7)],
)
def test_constants_through_conversions(dtype: str, value: int, known: int | None) -> None:
    facts, v, _ = scalar(lambda b: b.cast(b.constant(value, "i32"), dtype))
    assert facts.constant(v) == known


def view(text: str, spec: Specialization) -> list[int]:
    k = kernel_of(text)
    facts = ScalarFacts(k, spec)
    return [facts.vector(op.view) for op in kernel_ops(k) if isinstance(op, (Load, Store))]


TWO = "X: tensor<{0}>[M, N], Y: tensor<{0}>[M, N]"
COPY = "let r = ctx.block.x * 4\n  Y[r :+ 4, {0} :+ 16] = X[r :+ 4, {0} :+ 16]"


@pytest.mark.parametrize(
    "dtype, start, spec, width",
    [
        ("f32", "0", STRONG, 4),
        ("f16", "0", STRONG, 8),
        ("f64", "0", STRONG, 2),
        ("i8", "0", STRONG, 16),
        ("f32", "8", STRONG, 4),
        ("f32", "2", STRONG, 2),
        ("f32", "1", STRONG, 1),
        ("f32", "r * 2", STRONG, 4),
        ("f32", "r / 4", STRONG, 1),
        ("f32", "M - 4", STRONG, 4),
        ("f32", "0", WEAK, 1),
        # Rows of any length: a chunk may straddle the end of the tensor's row, unless nothing is masked.
        ("f32", "0", Specialization(), 1),
    ],
)  # fmt: skip
def test_widths(dtype: str, start: str, spec: Specialization, width: int) -> None:
    assert set(view(kernel(COPY.format(start), params=TWO.format(dtype)), spec)) == {width}


def test_width_of_promised_tiles() -> None:
    """@aligned says what the specialization does not know."""
    text = kernel(COPY.format("0").replace("16", "8"), "@aligned(N = 8)", TWO.format("f32"))
    assert set(view(text, Specialization())) == {4}


def test_width_where_the_last_axis_is_no_range() -> None:
    text = kernel("let r = ctx.block.x * 16\n  Y[r :+ 16, 0] = X[r :+ 16, 0]", params=TWO.format("f32"))
    assert set(view(text, STRONG)) == {1}
