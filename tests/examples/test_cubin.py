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


@pytest.mark.parametrize("d", [48, 64, 80, 96, 128])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_attention_of_every_head_size_stays_in_registers(d: int, arch: str) -> None:
    from phobos.runtime.nvrtc import compile_program

    config, consts = (("D", d), ("BR", 64), ("BC", 64)), (("causal", True),)
    kernel = harness.kernel_ir("attention", "attention", config, consts, "f16")
    program = harness.build(kernel, "attention", arch=arch)
    assert {c.choice for c in program.decisions if c.stage == "contraction"} == {"mma (ieee)"}
    binary = compile_program(program, get_target(arch))
    assert binary.spill_bytes == 0, binary.log
