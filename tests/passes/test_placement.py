"""placement and assign_layouts: what lives where, and which values share a layout."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from codegen.differential import Variant, kernel_of, lowered

from phobos.ir.abi import Specialization
from phobos.ir.tile import Compute, Dot, KernelIR, Load, Reduce, Value
from phobos.ir.walk import kernel_ops
from phobos.layout.register import RegisterLayout
from phobos.passes import assign_layouts, choose_contractions, pipeline, placement
from phobos.passes.facts import ScalarFacts
from phobos.target import get_target

SPEC = Specialization(dim_multiple=(("N", 16), ("M", 16)))
TWO = (
    "@grid(4)\n"
    "kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[M, N], Z: tensor<f32>[M, N]) {\n"
    "  let r = ctx.block.x * 8\n"
)


def placed(body: str, head: str = TWO) -> tuple[KernelIR, placement.Placement]:
    kernel = pipeline.choose(kernel_of(head + body + "\n}\n"), get_target("sm_90a"), SPEC).kernel
    return kernel, placement.analyse(kernel)


def layouts(body: str, threads: int = 128, head: str = TWO) -> tuple[KernelIR, Mapping[Value, RegisterLayout]]:
    kernel = pipeline.choose(kernel_of(head + body + "\n}\n"), get_target("sm_90a"), SPEC).kernel
    plans, _ = choose_contractions.run(kernel, threads, get_target("sm_90a"))
    place = placement.analyse(kernel)
    return kernel, assign_layouts.run(kernel, plans, place, ScalarFacts(kernel, SPEC), threads)


def result(kernel: KernelIR, kind: type, fn: str | None = None) -> Value:
    return next(
        op.result
        for op in kernel_ops(kernel)
        if isinstance(op, kind) and (fn is None or getattr(op, "fn", None) == fn) and op.result.is_tile
    )


LOAD = "  let x: tile<f32>[8, 16] = X[r :+ 8, 0 :+ 16]\n"


def test_masks_of_positions_are_inlined_for_every_reader() -> None:
    kernel, place = placed(
        LOAD
        + "  let m = iota(1, 16) + r < N - 3\n"
          "  let y = where(m, x, 0.0)\n"
          "  Y[r :+ 8, 0 :+ 16] = y\n"
          "  Z[r :+ 8, 0 :+ 16] = where(m, y * x, 1.0)"
    )
    assert result(kernel, Compute, "lt") in place.inlined
    assert len(place.readers[result(kernel, Compute, "lt")]) == 2


def test_arithmetic_with_one_reader_is_inlined_into_it() -> None:
    kernel, place = placed(LOAD + "  Y[r :+ 8, 0 :+ 16] = exp(x * 2.0)")
    assert result(kernel, Compute, "mul") in place.inlined
    assert result(kernel, Compute, "exp") not in place.inlined  # its reader is a store


def test_work_is_not_repeated_for_several_readers() -> None:
    kernel, place = placed(
        LOAD + "  let e = exp(x)\n  let b = e < x\n  Y[r :+ 8, 0 :+ 16] = where(b, x, 0.0) + rowsum(where(b, 1.0, x))"
    )
    assert result(kernel, Compute, "exp") in place.inlined, "it has one reader"
    assert result(kernel, Compute, "lt") not in place.inlined, "which has two: exp would run twice"


def test_reader_in_another_block_gets_registers() -> None:
    kernel, place = placed(LOAD + "  let e = exp(x)\n  for i in range(3) { Y[r :+ 8, i * 16 :+ 16] = e * f32(i) }")
    assert result(kernel, Compute, "exp") not in place.inlined


@pytest.mark.parametrize("steps", [3, 40])
def test_text_stays_small(steps: int) -> None:
    """j + j * j, again and again: 3^40 operations if every reader evaluated it anew."""
    lines = "".join(f"  let j{i + 1} = j{i} + j{i} * j{i}\n" for i in range(steps))
    tiles = f"kernel k(Y: tensor<i32>[8, 8]) {{\n  let j0: tile<i32>[8, 8] = iota(1)\n{lines}  Y[:, :] = j{steps}\n}}\n"
    lines = "".join(f"  let x{i + 1} = i32(i64(x{i}) * i64(x{i}) % 1000003)\n" for i in range(steps))
    scalars = f"kernel k(Y: tensor<i32>[1], x: i32) {{\n  let x0 = x\n{lines}  Y[0] = x{steps}\n}}\n"
    for text, arguments in (
        (tiles, {"Y": np.zeros((8, 8), np.int32)}),
        (scalars, {"Y": np.zeros(1, np.int32), "x": 12345}),
    ):
        assert len(lowered(kernel_of(text), arguments, Variant())[1].body) < 1000 + 500 * steps


PRODUCT = "  let a = X[r :+ 16, 0 :+ 16]\n  let b = Z[0 :+ 16, 0 :+ 16]\n"


def test_operands_are_staged_only_if_products_alone_read_them() -> None:
    kernel, place = placed(PRODUCT + "  Y[r :+ 16, 0 :+ 16] = dot(a, b)")
    loads = [op.result for op in kernel_ops(kernel) if isinstance(op, Load)]
    assert set(loads) <= place.staged
    held = PRODUCT.replace("let a", "let a: tile<f32>[16, 16]")
    kernel, place = placed(held + "  Y[r :+ 16, 0 :+ 16] = dot(a, b) + a")
    assert len(place.staged) == 1


def test_products_accumulate_where_they_are_added() -> None:
    kernel, place = placed(
        PRODUCT
        + "  var acc: tile<f32>[16, 16] = 0.0\n"
          "  for i in range(4) { acc += dot(a, Z[i :+ 16, 0 :+ 16]) }\n"
          "  Y[r :+ 16, 0 :+ 16] = acc"
    )
    assert place.deferred == {result(kernel, Dot)}
    assert result(kernel, Compute, "add") not in place.inlined
    kernel, place = placed(PRODUCT + "  let p = dot(a, b)\n  Y[r :+ 16, 0 :+ 16] = p + 1.0\n  Z[r :+ 16, 0 :+ 16] = p")
    assert not place.deferred


def test_last_use_counts_where_inlined_readers_stand() -> None:
    kernel, place = placed(
        LOAD
        + "  let s = rowsum(x)\n  let b = broadcast(s, 8, 16)\n  Z[r :+ 8, 0 :+ 16] = x\n  Y[r :+ 8, 0 :+ 16] = b * x"
    )
    last = place.last_uses(kernel.body)
    s = result(kernel, Reduce)
    assert s in last
    reader = kernel.body.ops[last[s]]
    assert isinstance(reader, Compute) and reader.fn == "mul"


# --- layouts -----------------------------------------------------------------------------------


def test_values_joined_by_arithmetic_share_a_layout() -> None:
    kernel, found = layouts(
        LOAD + "  let y: tile<f32>[8, 16] = Z[r :+ 8, 0 :+ 16]\n  Y[r :+ 8, 0 :+ 16] = x * y + exp(x)"
    )
    same = {found[v] for v in found if v.shape == (8, 16)}
    assert len(same) == 1
    assert next(iter(same)).contiguous_run(1) == 4, "16-byte accesses"


def test_loops_and_branches_keep_a_layout() -> None:
    kernel, found = layouts(
        LOAD
        + "  var y = x\n"
          "  for i in range(4) {\n"
          "    if i == 2 { y = x + 1.0 } else { y = y * 2.0 }\n"
          "  }\n"
          "  Y[r :+ 8, 0 :+ 16] = y"
    )
    assert len({found[v] for v in found if v.shape == (8, 16)}) == 1


def test_statistics_are_slices_of_what_they_are_reduced_from() -> None:
    kernel, found = layouts(LOAD + "  let s = rowsum(x)\n  Y[r :+ 8, 0 :+ 16] = x / s")
    x, s = result(kernel, Load), result(kernel, Reduce)
    assert found[s] == found[x].sliced(1)


def test_values_adopt_the_accumulator_of_their_product() -> None:
    kernel, found = layouts(PRODUCT + "  let p = dot(a, b) * 2.0\n  Y[r :+ 16, 0 :+ 16] = p + rowsum(p)", threads=64)
    plans, _ = choose_contractions.run(kernel, 64, get_target("sm_90a"))
    (plan,) = plans.values()
    assert found[result(kernel, Dot)] == plan.c_layout
    assert found[result(kernel, Compute, "mul")] == plan.c_layout
    assert found[result(kernel, Reduce)] == plan.c_layout.sliced(1)


@pytest.mark.parametrize("threads", [32, 96, 128, 256])
def test_every_tile_has_a_layout_of_its_shape(threads: int) -> None:
    kernel, found = layouts(
        LOAD
        + "  let t = transpose(x)\n"
          "  let g = cumsum(t)\n"
          "  let i: tile<i32>[16] = iota(0)\n"
          "  Y[r :+ 8, 0 :+ 16] = transpose(gather(g, i)) + colsum(x)",
        threads=threads,
    )
    tiles = {v for op in kernel_ops(kernel) for v in op.defined() if v.is_tile}
    assert tiles <= set(found)
    for v, layout in found.items():
        assert layout.shape == v.shape and layout.warps == threads // 32
