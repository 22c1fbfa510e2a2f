"""A turned loop of a product: one version for whole tiles, without masks, and one for tiles that are cut off."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sass

import phobos
from phobos.compiler import build_program, default_spec
from phobos.ir.scheduled import AsyncCopy, CopyOrigin, ForStmt, IfStmt, Schedule, StepMultiply, walk
from phobos.passes import pipeline
from phobos.runtime.nvrtc import compile_program
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

TARGET = get_target("sm_90a")
GEMM = """
@options(matmul = {room}, stages = {stages})
@launch(128)
@dynshared
{head}kernel gemm(A: tensor<f16>[M, K], B: tensor<f16>[K, N], C: tensor<f32>[M, N]{more}) {{
  let row = ctx.block.y * 32
  let col = ctx.block.x * 64
  var acc: tile<f32>[32, 64] = 0.0
  for k in range({range}) {{
    acc += dot(A[row :+ 32, {k} :+ {bk}], B[{k} :+ {bk}, col :+ 64])
  }}
  C[row :+ 32, col :+ 64] = acc
}}
"""


def text(room="mma", stages=3, head="", more="", range="0, K, 32", k="k", bk=32) -> str:
    return GEMM.format(room=room, stages=stages, head=head, more=more, range=range, k=k, bk=bk)


def schedule_of(source: str) -> Schedule:
    module = parse(SourceFile("gemm.ph", source))
    kernel = check_kernel(module, "gemm", {}, {}, {})
    return pipeline.run(kernel, TARGET, default_spec(kernel)).schedule


def versions(schedule: Schedule) -> list[ForStmt]:
    loops = [s for s in walk(schedule.body) if isinstance(s, ForStmt)]
    return [loop for loop in loops if any(isinstance(s, StepMultiply) for s in loop.body)]


def branch_notes(schedule: Schedule) -> set[str]:
    """What the emitted text says of the versions."""
    branches = [s for s in walk(schedule.body) if isinstance(s, IfStmt)]
    (branch,) = [s for s in branches if any(isinstance(x, ForStmt) for x in s.then)]
    return {branch.note, *(s.note for s in branch.orelse)}


def masked(loop: ForStmt) -> bool:
    return any(isinstance(s, AsyncCopy) and s.view.guarded for s in walk(loop.body))


@pytest.mark.parametrize("bk", [32, 64])
def test_two_versions_behind_one_condition(bk: int) -> None:
    schedule = schedule_of(text(range=f"0, K, {bk}", bk=bk))
    whole, cut = versions(schedule)
    assert any(whole in s.then and cut in s.orelse for s in walk(schedule.body) if isinstance(s, IfStmt))
    assert not masked(whole) and masked(cut)
    assert branch_notes(schedule) == {"no tile of the loop is cut off", "with masks"}
    # Every product once, and every tile copied once, in both.
    for loop in (whole, cut):
        parts = [s.part for s in walk(loop.body) if isinstance(s, StepMultiply)]
        assert sum((hi - lo) / n for lo, n in parts for hi in (lo + 1,)) == bk // 16
        assert len({s.buffer for s in walk(loop.body) if isinstance(s, AsyncCopy)}) == 2
    origins = {s.name for s in walk(schedule.body) if isinstance(s, CopyOrigin)}
    assert origins == {s.origin for s in walk(whole.body) if isinstance(s, AsyncCopy)}
    # With four steps each tile has a step of its own.
    assert sum(any(isinstance(x, AsyncCopy) for x in walk((s,))) for s in whole.body) == (2 if bk == 64 else 1)


def test_one_version_where_extents_are_promised() -> None:
    (whole,) = versions(schedule_of(text(head="@aligned(M = 32, N = 64, K = 32)\n")))
    assert not masked(whole)


@pytest.mark.parametrize(
    "changed",
    [
        dict(range="K - 32, -1, -32"),  # backwards
        dict(range="0, K / 2, 16", k="k * 2", bk=32),  # not the index plus something
    ],
)
def test_one_masked_version_where_the_condition_cannot_be_said(changed: dict) -> None:
    (loop,) = versions(schedule_of(text(**changed)))
    assert masked(loop)


def check(source: str, m: int, n: int, k: int, first: int | None = None) -> None:
    """Against float64; `first`: the kernel's argument, from which on it multiplies."""
    rng = np.random.default_rng(m * 10000 + n * 100 + k)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    phobos.jit(source)(a, b, c, **({} if first is None else {"first": first}), backend="emulator")
    expected = a[:, first:].astype(np.float64) @ b[first:].astype(np.float64)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "m, n, k", [*product((32, 33, 31), (64, 72, 56), (96, 104, 88)), (64, 128, 32), (32, 64, 8), (32, 64, 160)]
)
def test_extents_about_the_tiles(m: int, n: int, k: int) -> None:
    check(text(), m, n, k)


