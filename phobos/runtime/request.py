"""What callers ask for - configuration, extents, dtypes - in the forms that the pipeline takes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from phobos.diagnostics import CompileError, Diagnostic, LaunchError, nearest
from phobos.ir.abi import Specialization, TensorFacts, known_multiples
from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.runtime.facts import KernelFacts
from phobos.runtime.pipeline import Config, KernelInfo

# Stands for an extent that nobody named: large, and a multiple of every power of two that matters.
_LARGE = 4096


def config_items(config: Any) -> Config:
    """A configuration as sorted (name, value) pairs; values are plain int, float, bool or str.

    Raises CompileError PH0607 for anything else. Names and values are judged by the checker.
    """
    if config is None:
        return ()
    if not isinstance(config, Mapping):
        raise CompileError(
            Diagnostic(
                code="PH0607",
                message=f"a configuration is a mapping such as {{'BR': 64}}, not {config!r:.60}",
            )
        )
    out = []
    for name, value in config.items():
        plain = plain_value(value)
        if not isinstance(name, str) or plain is None:
            raise CompileError(
                Diagnostic(
                    code="PH0607",
                    message=f"configuration entry {name!r}: {value!r} must be a name with a number, a bool or a word",
                )
            )
        out.append((name, plain))
    return tuple(sorted(out))


def plain_value(value: Any) -> int | float | bool | str | None:
    """A Python value or a NumPy scalar as a plain Python value, None for anything else."""
    # Of a subclass (numpy.float64, an IntEnum) the value alone: keys tell types apart.
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # NumPy scalars
        item = value.item()
        return item if isinstance(item, (bool, int, float)) else None
    return None


def unknown_name(code: str, kernel: str, what: str, name: object, known: Collection[str]) -> Diagnostic:
    """That the kernel has no such scalar, dim, ...; with what it has and what may have been meant."""
    guess = nearest(name, known)
    return Diagnostic(
        code=code,
        message=f"kernel {kernel!r} has no {what} {name!r}; it has {', '.join(known) or 'none'}",
        help=f"did you mean {guess!r}?" if guess else None,
    )


def check_scalar_names(kernel: str, known: Collection[str], given: Collection[str]) -> None:
    """Raises LaunchError PH1012 for a name that is no scalar of the kernel."""
    for name in given:
        if name not in known:
            raise LaunchError(unknown_name("PH1012", kernel, "scalar", name, known))


def check_names(info: KernelInfo, config: Mapping[str, Any]) -> None:
    """Raises CompileError PH0307 for a name that no configuration of the kernel has, before the rest is chosen."""
    space = [name for name, _ in info.space]
    for name in config:
        if name not in space and name not in info.dims:
            guess = nearest(name, [*space, *info.dims])
            raise CompileError(
                Diagnostic(
                    code="PH0307",
                    message=f"`{name}` is no autotune name of `{info.name}`",
                    notes=(f"its autotune names: {', '.join(f'`{n}`' for n in space)}",),
                    help=f"did you mean `{guess}`?" if guess else None,
                )
            )


def extents(info: KernelInfo, dims: Any) -> dict[str, int]:
    """Extents by dim name. Raises CompileError PH0315 for an unknown dim, PH0607 for a value that is no extent."""
    if dims is None:
        return {}
    if not isinstance(dims, Mapping):
        raise CompileError(
            Diagnostic(code="PH0607", message=f"dims is a mapping such as {{'N': 4096}}, not {dims!r:.60}")
        )
    out: dict[str, int] = {}
    for name, value in dims.items():
        if name not in info.dims:
            raise CompileError(unknown_name("PH0315", info.name, "dim", name, info.dims))
        size = extent(value)
        if size is None:
            raise CompileError(Diagnostic(code="PH0607", message=f"dim {name!r} = {value!r} is not an extent"))
        out[name] = size
    return out


def extent(value: Any) -> int | None:
    """A Python or NumPy integer from 0 on as a Python int, None for anything else."""
    plain = plain_value(value)
    return plain if isinstance(plain, int) and not isinstance(plain, bool) and plain >= 0 else None


# Divisors of extents that tile sizes are likely to have.
_DIVISORS = 2**12 * 3**2 * 5 * 7


def representative(dims: Mapping[str, int], exact: Collection[str]) -> dict[str, int]:
    """Extents that stand for these ones when a configuration is chosen for a call.

    A choice takes a fraction of a second, so calls whose shapes keep changing must share it. An extent above 64 is
    replaced by a near one, the same for all extents with the same three leading bits and the same divisibility by
    tile sizes (so that a promise of @aligned is kept or broken alike). Names in `exact`, powers of two and round
    multiples of them stay.
    """
    return {n: size if n in exact or size <= 64 else _near(size) for n, size in dims.items()}


def _near(size: int) -> int:
    common = math.gcd(size, _DIVISORS)
    shift = size.bit_length() - 3
    found = -(-(size >> shift << shift) // common) * common
    while found < size and math.gcd(found, _DIVISORS) != common:
        found += common
    return min(found, size)


def check_extents(dims: Mapping[str, int], configuration: Mapping[str, Any]) -> None:
    """Raises CompileError PH0607 for an extent of a dim that the configuration fixes at another one."""
    for name, value in dims.items():
        if name in configuration and configuration[name] != value:
            raise CompileError(
                Diagnostic(code="PH0607", message=f"dim {name!r} is fixed at {configuration[name]} here, not {value}")
            )


def guided_spec(facts: KernelFacts, default: Specialization, dims: Mapping[str, int]) -> Specialization:
    """The specialization for contiguous tensors of these extents; unnamed ones count as large and aligned."""
    if not dims:
        return replace(default, index_bits=64) if facts.index == "64" else default
    tensors = []
    wide = False
    for tensor in facts.tensors:
        sizes = [dims.get(d, _LARGE) if isinstance(d, str) else d for d in tensor.dims]
        step, aligned = 1, True
        for size in reversed(sizes[1:]):
            step *= max(1, size)
            aligned = aligned and step * tensor.dtype.bytes % 16 == 0
        wide = wide or step * (sizes[0] if sizes else 1) > 2**31 - 1
        tensors.append((tensor.name, TensorFacts(align16=aligned, contiguous=True)))
    known = {d: dims.get(d, _LARGE) for d in facts.dims}
    multiples = known_multiples(facts.dims, known, [(t.dims, f) for t, (_, f) in zip(facts.tensors, tensors)])
    bits = 64 if (wide and facts.index != "32") or facts.index == "64" else 32
    return replace(default, tensors=tuple(tensors), dim_multiple=multiples, index_bits=bits)


def parse_dtypes(info: KernelInfo, dtypes: Mapping[str, Any]) -> tuple[tuple[str, DType], ...]:
    """Values of dtype parameters given as names ("f16") or DTypes. Raises CompileError PH0606."""
    if not isinstance(dtypes, Mapping):
        message = f"dtypes is a mapping such as {{'T': 'f16'}}, not {dtypes!r:.60}"
        raise CompileError(Diagnostic(code="PH0606", message=message))
    out = []
    for name, value in dtypes.items():
        if name not in info.dtype_params:
            guess = nearest(name, info.dtype_params)
            raise CompileError(
                Diagnostic(
                    code="PH0606",
                    message=f"kernel {info.name!r} has no dtype parameter {name!r}"
                    + (f"; it has {', '.join(info.dtype_params)}" if info.dtype_params else ""),
                    help=f"did you mean {guess!r}?" if guess else None,
                )
            )
        dtype = value if isinstance(value, DType) else DTYPE_BY_NAME.get(str(value))
        if dtype is None or dtype is DType.INDEX:
            known = [d.value for d in DType if d is not DType.INDEX]
            guess = nearest(str(value), known)
            raise CompileError(
                Diagnostic(
                    code="PH0606",
                    message=f"{value!r} is not a dtype; known: {', '.join(known)}",
                    help=f"did you mean {guess!r}?" if guess else None,
                )
            )
        out.append((name, dtype))
    return tuple(sorted(out, key=lambda item: item[0]))
