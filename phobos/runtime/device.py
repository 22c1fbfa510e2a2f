"""Calls on a CUDA device: variant to function, call to launcher, host arrays through device copies."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir.abi import Program
from phobos.runtime.arguments import ArrayView
from phobos.runtime.binding import Call, normalized_strides
from phobos.runtime.facts import KernelFacts
from phobos.runtime.launch import Launcher, NothingToLaunch, Packing, check_grid, evaluate_grid
from phobos.runtime.module import Driver, Function, load_function

if TYPE_CHECKING:
    from phobos.runtime.compiled import Compiled


def grid_of(facts: KernelFacts, call: Call, override: Any) -> tuple[int, int, int]:
    """Blocks of a call: the kernel's own grid, or the one that the caller gives (one to three sizes).

    Raises LaunchError PH0718.
    """
    blocks = given_grid(override, facts.name)
    own = evaluate_grid(facts.grid, call.dims, facts.name)
    if blocks is None:
        return own
    for axis, given, most in zip("xyz", blocks, own):
        if given > most:
            raise LaunchError(
                Diagnostic(
                    code="PH0718",
                    message=f"grid={override!r} has {given} blocks along {axis}, the kernel {facts.name!r} {most}",
                    notes=("positions of blocks beyond its own grid are not masked",),
                    help="`@grid(...)` before the kernel says how many blocks there may be",
                )
            )
    return blocks


def given_grid(override: Any, kernel: str) -> tuple[int, int, int] | None:
    """The blocks that a caller gives, None where he gives none. Raises LaunchError PH0718."""
    if override is None:
        return None
    sizes = (override,) if isinstance(override, numbers.Integral) else override
    if (
        not isinstance(sizes, Sequence)
        or not 1 <= len(sizes) <= 3
        or not all(hasattr(s, "__index__") and not isinstance(s, bool) for s in sizes)
    ):
        raise LaunchError(Diagnostic(code="PH0718", message=f"grid={override!r} is not one to three numbers of blocks"))
    blocks = [s.__index__() for s in sizes] + [1, 1]
    return check_grid(blocks[:3], kernel)


def load(driver: Driver, ordinal: int, compiled: Compiled, facts: KernelFacts) -> tuple[Function, Packing]:
    """A compiled variant loaded on a device, and how its arguments are packed."""
    program = compiled.program
    dynamic = program.shared_bytes if program.dynamic_shared else 0
    return load_function(driver, ordinal, compiled.binary, dynamic_shared=dynamic), Packing(program, facts)


def launcher(
    driver: Driver, function: Function, packing: Packing, program: Program, blocks: tuple[int, int, int], call: Call
) -> Launcher:
    strides = {name: normalized_strides(view.shape, view.strides) for name, view in call.views.items()}
    return Launcher(driver, function, program, packing, blocks, call.dims, strides)


def dynamic_values(launcher: Launcher, call: Call) -> list[Any]:
    """The launcher's dynamic arguments from a call: addresses and scalars, in its order."""
    views = call.views
    return [views[name].pointer if name in views else call.scalars[name] for name in launcher.dynamic]


def follow_producers(driver: Driver, views: Iterable[ArrayView], stream: int, ordinal: int) -> None:
    """Makes `stream` wait for the streams that the arrays' producers use, where they are others."""
    others = {int(v.stream) for v in views if v.stream is not None} - {stream}
    # 1 is the legacy default stream, which 0 names too.
    if stream in (0, 1):
        others -= {0, 1}
    for producer in sorted(others):
        with driver.current(ordinal):
            driver.wait_for(stream, producer)


def run_on_copies(
    driver: Driver,
    ordinal: int,
    facts: KernelFacts,
    call: Call,
    make_launcher: Callable[[Call], Launcher | NothingToLaunch],
    stream: int,
) -> None:
    """A call with host arrays: copy in, launch, wait, copy the written ones back."""
    from phobos.runtime.hostcopy import HostCopies

    dtypes = {t.name: t.dtype for t in facts.tensors}
    with driver.current(ordinal):
        copies = HostCopies(driver, call.views, dtypes)
        try:
            launch = make_launcher(replace(call, views=copies.views, device=ordinal))
            if isinstance(launch, NothingToLaunch):
                return
            launch.launch(stream, *launch.encode(dynamic_values(launch, replace(call, views=copies.views))))
            driver.synchronize(stream)
            copies.download(facts.written)
        finally:
            copies.free()
