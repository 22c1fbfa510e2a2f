"""The fma room: f32 products of every arrangement against NumPy in float64, and what the arrangements promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from addresses import compare
from codegen.differential import Variant, dims_of, specialization
from contraction.products import DOTS, GEMM, assert_product, choices, kernel_of, run
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.compiler import build_program, default_spec
from phobos.contraction import fma, fma_columns
from phobos.contraction.interface import ContractionQuery
from phobos.emulator.conflicts import conflicts
from phobos.ir.options import ScheduleOptions
from phobos.ir.types import DType
from phobos.runtime.nvrtc import compile_program
from phobos.source import SourceFile
from phobos.target import get_target

RNG = np.random.default_rng(5)
SPACE = "@dynshared @autotune(BM in [16, 256], BN in [16, 256], BK in {8, 9, 16, 32, 64})"


def text(transposed: bool, options: str = "", dtype: str = "f32", start: str = "0.0") -> str:
    b, dot = DOTS[transposed]
    attributes = "\n".join(a for a in (f"@options({options})" if options else "", SPACE) if a)
    return GEMM.format(attributes=attributes, dtype=dtype, b=b, dot=dot, start=start)


def arguments(transposed: bool, m: int, n: int, k: int):
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k) if transposed else (k, n)))
    given = {"A": a, "B": b, "C": np.full((m, n), np.nan, np.float32)}
    return given, a.astype(np.float64), (b.T if transposed else b).astype(np.float64)


def query(**changes) -> ContractionQuery:
    asked = {
        "m": 64, "n": 128, "k": 16, "operand": DType.F32, "accumulator": DType.F32, "kinds": ("ieee",),
        "transpose_b": False, "warps": 4, "whole_rows": False, "options": ScheduleOptions(),
        "target": get_target("sm_90a"),
    }  # fmt: skip
    return ContractionQuery(**{**asked, **changes})


TILES = ((32, 64, 8, 64), (64, 64, 16, 64), (16, 64, 8, 32), (128, 64, 16, 128), (64, 128, 8, 64))


@pytest.mark.parametrize("transposed", (False, True), ids=("dot", "dot_t"))
@pytest.mark.parametrize("bm, bn, bk, threads", TILES)
def test_one_k_at_a_time(bm: int, bn: int, bk: int, threads: int, transposed: bool) -> None:
    kernel = kernel_of(text(transposed), (("BM", bm), ("BN", bn), ("BK", bk)), threads)
    given, a, b = arguments(transposed, bm + 9, 2 * bn - 3, 3 * bk + 5)  # ends within a tile in all three
    done = run(kernel, given)
    assert not done.result.reports and not any(done.result.unwritten.values())
    assert_product(given["C"], a, b)
    (how,) = (d.reason for d in done.program.decisions if d.stage == "contraction")
    assert "one k at a time" in how and ("both transposed" if transposed else "a transposed") in how
    assert any(c.startswith("ring of ") for c in choices(done.program, "staging"))


@pytest.mark.parametrize("sched", range(4))
@pytest.mark.parametrize("options", ("", "stages = 1", "stages = 2", "stages = 4", "overlap = off", "vectorize = off"))
def test_under_all_schedules(options: str, sched: int) -> None:
    kernel = kernel_of(text(False, options), (("BM", 32), ("BN", 64), ("BK", 8)), 64)
    given, a, b = arguments(False, 64, 64, 40)
    done = run(kernel, given, sched=sched)
    assert not done.result.reports
    assert_product(given["C"], a, b)


@pytest.mark.parametrize("arch", ("sm_75", "sm_86"))
def test_other_architectures(arch: str) -> None:
    """Without asynchronous copies a tile would be transposed by stores that meet in a bank."""
    kernel = kernel_of(text(False), (("BM", 32), ("BN", 64), ("BK", 8)), 64)
    given, a, b = arguments(False, 45, 70, 37)
    done = run(kernel, given, arch=arch)
    assert not done.result.reports
    assert_product(given["C"], a, b)
    (how,) = (d.reason for d in done.program.decisions if d.stage == "contraction")
    assert ("one k at a time" in how) == (arch != "sm_75")


def test_the_same_sums_as_the_other_arrangement() -> None:
    """A sum goes over k in order in both."""
    out = []
    for options in ("", "overlap = off"):
        kernel = kernel_of(text(False, options), (("BM", 32), ("BN", 64), ("BK", 16)), 64)
        given, _, _ = arguments(False, 32, 64, 48)
        given |= {n: np.random.default_rng(1).standard_normal(given[n].shape).astype(np.float32) for n in "AB"}
        run(kernel, given)
        out.append(given["C"])
    assert np.array_equal(*out)


@pytest.mark.parametrize("transposed", (False, True), ids=("dot", "dot_t"))
def test_no_conflicts(transposed: bool) -> None:
    kernel = kernel_of(text(transposed), (("BM", 64), ("BN", 128), ("BK", 8)), 128)
    given, _, _ = arguments(transposed, 64, 128, 24)
    done = run(kernel, given, record=True)
    shared = [c for c in conflicts(done.result.accesses) if c.space == "shared"]
    assert shared and {c.degree for c in shared} == {1.0}


@pytest.mark.parametrize("transposed", (False, True), ids=("dot", "dot_t"))
def test_the_trace_knows_its_addresses(transposed: bool) -> None:
    kernel = kernel_of(text(transposed), (("BM", 32), ("BN", 64), ("BK", 8)), 64)
    given, _, _ = arguments(transposed, 40, 64, 24)
    spec = specialization(kernel, given, Variant())
    found = compare(kernel, given, dims_of(kernel, given), spec, SourceFile("case.ph", ""))
    assert found.differences == [] and found.unknown == set() and found.accesses > 0
    assert found.layouts == found.recorded


def test_the_tile_of_a_large_product_spills_nothing() -> None:
    kernel = kernel_of(text(False), (("BM", 128), ("BN", 256), ("BK", 16)), 256)
    target = get_target("sm_90a")
    program = build_program(kernel, target, default_spec(kernel), SourceFile("case.ph", ""))
    binary = compile_program(program, target)
    assert binary.spill_bytes == 0 and binary.registers <= 240


REFUSED = {
    "a loop body of more multiply-adds": query(k=64),
    "an odd number of steps": query(k=15),
    "rows that belong together": query(whole_rows=True),
    "a in registers": query(a_computed=True),
    "no loads of four": query(options=ScheduleOptions(vectorize="off")),
    "no loads ahead": query(options=ScheduleOptions(overlap="off")),
    "f16": query(operand=DType.F16),
    "f64": query(operand=DType.F64, accumulator=DType.F64),
    "integers": query(operand=DType.I32, accumulator=DType.I32),
    "tiles that threads do not share evenly": query(m=40, n=72),
    "no asynchronous copies": query(target=get_target("sm_75")),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_suit(why: str) -> None:
    assert fma_columns.plans(query()) and not fma_columns.plans(REFUSED[why])
    assert fma.plans(REFUSED[why])  # the other arrangement takes it


@settings(max_examples=60)
@given(
    m=st.sampled_from([16, 32, 48, 64, 96, 128, 256]), n=st.sampled_from([16, 32, 64, 80, 128, 256]),
    k=st.sampled_from([2, 8, 16, 32]), warps=st.sampled_from([1, 2, 3, 4, 8]), transposed=st.booleans(),
)  # fmt: skip
def test_every_result_has_one_thread(m: int, n: int, k: int, warps: int, transposed: bool) -> None:
    for plan in fma_columns.plans(query(m=m, n=n, k=k, warps=warps, transpose_b=transposed)):
        positions = plan.c_layout.positions.reshape(-1, 2)
        assert len({tuple(p) for p in positions.tolist()}) == m * n == len(positions)
        assert plan.steps == k and plan.steps * plan.tm * plan.tn <= 2048
        # What is read together lies together: four rows, four columns.
        rows = plan.c_layout.positions[0, 0].reshape(plan.tm, plan.tn, 2)
        assert np.all(np.diff(rows[:4, 0, 0]) == 1) and np.all(np.diff(rows[0, :4, 1]) == 1)


def test_a_product_outside_of_a_loop() -> None:
    once = (
        "kernel k(A: tensor<f32>[M, 16], B: tensor<f32>[16, N], C: tensor<f32>[M, N]) {\n"
        "  let row = ctx.block.y * 32\n  let col = ctx.block.x * 64\n"
        "  C[row :+ 32, col :+ 64] = dot(A[row :+ 32, :], B[:, col :+ 64])\n}\n"
    )
    kernel = replace(kernel_of(once, ()))
    given, a, b = arguments(False, 50, 100, 16)
    done = run(kernel, given)
    assert not done.result.reports and not any(done.result.unwritten.values())
    assert_product(given["C"], a, b)
