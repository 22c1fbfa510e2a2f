"""Every example's emitted text on the CPU emulator: right numbers, nothing reported, nothing left unwritten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import harness
import pytest
from cases import CASES, Case

from phobos.ir.abi import Program
from phobos.ir.tile import KernelIR

# One ragged case of each kernel runs under all four schedules of the emulator and in every variant, the others once.
_ONE = list({case.kernel: case for case in CASES}.values())
_RUNS = [(case, sched) for case in CASES for sched in (range(4) if case in _ONE else (0,))]


def _check(case: Case, kernel: KernelIR, program: Program, arguments: dict[str, Any], sched: int = 0) -> None:
    """Runs the program on `arguments`, in place, and compares with the oracle."""
    before = harness.copy_arguments(arguments)
    result = harness.emulate(program, kernel, arguments, sched=sched)
    assert [str(report) for report in result.reports] == []
    assert harness.unwritten(case.kernel, result) == {}
    rounding = harness.rounding_of(kernel, case.dtype, program=program)
    assert harness.failures(case.kernel, before, arguments, dict(case.consts), rounding) == []


@pytest.mark.parametrize("case, sched", _RUNS, ids=[f"{c.id}-sched{s}" for c, s in _RUNS])
def test_emulator(case: Case, sched: int) -> None:
    kernel = harness.case_ir(case)
    arguments = harness.case_arguments(case)
    program = harness.build(kernel, case.file, harness.specialization(kernel, arguments))
    _check(case, kernel, program, arguments, sched)


@pytest.mark.parametrize("threads", [32, 128, 256])
@pytest.mark.parametrize("case", _ONE, ids=lambda c: c.id)
def test_any_number_of_threads(case: Case, threads: int) -> None:
    kernel = harness.with_threads(harness.case_ir(case), threads)
    arguments = harness.case_arguments(case)
    program = harness.build(kernel, case.file, harness.specialization(kernel, arguments))
    assert program.threads == threads
    _check(case, kernel, program, arguments)


@pytest.mark.parametrize("case", _ONE, ids=lambda c: c.id)
def test_positions_of_64_bits(case: Case) -> None:
    kernel = harness.case_ir(case)
    arguments = harness.case_arguments(case)
    spec = replace(harness.specialization(kernel, arguments), index_bits=64)
    _check(case, kernel, harness.build(kernel, case.file, spec), arguments)


@pytest.mark.parametrize("case", _ONE, ids=lambda c: c.id)
def test_arrays_with_gaps(case: Case) -> None:
    kernel = harness.case_ir(case)
    arguments = harness.strided_arguments(harness.case_arguments(case))
    spec = harness.specialization(kernel, arguments)
    assert not all(facts.contiguous for _, facts in spec.tensors)
    _check(case, kernel, harness.build(kernel, case.file, spec), arguments)
    assert harness.gaps_untouched(arguments)
