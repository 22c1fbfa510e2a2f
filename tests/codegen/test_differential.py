"""Random kernels, emulator against reference: no difference, no report."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from codegen.differential import kernel_of, run_both
from codegen.generator import Case, generate
from codegen.hazards import hazard_case
from codegen.products import attention_case, product_case

from phobos.diagnostics import CompileError

# What a random text may run into: constant arithmetic that overflows, shapes that do not fit, too much shared memory,
# an option that excludes every way to compute a product.
EXPECTED = {"PH0213", "PH0216", "PH0220", "PH0221", "PH0222", "PH0229", "PH0510", "PH0530"}
CASES: list[tuple[Callable[[int], Case], int]] = [
    *((generate, seed) for seed in range(24)),
    *((lambda seed: generate(seed, "memory"), seed) for seed in range(6)),
    *((hazard_case, seed) for seed in range(12)),
    *((product_case, seed) for seed in range(14)),
    *((attention_case, seed) for seed in range(6)),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_emulator_agrees_with_reference(number: int) -> None:
    make, seed = CASES[number]
    case = make(seed)
    try:
        problems = run_both(kernel_of(case.text), case.arguments, case.variant)
    except CompileError as error:
        assert {d.code for d in error.diagnostics} <= EXPECTED, f"{error}\n{case.text}"
        pytest.skip(f"no such kernel: {error.diagnostics[0].code}")
    assert problems == [], f"{case.variant}\n{case.text}"
