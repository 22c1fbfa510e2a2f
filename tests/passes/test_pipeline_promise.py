"""`@pipeline(n)` before a loop: n stages, or an error that says why not."""

from __future__ import annotations

import re

import numpy as np
import pytest

import phobos

TEXT = """
@dynshared
@tensorcore
@launch(64)
@options({options})
kernel g(A: tensor<{dtype}>[M, K], B: tensor<f16>[K, N], C: tensor<f32>[M, N]) {{
  let row = ctx.block.y * 32
  let col = ctx.block.x * 32
  var acc: tile<f32>[32, 32] = 0.0
  {promise}
  for k in range(0, K, 16) {{
    {body}
  }}
  C[row :+ 32, col :+ 32] = acc
}}
"""
PRODUCT = "acc += dot(A[row :+ 32, k :+ 16], B[k :+ 16, col :+ 32])"


def text(promise: str, body: str = PRODUCT, dtype: str = "f16", options: str = "matmul = auto") -> str:
    return TEXT.format(promise=promise, body=body, dtype=dtype, options=options)


def rings(compiled: phobos.CompiledKernel) -> set[int]:
    return {int(n) for n in re.findall(r"ring of (\d+) stages", str(compiled.report))}


@pytest.mark.parametrize("options", ["matmul = auto", "stages = 1", "stages = 3", "matmul = fma", "matmul = wmma"])
@pytest.mark.parametrize("stages", [1, 2, 3, 5, 16])
def test_the_loop_has_the_stages(stages: int, options: str) -> None:
    kernel = phobos.jit(text(f"@pipeline({stages})", options=options))
    compiled = kernel.compile(arch="sm_80")
    assert rings(compiled) == ({stages} if stages > 1 else set())
    waits = re.findall(r"ph_cp_wait<(\d+)>\(\)", compiled.cuda)
    assert set(waits) == ({str(stages - 2)} if stages > 1 else set())


@pytest.mark.parametrize("stages", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("depth", [16, 48, 96])
def test_it_computes_the_same(stages: int, depth: int) -> None:
    rng = np.random.default_rng(stages * 100 + depth)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((40, depth), (depth, 48)))
    c = np.full((40, 48), 7, np.float32)
    phobos.jit(text(f"@pipeline({stages})"))(a, b, c, backend="emulator")
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)


def test_other_loops_keep_theirs() -> None:
    both = text("@pipeline(2)").replace(
        "  C[row", f"  for k in range(0, K, 16) {{\n    {PRODUCT}\n  }}\n  C[row"
    )
    assert rings(phobos.jit(both).compile(arch="sm_80")) == {2, 4}


def test_what_is_widened_and_rounded_back_keeps_it() -> None:
    widened = PRODUCT.replace("A[row :+ 32, k :+ 16]", "f32(A[row :+ 32, k :+ 16])")
    assert rings(phobos.jit(text("@pipeline(3)", widened)).compile(arch="sm_80")) == {3}


