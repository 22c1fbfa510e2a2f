"""The configuration of a call that names none and for which no search result is stored."""

from __future__ import annotations

from collections.abc import Mapping

from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.semantic.signature import Signature
from phobos.syntax import ast
from phobos.target import Target
from phobos.tuning.model import UNKNOWN_DIM, Estimate, estimate

_MOST = 400  # configurations looked at: about 5 ms each


def choose(
    signature: Signature,
    module: ast.Module,
    dims: Mapping[str, int],
    dtypes: Mapping[str, DType],
    target: Target,
    *,
    consts: Mapping[str, object] | None = None,
    pinned: Mapping[str, object] | None = None,
) -> tuple[dict[str, object], str]:
    """(configuration, reason): the one with the least estimated time among those that can run.

    `dims` are extents by name, where known; `pinned` are values that the caller fixed. Names of the space that are also
    dims take the dim's value where it is in their set. A configuration whose @aligned promise these extents break is
    chosen only if all others break theirs (the launch then says which). Raises CompileError with the reasons if no
    configuration can run.
    """
    from phobos.semantic.check import check_kernel

    fixed = dict(pinned or {})
    for name, values in signature.space.items():
        if name not in fixed and name in dims and dims[name] in values:
            fixed[name] = dims[name]
    best: tuple[tuple[bool, float, int, float], dict[str, object], Estimate, KernelIR] | None = None
    reasons: list[str] = []
    count = rejected = 0
    errors: dict[tuple[str, ...], CompileError] = {}  # by what they say
    for config in _candidates(signature, fixed):
        count += 1
        try:
            kernel = check_kernel(module, signature.name, config, dtypes, dict(consts or {}))  # type: ignore[arg-type]
        except CompileError as error:
            rejected += 1
            errors.setdefault(tuple(str(d) for d in error.diagnostics), error)
            reasons.append(f"{_text(config)}: {error.diagnostics[0].message}")
            continue
        found = estimate(kernel, target, dims)
        if found.why_not is not None:
            reasons.append(f"{_text(config)}: {found.why_not}")
            continue
        # Of equals the one that needs less, and then the one of longer rows (128x256 tiles of a GEMM are 5 % faster
        # than 256x128 on an H200): the order in which a text lists its names must not matter.
        rank = (broken_promise(kernel, dims) is not None, found.cycles, found.shared_bytes, found.rows)
        if best is None or rank < best[0]:
            best = (rank, config, found, kernel)
    if best is None:
        if rejected == count and (len(errors) == 1 or not fixed):
            raise next(iter(errors.values()))  # the configuration has no part in it
        raise CompileError(
            Diagnostic(
                code="PH0540",
                message=f"no configuration of kernel `{signature.name}` can run on {target.arch}",
                span=signature.span,
                notes=tuple(reasons[:8]),
            )
        )
    _, config, e, kernel = best
    unknown = [d.name for d in kernel.dims if d.name not in dims]
    blocks, waves = "block" if e.blocks == 1 else "blocks", "wave" if e.waves == 1 else "waves"
    reason = (
        f"cost model, best of {count}: {e.blocks} {blocks} in {e.waves} {waves} of "
        f"{e.blocks_per_sm} an SM, about {e.registers} registers, {e.shared_bytes} bytes of operands in shared memory"
        + (f"; {', '.join(unknown)} taken as {UNKNOWN_DIM}" if unknown else "")
    )
    return config, reason


def broken_promise(kernel: KernelIR, dims: Mapping[str, int]) -> str | None:
    """Which promise of @aligned these extents break, or None. Extents that are not given break none."""
    for promise in kernel.aligned:
        extent = dims.get(promise.dim, 0)
        if extent % promise.multiple:
            return f"@aligned({promise.dim} = {promise.multiple}) is broken by {promise.dim} = {extent}"
    return None


def _candidates(signature: Signature, fixed: Mapping[str, object]) -> list[dict[str, object]]:
    """All combinations; of very large spaces an evenly spread part."""
    names = list(signature.space)
    values = [[fixed[n]] if n in fixed else list(signature.space[n]) for n in names]
    total = 1
    for v in values:
        total *= len(v)
    step = max(1, -(-total // _MOST))
    if step > 1 and any(len(v) % step == 0 for v in values):
        step += 1  # a step that divides an extent would never see some of its values
    out = []
    for number in range(0, total, step):
        config: dict[str, object] = {}
        for name, choices in zip(reversed(names), reversed(values)):
            config[name] = choices[number % len(choices)]
            number //= len(choices)
        out.append({n: config[n] for n in names})
    return out


def _text(config: Mapping[str, object]) -> str:
    return ", ".join(f"{k}={v}" for k, v in config.items()) or "no names"
