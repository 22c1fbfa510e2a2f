"""Every example on the device, at the small whole and ragged sizes of the emulator's suite, against the same oracle.

Run under the toolkit's checkers too: `compute-sanitizer --tool memcheck|racecheck python -m pytest
tests/gpu/test_examples_on_gpu.py`.
"""

from __future__ import annotations

import harness
import pytest
from cases import CASES, Case

import phobos

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=[c.id for c in CASES])
def test_example(case: Case) -> None:
    kernel = phobos.load(str(harness.EXAMPLES / f"{case.file}.ph"), kernel=case.kernel)
    before = harness.make_arguments(case.kernel, dict(case.sizes), case.dtype, dict(case.scalars))
    after = harness.copy_arguments(before)
    kernel(**after, **dict(case.consts), config=dict(case.config), backend="cuda")
    kernel_ir = harness.case_ir(case)
    rounding = harness.rounding_of(kernel_ir, case.dtype, program=harness.build(kernel_ir, case.file))
    assert harness.failures(case.kernel, before, after, dict(case.consts), rounding) == []
