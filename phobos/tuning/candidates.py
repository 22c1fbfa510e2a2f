"""One configuration of a kernel, looked at and compiled. These functions run in the processes of a search.

`examine` is quick and needs no CUDA compiler: the checker, the promises of @aligned against the call's extents, the
cost model. `build` prints the program, which finds exactly what cannot fit, and only then compiles it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from phobos.compiler import build_program, default_spec
from phobos.diagnostics import Diagnostic, LaunchError, PhobosError
from phobos.ir.abi import Program
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.runtime import binding
from phobos.runtime.facts import KernelFacts, kernel_facts
from phobos.runtime.nvrtc import Binary, compile_program
from phobos.runtime.pipeline import Frontend, Request
from phobos.runtime.request import config_items
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.target import get_target
from phobos.tuning.default import broken_promise
from phobos.tuning.model import estimate

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all candidates of a search share. It travels between processes: views carry no memory."""

    source: SourceFile
    kernel: str
    dtypes: tuple[tuple[str, DType], ...]
    consts: tuple[tuple[str, Any], ...]
    call: binding.Call
    arch: str

    def request(self, config: Config) -> Request:
        return Request(kernel=self.kernel, config=config_items(config), dtypes=self.dtypes, consts=self.consts)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A configuration that is out: the stage of `phobos.tuning.result`, the reason, what was said in full; `of_call`:
    by the checks of a call, which raises it as LaunchError."""

    stage: str
    reason: str
    diagnostics: tuple[Diagnostic, ...] = ()
    of_call: bool = False


@dataclass(frozen=True, kw_only=True)
class Examined:
    """The cost model's view of a configuration that the checker accepts. `cycles` is infinite where it has none."""

    cycles: float
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Built:
    """A compiled configuration."""

    program: Program
    binary: Binary
    facts: KernelFacts

    @property
    def spill_bytes(self) -> int:
        return self.binary.spill_bytes

    @property
    def registers(self) -> int:
        return self.binary.registers

    @property
    def threads(self) -> int:
        return self.program.threads

    @property
    def shared_bytes(self) -> int:
        return self.program.shared_bytes


def without_memory(call: binding.Call) -> binding.Call:
    """The call with views that hold addresses and shapes only."""
    views = {name: view._replace(host=None, keep=None, stream=None) for name, view in call.views.items()}
    return replace(call, views=views)


_frontend: Frontend | None = None


def _frontend_of(source: SourceFile) -> Frontend:
    """A search has one text; the last one is kept, so that it is parsed once in a process."""
    global _frontend
    found = _frontend
    if found is None or found.source != source:
        found = _frontend = Frontend(source)
    return found


def _check(job: Job, config: Config) -> KernelIR:
    """The configured kernel. Not `Frontend.ir`, which would keep the IR of every candidate."""
    module = _frontend_of(job.source).module()
    return check_kernel(module, job.kernel, dict(config), dict(job.dtypes), dict(job.consts))


def _guarded(stage: str, act: Callable[[], Any]) -> Any:
    """What `act` returns, or how it failed. A fault of the compiler costs one configuration, not the search."""
    try:
        return act()
    except PhobosError as error:
        found = error.diagnostics
        reason = f"{found[0].code}: {found[0].message}"
        return Dropped(stage=stage, reason=reason, diagnostics=found, of_call=isinstance(error, LaunchError))
    except Exception as error:  # noqa: BLE001
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"internal error of the compiler: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return Dropped(stage="compile", reason=text)


def examine(job: Job, config: Config) -> Examined | Dropped:
    def act() -> Examined | Dropped:
        kernel = _check(job, config)
        broken = broken_promise(kernel, job.call.dims)
        params = _frontend_of(job.source).kernel(job.kernel).params
        misfit = _guarded("fit", lambda: binding.check_call(kernel_facts(kernel), params, job.call))
        if misfit is not None:
            return misfit if broken is None else replace(misfit, stage="promise", reason=broken)
        found = estimate(kernel, get_target(job.arch), job.call.dims)
        # What the model finds too large is only put last: the exact bytes are known when the program is printed.
        return Examined(cycles=found.cycles if found.why_not is None else float("inf"), blocks=found.blocks)

    return _guarded("check", act)


def build(job: Job, config: Config) -> Built | Dropped:
    target = get_target(job.arch)

    def lower() -> tuple[Program, KernelFacts] | Dropped:
        kernel = _check(job, config)
        facts = kernel_facts(kernel)
        spec = binding.specialize(facts, job.call, [name for name, _ in default_spec(kernel).sign])
        return build_program(kernel, target, spec, job.source), facts

    found = _guarded("fit", lower)
    if isinstance(found, Dropped):
        return found
    program, facts = found
    limit = target.threads_per_sm
    if program.threads > min(1024, limit):
        return Dropped(stage="fit", reason=f"{program.threads} threads a block, {target.arch} has at most {limit}")
    if program.shared_bytes > target.shared_per_block:
        return Dropped(
            stage="fit",
            reason=f"{program.shared_bytes} bytes of shared memory a block, the limit is {target.shared_per_block}",
        )
    return _guarded("compile", lambda: Built(program=program, binary=compile_program(program, target), facts=facts))


TASKS: dict[str, Callable[..., Any]] = {"examine": examine, "build": build}
