"""The compiler, stage by stage. Read this first.

    text --parse--> AST --check--> typed tile IR --passes--> scheduled IR --print--> CUDA C++ --NVRTC--> cubin --launch

Each arrow is one call below or, for the last two, in `phobos.runtime`.
"""

from __future__ import annotations

from collections.abc import Mapping

from phobos.ir.abi import Program, Specialization, TensorFacts
from phobos.ir.scheduled import Schedule
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.source import SourceFile
from phobos.target import Target


def lower_text(
    source: SourceFile,
    kernel_name: str,
    target: Target,
    *,
    config: Mapping[str, object] | None = None,
    dtypes: Mapping[str, DType] | None = None,
    consts: Mapping[str, object] | None = None,
    spec: Specialization | None = None,
    debug: bool = False,
    fast_math: bool = False,
) -> Program:
    """Kernel text to CUDA text. Raises CompileError with every diagnostic found."""
    from phobos.semantic.check import check_kernel
    from phobos.syntax.parser import parse

    module = parse(source)
    kernel = check_kernel(module, kernel_name, config or {}, dtypes or {}, consts or {})  # type: ignore[arg-type]
    return build_program(kernel, target, spec or default_spec(kernel), source, debug=debug, fast_math=fast_math)


def build_schedule(
    kernel: KernelIR, target: Target, spec: Specialization, *, debug: bool = False, fast_math: bool = False
) -> Schedule:
    """Tile IR to scheduled IR: every pass in order (passes/pipeline.py lists them)."""
    from phobos.passes import pipeline

    return pipeline.run(kernel, target, spec, debug=debug, fast_math=fast_math).schedule


def build_program(
    kernel: KernelIR,
    target: Target,
    spec: Specialization,
    source: SourceFile,
    *,
    debug: bool = False,
    fast_math: bool = False,
) -> Program:
    """Tile IR to CUDA text with everything needed to launch it. Raises CompileError for what cannot be lowered."""
    from phobos.codegen.kernel import print_kernel

    schedule = build_schedule(kernel, target, spec, debug=debug, fast_math=fast_math)
    configuration = ", ".join(f"{name} = {value}" for name, value in kernel.configuration)
    return print_kernel(schedule, source, configuration)


def with_kinds(kernel: KernelIR, target: Target, overlap: frozenset[str] = frozenset()) -> KernelIR:
    """The kernel with the kind of every product fixed as `build_program` for this target fixes it, for the reference:
    it then rounds operands where the compiled kernel does. `overlap` names the tensors whose memory overlaps. Raises
    CompileError where no product path exists."""
    from phobos.passes import pipeline

    return pipeline.choose(kernel, target, overlap=overlap).kernel


def may_lack_effect(kernel: KernelIR) -> bool:
    """May the kernel ask for something that has no effect? Its program's decisions then say so."""
    from phobos.passes import without_effect

    return without_effect.possible(kernel)


def default_spec(kernel: KernelIR) -> Specialization:
    """Without arguments at hand: contiguous tensors on 16-byte boundaries, dims that are multiples of 16, 32-bit index,
    positive scale factors."""
    from phobos.passes import fold_scale

    return Specialization(
        tensors=tuple((t.name, TensorFacts()) for t in kernel.tensors),
        dim_multiple=tuple((d.name, 16) for d in kernel.dims),
        sign=tuple((name, 1) for name in fold_scale.sign_scalars(kernel)),
    )
