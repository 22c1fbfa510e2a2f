"""From the arguments of a call to what a launch needs: every check, then the variant's specialization.

Checks collect: a call with three mistakes gets three diagnostics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phobos.diagnostics import Diagnostic, LaunchError, nearest
from phobos.ir.abi import Specialization, TensorFacts, known_multiples
from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.runtime.arguments import ArrayView, scalar, view
from phobos.runtime.facts import KernelFacts, ParamFact

# A tile that starts inside an axis may reach past its end by less than this many elements (the most that a tile has),
# so positions fit 32 bits where extents are below 2^31 minus it.
_TILE_MARGIN = 1 << 20
_INT32_MAX = (1 << 31) - 1

_F8_BITS = (DType.F8E4M3, DType.F8E5M2)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Arguments of one call, checked against the signature.

    `dims` holds every named extent, `dtypes` the bound dtype parameters, `scalars` Python numbers that fit,
    `device` the CUDA ordinal of all tensors, None where they lie on the host (or there are none).
    """

    views: Mapping[str, ArrayView]
    scalars: Mapping[str, int | float | bool]
    consts: Mapping[str, int | float | bool]
    dtypes: Mapping[str, DType]
    dims: Mapping[str, int]
    device: int | None


class _Errors:
    """Collects diagnostics and raises them together."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def add(self, code: str, message: str, help: str | None = None, notes: Iterable[str] = ()) -> None:
        self.found.append(Diagnostic(code=code, message=message, help=help, notes=tuple(notes)))

    def check(self) -> None:
        if self.found:
            raise LaunchError(self.found)


def bind_names(
    kernel: str, params: Sequence[ParamFact], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Value of each parameter, by position in the kernel's order or by keyword.

    Raises LaunchError: PH0701 too many, PH0702 missing, PH0703 unknown keyword, PH0704 given twice.
    """
    errors = _Errors()
    names = [p.name for p in params]
    signature = f"{kernel}({', '.join(f'{p.name}: {p.type_text}' for p in params)})"
    if len(args) > len(names):
        errors.add(
            "PH0701",
            f"kernel {kernel!r} takes {len(names)} arguments, but {len(args)} were passed",
            notes=(signature,),
        )
    values = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            guess = nearest(name, [*names, "config", "stream", "backend", "grid"])
            errors.add(
                "PH0703",
                f"kernel {kernel!r} has no parameter {name!r}",
                f"did you mean {guess!r}?" if guess else None,
                (signature,),
            )
        elif name in values:
            errors.add("PH0704", f"argument {name!r} is given by position and by keyword", notes=(signature,))
        else:
            values[name] = value
    missing = [name for name in names if name not in values]
    if missing and not errors.found:
        plural = "arguments" if len(missing) > 1 else "argument"
        listed = ", ".join(repr(name) for name in missing)
        errors.add("PH0702", f"kernel {kernel!r} misses {plural} {listed}", notes=(signature,))
    errors.check()
    return values


def bind(kernel: str, params: Sequence[ParamFact], values: Mapping[str, Any]) -> Call:
    """Look at every argument and bind dtype names, dims and scalars.

    Raises LaunchError: PH0705, PH0706 (not usable as a tensor), PH0707 dtype, PH0708 dtype name bound to two types,
    PH0709 rank, PH0710 dim bound to two extents, PH0711 extent other than the literal one, PH0715 two devices,
    PH0716, PH0717 scalars.
    """
    errors = _Errors()
    views: dict[str, ArrayView] = {}
    for param in params:
        if param.kind == "tensor":
            try:
                views[param.name] = view(values[param.name], param.name)
            except LaunchError as error:
                errors.found.extend(error.diagnostics)
    dtypes = _bind_dtypes(params, views, errors)
    dims = _bind_dims(params, views, errors)
    device = _common_device(views, errors)
    scalars: dict[str, int | float | bool] = {}
    consts: dict[str, int | float | bool] = {}
    for param in params:
        if param.kind == "tensor":
            continue
        dtype = dtypes.get(param.dtype) if param.generic else DTYPE_BY_NAME[param.dtype]
        if dtype is None:
            if not errors.found:
                errors.add("PH0708", f"no tensor argument tells what {param.dtype!r}, the type of {param.name!r}, is")
            continue
        try:
            number = scalar(values[param.name], param.name, dtype)
        except LaunchError as error:
            errors.found.extend(error.diagnostics)
            continue
        (consts if param.kind == "const" else scalars)[param.name] = number
    errors.check()
    return Call(views=views, scalars=scalars, consts=consts, dtypes=dtypes, dims=dims, device=device)


