"""The trace of a kernel as users get it."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phobos.compiler import build_schedule, default_spec
from phobos.diagnostics import CompileError, Diagnostic, LaunchError
from phobos.ir import tile as ir
from phobos.runtime import binding
from phobos.runtime.device import grid_of
from phobos.runtime.facts import kernel_facts
from phobos.runtime.host import arrays as host_arrays
from phobos.runtime.pipeline import Frontend, KernelInfo, Request
from phobos.runtime.request import config_items, extents, parse_dtypes
from phobos.target import DEFAULT_ARCH, Target, get_target
from phobos.trace import inputs
from phobos.trace.build import build

MAX_SIZE = 20  # MB of one trace: browsers take several times that for a page


@dataclass(frozen=True, eq=False)
class Trace:
    """One or two traces of a kernel, the second one under another configuration. Shows itself in a notebook."""

    traces: tuple[Mapping[str, Any], ...]

    def to_json(self, indent: int | None = None) -> str:
        """The trace in the format of FORMAT.md; of a comparison a list of two."""
        found: Any = self.traces[0] if len(self.traces) == 1 else list(self.traces)
        return json.dumps(found, indent=indent, allow_nan=False)

    def html(self) -> str:
        """The viewer with these traces in it: one page that needs nothing else."""
        from phobos.trace.html import page

        return page(self.traces)

    def save(self, path: str | Path) -> None:
        """Writes the page, or for a name that ends in `.json` the trace. Raises CompileError PH1005 where it cannot,
        PH0608 for what is no path."""
        from phobos.files import write_output

        if not isinstance(path, (str, os.PathLike)):
            message = f"a trace is saved to a path, not {type(path).__name__}"
            raise CompileError(Diagnostic(code="PH0608", message=message))
        name = os.fspath(path)
        text = self.to_json() if name.endswith(".json") else self.html()
        write_output(name, text.encode())

    def _repr_html_(self) -> str:
        from phobos.trace.html import frame

        return frame(self.traces)

    def __repr__(self) -> str:
        parts = []
        for t in self.traces:
            config = " ".join(f"{n}={v}" for n, v in t["kernel"]["configuration"].items())
            steps = max((len(c["steps"]) for c in t["ctas"]), default=0)
            parts.append(f"{t['kernel']['name']} ({config}): {len(t['ctas'])} CTAs of {steps} steps")
        return f"<phobos.Trace {'; '.join(parts)}>"


def trace_kernel(
    frontend: Frontend,
    info: KernelInfo,
    args: Sequence[Any] = (),
    values: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    consts: Mapping[str, Any] | None = None,
    arch: str | None = None,
    grid: Any = None,
    compare: Mapping[str, Any] | None = None,
    emulator: bool = False,
    seed: int = 0,
    max_size: float | None = None,
) -> Trace:
    """The trace of a call with these arguments or, where tensors are left out, of a small run on random ones.

    `args` and `values`: arguments by position and by name, host arrays only; they stay as they are. `config`: values of
    @autotune names, the smallest ones that compile where left out; `compare`: changes to it for a second trace. `dims`,
    `dtypes`: extents and types of random arguments. `arch`: default sm_90a. `emulator`: see build.
    `max_size`: how many MB each trace may have, default MAX_SIZE.

    Raises CompileError and LaunchError as a call does; PH1010, PH1012, PH1020 for a run that cannot be made, is too
    long to look at or too large for a page.
    """
    target = get_target(arch or DEFAULT_ARCH)
    most = MAX_SIZE if max_size is None else max_size
    if isinstance(most, bool) or not isinstance(most, numbers.Real) or not most > 0:
        raise LaunchError(Diagnostic(code="PH1020", message=f"max_size={max_size!r} is not a size in MB"))
    given = dict(values or {})
    named = dict(zip([p.name for p in info.params], args))
    given_consts = {n: given.pop(n) for n in info.consts if n in given} | dict(consts or {})
    tensors = [p.name for p in info.params if p.kind == "tensor"]
    has_arrays = any(n in named or n in given for n in tensors) or len(args) > len(info.params)
    base, sizes = dict(config_items(config)), extents(info, dims)
    types = {n: str(d) for n, d in parse_dtypes(info, {} if dtypes is None else dtypes)}
    out: list[dict[str, Any]] = []
    for change in (None, compare) if compare is not None else (None,):
        wanted = base | dict(config_items(change))
        if has_arrays:
            bound = binding.bind_names(info.name, info.params, args, {**given, **given_consts})
            found = _of_call(frontend, info, bound, wanted, target, grid, emulator, most)
        else:
            scalars = {**{n: v for n, v in named.items() if n not in info.consts}, **given}
            found = _of_sizes(
                frontend, info, scalars, wanted, sizes, types, given_consts, target, grid, emulator, seed, most,
                shared_dims=dict(out[0]["kernel"]["dims"]) if out and not sizes else None,
            )  # fmt: skip
        out.append(found)
    return Trace(tuple(out))


def _compiles(target: Target) -> Any:
    def check(kernel: ir.KernelIR) -> None:
        build_schedule(kernel, target, default_spec(kernel))

    return check


def _of_call(
    frontend: Frontend, info: KernelInfo, bound: Mapping[str, Any], config: Mapping[str, Any], target: Target,
    grid: Any, emulator: bool, max_size: float,
) -> dict[str, Any]:  # fmt: skip
    call = binding.bind(info.name, info.params, bound)
    dtypes = {n: str(d) for n, d in call.dtypes.items()}
    chosen = inputs.choose(frontend, info, config, dtypes, call.consts, call.dims, _compiles(target))
    return _run(frontend, info, chosen.request, chosen.reason, (), bound, target, grid, emulator, max_size)


def _of_sizes(
    frontend: Frontend, info: KernelInfo, scalars: Mapping[str, Any], config: Mapping[str, Any],
    dims: Mapping[str, int], dtypes: Mapping[str, Any], consts: Mapping[str, Any], target: Target, grid: Any,
    emulator: bool, seed: int, max_size: float, shared_dims: Mapping[str, int] | None,
) -> dict[str, Any]:  # fmt: skip
    chosen = inputs.choose(frontend, info, config, dtypes, consts, dims, _compiles(target))
    sizes = inputs.extents(chosen.kernel, dims)
    if shared_dims is not None:  # the second of two: the same problem, where its tiles divide it
        sizes = _common(sizes, shared_dims, chosen.kernel)
    facts = kernel_facts(chosen.kernel)
    read = frozenset(t.name for t in facts.tensors if t.read)
    bound = inputs.arguments(chosen.kernel, sizes, scalars, read, seed) | dict(chosen.request.consts)
    assumed = [s.name for s in chosen.kernel.scalars if s.name not in scalars]
    assumed += [n for n in info.consts if n not in consts and n not in config]
    return _run(frontend, info, chosen.request, chosen.reason, assumed, bound, target, grid, emulator, max_size)


def _common(sizes: Mapping[str, int], other: Mapping[str, int], kernel: ir.KernelIR) -> dict[str, int]:
    promised = {p.dim: p.multiple for p in kernel.aligned}
    return {n: other[n] if n in other and other[n] % promised.get(n, 1) == 0 else v for n, v in sizes.items()}


def _run(
    frontend: Frontend, info: KernelInfo, request: Request, reason: str, assumed: Sequence[str],
    bound: Mapping[str, Any], target: Target, grid: Any, emulator: bool, max_size: float,
) -> dict[str, Any]:  # fmt: skip
    call = binding.bind(info.name, info.params, bound)
    configured = frontend.configured(request)
    binding.check_call(configured.facts, info.params, call)
    spec = binding.specialize(configured.facts, call, configured.signs)
    arrays = {n: np.asarray(a) for n, a in host_arrays(call, "reference").items()}
    blocks = grid_of(configured.facts, call, grid)
    return build(
        frontend, request, spec, target, arrays, call.scalars, call.dims, blocks, reason=reason, assumed=assumed,
        emulator=emulator, max_size=max_size,
    )  # fmt: skip
