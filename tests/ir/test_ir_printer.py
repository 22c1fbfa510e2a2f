"""The textual form, spelled out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimConst, DimName
from phobos.ir.options import LaunchOptions, ScheduleOptions, TensorCoreRequest
from phobos.ir.printer import print_dim, print_kernel, print_literal, print_op, value_names
from phobos.ir.walk import clone_block
from phobos.source import Span


def lines(b: Builder) -> list[str]:
    """The body's lines without indentation and return."""
    text = print_kernel(b.finish()).splitlines()
    return [line[2:] for line in text[1:-2]]


def test_a_whole_kernel() -> None:
    b = Builder("scale")
    x, y = b.tensor("X", "f32", "N"), b.tensor("Y", "f16", "N", 4)
    a = b.scalar("a", "f32")
    row = b.mul(b.program_id(), 64)
    tile = b.load(x, [b.range(row, 64)], fill=-math.inf)
    product = b.cast(b.mul(tile, a), "f16")
    b.store(y, [b.range(row, 64, guarded=False), b.at(3)], product)
    kernel = b.finish(grid=(("N", 64), 2))
    assert print_kernel(kernel) == (
        "kernel scale(X: tensor<f32>[N], Y: tensor<f16>[N, 4], %a: f32) grid (ceildiv(N, 64), 2, 1) {\n"
        "  %pid = block.x : index\n"
        "  %t = mul %pid, 64 : index\n"
        "  %x = load X[%t :+ 64?] else -inf : tile<f32>[64]\n"
        "  %t.1 = mul %x, %a : tile<f32>[64]\n"
        "  %t.2 = cast %t.1 : tile<f16>[64]\n"
        "  store Y[%t :+ 64, 3] = %t.2\n"
        "  return\n"
        "}\n"
    )


def test_attributes_are_in_the_heading() -> None:
    span = Span(file="f", line=1, column=1, end_line=1, end_column=2)
    kernel = Builder("k").finish()
    kernel = replace(
        kernel,
        launch=LaunchOptions(threads=128, max_regs=96),
        aligned=(ir.AlignedPromise(dim="N", multiple=8, span=span), ir.AlignedPromise(dim="M", multiple=4, span=span)),
        tensorcore=TensorCoreRequest(kind="tf32", require=True),
        dynshared=True,
        options=ScheduleOptions(stages=3, matmul="fma"),
    )
    assert print_kernel(kernel).splitlines()[0] == (
        "kernel k() grid (1, 1, 1) launch(128, 96) aligned(N = 8, M = 4) tensorcore(tf32, require) dynshared "
        "options(matmul = fma, stages = 3) {"
    )


def test_every_plain_op() -> None:
    b = Builder()
    x, i, z = b.tensor("X", "f32", "N", 4), b.tensor("I", "i32", 3), b.tensor("Z", "i32", "N")
    t = b.load(x, [b.range(0, 2), b.range(0, 4)])
    index = b.load(i, [b.range(0, 3)])
    b.load(x, [b.by(index), b.at(b.dim("N"))])
    b.grid_size(2)
    c = b.compute("gt", t, 0.5)
    b.compute("where", c, t, 1e-30)
    b.broadcast(b.constant(True, "bool"), 2, 4)
    b.iota((1, 4), 1)
    u = b.transpose(t)
    b.reshape(u, 8)
    b.cat(1, t, t)
    b.insert(t, [b.at(0), b.range(1, 2)], b.extract(t, [b.at(1), b.range(2, 2)]))
    b.reduce(t, "max", 1)
    b.reduce(t, "argmin", None)
    b.scan(t, 0)
    b.gather(t, index)
    b.dot(t, u, kinds=("f16", "ieee"), kind="f16")
    b.dot(t, t, True)
    b.atomic("add", z, [b.by(index)], index)
    b.atomic("cas", z, [b.range(0, 3)], index, index, result=False)
    b.print('t "is" ', t)
    b.check(c, "positive")
    b.reduce(t, "custom", 0, b.combine("f32", lambda p, q: b.compute("max", p, q)), 0.0)
    assert lines(b) == [
        "%x = load X[0 :+ 2?, 0 :+ 4?] : tile<f32>[2, 4]",
        "%i = load I[0 :+ 3?] : tile<i32>[3]",
        "%x.1 = load X[%i, %N] : tile<f32>[3]",
        "%grid = grid.z : index",
        "%t = gt %x, 0.5 : tile<bool>[2, 4]",
        "%t.1 = where %t, %x, 1e-30 : tile<f32>[2, 4]",
        "%t.2 = broadcast true : tile<bool>[2, 4]",
        "%t.3 = iota axis=1 : tile<i32>[1, 4]",
        "%t.4 = transpose %x : tile<f32>[4, 2]",
        "%t.5 = reshape %t.4 : tile<f32>[8]",
        "%t.6 = cat %x, %x axis=1 : tile<f32>[2, 8]",
        "%t.7 = extract %x[1, 2 :+ 2?] : tile<f32>[2]",
        "%t.8 = insert %x[0, 1 :+ 2?] = %t.7 : tile<f32>[2, 4]",
        "%t.9 = reduce max %x axis=1 : tile<f32>[2, 1]",
        "%t.10 = reduce argmin %x : i32",
        "%t.11 = scan %x axis=0 : tile<f32>[2, 4]",
        "%t.12 = gather %x, %i : tile<f32>[3, 4]",
        "%t.13 = dot %x, %t.4 kinds=[f16, ieee] kind=f16 : tile<f32>[2, 2]",
        "%t.14 = dot_t %x, %x kinds=[ieee] : tile<f32>[2, 2]",
        "%old = atomic_add Z[%i], %i : tile<i32>[3]",
        "atomic_cas Z[0 :+ 3?], %i, %i",
        'print "t \\"is\\" ", %x',
        'assert %t, "positive"',
        "%t.15 = reduce custom %x axis=0 init=0.0 by (%a, %b) : tile<f32>[1, 4] {",
        "  %t.16 = max %a, %b : f32",
        "  yield %t.16",
        "}",
    ]


