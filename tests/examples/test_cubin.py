"""Every example compiles to a cubin for every architecture, without a GPU."""

from __future__ import annotations

import harness
import pytest
from cases import CASES, Case

from phobos.target import ARCHITECTURES, get_target

# The first case of each kernel with all its branches; the attention for many heads once for each dtype.
_FIRST = list(
    {
        (case.kernel, case.dtype if case.kernel == "attention" else ""): case
        for case in reversed(CASES)
        if all(value for _, value in case.consts)
    }.values()
)


@pytest.mark.parametrize("case", _FIRST, ids=lambda c: c.id)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_cubin(case: Case, arch: str) -> None:
    from phobos.runtime.nvrtc import compile_program

    kernel = harness.case_ir(case)
    binary = compile_program(harness.build(kernel, case.file, arch=arch), get_target(arch))
    assert binary.cubin[:4] == b"\x7fELF"
    assert binary.spill_bytes == 0, binary.log
