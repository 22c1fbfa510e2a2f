"""The WMMA room: opaque fragments carried through loops or delivered, in every kind, against NumPy in float64."""

from __future__ import annotations

import re
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
    rounded,
    run,
    softmax_product,
)

from phobos import reference
from phobos.compiler import build_program, build_schedule, default_spec, with_kinds
from phobos.contraction import registry, wmma
from phobos.contraction.interface import ContractionQuery
from phobos.diagnostics import CompileError
from phobos.ir.options import ScheduleOptions
from phobos.ir.scheduled_printer import print_schedule
from phobos.ir.types import DType
from phobos.layout.shared import conflict_degree
from phobos.runtime.nvrtc import compile_program
from phobos.source import SourceFile
from phobos.target import get_target

RNG = np.random.default_rng(7)
CONFIG = (("BM", 32), ("BN", 64), ("BK", 32))


def gemm_arguments(kind: str, transposed: bool, m: int, n: int, k: int):
    a, exact_a = operand(RNG, kind, (m, k))
    b, exact_b = operand(RNG, kind, (n, k) if transposed else (k, n))
    c = np.full((m, n), np.nan, np.float32)
    return {"A": a, "B": b, "C": c}, exact_a, exact_b.T if transposed else exact_b


def main_loop(body: str) -> str:
    """The text of the loop over k."""
    start = body.index("for (int k = 0; k < K")
    depth = 0
    for at in range(start, len(body)):
        depth += {"{": 1, "}": -1}.get(body[at], 0)
        if body[at] == "}" and depth == 0:
            return body[start:at]
    raise ValueError("the loop does not end")


# --- GEMM: fragments carried through the main loop ----------------------------------------------


@pytest.mark.parametrize("transposed", (False, True), ids=("dot", "dot_t"))
@pytest.mark.parametrize("kind", KINDS)
def test_gemm_carries_its_fragments(kind: str, transposed: bool) -> None:
    kernel = kernel_of(gemm_text(kind, transposed=transposed), CONFIG, 64)
    arguments, a, b = gemm_arguments(kind, transposed, 48, 80, 112)  # ends within a tile in all three
    done = run(kernel, arguments)
    assert not done.result.reports and not any(done.result.unwritten.values())
    assert_product(arguments["C"], a, b)
    dtype, _, rounding = KINDS[kind]
    assert choices(done.program, "contraction") == [f"wmma ({'ieee' if dtype != 'f32' else rounding})"]
    first, last = choices(done.program, "accumulation")
    assert first == "carried in opaque fragments" and last.startswith("delivered through")
    loop = main_loop(done.program.body)
    assert "ph_wmma_mma" in loop and "ph_wmma_load_a" in loop
    assert not re.search(r"ph_wmma_store|ph_wmma_load_c|ph_wmma_fill|ph_syncwarp", loop)
    # What the loop writes to shared memory are its operands: asynchronous copies, or stores of converted elements.
    stores = len(re.findall(r"ph_stv\(tile|\btile\[[^]]*\] = ", loop))
    assert (stores == 0) if dtype != "f32" else (2 <= stores <= 4)


@pytest.mark.parametrize("sched", range(4))
@pytest.mark.parametrize("kind", ("f16", "f32 as tf32"))
def test_gemm_under_all_schedules(kind: str, sched: int) -> None:
    kernel = kernel_of(gemm_text(kind, transposed=True), (("BM", 32), ("BN", 32), ("BK", 16)), 128)
    arguments, a, b = gemm_arguments(kind, True, 64, 32, 80)
    done = run(kernel, arguments, sched=sched)
    assert not done.result.reports
    assert_product(arguments["C"], a, b)


OPTIONS = ("stages = 1", "stages = 3, overlap = on", "overlap = off", "pad = off", "vectorize = off")
SHAPES = ((16, 16, 16, 32), (48, 96, 48, 96), (16, 128, 16, 128), (128, 16, 32, 256), (32, 64, 16, 256))


