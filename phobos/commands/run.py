"""`phobos run`: one launch on random inputs, compared with the float64 reference."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from phobos.console import json_text
from phobos.diagnostics import Diagnostic, LaunchError
from phobos.files import read_source
from phobos.ir.exact import exact
from phobos.ir.tile import KernelIR, TensorParam
from phobos.ir.types import DType
from phobos.kernel import Kernel
from phobos.norms import ErrorNorms, error_norms
from phobos.reference import run as run_reference
from phobos.reference.numerics import from_storage, to_storage
from phobos.runtime.arguments import CARRIER, TypedArray
from phobos.runtime.facts import kernel_facts
from phobos.runtime.module import Device
from phobos.runtime.pipeline import Frontend, KernelInfo
from phobos.runtime.pipeline import Request as Configuration
from phobos.runtime.request import check_scalar_names, config_items, parse_dtypes, unknown_name
from phobos.target import DEFAULT_ARCH, Target, get_target
from phobos.tuning.verify import tolerances

# What a missing scalar is: exact in every float type, and not neutral in a product or a sum.
_DEFAULT_SCALAR = 0.5
_DEFAULT_DTYPE = "f32"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A written tensor: its norms against the reference, elements that the kernel left unwritten, elements that only
    one of the two wrote.
    """

    name: str
    norms: ErrorNorms
    unwritten: int
    disagree: int
    tolerance: float

    @property
    def good(self) -> bool:
        return self.disagree == 0 and self.norms.within(self.tolerance)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One run. `compared` is None with --no-check."""

    kernel: str
    backend: str
    why: str
    configuration: Mapping[str, Any]
    reason: str | None
    tensors: Mapping[str, str]
    scalars: Mapping[str, Any]
    defaulted: tuple[str, ...]
    compared: tuple[Compared, ...] | None
    seconds: float

    @property
    def good(self) -> bool:
        return all(c.good for c in self.compared or ())

    def text(self) -> str:
        config = " ".join(f"{n}={v}" for n, v in self.configuration.items())
        rows = [
            ("kernel", self.kernel),
            ("backend", self.backend + (f" ({self.why})" if self.why else "")),
            ("configuration", (config or "nothing to choose") + (f" ({self.reason})" if self.reason else "")),
        ]
        rows += list(self.tensors.items())
        rows += [(n, f"{v}" + (" (not given)" if n in self.defaulted else "")) for n, v in self.scalars.items()]
        width = max(len(n) for n, _ in rows)
        out = [f"{n:{width}}  {t}" for n, t in rows]
        out.append(f"ran in {self.seconds:.2f} s, compilation included")
        if self.compared is None:
            out.append("not compared (--no-check)")
        for c in self.compared or ():
            verdict = "ok" if c.good else "WRONG"
            norms = f"{c.norms} (tolerance {c.tolerance:.0e} rel L2)"
            if c.disagree:
                are = "element is" if c.disagree == 1 else "elements are"
                verdict += f", {c.disagree} {are} not finite or unwritten in one and not in the other"
                norms = f"the rest {norms}"
            out.append(f"{c.name} against the float64 reference: {verdict}, {norms}")
            if c.unwritten:
                out.append(f"  {c.unwritten} elements are written by neither")
        return "\n".join(out)

    def to_json(self) -> str:
        compared = [
            {
                "name": c.name,
                "ok": c.good,
                "tolerance": c.tolerance,
                "unwritten": c.unwritten,
                "disagree": c.disagree,
                **{n: _finite(getattr(c.norms, n)) for n in ("max_abs", "mean_abs", "rmse", "rel_l2")},
            }
            for c in self.compared or ()
        ]
        return json_text(
            {
                "version": 1,
                "ok": self.good,
                "kernel": self.kernel,
                "backend": self.backend,
                "configuration": dict(self.configuration),
                "reason": self.reason,
                "tensors": dict(self.tensors),
                "scalars": dict(self.scalars),
                "seconds": self.seconds,
                "compared": compared if self.compared is not None else None,
            }
        )


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def run(
    path: str,
    *,
    dims: Mapping[str, int],
    config: Mapping[str, Any],
    dtypes: Mapping[str, str],
    scalars: Mapping[str, int | float | bool],
    kernel: str | None,
    backend: str,
    seed: int,
    compare: bool,
) -> RunResult:
    """Runs a kernel of a file. Raises CompileError and LaunchError as compilation and launch do; PH1010 and PH1011 for
    dims that are unknown or missing, PH1012 for scalars that are unknown or have a value twice."""
    frontend = Frontend(read_source(path))
    called = Kernel(frontend, kernel)
    info = called.info
    chosen, why = _backend(backend)
    consts, config, given, defaulted = _arguments(info, dict(config), scalars)
    bound = {t: dtypes.get(t, _DEFAULT_DTYPE) for t in info.dtype_params} | dict(dtypes)
    defaulted += tuple(t for t in info.dtype_params if t not in dtypes)
    request = Configuration(
        kernel=info.name, config=config_items(config), dtypes=parse_dtypes(info, bound), consts=config_items(consts)
    )
    request, reason = _complete(frontend, info, request, dims, *_place(chosen))
    ir = frontend.ir(request)
    extents = _extents(ir, info, dims)
    facts = kernel_facts(ir)
    written = facts.written
    poisoned = {t.name for t in facts.tensors if t.written and not t.read}
    rng = np.random.default_rng(seed)
    shapes = {t.name: tuple(d if isinstance(d, int) else extents[d] for d in t.type.dims) for t in ir.tensors}
    _check_memory(ir, shapes)
    arrays = {
        t.name: _poison(t, shapes[t.name]) if t.name in poisoned else _random(t, shapes[t.name], rng)
        for t in ir.tensors
    }
    exact = {name: _wide(ir.tensor(name), array) for name, array in arrays.items()} if compare else {}
    values = {s.name: _scalar_value(s.type.dtype, given[s.name]) for s in ir.scalars}

    begin = time.perf_counter()
    passed = {n: TypedArray(a, ir.tensor(n).type.dtype) if a.dtype == np.uint8 else a for n, a in arrays.items()}
    called(**passed, **values, **consts, config=dict(request.config), backend=chosen)
    seconds = time.perf_counter() - begin

    compared = None
    if compare:
        tolerance = tolerances(ir)
        run_reference(ir, {**exact, **values}, float64=True, source=frontend.source)
        compared = tuple(_compare(ir.tensor(n), arrays[n], exact[n], tolerance[n], n in poisoned) for n in written)
    return RunResult(
        kernel=info.name,
        backend=chosen,
        why=why,
        configuration=dict(ir.configuration),
        reason=reason,
        tensors={
            t.name: f"tensor<{t.type.dtype}>[{', '.join(map(str, shapes[t.name]))}]"
            + ("" if t.name in poisoned else ", random")
            + (", written" if t.name in written else "")
            for t in ir.tensors
        },
        scalars={**values, **consts},
        defaulted=defaulted,
        compared=compared,
        seconds=seconds,
    )


def _backend(backend: str) -> tuple[str, str]:
    """The executor that will run, and why where the caller left it open."""
    if backend != "auto":
        return backend, ""
    from phobos.runtime.module import device_available

    return ("cuda", "") if device_available() else ("reference", "no CUDA device here")


def _place(backend: str) -> tuple[Target, Device | None]:
    """The target, and the device of backend cuda."""
    if backend != "cuda":
        return get_target(DEFAULT_ARCH), None
    from phobos.runtime.module import get_driver

    driver = get_driver()
    device = driver.device(driver.current_device())
    return device.target, device


def _arguments(
    info: KernelInfo, config: dict[str, Any], scalars: Mapping[str, int | float | bool]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """consts, the rest of the configuration, scalar arguments, and which of those are the default."""
    check_scalar_names(info.name, [p.name for p in info.params if p.kind != "tensor"], scalars)
    consts = {n: config.pop(n) for n in info.consts if n in config}
    for name in info.consts:
        if name in scalars and exact(scalars[name]) != exact(consts.setdefault(name, scalars[name])):
            raise LaunchError(Diagnostic(code="PH1012", message=f"{name} is {consts[name]} and {scalars[name]}"))
    given: dict[str, Any] = {}
    defaulted = []
    for p in info.params:
        if p.kind == "scalar":
            given[p.name] = scalars.get(p.name, _DEFAULT_SCALAR)
            if p.name not in scalars:
                defaulted.append(p.name)
    return consts, config, given, tuple(defaulted)


def _scalar_value(dtype: DType, value: int | float | bool) -> int | float | bool:
    """The default is 0.5, 1 for an integer and true for a bool; what the user wrote is left to the launch's checks."""
    if value is not _DEFAULT_SCALAR or dtype.is_float:
        return value
    return True if dtype is DType.BOOL else 1


