"""peel_masks: masks behind a uniform test, only where positions and scalars decide them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from passes.algebra import OFF, run_passes

from phobos import reference
from phobos.ir.tile import Compute, If, KernelIR, Op, Value
from phobos.ir.walk import kernel_ops, walk

ALONE = {**OFF, "peel": "auto"}

TEXT = """\
kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[M, 1], from: i32, to: i32) {
  let row = ctx.block.x * 8
  var total: tile<f32>[8, 1] = 0.0
  for kt in range(0, N, 16) {
    let x = X[row :+ 8, kt :+ 16]
    let y = MASKED
    total += rowsum(y)
  }
  Y[row :+ 8, :] = total
}
"""
SHAPE = (21, 83)


def text_of(mask: str) -> str:
    return TEXT.replace("MASKED", f"where({mask}, x, -1.0)")


def peeled(kernel: KernelIR) -> list[If]:
    return [op for op in kernel_ops(kernel) if isinstance(op, If)]


def outputs(kernel: KernelIR, limits: tuple[int, int], on_op: Any = None) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    arrays = {"X": x, "Y": np.zeros((SHAPE[0], 1), np.float32), "from": limits[0], "to": limits[1]}
    reference.run(kernel, arrays, on_op=on_op)
    return arrays["Y"]


def masks(rows: int = SHAPE[0], columns: int = SHAPE[1], *, limits: tuple[int, int]) -> dict[str, np.ndarray]:
    """What each mask means, on whole positions."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    low, high = limits
    j = np.broadcast_to(j, (rows, columns))
    return {
        "iota(1) < N - kt": j < columns,
        "kt + iota(1) <= row + iota(0)": j <= i,
        "kt + iota(1) > row + iota(0) - to": j > i - high,
        "row + iota(0) >= kt + iota(1)": i >= j,
        "iota(1) + kt < to && iota(1) + kt >= from": (j < high) & (j >= low),
        "iota(1) < to - kt && kt + iota(1) <= row + iota(0) + from": (j < high) & (j <= i + low),
    }


LIMITS = [(0, 83), (5, 40), (-20, 200), (40, 5), (64, 64)]


@pytest.mark.parametrize("mask", masks(limits=(0, 0)))
def test_masks_are_peeled(mask: str) -> None:
    result = run_passes(text_of(mask), **ALONE)
    assert len(peeled(result.after)) == 1
    assert result.choice("mask of y")[0] == "skipped where the mask is true everywhere"


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("mask", masks(limits=(0, 0)))
def test_edge_tiles_alone_pay(mask: str, limits: tuple[int, int]) -> None:
    """Results are the same to the bit, and the masked branch runs for just those tiles that the mask touches."""
    result = run_passes(text_of(mask), **ALONE)
    (branch,) = peeled(result.after)
    (masked,) = [op for op in walk(branch.orelse) if isinstance(op, Compute)]
    touched: set[tuple[int, int]] = set()
    column = [0]

    def watch(op: Op, block: tuple[int, int, int], env: Mapping[Value, Any]) -> None:
        for loop in kernel_ops(result.after):
            for body in loop.blocks():
                if len(body.params) > 1 and body.params[0] in env:
                    column[0] = int(env[body.params[0]])
        if op is masked:
            touched.add((block[0], column[0] // 16))

    np.testing.assert_array_equal(outputs(result.after, limits, watch), outputs(result.before, limits))
    # Tiles reach past the tensor: positions there belong to the tile, too.
    whole = (
        masks(24, 96, limits=limits)[mask] if "N" not in mask else np.arange(96)[None, :] < np.full((24, 1), SHAPE[1])
    )
    edge = {(r, c) for r in range(3) for c in range(6) if not whole[8 * r : 8 * r + 8, 16 * c : 16 * c + 16].all()}
    assert edge <= touched
    if "&&" not in mask:
        assert touched == edge


NOT = {
    "data": "x > 0.0",
    "equality": "iota(1) == to - kt",
    "either": "iota(1) < to - kt || iota(0) < from",
    "negated": "!(iota(1) >= to - kt)",
    "positions multiplied": "iota(1) * iota(0) < to",
    "floats": "f32(iota(1)) < 3.0",
    "data and position": "x > 0.0 && iota(1) < to - kt",
    "loaded positions": "i32(x) + iota(1) < to",
}


@pytest.mark.parametrize("name", NOT)
def test_other_masks_stay(name: str) -> None:
    result = run_passes(text_of(NOT[name]), **ALONE)
    assert not peeled(result.after)
    assert result.choice("mask of y") == ("in every iteration", "its condition does not compare positions with scalars")


def test_masks_outside_loops_stay() -> None:
    text = TEXT.replace("let y = MASKED", "let y = x").replace(
        "Y[row :+ 8, :] = total",
        "let z = where(iota(1) < to, X[row :+ 8, 0 :+ 16], -1.0)\n  Y[row :+ 8, :] = total + rowsum(z)",
    )
    result = run_passes(text, **ALONE)
    assert not peeled(result.after)
    assert result.choice("mask of z") == ("in every block", "it is in no loop")


def test_a_single_column_is_not_worth_a_branch() -> None:
    text = TEXT.replace("let y = MASKED", "let y = x").replace("+= rowsum(y)", "+= where(iota(0) < to, rowsum(y), 0.0)")
    result = run_passes(text, **ALONE)
    assert not peeled(result.after) and not [d for d in result.decisions if d.subject.startswith("mask of")]


def test_a_kept_value_that_must_be_broadcast_stays() -> None:
    text = text_of("iota(1) < to - kt").replace("x, -1.0)", "rowsum(x), x)")
    assert not peeled(run_passes(text, **ALONE).after)


def test_it_can_be_switched_off() -> None:
    result = run_passes(text_of("iota(1) < N - kt"), **OFF)
    assert not peeled(result.after)
    assert result.choice("peel_masks") == ("off", "the option peel = off")


FIXED = {  # masks of positions within the tile alone, and what happens to them
    "iota(1) + kt <= iota(0) + kt": "in every iteration",
    "iota(0) >= iota(1)": "in every iteration",
    "iota(1) < 3 && iota(1) < to - kt": "in every iteration",
    "kt + iota(1) < kt": "in every iteration",
    "iota(1) < 16": "left out",
    "row + iota(0) < row + 8 && iota(1) <= 15": "left out",
    "iota(1) < 16 && iota(1) < to - kt": "skipped where the mask is true everywhere",
}


@pytest.mark.parametrize("mask", FIXED)
def test_what_is_said_is_done(mask: str) -> None:
    """A test that has one answer for every tile is no branch in the kernel, so none is claimed."""
    result = run_passes(text_of(mask), **ALONE)
    choice, reason = result.choice("mask of y")
    selects = [op for op in kernel_ops(result.after) if isinstance(op, Compute) and op.fn == "where"]
    assert choice == FIXED[mask]
    assert bool(peeled(result.after)) == choice.startswith("skipped") and bool(selects) == (choice != "left out")
    assert choice != "in every iteration" or "positions within the tile decide" in reason
    np.testing.assert_array_equal(outputs(result.after, (5, 40)), outputs(result.before, (5, 40)))


def test_a_triangle_within_a_tile_selects_in_every_iteration() -> None:
    result = run_passes(TEXT.replace("MASKED", "tril(x)"), **ALONE)
    assert not peeled(result.after) and result.choice("mask of y")[0] == "in every iteration"
