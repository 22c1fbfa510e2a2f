"""One kernel text through the whole compiler onto the emulator, compared with the reference interpreter.

The reference is tested against NumPy on its own (tests/reference), so it is the oracle here: the text printed for a
kernel must compute, under every schedule and specialization, what the interpreter computes for its tile IR.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from phobos import emulator, reference
from phobos.codegen.kernel import print_kernel
from phobos.ir.abi import Program, Specialization, TensorFacts
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.passes import pipeline
from phobos.reference.numerics import from_storage, storage_dtype, to_storage
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

FORMS = ("plain", "padded", "transposed", "inner", "shifted")


@dataclass(frozen=True)
class Variant:
    """What one compilation and launch differ in.

    `forms`: how arrays lie in memory, by tensor name ("plain" where absent): "padded" has gaps between rows,
    "transposed" the last two axes swapped in memory, "inner" a last stride of 2, "shifted" starts one element past a
    16-byte boundary. `overlap`: groups of tensor names whose arrays are the same memory, each `shift` elements further.
    `weak`: promise nothing of what holds. `tolerance`: relative, where products round operands that differ a little.
    """

    threads: int | None = None
    sched: int = 0
    index_bits: int = 32
    arch: str = "sm_90a"
    debug: bool = False
    fast_math: bool = False
    weak: bool = False
    forms: tuple[tuple[str, str], ...] = ()
    overlap: tuple[tuple[str, ...], ...] = ()
    shift: int = 0
    sign: tuple[tuple[str, int], ...] = ()
    tolerance: float = 0.0


@cache
def kernel_of(
    text: str, name: str = "k", config: tuple[tuple[str, object], ...] = (), dtype: str | None = None
) -> KernelIR:
    """The checked tile IR of kernel `name`; `dtype` binds the dtype name T."""
    return check_kernel(
        parse(SourceFile("case.ph", text)), name, config=dict(config), dtypes={"T": DType(dtype)} if dtype else {}
    )


def placed(array: np.ndarray, form: str) -> np.ndarray:
    """The same values in memory of another form."""
    if form == "padded":
        whole = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
        out = whole[..., : array.shape[-1]]
    elif form == "transposed" and array.ndim > 1:
        axes = (*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
        out = np.zeros([array.shape[a] for a in axes], array.dtype).transpose(axes)
    elif form == "inner":
        out = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)[..., ::2]
    elif form == "shifted":
        out = np.zeros(array.size + 1, array.dtype)[1:].reshape(array.shape)
    else:
        raw = np.zeros(array.nbytes + 16, np.uint8)  # on a 16-byte boundary
        start = -raw.ctypes.data % 16
        out = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def specialization(kernel: KernelIR, arguments: Mapping[str, Any], variant: Variant) -> Specialization:
    """What holds for these arguments, as the launcher finds it out; nothing where the variant is weak."""
    facts: dict[str, TensorFacts] = {}
    multiples: dict[str, int] = {}
    for t in kernel.tensors:
        array = arguments[t.name]
        aligned = array.ctypes.data % 16 == 0 and all(s % 16 == 0 for s in array.strides[:-1])
        inner = array.strides[-1] == array.itemsize
        facts[t.name] = TensorFacts(
            align16=aligned and inner and not variant.weak, contiguous=array.flags.c_contiguous and not variant.weak
        )
        for dim, extent in zip(t.type.dims, array.shape, strict=True):
            if isinstance(dim, str):
                multiples[dim] = 16 if extent % 16 == 0 and not variant.weak else 1
    return Specialization(
        tensors=tuple(facts.items()),
        dim_multiple=tuple(multiples.items()),
        index_bits=variant.index_bits,
        overlap=frozenset(name for group in variant.overlap for name in group),
        sign=variant.sign,
    )


def dims_of(kernel: KernelIR, arguments: Mapping[str, Any]) -> dict[str, int]:
    out: dict[str, int] = {}
    for t in kernel.tensors:
        out.update({d: n for d, n in zip(t.type.dims, arguments[t.name].shape, strict=True) if isinstance(d, str)})
    return out


def arranged(arguments: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    """Fresh copies of the arguments in the variant's memory forms; those of an overlap group are one array."""
    forms = dict(variant.forms)
    out = {n: placed(v, forms.get(n, "plain")) if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
    for first, *others in variant.overlap:
        own = out[first]
        memory = np.zeros(own.size + variant.shift * len(others), own.dtype)
        for number, name in enumerate((first, *others)):
            start = number * variant.shift
            out[name] = memory[start : start + own.size].reshape(own.shape)
        out[first][...] = own
    return out


def lowered(kernel: KernelIR, arguments: Mapping[str, Any], variant: Variant) -> tuple[KernelIR, Program]:
    """The kernel once the kinds of its products are fixed, and its text."""
    if variant.threads is not None:
        kernel = replace(kernel, launch=replace(kernel.launch, threads=variant.threads))
    fixed = [kernel]

    def observe(stage: str, state: object) -> None:
        if stage == "choose_contractions" and isinstance(state, KernelIR):
            fixed.append(state)

    result = pipeline.run(
        kernel, get_target(variant.arch), specialization(kernel, arguments, variant), debug=variant.debug,
        fast_math=variant.fast_math, observe=observe,
    )  # fmt: skip
    return fixed[-1], print_kernel(result.schedule, SourceFile("case.ph", ""))


def run_both(kernel: KernelIR, arguments: Mapping[str, Any], variant: Variant = Variant()) -> list[str]:
    """What differs between emulator and reference, one sentence each; faults that the emulator reports included."""
    expected = arranged(arguments, variant)
    actual = arranged(arguments, variant)
    scheduled, program = lowered(kernel, actual, variant)
    reference.run(scheduled, expected, on_print=lambda text, block: None)
    result = emulator.run(program, actual, dims=dims_of(kernel, actual), sched=variant.sched)
    problems = [str(r) for r in result.reports]
    for t in kernel.tensors:
        tolerance = max(variant.tolerance, 4e-4 if variant.fast_math else 0.0)
        problem = difference(actual[t.name], expected[t.name], t.type.dtype, tolerance)
        if problem:
            problems.append(f"{t.name}: {problem}")
    return problems


def difference(actual: np.ndarray, expected: np.ndarray, dtype: DType, tolerance: float = 0.0) -> str | None:
    """Integers must be equal, floats near: a few units in the last place of the dtype, since a tree order and functions
    of 2 ulp are allowed. NaN equals NaN."""
    a, b = from_storage(actual, dtype), from_storage(expected, dtype)
    if not dtype.is_float:
        wrong = a != b
    else:
        a, b = a.astype(np.float64), b.astype(np.float64)
        scale = {DType.F64: 1e-12, DType.F32: 2e-5, DType.F16: 4e-3, DType.BF16: 3e-2}.get(dtype, 0.3)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= max(scale, tolerance) * np.maximum(
                np.abs(b), 1.0 if dtype is DType.F32 else 0.1 if tolerance else 1e-2
            )
        wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return None
    at = tuple(int(i[0]) for i in np.nonzero(wrong))
    return f"{int(wrong.sum())} of {wrong.size} elements differ, first at {at}: {a[at]} instead of {b[at]}"


def random_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small values, exact in the dtype."""
    d = DType(dtype)
    if d.is_float:
        step = 1 if d in (DType.F8E4M3, DType.F8E5M2) else 4
        values = rng.integers(-6 * step // 2, 6 * step // 2 + 1, shape) / step
        return to_storage(values.astype(np.float32 if d is not DType.F64 else np.float64), d, storage_dtype(d))
    if d is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    low = 0 if d in (DType.U8, DType.U32) else -20
    return rng.integers(low, 40, shape).astype(storage_dtype(d))
