"""What binding and launching need to know of a kernel: small frozen records, also kept in the disk cache as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phobos.ir.abi import (
    AbiArg,
    Decision,
    DimArg,
    Program,
    ScalarArg,
    Specialization,
    StrideArg,
    TensorArg,
    TensorFacts,
)
from phobos.ir.dims import DimBinary, DimConst, DimExpr, DimName
from phobos.ir.types import DTYPE_BY_NAME, DType

if TYPE_CHECKING:  # not needed where a compiled kernel comes from the cache
    from phobos.ir.tile import KernelIR


@dataclass(frozen=True, kw_only=True)
class ParamFact:
    """A parameter as the text declares it. `kind` is "tensor", "scalar" or "const".

    `dtype` is a dtype's name or the name of a dtype parameter (then `generic`); `dims` of a tensor: numbers or names.
    """

    name: str
    kind: str
    dtype: str
    generic: bool = False
    dims: tuple[int | str, ...] = ()

    @property
    def type_text(self) -> str:
        if self.kind == "tensor":
            return f"tensor<{self.dtype}>[{', '.join(map(str, self.dims))}]"
        return f"const {self.dtype}" if self.kind == "const" else self.dtype


@dataclass(frozen=True, kw_only=True)
class TensorFact:
    """A tensor of a configured kernel: dtype known, dims numbers where pinned."""

    name: str
    dtype: DType
    dims: tuple[int | str, ...]
    read: bool
    written: bool


@dataclass(frozen=True, kw_only=True)
class KernelFacts:
    """A configured kernel, as the launcher sees it. `dims` are the names that the launch binds; `aligned` are the
    promises (dim, multiple); `index` is the index option."""

    name: str
    tensors: tuple[TensorFact, ...]
    scalars: tuple[tuple[str, DType], ...]
    dims: tuple[str, ...]
    aligned: tuple[tuple[str, int], ...]
    grid: tuple[DimExpr, DimExpr, DimExpr]
    index: str
    configuration: tuple[tuple[str, Any], ...]

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(t.name for t in self.tensors if t.written)


def kernel_facts(kernel: KernelIR) -> KernelFacts:
    from phobos.ir.tile import Atomic, Load, Store
    from phobos.ir.walk import kernel_ops

    read: set[str] = set()
    written: set[str] = set()
    for op in kernel_ops(kernel):
        if isinstance(op, (Load, Atomic)):
            read.add(op.view.tensor.name)
        if isinstance(op, (Store, Atomic)):
            written.add(op.view.tensor.name)
    return KernelFacts(
        name=kernel.name,
        tensors=tuple(
            TensorFact(
                name=t.name, dtype=t.type.dtype, dims=t.type.dims, read=t.name in read, written=t.name in written
            )
            for t in kernel.tensors
        ),
        scalars=tuple((s.name, s.type.dtype) for s in kernel.scalars),
        dims=tuple(d.name for d in kernel.dims),
        aligned=tuple((p.dim, p.multiple) for p in kernel.aligned),
        grid=kernel.grid,
        index=str(kernel.options.index),
        configuration=tuple((name, _plain(value)) for name, value in kernel.configuration),
    )


def _plain(value: object) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


# --- JSON ------------------------------------------------------------------------------------

# Part of the cache keys: raise it when a layout below changes.
JSON_FORMAT = 2


def spec_key(spec: Specialization) -> tuple[Any, ...]:
    """A specialization as plain tuples."""
    return (
        tuple((name, t.align16, t.contiguous, t.inner) for name, t in spec.tensors),
        spec.dim_multiple,
        spec.index_bits,
        tuple(sorted(spec.overlap)),
        spec.sign,
    )


def spec_to_json(spec: Specialization) -> list[Any]:
    return list(spec_key(spec))


def spec_from_json(data: list[Any]) -> Specialization:
    tensors, dims, index_bits, overlap, sign = data
    return Specialization(
        tensors=tuple((name, TensorFacts(align16=a, contiguous=c, inner=i)) for name, a, c, i in tensors),
        dim_multiple=tuple((name, multiple) for name, multiple in dims),
        index_bits=index_bits,
        overlap=frozenset(overlap),
        sign=tuple((name, value) for name, value in sign),
    )


def dim_to_json(expr: DimExpr) -> Any:
    if isinstance(expr, DimConst):
        return expr.value
    if isinstance(expr, DimName):
        return expr.name
    return [expr.op, dim_to_json(expr.left), dim_to_json(expr.right)]


def dim_from_json(data: Any) -> DimExpr:
    if isinstance(data, int):
        return DimConst(data)
    if isinstance(data, str):
        return DimName(data)
    return DimBinary(data[0], dim_from_json(data[1]), dim_from_json(data[2]))


def _grid_from_json(data: list[Any]) -> tuple[DimExpr, DimExpr, DimExpr]:
    x, y, z = (dim_from_json(item) for item in data)
    return x, y, z


def facts_to_json(facts: KernelFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "tensors": [[t.name, t.dtype.value, list(t.dims), t.read, t.written] for t in facts.tensors],
        "scalars": [[name, dtype.value] for name, dtype in facts.scalars],
        "dims": list(facts.dims),
        "aligned": [list(p) for p in facts.aligned],
        "grid": [dim_to_json(e) for e in facts.grid],
        "index": facts.index,
        "configuration": [list(item) for item in facts.configuration],
    }


def facts_from_json(data: dict[str, Any]) -> KernelFacts:
    return KernelFacts(
        name=data["name"],
        tensors=tuple(
            TensorFact(name=n, dtype=DTYPE_BY_NAME[d], dims=tuple(dims), read=r, written=w)
            for n, d, dims, r, w in data["tensors"]
        ),
        scalars=tuple((name, DTYPE_BY_NAME[dtype]) for name, dtype in data["scalars"]),
        dims=tuple(data["dims"]),
        aligned=tuple((dim, multiple) for dim, multiple in data["aligned"]),
        grid=_grid_from_json(data["grid"]),
        index=data["index"],
        configuration=tuple((name, value) for name, value in data["configuration"]),
    )


def param_to_json(param: ParamFact) -> list[Any]:
    return [param.name, param.kind, param.dtype, param.generic, list(param.dims)]


def param_from_json(data: list[Any]) -> ParamFact:
    name, kind, dtype, generic, dims = data
    return ParamFact(name=name, kind=kind, dtype=dtype, generic=generic, dims=tuple(dims))


def _arg_to_json(arg: AbiArg) -> list[Any]:
    if isinstance(arg, TensorArg):
        return ["tensor", arg.name, arg.dtype.value, arg.read, arg.written]
    if isinstance(arg, ScalarArg):
        return ["scalar", arg.name, arg.dtype.value]
    if isinstance(arg, DimArg):
        return ["dim", arg.name]
    return ["stride", arg.tensor, arg.axis]


def _arg_from_json(data: list[Any]) -> AbiArg:
    kind, *rest = data
    if kind == "tensor":
        return TensorArg(name=rest[0], dtype=DTYPE_BY_NAME[rest[1]], read=rest[2], written=rest[3])
    if kind == "scalar":
        return ScalarArg(name=rest[0], dtype=DTYPE_BY_NAME[rest[1]])
    if kind == "dim":
        return DimArg(name=rest[0])
    return StrideArg(tensor=rest[0], axis=rest[1])


_PROGRAM_FIELDS = (
    "name", "source_name", "body", "prelude", "threads", "shared_bytes", "dynamic_shared", "index_bits", "granule",
    "min_blocks", "max_regs", "fast_math", "debug",
)  # fmt: skip


def program_to_json(program: Program) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(program, name) for name in _PROGRAM_FIELDS}
    data["args"] = [_arg_to_json(a) for a in program.args]
    data["grid"] = [dim_to_json(e) for e in program.grid]
    data["decisions"] = [d.to_json() for d in program.decisions]
    return data


def program_from_json(data: dict[str, Any]) -> Program:
    return Program(
        **{name: data[name] for name in _PROGRAM_FIELDS},
        args=tuple(_arg_from_json(a) for a in data["args"]),
        grid=_grid_from_json(data["grid"]),
        decisions=tuple(decision_from_json(d) for d in data["decisions"]),
    )


def decision_from_json(data: dict[str, Any]) -> Decision:
    rejected = tuple((r["choice"], r["reason"]) for r in data["rejected"])
    return Decision(**{**data, "rejected": rejected})