BROKEN = {
    "no product": ("@pipeline(2)", "acc += f32(A[row :+ 32, k :+ 32])", "f16", "sm_80", "no tile that a product reads"),
    "converted": (
        "@pipeline(3)", PRODUCT.replace("A[row :+ 32, k :+ 16]", "f16(A[row :+ 32, k :+ 16])"), "f32", "sm_80",
        "`A` goes to registers: the text converts `A` to f16",
    ),
    "converted and used twice": (
        "@pipeline(2)", "let a = f32(A[row :+ 32, k :+ 16])\n    acc += dot(a, B[k :+ 16, col :+ 32]) + rowsum(a)",
        "f16",
        "sm_80", "`A` goes to registers: what is loaded of `A` is converted to and fro, or needed",
    ),
    "computed": (
        "@pipeline(2)", PRODUCT.replace("A[row :+ 32, k :+ 16]", "f16(2.0 * f32(A[row :+ 32, k :+ 16]))"), "f16",
        "sm_80", "`A` goes to registers: the product reads what is computed from `A`",
    ),
    "filled": (
        "@pipeline(3)", PRODUCT.replace("k :+ 16],", "k :+ 16] else 1.0,", 1), "f16", "sm_80", "become 1",
    ),
    "no asynchronous copies": ("@pipeline(3)", PRODUCT, "f16", "sm_75", "no asynchronous copies"),
    "under a condition": (
        "@pipeline(2)", f"acc += dot(A[row :+ 32, 0 :+ 16], B[k :+ 16, col :+ 32])\n    if k > 16 {{ {PRODUCT} }}",
        "f16", "sm_80", "in a branch or an inner loop",
    ),
    "in an inner loop": (
        "@pipeline(2)", f"{PRODUCT}\n    for j in range(0, K, 16) {{ {PRODUCT.replace('k :+', 'j :+')} }}",
        "f16", "sm_80", "in a branch or an inner loop",
    ),
    "to registers in an inner loop": (
        "@pipeline(2)", f"{PRODUCT}\n    for j in range(0, 3) {{ acc += f32(A[row :+ 32, j + k :+ 32]) }}",
        "f16", "sm_80", "`A` goes to registers",
    ),
    "written": (
        "@pipeline(2)", f"{PRODUCT}\n    B[k :+ 16, col :+ 32] = zeros(f16, 16, 32)", "f16", "sm_80",
        "writes to its tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise(name: str) -> None:
    promise, body, dtype, arch, reason = BROKEN[name]
    kernel = phobos.jit(text(promise, body, dtype))
    with pytest.raises(phobos.CompileError) as caught:
        kernel.compile(arch=arch)
    (found,) = caught.value.diagnostics
    assert found.code == "PH0550" and promise[10:-1] in found.message
    assert any(reason in note for note in found.notes), found.notes
    assert found.span is not None
    phobos.jit(text("@pipeline(1)", body, dtype)).compile(arch=arch)  # nothing is promised


def staging(body: str, options: str = "matmul = auto", dtype: str = "f16") -> dict[str, tuple[str, str]]:
    compiled = phobos.jit(text("", body, dtype, options)).compile(arch="sm_80")
    return {d.subject.partition(" from ")[2]: (d.choice, d.reason) for d in compiled.decisions if d.stage == "staging"}


PLAIN = ("plain, in its iteration", "through registers, in its iteration")


@pytest.mark.parametrize(
    "body, options, dtype, choice, reason",
    [
        (PRODUCT.replace("A[", "f16(A[").replace("16],", "16]),", 1), "matmul = auto", "f32", PLAIN[1], "`A` to f16"),
        (PRODUCT.replace("A[", "f16(A[").replace("16],", "16] * 2),", 1), "matmul = auto", "f32", PLAIN[1], "computed"),
        (PRODUCT, "stages = 1", "f16", PLAIN[0], "the option stages = 1"),
        (f"if k > 16 {{ {PRODUCT} }}", "matmul = auto", "f16", PLAIN[0], "it is loaded in a branch"),
    ],
)
def test_a_tile_that_is_not_copied_ahead_has_its_reason(
    body: str, options: str, dtype: str, choice: str, reason: str
) -> None:
    found = staging(body, options, dtype)["A"]
    assert found[0] == choice and reason in found[1]


def test_two_stages_through_registers() -> None:
    """Where copies cannot be asynchronous, a tile ahead in registers and two buffers are two stages."""
    compiled = phobos.jit(text("@pipeline(2)")).compile(arch="sm_75")
    assert str(compiled.report).count("a tile ahead through registers") == 2


def test_stages_that_do_not_fit() -> None:
    big = text("@pipeline(16)").replace(":+ 16", ":+ 128").replace("K, 16)", "K, 128)")
    with pytest.raises(phobos.CompileError) as caught:
        phobos.jit(big).compile(arch="sm_80")
    assert caught.value.diagnostics[0].code == "PH0530"


def test_rows_that_are_too_narrow_to_copy() -> None:
    """What the loop can keep depends on the call: rows of one f16 are no whole word."""
    a, b, c = np.ones((40, 1), np.float16), np.ones((1, 48), np.float16), np.zeros((40, 48), np.float32)
    with pytest.raises(phobos.CompileError, match="PH0550.*\n.*\n.*accesses of 2 bytes"):
        phobos.jit(text("@pipeline(3)"))(a, b, c, backend="emulator")
    phobos.jit(text("@pipeline(2)"))(a, b, c, backend="emulator")
    assert (c == 1).all()
