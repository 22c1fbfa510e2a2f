"""lazy_rescale: where it fires, where it must not, and that it changes nothing but rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import harness
import numpy as np
import pytest
from passes.algebra import KINDS, OFF, SOFTMAX, Edits, arguments, assert_same, edited, in_float64, run_passes, scores

from phobos import emulator
from phobos.compiler import build_program, default_spec
from phobos.ir.scheduled import Map, walk
from phobos.ir.tile import Compute, KernelIR, Op, Value
from phobos.ir.walk import kernel_ops
from phobos.passes import pipeline
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

ALONE = {**OFF, "rescale": "auto"}

# Ways to write an online softmax, as edits of SOFTMAX.
PARAPHRASES: dict[str, Edits] = {
    "as it is": (),
    "no guard, finite start": (
        ("= -inf\n", "= -1.0e30\n"),
        ("exp(s - safe)", "exp(s - mnew)"),
        ("exp(m - safe)", "exp(m - mnew)"),
    ),
    "maximum the other way round": (("tmax(m, rowmax(s))", "tmax(rowmax(s), m)"),),
    "guard by !=": (("where(mnew == -inf, 0.0, mnew)", "where(mnew != -inf, mnew, 0.0)"),),
    "guarded exponentials": (
        ("exp(s - safe)", "where(mnew == -inf, 0.0, exp(s - mnew))"),
        ("exp(m - safe)", "where(m == -inf, 0.0, exp(m - mnew))"),
    ),
    "split statements": (
        ("l = l * corr + rowsum(p)", "l *= corr; l += rowsum(p)"),
        ("acc = acc * corr + dot(f16(p), V[kt :+ 16, :])", "acc *= corr; acc += dot(f16(p), V[kt :+ 16, :])"),
    ),
    "fused multiply-add": (
        ("acc * corr + dot(f16(p), V[kt :+ 16, :])", "fma(acc, corr, dot(f16(p), V[kt :+ 16, :]))"),
    ),
    "base 2 outside": (
        ("exp(s - safe)", "exp2((s - safe) * 1.25)"),
        ("exp(m - safe)", "exp2((m - safe) * 1.25)"),
        ("m + log(l)", "l / l"),
    ),
    "base 2 inside": (
        ("exp(s - safe)", "exp2(s * c - safe * c)"),
        ("exp(m - safe)", "exp2(m * c - safe * c)"),
        ("m + log(l)", "l / l"),
    ),
    "scaled scores": (("rowmax(s)", "rowmax(s) * c"), ("exp(s - safe)", "exp(s * c - safe)")),
    "reciprocal": (("acc / where(l == 0.0, 1.0, l)", "acc * (1.0 / where(l == 0.0, 1.0, l))"),),
    "tiny instead of zero": (("where(l == 0.0, 1.0, l)", "tmax(l, 1.0e-20)"),),
    "zeros chosen at the end": (("acc / where(l == 0.0, 1.0, l)", "where(l > 0.0, acc / l, 0.0)"),),
    "masked probabilities": (("dot(f16(p)", "dot(f16(where(iota(1) < 3, p, 0.0))"),),
    "weighted": (("dot(f16(p), V[kt :+ 16, :])", "dot(f16(p), V[kt :+ 16, :]) * 0.5"),),
    "two maxima": (
        (
            "let s = S[row :+ 8, kt :+ 16] else -inf",
            "let s = S[row :+ 8, kt :+ 16] else -inf\n    let t = where(s > 0.0, s * 0.5, -1.0)",
        ),
        ("tmax(m, rowmax(s))", "tmax(rowmax(t), tmax(m, rowmax(s)))"),
        ("let corr", "let q = exp(t - safe)\n    let corr"),
        ("rowsum(p)", "rowsum(p) + rowsum(q)"),
        ("dot(f16(p)", "dot(f16(p + q)"),
    ),
}

TWO_LOOPS = edited(
    ("for kt in range(0, N, 16) {", "let half = N / 32 * 16\n  for kt in range(0, half, 16) {"),
    (
        "  O[row",
        SOFTMAX[SOFTMAX.index("  for kt") : SOFTMAX.index("  O[row")].replace("range(0, N", "range(half, N")
        + "  O[row",
    ),
)

COLUMNS = """\
kernel k(S: tensor<f32>[M, N], V: tensor<f16>[N, 16], O: tensor<f32>[M, 16], L: tensor<f32>[M, 1], c: f32) {
  let row = ctx.block.x * 8
  var acc: tile<f32>[16, 8] = 0.0
  var m: tile<f32>[1, 8] = -inf
  var l: tile<f32>[1, 8] = 0.0
  for kt in range(0, N, 16) {
    let s: tile<f32>[16, 8] = transpose(S[row :+ 8, kt :+ 16] else -inf)
    let mnew = tmax(m, colmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + colsum(p)
    acc = acc * corr + dot(transpose(V[kt :+ 16, :]), f16(p))
    m = mnew
  }
  O[row :+ 8, :] = transpose(acc / where(l == 0.0, 1.0, l))
  L[row :+ 8, :] = transpose(m + log(l))
}
"""
TRANSPOSED_ACC = edited(
    ("var acc: tile<f32>[8, 16]", "var acc: tile<f32>[16, 8]"),
    (
        "acc = acc * corr + dot(f16(p), V[kt :+ 16, :])",
        "acc = acc * transpose(corr) + dot_t(transpose(V[kt :+ 16, :]), f16(p))",
    ),
    ("acc / where(l == 0.0, 1.0, l)", "transpose(acc) / where(l == 0.0, 1.0, l)"),
)

TEXTS = {name: edited(*edits) for name, edits in PARAPHRASES.items()}
TEXTS |= {"two loops": TWO_LOOPS, "columns": COLUMNS}


def lagging(kernel: KernelIR) -> list[Value]:
    """The references that pass made: where(growth <= lag, old, new)."""
    defs = {op.result: op for op in kernel_ops(kernel) if isinstance(op, Compute)}
    return [
        v
        for v, op in defs.items()
        if op.fn == "where"
        and (test := defs.get(op.args[0])) is not None
        and test.fn == "le"
        and test.result.name == "keep"
    ]


def skipped(kernel: KernelIR) -> list[Compute]:
    return [op for op in kernel_ops(kernel) if isinstance(op, Compute) and op.unless_one]


# --- where it fires ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_it_fires(name: str) -> None:
    result = run_passes(TEXTS[name], **ALONE)
    loops = 2 if name == "two loops" else 1
    assert len(lagging(result.after)) == loops
    assert [d.choice for d in result.decisions if d.subject == "running maximum m"] == ["lazy rescale"] * loops
    if name != "fused multiply-add":
        assert len(skipped(result.after)) == loops
        assert all(op.fn == "mul" and op.result.shape == (8, 16) or name == "columns" for op in skipped(result.after))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEXTS)
def test_only_rounding_changes(name: str, kind: str) -> None:
    if name == "no guard, finite start" and kind in ("masked", "not numbers"):
        pytest.skip("without the guard, -inf - -inf is NaN before and after")
    alone, all_passes = run_passes(TEXTS[name], **ALONE), run_passes(TEXTS[name])
    assert_same(alone.before, alone.after, scores(kind))
    assert_same(alone.before, all_passes.after, scores(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_lags_by_no_more_than_it_may(kind: str) -> None:
    """No exponential exceeds 2^8, the reference is no larger than the maximum, and it stays where that grows little."""
    result = run_passes(SOFTMAX, **ALONE)
    (reference,) = lagging(result.after)
    seen: dict[str, list[np.ndarray]] = {"p": [], "reference": [], "new": []}

    def watch(op: Op, block: object, env: Mapping[Value, Any]) -> None:
        if isinstance(op, Compute) and op.fn == "exp" and op.result.shape == (8, 16):
            seen["p"].append(np.array(env[op.result]))
        if op.defined() == (reference,) and isinstance(op, Compute):
            seen["reference"].append(np.array(env[reference]))
            seen["new"].append(np.array(env[op.args[2]]))

    in_float64(result.after, scores(kind), on_op=watch)
    p, used, new = (np.array(seen[name]) for name in ("p", "reference", "new"))
    assert np.nanmax(p) <= 256 * (1 + 1e-12)
    with np.errstate(invalid="ignore"):
        assert not (used > new).any() and not (new - used > 8 * math.log(2) + 1e-12).any()
    assert (np.isnan(used) == np.isnan(new)).all() and ((used == -np.inf) == (new == -np.inf)).all()
    if kind == "slowly growing":  # first by more than allowed, then within it, and at last beyond it once more
        changes = (used[1:6] != used[:5]).any(axis=(1, 2))
        assert changes.any() and not changes.all()


def test_it_can_be_switched_off() -> None:
    result = run_passes(SOFTMAX, rescale="off")
    assert not lagging(result.after) and not skipped(result.after)
    assert result.choice("lazy_rescale") == ("off", "the option rescale = off")


def test_without_exponentials_nothing_is_said() -> None:
    text = edited(("let p = exp(s - safe)", "let p = s"), ("let corr = exp(m - safe)", "let corr = 0.5"))
    assert not [d for d in run_passes(text, **ALONE).decisions if d.subject.startswith("running maximum")]


# --- where it must not fire ----------------------------------------------------------------------

END = "  O[row"
NOT: dict[str, tuple[Edits, str]] = {
    "m is stored": ((("m + log(l)", "m"),), "m is used in store"),
    "m and l otherwise": ((("m + log(l)", "m + l"),), "used in add"),
    "the wrong logarithm": ((("m + log(l)", "m + log2(l)"),), "used in log2"),
    "l is stored": ((("m + log(l)", "l"),), "l is used in store"),
    "acc is stored": ((("acc / where(l == 0.0, 1.0, l)", "acc"),), "acc is used in store"),
    "f16 of the sum": ((("acc / where", "f32(f16(acc)) / where"),), "rounded to f16"),
    "a large stand-in for l": ((("where(l == 0.0, 1.0, l)", "tmax(l, 2.0)"),), "used in max"),
    "another test of l": ((("where(l == 0.0, 1.0, l)", "where(l == 1.0, 2.0, l)"),), "l is used in"),
    "another sum guarded": (
        (("acc / where(l == 0.0, 1.0, l)", "l / where(acc == 0.0, 1.0, acc)"),),
        "used in where",
    ),
    "l leaves some out": (
        (("rowsum(p)", "rowsum(where(iota(1) < 3, p, 0.0))"), ("m + log(l)", "l / l")),
        "used in where",
    ),
    "l starts below zero": ((("l: tile<f32>[8, 1] = 0.0", "l: tile<f32>[8, 1] = -1.0"),), "used in where"),
    "acc is not corrected": ((("acc = acc * corr +", "acc = acc +"),), "acc is not multiplied by the correction"),
    "acc is corrected twice": (
        (("acc = acc * corr +", "acc = acc * corr * corr +"),),
        "multiplied by the correction in mul",
    ),
    "acc is also read": (
        (("acc = acc * corr +", "let old = acc\n    acc = acc * corr + old +"),),
        "used before it is multiplied",
    ),
    "the correction is also added": ((("acc = acc * corr +", "acc = acc * corr + corr +"),), "used in add"),
    "l is not corrected": (
        (("l = l * corr + rowsum(p)", "l = l + rowsum(p)"),),
        "l is not multiplied by the correction",
    ),
    "exponential of the old maximum": ((("exp(s - safe)", "exp(s - m)"),), "m is used in sub"),
    "p is squared": ((("dot(f16(p)", "dot(f16(p * p)"),), "p is used in mul"),
    "p plus one": ((("dot(f16(p)", "dot(f16(p + 1.0)"),), "p is used in add"),
    "p to 8 bits": ((("dot(f16(p)", "dot(f16(f8e4m3(p))"),), "rounded to f8e4m3"),
    "products to f16": ((("dot(f16(p), V[kt :+ 16, :])", "f32(f16(dot(f16(p), V[kt :+ 16, :])))"),), "rounded to f16"),
    "scores not below the maximum": (
        (("exp(s - safe)", "exp(s + 1.0 - safe)"),),
        "not known to be below the new maximum",
    ),
    "rows added up": (
        (("rowsum(p)", "reshape(transpose(colsum(p)), 16, 1)[0 :+ 8, :]"),),
        "rows are added up in reduce",
    ),
    "rows meet other rows": (
        (
            ("var acc: tile<f32>[8, 16]", "var acc: tile<f32>[8, 8]"),
            ("dot(f16(p), V[kt :+ 16, :])", "transpose(dot(f16(p), V[kt :+ 16, 0 :+ 8]))"),
            ("O[row :+ 8, :]", "O[row :+ 8, 0 :+ 8]"),
        ),
        "rows meet other rows",
    ),
    "exponentials of different scale": ((("exp(m - safe)", "exp2(m - safe)"),), "different scale"),
    "leaves early": (
        (("    m = mnew\n", "    m = mnew\n    if kt > 40 {\n      break\n    }\n"),),
        "an iteration can end early",
    ),
    "used under a condition": (
        (("    m = mnew\n", "    m = mnew\n    if kt > 40 {\n      l = l + rowsum(p)\n    }\n"),),
        "nested control flow",
    ),
    "decays": ((("m = mnew", "m = mnew * 0.5"),), ""),
    "maximum used twice": ((("tmax(m, rowmax(s))", "tmax(m, tmax(m * 1.0 + 0.0, rowmax(s)))"),), "m is used in"),
    "printed": ((("    m = mnew\n", '    m = mnew\n    print("m", mnew)\n'),), "used in print"),
    "IEEE": ((("V: tensor<f16>", "V: tensor<f32>"), ("f16(p)", "p")), "may not be approximate"),
}


@pytest.mark.parametrize("name", NOT)
def test_it_does_not_fire(name: str) -> None:
    edits, reason = NOT[name]
    result = run_passes(edited(*edits), fast=name == "p to 8 bits", **ALONE)
    assert not lagging(result.after)
    if reason:
        choice, why = result.choice("running maximum m")
        assert choice == "not applied" and reason in why


def test_a_transposed_sum_needs_a_transposed_correction_that_is_not_understood() -> None:
    assert not lagging(run_passes(TRANSPOSED_ACC, **ALONE).after)


@pytest.mark.parametrize("name", ["base 2 inside", "scaled scores"])
def test_a_scale_of_unknown_sign_prevents_it(name: str) -> None:
    result = run_passes(TEXTS[name], positive=False, **ALONE)
    assert not lagging(result.after)
    assert "not known to be" in result.choice("running maximum m")[1]


def test_fast_precision_makes_every_exponential_approximate() -> None:
    text = edited(*NOT["IEEE"][0])
    assert lagging(run_passes(text, fast=True, **ALONE).after)


def test_the_first_loop_needs_the_second() -> None:
    """Of two loops in a row, neither may lag where the second must not."""
    second = TWO_LOOPS.rindex("acc = acc * corr +")
    text = TWO_LOOPS[:second] + "acc = acc * corr + p[0, 0] +" + TWO_LOOPS[second + len("acc = acc * corr +") :]
    assert not lagging(run_passes(text, **ALONE).after)


def test_multiplications_by_one_are_skipped_without_lag_too() -> None:
    """A stored maximum prevents the lag; with results in f16, the multiplication is skipped while it stays."""
    quotient = "acc / where(l == 0.0, 1.0, l)"
    half = (("O: tensor<f32>", "O: tensor<f16>"), (quotient, f"f16({quotient})"))
    result = run_passes(edited(*half, *NOT["m is stored"][0]))
    assert [op.result.shape for op in skipped(result.after)] == [(8, 16)] and not lagging(result.after)
    assert not skipped(run_passes(edited(*NOT["IEEE"][0])).after)


@pytest.mark.parametrize(
    "corr", ["exp(mnew - m)", "exp(m - rowmax(s))", "exp(m - where(mnew == -inf, 0.0, mnew - 1.0))", "exp(m + mnew)"]
)
def test_other_factors_are_multiplied_always(corr: str) -> None:
    result = run_passes(edited(("exp(m - safe)", corr)))
    assert not skipped(result.after) and not lagging(result.after)


# --- what is emitted -----------------------------------------------------------------------------


def emitted(text: str, threads: int, **options: str) -> tuple[KernelIR, Any, list[Map]]:
    kernel = check_kernel(parse(SourceFile("case.ph", text)), "k")
    launch, chosen = replace(kernel.launch, threads=threads), replace(kernel.options, **options)
    kernel = replace(kernel, launch=launch, options=chosen)
    spec, target = replace(default_spec(kernel), dim_multiple=()), get_target("sm_90a")
    schedule = pipeline.run(kernel, target, spec).schedule
    maps = [s for s in walk(schedule.body) if isinstance(s, Map) and s.unless_one is not None]
    return kernel, build_program(kernel, target, spec, SourceFile("case.ph", text)), maps


def test_the_multiplication_is_behind_a_test() -> None:
    _, program, (skip,) = emitted(SOFTMAX, 64)
    assert skip.unless_one is not None and not skip.declare
    tests = " || ".join(f"{skip.unless_one.name}[{i}] != 1.0f" for i in range(skip.unless_one.layout.registers))
    assert f"if ({tests}) {{" in program.body
    assert not emitted(SOFTMAX, 64, rescale="off")[2]


def softmax_oracle(s: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In float64: softmax(s) @ v, log of the sums, and softmax(s) @ |v|, the scale of rounding errors."""
    s, v = s.astype(np.float64), v.astype(np.float64)
    m = s.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.exp(s - np.where(m == -np.inf, 0.0, m))
        total = p.sum(axis=1, keepdims=True)
        p = p / np.where(total == 0, 1.0, total)
        return p @ v, m + np.log(total), p @ np.abs(v)


@pytest.mark.parametrize(
    "options", [{}, {"rescale": "off"}, {"sums": "off"}, OFF], ids=["on", "no rescale", "no sums", "off"]
)
@pytest.mark.parametrize("threads", [32, 128])
def test_emulator_agrees_with_numpy(threads: int, options: dict[str, str]) -> None:
    kernel, program, _ = emitted(SOFTMAX, threads, **options)
    for kind in KINDS[:-1]:
        s = scores(kind)
        arrays = arguments(s)
        result = emulator.run(program, arrays, dims=harness.dims_of(kernel, arrays))
        assert not result.reports and not any(result.unwritten.values())
        with np.errstate(invalid="ignore"):
            o, logs, scale = softmax_oracle(s, arrays["V"])
        # p is rounded to f16 once, relative error 2^-11, and the rest is f32.
        assert (np.isnan(arrays["O"]) == np.isnan(o)).all() and (np.isnan(arrays["L"]) == np.isnan(logs)).all()
        good = ~np.isnan(o)
        assert (np.abs(arrays["O"] - o)[good] <= (2.0**-11 + 1e-4) * scale[good] + 1e-6).all()
        finite = np.isfinite(logs)
        np.testing.assert_allclose(arrays["L"][finite], logs[finite], rtol=1e-5, atol=2e-4)
        assert (arrays["L"][logs == -np.inf] == -np.inf).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("threads", "br", "bc", "options"),
    [
        (32, 16, 16, {}),
        (64, 32, 16, {}),
        (128, 16, 64, {}),
        (128, 16, 64, {"rescale": "off", "sums": "off"}),
        (128, 32, 32, {"matmul": "fma"}),
        (64, 32, 32, {"rescale": "off"}),
        (64, 32, 32, {"sums": "off"}),
    ],
)
def test_attention_in_f16(threads: int, br: int, bc: int, options: dict[str, str], causal: bool) -> None:
    sizes = {"B": 1, "H": 2, "HK": 1, "M": 37, "N": 53, "D": 32}
    config, consts = (("D", 32), ("BR", br), ("BC", bc)), (("causal", causal),)
    kernel = harness.with_threads(harness.kernel_ir("attention", "attention", config, consts, "f16"), threads)
    kernel = replace(kernel, options=replace(kernel.options, **options))
    before = harness.make_arguments("attention", sizes, "f16")
    spec = replace(harness.specialization(kernel, before), sign=(("scale", 1),))
    program, after = harness.build(kernel, "attention", spec), harness.copy_arguments(before)
    result = harness.emulate(program, kernel, after)
    assert not result.reports and not harness.unwritten("attention", result)
    arithmetic = harness.rounding_of(kernel, "f16", program=program)
    assert not harness.failures("attention", before, after, dict(consts), arithmetic)
    fired = {d.choice for d in program.decisions if d.stage == "algebra"}
    assert ("lazy rescale" in fired) == (options.get("rescale") != "off")
    assert ("kept in parts" in fired) == (options.get("sums") != "off")
