"""block_order: every block once, those of many trips first, and only where loops say so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import phobos
from phobos.ir.abi import NO_EFFECT
from phobos.ir.storage import Apply, Expr, Literal, Special
from phobos.passes import block_order
from phobos.passes.block_order import BlockOrder
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse

FNS = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "div": int.__floordiv__, "mod": int.__mod__, "min": min,
}  # fmt: skip


def value(e: Expr, block: Sequence[int], grid: Sequence[int]) -> int:
    if isinstance(e, Literal):
        return int(e.value)
    if isinstance(e, Special):
        return (block if e.kind == "ctaid" else grid)[e.axis]
    assert isinstance(e, Apply)
    a, b = (value(x, block, grid) for x in e.args)
    return FNS[e.fn](a, b)


def taken(order: BlockOrder, grid: Sequence[int]) -> list[tuple[int, ...]]:
    """The coordinates of blocks in the order in which the hardware starts them: x fastest."""
    starts = [(x, y, z) for z, y, x in product(*(range(n) for n in reversed(grid)))]
    return [tuple(value(order.coordinate(a), block, grid) for a in range(3)) for block in starts]


GRIDS = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))


@given(grid=GRIDS, axis=st.integers(0, 2), rising=st.booleans(), kind=st.sampled_from(["linear", "longest", "grouped"]))
def test_every_block_once(grid: tuple[int, int, int], axis: int, rising: bool, kind: str) -> None:
    several = tuple(n > 1 or a == axis for a, n in enumerate(grid))
    found = taken(BlockOrder(kind, several, axis, rising), grid)
    assert sorted(found) == sorted(product(*(range(n) for n in grid)))
    if kind == "longest":
        trips = [block[axis] if rising else -block[axis] for block in found]
        assert trips == sorted(trips, reverse=True)
    if kind == "linear":
        assert found == sorted(found, key=lambda b: b[::-1])


def test_stripes() -> None:
    found = taken(BlockOrder("grouped", (True, True, False)), (3, 10, 1))
    assert found[:9] == [*((0, y, 0) for y in range(8)), (1, 0, 0)]
    assert found[24:] == [(0, 8, 0), (0, 9, 0), (1, 8, 0), (1, 9, 0), (2, 8, 0), (2, 9, 0)]


HEAD = (
    "kernel k(X: tensor<f32>[N, M], Y: tensor<f32>[N, M]) {\n"
    "  let row = ctx.block.y * 16\n  let col = ctx.block.x * 32\n"
)
SUM = "  var s: tile<f32>[16, 32] = 0.0\n  {loop} {{ s += X[i :+ 16, col :+ 32] }}\n  Y[row :+ 16, col :+ 32] = s\n}}\n"


def kernel_of(text: str):
    return check_kernel(parse(SourceFile("k.ph", text)), "k")


def text(loop: str, before: str = "", options: str = "") -> str:
    return (f"@options({options})\n" if options else "") + HEAD + before + SUM.format(loop=loop)


MOVES = [
    ("for i in range(0, row + 16, 16)", "", ("longest", 1, True)),
    ("for i in range(0, tmin(N, row + 16 + N - M), 16)", "", ("longest", 1, True)),
    ("for i in range(row, N, 16)", "", ("longest", 1, False)),
    ("for i in range(row, N - row, 16)", "", ("longest", 1, False)),
    ("for i in range(N - row, -1, -16)", "", ("longest", 1, False)),
    ("for i in range(row, -1, -16)", "", ("longest", 1, True)),
    ("for i in range(0, N - ctx.block.x * 2, 16)", "", ("longest", 0, False)),
    ("for i in range(0, last, 16)", "  var last = N\n  if N > 64 { last = row + 1 }\n", ("longest", 1, True)),
    ("for i in range(0, ceildiv(row, 3) * 16, 16)", "", ("longest", 1, True)),
]
STAYS = [
    "for i in range(0, N, 16)",
    "for i in range(row, row + 64, 16)",  # as many trips everywhere
    "for i in range(0, row % 64, 16)",
    "for i in range(0, 64 - row * row, 16)",
]


@pytest.mark.parametrize("loop, before, expected", MOVES)
def test_trips_that_move_with_a_coordinate(loop: str, before: str, expected: tuple[str, int, bool]) -> None:
    order, (decision,) = block_order.run(kernel_of(text(loop, before)))
    assert (order.kind, order.axis, order.rising) == expected
    assert decision.subject == "order of blocks" and "the trips of the loop in line" in decision.reason
    order, decisions = block_order.run(kernel_of(text(loop, before, "order = linear")))
    assert order.kind == "linear" and not decisions


@pytest.mark.parametrize("loop", STAYS)
def test_trips_that_do_not(loop: str) -> None:
    order, decisions = block_order.run(kernel_of(text(loop)))
    assert order.kind == "linear" and not decisions
    order, (decision,) = block_order.run(kernel_of(text(loop, options="order = longest")))
    assert order.kind == "linear" and decision.stage == NO_EFFECT and decision.subject == "order = longest"


def test_loops_that_move_against_each_other() -> None:
    other = "  for i in range(row, N, 16) { s += X[i :+ 16, col :+ 32] }\n"
    two = text("for i in range(0, row, 16)").replace("  Y[", other + "  Y[")
    assert block_order.run(kernel_of(two))[0].kind == "linear"


def test_stripes_need_two_axes() -> None:
    one = "@options(order = grouped)\nkernel k(X: tensor<f32>[N]) {\n  X[ctx.block.x * 32 :+ 32] = 1.0\n}\n"
    order, (decision,) = block_order.run(kernel_of(one))
    assert order.kind == "linear" and decision.stage == NO_EFFECT and "two axes" in decision.reason
    order, (decision,) = block_order.run(kernel_of(text(STAYS[0], options="order = grouped")))
    assert order.kind == "grouped" and "stripes" in decision.choice


@pytest.mark.parametrize("order", ["auto", "linear", "grouped", "longest"])
@pytest.mark.parametrize("index", ["32", "64"])
@pytest.mark.parametrize("shape", [(150, 200), (16, 500), (300, 20)])
def test_the_same_result(order: str, index: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.zeros(shape)
    for row in range(0, shape[0], 16):
        for i in range(0, row + 16, 16):
            part = x[i : i + 16].astype(np.float64)
            n = min(len(part), len(expected[row : row + 16]))
            expected[row : row + 16][:n] += part[:n]
    kernel = phobos.jit(text("for i in range(0, row + 16, 16)", options=f"order = {order}, index = {index}"))
    for backend in ("emulator", "reference"):
        y = np.full_like(x, np.nan)
        kernel(x, y, backend=backend)
        assert np.abs(y - expected).max() < 1e-4


def test_a_three_axis_grid_of_causal_attention() -> None:
    kernel = phobos.load(phobos.resources.examples_dir() / "attention.ph")
    q, k, v = (np.random.default_rng(n).standard_normal((2, 3, 70, 32)).astype(np.float32) for n in range(3))
    s = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) * 0.2
    s = np.where(np.tril(np.ones((70, 70), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    expected = np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v)
    o = np.full_like(q, np.nan)
    kernel(q, k, v, o, scale=0.2, causal=True, config={"BR": 16, "BC": 16}, backend="emulator")
    assert np.abs(o - expected).max() < 1e-4
    assert "those of many trips first" in kernel.compile(
        config={"D": 32, "BR": 16, "BC": 16}, dtypes={"T": "f32"}, consts={"causal": True}, arch="sm_80"
    ).report


def test_messages_come_in_the_order_of_blocks() -> None:
    loop, said = "for i in range(0, row, 16)", "  print(row)\n  Y["
    loud = kernel_of(text(loop).replace("  Y[", said))
    assert block_order.run(loud, debug=True)[0].kind == "linear" and block_order.run(loud)[0].kind == "longest"
    asked = kernel_of(text(loop, options="order = longest").replace("  Y[", said))
    assert block_order.run(asked, debug=True)[0].kind == "longest"
    assert block_order.run(kernel_of(text(loop)), debug=True)[0].kind == "longest"