@pytest.mark.parametrize("more", OPTIONS)
def test_gemm_under_options(more: str) -> None:
    kernel = kernel_of(gemm_text("f16", options=f"matmul = wmma, {more}"), (("BM", 64), ("BN", 32), ("BK", 64)), 64)
    arguments, a, b = gemm_arguments("f16", False, 64, 64, 320)
    done = run(kernel, arguments)
    assert not done.result.reports
    assert_product(arguments["C"], a, b)


@pytest.mark.parametrize("tiles", SHAPES)
def test_gemm_of_many_shapes(tiles: tuple[int, int, int, int]) -> None:
    bm, bn, bk, threads = tiles
    kernel = kernel_of(gemm_text("bf16"), (("BM", bm), ("BN", bn), ("BK", bk)), threads)
    arguments, a, b = gemm_arguments("bf16", False, bm + 5, bn, 2 * bk)
    done = run(kernel, arguments)
    assert not done.result.reports
    assert_product(arguments["C"], a, b)


def test_initial_values_enter_the_fragments() -> None:
    arguments, a, b = gemm_arguments("f16", False, 32, 64, 64)
    filled = kernel_of(gemm_text("f16", start="1.5"), CONFIG, 64)
    done = run(filled, arguments)
    assert_product(arguments["C"], a, b, 1.5)
    assert "ph_wmma_fill(acc[i], 1.5f)" in done.program.body
    arguments["C"][...] = start = RNG.standard_normal((32, 64)).astype(np.float32)
    loaded = kernel_of(gemm_text("f16", start="C[row :+ BM, col :+ BN]"), CONFIG, 64)
    done = run(loaded, arguments)
    assert not done.result.reports and "ph_wmma_load_c" in done.program.body
    assert_product(arguments["C"], a, b, start.astype(np.float64))
    assert "ph_wmma_load_c" not in main_loop(done.program.body)


CHAINS = {
    # two products an iteration, one after the other
    "sequence": """\
  for k in range(0, K, BK) {
    acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])
    let j = K - BK - k
    acc = dot(A[row :+ BM, j :+ BK], B[j :+ BK, col :+ BN]) + acc
  }
""",
    # one loop goes on with the sum of another
    "two loops": """\
  for k in range(0, K, BK) { acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN]) }
  for j in range(0, K, BK) { acc += dot(A[row :+ BM, j :+ BK], B[j :+ BK, col :+ BN]) }
""",
    "nested": """\
  for i in range(0, 2) {
    for k in range(0, K, BK) { acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN]) }
  }
""",
}


def chain_text(loops: str) -> str:
    text = gemm_text("f16")
    start = text.index("  for k in")
    return text[:start] + loops + text[text.index("  C[row") :]


@pytest.mark.parametrize("name", CHAINS)
def test_sums_stay_opaque_from_product_to_product(name: str) -> None:
    kernel = kernel_of(chain_text(CHAINS[name]), CONFIG, 64)
    arguments, a, b = gemm_arguments("f16", False, 32, 64, 64)
    done = run(kernel, arguments)
    assert not done.result.reports
    assert_product(arguments["C"], np.concatenate([a, a], axis=1), np.concatenate([b, b], axis=0))
    assert done.program.body.count("ph_wmma_store(") == 1 and "ph_wmma_load_c" not in done.program.body
    assert choices(done.program, "accumulation").count("carried in opaque fragments") == 1


NOT_CARRIED = {
    "scaled": "    acc = acc * 0.5 + dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])\n",
    "read": "    acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])\n    C[row :+ BM, col :+ BN] = acc\n",
    "conditional": "    if k < 64 { acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN]) }\n",
    "left early": "    acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])\n    if k >= 32 { break }\n",
}


@pytest.mark.parametrize("name", NOT_CARRIED)
@pytest.mark.parametrize("sched", (0, 3))
def test_sums_whose_elements_are_needed_are_delivered(name: str, sched: int) -> None:
    loop = "  for k in range(0, K, BK) {\n" + NOT_CARRIED[name] + "  }\n"
    kernel = kernel_of(chain_text(loop), CONFIG, 64)
    arguments, a, b = gemm_arguments("f16", False, 32, 64, 96)
    done = run(kernel, arguments, sched=sched)
    assert not done.result.reports
    assert "carried in opaque fragments" not in choices(done.program, "accumulation")
    if name == "scaled":
        a = a * np.repeat([0.25, 0.5, 1.0], 32)
    elif name != "read":
        a, b = a[:, :64], b[:64]
    assert_product(arguments["C"], a, b)


