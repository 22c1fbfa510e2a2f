"""choose_threads and choose_contractions, and the errors of lowering."""

from __future__ import annotations

from dataclasses import replace

import pytest
from codegen.differential import kernel_of

from phobos.diagnostics import CompileError
from phobos.ir.abi import Specialization
from phobos.ir.tile import Dot, KernelIR
from phobos.ir.walk import kernel_ops
from phobos.passes import choose_contractions, choose_threads, pipeline
from phobos.target import get_target


def with_threads(kernel: KernelIR, threads: int | None) -> KernelIR:
    return replace(kernel, launch=replace(kernel.launch, threads=threads))


COPY = """kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {{
  let i = ctx.block.x * {0}
  Y[i :+ {0}] = X[i :+ {0}] + 1.0
}}
"""
GEMM = """{attribute}
@grid(ceildiv(N, {n}), ceildiv(M, {m}))
kernel k(A: tensor<{dtype}>[M, K], B: tensor<{dtype}>[K, N], C: tensor<{acc}>[M, N]) {{
  var acc: tile<{acc}>[{m}, {n}] = 0
  for k0 in range(0, K, {k}) {{
    acc += dot(A[ctx.block.y * {m} :+ {m}, k0 :+ {k}], B[k0 :+ {k}, ctx.block.x * {n} :+ {n}])
  }}
  C[ctx.block.y * {m} :+ {m}, ctx.block.x * {n} :+ {n}] = acc
}}
"""


def gemm(attribute: str = "", dtype: str = "f32", m: int = 64, n: int = 64, k: int = 16, acc: str = "f32") -> KernelIR:
    zero = "0" if acc == "i32" else "0.0"
    return kernel_of(
        GEMM.replace("= 0\n", f"= {zero}\n").format(attribute=attribute, dtype=dtype, m=m, n=n, k=k, acc=acc)
    )


