"""The cost model ranks the obviously worse below the better; the default choice follows it and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import phobos
from phobos import resources
from phobos.diagnostics import CompileError
from phobos.runtime.pipeline import Request
from phobos.semantic.signature import signatures
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target
from phobos.tuning import default
from phobos.tuning.model import Estimate, estimate

ATTENTION = {"Nq": 4096, "Nk": 4096, "D": 64}
MATRICES = {"M": 4096, "N": 4096, "K": 4096}


def estimated(example: str, dims: Mapping[str, int], arch: str = "sm_90a", **config: Any) -> Estimate:
    kernel = phobos.load(resources.examples_dir() / example)
    request = Request(kernel=kernel.name, config=tuple(sorted(config.items())))
    return estimate(kernel._frontend.ir(request), get_target(arch), dims)


@pytest.mark.parametrize(
    "example, dims, good, bad",
    [
        ("gemm_fp32.ph", MATRICES, {"BM": 64, "BN": 128, "BK": 16}, {"BM": 16, "BN": 16, "BK": 8}),
        ("gemm_fp32.ph", MATRICES, {"BM": 64, "BN": 128, "BK": 16}, {"BM": 256, "BN": 256, "BK": 8}),
        ("flash_attention_fp32.ph", ATTENTION, {"BR": 32, "BC": 64}, {"BR": 4, "BC": 4}),
        ("flash_attention_fp32.ph", ATTENTION, {"BR": 64, "BC": 64}, {"BR": 128, "BC": 4}),
        ("softmax_fp32.ph", {"M": 8192, "N": 8192}, {"BR": 1, "BN": 8192}, {"BR": 1, "BN": 64}),
    ],
)
def test_the_obviously_worse_costs_more(
    example: str, dims: Mapping[str, int], good: dict[str, int], bad: dict[str, int]
) -> None:
    better, worse = estimated(example, dims, **good), estimated(example, dims, **bad)
    assert 0 < better.cycles and 1.3 * better.cycles < worse.cycles


def test_more_work_costs_more() -> None:
    small = estimated("gemm_fp32.ph", {"M": 1024, "N": 1024, "K": 1024}, BM=64, BN=64, BK=16)
    large = estimated("gemm_fp32.ph", MATRICES, BM=64, BN=64, BK=16)
    assert large.cycles > 8 * small.cycles and large.blocks == 16 * small.blocks


def test_fewer_multiprocessors_cost_more() -> None:
    config = {"BM": 64, "BN": 64, "BK": 16}
    assert (
        estimated("gemm_fp32.ph", MATRICES, "sm_75", **config).cycles
        > estimated("gemm_fp32.ph", MATRICES, "sm_90a", **config).cycles
    )


def test_what_cannot_fit_says_why() -> None:
    found = estimated("gemm_fp32.ph", MATRICES, "sm_75", BM=256, BN=256, BK=64)
    assert found.why_not is not None and "bytes of shared memory" in found.why_not


def test_the_default_keeps_promises_that_it_can_keep() -> None:
    kernel = phobos.load(resources.examples_dir() / "flash_attention_fp32.ph")
    for size in (48, 100, 4096):
        config = kernel.compile(dims={"Nq": size, "Nk": size}, arch="sm_90a").configuration
        assert size % config["BR"] == 0 and size % config["BC"] == 0
    chosen = kernel.compile(dims={"Nq": 4096, "Nk": 4096}, arch="sm_90a")
    assert "1 other cannot run, D=64, BR=128, BC=128: " in chosen.report
    assert chosen.configuration["BR"] >= 16 and "cost model, best of 35" in chosen.report


def test_an_error_of_every_configuration_is_reported_as_itself() -> None:
    text = """@autotune(BN in [64, 256], W in {1, 2})