def test_a_loop_of_no_iterations_delivers_the_initial_value() -> None:
    kernel = kernel_of(gemm_text("f16", start="2.5"), CONFIG, 64)
    arguments, _, _ = gemm_arguments("f16", False, 32, 64, 0)
    done = run(kernel, arguments)
    assert not done.result.reports and (arguments["C"] == 2.5).all()


def test_turing() -> None:
    kernel = kernel_of(gemm_text("f16", transposed=True), CONFIG, 64)
    arguments, a, b = gemm_arguments("f16", True, 40, 64, 80)
    done = run(kernel, arguments, arch="sm_75")
    assert not done.result.reports and "ph_cp_async" not in done.program.body
    assert_product(arguments["C"], a, b)


def test_product_outside_of_a_loop() -> None:
    loops = "  acc = dot(A[row :+ BM, 0 :+ BK], B[0 :+ BK, col :+ BN]) * 2.0\n"
    kernel = kernel_of(chain_text(loops), CONFIG, 64)
    arguments, a, b = gemm_arguments("f16", False, 32, 64, 32)
    done = run(kernel, arguments)
    assert not done.result.reports
    assert_product(arguments["C"], 2.0 * a, b)


# --- attention: results are delivered ------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, depth, br, bc, threads",
    (
        ("f16", 64, 32, 32, 64),
        ("f16", 128, 64, 64, 128),
        ("bf16", 80, 32, 16, 64),
        ("f32 as f16", 80, 32, 16, 64),
        ("f32 as tf32", 64, 32, 32, 64),
    ),
)
def test_attention_delivers(kind: str, depth: int, br: int, bc: int, threads: int) -> None:
    text = flash_text(kind, depth).replace("@options", "@dynshared\n@options")
    kernel = kernel_of(text, (("BR", br), ("BC", bc)), threads)
    rows = (br + 3, 2 * bc + 5, 2 * bc + 5)
    (q, exact_q), (k, exact_k), (v, exact_v) = (operand(RNG, kind, (n, depth)) for n in rows)
    out = np.full((br + 3, depth), np.nan, np.float32)
    scale = float(np.float32(depth**-0.5))
    done = run(kernel, {"Q": q, "K": k, "V": v, "O": out, "scale": scale})
    assert not done.result.reports
    assert [c.split()[0] for c in choices(done.program, "contraction")] == ["wmma", "wmma"]
    assert all(c.startswith("delivered") for c in choices(done.program, "accumulation"))
    # Probabilities are rounded to the operand type: an error of half a unit each, averaged by the sum.
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "tf32": 2.0**-11}[KINDS[kind][2]]
    expected = softmax_product(exact_q, exact_k, exact_v, scale)
    assert np.max(np.abs(out - expected)) <= 2 * unit * np.max(np.abs(exact_v))


def test_row_statistics_need_no_exchange_of_layouts() -> None:
    kernel = kernel_of(flash_text("f16", 64), (("BR", 64), ("BC", 32)), 128)
    program = build_program(kernel, get_target("sm_90a"), default_spec(kernel), SourceFile("case.ph", ""))
    assert choices(program, "conversion") == []
    assert "ReducePublish" not in print_schedule(build_schedule(kernel, get_target("sm_90a"), default_spec(kernel)))


