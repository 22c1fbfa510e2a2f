"""One path from an example file to checked numbers on each executor, shared by the suites over the examples."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rounding
from cases import GENERIC, Case
from oracles import ORACLES

from phobos.ir.abi import Specialization, TensorFacts, known_multiples
from phobos.ir.tile import Dot, KernelIR
from phobos.ir.types import DType
from phobos.ir.walk import kernel_ops
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax import ast
from phobos.syntax.parser import parse

if TYPE_CHECKING:
    from phobos.emulator import EmulatorResult
    from phobos.ir.abi import Program

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@cache
def load_example(file: str) -> tuple[SourceFile, ast.Module]:
    """Source and syntax tree of `examples/<file>.ph`."""
    path = EXAMPLES / f"{file}.ph"
    source = SourceFile(path.name, path.read_text(encoding="utf-8"))
    return source, parse(source)


@cache
def kernel_ir(
    file: str,
    kernel: str,
    config: tuple[tuple[str, int], ...],
    consts: tuple[tuple[str, int], ...] = (),
    dtype: str = "f32",
) -> KernelIR:
    """The typed tile IR of an example under a configuration. `dtype` binds the dtype name T, where it has one."""
    dtypes = {"T": DType(dtype)} if kernel in GENERIC else {}
    return check_kernel(load_example(file)[1], kernel, config=dict(config), dtypes=dtypes, consts=dict(consts))


def case_ir(case: Case) -> KernelIR:
    return kernel_ir(case.file, case.kernel, case.config, case.consts, case.dtype)


def specialization(kernel: KernelIR, arguments: Mapping[str, Any]) -> Specialization:
    """What is true of these arguments, whose addresses count as aligned: which strides and dims are multiples of 16
    (bytes and elements)."""
    facts = {}
    for tensor in kernel.tensors:
        array = arguments[tensor.name]
        outer = array.strides[:-1]
        units = [axis for axis, stride in enumerate(array.strides) if stride == array.itemsize]
        align16 = array.strides[-1] == array.itemsize and all(stride % 16 == 0 for stride in outer)
        others = all(stride % 16 == 0 for axis, stride in enumerate(array.strides) if axis not in units)
        facts[tensor.name] = TensorFacts(
            align16=align16,
            contiguous=bool(array.flags.c_contiguous),
            inner=units[0] if len(units) == 1 and others and not align16 else None,
        )
    dims = dims_of(kernel, arguments)
    return Specialization(
        tensors=tuple(facts.items()),
        dim_multiple=known_multiples(dims, dims, [(t.type.dims, facts[t.name]) for t in kernel.tensors]),
    )


def weakest(specs: Sequence[Specialization]) -> Specialization:
    """What holds for all of these launches of one kernel: the variant that all of them can run."""
    first = specs[0]
    return Specialization(
        tensors=tuple(
            (
                name,
                TensorFacts(
                    align16=all(s.tensor(name).align16 for s in specs),
                    contiguous=all(s.tensor(name).contiguous for s in specs),
                    inner=next(iter(inner)) if len(inner := {s.tensor(name).inner for s in specs}) == 1 else None,
                ),
            )
            for name, _ in first.tensors
        ),
        dim_multiple=tuple((name, min(s.multiple(name) for s in specs)) for name, _ in first.dim_multiple),
    )


def build(kernel: KernelIR, file: str, spec: Specialization | None = None, arch: str = "sm_90a") -> "Program":
    """The emitted program; without `spec` the default one (large, contiguous, aligned arguments)."""
    from phobos.compiler import build_program, default_spec
    from phobos.target import get_target

    return build_program(kernel, get_target(arch), spec or default_spec(kernel), load_example(file)[0])


def rounding_of(
    kernel: KernelIR, dtype: str, *, program: "Program | None" = None, float64: bool = False
) -> rounding.Rounding:
    """What a run of this kernel rounds to: the arithmetic, and the operands of its contractions. The kinds of these are
    what the compiler decided for `program`; without one they are those of the IR."""
    if program is None:
        kinds = {op.kind or "ieee" for op in kernel_ops(kernel) if isinstance(op, Dot)}
    else:
        choices = [d.choice for d in program.decisions if d.stage == "contraction"]
        kinds = {choice[choice.index("(") + 1 : choice.index(")")] for choice in choices}
    operand = max((rounding.OPERAND[kind] for kind in kinds), default=0.0)
    return rounding.Rounding(u=rounding.F64 if float64 else rounding.F32, operand=operand, dtype=dtype)


def make_arguments(
    kernel: str, sizes: Mapping[str, int], dtype: str = "f32", scalars: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Seeded random arguments of an example; float scalars are exact in f32, so that every executor sees the same."""
    seed = zlib.crc32(repr((kernel, sorted(sizes.items()), dtype)).encode())
    arguments = ORACLES[kernel].inputs(np.random.default_rng(seed), sizes, dtype)
    arguments.update(scalars or {})
    if kernel.startswith("gemm") and arguments.get("beta") == 0.0:  # C is not read then
        arguments["C"] = rounding.poison(arguments["C"].shape, dtype)
    return {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in arguments.items()}