def _complete(
    frontend: Frontend,
    info: KernelInfo,
    request: Configuration,
    dims: Mapping[str, int],
    target: Target,
    device: Device | None,
) -> tuple[Configuration, str | None]:
    """The request with every @autotune name fixed: by the caller, by a dim of that name, by the stored best of a search
    on the device, by the cost model."""
    items = dict(request.config)
    for name, values in info.space:
        if name in dims and name not in items and len(values) > 1:
            items[name] = dims[name]
    request = replace(request, config=config_items(items))
    if all(len(values) == 1 or name in items for name, values in info.space):
        return request, None
    extents = {n: v for n, v in dims.items() if n in info.dims}
    chosen, stored = None, ""
    if device is not None:
        from phobos.tuning import store

        chosen, stored = store.best_for(frontend, info, request, extents, device)
    reason = stored
    if chosen is None:
        chosen, reason = frontend.choose(request, extents, target)
        reason += f"; {stored}" if stored else ""
    return replace(request, config=chosen), reason


def _extents(ir: KernelIR, info: KernelInfo, dims: Mapping[str, int]) -> dict[str, int]:
    """An extent for every dim that the launch binds. Raises LaunchError for unknown, contradicting and missing ones."""
    needed = list(dict.fromkeys(d for t in ir.tensors for d in t.type.dims if isinstance(d, str)))
    pinned = dict(ir.configuration)
    for name, value in dims.items():
        if name in needed:
            continue
        if name in pinned:
            if pinned[name] == value:
                continue
            raise LaunchError(
                Diagnostic(code="PH1010", message=f"dim {name!r} is fixed at {pinned[name]} here, not {value}")
            )
        raise LaunchError(unknown_name("PH1010", info.name, "dim", name, needed))
    missing = [d for d in needed if d not in dims]
    if missing:
        raise LaunchError(
            Diagnostic(
                code="PH1011",
                message=f"kernel {info.name!r} needs the extent of {', '.join(missing)}",
                help=" ".join(f"--dim {d}=64" for d in missing),
            )
        )
    return {d: dims[d] for d in needed}


