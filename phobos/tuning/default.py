"""The configuration of a call that names none and for which no search result is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from phobos.compiler import default_spec
from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.exact import among
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.passes import pipeline
from phobos.semantic.signature import Signature
from phobos.syntax import ast
from phobos.target import Target
from phobos.tuning.model import UNKNOWN_DIM, Estimate, estimate
from phobos.tuning.space import Space

_T = TypeVar("_T")
_Possible = tuple[Estimate, tuple[dict[str, Any], KernelIR]]
_MOST = 400  # configurations looked at: about 5 ms each
_TRIED = 20  # configurations that are lowered until one fits, 30 ms each
_SMALLEST = 6  # of them the smallest, at last
_EQUAL = 0.003  # of the estimate: less than what decides nothing
_MOST_REASONS = 8  # that a diagnostic gives


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A configuration that was looked at: its estimate, or what the checker said (`error`); `why_not` where it cannot
    run."""

    config: dict[str, Any]
    estimate: Estimate | None
    why_not: str | None
    kernel: KernelIR | None
    error: CompileError | None


def candidates(
    signature: Signature,
    module: ast.Module,
    dims: Mapping[str, int],
    dtypes: Mapping[str, DType],
    target: Target,
    *,
    consts: Mapping[str, Any] | None = None,
    pinned: Mapping[str, Any] | None = None,
) -> list[Candidate]:
    """The configurations that `choose` chooses from, in the order of the space."""
    from phobos.semantic.check import check_kernel

    out = []
    for config in configurations(signature, fixed_names(signature, dims, pinned)):
        try:
            kernel = check_kernel(module, signature.name, config, dtypes, dict(consts or {}))
        except CompileError as error:
            why_not = error.diagnostics[0].message
            out.append(Candidate(config=config, estimate=None, why_not=why_not, kernel=None, error=error))
            continue
        found = estimate(kernel, target, dims)
        out.append(Candidate(config=config, estimate=found, why_not=found.why_not, kernel=kernel, error=None))
    return out


def fixed_names(
    signature: Signature, dims: Mapping[str, int], pinned: Mapping[str, Any] | None
) -> dict[str, Any]:  # fmt: skip
    """What is pinned, and names of the space that are also dims, where the dim's value is in their set."""
    fixed = dict(pinned or {})
    for name, values in signature.space.items():
        if name not in fixed and name in dims and among(dims[name], values):
            fixed[name] = dims[name]
    return fixed


