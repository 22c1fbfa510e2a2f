"""What a caller has to know of a kernel before it is checked: parameters, dims, the search space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from phobos.diagnostics import CompileError
from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.semantic import codes
from phobos.semantic.attributes import Choice, KernelAttributes, validate
from phobos.semantic.constants import evaluate_header, file_constants
from phobos.semantic.entities import ConstVal, Poison
from phobos.semantic.report import Reporter
from phobos.semantic.resolve import check_choices
from phobos.semantic.types import dtype_of
from phobos.source import Span
from phobos.syntax import ast

# Keywords of a kernel call in Python.
FORBIDDEN_PARAMETERS = ("config", "stream", "backend", "grid")
MAX_TENSOR_RANK = 5


@dataclass(frozen=True)
class Parameter:
    """One parameter. `kind`: "tensor", "scalar", or "const" (a compile-time value, no argument of a launch).

    `dtype` is None where the dtype is the parameter named `dtype_param`. `dims` (tensors only): an int, a name, or
    the text of an expression of pinned names.
    """

    name: str
    kind: str
    dtype: DType | None
    dtype_param: str | None
    dims: tuple[int | str, ...]
    span: Span

    def dtype_text(self) -> str:
        return str(self.dtype) if self.dtype is not None else str(self.dtype_param)

    def text(self) -> str:
        """The parameter as kernel text."""
        if self.kind == "tensor":
            return f"{self.name}: tensor<{self.dtype_text()}>[{', '.join(map(str, self.dims))}]"
        return f"{'const ' if self.kind == 'const' else ''}{self.name}: {self.dtype_text()}"


@dataclass(frozen=True)
class Signature:
    """A kernel's interface.

    `space`: autotune name -> values in order. `launch_dims`: dims bound from the shapes of arguments, in order of
    appearance; a caller's configuration may pin them too. `pinned`: names that have a value at compile time
    (autotune names, const parameters, file constants). Names in `fixed` need not appear in a configuration.
    """

    name: str
    span: Span
    dtype_params: tuple[str, ...]
    params: tuple[Parameter, ...]
    space: dict[str, tuple[Choice, ...]]
    launch_dims: tuple[str, ...]
    pinned: tuple[str, ...]
    attributes: KernelAttributes = field(repr=False)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the arguments of a launch, in order."""
        return tuple(p.name for p in self.params if p.kind != "const")

    @property
    def tensors(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.params if p.kind == "tensor")

    @property
    def scalars(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.params if p.kind == "scalar")

    @property
    def consts(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.params if p.kind == "const")

    @property
    def fixed(self) -> dict[str, Choice]:
        """Autotune names with a single value."""
        return {name: values[0] for name, values in self.space.items() if len(values) == 1}

    def parameter(self, name: str) -> Parameter:
        for p in self.params:
            if p.name == name:
                return p
        raise KeyError(name)

    def configurations(self) -> Iterator[dict[str, Choice]]:
        """Every point of the space, the last name varying fastest; one empty one where nothing is tuned."""
        for values in itertools.product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))


def signatures(module: ast.Module) -> tuple[Signature, ...]:
    """The signatures of all kernels of a file. Raises CompileError with everything wrong in headers."""
    reporter = Reporter()
    out: tuple[Signature, ...] = ()
    try:
        constants = file_constants(module, reporter)
        check_file_names(module, constants, reporter)
        out = tuple(signature(kernel, constants, reporter) for kernel in module.kernels)
    except RecursionError:
        reporter.error(codes.TOO_DEEP, "the file is nested too deeply", module.source.start())
    if reporter.errors:
        raise CompileError(reporter.errors, module.source)
    return out


def check_file_names(module: ast.Module, constants: dict[str, ConstVal | Poison], reporter: Reporter) -> None:
    """Kernels and functions have names of their own; functions do not hide built-ins."""
    from phobos.semantic.catalogue import BUILTINS

    seen: dict[str, Span] = {}
    for node in [*(f.name for f in module.functions), *(k.name for k in module.kernels)]:
        if node.id in seen:
            reporter.error(
                codes.DUPLICATE_NAME, f"`{node.id}` is already declared in line {seen[node.id].line}", node.span
            )
        seen.setdefault(node.id, node.span)
    for function in module.functions:
        name = function.name
        if name.id in BUILTINS or name.id in DTYPE_BY_NAME or name.id in ("range", "grid_barrier"):
            what = "a type" if name.id in DTYPE_BY_NAME else "a built-in function"
            reporter.error(
                codes.DUPLICATE_NAME, f"`{name.id}` is the name of {what}", name.span, help="choose another name"
            )
    for const in module.constants:
        if const.name.id == "ctx":
            reporter.error(codes.FORBIDDEN_NAME, "`ctx` cannot be declared", const.name.span)