@pytest.mark.parametrize("room", ["mma", "wmma"])
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("k", [64, 128, 192, 200])
def test_rooms_stages_and_steps(room: str, stages: int, k: int) -> None:
    check(text(room=room, stages=stages, range="0, K, 64", bk=64), 40, 64, k)
    check(text(room=room, stages=stages, range="0, K, 64", bk=64), 32, 64, k)


@pytest.mark.parametrize("first, k", [(8, 104), (8, 96), (32, 96), (0, 64)])
def test_a_loop_that_begins_elsewhere(first: int, k: int) -> None:
    check(text(more=", first: i32", range="first, K, 32"), 32, 64, k, first=first)


def test_positions_beside_the_index() -> None:
    """The index plus what an iteration does not change."""
    check(text(more=", first: i32", range="0, K - first, 32", k="k + first"), 32, 64, 96, first=32)
    check(text(more=", first: i32", range="0, K - first, 32", k="k + first"), 32, 64, 96, first=24)


def test_bounds_of_32_bits() -> None:
    source = text(more=", first: i32, end: i32", range="first * 8, end, 32")
    whole, cut = versions(schedule_of(source))
    assert not masked(whole) and masked(cut)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((32, 96), (96, 64)))
    pairs = ((0, 96), (4, 96), (2, 80), (0, 64), (0, 70), (0, 2000), (-8, 96), (-1, 40), (6, 10), (1, -(2**31)))
    for first, end in pairs:
        c = np.full((32, 64), np.nan, np.float32)
        phobos.jit(source)(a, b, c, first=first, end=end, backend="emulator")
        # Whole blocks of 32 from the first one on, as far as the tensors go.
        rows = [k for at in range(first * 8, end, 32) for k in range(at, at + 32) if 0 <= k < 96]
        np.testing.assert_allclose(c, a[:, rows].astype(np.float64) @ b[rows].astype(np.float64), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["step_a", "step_b", "step_a_at", "step_b_at", "step_1_a", "a_chunk", "b_chunk"])
@pytest.mark.parametrize("bk", [16, 32])
def test_names_that_the_text_makes(name: str, bk: int) -> None:
    source = text(range=f"0, K, {bk}", bk=bk).replace("acc", name)
    check(source, 32, 64, 96)


def test_no_address_arithmetic_between_the_products(tmp_path: Path) -> None:
    """What is added in a vector register between products costs four cycles each."""
    tool = sass.disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    path = Path(__file__).resolve().parents[2] / "examples" / "gemm_fp16.ph"
    source = SourceFile(path.name, path.read_text(encoding="utf-8"))
    module = parse(source)
    kernel = check_kernel(module, "gemm_fp16", {"BM": 128, "BN": 256, "BK": 64}, {}, {})
    binary = compile_program(build_program(kernel, TARGET, default_spec(kernel), source), TARGET)
    assert binary.spill_bytes == 0
    found = sass.loops(sass.instructions(binary.cubin, tool, tmp_path))
    (whole,) = [c for c in found if c["HMMA"] == 128 and c["LDSM"] == 32 and c["LDGSTS"] == 12]
    others = whole.total() - sum(whole[x] for x in ("HMMA", "LDSM", "LDGSTS"))
    vector = sum(whole[x] for x in ("IMAD", "LEA", "IADD3", "VIADD", "LOP3", "SHF", "SEL", "ISETP"))
    assert vector <= 40 and others <= 70, whole
    assert not re.search("LDL|STL", " ".join(whole))


@pytest.mark.parametrize(
    "dtype, first, end",
    [("i32", (2**31 - 160) // 8, 2**31 - 33), ("u32", 2**29 - 16, 2**32 - 8), ("i32", -(2**28), -(2**31) + 100)],
)
def test_bounds_near_the_ends_of_their_type(dtype: str, first: int, end: int) -> None:
    """A few iterations beyond the last one do not fit the index's type: none of them may be copied."""
    at = "(index(k) - index(first) * 8)" if dtype == "i32" else "index(k - first * 8)"
    source = text(more=f", first: {dtype}, end: {dtype}", range="first * 8, end, 32", k=at)
    a, b = np.ones((32, 128), np.float16), np.ones((128, 64), np.float16)
    c = np.full((32, 64), np.nan, np.float32)
    phobos.jit(source)(a, b, c, first=first, end=end, backend="emulator")
    # Up to the end of the last block of 32.
    assert np.all(c == min(128, len(range(first * 8, end, 32)) * 32))
