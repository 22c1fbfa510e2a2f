"""Between its two products attention keeps its values in registers, and operands arrive without bank conflicts:
shown on the addresses that the emulator records, not on the compiler's own layouts."""

from __future__ import annotations

from dataclasses import replace

import harness
import numpy as np
import pytest

from phobos.compiler import build_program, default_spec
from phobos.emulator import run
from phobos.emulator.conflicts import conflicts
from phobos.ir.types import DType
from phobos.semantic.check import check_kernel
from phobos.target import get_target

_SIZES = [(64, 64, 64), (128, 32, 64), (64, 32, 128), (64, 64, 48), (64, 64, 80), (64, 32, 96)]


def _recorded(br: int, bc: int, d: int):  # type: ignore[no-untyped-def]
    source, module = harness.load_example("attention")
    kernel = check_kernel(
        module, "attention", {"D": d, "BR": br, "BC": bc}, {"T": DType.F16}, {"causal": False}
    )
    kernel = replace(kernel, launch=replace(kernel.launch, threads=128))
    program = build_program(kernel, get_target("sm_90a"), default_spec(kernel), source)
    rng = np.random.default_rng(7)
    n = 4 * bc
    q = rng.standard_normal((1, 1, br, d)).astype(np.float16)
    k, v = (rng.standard_normal((1, 1, n, d)).astype(np.float16) for _ in range(2))
    o = np.full_like(q, np.nan)
    dims = {"B": 1, "H": 1, "HK": 1, "M": br, "N": n}
    result = run(program, {"Q": q, "K": k, "V": v, "O": o, "scale": d**-0.5}, dims=dims, record=True)
    assert [str(r) for r in result.reports] == []
    s = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 1, 3, 2) * d**-0.5
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    expected = (p / p.sum(axis=-1, keepdims=True)) @ v.astype(np.float64)
    assert np.linalg.norm(o - expected) < 1e-3 * np.linalg.norm(expected)
    return source, conflicts(result.accesses)


@pytest.mark.parametrize("br, bc, d", _SIZES)
def test_no_store_between_the_products_and_no_conflicts(br: int, bc: int, d: int) -> None:
    source, costs = _recorded(br, bc, d)
    lines = source.text.splitlines()
    first = next(i for i, text in enumerate(lines, 1) if "dot_t(" in text)
    second = next(i for i, text in enumerate(lines, 1) if "dot(T(p)" in text)
    shared = [c for c in costs if c.space == "shared"]
    between = [c for c in shared if first < c.line < second]
    assert between == [], "the softmax touches shared memory"
    # On the lines of the products themselves shared memory is written by staging only: by asynchronous copies, and
    # for Q, which is staged once in front of the loop, by the plain copy of its line.
    loads = [c for c in shared if not c.is_write and c.line in (first, second)]
    assert loads, "the products read their operands from shared memory"
    assert {c.kind for c in loads} == {"ldmatrix"}
    assert [c for c in loads if c.degree != 1.0] == []
    stores_of_p = [c for c in shared if c.is_write and c.line == second and c.kind not in ("cp_async",)]
    assert stores_of_p == [], "the left operand of the second product goes through shared memory"