# --- the reference -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_reference_of_the_chosen_kind_agrees(kind: str) -> None:
    kernel = kernel_of(gemm_text(kind), CONFIG, 64)
    arguments, _, _ = gemm_arguments(kind, False, 32, 64, 96)
    done = run(kernel, arguments)
    again = {**arguments, "C": np.full_like(arguments["C"], np.nan)}
    reference.run(with_kinds(kernel, get_target("sm_90a")), again)
    assert not done.result.reports
    assert np.allclose(arguments["C"], again["C"], rtol=0, atol=2e-5)


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
        ({"n": 24}, "n = 24 is not a multiple of 16"),
        ({"k": 24}, "k = 24 is not a multiple of 16"),
        ({"operand": DType.F32, "kinds": ("tf32", "ieee"), "k": 12}, "k = 12 is not a multiple of 8"),
        ({"operand": DType.F32}, "f32 operands stay unrounded without @tensorcore"),
        ({"operand": DType.F32, "kinds": ("tf32x3", "ieee")}, "has no kind tf32x3"),
        ({"operand": DType.F64}, "multiplies f16, bf16 and rounded f32, not f64"),
        ({"operand": DType.I8, "accumulator": DType.I32}, "multiplies f16, bf16 and rounded f32, not i8"),
        ({"operand": DType.BF16, "target": get_target("sm_75")}, "sm_75 has no bf16 tensor cores"),
        ({"operand": DType.F32, "kinds": ("tf32",), "target": get_target("sm_75")}, "sm_75 has no tf32 tensor cores"),
        ({"warps": 32}, "32 warps cannot share 64 x 64 results in fragments of 16 x 16"),
        ({"options": ScheduleOptions(matmul="fma")}, "the option matmul = fma excludes it"),
    ),
)
def test_reasons_for_rejection(changes: dict[str, object], reason: str) -> None:
    assert wmma.reject(query(**changes)) == reason


def test_taken() -> None:
    assert wmma.reject(query()) is None
    assert wmma.reject(query(operand=DType.F32, kinds=("tf32", "ieee"), k=8)) is None
    assert wmma.reject(query(target=get_target("sm_75"))) is None


def test_mma_comes_first_unless_the_option_names_wmma() -> None:
    (free,) = registry.choose([query()])
    assert free.plan is not None and free.plan.room == "mma" and free.rejected[0].room == "wmma"
    (forced,) = registry.choose([query(options=ScheduleOptions(matmul="wmma"))])
    assert forced.plan is not None and forced.plan.room == "wmma"
    assert [r.room for r in forced.rejected] == ["mma", "fma", "wgmma"]


def test_extents_that_do_not_fit_fall_back_with_the_reason() -> None:
    kernel = kernel_of(gemm_text("f16", options=""), (("BM", 24), ("BN", 32), ("BK", 16)), 64)
    program = build_program(kernel, get_target("sm_90a"), default_spec(kernel), SourceFile("case.ph", ""))
    (decision,) = [d for d in program.decisions if d.stage == "contraction"]
    assert decision.choice == "fma (ieee)"
    assert dict(decision.rejected)["wmma"] == "m = 24 is not a multiple of 16"


@pytest.mark.parametrize(
    "text, config, note",
    (
        (gemm_text("f16"), (("BM", 24), ("BN", 32), ("BK", 16)), "wmma: m = 24 is not a multiple of 16"),
        (
            gemm_text("f32 as f16").replace("@tensorcore\n", ""), CONFIG,
            "wmma: f32 operands stay unrounded without @tensorcore",
        ),
        (
            gemm_text("f32 as f16", options="").replace("@tensorcore", "@tensorcore(require)"),
            (("BM", 24), ("BN", 32), ("BK", 16)), "wmma: m = 24 is not a multiple of 16",
        ),
    ),
    ids=("extents", "f32", "require"),
)  # fmt: skip
def test_no_path_is_an_error_with_every_reason(text: str, config: tuple[tuple[str, int], ...], note: str) -> None:
    kernel = kernel_of(text, config, 64)
    with pytest.raises(CompileError) as error:
        build_program(kernel, get_target("sm_90a"), default_spec(kernel), SourceFile("case.ph", ""))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "PH0510" and note in diagnostic.notes
    assert sorted(n.split(":")[0] for n in diagnostic.notes) == sorted([*(r.name for r in registry.ROOMS), "wgmma"])


# --- layouts -------------------------------------------------------------------------------------


def all_plans() -> list[wmma.WmmaPlan]:
    cases = [
        query(), query(m=128, n=128, k=64, warps=8), query(m=48, n=96, warps=3), query(m=16, n=16, warps=1),
        query(transpose_b=True, k=80), query(operand=DType.F32, kinds=("tf32",), k=40),
        query(operand=DType.F32, kinds=("tf32",), k=40, transpose_b=True), query(whole_rows=True, m=64, n=128),
    ]  # fmt: skip
    return [p for q in cases for p in wmma.plans(q)]


