"""Each barrier and each mask of each example is needed: without it the emulator reports or the numbers are wrong.

What survives its own deletion is redundant and should not have been emitted, or is not covered by these sizes: both are
failures. A mutant runs at every size of its entry until one kills it; loops make at least three trips, so that a
barrier between two iterations counts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import harness
import pytest
from mutants import SWITCH, switched, unmatched_synchronisation

from phobos.ir.abi import Program, ScalarArg
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType


@dataclass(frozen=True)
class Entry:
    """An example under one configuration, at sizes that end within a tile. The variant that is compiled is the one for
    these sizes: extents that are multiples of 16 give the text with wide accesses, the others the general one."""

    file: str
    kernel: str
    config: dict[str, int]
    sizes: list[dict[str, int]]
    consts: dict[str, int] = field(default_factory=dict)  # bools too
    dtype: str = "f32"
    threads: int | None = None  # None: as many as the compiler chooses
    matmul: str = "auto"

    @property
    def id(self) -> str:
        parts = [self.kernel, *(f"{k}{v}" for k, v in (self.config | self.consts).items())]
        parts += [f"threads{self.threads}"] if self.threads else []
        parts += [self.matmul] if self.matmul != "auto" else []
        return "-".join(parts + [f"{name}{extent}" for name, extent in self.sizes[0].items()])


def _sizes(**axes: int | tuple[int, ...]) -> list[dict[str, int]]:
    """Every combination of the given extents."""
    choices = [(extent,) if isinstance(extent, int) else extent for extent in axes.values()]
    return [dict(zip(axes, extents, strict=True)) for extents in itertools.product(*choices)]


def _trips(tile: int, most: int = 6, *, ragged: bool = True) -> tuple[int, ...]:
    """Extents for which a loop over tiles makes `most` .. 1 trips, the last one whole or (first here) ragged: a ring of
    buffers is filled and drained in all ways."""
    whole = range(most * tile, 0, -tile)
    return (*(n - tile + tile // 2 + 1 for n in whole if ragged), *whole)


def _ring16(tile: int, most: int = 6) -> tuple[int, ...]:
    """The same with extents that are all multiples of 16, for the variant with wide accesses."""
    whole = range(most * tile, 0, -tile)
    return (*(n - tile + 16 for n in whole), *whole)


# Extents that end within a tile, and extents of whole tiles: a mask of one axis shows where the others are whole.
ENTRIES = [
    Entry("saxpy_fp32", "saxpy", {"BN": 256}, _sizes(N=601)),
    Entry("saxpy_fp32", "saxpy", {"BN": 256}, _sizes(N=592)),
    Entry("softmax_fp32", "softmax", {"BR": 2, "BN": 64}, _sizes(M=(5, 4), N=(50, 64, 210, 192))),
    Entry("softmax_fp32", "softmax", {"BR": 2, "BN": 64}, _sizes(M=(5, 4), N=(48, 64, 208, 192))),
    Entry("layernorm_fp32", "layernorm", {"BR": 2, "BN": 64}, _sizes(M=(5, 4), N=(50, 64, 210, 192))),
    Entry("gemm_fp32", "gemm", {"BM": 32, "BN": 32, "BK": 8}, _sizes(M=(37, 64), N=(41, 64), K=_trips(8))),
    Entry(
        "gemm_fp32",
        "gemm",
        {"BM": 32, "BN": 64, "BK": 32},
        _sizes(M=(48, 64), N=(80, 128), K=(112, 16, 48, 80, 144, 176, 32, 64, 96, 128, 160, 192)),
    ),
    Entry(
        "flash_attention_fp32",
        "flash_attention",
        {"D": 64, "BR": 16, "BC": 16},
        _sizes(Nq=16, Nk=_trips(16, ragged=False), D=64),
    ),
    Entry(
        "flash_attention_fp32",
        "flash_attention",
        {"D": 64, "BR": 4, "BC": 8},
        _sizes(Nq=8, Nk=_trips(8, ragged=False), D=64),
    ),
    Entry(
        "masked_attention_fp32",
        "masked_attention",
        {"D": 16, "BR": 16, "BC": 16},
        _sizes(Nq=(37, 32), Nk=_trips(16), D=16),
        consts={"causal": False},
    ),
    Entry(
        "masked_attention_fp32",
        "masked_attention",
        {"D": 32, "BR": 32, "BC": 16},
        _sizes(Nq=(45, 64), Nk=_trips(16), D=32),
        consts={"causal": True},
    ),
    Entry("transpose", "transpose_matrix", {"BM": 16, "BN": 32}, _sizes(M=(37, 32), N=(45, 64))),
    # Several warps on a line and several lines on a warp: exchange between warps needs barriers of its own.
    Entry("softmax_fp32", "softmax", {"BR": 2, "BN": 256}, _sizes(M=(5, 4), N=(250, 256, 600)), threads=128),
    Entry("layernorm_fp32", "layernorm", {"BR": 4, "BN": 128}, _sizes(M=(5, 8), N=(120, 128, 500)), threads=256),
    Entry("argmax_rows", "argmax_rows", {"BR": 2, "BN": 256}, _sizes(M=(5, 4), N=(700, 768)), threads=256),
    Entry("quantize_rows", "quantize_rows", {"BR": 4, "BN": 128}, _sizes(M=(6, 8), N=(300, 384)), threads=256),
    Entry("cumsum", "cumsum_rows", {"BR": 4, "BN": 64}, _sizes(M=(6, 8), N=(210, 192)), threads=128),
    Entry("matvec", "matvec", {"BM": 4, "BK": 256}, _sizes(M=(7, 8), K=(700, 768)), threads=128),
    Entry("sum_squares", "sum_squares", {"BN": 1024}, _sizes(N=3001), threads=256),
    Entry("searchsorted", "searchsorted", {"BN": 256}, _sizes(L=33, N=500), threads=128),
    Entry("transpose", "transpose_matrix", {"BM": 32, "BN": 32}, _sizes(M=(37, 32), N=(45, 64)), threads=128),
    Entry("permute_rows", "permute_rows", {"BN": 8, "BD": 32}, _sizes(N=(13, 16), D=(37, 32)), threads=128),
    Entry("rope", "rope", {"D": 64, "BN": 16}, _sizes(N=21, H=2, D=64), threads=128),
    Entry("embedding", "embedding_grad", {"BN": 8, "BD": 32}, _sizes(N=(13, 16), V=10, D=(37, 32)), threads=128),
    Entry(
        "gemm_fp32", "gemm", {"BM": 64, "BN": 64, "BK": 16}, _sizes(M=(70, 64), N=(67, 64), K=_trips(16)), threads=128
    ),
    Entry(
        "masked_attention_fp32",
        "masked_attention",
        {"D": 16, "BR": 32, "BC": 32},
        _sizes(Nq=(45, 64), Nk=_trips(32), D=16),
        consts={"causal": True},
        threads=128,
    ),
    Entry(
        "gemm_int8",
        "gemm_int8",
        {"BM": 32, "BN": 32, "BK": 32},
        _sizes(M=(40, 32), N=(45, 32), K=_trips(32)),
        threads=128,
    ),
    Entry("argmax_rows", "argmax_rows", {"BR": 2, "BN": 64}, _sizes(M=(5, 4), N=(210, 192))),
    Entry("histogram", "histogram", {"BN": 128}, _sizes(N=300, B=7)),
    Entry("embedding", "embedding", {"BN": 8, "BD": 16}, _sizes(N=(13, 16), V=10, D=(37, 32))),
    Entry("embedding", "embedding_grad", {"BN": 8, "BD": 16}, _sizes(N=(13, 16), V=10, D=(37, 32))),
    Entry("permute_rows", "permute_rows", {"BN": 8, "BD": 16}, _sizes(N=(13, 16), D=(37, 32))),
    Entry("cumsum", "cumsum_rows", {"BR": 4, "BN": 32}, _sizes(M=(6, 8), N=(110, 96))),
    Entry("rope", "rope", {"D": 32, "BN": 8}, _sizes(N=13, H=3, D=32)),
    Entry("gelu", "gelu_forward", {"BN": 256}, _sizes(N=333), dtype="f16"),
    Entry("stencil", "heat_step", {"BH": 4, "BW": 16}, _sizes(H=(5, 7, 8), W=(19, 32))),
    Entry("conv1d", "conv1d", {"BN": 16, "BD": 16}, _sizes(N=(37, 32), D=(21, 32), R=6)),
    Entry("matvec", "matvec", {"BM": 4, "BK": 64}, _sizes(M=(7, 8), K=(210, 192))),
    Entry("sum_squares", "sum_squares", {"BN": 128}, _sizes(N=9001)),
    Entry("searchsorted", "searchsorted", {"BN": 64}, _sizes(L=33, N=100)),
    Entry("gemm_int8", "gemm_int8", {"BM": 16, "BN": 32, "BK": 16}, _sizes(M=(21, 32), N=(45, 64), K=_trips(16))),
    Entry("quantize_rows", "quantize_rows", {"BR": 4, "BN": 64}, _sizes(M=(6, 8), N=(210, 192))),
    # Products by tensor cores, their operands through rings where the rows are wide enough for asynchronous copies.
    Entry(
        "gemm_fp16",
        "gemm_fp16",
        {"BM": 32, "BN": 64, "BK": 16},
        _sizes(M=(37, 64), N=(50, 64), K=_trips(16)),
        dtype="f16",
    ),
    Entry(
        "gemm_bf16",
        "gemm_bf16",
        {"BM": 64, "BN": 32, "BK": 32},
        _sizes(M=(48, 64), N=(80, 96), K=_ring16(32)),
        dtype="bf16",
    ),
    Entry(
        "gemm_fp16tc_fp32acc",
        "gemm_fp16tc_fp32acc",
        {"BM": 32, "BN": 32, "BK": 16},
        _sizes(M=(37, 32), N=(41, 64), K=_trips(16)),
    ),
    Entry(
        "flash_attention_fp16",
        "flash_attention_fp16",
        {"D": 64, "BR": 16, "BC": 32},
        _sizes(Nq=(21, 32), Nk=_trips(32), D=64),
        dtype="f16",
    ),
    Entry(
        "attention",
        "attention",
        {"D": 48, "BR": 32, "BC": 16},
        _sizes(B=1, H=3, HK=2, M=(45, 64), N=_trips(16), D=48),
        consts={"causal": True},
        dtype="f16",
    ),
    Entry(
        "attention",
        "attention",
        {"D": 64, "BR": 64, "BC": 32},
        _sizes(B=1, H=3, HK=2, M=(45, 64), N=(*_trips(32), 0), D=64),
        consts={"causal": False},
        dtype="bf16",
    ),
    Entry(
        "windowed_attention",
        "windowed_attention",
        {"D": 32, "BR": 32, "BC": 16},
        _sizes(H=1, M=(45, 64), N=_trips(16), D=32),
        consts={"window": 24},
        dtype="f16",
    ),
    Entry("kda_fp32", "kda", {"D": 32, "C": 16}, _sizes(N=_trips(16), D=32)),
    Entry("kda_fp32", "kda", {"D": 16, "C": 32}, _sizes(N=_trips(32), D=16), threads=128),
    # Opaque fragments: carried through the main loop, and delivered between the two products of attention.
    Entry(
        "gemm_fp16",
        "gemm_fp16",
        {"BM": 32, "BN": 64, "BK": 16},
        _sizes(M=(48, 64), N=(80, 128), K=_ring16(16)),
        dtype="f16",
        threads=64,
        matmul="wmma",
    ),
    Entry(
        "flash_attention_fp16",
        "flash_attention_fp16",
        {"D": 64, "BR": 32, "BC": 32},
        _sizes(Nq=(48, 32), Nk=_ring16(32), D=64),
        dtype="f16",
        threads=64,
        matmul="wmma",
    ),
]


def _verdict(
    entry: Entry, program: Program, kernel: KernelIR, arguments: dict[str, Any], mutant: int | None = None
) -> str | None:
    """What shows that this run is wrong, or None. `mutant` selects one of a switched text."""
    after = harness.copy_arguments(arguments)
    switch = {} if mutant is None else {SWITCH: mutant}
    result = harness.emulate(program, kernel, {**after, **switch}, timeout=10.0, opt="-O0")
    if result.reports:
        return str(result.reports[0])
    if missing := harness.unwritten(entry.kernel, result):
        return f"unwritten: {missing}"
    rounding = harness.rounding_of(kernel, entry.dtype, program=program)
    wrong = harness.failures(entry.kernel, arguments, after, entry.consts, rounding)
    return wrong[0] if wrong else None


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.id)
def test_every_barrier_and_mask_is_needed(entry: Entry) -> None:
    kernel = harness.kernel_ir(
        entry.file, entry.kernel, tuple(entry.config.items()), tuple(entry.consts.items()), entry.dtype
    )
    if entry.threads is not None:
        kernel = harness.with_threads(kernel, entry.threads)
    kernel = replace(kernel, options=replace(kernel.options, matmul=entry.matmul))
    runs = [harness.make_arguments(entry.kernel, sizes, entry.dtype) for sizes in entry.sizes]
    spec = harness.weakest([harness.specialization(kernel, arguments) for arguments in runs])
    program = harness.build(kernel, entry.file, spec)
    for arguments in runs:
        assert _verdict(entry, program, kernel, arguments) is None, "the unchanged text must pass"
    assert unmatched_synchronisation(program.body) == []
    body, labels = switched(program.body)
    changed = replace(program, body=body, args=(*program.args, ScalarArg(name=SWITCH, dtype=DType.I32)))
    assert _verdict(entry, changed, kernel, runs[0], -1) is None, "the switched text without a mutant must pass"
    survivors = [
        label
        for number, label in enumerate(labels)
        if not any(_verdict(entry, changed, kernel, arguments, number) for arguments in runs)
    ]
    assert survivors == []
