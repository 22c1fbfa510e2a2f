"""Every pass over the tile IR leaves it well-formed and keeps what the reference computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import harness
import numpy as np
import pytest
from cases import CASES, Case
from codegen.differential import arranged, difference, kernel_of, specialization
from codegen.generator import generate
from codegen.hazards import hazard_case
from codegen.products import attention_case, product_case
from ir.programs import outputs, random_kernel, same

from phobos import reference
from phobos.diagnostics import CompileError
from phobos.ir.abi import Specialization
from phobos.ir.tile import KernelIR
from phobos.ir.verify import verify
from phobos.passes import pipeline
from phobos.target import get_target


def stages(kernel: KernelIR, spec: Specialization, arch: str = "sm_90a") -> list[tuple[str, KernelIR]]:
    """(pass, kernel) of every pass that changed something."""
    found: list[tuple[str, KernelIR]] = [("the checker", kernel)]

    def observe(stage: str, state: object) -> None:
        if isinstance(state, KernelIR) and state is not found[-1][1]:
            found.append((stage, state))

    chosen = pipeline.choose(kernel, get_target(arch), spec, observe)
    pipeline.algebra(chosen.kernel, spec, observe)
    return found


@pytest.mark.parametrize("seed", range(25))
def test_random_ir(seed: int) -> None:
    kernel = random_kernel(seed)
    # N is 21 in these programs, so nothing may be promised of it.
    spec = Specialization(overlap=frozenset({"X", "Y"}) if seed % 5 == 0 else frozenset())
    before = outputs(kernel, seed)
    for stage, state in stages(kernel, spec):
        verify(state, stage)
        assert same(outputs(state, seed), before), stage


SOURCES: list[tuple[Callable[[int], object], int]] = [
    *((generate, seed) for seed in range(100, 118)),
    *((lambda seed: generate(seed, "memory"), seed) for seed in range(100, 108)),
    *((hazard_case, seed) for seed in range(100, 108)),
    *((product_case, seed) for seed in range(100, 112)),
    *((attention_case, seed) for seed in range(100, 112)),
]


@pytest.mark.parametrize("number", range(len(SOURCES)))
def test_random_texts(number: int) -> None:
    make, seed = SOURCES[number]
    case = make(seed)
    try:
        kernel = kernel_of(case.text)  # type: ignore[attr-defined]
        arguments, variant = case.arguments, case.variant  # type: ignore[attr-defined]
        spec = specialization(kernel, arranged(arguments, variant), variant)
        found = stages(kernel, spec, variant.arch)
    except CompileError as error:
        pytest.skip(error.diagnostics[0].code)
    expected: dict[str, np.ndarray] = {}
    for stage, state in found:
        verify(state, stage)
        actual = arranged(arguments, variant)
        reference.run(state, actual, on_print=lambda text, block: None)
        if (
            not expected or stage == "choose_contractions"
        ):  # where products get the rounding that they are computed with
            expected = actual
            continue
        for t in kernel.tensors:
            problem = difference(actual[t.name], expected[t.name], t.type.dtype, variant.tolerance)
            assert problem is None, f"{t.name} after {stage}: {problem}\n{case.text}"  # type: ignore[attr-defined]


_ONE = list({case.kernel: case for case in CASES}.values())


@pytest.mark.parametrize("case", _ONE, ids=lambda c: c.id)
def test_examples(case: Case) -> None:
    kernel = harness.case_ir(case)
    before = harness.case_arguments(case)
    spec = harness.specialization(kernel, before)
    signs = tuple((s.name, 1) for s in kernel.scalars if s.value.dtype.is_float and before[s.name] > 0)
    for overlap in (frozenset[str](), frozenset(t.name for t in kernel.tensors)):
        for stage, state in stages(kernel, replace(spec, overlap=overlap, sign=signs)):
            verify(state, stage)
            arguments = harness.copy_arguments(before)
            reference.run(state, arguments)
            rounding = harness.rounding_of(state, case.dtype)
            assert harness.failures(case.kernel, before, arguments, dict(case.consts), rounding) == [], stage
