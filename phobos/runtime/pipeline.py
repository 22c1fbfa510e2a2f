"""From a kernel text to facts and programs, with a disk cache in front of every stage.

A `Frontend` holds one text. What it computes is kept in memory, and on disk under the text, the request and the
compiler's own version, so that a second process neither parses nor generates code: it reads a few small files.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from phobos.diagnostics import CompileError, Diagnostic, nearest
from phobos.ir.abi import Program, Specialization
from phobos.ir.exact import among, exact_items
from phobos.ir.types import DType
from phobos.runtime import cache, facts
from phobos.runtime.facts import KernelFacts, ParamFact
from phobos.source import SourceFile, Span
from phobos.target import Target

if TYPE_CHECKING:
    from phobos.ir.tile import KernelIR
    from phobos.semantic.signature import Signature
    from phobos.syntax.ast import Module

Config = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class KernelInfo:
    """What the text says of a kernel before any configuration. `space` holds the values of each @autotune name,
    `launch_dims` the dims that the shapes of arguments bind and nothing else does."""

    name: str
    params: tuple[ParamFact, ...]
    dtype_params: tuple[str, ...]
    space: tuple[tuple[str, tuple[Any, ...]], ...]
    launch_dims: tuple[str, ...] = ()

    @property
    def dims(self) -> tuple[str, ...]:
        """Names in the shapes of the tensors, in order."""
        return tuple(dict.fromkeys(d for p in self.params for d in p.dims if isinstance(d, str) and d.isidentifier()))

    @property
    def consts(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.params if p.kind == "const")


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """One configured kernel: everything that the checker needs, in a hashable form. Requests are equal where their
    values are the same ones: 1, 1.0 and True are not."""

    kernel: str
    config: Config = ()
    dtypes: tuple[tuple[str, DType], ...] = ()
    consts: Config = ()

    @cached_property
    def _exact(self) -> tuple[Any, ...]:
        return self.kernel, exact_items(self.config), self.dtypes, exact_items(self.consts)

    def __eq__(self, other: object) -> bool:
        return self._exact == other._exact if isinstance(other, Request) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._exact)


@dataclass(frozen=True, kw_only=True)
class Configured:
    """A kernel under a configuration. `signs` names the scalars whose sign class selects a variant; `spec` is the
    compiler's default specialization; `warnings` come from the checker."""

    request: Request
    facts: KernelFacts
    spec: Specialization
    warnings: tuple[Diagnostic, ...]

    @property
    def signs(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.spec.sign)


class Frontend:
    """One kernel text and everything made from it. Safe for several threads: each result is computed once.

    Raises CompileError (at the first use of `kernels`) for a text that does not parse.
    """

    def __init__(self, source: SourceFile):
        self.source = source
        self._lock = threading.RLock()
        self._module: Module | None = None
        self._signatures: dict[str, Signature] | None = None
        self._kernels: tuple[KernelInfo, ...] | None = None
        self._irs: dict[Request, tuple[KernelIR, tuple[Diagnostic, ...]]] = {}
        self._configured: dict[Request, Configured] = {}
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._choices: dict[tuple[Any, ...], tuple[Config, str]] = {}

    # --- stages

    def module(self) -> Module:
        with self._lock:
            if self._module is None:
                from phobos.syntax.parser import parse

                self._module = parse(self.source)
            return self._module

    def signatures(self) -> dict[str, Signature]:
        with self._lock:
            if self._signatures is None:
                from phobos.semantic.signature import signatures

                self._signatures = {s.name: s for s in signatures(self.module())}
            return self._signatures

    def kernels(self) -> tuple[KernelInfo, ...]:
        """All kernels of the text."""
        with self._lock:
            if self._kernels is None:
                key = self._key("kernels")
                stored = _load(key)
                if stored is None:
                    self._kernels = tuple(_kernel_info(s) for s in self.signatures().values())
                    _save(key, [_info_to_json(k) for k in self._kernels])
                else:
                    self._kernels = tuple(_info_from_json(k) for k in stored)
            return self._kernels

    def kernel(self, name: str | None) -> KernelInfo:
        """The kernel of that name, or the only one. Raises CompileError PH0208."""
        known = self.kernels()
        names = [k.name for k in known]
        if name is None:
            if len(known) == 1:
                return known[0]
            raise CompileError(
                Diagnostic(
                    code="PH0208",
                    message=f"{self.source.name} holds {len(known)} kernels: {', '.join(names)}; say which one",
                    help=f"`--kernel {names[0]}`, in Python `kernel={names[0]!r}`",
                )
            )
        for info in known:
            if info.name == name:
                return info
        guess = nearest(str(name), names)
        raise CompileError(
            Diagnostic(
                code="PH0208",
                message=f"{self.source.name} holds no kernel {name!r}, but {', '.join(names)}",
                help=f"did you mean {guess!r}?" if guess else None,
            )
        )

    def ir(self, request: Request) -> KernelIR:
        """The typed tile IR of a configured kernel. Raises CompileError with every error of the checker."""
        return self._checked(request)[0]

    def _checked(self, request: Request) -> tuple[KernelIR, tuple[Diagnostic, ...]]:
        with self._lock:
            found = self._irs.get(request)
            if found is None:
                from phobos.semantic.check import check_kernel_with_warnings

                found = self._irs[request] = check_kernel_with_warnings(
                    self.module(),
                    request.kernel,
                    config=dict(request.config),
                    dtypes=dict(request.dtypes),
                    consts=dict(request.consts),
                )
            return found

    def configured(self, request: Request) -> Configured:
        with self._lock:
            found = self._configured.get(request)
            if found is None:
                key = self._key("facts", *_request_key(request))
                stored = _load(key)
                if stored is None:
                    from phobos.compiler import default_spec

                    kernel, warnings = self._checked(request)
                    found = Configured(
                        request=request,
                        facts=facts.kernel_facts(kernel),
                        spec=default_spec(kernel),
                        warnings=warnings,
                    )
                    _save(key, _configured_to_json(found))
                else:
                    found = _configured_from_json(request, stored)
                self._configured[request] = found
            return found

    def program(
        self, configured: Configured, spec: Specialization, target: Target, *, debug: bool, fast_math: bool
    ) -> Program:
        """The emitted program of one variant."""
        memo = (configured.request, spec, target.arch, debug, fast_math)
        with self._lock:
            found = self._programs.get(memo)
            if found is None:
                key = self._key(
                    "program", *_request_key(configured.request), facts.spec_key(spec), target.arch, debug, fast_math
                )
                stored = _load(key)
                if stored is None:
                    from phobos.compiler import build_program

                    kernel = self.ir(configured.request)
                    found = build_program(kernel, target, spec, self.source, debug=debug, fast_math=fast_math)
                    _save(key, facts.program_to_json(found))
                else:
                    found = facts.program_from_json(stored)
                self._programs[memo] = found
            return found

    def choose(self, request: Request, dims: Mapping[str, int], target: Target) -> tuple[Config, str]:
        """A complete configuration for a request that leaves @autotune names open, and the reason for it."""
        memo = (request, tuple(sorted(dims.items())), target.arch)
        with self._lock:
            found = self._choices.get(memo)
            if found is None:
                key = self._key("choice", *_request_key(request), tuple(sorted(dims.items())), target.arch)
                stored = _load(key)
                if stored is None:
                    from phobos.tuning.default import choose

                    self._check_pinned(request)
                    signature = self.signatures()[request.kernel]
                    config, reason = choose(
                        signature,
                        self.module(),
                        dims=dict(dims),
                        dtypes=dict(request.dtypes),
                        target=target,
                        consts=dict(request.consts),
                        pinned=dict(request.config),
                    )
                    found = tuple(sorted(config.items())), reason
                    _save(key, {"config": [list(item) for item in found[0]], "reason": reason})
                else:
                    found = tuple((n, v) for n, v in stored["config"]), stored["reason"]
                self._choices[memo] = found
            return found

    def _check_pinned(self, request: Request) -> None:
        """Raises what the checker says of a pinned value that is none of its name's values: choosing the other names
        would only say that nothing fits."""
        space = dict(self.kernel(request.kernel).space)
        pinned = dict(request.config)
        if any(name in space and not among(value, space[name]) for name, value in pinned.items()):
            point = {name: values[0] for name, values in space.items()} | pinned
            self._checked(replace(request, config=tuple(sorted(point.items()))))

    def _key(self, stage: str, *parts: Any) -> Callable[[], str]:
        # A function: where the cache is off, the compiler's version is not computed.
        return lambda: cache.digest(
            stage, facts.JSON_FORMAT, cache.compiler_version(), self.source.name, self.source.text, parts
        )


