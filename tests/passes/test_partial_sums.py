"""partial_sums: where it fires, where it must not, what is emitted, and that it changes only the order of additions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import harness
import numpy as np
import pytest
from ir.builder import Builder
from passes.algebra import KINDS, OFF, SOFTMAX, Edits, assert_same, edited, run_passes, scores

from phobos import emulator
from phobos.codegen.kernel import print_kernel
from phobos.compiler import default_spec
from phobos.ir.abi import Program
from phobos.ir.scheduled import ForStmt, ReduceCollect, ReducePublish, ReduceRegisters, Schedule, Stmt, walk
from phobos.ir.tile import For, KernelIR, Reduce, SumParts
from phobos.ir.types import DType
from phobos.ir.verify import violations
from phobos.ir.walk import kernel_ops
from phobos.passes import pipeline
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

ALONE = {**OFF, "sums": "auto"}

# Y = sums of the rows of X.
SUM = """\
kernel k<T>(X: tensor<T>[M, N], Y: tensor<T>[M, 1], a: f32) {
  let row = ctx.block.x * ROWS
  var l: tile<T>[ROWS, 1] = T(0)
  for kt in range(0, N, COLUMNS) {
    l = l + rowsum(X[row :+ ROWS, kt :+ COLUMNS])
  }
  Y[row :+ ROWS, :] = l
}
"""
F32 = (
    SUM.replace("<T>(", "(")
    .replace("T(0)", "0.0")
    .replace("<T>", "<f32>")
    .replace("ROWS", "8")
    .replace("COLUMNS", "16")
)


def partial(kernel: KernelIR) -> list[Reduce]:
    return [op for op in kernel_ops(kernel) if isinstance(op, Reduce) and op.partial]


def made_whole(kernel: KernelIR) -> list[SumParts]:
    return [op for op in kernel_ops(kernel) if isinstance(op, SumParts)]


# --- where it fires ------------------------------------------------------------------------------

FIRES: dict[str, tuple[str, Edits]] = {
    "sum": (F32, ()),
    "the other way round": (F32, (("l + rowsum(X[row :+ 8, kt :+ 16])", "rowsum(X[row :+ 8, kt :+ 16]) + l"),)),
    "scaled by a constant": (F32, (("l + rowsum", "l * 0.5 + rowsum"),)),
    "fused multiply-add": (F32, (("l + rowsum(X[row :+ 8, kt :+ 16])", "fma(l, 0.5, rowsum(X[row :+ 8, kt :+ 16]))"),)),
    "columns": (
        F32,
        (
            ("[8, 1]", "[1, 16]"),
            ("rowsum", "colsum"),
            ("Y[row :+ 8, :] = l", "Y[row :+ 8, :] = broadcast(sum(l), 8, 1)"),
        ),
    ),
    "softmax": (SOFTMAX, ()),
    "softmax without a guard": (SOFTMAX, (("exp(s - safe)", "exp(s - mnew)"), ("exp(m - safe)", "exp(m - mnew)"))),
    "softmax in base 2": (
        SOFTMAX,
        (("exp(m - safe)", "exp2((m - safe) * 1.25)"), ("exp(s - safe)", "exp2((s - safe) * 1.25)")),
    ),
    "never read": (SOFTMAX, (("acc / where(l == 0.0, 1.0, l)", "acc"), ("m + log(l)", "m"))),
}


@pytest.mark.parametrize("name", FIRES)
def test_it_fires(name: str) -> None:
    text, edits = FIRES[name]
    result = run_passes(edited(*edits, text=text), **ALONE)
    (loop,) = [op for op in kernel_ops(result.after) if isinstance(op, For)]
    (source,), sums = partial(result.after), made_whole(result.after)
    assert source in loop.body.ops and source.kind == "sum"
    # Right after the loop, and only where someone reads it.
    assert [op.operand in loop.results for op in sums] == ([] if name == "never read" else [True])
    assert result.choice("row sum l")[0] == "kept in parts"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [n for n, (text, _) in FIRES.items() if text is SOFTMAX and n != "never read"])
def test_the_reference_computes_the_same(name: str, kind: str) -> None:
    text, edits = FIRES[name]
    result = run_passes(edited(*edits, text=text), **ALONE)
    assert_same(result.before, result.after, scores(kind))


def test_it_can_be_switched_off() -> None:
    result = run_passes(F32, sums="off")
    assert not partial(result.after) and not made_whole(result.after)
    assert result.choice("partial_sums") == ("off", "the option sums = off")


# --- where it must not fire ----------------------------------------------------------------------

ADDED = "l + rowsum(X[row :+ 8, kt :+ 16])"
STEP = f"    l = {ADDED}\n"
NOT: dict[str, tuple[Edits, str]] = {
    "another start": ((("[8, 1] = 0.0", "[8, 1] = 1.0"),), "does not start at 0"),
    "read in the loop": (((STEP, STEP + "    Y[row :+ 8, :] = l\n"),), "the loop reads it otherwise"),
    "the old one read in the loop": (((STEP, "    Y[row :+ 8, :] = l\n" + STEP),), "the loop reads it otherwise"),
    "leaves early": (((STEP, STEP + "    if kt > 40 {\n      break\n    }\n"),), "an iteration can end early"),
    "skips": (((STEP, "    if kt == 16 {\n      continue\n    }\n" + STEP),), "an iteration can end early"),
    "returns": (((STEP, "    if kt == 160 {\n      return\n    }\n" + STEP),), "an iteration can end early"),
    "the sum read too": (
        ((STEP, "    let r = rowsum(X[row :+ 8, kt :+ 16])\n    l = l + r\n    Y[row :+ 8, :] = r\n"),),
        "also used otherwise",
    ),
    "the scaled one read too": (
        ((STEP, "    let r = l * 0.5\n    l = r + rowsum(X[row :+ 8, kt :+ 16])\n    Y[row :+ 8, :] = r\n"),),
        "also used otherwise",
    ),
    "scaled by a parameter": ((("l + rowsum", "l * a + rowsum"),), "might be infinite"),
    "scaled by an infinite constant": ((("l + rowsum", "l * inf + rowsum"),), "might be infinite"),
    "scaled by an exponential of anything": (
        (("l + rowsum", "l * exp(X[row :+ 8, 0 :+ 1]) + rowsum"),),
        "might be infinite",
    ),
    "scaled by itself": ((("l + rowsum", "l * l + rowsum"),), "the loop reads it otherwise"),
    "broadcast": (
        (("var l: tile<f32>[8, 1]", "var l: tile<f32>[8, 16]"), ("Y[row :+ 8, :] = l", "Y[row :+ 8, :] = rowsum(l)")),
        "it is broadcast",
    ),
}


@pytest.mark.parametrize("name", NOT)
def test_it_does_not_fire(name: str) -> None:
    edits, reason = NOT[name]
    result = run_passes(edited(*edits, text=F32), **ALONE)
    assert not partial(result.after) and not made_whole(result.after)
    choice, why = result.choice("row sum l")
    assert choice == "whole in every iteration" and reason in why


SILENT = {
    "another reduction": ((("l + rowsum", "l + rowmax"),)),
    "subtracted": ((("l + rowsum", "l - rowsum"),)),
    "multiplied": ((("l + rowsum", "l * rowsum"),)),
    "a sum of everything": ((("l + rowsum", "l + sum"),)),
    "under a condition": (((STEP, f"    if kt > 16 {{\n      l = {ADDED}\n    }}\n"),)),
    "not carried by itself": (((STEP, "    l = rowsum(X[row :+ 8, kt :+ 16]) + 1.0\n"),)),
}


@pytest.mark.parametrize("name", SILENT)
def test_other_recurrences_are_left_alone(name: str) -> None:
    result = run_passes(edited(*SILENT[name], text=F32), **ALONE)
    assert not partial(result.after) and not made_whole(result.after)


@pytest.mark.parametrize(
    "corr",
    [
        "exp(mnew - m)",
        "exp(m - rowmax(s))",
        "exp(m - where(mnew == -inf, 0.0, mnew - 1.0))",
        "exp(m - where(isnan(mnew), 0.0, mnew))",
        "exp(-mnew)",
        "sqrt(m)",
    ],
)
def test_a_factor_must_be_known_to_be_at_most_one(corr: str) -> None:
    result = run_passes(edited(("exp(m - safe)", corr)), **ALONE)
    assert not partial(result.after)
    assert "might be infinite" in result.choice("row sum l")[1]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_sums_stay_whole(dtype: str) -> None:
    result = run_passes(F32.replace("f32>", f"{dtype}>"), **ALONE)
    assert not partial(result.after)
    assert "rounded" in result.choice("row sum l")[1]


# --- the verifier knows what parts may meet ------------------------------------------------------


def carried_sum(*, start: float = 0.0, read: str = "", whole: bool = True, loop: bool = True) -> KernelIR:
    """A kernel with a partial sum, perhaps misused."""
    b = Builder("k")
    x, y = b.tensor("X", "f32", 8, "N"), b.tensor("Y", "f32", 8, 1)

    def row_sum(at: Any) -> Any:
        total = b.reduce(b.load(x, [b.range(0, 8), b.range(at, 16)]), "sum", 1)
        b.stack[-1][-1] = replace(b.stack[-1][-1], partial=True)
        return total

    def store(value: Any) -> None:
        b.store(y, [b.range(0, 8), b.range(0, 1)], value)

    if not loop:
        store(row_sum(0))
        return b.finish(grid=(1,))
    with b.for_(0, b.dim("N"), 16, [b.full("f32", (8, 1), start)]) as body:
        (old,) = body.carried
        new = b.add(b.mul(old, 0.5), row_sum(body.index))
        if read == "old":
            store(old)
        if read == "new":
            store(new)
        b.yield_(new)
    (result,) = body.results
    if whole:
        made = b.value("f32", (8, 1))
        b.emit(SumParts(span=b.span(), result=made, operand=result))
        result = made
    store(result)
    return b.finish(grid=(1,))


def test_the_verifier_accepts_a_carried_partial_sum() -> None:
    assert violations(carried_sum()) == []


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (carried_sum(start=1.0), "do not start at 0"),
        (carried_sum(read="old"), "read where they count as the sum"),
        (carried_sum(read="new"), "read where they count as the sum"),
        (carried_sum(whole=False), "read in parts after the loop"),
        (carried_sum(loop=False), "a partial sum that no loop adds up"),
    ],
)
def test_the_verifier_rejects_parts_taken_for_sums(kernel: KernelIR, message: str) -> None:
    assert any(message in v for v in violations(kernel))


def test_the_verifier_rejects_the_parts_of_a_whole() -> None:
    b = Builder("k")
    x, y = b.tensor("X", "f32", 8, 16), b.tensor("Y", "f32", 8, 1)
    total = b.reduce(b.load(x, [b.range(0, 8), b.range(0, 16)]), "sum", 1)
    made = b.value("f32", (8, 1))
    b.emit(SumParts(span=b.span(), result=made, operand=total))
    b.store(y, [b.range(0, 8), b.range(0, 1)], made)
    assert any("is no partial sum" in v for v in violations(b.finish(grid=(1,))))


# --- what is emitted -----------------------------------------------------------------------------


@cache
def lowered(text: str, threads: int, dtype: str = "", **options: str) -> tuple[KernelIR, Schedule, Program]:
    dtypes = {"T": DType(dtype)} if dtype else {}
    kernel = check_kernel(parse(SourceFile("case.ph", text)), "k", dtypes=dtypes)
    launch, chosen = replace(kernel.launch, threads=threads), replace(kernel.options, **options)
    kernel = replace(kernel, launch=launch, options=chosen)
    schedule = pipeline.run(kernel, get_target("sm_90a"), replace(default_spec(kernel), dim_multiple=())).schedule
    return kernel, schedule, print_kernel(schedule, SourceFile("case.ph", text))


def loop_statements(schedule: Schedule) -> list[Stmt]:
    return [s for loop in schedule.body if isinstance(loop, ForStmt) for s in walk(loop.body)]


def test_no_iteration_exchanges_anything() -> None:
    """A row over four warps: exchanges and barriers in each iteration without the pass, after the loop with it."""
    text = SUM.replace("ROWS", "1").replace("COLUMNS", "256")
    _, schedule, program = lowered(text, 128, "f32")
    inside = loop_statements(schedule)
    (reduction,) = [s for s in inside if isinstance(s, ReduceRegisters)]
    assert not reduction.lanes and not any(isinstance(s, (ReducePublish, ReduceCollect)) for s in inside)
    after = [s for s in schedule.body if isinstance(s, (ReduceRegisters, ReducePublish, ReduceCollect))]
    assert [type(s) for s in after] == [ReduceRegisters, ReducePublish, ReduceCollect]
    _, plain, without = lowered(text, 128, "f32", sums="off")
    assert any(isinstance(s, ReducePublish) for s in loop_statements(plain))
    assert program.body.count("ph_syncthreads") < without.body.count("ph_syncthreads")
    assert "ph_shfl" in loop_text(without) and "ph_shfl" not in loop_text(program) and "ph_shfl" in program.body


def loop_text(program: Program) -> str:
    """The emitted text of the loop over kt."""
    text = program.body[program.body.index("for (int kt") :]
    depth = 0
    for at, c in enumerate(text):
        depth += {"{": 1, "}": -1}.get(c, 0)
        if c == "}" and depth == 0:
            return text[:at]
    raise AssertionError("the loop does not end")


SHAPES = [
    (1, 256, 128),
    (1, 100, 64),
    (3, 48, 32),
    (8, 16, 64),
    (16, 20, 128),
    (32, 8, 128),
    (64, 128, 256),
    (2, 1, 32),
]


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize(("rows", "columns", "threads"), SHAPES)
def test_row_sums_on_the_emulator(rows: int, columns: int, threads: int, dtype: str) -> None:
    """Extents with and without padding, rows within a thread, a warp and over warps."""
    if dtype != "f32" and columns == 16:
        pytest.skip("as the others")
    kernel, _, program = lowered(SUM.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)), threads, dtype)
    assert any(d.choice == "kept in parts" for d in program.decisions)
    rng = np.random.default_rng(rows * columns)
    x = rng.integers(-1000, 1000, (rows * 2 - 1, columns * 3 + columns // 3))
    x = (x / 8).astype(np.float32) if dtype == "f32" else x.astype({"f64": np.float64, "i32": np.int32}[dtype])
    arrays = {"X": x, "Y": np.full((len(x), 1), 77, x.dtype), "a": 1.0}
    result = emulator.run(program, arrays, dims=harness.dims_of(kernel, arrays))
    assert not result.reports and not any(result.unwritten.values())
    # Multiples of 1/8 below 2^24 / 8 add up exactly in any order.
    np.testing.assert_array_equal(arrays["Y"], x.sum(axis=1, keepdims=True, dtype=np.float64).astype(x.dtype))


COLUMN_SUMS = """\
kernel k(X: tensor<f32>[N, M], Y: tensor<f32>[1, M]) {
  let col = ctx.block.x * 32
  var l: tile<f32>[1, 32] = 0.0
  for kt in range(0, N, 24) {
    l = l * 0.5 + colsum(X[kt :+ 24, col :+ 32])
  }
  Y[:, col :+ 32] = l
}
"""


@pytest.mark.parametrize("threads", [32, 128, 256])
def test_column_sums_on_the_emulator(threads: int) -> None:
    kernel, _, program = lowered(COLUMN_SUMS, threads)
    x = (np.random.default_rng(3).integers(-64, 64, (70, 61)) / 4).astype(np.float32)
    arrays = {"X": x, "Y": np.full((1, 61), 77, np.float32)}
    result = emulator.run(program, arrays, dims=harness.dims_of(kernel, arrays))
    assert not result.reports and not any(result.unwritten.values())
    expected = np.zeros((1, 61))
    for start in range(0, 70, 24):
        expected = expected * 0.5 + x[start : start + 24].sum(axis=0, keepdims=True, dtype=np.float64)
    np.testing.assert_array_equal(arrays["Y"], expected.astype(np.float32))


# l lines up with the scores that m is reduced from, not with the weights that are added to it.
OTHER_LAYOUT = """\
kernel k(S: tensor<f16>[M, 16], K: tensor<f16>[N, 16], W: tensor<f32>[M, N], Y: tensor<f32>[M, 1]) {
  let row = ctx.block.x * 32
  var m: tile<f32>[32, 1] = -inf
  var l: tile<f32>[32, 1] = 0.0
  for kt in range(0, N, 32) {
    let s = dot_t(S[row :+ 32, :], K[kt :+ 32, :])
    let mnew = tmax(m, rowmax(where(iota(1) < N - kt, s, -inf)))
    let corr = exp(m - mnew)
    let w = W[row :+ 32, kt :+ 16]
    l = l * corr + rowsum(w)
    m = mnew
  }
  Y[row :+ 32, :] = l
}
"""


@pytest.mark.parametrize("threads", [32, 64, 128])
def test_sums_that_lie_otherwise_stay_whole(threads: int) -> None:
    """A partial sum cannot change its layout: where it would have to, every iteration adds it up."""
    kernel, schedule, program = lowered(OTHER_LAYOUT, threads)
    reductions = [s for s in loop_statements(schedule) if isinstance(s, ReduceRegisters)]
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((n, 16)).astype(np.float16) for n in (45, 70))
    arrays = {"S": q, "K": k, "W": rng.standard_normal((45, 70)).astype(np.float32), "Y": np.zeros((45, 1), np.float32)}
    result = emulator.run(program, arrays, dims=harness.dims_of(kernel, arrays))
    assert not result.reports and not any(result.unwritten.values())
    scores, expected = q.astype(float) @ k.astype(float).T, np.zeros((45, 1))
    m = np.full((45, 1), -np.inf)
    for start in range(0, 70, 32):
        new = np.maximum(m, scores[:, start : start + 32].max(axis=1, keepdims=True))
        part = arrays["W"][:, start : start + 16].sum(axis=1, keepdims=True, dtype=np.float64)
        expected, m = expected * np.exp(m - new) + part, new
    np.testing.assert_allclose(arrays["Y"], expected, rtol=1e-4, atol=1e-4)
    assert [s.lanes for s in reductions] == [True, True]  # the maximum and the sum
    assert "whole in every iteration after all" in {d.choice for d in program.decisions}
