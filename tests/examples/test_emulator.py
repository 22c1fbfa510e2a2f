"""Every example's emitted text on the CPU emulator: right numbers, nothing reported, nothing left unwritten."""

from __future__ import annotations

import harness
import pytest
from cases import CASES, Case

# One ragged case of each kernel runs under all four schedules of the emulator, the others under one.
_SCHEDULES = {case.kernel: case for case in CASES}
_RUNS = [(case, sched) for case in CASES for sched in (range(4) if _SCHEDULES[case.kernel] is case else (0,))]


@pytest.mark.parametrize("case, sched", _RUNS, ids=[f"{c.id}-sched{s}" for c, s in _RUNS])
def test_emulator(case: Case, sched: int) -> None:
    kernel = harness.case_ir(case)
    before = harness.make_arguments(case.kernel, dict(case.sizes), case.dtype, dict(case.scalars))
    program = harness.build(kernel, case.file, harness.specialization(kernel, before))
    after = harness.copy_arguments(before)
    result = harness.emulate(program, kernel, after, sched=sched)
    assert [str(report) for report in result.reports] == []
    assert harness.unwritten(case.kernel, result) == {}
    rounding = harness.rounding_of(kernel, case.dtype, program=program)
    assert harness.failures(case.kernel, before, after, dict(case.consts), rounding) == []
