"""Calls without a device: the NumPy reference and the emulator, in place on host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from phobos.diagnostics import CompileError, Diagnostic, LaunchError
from phobos.runtime.binding import Call, overlapping, specialize
from phobos.runtime.device import grid_of
from phobos.runtime.pipeline import Configured, Frontend
from phobos.target import Target

if TYPE_CHECKING:
    import numpy as np


def arrays(call: Call, backend: str) -> dict[str, np.ndarray]:
    """NumPy arrays over the memory of the arguments. Raises LaunchError PH0725 for device memory."""
    on_device = [name for name, view in call.views.items() if view.device is not None]
    if on_device:
        raise LaunchError(
            Diagnostic(
                code="PH0725",
                message=f"backend {backend!r} runs on the host, but {', '.join(map(repr, on_device))} "
                f"{'lies' if len(on_device) == 1 else 'lie'} on a CUDA device",
                help="pass NumPy arrays or CPU tensors",
            )
        )
    return {name: view.host for name, view in call.views.items()}


def without_effect(
    frontend: Frontend, configured: Configured, call: Call, target: Target, *, debug: bool
) -> tuple[Diagnostic, ...]:
    """PH0604 for what the kernel asks for and its program does not follow. Nothing where it has no program: what runs
    next says why, or is the reference, which needs none."""
    from phobos.compiler import may_lack_effect
    from phobos.runtime import compiled

    if not may_lack_effect(frontend.ir(configured.request)):
        return ()
    try:
        spec = specialize(configured.facts, call, configured.signs)
        program = frontend.program(configured, spec, target, debug=debug, fast_math=False)
    except CompileError:
        return ()
    return compiled.without_effect(program.decisions)


def run_reference(
    frontend: Frontend, configured: Configured, call: Call, host_arrays: dict[str, Any], grid: Any, target: Target
) -> None:
    """The typed tile IR on NumPy."""
    from phobos import reference
    from phobos.compiler import with_kinds

    blocks = grid_of(configured.facts, call, grid)
    if 0 in blocks:
        return
    # The kinds of products are the compiler's choice for the target at hand: what the reference rounds, the device
    # rounds.
    kernel = with_kinds(frontend.ir(configured.request), target, overlapping(configured.facts, call.views))
    reference.run(kernel, {**host_arrays, **call.scalars}, grid=blocks, source=frontend.source)


def run_emulator(
    frontend: Frontend,
    configured: Configured,
    call: Call,
    host_arrays: dict[str, Any],
    grid: Any,
    target: Target,
) -> None:
    """The emitted text on the CPU emulator. Raises LaunchError PH08xx with everything its checks report."""
    from phobos import emulator

    spec = specialize(configured.facts, call, configured.signs)
    program = frontend.program(configured, spec, target, debug=True, fast_math=False)
    blocks = grid_of(configured.facts, call, grid)
    if 0 in blocks:
        return
    result = emulator.run(program, {**host_arrays, **call.scalars}, dims=call.dims, grid=blocks)
    if result.output:
        print(result.output, end="")
    if result.reports:
        raise LaunchError([report.to_diagnostic(frontend.source.name) for report in result.reports], frontend.source)
