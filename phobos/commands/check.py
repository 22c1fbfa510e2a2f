"""`phobos check`: diagnostics of files, and the search space of each kernel.

Whether a kernel is well typed may depend on its dtype names, its consts and its configuration. A kernel is good if, for
every value of its bool consts, some dtype and some configuration of its space check; where none does, the errors of the
first one tried are reported. Where some configurations check and others do not, a warning (PH0409) says how many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phobos.console import json_text
from phobos.diagnostics import ERROR, WARNING, CompileError, Diagnostic, nearest
from phobos.files import read_source
from phobos.ir.types import DType
from phobos.semantic import codes
from phobos.semantic.check import check_kernel_with_warnings
from phobos.semantic.signature import Parameter, Signature, signatures
from phobos.source import SourceFile
from phobos.syntax import ast
from phobos.syntax.parser import parse
from phobos.tuning.default import configurations, size

Choice = int | float | bool | str

# Tried in this order for a dtype name that --dtype does not bind.
_DTYPES = ("f32", "f16", "i32", "u8", "f64")
# A const that is neither bool nor set has no list of values; this is a size that most tiles allow.
_INTEGER_CONST = 16
_MAX_CONST_VARIANTS = 16
_MOST_OTHERS = 40  # configurations that are tried where those that are likely to check do not
_MOST_CONFIGURATIONS = 100  # of a space that are checked, evenly spread


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What was found; `source` is None where the file cannot be read."""

    source: SourceFile | None
    diagnostics: tuple[Diagnostic, ...]
    kernels: tuple[Signature, ...] = ()

    @property
    def good(self) -> bool:
        return not any(d.severity == ERROR for d in self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        kernels = [
            {
                "name": k.name,
                "params": [{"name": p.name, "kind": p.kind, "type": _type_text(p)} for p in k.params],
                "space": {name: list(values) for name, values in k.space.items()},
            }
            for k in self.kernels
        ]
        diagnostics = [d.to_json() for d in self.diagnostics]
        return {"version": 1, "diagnostics": diagnostics, "kernels": kernels}

    def text(self) -> str:
        """Each kernel with its parameters, then each name of its space with the expanded set on a line."""
        out = []
        for k in self.kernels:
            types = f"<{', '.join(k.dtype_params)}>" if k.dtype_params else ""
            out.append(f"kernel {k.name}{types}({', '.join(p.text() for p in k.params)})")
            out += [f"{name} in {{{', '.join(map(_word, values))}}}" for name, values in k.space.items()]
        return "\n".join(out)


def to_json(results: CheckResult | Mapping[str, CheckResult]) -> str:
    """The object of one file, or for several files a list of them, each with its `file`."""
    if isinstance(results, CheckResult):
        return json_text(results.to_json())
    return json_text([{"file": file, **result.to_json()} for file, result in results.items()])


def _type_text(parameter: Parameter) -> str:
    return parameter.text().partition(": ")[2]


def _word(value: Choice) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(path: str, *, kernel: str | None, config: Mapping[str, Choice], dtypes: Mapping[str, str]) -> CheckResult:
    """All diagnostics of a file, or of one kernel in it. Never raises for what is wrong with the file."""
    source = None
    try:
        source = read_source(path)
        module = parse(source)
        kernels = signatures(module)
        if kernel is not None:
            kernels = (_named(kernels, kernel, source),)
    except CompileError as e:
        return CheckResult(source=source, diagnostics=e.diagnostics)
    found: dict[Diagnostic, None] = {}  # in order, each once: the variants of a kernel share most of what is wrong
    for signature in kernels:
        mine = {n: v for n, v in config.items() if n not in _foreign(signature, kernels, _config_names)}
        types = {n: v for n, v in dtypes.items() if n not in _foreign(signature, kernels, lambda k: k.dtype_params)}
        for diagnostic in _check_kernel(module, signature, mine, types):
            found.setdefault(diagnostic)
    return CheckResult(source=source, diagnostics=tuple(found), kernels=kernels)


def _foreign(
    signature: Signature, kernels: tuple[Signature, ...], names: Callable[[Signature], Iterable[str]]
) -> set[str]:
    """Names that only other kernels of the file have: an option for those."""
    return {name for k in kernels for name in names(k)} - set(names(signature))


def _config_names(signature: Signature) -> tuple[str, ...]:
    dims = (d for p in signature.params for d in p.dims if isinstance(d, str))
    return (*signature.space, *(p.name for p in signature.consts), *dims)


def _named(kernels: tuple[Signature, ...], name: str, source: SourceFile) -> Signature:
    for signature in kernels:
        if signature.name == name:
            return signature
    names = [k.name for k in kernels]
    guess = nearest(name, names)
    raise CompileError(
        Diagnostic(
            code="PH0208",
            message=f"{source.name} holds no kernel {name!r}, but {', '.join(names) or 'none at all'}",
            help=f"did you mean {guess!r}?" if guess else None,
        )
    )


def _check_kernel(
    module: ast.Module, signature: Signature, config: Mapping[str, Choice], dtypes: Mapping[str, str]
) -> Iterator[Diagnostic]:
    const_names = {p.name for p in signature.consts}
    pinned = {name: value for name, value in config.items() if name not in const_names}
    for consts in itertools.islice(_const_variants(signature, config), _MAX_CONST_VARIANTS):
        first: CompileError | None = None
        for types, point in _variants(signature, pinned, dtypes):
            try:
                _, warnings = check_kernel_with_warnings(module, signature.name, point, types, consts)
            except CompileError as e:
                first = first or e
                continue
            yield from warnings
            yield from _invalid(module, signature, pinned, types, consts)
            break
        else:
            if first is not None:
                yield from first.diagnostics


def _invalid(
    module: ast.Module, signature: Signature, pinned: Mapping[str, Choice], dtypes: Mapping[str, str],
    consts: Mapping[str, Choice],
) -> Iterator[Diagnostic]:  # fmt: skip
    """The warning that some configurations of the space are no valid kernels, if so: a slip such as BM for BN shows
    only in those in which the two differ."""
    tried: list[dict[str, Any]] = configurations(signature, pinned, _MOST_CONFIGURATIONS)
    failures: list[tuple[dict[str, Any], Diagnostic]] = []
    for config in tried:
        try:
            check_kernel_with_warnings(module, signature.name, config, dtypes, consts)
        except CompileError as e:
            failures.append((config, e.diagnostics[0]))
    if failures:
        config, why = failures[0]
        text = ", ".join(f"{name} = {_word(value)}" for name, value in config.items())
        whole = size(signature, pinned)
        number = f"{len(tried)}" if whole == len(tried) else f"{len(tried)} (of {whole}, evenly spread)"
        where = f"line {why.span.line}: " if why.span is not None else ""
        yield Diagnostic(
            code=codes.INVALID_CONFIGURATIONS,
            severity=WARNING,
            message=f"{len(failures)} of {number} configurations of kernel `{signature.name}` are no valid kernels",
            span=signature.span,
            notes=(f"with {text}: {where}{why.message} ({why.code})", "neither a search nor the default takes them"),
        )


def _const_variants(signature: Signature, config: Mapping[str, Choice]) -> Iterator[dict[str, Choice]]:
    """Every combination of the consts that `config` leaves open: both bools, one size."""
    choices: list[tuple[Choice, ...]] = []
    for p in signature.consts:
        if p.name in config:
            choices.append((config[p.name],))
        elif p.dtype is DType.BOOL:
            choices.append((False, True))
        else:
            choices.append((1.0,) if p.dtype is not None and p.dtype.is_float else (_INTEGER_CONST,))
    for values in itertools.product(*choices):
        yield {p.name: v for p, v in zip(signature.consts, values, strict=True)}


def _variants(
    signature: Signature, pinned: Mapping[str, Choice], dtypes: Mapping[str, str]
) -> Iterator[tuple[dict[str, str], dict[str, Choice]]]:
    """Dtypes and configurations to try, the likely ones first: one point suffices for nearly every kernel."""
    open_types = [t for t in signature.dtype_params if t not in dtypes]
    for dtype in _DTYPES if open_types else ("",):
        types: dict[str, str] = {**dtypes, **{t: dtype for t in open_types}}
        for pick in (_middle, _first, _last):
            yield types, {**{name: pick(values) for name, values in signature.space.items()}, **pinned}
    # Then the whole space, for kernels that few points of it suit.
    first = {**dict.fromkeys(signature.dtype_params, _DTYPES[0]), **dtypes}
    for config in configurations(signature, pinned, _MOST_OTHERS):
        yield first, config


def _middle(values: tuple[Any, ...]) -> Any:
    return values[len(values) // 2]


def _first(values: tuple[Any, ...]) -> Any:
    return values[0]


def _last(values: tuple[Any, ...]) -> Any:
    return values[-1]
