"""The oracles stand apart from phobos, cover every example, and their bounds are tight enough to see an error."""

from __future__ import annotations

import ast
from pathlib import Path

import harness
import numpy as np
import oracles
import oracles_products
import pytest
import rounding
from cases import CASES, Case
from oracles import ORACLES


def test_oracles_do_not_import_phobos() -> None:
    for module in (oracles, oracles_products, rounding):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not any(name.split(".")[0] in ("phobos", "kbench") for name in imported)


def test_every_kernel_of_every_example_has_an_oracle_and_cases() -> None:
    kernels = {
        (path.stem, kernel.name.id)
        for path in harness.EXAMPLES.glob("*.ph")
        for kernel in harness.load_example(path.stem)[1].kernels
    }
    assert kernels == {(case.file, case.kernel) for case in CASES}
    assert {kernel for _, kernel in kernels} == set(ORACLES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_bounds_accept_the_exact_result_and_reject_a_wrong_element(case: Case) -> None:
    arguments = harness.case_arguments(case)
    arithmetic = rounding.Rounding(dtype=case.dtype)
    with np.errstate(all="ignore"):
        expected = ORACLES[case.kernel].expect(arguments, dict(case.consts), arithmetic)
    assert expected
    for name, result in expected.items():
        before = arguments[name]
        stored = (
            result.value.round().astype(before.dtype)
            if before.dtype.kind == "i"
            else rounding.store(result.value, case.dtype)
        )
        assert rounding.mismatch(stored, result, case.dtype) is None
        assert rounding.mismatch(before, result, case.dtype) is not None, "the untouched output passes"
        wrong = stored.copy()
        at = tuple(n - 1 for n in wrong.shape)
        spread = float(np.abs(result.value).max()) or 1.0
        if case.dtype == "bf16":
            wrong[at] = rounding.to_bf16(np.array([result.value[at] + 0.05 * spread]))[0]
        else:
            wrong[at] += wrong.dtype.type(max(1.0, 0.02 * spread) if before.dtype.kind == "i" else 0.02 * spread)
        assert rounding.mismatch(wrong, result, case.dtype) is not None, f"an error of 2 % in {name} passes"


def test_bf16_rounding_against_known_bits() -> None:
    values = np.array([1.0, -2.0, 1.00390625, 1.01171875, 3.3895e38, 1e-40], np.float32)
    # 1 + 2^-8 and 1 + 3 * 2^-8 lie halfway between two neighbours and go to the even one.
    assert rounding.to_bf16(values).tolist() == [0x3F80, 0xC000, 0x3F80, 0x3F82, 0x7F7F, 0x0001]
    assert rounding.from_bf16(np.array([0x3F80, 0xC000, 0x7F80], np.uint16)).tolist() == [1.0, -2.0, np.inf]


def test_attention_oracle_against_a_loop() -> None:
    arguments = harness.make_arguments("masked_attention", {"Nq": 5, "Nk": 3, "D": 4})
    value = ORACLES["masked_attention"].expect(arguments, {"causal": True}, rounding.Rounding())["O"].value
    for i in range(5):
        keys = [j for j in range(3) if j <= i + 3 - 5]
        if not keys:
            assert (value[i] == 0.0).all()
            continue
        scores = [float(arguments["Q"][i].astype(float) @ arguments["K"][j].astype(float)) * 0.5 for j in keys]
        weights = np.exp(scores) / np.exp(scores).sum()
        assert value[i] == pytest.approx(weights @ arguments["V"][keys].astype(float), rel=1e-12)
