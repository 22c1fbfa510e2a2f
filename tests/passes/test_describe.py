"""What the report says of layouts and accesses: each layout once, its reason, and widths that the emitted text has."""

from __future__ import annotations

import re

import phobos
from phobos import resources
from phobos.runtime.compiled import Compiled

GEMM = """@grid(ceildiv(N, 64), ceildiv(M, 64))
kernel k(A: tensor<f16>[M, K], B: tensor<f16>[K, N], C: tensor<f16>[M, N]) {
  let row = ctx.block.y * 64
  let col = ctx.block.x * 64
  var acc: tile<f32>[64, 64] = 0.0
  for kt in range(0, K, 32) {
    acc += dot(A[row :+ 64, kt :+ 32], B[kt :+ 32, col :+ 64])
  }
  C[row :+ 64, col :+ 64] = acc
}
"""
ROWS = """kernel k(X: tensor<{type}>[M, N], Y: tensor<{type}>[M, N], I: tensor<i32>[N]) {{
  let row = ctx.block.x * 4
  let x: tile<{type}>[4, 256] = X[row :+ 4, {start} :+ 256]
  Y[row :+ 4, I[0 :+ 256]] = x / rowsum(x)
}}
"""


def decisions(c: Compiled, stage: str) -> dict[str, tuple[str, str]]:
    return {d.subject: (d.choice, d.reason) for d in c.decisions if d.stage == stage}


def test_layouts_are_listed_once_with_their_reason() -> None:
    c = phobos.jit(GEMM).compile(arch="sm_80")
    found = [d for d in c.decisions if d.stage == "layout"]
    assert len(found) == len({(d.subject, d.choice) for d in found})
    acc = next(d for d in found if d.subject == "acc: tile<f32>[64, 64]")
    assert acc.reason == "follows the accumulator of the product in line 7"
    rows = decisions(phobos.jit(ROWS.format(type="f32", start="0")).compile(arch="sm_80"), "layout")
    assert rows["x: tile<f32>[4, 256]"][1].startswith("spread evenly over the warps, in runs of 4 ")
    assert "`x`" in rows["rowsum: tile<f32>[4, 1]"][1] or "`div`" in rows["rowsum: tile<f32>[4, 1]"][1]


def test_widths_of_accesses() -> None:
    for type, start, wide, why in (
        ("f32", "0", 16, "aligned, contiguous"),
        ("f16", "0", 16, "aligned, contiguous"),
        ("f32", "2", 8, "multiples of 2"),
        ("f32", "1", 4, "may be any"),
    ):
        c = phobos.jit(ROWS.format(type=type, start=start)).compile(arch="sm_80")
        found = decisions(c, "access")
        choice, reason = found["load of X"]
        assert choice.startswith(f"{wide} bytes an access") and why in reason, (type, start)
        elements = wide // (4 if type == "f32" else 2)
        text = c.cuda[c.cuda.index("// 3:") : c.cuda.index("// 4:")]
        assert set(re.findall(r"ph_ldv<ph_vec<\w+, (\d+)>>", text)) == ({str(elements)} if elements > 1 else set())
        assert found["store to Y"][1] == "an index tile chooses the positions"


def test_unaligned_tensors_are_named() -> None:
    c = phobos.jit(GEMM).compile(arch="sm_80", dims={"M": 100, "N": 50, "K": 64})
    assert all(d.choice for d in c.decisions)
    for subject, (choice, reason) in decisions(c, "access").items():
        if subject.endswith(" B") or subject.endswith(" C"):  # rows of 100 bytes
            assert choice.startswith(("2 ", "4 ")) and reason, subject


def example(name: str, **config: int) -> Compiled:
    return phobos.load(str(resources.examples_dir() / f"{name}.ph")).compile(arch="sm_90a", config=config)


def test_no_two_lines_of_the_report_are_alike() -> None:
    """Loops in two versions, and several barriers of one line, are told apart."""
    for compiled in (example("gemm_fp16", BM=128, BN=128, BK=32), example("kda_fp32"), example("flash_attention_fp16")):
        for stage in ("access", "barrier", "staging"):
            found = [(d.subject, d.line, d.choice, d.reason) for d in compiled.decisions if d.stage == stage]
            assert len(found) == len(set(found)), stage
    barriers = [d.subject for d in example("gemm_fp16").decisions if d.stage == "barrier"]
    assert {"barrier in the loop over k without masks", "barrier in the loop over k with masks"} <= set(barriers)


def test_shared_memory_says_whether_bytes_are_used_again() -> None:
    def reason(text: str) -> str:
        (found,) = [d for d in phobos.jit(text).compile(arch="sm_80").decisions if d.stage == "shared"]
        return found.reason.partition(": ")[0]

    assert reason(GEMM) == "tiles of one loop kept apart; others take the bytes of those that are dead"
    assert reason(GEMM.replace("C: tensor<f16>", "C: tensor<f32>")) == "all tiles kept apart"
    turned = "kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {\n  Y[0 :+ 64] = cumsum(X[0 :+ 64])\n}\n"
    assert reason(turned) == "one tile"


def test_a_left_operand_in_registers_is_said_to_be_there() -> None:
    text = """@launch(128)
    kernel k(A: tensor<f16>[N, 64], B: tensor<f16>[N, 64], C: tensor<f32>[64, 64]) {{
      var acc: tile<f32>[64, 64] = 0.0
      for t in range(0, N, 64) {{
        let s = dot_t(A[0 :+ 64, :], B[t :+ 64, :])
        let p = f16({} * rowmax(s))
        acc += dot(p, B[t :+ 64, :])
      }}
      C[:, :] = acc
    }}
    """
    for p, choice in (("s", "stays in registers"), ("f32(A[t :+ 64, :])", "through shared memory")):
        compiled = phobos.jit(text.format(p)).compile(arch="sm_80")
        (found,) = [d for d in compiled.decisions if d.stage == "operand"]
        assert found.choice == choice and (" p_s [" in compiled.report) == (choice != "stays in registers")
        assert "if its rows" not in compiled.report


def test_a_layout_that_lines_up_names_the_line() -> None:
    rows = decisions(phobos.jit(ROWS.format(type="f32", start="0")).compile(arch="sm_80"), "layout")
    assert "`div` of line 4, which" in rows["rowsum: tile<f32>[4, 1]"][1]


def test_every_barrier_is_listed_with_what_it_separates() -> None:
    kernel = phobos.load(str(resources.examples_dir() / "flash_attention_fp32.ph"))
    c = kernel.compile(arch="sm_90a", config={"BR": 16, "BC": 16})
    found = [d for d in c.decisions if d.stage == "barrier"]
    assert len(found) == c.cuda.count("ph_syncthreads();")
    lines = {d.line: d.reason for d in found}
    assert "publishes the stage that arrived" in lines[19]  # at the head of the loop, by the ring
    assert "read of corr_x" in lines[36] and "s_s" in lines[36]  # both hazards of one barrier
    assert "read of l_x" in lines[41]