def _check_memory(ir: KernelIR, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises LaunchError PH1013 for arguments that this machine cannot hold (twice: once as float64)."""
    need = sum(math.prod(shapes[t.name]) * (t.type.dtype.bytes + 8) for t in ir.tensors)
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40
    if need > have:
        raise LaunchError(
            Diagnostic(
                code="PH1013",
                message=f"the tensors and their float64 copies need {need / 2**30:.1f} GiB; this machine has "
                f"{have / 2**30:.1f} GiB",
                help="choose smaller dims",
            )
        )


def _random(tensor: TensorParam, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Standard normal numbers; small integers, but a vector of integers holds distinct positions, so that a scatter by
    it is well defined."""
    dtype = tensor.type.dtype
    carrier = np.dtype(CARRIER[dtype])
    if dtype.is_float:
        return to_storage(rng.standard_normal(shape), dtype, carrier)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(carrier)
    if len(shape) == 1:
        return (rng.permutation(shape[0]) % min(np.iinfo(carrier).max + 1, 2**62)).astype(carrier)
    return rng.integers(-8 if dtype.is_signed else 0, 8, shape).astype(carrier)


def _poison(tensor: TensorParam, shape: tuple[int, ...]) -> np.ndarray:
    """NaN, or the integer farthest from 0: shows what a kernel does not write."""
    dtype = tensor.type.dtype
    carrier = np.dtype(CARRIER[dtype])
    if dtype.is_float:
        return to_storage(np.full(shape, np.nan), dtype, carrier)
    return np.full(shape, _sentinel(carrier), carrier)


def _sentinel(carrier: np.dtype) -> int:
    if carrier.kind == "b":
        return 0
    return np.iinfo(carrier).min if carrier.kind == "i" else np.iinfo(carrier).max


def _wide(tensor: TensorParam, array: np.ndarray) -> np.ndarray:
    """What the reference gets: floats as float64, which keep its full result; a copy of anything else."""
    dtype = tensor.type.dtype
    return from_storage(array, dtype, float64=True).astype(np.float64) if dtype.is_float else array.copy()


def _compare(
    tensor: TensorParam, array: np.ndarray, expected: np.ndarray, tolerance: float, poisoned: bool
) -> Compared:
    ours = _wide(tensor, array).astype(np.float64)
    theirs = expected.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    same = finite | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if tensor.type.dtype.is_float:
        unwritten = int(np.count_nonzero(np.isnan(ours) & np.isnan(theirs))) if poisoned else 0
    else:
        hole = _sentinel(array.dtype)
        unwritten = int(np.count_nonzero((array == hole) & (expected == hole))) if poisoned and hole else 0
    return Compared(
        name=tensor.name,
        norms=error_norms(ours[finite], theirs[finite]),
        unwritten=unwritten,
        disagree=int(np.count_nonzero(~same)),
        tolerance=tolerance,
    )