def _bind_dtypes(params: Sequence[ParamFact], views: Mapping[str, ArrayView], errors: _Errors) -> dict[str, DType]:
    bound: dict[str, tuple[DType, str]] = {}
    for param in params:
        array = views.get(param.name)
        if array is None:
            continue
        if array.dtype is None:
            errors.add(
                "PH0706",
                f"argument {param.name!r} has elements of type {array.dtype_name}, which kernels do not know",
                f"it must be {param.dtype}" if not param.generic else None,
            )
        elif array.pointer % array.dtype.bytes and array.size:
            errors.add(
                "PH0706",
                f"argument {param.name!r} begins at address {array.pointer:#x}, not at a multiple of its element size "
                f"{array.dtype.bytes}",
                "pass a copy of it",
            )
        elif not param.generic:
            wanted = DTYPE_BY_NAME[param.dtype]
            if array.dtype is not wanted and not (array.dtype_name == "uint8" and wanted in _F8_BITS):
                errors.add(
                    "PH0707",
                    f"argument {param.name!r} must be {wanted}, but a tensor of {array.dtype} "
                    f"({array.dtype_name}) was passed",
                    f"convert it to {wanted}",
                    (f"the kernel declares {param.name}: {param.type_text}",),
                )
        elif param.dtype not in bound:
            bound[param.dtype] = (array.dtype, param.name)
        elif bound[param.dtype][0] is not array.dtype:
            first, where = bound[param.dtype]
            errors.add(
                "PH0708",
                f"arguments {where!r} and {param.name!r} must have one type {param.dtype}, but are {first} and "
                f"{array.dtype}",
            )
    return {name: dtype for name, (dtype, _) in bound.items()}


def _bind_dims(params: Sequence[ParamFact], views: Mapping[str, ArrayView], errors: _Errors) -> dict[str, int]:
    bound: dict[str, tuple[int, str]] = {}
    for param in params:
        array = views.get(param.name)
        if array is None:
            continue
        if len(array.shape) != len(param.dims):
            errors.add(
                "PH0709",
                f"argument {param.name!r} must have {len(param.dims)} dimensions, but has shape {_shape(array.shape)}",
                notes=(f"the kernel declares {param.name}: {param.type_text}",),
            )
            continue
        for axis, (dim, extent) in enumerate(zip(param.dims, array.shape, strict=True)):
            if isinstance(dim, int):
                if extent != dim:
                    errors.add("PH0711", _pinned_text(param.name, axis, None, extent, dim))
            elif not dim.isidentifier():
                continue  # an expression of pinned names: its value is known once the kernel is configured
            elif dim not in bound:
                bound[dim] = (extent, f"{param.name} (axis {axis})")
            elif bound[dim][0] != extent:
                first, where = bound[dim]
                errors.add(
                    "PH0710",
                    f"dim {dim!r} is {extent} in argument {param.name!r} (axis {axis}), but {first} in {where}",
                )
    return {name: extent for name, (extent, _) in bound.items()}


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _pinned_text(tensor: str, axis: int, dim: str | None, extent: int, pinned: int) -> str:
    what = f"dim {dim!r}" if dim else f"axis {axis}"
    return f"{what} of argument {tensor!r} is {extent}, but the kernel is compiled for {pinned}"


