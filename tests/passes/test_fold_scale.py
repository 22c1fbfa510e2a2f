"""fold_scale: where a scale goes into exp2, where it must not, and that only rounding changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes.algebra import KINDS, OFF, SOFTMAX, Edits, arguments, assert_same, edited, run_passes, scores

from phobos import reference
from phobos.ir.tile import Compute, KernelIR
from phobos.ir.walk import kernel_ops

ALONE = {**OFF, "fold": "auto"}
LOAD = "let s = S[row :+ 8, kt :+ 16] else -inf"
# A scaled product would be in place of a scaled load; the pass does not ask where scores come from.
SCALED = edited((LOAD, "let s = where(iota(1) < N - kt, S[row :+ 8, kt :+ 16] * c, -inf)"))


def computes(kernel: KernelIR, fn: str, shape: Sequence[int] = (8, 16)) -> list[Compute]:
    return [op for op in kernel_ops(kernel) if isinstance(op, Compute) and op.fn == fn and op.result.shape == shape]


def scalings(kernel: KernelIR) -> list[Compute]:
    """Multiplications of a tile of scores by a scalar."""
    return [op for op in computes(kernel, "mul") if not all(a.is_tile for a in op.args)]


FOLDS: dict[str, Edits] = {
    "a parameter": (),
    "a literal": (("* c,", "* 0.125,"),),
    "a product of both": (("* c,", "* (c * 2.0),"),),
    "on the left": (("S[row :+ 8, kt :+ 16] * c", "c * S[row :+ 8, kt :+ 16]"),),
    "without a guard": (("exp(s - safe)", "exp(s - mnew)"),),
    "masked twice": (
        ("    let mnew", "    let u = where(iota(0) < M - row, s, -inf)\n    let mnew"),
        ("rowmax(s)", "rowmax(u)"),
        ("exp(s - safe)", "exp(u - safe)"),
    ),
    "no mask": (("where(iota(1) < N - kt, S[row :+ 8, kt :+ 16] * c, -inf)", "(S[row :+ 8, kt :+ 16] else -inf) * c"),),
}


@pytest.mark.parametrize("name", FOLDS)
def test_it_folds(name: str) -> None:
    result = run_passes(edited(*FOLDS[name], text=SCALED), **ALONE)
    assert not scalings(result.after) and not computes(result.after, "exp")
    assert len(computes(result.after, "fma")) == 1 and len(computes(result.after, "exp2")) == 1
    # The maximum of the unscaled scores is scaled afterwards, a row at a time.
    assert any(not all(a.is_tile for a in op.args) for op in computes(result.after, "mul", (8, 1)))
    assert result.choice("exp of p")[0] == "exp2 of one multiply-add"


KEEPS_SCALE: dict[str, Edits] = {
    "a negative literal": (("* c,", "* -0.5,"),),
    "zero": (("* c,", "* 0.0,"),),
    "a difference of scalars": (("* c,", "* (c - 0.5),"),),
    "read as it is": (("    m = mnew\n", "    m = mnew\n    L[row :+ 8, :] = s[:, 0 :+ 1]\n"),),
    "its minimum": (("    m = mnew\n", "    m = mnew\n    L[row :+ 8, :] = rowmin(s)\n"),),
    "its sum": (("l * corr + rowsum(p)", "l * corr + rowsum(p) + 0.0 * rowsum(s)"),),
    "in another exponential": (("    m = mnew\n", "    m = mnew\n    L[row :+ 8, :] = rowsum(exp(s - 1.0))\n"),),
    "a tile of scales": (("* c,", "* S[row :+ 8, 0 :+ 1],"),),
}


@pytest.mark.parametrize("name", KEEPS_SCALE)
def test_the_scale_stays(name: str) -> None:
    """Only the base changes."""
    result = run_passes(edited(*KEEPS_SCALE[name], text=SCALED), **ALONE)
    assert len(scalings(result.after)) == (name != "a tile of scales")
    assert len(computes(result.after, "fma")) == 1 and len(computes(result.after, "exp2")) == 1
    choice, reason = result.choice("exp of p")
    assert choice == "exp2, scale not folded" and reason


def test_a_scale_of_unknown_sign_stays() -> None:
    result = run_passes(SCALED, positive=False, **ALONE)
    assert len(scalings(result.after)) == 1
    assert "not a tile times a scalar known to be positive" in result.choice("exp of p")[1]


UNCHANGED: dict[str, tuple[Edits, str]] = {
    "a finite stand-in": ((("* c, -inf)", "* c, -1.0e30)"),), "what masks its argument is not -inf"),
    "masked the other way": (
        (
            (
                "where(iota(1) < N - kt, S[row :+ 8, kt :+ 16] * c, -inf)",
                "where(iota(1) >= N - kt, -inf, S[row :+ 8, kt :+ 16] * c)",
            ),
        ),
        "",
    ),
    "no difference": ((("exp(s - safe)", "exp(s * 0.01)"),), "not a difference"),
    "a difference read twice": (
        (
            ("let p = exp(s - safe)", "let d = s - safe\n    let p = exp(d)"),
            ("rowsum(p)", "rowsum(p) + 0.0 * rowsum(d)"),
        ),
        "not a difference of tiles that it alone reads",
    ),
    "minus a scalar": ((("exp(s - safe)", "exp(s - c)"),), "not a difference"),
    "IEEE": ((("V: tensor<f16>", "V: tensor<f32>"), ("f16(p)", "p")), "it may not be approximate"),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_the_exponential_stays(name: str) -> None:
    edits, reason = UNCHANGED[name]
    result = run_passes(edited(*edits, text=SCALED), **ALONE)
    if reason:
        assert len(computes(result.after, "exp")) == 1 and not computes(result.after, "exp2")
        choice, why = result.choice("exp of p")
        assert choice == "unchanged" and reason in why
    for kind in ("ordinary", "masked") if name != "IEEE" else ():  # which has other arguments, and no change
        assert_same(result.before, result.after, scores(kind))


def test_it_can_be_switched_off() -> None:
    result = run_passes(SCALED, **OFF)
    assert len(computes(result.after, "exp")) == 1 and len(scalings(result.after)) == 1
    assert result.choice("fold_scale") == ("off", "the option fold = off")


def test_equal_tiles_keep_an_exponential_of_exactly_one() -> None:
    """exp(m_old - m) becomes exp2((m_old - m) log2 e): no multiply-add, which leaves a rounding error for equal m."""
    text = edited(
        ("L[row :+ 8, :] = m + log(l)", "L[row :+ 8, :] = l"),
        ("O: tensor<f32>", "O: tensor<f16>"),
        ("acc / where(l == 0.0, 1.0, l)", "f16(acc / where(l == 0.0, 1.0, l))"),
    )
    result = run_passes(text, **ALONE)
    (power,) = computes(result.after, "exp2", (8, 1))
    defs = {op.result: op for op in kernel_ops(result.after) if isinstance(op, Compute)}
    assert power.approximate and defs[power.args[0]].fn == "mul"
    assert defs[defs[power.args[0]].args[0]].fn == "sub" and not computes(result.after, "fma", (8, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["plain", *FOLDS])
def test_only_rounding_changes(name: str, kind: str) -> None:
    if name == "without a guard" and kind in ("masked", "not numbers"):
        pytest.skip("without the guard, -inf - -inf is NaN before and after")
    result = run_passes(SOFTMAX if name == "plain" else edited(*FOLDS[name], text=SCALED), **ALONE)
    assert_same(result.before, result.after, scores(kind))


@pytest.mark.parametrize("c", [-1.5, 0.0])
def test_a_kernel_for_any_sign_serves_scales_that_are_not_positive(c: float) -> None:
    result = run_passes(SCALED, positive=False)
    outputs = []
    for kernel in (result.before, result.after):
        arrays = {**arguments(scores("ordinary"), np.float64), "c": c}
        reference.run(kernel, arrays, float64=True)
        outputs.append(arrays["O"])
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-10, atol=1e-12)