@pytest.mark.parametrize("extent", [1, 7, 32, 100, 256, 1000, 1024, 4096, 8192, 32768])
def test_elementwise_blocks_have_enough_work_a_thread(extent: int) -> None:
    threads, decision = choose_threads.run(kernel_of(COPY.format(extent)))
    assert threads % 32 == 0 and 32 <= threads <= 1024
    each = -(-extent // threads)
    assert each <= 32 and (each >= 4 or threads == 32 or extent < threads * 8)
    assert str(threads) in decision.choice and decision.reason


def test_products_get_four_rows_a_warp() -> None:
    for m in (1, 4, 16, 64, 128):
        threads, _ = choose_threads.run(gemm(m=m))
        assert 32 <= threads <= 256
        assert threads == 32 or threads // 32 * 4 <= max(m, 4)


@pytest.mark.parametrize("threads", [32, 96, 1024])
def test_launch_decides(threads: int) -> None:
    assert choose_threads.run(with_threads(kernel_of(COPY.format(64)), threads))[0] == threads


@pytest.mark.parametrize("threads, better", [(1, 32), (33, 64), (100, 128), (1056, 1024), (0, 32)])
def test_no_such_block(threads: int, better: int) -> None:
    with pytest.raises(CompileError) as caught:
        choose_threads.run(with_threads(kernel_of(COPY.format(64)), threads))
    (d,) = caught.value.diagnostics
    assert d.code == "PH0501" and f"@launch({better})" in (d.help or "")


# --- products ----------------------------------------------------------------------------------


def kinds(kernel: KernelIR, arch: str = "sm_90a") -> tuple[list[str | None], str]:
    """(kind of each product, room of the first)."""
    chosen = pipeline.choose(kernel, get_target(arch), Specialization())
    decision = next(d for d in chosen.decisions if d.stage == "contraction")
    return [op.kind for op in kernel_ops(chosen.kernel) if isinstance(op, Dot)], decision.choice.split()[0]


@pytest.mark.parametrize(
    "attribute, dtype, shape, arch, kind, room",
    [
        ("", "f32", (64, 64, 16), "sm_90a", "ieee", "fma"),
        ("@tensorcore", "f32", (64, 64, 16), "sm_90a", "f16", "mma"),
        ("@tensorcore(bf16)", "f32", (64, 64, 16), "sm_90a", "bf16", "mma"),
        ("@tensorcore(bf16)", "f32", (64, 64, 16), "sm_75", "ieee", "fma"),
        ("@tensorcore", "f32", (64, 64, 5), "sm_90a", "ieee", "fma"),
        ("@tensorcore", "f32", (20, 12, 16), "sm_90a", "ieee", "fma"),
        ("", "f16", (64, 64, 16), "sm_90a", "ieee", "mma"),
        ("", "f16", (64, 64, 5), "sm_90a", "ieee", "fma"),
        ("@options(matmul = fma)", "f16", (64, 64, 16), "sm_90a", "ieee", "fma"),
        ("", "f64", (64, 64, 16), "sm_90a", "ieee", "fma"),
    ],
)
def test_rooms_and_kinds(
    attribute: str, dtype: str, shape: tuple[int, int, int], arch: str, kind: str, room: str
) -> None:
    m, n, k = shape
    acc = "f64" if dtype == "f64" else "f32"
    assert kinds(gemm(attribute, dtype, m, n, k, acc), arch) == ([kind], room)


def test_no_way_to_compute() -> None:
    """PH0510 names every room and why; `require` is what can be dropped."""
    with pytest.raises(CompileError) as caught:
        kinds(gemm("@tensorcore(f16, require)", k=5))
    (d,) = caught.value.diagnostics
    assert d.code == "PH0510" and "64 x 64 x 5" in d.message
    assert {n.split(":")[0] for n in d.notes} >= {"mma", "fma"}
    assert "require" in (d.help or "")


REQUIRE = "@tensorcore({}require) @options(matmul = {})"
REFUSED = {  # attribute, dtype, k: what is said of fma; without what it is computed, and by what
    "too short": (REQUIRE.format("", "auto"), "f16", 8, "does not use", "`require`", "fma"),
    "bf16": (REQUIRE.format("bf16, ", "auto"), "bf16", 5, "does not use", "`require`", "fma"),
    "8-bit": (REQUIRE.format("", "auto"), "i8", 16, "does not use", "`require`", "fma"),
    "no path": (REQUIRE.format("", "auto"), "f64", 16, "does not use", "`require`", "fma"),
    "8-bit floats": (REQUIRE.format("", "auto"), "f8e4m3", 32, "does not use", "`require`", "fma"),
    "multiply-adds": (REQUIRE.format("", "fma"), "f16", 16, "does not use", "`matmul = fma`", "mma"),
    "both": (
        REQUIRE.format("", "wmma"), "f32", 5, "unrounded",
        "`matmul = wmma` and `require`", "fma in IEEE f32",
    ),
    "f32": (
        REQUIRE.format("tf32, ", "auto"), "f32", 5, "unrounded", "`require`", "fma in IEEE f32",
    ),
    "not built": ("@options(matmul = wgmma)", "f16", 16, "excludes it", "`matmul = wgmma`", "mma"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_required_tensor_cores_and_the_way_out(case: str) -> None:
    """`require` holds for operands of every dtype, and the help is what really works."""
    attribute, dtype, k, fma, without, by = REFUSED[case]
    acc = {"f64": "f64", "i8": "i32"}.get(dtype, "f32")
    with pytest.raises(CompileError) as caught:
        kinds(gemm(attribute, dtype, k=k, acc=acc))
    (d,) = caught.value.diagnostics
    assert d.code == "PH0510" and d.help == f"without {without} it is computed by {by}"
    assert {n.split(":")[0] for n in d.notes} == {"mma", "wmma", "fma", "wgmma"}
    assert fma in next(n for n in d.notes if n.startswith("fma"))
    assert ("not " + dtype in str(d.notes)) == (dtype in ("f64", "f8e4m3", "i8"))
    assert d.notes[0] == "wgmma: not built in this version" or case != "not built"


def test_required_tensor_cores_that_there_are() -> None:
    for dtype in ("f16", "bf16", "f32"):
        assert kinds(gemm(REQUIRE.format("", "auto"), dtype))[1] == "mma"


@pytest.mark.parametrize("dtype, others", [("f16", ("wmma", "fma")), ("f32", ("mma", "wmma"))])
def test_report_says_of_every_other_path_why_not(dtype: str, others: tuple[str, ...]) -> None:
    chosen = pipeline.choose(gemm("", dtype), get_target("sm_90a"), Specialization())
    (d,) = [d for d in chosen.decisions if d.stage == "contraction"]
    assert [room for room, _ in d.rejected] == [*others, "wgmma"]
    tried = "mma is tried first and takes it" if dtype == "f16" else "f32 operands stay unrounded without @tensorcore"
    assert {reason for room, reason in d.rejected if room != "wgmma"} == {tried}


def test_report_says_what_was_not_taken_and_why() -> None:
    chosen = pipeline.choose(gemm("@tensorcore", k=5), get_target("sm_90a"), Specialization())
    d = next(d for d in chosen.decisions if d.stage == "contraction")
    assert "stay unrounded" in d.reason or "unrounded" in d.reason
    assert "mma" in [name for name, _ in d.rejected]


def test_every_product_is_named_in_one_run() -> None:
    text = """
    @tensorcore(f16, require)
    kernel k(A: tensor<f32>[16, 5], B: tensor<f32>[5, 16], C: tensor<f32>[16, 16]) {
      C[:, :] = dot(A[:, :], B[:, :])
      C[:, :] = dot(C[:, 0 :+ 5], B[:, :])
    }
    """
    with pytest.raises(CompileError) as caught:
        kinds(kernel_of(text))
    assert [d.code for d in caught.value.diagnostics] == ["PH0510", "PH0510"]


@pytest.mark.parametrize("threads", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (16, 8, 32), (64, 48, 17), (100, 36, 4)])
@pytest.mark.parametrize("transposed", [False, True])
def test_fma_plans_cover_their_result(shape: tuple[int, int, int], threads: int, transposed: bool) -> None:
    """Whatever the shape: every result has an owner, operands have room, and vectors divide what they run over."""
    from phobos.contraction import fma
    from phobos.contraction.interface import ContractionQuery
    from phobos.ir.types import DType

    m, n, k = shape
    query = ContractionQuery(
        m=m, n=n, k=k, operand=DType.F32, accumulator=DType.F32, kinds=("ieee",), transpose_b=transposed,
        warps=threads // 32, whole_rows=False, a_computed=False, options=gemm().options, target=get_target("sm_90a"),
    )  # fmt: skip
    assert fma.reject(query) is None
    plans = fma.plans(query)
    assert plans
    for plan in plans:
        assert plan.c_layout.shape == (m, n) and plan.c_layout.warps == threads // 32
        assert int(plan.c_layout.owners.sum()) == m * n
        assert plan.a_layout.shape == (m, k)
        assert plan.b_layout.shape == ((n, k) if transposed else (k, n))
        assert k % plan.kv == 0 and plan.a_layout.pitch % plan.kv == 0
        assert (plan.b_layout.pitch % (plan.kv if transposed else plan.nv)) == 0
        assert transposed or n % plan.nv == 0


def test_rows_that_line_up() -> None:
    """Two products of one row statistic share how rows are split over warps and lanes."""
    text = """
    kernel k(Q: tensor<f32>[N, 32], K: tensor<f32>[32, 32], O: tensor<f32>[N, 32]) {
      let q = Q[ctx.block.x * 64 :+ 64, :]
      let s = dot_t(q, K[:, :])
      let p = exp(s - rowmax(s))
      O[ctx.block.x * 64 :+ 64, :] = dot(p, K[:, :]) / rowsum(p)
    }
    """
    kernel = kernel_of(text)
    plans, _ = choose_contractions.run(kernel, 128, get_target("sm_90a"))
    assert len({plan.row_split for plan in plans.values()}) == 1
    assert next(iter(plans.values())).row_split[0] == 4, "a warp owns whole rows"
