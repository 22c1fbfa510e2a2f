"""What must not depend on how a text is written: each case once was, and cost the paraphrase its speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from passes.algebra import KINDS, OFF, assert_same, edited, run_passes, scores

from phobos.compiler import default_spec
from phobos.ir.scheduled import Contract, ForStmt, Schedule, StepMultiply, StoreGlobal, walk
from phobos.ir.tile import Compute, Constant, KernelIR
from phobos.ir.walk import kernel_ops
from phobos.passes import pipeline
from phobos.passes.tile_facts import TileFacts
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target
from phobos.tuning.model import estimate

TARGET = get_target("sm_90a")
GEMM = """\
@dynshared
kernel k(A: tensor<f16>[M, K], B: tensor<f16>[K, N], C: tensor<f16>[M, N], S: tensor<f32>[M, 1]) {
  let row = ctx.block.y * 64
  let col = ctx.block.x * 64
  var acc: tile<f32>[64, 64] = 0.0
  for k in range(0, K, 32) {
    acc += dot(A[row :+ 64, k :+ 32], B[k :+ 32, col :+ 64])
  }
  C[row :+ 64, col :+ 64] = acc
}
"""
STORE = "C[row :+ 64, col :+ 64] = acc\n"


def kernel_of(text: str) -> KernelIR:
    kernel = check_kernel(parse(SourceFile("case.ph", text)), "k")
    return replace(kernel, launch=replace(kernel.launch, threads=128))


def schedule(*edits: tuple[str, str]) -> Schedule:
    kernel = kernel_of(edited(*edits, text=GEMM))
    return pipeline.run(kernel, TARGET, default_spec(kernel)).schedule


def products(found: Schedule) -> list[tuple[str, str]]:
    """Kind of statement and arrangement of the products, in order."""
    return [
        (type(s).__name__, s.plan.description) for s in walk(found.body) if isinstance(s, (Contract, StepMultiply))
    ]


EPILOGUES = {
    "a scale for each row": (STORE, "C[row :+ 64, col :+ 64] = acc * S[row :+ 64, :]\n"),
    "a shift for each row, in a branch": (STORE, "if M > 5 {\nacc += S[row :+ 64, :]\n}\n" + STORE),
    "a maximum of each row": (STORE, STORE + "S[row :+ 64, :] = rowmax(acc)\n"),
    "normalised rows": (STORE, "acc /= rowsum(abs(acc))\n" + STORE),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_what_an_epilogue_does_with_rows_leaves_the_product_as_it_is(name: str) -> None:
    assert products(schedule(EPILOGUES[name])) == products(schedule())


def test_row_statistics_beside_a_product_ask_for_whole_rows() -> None:
    inside = ("  }\n  C[", "    S[row :+ 64, :] = rowmax(acc)\n  }\n  C[")
    ((_, description),) = products(schedule(inside))
    assert "warps 4x1" in description and all("warps 2x2" in d for _, d in products(schedule()))


LOADS = {
    "blocks are counted": (
        ("for k in range(0, K, 32) {\n", "for number in range(ceildiv(K, 32)) {\n    let k = number * 32\n"),
    ),
    "bound by let": (
        (
            "acc += dot(A[row :+ 64, k :+ 32], B[k :+ 32, col :+ 64])",
            "let b = B[k :+ 32, col :+ 64]\n    let a: tile<f16>[64, 32] = A[row :+ 64, k :+ 32]\n"
            "    let d = dot(a, b)\n    acc = d + acc",
        ),
    ),
    "a block of rows further on": (
        ("for k in range(0, K, 32) {\n", "for before in range(-32, K - 32, 32) {\n    let k = before + 32\n"),
    ),
}


@pytest.mark.parametrize("name", LOADS)
def test_how_positions_of_loads_are_written_leaves_the_loop_turned(name: str) -> None:
    """The loop of one product loads the first fragments of an iteration before the last products of the one before."""
    found = products(schedule(*LOADS[name]))
    assert found == products(schedule()) and {kind for kind, _ in found} == {"StepMultiply"}


STORES = {
    "on both sides of an if": (STORE, "if M > 5 {\n" + STORE + "} else {\nC[row :+ 64, col :+ 64] = 2.0 * acc\n}\n"),
    "in nested ifs": (STORE, "if M > 5 {\nif N > 5 {\n" + STORE + "}\n}\n"),
}


@pytest.mark.parametrize("name", STORES)
def test_stores_under_conditions_are_as_wide(name: str) -> None:
    def widths(found: Schedule) -> set[int]:
        stores = [s for s in walk(found.body) if isinstance(s, StoreGlobal)]
        return {s.source.layout.contiguous_run(1) for s in stores}

    assert widths(schedule(STORES[name])) == widths(schedule()) == {8}


def test_stores_in_a_loop_are_not_redistributed() -> None:
    """They would need two barriers in every iteration."""
    found = schedule(("  }\n  C[row", "    C[row :+ 64, col :+ 64] = acc\n  }\n  C[row"))
    loop = next(s for s in found.body if isinstance(s, ForStmt))
    (store,) = (s for s in walk(loop.body) if isinstance(s, StoreGlobal))
    assert store.source.layout.contiguous_run(1) == 2


# --- algebra ---------------------------------------------------------------------------------

ALONE = {**OFF, "fold": "auto"}
SCALED_DIFFERENCES = {
    "(s - m) c": "exp((s - safe) * c)",
    "c (s - m)": "exp(c * (s - safe))",
    "c (s - m) d": "exp(c * (s - safe) * 0.25)",
    "(s - m) / 8": "exp((s - safe) / 8.0)",
    "(s - m) -c": "exp((s - safe) * -c)",
    "base 2": "exp2((s - safe) * c)",
}


def computes(kernel: KernelIR) -> list[Compute]:
    return [op for op in kernel_ops(kernel) if isinstance(op, Compute)]


def work_of_p(kernel: KernelIR) -> list[str]:
    """Functions of the ops over a block of scores that the exponential of p depends on, itself included."""
    defs = {op.result: op for op in computes(kernel)}
    (p,) = (op for op in computes(kernel) if op.fn in ("exp", "exp2") and op.result.shape == (8, 16))
    found, todo = {p}, [p]
    while todo:
        below = [defs[a] for a in todo.pop().args if a in defs and a.shape == (8, 16)]
        todo += [op for op in below if op not in found]
        found.update(below)
    return sorted(op.fn for op in found)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("name", SCALED_DIFFERENCES)
def test_the_scale_of_a_difference_is_folded(name: str, positive: bool) -> None:
    """Whatever its sign: one multiply-add and one exponential for each score."""
    text = edited(("exp(s - safe)", SCALED_DIFFERENCES[name]))
    assert work_of_p(run_passes(text, positive=positive, **ALONE).after) == ["exp2", "fma"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["(s - m) c", "c (s - m) d", "(s - m) / 8"])
def test_only_rounding_changes(name: str, kind: str) -> None:
    """In float64, with all algebra passes."""
    expression = SCALED_DIFFERENCES[name]
    text = edited(("exp(s - safe)", expression), ("exp(m - safe)", expression.replace("s - safe", "m - safe")))
    text = edited(("L[row :+ 8, :] = m + log(l)", "L[row :+ 8, :] = l / where(l == 0.0, 1.0, l)"), text=text)
    result = run_passes(text)
    assert_same(result.before, result.after, scores(kind))


BASE_2 = (
    ("let s = S[row :+ 8, kt :+ 16] else -inf", "let s = where(iota(1) < N - kt, S[row :+ 8, kt :+ 16] * c, -inf)"),
    ("exp(s - safe)", "exp2(s - safe)"),
    ("exp(m - safe)", "exp2(m - safe)"),
)


def test_powers_of_two_take_over_a_scale_as_well() -> None:
    result = run_passes(edited(*BASE_2), **ALONE)
    assert "mul" not in work_of_p(result.after) and result.choice("exp2 of p")[0] == "exp2 of one multiply-add"
    without = run_passes(edited(*BASE_2[1:]), **ALONE)
    assert work_of_p(without.after) == work_of_p(without.before)
    assert without.choice("exp2 of p") == ("unchanged", "there is no scale to fold")


MASKS = {
    "positions": ("iota(1) >= N - kt", "iota(1) < N - kt"),
    "not": ("!(iota(1) < N - kt)", "iota(1) < N - kt"),
    "or": ("iota(1) >= N - kt || iota(0) > 5", "iota(1) < N - kt && iota(0) <= 5"),
    "equal": ("iota(1) == kt", "iota(1) != kt"),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_may_say_what_is_hidden(name: str) -> None:
    """where(hidden, -inf, s) is where(seen, s, -inf) to every pass."""
    load = "S[row :+ 8, kt :+ 16] * c"
    hidden, seen = MASKS[name]
    texts = [
        edited(("S[row :+ 8, kt :+ 16] else -inf", choice))
        for choice in (f"where({hidden}, -inf, {load})", f"where({seen}, {load}, -inf)")
    ]
    one, two = (run_passes(text) for text in texts)
    assert [(d.subject, d.choice) for d in one.decisions] == [(d.subject, d.choice) for d in two.decisions]
    assert work_of_p(one.after) == work_of_p(two.after)


@pytest.mark.parametrize("test", ["s >= 0.5", "!(s < 0.5)"])
def test_a_comparison_of_floats_is_not_turned(test: str) -> None:
    """Of NaN neither s >= 0.5 nor s < 0.5 holds."""
    text = edited(("    let mnew", f"    let u = where({test}, -inf, s)\n    let mnew"), ("rowmax(s)", "rowmax(u)"))
    result = run_passes(text, **OFF)
    (choice,) = (op for op in computes(result.before) if op.fn == "where" and op.result.name == "u")
    defs = {op.result: op for op in computes(result.before)}
    assert defs[choice.args[0]].fn == ("ge" if test.startswith("s") else "lt")


def test_division_by_a_power_of_two_is_a_multiplication() -> None:
    text = edited(("let p = exp(s - safe)", "let p = exp(s / 8.0 - safe / -0.5) / 3.0"))
    before = run_passes(text, **OFF).before
    constants = {op.result: op.value for op in kernel_ops(before) if isinstance(op, Constant)}
    factors = [
        (op.fn, constants[a])
        for op in computes(before)
        if op.fn in ("mul", "div") and op.result.is_tile
        for a in op.args
        if a in constants
    ]
    assert sorted(factors) == [("div", 3.0), ("mul", -2.0), ("mul", 0.125)]


GUARDS: Mapping[str, str] = {
    "== -inf": "where(mnew == -inf, 0.0, mnew)",
    "-inf ==": "where(-inf == mnew, 0.0, mnew)",
    "!= -inf": "where(mnew != -inf, mnew, 0.0)",
    "> -inf": "where(mnew > -inf, mnew, 0.0)",
    "-inf <": "where(-inf < mnew, mnew, 0.0)",
}


@pytest.mark.parametrize("name", GUARDS)
def test_every_guard_of_a_maximum_is_known(name: str) -> None:
    """A correction exp(m - safe) is at most one, so that row sums stay in parts."""
    result = run_passes(edited(("where(mnew == -inf, 0.0, mnew)", GUARDS[name])))
    assert result.choice("row sum l")[0] == "kept in parts"


NO_GUARDS = ("where(mnew < -inf, 0.0, mnew)", "where(mnew == inf, 0.0, mnew)", "where(mnew != -inf, 0.0, mnew)")


@pytest.mark.parametrize("guard", NO_GUARDS)
def test_what_is_no_guard(guard: str) -> None:
    result = run_passes(edited(("where(mnew == -inf, 0.0, mnew)", guard)), **OFF)
    facts = TileFacts(result.before, default_spec(result.before))
    corrections = [op for op in computes(result.before) if op.fn == "exp" and op.result.shape == (8, 1)]
    assert corrections and not any(facts.at_most_one(op.result) for op in corrections)


@pytest.mark.parametrize("after", ["clamp(x, -9.0, 9.0)", "tmax(x, 0.0)", "tanh(x)", "gelu(x) * 0.5"])
def test_an_epilogue_leaves_the_corrections_approximate(after: str) -> None:
    end = "O[row :+ 8, :] = acc / where(l == 0.0, 1.0, l)"
    text = edited(
        ("O: tensor<f32>", "O: tensor<f16>"),
        (end, "let x = acc / where(l == 0.0, 1.0, l)\n  O[row :+ 8, :] = " + after),
        ("  L[row :+ 8, :] = m + log(l)\n", ""),
    )
    found = run_passes(text, **ALONE)
    assert [d.choice for d in found.decisions if d.subject.startswith("exp of corr")][0] == "approximate"


# --- the model -------------------------------------------------------------------------------


def test_the_model_counts_the_same_iterations() -> None:
    """Counted blocks are as many as steps of K: an integer quotient has no fraction."""
    dims = {"M": 4096, "N": 4096, "K": 1000}
    texts = [GEMM, edited(*LOADS["blocks are counted"], text=GEMM)]
    one, two = (estimate(kernel_of(text), TARGET, dims).cycles for text in texts)
    assert one == two
