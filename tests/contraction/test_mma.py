"""The mma.sync room: products of every operand type and arrangement against NumPy in float64, and its fragments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction.products import (
    KINDS,
    assert_product,
    choices,
    flash_text,
    gemm_text,
    kernel_of,
    operand,
    run,
    softmax_product,
)

from phobos import reference
from phobos.compiler import build_program, default_spec, with_kinds
from phobos.contraction import mma_sync
from phobos.contraction.interface import ContractionQuery
from phobos.diagnostics import CompileError
from phobos.emulator.conflicts import conflicts
from phobos.ir.options import ScheduleOptions
from phobos.ir.types import DType
from phobos.layout.shared import conflict_degree
from phobos.runtime.nvrtc import compile_program
from phobos.source import SourceFile
from phobos.target import get_target

RNG = np.random.default_rng(11)
CONFIG = (("BM", 32), ("BN", 64), ("BK", 32))
MMA = "matmul = mma"
INTEGER = """\
@options(matmul = mma)
@autotune(BM in [16, 256], BN in [16, 256], BK in [8, 128])
kernel k(A: tensor<{dtype}>[M, K], B: tensor<{dtype}>[N, K], C: tensor<i32>[M, N]) {{
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<i32>[BM, BN] = 0
  for k in range(0, K, BK) {{
    acc += dot_t(A[row :+ BM, k :+ BK], B[col :+ BN, k :+ BK])
  }}
  C[row :+ BM, col :+ BN] = acc
}}
"""


def gemm_arguments(kind: str, transposed: bool, m: int, n: int, k: int):
    a, exact_a = operand(RNG, kind, (m, k))
    b, exact_b = operand(RNG, kind, (n, k) if transposed else (k, n))
    c = np.full((m, n), np.nan, np.float32)
    return {"A": a, "B": b, "C": c}, exact_a, exact_b.T if transposed else exact_b


@pytest.mark.parametrize("transposed", (False, True), ids=("dot", "dot_t"))
@pytest.mark.parametrize("kind", KINDS)
def test_gemm(kind: str, transposed: bool) -> None:
    kernel = kernel_of(gemm_text(kind, transposed=transposed, options=""), CONFIG, 64)
    arguments, a, b = gemm_arguments(kind, transposed, 48, 80, 112)  # ends within a tile in all three
    done = run(kernel, arguments)
    assert not done.result.reports and not any(done.result.unwritten.values())
    assert_product(arguments["C"], a, b)
    dtype, _, rounding = KINDS[kind]
    assert choices(done.program, "contraction") == [f"mma ({'ieee' if dtype != 'f32' else rounding})"]
    again = {**arguments, "C": np.full_like(arguments["C"], np.nan)}
    reference.run(with_kinds(kernel, get_target("sm_90a")), again)
    assert np.allclose(arguments["C"], again["C"], rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", (np.int8, np.uint8))
def test_integer_gemm_is_exact(dtype: type) -> None:
    info = np.iinfo(dtype)
    a, b = (RNG.integers(info.min, info.max, (n, 160), dtype, endpoint=True) for n in (40, 72))
    c = np.full((40, 72), -1, np.int32)
    kernel = kernel_of(INTEGER.format(dtype="i8" if dtype is np.int8 else "u8"), CONFIG, 64)
    done = run(kernel, {"A": a, "B": b, "C": c})
    assert not done.result.reports and choices(done.program, "contraction") == ["mma (ieee)"]
    assert np.array_equal(c, a.astype(np.int64) @ b.T.astype(np.int64))


@pytest.mark.parametrize("sched", range(4))
@pytest.mark.parametrize("options", (
        MMA, f"{MMA}, stages = 1, overlap = off", f"{MMA}, stages = 3, overlap = on", f"{MMA}, swizzle = on",
        f"{MMA}, swizzle = on, stages = 1", f"{MMA}, swizzle = on, stages = 3",
    ),
)  # fmt: skip
def test_gemm_under_all_schedules(options: str, sched: int) -> None:
    kernel = kernel_of(gemm_text("f16", options=options), (("BM", 32), ("BN", 32), ("BK", 32)), 128)
    arguments, a, b = gemm_arguments("f16", False, 64, 32, 160)
    done = run(kernel, arguments, sched=sched)
    assert not done.result.reports
    assert_product(arguments["C"], a, b)


SHAPES = ((16, 8, 16, 32), (48, 24, 48, 96), (16, 128, 16, 128), (128, 8, 32, 256), (32, 40, 16, 64))


SWIZZLED = (
    (32, 32, 16, 64), (64, 64, 32, 128), (32, 64, 64, 32), (64, 96, 32, 64), (16, 128, 128, 128), (128, 16, 32, 128),
    (32, 48, 48, 32),
)  # fmt: skip


@pytest.mark.parametrize("transposed", (False, True), ids=("dot", "dot_t"))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tiles", SWIZZLED)
def test_swizzled_operands(tiles: tuple[int, int, int, int], kind: str, transposed: bool) -> None:
    """By copies of either kind, through registers where they are converted, whole and ragged."""
    bm, bn, bk, threads = tiles
    text = gemm_text(kind, transposed=transposed, options=f"{MMA}, swizzle = on")
    text = text.replace("@options", "@dynshared\n@options")
    kernel = kernel_of(text, (("BM", bm), ("BN", bn), ("BK", bk)), threads)
    arguments, a, b = gemm_arguments(kind, transposed, bm + 8, bn + 24, 2 * bk + 16)
    done = run(kernel, arguments, record=True)
    assert not done.result.reports and not any(done.result.unwritten.values())
    assert_product(arguments["C"], a, b)
    loads = [c for c in conflicts(done.result.accesses) if c.kind == "ldmatrix"]
    assert loads and all(c.degree == 1.0 for c in loads)


@pytest.mark.parametrize("tiles", SHAPES)
def test_gemm_of_many_shapes(tiles: tuple[int, int, int, int]) -> None:
    bm, bn, bk, threads = tiles
    kernel = kernel_of(gemm_text("bf16", options=MMA), (("BM", bm), ("BN", bn), ("BK", bk)), threads)
    arguments, a, b = gemm_arguments("bf16", False, bm + 5, bn, 2 * bk)
    done = run(kernel, arguments)
    assert not done.result.reports
    assert_product(arguments["C"], a, b)


@pytest.mark.parametrize(
    "kind, depth, br, bc, threads",
    (
        ("f16", 48, 32, 32, 64),
        ("f16", 96, 64, 32, 128),
        ("bf16", 80, 32, 16, 64),
        ("f32 as f16", 80, 32, 16, 64),
        ("f32 as tf32", 48, 32, 32, 64),
    ),
)
def test_attention(kind: str, depth: int, br: int, bc: int, threads: int) -> None:
    text = flash_text(kind, depth, MMA).replace("@options", "@dynshared\n@options")
    kernel = kernel_of(text, (("BR", br), ("BC", bc)), threads)
    rows = (br + 3, 2 * bc + 5, 2 * bc + 5)
    (q, exact_q), (k, exact_k), (v, exact_v) = (operand(RNG, kind, (n, depth)) for n in rows)
    out = np.full((br + 3, depth), np.nan, np.float32)
    scale = float(np.float32(depth**-0.5))
    done = run(kernel, {"Q": q, "K": k, "V": v, "O": out, "scale": scale})
    assert not done.result.reports
    assert [c.split()[0] for c in choices(done.program, "contraction")] == ["mma", "mma"]
    # Probabilities are rounded to the operand type: an error of half a unit each, averaged by the sum.
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "tf32": 2.0**-11}[KINDS[kind][2]]
    expected = softmax_product(exact_q, exact_k, exact_v, scale)
    assert np.max(np.abs(out - expected)) <= 2 * unit * np.max(np.abs(exact_v))


# --- what the room takes and rejects -------------------------------------------------------------


def query(**changes: object) -> ContractionQuery:
    base = ContractionQuery(
        m=64, n=64, k=32, operand=DType.F16, accumulator=DType.F32, kinds=("ieee",), transpose_b=False, warps=4,
        whole_rows=False, options=ScheduleOptions(), target=get_target("sm_90a"),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, reason",
    (
        ({"m": 40}, "m = 40 is not a multiple of 16"),
        ({"n": 20}, "n = 20 is not a multiple of 8"),
        ({"k": 24}, "k = 24 is not a multiple of 16"),
        ({"operand": DType.F32}, "f32 operands stay unrounded without @tensorcore"),
        ({"operand": DType.I8, "accumulator": DType.I32}, "8-bit operands need b with k contiguous"),
        ({"operand": DType.BF16, "target": get_target("sm_75")}, "sm_75 has no bf16 tensor cores"),
        ({"operand": DType.F32, "kinds": ("tf32",), "target": get_target("sm_75")}, "sm_75 has no tf32 tensor cores"),
        ({"warps": 64}, "64 warps cannot share 64 x 64 results"),
        ({"options": ScheduleOptions(matmul="wmma")}, "the option matmul = wmma excludes it"),
    ),
)
def test_reasons_for_rejection(changes: dict[str, object], reason: str) -> None:
    given = mma_sync.reject(query(**changes))
    assert given is not None and given.startswith(reason)


def test_forced_where_it_cannot_is_an_error_with_every_reason() -> None:
    kernel = kernel_of(gemm_text("f16", options=MMA), (("BM", 24), ("BN", 32), ("BK", 16)), 64)
    with pytest.raises(CompileError) as error:
        build_program(kernel, get_target("sm_90a"), default_spec(kernel), SourceFile("case.ph", ""))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "PH0510" and "mma: m = 24 is not a multiple of 16" in diagnostic.notes


# --- layouts -------------------------------------------------------------------------------------


def test_accumulators_are_where_the_instruction_puts_them() -> None:
    # PTX ISA, m16n8k16: c0, c1 at row g = lane / 4, columns 2 t, 2 t + 1 with t = lane % 4; c2, c3 eight rows below
    layout = mma_sync.accumulator_layout(64, 32, 2, 2)
    for warp in range(4):
        for lane in range(32):
            for tile_row in range(2):
                for tile_column in range(2):
                    for c in range(4):
                        row = warp // 2 * 32 + tile_row * 16 + lane // 4 + c // 2 * 8
                        column = warp % 2 * 16 + tile_column * 8 + lane % 4 * 2 + c % 2
                        register = (tile_row * 2 + tile_column) * 4 + c
                        assert layout.positions[warp, lane, register].tolist() == [row, column]


def test_operand_rows_of_matrix_loads_are_free_of_conflicts() -> None:
    queries = (query(), query(k=16), query(k=64), query(k=80, transpose_b=True), query(n=128), query(n=8, warps=1))
    for q in (replace(q, options=replace(q.options, swizzle=swizzle)) for q in queries for swizzle in ("auto", "off")):
        for p in mma_sync.plans(q):
            for layout in (p.a_layout, p.b_layout):
                for row in range(0, layout.shape[0] - 7, 8):
                    for column in range(0, layout.shape[1] - 7, 16 // layout.itemsize):
                        read = [layout.offset((row + r, column)) for r in range(8)]
                        assert conflict_degree(read, 16) == 1.0


@pytest.mark.parametrize("arch", ("sm_75", "sm_80", "sm_90a", "sm_120a"))
def test_gemm_compiles_without_spills(arch: str) -> None:
    target = get_target(arch)
    for kind, bm, bn, bk in (("f16", 128, 128, 32), ("f32 as tf32", 64, 64, 16)):
        if arch == "sm_75" and kind != "f16":
            continue
        kernel = kernel_of(gemm_text(kind, options=MMA), (("BM", bm), ("BN", bn), ("BK", bk)), 256)
        program = build_program(kernel, target, default_spec(kernel), SourceFile("case.ph", ""))
        assert choices(program, "contraction")[0].startswith("mma")
        assert compile_program(program, target).spill_bytes == 0