kernel k(X: tensor<f32>[N]) {
  let i = ctx.block.x * BN
  X[i :+ BN] = unknown + f32(W)
}"""
    for config in ({}, {"BN": 64}):  # also where the caller pins a name
        with pytest.raises(phobos.CompileError) as raised:
            phobos.jit(text).compile(config=config, arch="sm_80")
        assert [d.code for d in raised.value.diagnostics] == ["PH0201"]
    with pytest.raises(phobos.CompileError) as raised:
        phobos.jit(text.replace("unknown", "1.0")).compile(config={"BN": 65}, arch="sm_80")
    (found,) = raised.value.diagnostics
    assert found.code == "PH0308" and "65" in found.message


def test_the_reason_names_the_extents_that_it_had_to_guess() -> None:
    kernel = phobos.load(resources.examples_dir() / "softmax_fp32.ph")
    assert "M, N taken as 4096" in kernel.compile(arch="sm_90a").report
    assert "N taken as 4096" in kernel.compile(arch="sm_90a", dims={"M": 64}).report
    assert "taken as" not in kernel.compile(arch="sm_90a", dims={"M": 64, "N": 64}).report


def test_a_reason_is_given_once_with_what_each_way_lacks() -> None:
    text = """
@options(matmul = wmma)
@autotune(BM in [32, 128], BK in [16, 64])
kernel nt(A: tensor<f32>[M, K], B: tensor<f32>[N, K], C: tensor<f32>[M, N]) {
  var acc: tile<f32>[BM, 32] = 0.0
  for k in range(0, K, BK) { acc += dot_t(A[ctx.block.x * BM :+ BM, k :+ BK], B[0 :+ 32, k :+ BK]) }
  C[ctx.block.x * BM :+ BM, 0 :+ 32] = acc
}
"""
    module = parse(SourceFile("nt.ph", text))
    with pytest.raises(CompileError) as caught:
        default.choose(signatures(module)[0], module, {}, {}, get_target("sm_90a"))
    (diagnostic,) = caught.value.diagnostics
    (note,) = diagnostic.notes
    assert diagnostic.code == "PH0540"
    assert note.startswith("BM=32, BK=16 and 8 more: no way to compute this product: ")
    assert "wmma: f32 operands stay unrounded without @tensorcore" in note


GEMM = """
{head}
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 128])
kernel g(A: tensor<f16>[M, K], B: tensor<f16>[K, N], C: tensor<{out}>[M, N]) {{
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = 0.0
  for k in range(0, K, BK) {{
    acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])
  }}
  C[row :+ BM, col :+ BN] = acc
}}
"""


@pytest.mark.parametrize(
    "head, out",
    [
        ("@options(stages = 6)\n@dynshared", "f32"),  # six stages of the tiles that are best otherwise do not fit
        ("@options(stages = 5)\n@dynshared", "f16"),
        ("", "f16"),  # the result goes through shared memory too
        ("@options(matmul = wmma)", "f32"),
    ],
)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_120a"])
def test_the_default_can_be_compiled(head: str, out: str, arch: str) -> None:
    kernel = phobos.jit(GEMM.format(head=head, out=out))
    for dims in ({}, {"M": 4096, "N": 4096, "K": 4096}):
        assert kernel.compile(arch=arch, dims=dims).shared_bytes > 0


@pytest.mark.parametrize("values", ["{1, 2, 4}", "{4, 2, 1}"])
@pytest.mark.parametrize("how", ["@options(stages = S)", ""])
def test_the_stages_that_a_text_leaves_open(values: str, how: str) -> None:
    """Not the first value that is listed, and not the one without a ring."""
    text = GEMM.format(head=f"@dynshared\n{how}", out="f32").replace("@autotune(", f"@autotune(S in {values}, ")
    if not how:
        text = text.replace("  for k in", "  @pipeline(S)\n  for k in")
    module = parse(SourceFile("g.ph", text))
    pinned = {"BM": 128, "BN": 128, "BK": 32}
    config, _ = default.choose(signatures(module)[0], module, {}, {}, get_target("sm_90a"), pinned=pinned)
    assert config["S"] == 4


@pytest.mark.parametrize("stages", [8, 12, 16])
def test_the_default_fits_where_little_does(stages: int) -> None:
    text = GEMM.format(head=f"@tensorcore(bf16x3)\n@options(stages = {stages})", out="f32").replace("<f16>", "<f32>")
    text = text.replace("[32, 256]", "[16, 256]")
    assert phobos.jit(text).compile(arch="sm_90a", dims={"M": 4096, "N": 4096, "K": 4096}).shared_bytes > 0


RESULT_IN_SHARED_MEMORY = """
@autotune({space})
{head}
kernel g(A: tensor<f32>[M, K], B: tensor<f32>[N, K], C: tensor<f32>[M, N], D: tensor<f32>[M, N]) {{
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = 0.0
  for k in range(0, K, BK) {{ acc += dot_t(A[row :+ BM, k :+ BK], B[col :+ BN, k :+ BK]) }}
  C[row :+ BM, col :+ BN] = acc + D[row :+ BM, col :+ BN]
}}
"""


@pytest.mark.parametrize(
    "head, space, arch",
    [
        ("@tensorcore(tf32) @options(pad = off)", "BM in {160}, BN in {80, 128, 192}, BK in {32}", "sm_90a"),
        (
            "@tensorcore(bf16) @options(stages = 2, matmul = fma, swizzle = on)",
            "BM in {128, 192}, BN in {128, 160, 256}, BK in {32, 48, 96}", "sm_75",
        ),
    ],
)  # fmt: skip
def test_the_default_fits_where_what_needs_room_is_no_operand(head: str, space: str, arch: str) -> None:
    text = RESULT_IN_SHARED_MEMORY.format(head=head, space=space)
    if arch == "sm_75":
        text = text.replace("[N, K]", "[K, N]").replace("dot_t", "dot")
        text = text.replace("B[col :+ BN, k :+ BK]", "B[k :+ BK, col :+ BN]")
    kernel = phobos.jit(text)
    assert kernel.compile(arch=arch, dims={"M": 100, "N": 100, "K": 7}).shared_bytes > 0


def test_a_block_may_take_all_shared_memory_of_an_sm_of_turing() -> None:
    text = RESULT_IN_SHARED_MEMORY.replace("<f32>[M, K]", "<f16>[M, K]").replace("<f32>[N, K]", "<f16>[N, K]")
    space = "BM in {96}, BN in {32, 192}, BK in {256}"
    kernel = phobos.jit(text.format(head="@options(pad = off) @dynshared", space=space))
    assert kernel.compile(arch="sm_75", dims={"M": 100, "N": 100, "K": 7}).shared_bytes == 65536


def test_of_a_large_space_every_value_is_looked_at() -> None:
    text = RESULT_IN_SHARED_MEMORY.replace("<f32>[M, K]", "<f16>[M, K]").replace("<f32>[N, K]", "<f16>[N, K]")
    many = "BM in {16, 32, 48, 64, 80, 96}, BN in {16, 32, 48, 64, 80, 96}, U in {1, 2, 3, 4, 5, 6}"
    text = text.format(head="@options(matmul = mma) @dynshared", space=f"{many}, BK in {{17, 16, 33, 32, 65, 64}}")
    text = text.replace("for k in", "for<unroll U> k in")
    assert phobos.jit(text).compile(arch="sm_90a", dims={"M": 64, "N": 64, "K": 64}).configuration["BK"] in (16, 32, 64)
    with pytest.raises(CompileError, match="PH0540") as caught:
        phobos.jit(text.replace("16, 33, 32, 65, 64", "33, 65, 67, 69, 71")).compile(arch="sm_90a")
    assert any("looked at" in note and "of 1296" in note for note in caught.value.diagnostics[0].notes)


def test_the_choice_says_what_was_out() -> None:
    text = RESULT_IN_SHARED_MEMORY.format(head="", space="BM in {16, 32}, BN in {16, 32}, BK in {16}")
    slip = text.replace("D[row :+ BM, col :+ BN]", "D[row :+ BM, col :+ BM]")
    report = phobos.jit(slip).compile(arch="sm_90a", dims={"M": 64, "N": 64, "K": 64}).report
    assert "best of 2" in report and "2 others cannot run, BM=16, BN=32, BK=16: " in report


def test_an_extent_that_is_chosen_from_a_space_is_named() -> None:
    """Estimates of different head sizes are of different problems."""
    kernel = phobos.load(resources.examples_dir() / "masked_attention_fp32.ph")
    said = "D is an extent of the arguments, and none was given"
    given = {"arch": "sm_90a", "consts": {"causal": True}}
    assert said in kernel.compile(**given).report
    assert said not in kernel.compile(**given, dims={"D": 64}).report
    assert said not in kernel.compile(**given, config={"D": 64}).report