def choose(
    signature: Signature,
    module: ast.Module,
    dims: Mapping[str, int],
    dtypes: Mapping[str, DType],
    target: Target,
    *,
    consts: Mapping[str, Any] | None = None,
    pinned: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
    """(configuration, reason): the one with the least estimated time among those that can run.

    `dims` are extents by name, where known; `pinned` are values that the caller fixed. Names of the space that are also
    dims take the dim's value where it is in their set. A configuration whose @aligned promise these extents break is
    chosen only if all others break theirs (the launch then says which). Raises CompileError with the reasons if no
    configuration can run.
    """
    looked_at = candidates(signature, module, dims, dtypes, target, consts=consts, pinned=pinned)
    return choose_from(looked_at, signature, dims, target, pinned)


def choose_from(
    looked_at: Sequence[Candidate], signature: Signature, dims: Mapping[str, int], target: Target,
    pinned: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """What `choose` says of these candidates; the configuration is the very one of a candidate."""
    possible: list[_Possible] = []
    errors: dict[tuple[str, ...], CompileError] = {}  # by what they say
    for c in looked_at:
        if c.error is not None:
            errors.setdefault(tuple(str(d) for d in c.error.diagnostics), c.error)
        elif c.why_not is None and c.estimate is not None and c.kernel is not None:
            possible.append((c.estimate, (c.config, c.kernel)))
    reasons = reasons_against(looked_at, _text)
    if not possible:
        fixed = fixed_names(signature, dims, pinned)
        size, count = _space(signature, fixed).size, len(looked_at)
        if all(c.error is not None for c in looked_at) and (len(errors) == 1 or not fixed):
            raise next(iter(errors.values()))  # the configuration has no part in it
        raise CompileError(
            Diagnostic(
                code="PH0540",
                message=f"no configuration of kernel `{signature.name}` can run on {target.arch}",
                span=signature.span,
                notes=(*grouped(reasons), *([f"looked at {count} of {size}, evenly spread"] if size > count else [])),
            )
        )
    kept = [(found, it) for found, it in possible if broken_promise(it[1], dims) is None]
    e, (config, kernel) = _lowered(kept or possible, target)
    shapes = _shapes(signature, dims, pinned)
    unknown = [d.name for d in kernel.dims if d.name not in dims]
    blocks, waves = "block" if e.blocks == 1 else "blocks", "wave" if e.waves == 1 else "waves"
    reason = (
        f"cost model, best of {len(possible)}: {e.blocks} {blocks} in {e.waves} {waves} of "
        f"{e.blocks_per_sm} an SM, about {e.registers} registers, "
        f"about {e.shared_bytes} bytes of shared memory with one stage of operands"
        + (f"; {', '.join(unknown)} taken as {UNKNOWN_DIM}" if unknown else "")
        + "".join(f"; {name} is an extent of the arguments, and none was given" for name in shapes)
        + _out(reasons)
    )
    return config, reason


def reasons_against(
    looked_at: Sequence[Candidate], text: Callable[[Mapping[str, Any]], str]
) -> dict[str, list[str]]:  # fmt: skip
    """Why candidates cannot run -> those, as `text` says them."""
    out: dict[str, list[str]] = {}
    for c in looked_at:
        if c.why_not is not None:
            out.setdefault(c.why_not, []).append(text(c.config))
    return out


def _shapes(signature: Signature, dims: Mapping[str, int], pinned: Mapping[str, Any] | None) -> list[str]:
    """Names of the space whose values are different problems, and which the caller left open."""
    extents = {d for p in signature.params for d in p.dims}
    fixed = fixed_names(signature, dims, pinned)
    return [n for n, values in signature.space.items() if n in extents and n not in fixed and len(values) > 1]


def _out(reasons: Mapping[str, list[str]]) -> str:
    """What the choice says of configurations that cannot run."""
    if not reasons:
        return ""
    number = sum(map(len, reasons.values()))
    reason, configs = next(iter(reasons.items()))
    more = f" (and {len(reasons) - 1} more reasons)" if len(reasons) > 1 else ""
    return f"; {number} {'others' if number > 1 else 'other'} cannot run, {configs[0]}: {reason}{more}"


def _lowered(possible: list[_Possible], target: Target) -> _Possible:
    """The preferred one of those that can be lowered: only then it is known what a ring or a result needs of shared
    memory. Where none of those tried can, the first, so that compiling it says why."""
    left = list(possible)
    most = float("inf")  # bytes of operands that are worth a try
    for number in range(_TRIED):
        # Smaller ones come first, and soon much smaller ones: those that need as much of what was missing would fail
        # alike. What was missing may be no operand, so others have their turn; at last the smallest.
        smaller = [x for x in left if x[0].shared_bytes < most]
        if number >= _TRIED - _SMALLEST:
            chosen = min(left, key=lambda x: (x[0].shared_bytes, x[0].cycles))
        else:
            chosen = preferred(smaller if smaller and number % 3 != 2 else left)
        try:
            pipeline.run(chosen[1][1], target, default_spec(chosen[1][1]))
            return chosen
        except CompileError:
            left = [x for x in left if x is not chosen]
            if not left:
                break
            if chosen[0].shared_bytes < most:
                most = chosen[0].shared_bytes * (1.0 if number < 2 else 0.5)
    return preferred(possible)


def preferred(possible: Sequence[tuple[Estimate, _T]]) -> tuple[Estimate, _T]:
    """The fastest; of equals the one that needs less.

    A GEMM's tiles of 128x256 and 256x128 then still tie: rows shorter than a line decide (BK = 32: 288 and 312 us on an
    H200), and without them the one of more rows was the faster (BK = 64: 325 and 287 us in a search, alike in turns
    with cuBLAS). The order in which a text lists its names must not matter, nor what little an epilogue adds.
    """
    least = min(e.cycles for e, _ in possible)
    equal = [x for x in possible if x[0].cycles <= least * (1 + _EQUAL)]
    return min(equal, key=lambda x: (x[0].shared_bytes, x[0].short_rows, -x[0].rows, -x[0].across, x[0].alone))


def grouped(reasons: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Each reason once, with one of the configurations that it holds for."""
    notes = [
        f"{configs[0]}{f' and {len(configs) - 1} more' if len(configs) > 1 else ''}: {reason}"
        for reason, configs in reasons.items()
    ]
    hidden = len(notes) - _MOST_REASONS
    return (*notes[:_MOST_REASONS], *([f"and {hidden} more reasons"] if hidden > 0 else []))


def broken_promise(kernel: KernelIR, dims: Mapping[str, int]) -> str | None:
    """Which promise of @aligned these extents break, or None. Extents that are not given break none."""
    for promise in kernel.aligned:
        extent = dims.get(promise.dim, 0)
        if extent % promise.multiple:
            return f"@aligned({promise.dim} = {promise.multiple}) is broken by {promise.dim} = {extent}"
    return None


def configurations(signature: Signature, fixed: Mapping[str, object], most: int = _MOST) -> list[dict[str, Any]]:
    """All combinations of the space with these values fixed; of spaces of more than `most` an evenly spread part. What
    is fixed beside the space (a dim) is part of each."""
    return list(_space(signature, fixed).configurations(most))


def size(signature: Signature, fixed: Mapping[str, object]) -> int:
    """How many combinations there are."""
    return _space(signature, fixed).size


def _space(signature: Signature, fixed: Mapping[str, object]) -> Space:
    return Space.of(tuple(signature.space.items()), fixed)


def _text(config: Mapping[str, object]) -> str:
    return ", ".join(f"{k}={v}" for k, v in config.items()) or "no names"
