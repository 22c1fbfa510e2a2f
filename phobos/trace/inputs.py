"""A small run of a kernel, where the caller leaves sizes and arguments open: tiles as small as they come, two blocks
along the grid, three turns of each loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos.diagnostics import CompileError, Diagnostic, LaunchError
from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimConst, DimExpr, DimName
from phobos.ir.exact import among
from phobos.ir.types import DType
from phobos.ir.walk import definitions, kernel_ops, views, walk
from phobos.reference.numerics import storage_dtype, to_storage
from phobos.runtime.pipeline import Frontend, KernelInfo, Request
from phobos.runtime.request import check_scalar_names, config_items, parse_dtypes

_MOST_TRIED = 60  # configurations
_MOST_BLOCKS = 4
_GRID, _TURNS, _GATHERED = 2, 3, 16


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A complete configuration of the kernel, and what was not given but chosen here."""

    request: Request
    kernel: ir.KernelIR
    reason: str


def choose(
    frontend: Frontend,
    info: KernelInfo,
    config: Mapping[str, Any],
    dtypes: Mapping[str, Any],
    consts: Mapping[str, Any],
    dims: Mapping[str, int],
    compiles: Any,
) -> Chosen:
    """The configuration with the smallest tiles that compiles; `compiles(kernel)` raises CompileError if one does
    not."""
    bound = {t: dtypes.get(t, "f32") for t in info.dtype_params} | dict(dtypes)
    given = dict(config)
    for name, allowed in info.space:
        if name in dims and among(dims[name], allowed):
            given.setdefault(name, dims[name])
    constants = {n: given.pop(n) for n in info.consts if n in given} | dict(consts)
    for p in info.params:
        if p.kind == "const" and p.name not in constants:
            constants[p.name] = True if p.dtype == "bool" else 8
    open_names = [n for n, allowed in info.space if n not in given and len(allowed) > 1]
    first: CompileError | None = None
    for values in itertools.islice(_candidates(info, open_names), _MOST_TRIED):
        request = Request(
            kernel=info.name, config=config_items({**given, **values}), dtypes=parse_dtypes(info, bound),
            consts=config_items(constants),
        )  # fmt: skip
        try:
            kernel = frontend.ir(request)
            compiles(kernel)
        except CompileError as e:
            first = first or e
            continue
        return Chosen(request=request, kernel=kernel, reason="the smallest tiles that compile" if open_names else "")
    assert first is not None
    raise first


def _candidates(info: KernelInfo, names: list[str]) -> Iterator[dict[str, Any]]:
    """Configurations of these names, from the smallest tiles on; words in the order of the text."""
    space = dict(info.space)
    choices = [[(i, v) for i, v in enumerate(sorted(space[n], key=_size))] for n in names]
    for pick in sorted(itertools.product(*choices), key=lambda p: sum(i for i, _ in p)):
        yield {n: v for n, (_, v) in zip(names, pick)}