def _common_device(views: Mapping[str, ArrayView], errors: _Errors) -> int | None:
    places: dict[int | None, str] = {}
    for name, array in views.items():
        places.setdefault(array.device, name)
    if len(places) > 1:
        text = ", ".join(
            f"{name!r} on {'the host' if device is None else f'CUDA device {device}'}"
            for device, name in places.items()
        )
        errors.add("PH0715", f"all tensors must be in one place, but there is {text}", "move them to one device")
        return None
    return next(iter(places), None)


# --- checks against the configured kernel ------------------------------------------------------


def check_call(facts: KernelFacts, params: Sequence[ParamFact], call: Call) -> None:
    """Checks that need the configuration.

    Raises LaunchError: PH0711 a pinned dim, PH0712 a broken @aligned promise, PH0713 a read-only array that would be
    written, PH0714 a written tensor whose elements share memory.
    """
    errors = _Errors()
    named = {p.name: p.dims for p in params}
    reported: set[str] = set()
    for tensor in facts.tensors:
        array = call.views[tensor.name]
        for axis, (dim, extent) in enumerate(zip(tensor.dims, array.shape, strict=True)):
            if isinstance(dim, int) and extent != dim:
                declared = named[tensor.name][axis]
                label = declared if isinstance(declared, str) else None
                if label is None or label not in reported:
                    errors.add("PH0711", _pinned_text(tensor.name, axis, label, extent, dim))
                if label is not None:
                    reported.add(label)
        if tensor.written and array.readonly:
            errors.add("PH0713", f"argument {tensor.name!r} is read-only, but the kernel writes to it")
        if tensor.written and overlaps_itself(array.shape, array.strides):
            errors.add(
                "PH0714",
                f"argument {tensor.name!r} is written, but several of its elements share one place in memory "
                f"(shape {_shape(array.shape)}, strides {_shape(array.strides)})",
                "pass a contiguous copy of it",
            )
    for dim, multiple in facts.aligned:
        extent = call.dims.get(dim, 0)
        if dim in call.dims and extent % multiple:
            errors.add(
                "PH0712",
                f"the kernel promises @aligned({dim} = {multiple}), but dim {dim!r} is {extent}, not a multiple of "
                f"{multiple}",
                f"pad {dim} to {-(-extent // multiple) * multiple}, choose a tile that divides it, or drop the promise "
                "(masks then handle the rest)",
            )
    errors.check()


# --- specialization ----------------------------------------------------------------------------


