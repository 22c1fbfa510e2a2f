"""`phobos check`: every kernel of a file under representative configurations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.types import DType
from phobos.semantic import codes, lint
from phobos.semantic.attributes import Choice, choice_text
from phobos.semantic.check import check_kernel_with_warnings
from phobos.semantic.constants import file_constants
from phobos.semantic.report import Reporter
from phobos.semantic.signature import Parameter, Signature, check_file_names, signature
from phobos.source import Span
from phobos.syntax import ast

MAX_VARIANTS = 16


def check_module(module: ast.Module) -> tuple[Diagnostic, ...]:
    """All errors and warnings of a file, without duplicates, errors first, in order of place.

    Each kernel is checked with the smallest and the largest value of each set, dtype parameters as f32 and f16 (i32
    where neither suits), and both values of every `const` bool. An error that only some of these have says which.
    """
    try:
        return _check(module)
    except RecursionError:
        return (Diagnostic(code=codes.TOO_DEEP, message="the file is nested too deeply", span=module.source.start()),)


def _check(module: ast.Module) -> tuple[Diagnostic, ...]:
    reporter = Reporter()
    constants = file_constants(module, reporter)
    check_file_names(module, constants, reporter)
    found = list(reporter.errors)
    recursion = _recursion(module)
    found.extend(recursion)
    for kernel in module.kernels:
        own = Reporter()
        sig = signature(kernel, constants, own)
        found.extend(own.errors)
        found.extend(_kernel(module, sig))
    found.extend(lint.module_warnings(module))
    return _deduplicated(found)


def _deduplicated(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    out: dict[tuple[str, Span | None], Diagnostic] = {}
    for diagnostic in found:
        out.setdefault((diagnostic.code, diagnostic.span), diagnostic)

    def place(d: Diagnostic) -> tuple[bool, int, int]:
        return (d.severity != "error", d.span.line if d.span else 0, d.span.column if d.span else 0)

    return tuple(sorted(out.values(), key=place))


# --- variants --------------------------------------------------------------------------------


def _extremes(sig: Signature) -> list[dict[str, Choice]]:
    def pick(values: tuple[Choice, ...], largest: bool) -> Choice:
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        if len(numbers) == len(values):
            return max(numbers) if largest else min(numbers)
        return values[-1 if largest else 0]

    small = {name: pick(values, False) for name, values in sig.space.items()}
    large = {name: pick(values, True) for name, values in sig.space.items()}
    return [small] if small == large else [small, large]


def _const_values(param: Parameter) -> list[Choice]:
    if param.dtype is DType.BOOL:
        return [False, True]
    return [1.0] if param.dtype is not None and param.dtype.is_float else [16]


def _variants(sig: Signature) -> Iterator[tuple[dict[str, Choice], dict[str, Choice]]]:
    """(config, consts), at most MAX_VARIANTS."""
    consts = [_const_values(p) for p in sig.consts]
    names = [p.name for p in sig.consts]
    combos = (
        (config, dict(zip(names, values, strict=True)))
        for values in itertools.product(*consts)
        for config in _extremes(sig)
    )
    return itertools.islice(combos, MAX_VARIANTS)


def _run(
    module: ast.Module, sig: Signature, config: Mapping[str, Choice], dtype: DType, consts: Mapping[str, Choice]
) -> tuple[Diagnostic, ...]:
    try:
        _, warnings = check_kernel_with_warnings(
            module, sig.name, config, {name: dtype for name in sig.dtype_params}, consts
        )
        return warnings
    except CompileError as error:
        return error.diagnostics


def _kernel(module: ast.Module, sig: Signature) -> list[Diagnostic]:
    dtypes = [DType.F32, DType.F16] if sig.dtype_params else [DType.F32]
    by_dtype = {dtype: _with_dtype(module, sig, dtype) for dtype in dtypes}
    if sig.dtype_params and all(_errors(found) for found in by_dtype.values()):
        integers = _with_dtype(module, sig, DType.I32)
        if not _errors(integers):
            # A kernel for integers.
            return integers
    out = list(by_dtype[dtypes[0]])
    have = {(d.code, d.span) for d in out}
    for dtype in dtypes[1:]:
        note = f"with {', '.join(sig.dtype_params)} = {dtype}"
        for d in by_dtype[dtype]:
            if (d.code, d.span) not in have:
                out.append(replace(d, notes=(*d.notes, note)))
    return out


def _errors(found: list[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in found)


def _with_dtype(module: ast.Module, sig: Signature, dtype: DType) -> list[Diagnostic]:
    runs = []
    for config, consts in _variants(sig):
        values = {**{k: v for k, v in config.items() if len(sig.space[k]) > 1}, **consts}
        note = ", ".join(f"{name} = {choice_text(value)}" for name, value in values.items())
        runs.append((note, _run(module, sig, config, dtype, consts)))
    out: dict[tuple[str, Span | None], Diagnostic] = {}
    for note, found in runs:
        for d in found:
            everywhere = all(any((e.code, e.span) == (d.code, d.span) for e in other) for _, other in runs)
            if note and not everywhere and d.severity == "error":
                d = replace(d, notes=(*d.notes, f"with {note}"))
            out.setdefault((d.code, d.span), d)
    return list(out.values())


# --- recursion -------------------------------------------------------------------------------


def _recursion(module: ast.Module) -> list[Diagnostic]:
    """Cycles among functions, called or not."""
    calls = {f.name.id: lint.calls(f) for f in module.functions}
    out = []
    for function in module.functions:
        seen: set[str] = set()
        todo = sorted(calls[function.name.id])
        while todo:
            name = todo.pop()
            if name in calls and name not in seen:
                seen.add(name)
                todo.extend(calls[name])
        if function.name.id in seen:
            out.append(
                Diagnostic(
                    code=codes.RECURSION,
                    message=f"`{function.name.id}` calls itself",
                    span=function.name.span,
                    notes=("functions are inlined, so that a recursion would not end",),
                    help="write a loop",
                )
            )
    return out
