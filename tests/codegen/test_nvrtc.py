"""NVRTC accepts the same texts: what the host compiler passes may fail as CUDA (overloads, constness, small types)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from codegen.differential import arranged, kernel_of, lowered
from codegen.generator import Case, generate
from codegen.products import attention_case, product_case

from phobos.diagnostics import CompileError
from phobos.runtime.nvrtc import compile_program
from phobos.target import get_target

SOURCES: list[tuple[Callable[[int], Case], int]] = [
    *((generate, seed) for seed in (3, 5, 9, 14, 16, 20, 24, 26)),
    *((product_case, seed) for seed in (1, 4, 8)),
    *((attention_case, seed) for seed in (3,)),
]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize("number", range(len(SOURCES)))
def test_compiles(number: int, arch: str) -> None:
    make, seed = SOURCES[number]
    case = make(seed)
    variant = replace(case.variant, arch=arch, debug=True, fast_math=number % 3 == 0)
    try:
        _, program = lowered(kernel_of(case.text), arranged(case.arguments, variant), variant)
    except CompileError as error:
        pytest.skip(error.diagnostics[0].code)
    binary = compile_program(program, get_target(arch))
    assert binary.cubin and binary.registers > 0