def normalized_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides with those of axes of extent 1 (or of an empty array) set to their row-major value: nothing is ever
    read at another position of such an axis, so any stride serves, and this one allows the most."""
    out: list[int] = []
    step = 1
    empty = 0 in shape
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        out.append(step if extent <= 1 or empty else stride)
        step = out[-1] * max(1, extent)
    return tuple(reversed(out))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Row-major without gaps, for normalized strides."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if stride != step:
            return False
        step *= max(1, extent)
    return True


def overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements share one place in memory. Shape and strides in elements."""
    if 0 in shape:
        return False
    axes = sorted((abs(stride), extent - 1) for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    reach = 0
    for stride, steps in axes:
        if stride <= reach:
            break  # not nested: elements may meet, or lie between each other
        reach += stride * steps
    else:
        return False
    return _meets(axes, len(axes), 0, False)


def _meets(axes: list[tuple[int, int]], count: int, rest: int, moved: bool) -> bool:
    """Whether steps along the first `count` axes, at most as many as each has in either direction, add up to -rest;
    some step along some axis is taken (`moved`: one was already)."""
    if count == 0:
        return moved and rest == 0
    stride, steps = axes[count - 1]
    if stride == 0:
        return _meets(axes, count - 1, rest, True) or _meets(axes, count - 1, rest, moved)
    reach = sum(s * n for s, n in axes[: count - 1])
    # Only steps after which the smaller axes can still make up the rest.
    low = max(-steps, -((rest + reach) // stride))
    high = min(steps, (reach - rest) // stride)
    return any(_meets(axes, count - 1, rest + step * stride, moved or step != 0) for step in range(low, high + 1))


def tensor_facts(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> TensorFacts:
    """Facts of a tensor with normalized strides."""
    aligned = (
        pointer % 16 == 0
        and (not strides or strides[-1] == 1)
        and all(stride * itemsize % 16 == 0 for stride in strides[:-1])
    )
    units = [axis for axis, stride in enumerate(strides) if stride == 1]
    others = (stride for axis, stride in enumerate(strides) if axis not in units)
    inner = None
    if not aligned and len(units) == 1 and pointer % 16 == 0 and all(s * itemsize % 16 == 0 for s in others):
        inner = units[0]
    return TensorFacts(align16=aligned, contiguous=is_contiguous(shape, strides), inner=inner)


def needs_64_bits(views: Mapping[str, ArrayView]) -> bool:
    """Whether an element offset or a position can leave 32 bits."""
    for array in views.values():
        if array.size == 0:
            continue
        lo = hi = 0
        for extent, stride in zip(array.shape, array.strides, strict=True):
            if extent > _INT32_MAX - _TILE_MARGIN or abs(stride) > _INT32_MAX:
                return True
            span = (extent - 1) * stride
            lo, hi = lo + min(span, 0), hi + max(span, 0)
        if hi > _INT32_MAX or lo < -_INT32_MAX - 1:
            return True
    return False


def _blocks(facts: KernelFacts, dims: Mapping[str, int]) -> int:
    """Blocks of the grid; 0 where it cannot be computed, which the launch reports."""
    try:
        return math.prod(size.evaluate(dims) for size in facts.grid)
    except (ZeroDivisionError, KeyError):
        return 0


def overlapping(facts: KernelFacts, views: Mapping[str, ArrayView]) -> frozenset[str]:
    """Tensors that share bytes with another one where at least one of the two is written."""
    ranges = {t.name: views[t.name].byte_range(t.dtype.bytes) for t in facts.tensors}
    out: set[str] = set()
    for one in facts.tensors:
        if not one.written:
            continue
        lo, hi = ranges[one.name]
        for other in facts.tensors:
            other_lo, other_hi = ranges[other.name]
            if other is not one and lo < other_hi and other_lo < hi:
                out.update((one.name, other.name))
    return frozenset(out)


def specialize(facts: KernelFacts, call: Call, signs: Iterable[str] = ()) -> Specialization:
    """The variant that serves a call. `signs` names the scalars whose sign the compiler asked about.

    Raises LaunchError PH0723 where @options(index = 32) meets tensors that need 64 bits.
    """
    tensors = []
    for tensor in facts.tensors:
        array = call.views[tensor.name]
        strides = normalized_strides(array.shape, array.strides)
        tensors.append((tensor.name, tensor_facts(array.pointer, array.shape, strides, tensor.dtype.bytes)))
    wide = needs_64_bits(call.views) or any(
        dtype is DType.INDEX and not -_INT32_MAX <= call.scalars[name] <= _INT32_MAX for name, dtype in facts.scalars
    )
    many = _blocks(facts, call.dims) > _INT32_MAX  # they are numbered
    if (wide or many) and facts.index == "32":
        what = "these tensors need 64-bit offsets" if wide else "so many blocks need 64-bit numbers"
        raise LaunchError(
            Diagnostic(
                code="PH0723",
                message=f"{what}, but the kernel asks for @options(index = 32)",
                help="use index = auto",
            )
        )
    return Specialization(
        tensors=tuple(tensors),
        dim_multiple=known_multiples(facts.dims, call.dims, [(t.dims, f) for t, (_, f) in zip(facts.tensors, tensors)]),
        index_bits=64 if wide or many or facts.index == "64" else 32,
        overlap=overlapping(facts, call.views),
        sign=tuple((name, 1 if call.scalars[name] > 0 else 0) for name in signs),
    )