def test_control_flow() -> None:
    b = Builder()
    n = b.scalar("n", "i32")
    with b.for_(0, 8, 2, [n, b.full("f32", (4,), 0.0)], unroll=4, pipeline=2) as loop:
        k, acc = loop.carried
        odd = b.compute("eq", k, 1)
        b.if_(odd, lambda: b.break_(k, acc))
        (m,) = b.if_(odd, lambda: b.yield_(k), lambda: b.yield_(n), results=[k])
        b.yield_(m, acc)
    with b.for_(0, 3):
        b.if_(odd_again := b.compute("eq", n, 2), lambda: b.continue_(), lambda: b.return_())
    b.while_([n], lambda v: b.compute("lt", v, 9), lambda v: b.yield_(b.add(v, 1)))
    assert odd_again.type is not None
    assert lines(b) == [
        "%t = broadcast 0.0 : tile<f32>[4]",
        "%n.1, %t.1 = for %i: index in range(0, 8, 2) carry (%n.2: i32 = %n, %t.2: tile<f32>[4] = %t) "
        "unroll(4) pipeline(2) {",
        "  %t.3 = eq %n.2, 1 : bool",
        "  if %t.3 {",
        "    break %n.2, %t.2",
        "  }",
        "  %n.3 = if %t.3 -> (i32) {",
        "    yield %n.2",
        "  } else {",
        "    yield %n",
        "  }",
        "  yield %n.3, %t.2",
        "}",
        "for %i.1: index in range(0, 3, 1) {",
        "  %t.4 = eq %n, 2 : bool",
        "  if %t.4 {",
        "    continue",
        "  } else {",
        "    return",
        "  }",
        "  yield",
        "}",
        "%n.4 = while carry (%n.5: i32 = %n) {",
        "  %t.5 = lt %n.5, 9 : bool",
        "  yield %t.5",
        "} do (%n.6) {",
        "  %t.6 = add %n.6, 1 : i32",
        "  yield %t.6",
        "}",
    ]


def test_long_lists_go_one_item_a_line() -> None:
    b = Builder("many")
    for number in range(6):
        b.tensor(f"Tensor{number}", "f32", "Rows", "Columns")
    text = print_kernel(b.finish()).splitlines()
    assert text[:2] == ["kernel many(", "      Tensor0: tensor<f32>[Rows, Columns],"]
    assert text[6] == "      Tensor5: tensor<f32>[Rows, Columns]) grid (1, 1, 1) {"
    assert max(map(len, text)) <= 120


def test_the_text_depends_on_structure_only() -> None:
    b = Builder()
    y = b.tensor("Y", "f32", 4)
    with b.for_(0, 3, 1, [b.full("f32", (4,), 1.0)]) as loop:
        b.yield_(b.mul(loop.carried[0], 2.0))
    b.store(y, [b.range(0, 4)], loop.results[0])
    kernel = b.finish()
    assert print_kernel(replace(kernel, body=clone_block(kernel.body))) == print_kernel(kernel)


def test_locations_names_and_single_ops() -> None:
    b = Builder()
    x = b.tensor("X", "f32", 4)
    value = b.load(x, [b.range(0, 4)])
    kernel = b.finish()
    load = kernel.body.ops[1]
    assert f"  // {load.span.line}:{load.span.column}" in print_kernel(kernel, locations=True).splitlines()[1]
    names = value_names(kernel)
    assert names[value] == "%x" and print_op(load, names) == "%x = load X[0 :+ 4?] : tile<f32>[4]"
    assert print_op(load, {}).startswith("%?x = load X[%?c :+ 4?]")  # unknown values are marked, not hidden


@pytest.mark.parametrize(
    "value,text",
    [(0, "0"), (-3, "-3"), (True, "true"), (1.0, "1.0"), (-1e30, "-1e+30"), (math.inf, "inf"), (math.nan, "nan")],
)
def test_literals(value: float, text: str) -> None:
    assert print_literal(value) == text


def test_dim_expressions_use_the_operators_of_the_language() -> None:
    n, m = DimName("N"), DimName("M")
    half = DimBinary("//", n, DimConst(2))
    assert print_dim(half) == "(N / 2)"
    assert print_dim(DimBinary("ceildiv", DimBinary("%", half, m), DimConst(8))) == "ceildiv(((N / 2) % M), 8)"
    assert print_dim(DimBinary("min", n, DimBinary("-", m, DimConst(1)))) == "min(N, (M - 1))"