def _size(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


# --- extents ---------------------------------------------------------------------------------


def extents(kernel: ir.KernelIR, given: Mapping[str, int]) -> dict[str, int]:
    """An extent for each dim; `given` names dims of the kernel. Raises LaunchError PH1010 for one that the
    configuration fixes at another extent."""
    names = list(dict.fromkeys(d for t in kernel.tensors for d in t.type.dims if isinstance(d, str)))
    pinned = dict(kernel.configuration)
    for name, value in given.items():
        if pinned.get(name, value) != value:
            message = f"dim {name!r} is fixed at {pinned[name]} here, not {value}"
            raise LaunchError(Diagnostic(code="PH1010", message=message))
    blocks = _grid_tiles(kernel)
    use = _uses(kernel)
    out: dict[str, int] = {}
    single: list[str] = []  # dims that only count blocks
    for name in names:
        length, looped, gathered, at = use.get(name, (0, False, False, False))
        in_grid = name in blocks
        tile = blocks.get(name, 0) if length else 0
        tile = tile if tile > 1 else length
        if tile:
            out[name] = tile * (_GRID if in_grid else _TURNS if looped else 1)
        elif gathered:
            out[name] = _GATHERED
        elif at:
            out[name] = _GRID if in_grid else _TURNS if looped else 1
            if in_grid:
                single.append(name)
        else:
            out[name] = _GRID
    out.update({n: v for n, v in given.items() if n in out})
    for name in reversed(single):
        if name not in given and math.prod(g.evaluate(out) for g in kernel.grid) > _MOST_BLOCKS:
            out[name] = 1
    return out


def _grid_tiles(kernel: ir.KernelIR) -> dict[str, int]:
    """Dims in the grid, with the extent that a block takes of each (1 where it is not divided)."""
    out: dict[str, int] = {}

    def visit(e: DimExpr) -> None:
        if isinstance(e, DimName):
            out.setdefault(e.name, 1)
        elif isinstance(e, DimBinary):
            if e.op in ("ceildiv", "//") and isinstance(e.left, DimName) and isinstance(e.right, DimConst):
                out[e.left.name] = e.right.value
                return
            visit(e.left)
            visit(e.right)

    for e in kernel.grid:
        visit(e)
    return out


def _uses(kernel: ir.KernelIR) -> dict[str, tuple[int, bool, bool, bool]]:
    """For each dim: longest range along it, whether a loop moves along it, whether it is gathered, indexed singly."""
    defs = definitions(kernel.body)
    moving = {op.body.params[0] for op in walk(kernel.body) if isinstance(op, ir.For)}

    def moves(value: ir.Value, seen: set[ir.Value]) -> bool:
        if value in moving:
            return True
        if value in seen:
            return False
        seen.add(value)
        op = defs.get(value)
        return op is not None and any(moves(v, seen) for v in op.operands())

    out: dict[str, tuple[int, bool, bool, bool]] = {}
    for op in kernel_ops(kernel):
        for view in views(op):
            for axis, dim in zip(view.axes, view.tensor.type.dims):
                if not isinstance(dim, str):
                    continue
                length, looped, gathered, at = out.get(dim, (0, False, False, False))
                if isinstance(axis, ir.AxisRange):
                    length, looped = max(length, axis.length), looped or moves(axis.start, set())
                elif isinstance(axis, ir.AxisGather):
                    gathered = True
                else:
                    at, looped = True, looped or moves(axis.index, set())
                out[dim] = (length, looped, gathered, at)
    return out


# --- arguments ---------------------------------------------------------------------------------


def arguments(
    kernel: ir.KernelIR, dims: Mapping[str, int], scalars: Mapping[str, Any], read: frozenset[str], seed: int
) -> dict[str, Any]:
    """Arrays in storage dtypes and scalars. What the kernel only writes is NaN (0 for integers); other floats are
    normal, a vector of integers holds distinct positions, other integers are small. A scalar that is not given is 0.5,
    an integer 1, a bool true.

    Raises LaunchError PH1012 for scalars that the kernel has not.
    """
    check_scalar_names(kernel.name, [s.name for s in kernel.scalars], scalars)
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for t in kernel.tensors:
        shape = tuple(d if isinstance(d, int) else dims[d] for d in t.type.dims)
        if math.prod(shape) > 1 << 24:
            raise LaunchError(
                Diagnostic(
                    code="PH1020",
                    message=f"tensor {t.name!r} has {math.prod(shape)} elements, too many to look at",
                    help="choose smaller dims",
                )
            )
        out[t.name] = _random(t.type.dtype, shape, rng) if t.name in read else _unwritten(t.type.dtype, shape)
    for s in kernel.scalars:
        default: Any = 0.5 if s.type.dtype.is_float else True if s.type.dtype is DType.BOOL else 1
        out[s.name] = scalars.get(s.name, default)
    return out


def _random(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    storage = storage_dtype(dtype)
    if dtype.is_float:
        return np.asarray(to_storage(rng.standard_normal(shape).astype(np.float32), dtype, storage))
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(storage)
    if len(shape) == 1:
        return (rng.permutation(shape[0]) % (np.iinfo(storage).max + 1)).astype(storage)
    return rng.integers(-8 if dtype.is_signed else 0, 8, shape).astype(storage)


def _unwritten(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    fill = np.full(shape, np.nan if dtype.is_float else 0, dtype=np.float32)
    return np.asarray(to_storage(fill, dtype, storage_dtype(dtype)))