def test_delivered_registers_are_those_of_the_warps_own_fragments() -> None:
    for p in all_plans():
        assert isinstance(p, wmma.WmmaPlan)
        assert not p.c_layout.has_replicas and not p.c_layout.has_padding and p.c_layout.registers == 8 * p.mt * p.nt
        for w in range(p.wm * p.wn):
            at = p.c_layout.positions[w].reshape(-1, 2)
            low = np.array([w // p.wn * 16 * p.mt, w % p.wn * 16 * p.nt])
            assert (at.min(axis=0) == low).all() and (at.max(axis=0) == low + [16 * p.mt - 1, 16 * p.nt - 1]).all()


def test_alignment_and_bank_conflicts_of_shared_tiles() -> None:
    for p in all_plans():
        assert isinstance(p, wmma.WmmaPlan)
        for layout in (p.a_layout, p.b_layout):
            # what the instructions ask for: rows of whole 16 bytes, fragments on 32 bytes
            assert layout.pitch * layout.itemsize % 16 == 0
            assert 16 * layout.pitch * layout.itemsize % 32 == 0 and p.depth * layout.itemsize % 16 == 0
        k_rows = [p.a_layout] + ([p.b_layout] if p.query.transpose_b else [])
        if p.a_dtype is not DType.F32:
            k_rows.append(p.b_layout)
        for layout in k_rows:  # matrix loads: eight rows of 16 bytes
            assert conflict_degree([r * layout.pitch * layout.itemsize for r in range(8)], 16) == 1.0
        pitch = p.scratch.pitch * 4
        stores = [(lane // 4) * pitch + lane % 4 * 8 for lane in range(32)]
        assert conflict_degree(stores, 8) == 1.0
        reads = [(lane // p.lanes) * pitch + lane % p.lanes * 16 for lane in range(32)]
        assert conflict_degree(reads, 16) == (1.0 if p.lanes >= 8 else pytest.approx(2.0))


# --- cubins --------------------------------------------------------------------------------------

COMPILED = [
    ("f16", (("BM", 128), ("BN", 128), ("BK", 32)), 256, ""),
    ("f16", (("BM", 128), ("BN", 128), ("BK", 32)), 256, "@launch(256, 2)"),
    ("f32 as f16", (("BM", 64), ("BN", 64), ("BK", 32)), 128, ""),
    ("bf16", (("BM", 64), ("BN", 128), ("BK", 32)), 128, ""),
    ("f32 as tf32", (("BM", 64), ("BN", 64), ("BK", 16)), 128, ""),
]


@pytest.mark.parametrize("arch", ("sm_75", "sm_80", "sm_90a", "sm_120a"))
def test_gemm_compiles_without_spills(arch: str) -> None:
    target = get_target(arch)
    for kind, config, threads, launch in COMPILED:
        if arch == "sm_75" and KINDS[kind][2] != "f16":
            continue
        kernel = kernel_of(gemm_text(kind, more=launch), config, None if launch else threads)
        program = build_program(kernel, target, default_spec(kernel), SourceFile("case.ph", ""))
        binary = compile_program(program, target)
        assert choices(program, "contraction")[0].startswith("wmma")
        assert binary.spill_bytes == 0, (kind, config, binary.registers)


@pytest.mark.parametrize("arch", ("sm_75", "sm_90a"))
def test_attention_compiles_without_spills(arch: str) -> None:
    kernel = kernel_of(flash_text("f16", 64), (("BR", 64), ("BC", 32)), 128)
    program = build_program(kernel, get_target(arch), default_spec(kernel), SourceFile("case.ph", ""))
    assert compile_program(program, get_target(arch)).spill_bytes == 0


def test_rounding_of_operands_is_what_the_oracle_says() -> None:
    values = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8], np.float32)
    assert rounded(values, "f16").tolist() == [1.0, 1 + 2.0**-9, 1 + 2.0**-8]
    assert rounded(values, "tf32").tolist() == [1 + 2.0**-10, 1 + 2.0**-9, 1 + 2.0**-8]
    assert rounded(values, "bf16").tolist() == [1.0, 1.0, 1.0]