def signature(kernel: ast.Kernel, constants: dict[str, ConstVal | Poison], reporter: Reporter) -> Signature:
    """The signature of one kernel; what is wrong is reported."""
    attributes = validate(kernel, constants, reporter)
    dtype_params: list[str] = []
    for node in kernel.dtype_params:
        if node.id in dtype_params:
            reporter.error(codes.DUPLICATE_NAME, f"the type `{node.id}` is declared twice", node.span)
        elif node.id in DTYPE_BY_NAME:
            reporter.error(codes.DUPLICATE_NAME, f"`{node.id}` is a type already", node.span)
        else:
            dtype_params.append(node.id)
    compile_time = {**constants}
    for name in attributes.space:
        compile_time[name] = ConstVal(1)
    for param in kernel.params:
        if param.const:
            compile_time[param.name.id] = ConstVal(1)
    params: list[Parameter] = []
    seen: dict[str, Span] = {}
    launch_dims: list[str] = []
    for param in kernel.params:
        name = param.name.id
        if name in seen:
            reporter.error(codes.DUPLICATE_NAME, f"the parameter `{name}` is declared twice", param.name.span)
        elif name in FORBIDDEN_PARAMETERS or name == "ctx":
            reporter.error(
                codes.FORBIDDEN_NAME,
                f"a kernel parameter cannot be called `{name}`",
                param.name.span,
                notes=(f"`{name}` is a keyword of the kernel's call",) if name != "ctx" else (),
                help="choose another name",
            )
        elif name in attributes.space or name in constants:
            what = "an autotune name" if name in attributes.space else "a constant of the file"
            reporter.error(codes.DUPLICATE_NAME, f"`{name}` is {what} already", param.name.span)
        seen.setdefault(name, param.name.span)
        found = _parameter(param, dtype_params, compile_time, launch_dims, reporter)
        if found is not None:
            params.append(found)
    for p in params:
        if p.kind != "const" and p.name in launch_dims:
            reporter.error(
                codes.DUPLICATE_NAME,
                f"`{p.name}` is a parameter and a dim",
                p.span,
                help="a dim is bound from the shape of the tensor; drop the parameter",
            )
    used = tuple(dict.fromkeys(str(dim) for p in params for dim in p.dims))
    check_choices(attributes, used, compile_time.keys() - constants.keys(), constants, reporter)
    pinned = [*constants, *attributes.space, *(p.name for p in params if p.kind == "const")]
    return Signature(
        name=kernel.name.id,
        span=kernel.name.span,
        dtype_params=tuple(dtype_params),
        params=tuple(params),
        space=dict(attributes.space),
        launch_dims=tuple(launch_dims),
        pinned=tuple(dict.fromkeys(pinned)),
        attributes=attributes,
    )


def _parameter(
    param: ast.Param,
    dtype_params: list[str],
    compile_time: dict[str, ConstVal | Poison],
    launch_dims: list[str],
    reporter: Reporter,
) -> Parameter | None:
    name, type = param.name.id, param.type
    if type is None:
        reporter.error(
            codes.UNKNOWN_TYPE, f"the kernel parameter `{name}` has no type", param.span,
            help=f"`{name}: tensor<f32>[N]` or `{name}: f32`",
        )  # fmt: skip
        return None
    assert isinstance(type, (ast.ScalarTypeExpr, ast.ShapedTypeExpr))
    found = dtype_of(type.dtype, {d: DType.F32 for d in dtype_params}, reporter)
    if isinstance(found, Poison):
        return None
    dtype_param = type.dtype.id if type.dtype.id in dtype_params else None
    dtype = None if dtype_param else found
    if dtype is DType.INDEX:
        reporter.error(
            codes.UNKNOWN_TYPE, "`index` is no type of a kernel parameter", type.dtype.span, help="use `i32` or `i64`"
        )
        return None
    if isinstance(type, ast.ScalarTypeExpr):
        return Parameter(name, "const" if param.const else "scalar", dtype, dtype_param, (), param.name.span)
    if param.const:
        reporter.error(codes.UNKNOWN_TYPE, "a `const` parameter is a scalar", type.span)
        return None
    if type.kind != "tensor":
        reporter.error(
            codes.UNKNOWN_TYPE, "a kernel parameter is a tensor or a scalar, not a tile", type.span,
            help=f"`{name}: tensor<{type.dtype.id}>[...]`",
        )  # fmt: skip
        return None
    if not 1 <= len(type.shape) <= MAX_TENSOR_RANK:
        reporter.error(codes.BAD_EXTENT, f"a tensor has 1 to {MAX_TENSOR_RANK} axes, not {len(type.shape)}", type.span)
        return None
    dims: list[int | str] = []
    for node in type.shape:
        if isinstance(node, ast.Name):
            dims.append(node.id)
            if node.id not in compile_time and node.id not in launch_dims:
                launch_dims.append(node.id)
        elif isinstance(node, ast.IntLiteral):
            dims.append(node.value)
        else:
            evaluate_header(node, compile_time, reporter)
            dims.append(_text(node))
    return Parameter(name, "tensor", dtype, dtype_param, tuple(dims), param.name.span)


def _text(node: ast.Expr) -> str:
    """A dim expression as text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.IntLiteral):
        return str(node.value)
    if isinstance(node, ast.Binary):
        return f"({_text(node.left)} {node.op} {_text(node.right)})"
    if isinstance(node, ast.Unary):
        return f"{node.op}{_text(node.operand)}"
    if isinstance(node, ast.Call):
        return f"{node.function.id}({', '.join(_text(a) for a in node.args)})"
    return "?"
