"""Binding of arguments: arrays to tensors, extents to dims, Python numbers to scalars, with every mistake reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos.diagnostics import Diagnostic, LaunchError, nearest
from phobos.ir.tile import Atomic, KernelIR, ScalarParam, Store, TensorParam
from phobos.ir.types import DType
from phobos.ir.walk import kernel_ops
from phobos.reference.numerics import BITS_ONLY, Array, carrier_dtype, round_value, storage_dtype
from phobos.source import SourceFile, Span

# NumPy extension dtypes that may stand for the bits, by the name they register.
_NAMED_DTYPES = {
    DType.BF16: ("bfloat16",),
    DType.F8E4M3: ("float8_e4m3fn",),
    DType.F8E5M2: ("float8_e5m2",),
}


@dataclass(frozen=True)
class Bound:
    """Arrays (in storage dtypes; written in place), scalars in carrier dtypes, dims, and the grid."""

    arrays: dict[str, Array]
    scalars: dict[str, Any]
    dims: dict[str, int]
    grid: tuple[int, int, int]


def written_tensors(kernel: KernelIR) -> frozenset[str]:
    """Names of the tensors that the kernel stores to."""
    return frozenset(op.view.tensor.name for op in kernel_ops(kernel) if isinstance(op, (Store, Atomic)))


def bind(
    kernel: KernelIR,
    arguments: Mapping[str, Any],
    *,
    grid: tuple[int, ...] | None = None,
    float64: bool = False,
    source: SourceFile | None = None,
) -> Bound:
    """Checks the arguments of a call. Raises LaunchError (PH0850 to PH0858) with all that is wrong."""
    errors: list[Diagnostic] = []

    def report(code: str, message: str, span: Span | None, help: str | None = None) -> None:
        errors.append(Diagnostic(code=code, message=message, span=span, help=help))

    names = {t.name: t.span for t in kernel.tensors} | {s.name: s.value.span for s in kernel.scalars}
    for name in arguments:
        if name not in names:
            known = nearest(name, names)
            hint = f"did you mean '{known}'?" if known else f"its parameters are {', '.join(kernel.order)}"
            report("PH0850", f"kernel '{kernel.name}' has no parameter '{name}'", kernel.span, hint)
    for name, span in names.items():
        if name not in arguments:
            report("PH0850", f"argument '{name}' of kernel '{kernel.name}' is missing", span)

    written = written_tensors(kernel)
    arrays: dict[str, Array] = {}
    for tensor in kernel.tensors:
        if tensor.name not in arguments:
            continue
        array = _array(tensor, arguments[tensor.name], float64, report)
        if array is None:
            continue
        if tensor.name in written and not array.flags.writeable:
            report("PH0856", f"'{tensor.name}' is written by the kernel, but its array is read-only", tensor.span)
        arrays[tensor.name] = array

    scalars: dict[str, Any] = {}
    for scalar in kernel.scalars:
        if scalar.name in arguments:
            value = _scalar(scalar, arguments[scalar.name], float64, report)
            if value is not None:
                scalars[scalar.name] = value

    dims = _dims(kernel, arrays, report)
    if not errors:
        _check_promises(kernel, dims, report)
    bound_grid = (0, 0, 0)
    if not errors:
        bound_grid = _grid(kernel, dims, grid, report)
    if errors:
        raise LaunchError(errors, source)
    return Bound(arrays, scalars, dims, bound_grid)


def _array(tensor: TensorParam, argument: Any, float64: bool, report: Any) -> Array | None:
    dtype = tensor.type.dtype
    if not isinstance(argument, np.ndarray):
        report("PH0851", f"'{tensor.name}' needs a NumPy array, not {type(argument).__name__}", tensor.span)
        return None
    want = storage_dtype(dtype)
    array = argument
    if array.dtype != want:
        if array.dtype.name in _NAMED_DTYPES.get(dtype, ()) or (dtype is DType.BOOL and array.dtype == np.uint8):
            array = array.view(want)
        elif not (float64 and dtype.is_float and array.dtype == np.float64):
            bits = f" of {dtype} bits" if dtype in BITS_ONLY else ""
            report(
                "PH0852",
                f"'{tensor.name}' is {tensor.type}: it needs an array of {want}{bits}, not of {argument.dtype}",
                tensor.span,
            )
            return None
    if array.ndim != tensor.type.rank:
        report(
            "PH0853",
            f"'{tensor.name}' is {tensor.type} of rank {tensor.type.rank}, its array has shape {argument.shape}",
            tensor.span,
        )
        return None
    return array


def _scalar(param: ScalarParam, argument: Any, float64: bool, report: Any) -> Any:
    dtype = param.type.dtype
    span = param.value.span
    if isinstance(argument, np.ndarray) and argument.ndim == 0:
        argument = argument[()]
    if dtype is DType.BOOL:
        if isinstance(argument, (bool, np.bool_)):
            return np.bool_(argument)
    elif dtype.is_integer:
        if isinstance(argument, (int, np.integer)) and not isinstance(argument, bool):
            carrier = carrier_dtype(dtype)
            limits = np.iinfo(carrier)
            if limits.min <= int(argument) <= limits.max:
                return carrier.type(argument)
            report("PH0855", f"{argument} does not fit scalar '{param.name}' of type {dtype}", span)
            return None
    elif isinstance(argument, (int, float, np.integer, np.floating)) and not isinstance(argument, bool):
        return np.float64(argument) if float64 else round_value(np.float64(argument), dtype)[()]
    report("PH0855", f"scalar '{param.name}' needs a value of type {dtype}, not {argument!r}", span)
    return None


def _dims(kernel: KernelIR, arrays: Mapping[str, Array], report: Any) -> dict[str, int]:
    dims: dict[str, int] = {}
    where: dict[str, str] = {}
    for tensor in kernel.tensors:
        array = arrays.get(tensor.name)
        if array is None:
            continue
        for axis, (dim, extent) in enumerate(zip(tensor.type.dims, array.shape, strict=False)):
            place = f"axis {axis} of '{tensor.name}'"
            if isinstance(dim, int):
                if dim != extent:
                    report("PH0854", f"{place} must have {dim} elements, it has {extent}", tensor.span)
            elif dim not in dims:
                dims[dim], where[dim] = extent, place
            elif dims[dim] != extent:
                report("PH0854", f"dim {dim} is {dims[dim]} in {where[dim]} and {extent} in {place}", tensor.span)
    if len(arrays) == len(kernel.tensors):
        for param in kernel.dims:
            if param.name not in dims:
                report("PH0854", f"dim {param.name} is bound by no tensor", param.value.span)
    return dims


def _check_promises(kernel: KernelIR, dims: Mapping[str, int], report: Any) -> None:
    for promise in kernel.aligned:
        value = dims.get(promise.dim)
        if value is not None and value % promise.multiple:
            report(
                "PH0857",
                f"{promise.dim} is {value}, but @aligned promises a multiple of {promise.multiple}",
                promise.span,
                f"pass a multiple of {promise.multiple}, choose a tile that divides {value}, or remove the promise",
            )


def _grid(kernel: KernelIR, dims: Mapping[str, int], grid: tuple[int, ...] | None, report: Any) -> tuple[int, int, int]:
    if grid is None:
        try:
            grid = tuple(e.evaluate(dims) for e in kernel.grid)
        except ZeroDivisionError as error:
            report("PH0858", f"the grid of '{kernel.name}' cannot be computed: {error}", kernel.span)
            return (0, 0, 0)
    if not 1 <= len(grid) <= 3 or any(n < 0 for n in grid):
        report("PH0858", f"a grid has one to three sizes that are not negative, not {tuple(grid)}", kernel.span)
        return (0, 0, 0)
    x, y, z = (*(int(n) for n in grid), 1, 1)[:3]
    return (x, y, z)
