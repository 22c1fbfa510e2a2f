"""`phobos compile`: one stage of a compiled kernel as bytes, or a summary of what was decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phobos.console import json_text, print_diagnostics
from phobos.files import read_source
from phobos.ir.abi import Decision
from phobos.kernel import Kernel
from phobos.runtime.compiled import Compiled
from phobos.runtime.pipeline import Frontend, KernelInfo

_SUFFIXES = {".cu": "cuda", ".ptx": "ptx", ".cubin": "cubin"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to compile. `arch` None is the device at hand, else the default architecture."""

    file: str
    arch: str | None
    config: Mapping[str, Any]
    dtypes: Mapping[str, str]
    dims: Mapping[str, int]
    kernel: str | None
    fast_math: bool
    debug: bool


def emit_for_suffix(output: str | None) -> str | None:
    """The stage that a file name asks for by its suffix, or None."""
    return _SUFFIXES.get(Path(output).suffix) if output is not None else None


def emit(request: Request, stage: str) -> bytes:
    """The text or binary of one stage. Raises CompileError; warnings go to standard error."""
    frontend = Frontend(read_source(request.file))
    kernel = Kernel(frontend, request.kernel)
    if stage == "candidates":
        from phobos.commands import candidates

        table = candidates.text(frontend, kernel.info, request.config, request.dims, request.dtypes, request.arch)
        return table.encode()
    compiled = _compile(kernel, request)
    data = _STAGES[stage](compiled)
    print_diagnostics(compiled.warnings, kernel.source)
    return data if isinstance(data, bytes) else (data if data.endswith("\n") else data + "\n").encode()


def summary(request: Request, *, as_json: bool) -> str:
    """What was decided for the kernel, or for each kernel of a file with several."""
    frontend = Frontend(read_source(request.file))
    names: list[str | None] = [request.kernel]
    if request.kernel is None:
        names = [k.name for k in frontend.kernels()] or [None]
    parts: list[str] = []
    found: list[dict[str, Any]] = []
    for name in names:
        begin = time.perf_counter()
        kernel = Kernel(frontend, name)
        compiled = _compile(kernel, request if len(names) == 1 else _share(request, kernel.info, frontend.kernels()))
        binary = compiled.binary
        seconds = time.perf_counter() - begin
        print_diagnostics(compiled.warnings, kernel.source)
        if as_json:
            run = {"file": frontend.source.name, "cached": binary.from_cache, "seconds": seconds}
            found.append({**compiled.to_json(), **run})
        else:
            parts.append(_text(frontend.source.name, compiled, seconds))
    return "\n\n".join(parts) if not as_json else json_text(found[0] if len(found) == 1 else found)


def _share(request: Request, info: KernelInfo, kernels: tuple[KernelInfo, ...]) -> Request:
    """The request without the names that only other kernels of the file have."""

    def kept(items: Mapping[str, Any], names: Callable[[KernelInfo], Iterable[str]]) -> dict[str, Any]:
        foreign = {name for k in kernels for name in names(k)} - set(names(info))
        return {name: value for name, value in items.items() if name not in foreign}

    return replace(
        request,
        config=kept(request.config, lambda k: (*dict(k.space), *k.consts, *k.dims)),
        dtypes=kept(request.dtypes, lambda k: k.dtype_params),
        dims=kept(request.dims, lambda k: k.dims),
    )


def _compile(kernel: Kernel, request: Request) -> Compiled:
    return kernel.compile(
        config=request.config,
        arch=request.arch,
        dims=request.dims,
        dtypes=request.dtypes,
        fast_math=request.fast_math,
        debug=request.debug,
    )


def _text(file: str, compiled: Compiled, seconds: float) -> str:
    program, binary = compiled.program, compiled.binary
    facts = compiled.to_json()
    config = " ".join(f"{n}={v}" for n, v in compiled.configuration.items())
    reason = facts["reason"]
    kind = "dynamic" if program.dynamic_shared else "static"
    spills = f"{binary.spill_bytes} bytes of spills" if binary.spill_bytes else "no spills"
    rows = [
        ("kernel", f"{compiled.name} of {file} for {compiled.arch}"),
        ("configuration", (config or "nothing to choose") + (f" ({reason})" if reason else "")),
        ("grid", f"({', '.join(facts['grid'])}) blocks of {program.threads} threads"),
        ("shared memory", f"{program.shared_bytes} bytes, {kind}" if program.shared_bytes else "none"),
        ("registers", f"{binary.registers} per thread, {spills}"),
    ]
    rows += [("product", _product(d)) for d in program.decisions if d.stage == "contraction"]
    state = "from the cache" if binary.from_cache else "compiled"
    rows.append(("time", f"{seconds:.2f} s, {state}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {text}" for name, text in rows)


def _product(decision: Decision) -> str:
    where = f"line {decision.line}, " if decision.line else ""
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{where}{decision.subject} by {decision.choice}{reason}"


def _ir(compiled: Compiled) -> str:
    from phobos.ir.printer import print_kernel

    return print_kernel(compiled.ir)


def _scheduled(compiled: Compiled) -> str:
    from phobos.compiler import build_schedule
    from phobos.ir.scheduled_printer import print_schedule

    program = compiled.program
    return print_schedule(
        build_schedule(compiled.ir, compiled.target, compiled.spec, debug=program.debug, fast_math=program.fast_math)
    )


_STAGES: dict[str, Callable[[Compiled], str | bytes]] = {
    "cuda": lambda c: c.cuda,
    "ptx": lambda c: c.ptx,
    "cubin": lambda c: c.cubin,
    "report": lambda c: c.report,
    "ir": _ir,
    "scheduled": _scheduled,
}