def case_arguments(case: Case) -> dict[str, Any]:
    return make_arguments(case.kernel, dict(case.sizes), case.dtype, dict(case.scalars))


def strided_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same values in arrays with gaps: rows of a wider matrix, every second element of a vector. What lies in the
    gaps is set to 77 (see `gaps_untouched`)."""
    out: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            wide = (
                (*value.shape[:-1], 2 * value.shape[-1])
                if value.ndim == 1
                else (*value.shape[:-1], value.shape[-1] + 3)
            )
            whole = np.full(wide, 77, value.dtype)
            part = whole[::2] if value.ndim == 1 else whole[..., : value.shape[-1]]
            part[...] = value
            value = part
        out[name] = value
    return out


def gaps_untouched(arguments: Mapping[str, Any]) -> bool:
    """After a run on `strided_arguments`: nothing was written between the elements."""
    for value in arguments.values():
        if isinstance(value, np.ndarray):
            whole = value.base
            assert whole is not None
            gaps = whole[1::2] if value.ndim == 1 else whole[..., value.shape[-1] :]
            if not (gaps == 77).all():
                return False
    return True


def with_threads(kernel: KernelIR, threads: int) -> KernelIR:
    """The kernel with a CTA size, as if its text said @launch(threads)."""
    return replace(kernel, launch=replace(kernel.launch, threads=threads))


def copy_arguments(arguments: Mapping[str, Any], float64: bool = False) -> dict[str, Any]:
    """Fresh arrays with the same values; with `float64` the f32 arrays are widened."""
    return {
        name: (value.astype(np.float64) if float64 and value.dtype == np.float32 else value.copy())
        if isinstance(value, np.ndarray)
        else value
        for name, value in arguments.items()
    }


def failures(
    kernel: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    consts: Mapping[str, object],
    arithmetic: rounding.Rounding,
) -> list[str]:
    """What differs from the oracle by more than its bound, one sentence for each output; inputs must be unchanged."""
    out = []
    with np.errstate(all="ignore"):
        expected = ORACLES[kernel].expect(before, consts, arithmetic)
    for name, value in before.items():
        if name in expected:
            problem = rounding.mismatch(after[name], expected[name], arithmetic.dtype)
            if problem is not None:
                out.append(f"{name}: {problem}")
        elif isinstance(value, np.ndarray) and not np.array_equal(after[name], value):
            out.append(f"{name}: an input was changed")
    return out


def dims_of(kernel: KernelIR, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Extents of the launch-time dims, from the arrays."""
    dims: dict[str, int] = {}
    for tensor in kernel.tensors:
        for dim, extent in zip(tensor.type.dims, arguments[tensor.name].shape, strict=True):
            if isinstance(dim, str):
                dims[dim] = extent
    return dims


def emulate(program: "Program", kernel: KernelIR, arguments: Mapping[str, Any], **options: Any) -> "EmulatorResult":
    """Runs the emitted text on the CPU emulator, writing into the arrays."""
    from phobos import emulator

    return emulator.run(program, arguments, dims=dims_of(kernel, arguments), **options)


# Outputs of which the inputs decide what is written.
_PARTIAL = {"histogram": {"H"}, "embedding_grad": {"d_table"}, "permute_rows": {"Y"}}


def unwritten(kernel: str, result: "EmulatorResult") -> dict[str, int]:
    """Outputs with elements that no thread wrote, and how many."""
    return {n: count for n, count in result.unwritten.items() if count and n not in _PARTIAL.get(kernel, set())}