# --- disk ------------------------------------------------------------------------------------


def _load(key: Callable[[], str]) -> Any:
    store = cache.store("front")
    if not store.enabled:
        return None
    entry = store.get(key())
    return None if entry is None else json.loads(entry)


def _save(key: Callable[[], str], data: Any) -> None:
    store = cache.store("front")
    if store.enabled:
        store.put(key(), json.dumps(data).encode())


def _request_key(request: Request) -> tuple[Any, ...]:
    return (
        request.kernel,
        request.config,
        tuple((name, dtype.value) for name, dtype in request.dtypes),
        request.consts,
    )


def _configured_to_json(configured: Configured) -> dict[str, Any]:
    return {
        "facts": facts.facts_to_json(configured.facts),
        "spec": facts.spec_to_json(configured.spec),
        "warnings": [d.to_json() for d in configured.warnings],
    }


def _configured_from_json(request: Request, data: dict[str, Any]) -> Configured:
    return Configured(
        request=request,
        facts=facts.facts_from_json(data["facts"]),
        spec=facts.spec_from_json(data["spec"]),
        warnings=tuple(_diagnostic_from_json(d) for d in data["warnings"]),
    )


def _diagnostic_from_json(data: dict[str, Any]) -> Diagnostic:
    span = Span(**data["span"]) if data["span"] else None
    return Diagnostic(**{**data, "span": span, "notes": tuple(data["notes"])})


# --- signatures ------------------------------------------------------------------------------


def _kernel_info(signature: Signature) -> KernelInfo:
    return KernelInfo(
        name=signature.name,
        params=tuple(
            ParamFact(name=p.name, kind=p.kind, dtype=p.dtype_text(), generic=p.dtype is None, dims=p.dims)
            for p in signature.params
        ),
        dtype_params=signature.dtype_params,
        space=tuple(signature.space.items()),
        launch_dims=signature.launch_dims,
    )


def _info_to_json(info: KernelInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "params": [facts.param_to_json(p) for p in info.params],
        "dtype_params": list(info.dtype_params),
        "space": [[name, list(values)] for name, values in info.space],
        "launch_dims": list(info.launch_dims),
    }


def _info_from_json(data: dict[str, Any]) -> KernelInfo:
    return KernelInfo(
        name=data["name"],
        params=tuple(facts.param_from_json(p) for p in data["params"]),
        dtype_params=tuple(data["dtype_params"]),
        space=tuple((name, tuple(values)) for name, values in data["space"]),
        launch_dims=tuple(data["launch_dims"]),
    )
