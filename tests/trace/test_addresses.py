"""Lane maps, 128-byte lines and bank conflicts of the trace are those of the addresses that the emulator records."""

from __future__ import annotations

from collections.abc import Callable

import harness
import numpy as np
import pytest
from addresses import compare
from cases import CASES, Case
from codegen.differential import arranged, dims_of, kernel_of, specialization
from codegen.generator import Case as Random
from codegen.generator import generate
from codegen.hazards import hazard_case
from codegen.products import attention_case, product_case

from phobos.diagnostics import CompileError
from phobos.layout.register import Digit, RegisterLayout
from phobos.source import SourceFile
from phobos.trace.slots import from_tile, to_tile


def _examples() -> list[Case]:
    """One small case of each kernel, and one with narrow floats, ragged where there is one."""
    chosen: dict[tuple[object, ...], Case] = {}
    for case in CASES:
        key = (case.kernel, case.dtype == "f32")
        size = int(np.prod([n for _, n in case.sizes]))
        if key not in chosen or (size % 2, -size) > (
            (before := int(np.prod([n for _, n in chosen[key].sizes]))) % 2,
            -before,
        ):
            chosen[key] = case
    return list(chosen.values())


@pytest.mark.parametrize("case", _examples(), ids=lambda c: c.id)
def test_examples(case: Case) -> None:
    kernel, arguments = harness.case_ir(case), harness.case_arguments(case)
    spec = harness.specialization(kernel, arguments)
    source = harness.load_example(case.file)[0]
    found = compare(kernel, arguments, harness.dims_of(kernel, arguments), spec, source)
    assert found.differences == [] and found.unknown == set()
    assert found.accesses > 0
    assert found.layouts == found.recorded


# One product of each room: multiply-add, warp-level tensor cores, and those with opaque accumulators.
@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("file", ["gemm_fp16", "flash_attention_fp16"])
def test_other_architectures(file: str, arch: str) -> None:
    case = next(c for c in CASES if c.file == file)
    kernel, arguments = harness.case_ir(case), harness.case_arguments(case)
    found = compare(
        kernel, arguments, harness.dims_of(kernel, arguments), harness.specialization(kernel, arguments),
        harness.load_example(file)[0], arch,
    )  # fmt: skip
    assert found.differences == [] and found.unknown == set()
    assert found.layouts == found.recorded


RANDOM: list[tuple[Callable[[int], Random], int]] = [
    *((generate, seed) for seed in range(100, 108)),
    *((product_case, seed) for seed in range(100, 105)),
    *((hazard_case, seed) for seed in range(100, 103)),
    *((attention_case, seed) for seed in range(100, 102)),
]


@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_random_kernels(number: int) -> None:
    make, seed = RANDOM[number]
    case = make(seed)
    try:
        kernel = kernel_of(case.text)
        arguments = arranged(case.arguments, case.variant)
        spec = specialization(kernel, arguments, case.variant)
        source = SourceFile("case.ph", case.text)
        found = compare(kernel, arguments, dims_of(kernel, arguments), spec, source, case.variant.arch)
    except CompileError as error:
        pytest.skip(f"no such kernel: {error.diagnostics[0].code}")
    assert found.differences == [] and found.unknown == set(), case.text
    assert found.layouts == found.recorded, case.text


def test_a_wrong_address_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane off by one element: the comparison says where."""
    from phobos.trace import accesses

    case = next(c for c in CASES if c.kernel == "softmax")
    kernel, arguments = harness.case_ir(case), harness.case_arguments(case)
    add = accesses.Log.add

    def shifted(log: accesses.Log, site: accesses.Site, offsets: np.ndarray, active: np.ndarray | None = None) -> None:
        moved = np.array(np.broadcast_to(offsets, (offsets.shape[0], 32)))
        if site.memory == "global" and not site.write:
            moved[0, 3] += site.size
        add(log, site, moved, active)

    monkeypatch.setattr(accesses.Log, "add", shifted)
    found = compare(
        kernel, arguments, harness.dims_of(kernel, arguments), harness.specialization(kernel, arguments),
        harness.load_example(case.file)[0],
    )  # fmt: skip
    assert any(d.startswith("only recorded") for d in found.differences)


def test_tile_and_slots_are_inverse() -> None:
    """With padding and replicas: 3 x 5 elements over 2 warps that hold the same."""
    layout = RegisterLayout.make(
        (3, 5), [Digit(1, 2, 4)], [Digit(1, 4, 1), Digit(0, 4, 1), Digit(None, 2)], [Digit(None, 2)]
    )
    tile = np.arange(1, 16, dtype=np.float32).reshape(3, 5)
    slots = from_tile(layout, tile)
    assert slots.shape == (2, 32, 2)
    assert (to_tile(layout, slots) == tile).all()
    # lane = column digit + 4 * row digit: lane 6 holds row 1, columns 2 and 6, of which the second does not exist.
    assert slots[0, 6].tolist() == [8.0, 0.0]
