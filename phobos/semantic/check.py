"""Entry of the checker: AST + configuration -> typed tile IR."""

from __future__ import annotations

import numbers as numbers_abc
from collections.abc import Callable, Mapping

from phobos.diagnostics import CompileError, Diagnostic, nearest
from phobos.ir.exact import among
from phobos.ir.options import LaunchOptions, ScheduleOptions
from phobos.ir.tile import Block, DimParam, KernelIR, Return, ScalarParam, TensorParam, Value
from phobos.ir.types import DTYPE_BY_NAME, DType, ScalarType, TensorType
from phobos.semantic import catalogue, codes, expressions, grid, lint, resolve, statements
from phobos.semantic.attributes import Choice, choice_text
from phobos.semantic.constants import FoldError, convert_implicit, evaluate_header, file_constants
from phobos.semantic.context import MAX_OPS, BlockBuilder, Context, TooLarge
from phobos.semantic.entities import POISON, Binding, ConstVal, Poison, TensorRef
from phobos.semantic.limits import check_tile_sizes
from phobos.semantic.masks import MaskTable
from phobos.semantic.report import Reporter
from phobos.semantic.scope import Scope
from phobos.semantic.signature import Signature, check_file_names, signature
from phobos.syntax import ast

_ = catalogue.BUILTINS  # the import registers the built-ins


def check_kernel(
    module: ast.Module,
    name: str,
    config: Mapping[str, Choice] | None = None,
    dtypes: Mapping[str, DType | str] | None = None,
    consts: Mapping[str, Choice] | None = None,
    *,
    strict_space: bool = True,
    warnings: list[Diagnostic] | None = None,
) -> KernelIR:
    """The typed IR of kernel `name` under a configuration.

    `config`: autotune names (those with one value may be absent) and dims to pin. `dtypes`: dtype parameters.
    `consts`: `const` parameters. With `strict_space=False` a value outside of the @autotune set is allowed.
    Warnings are appended to `warnings`. Raises CompileError with every error found.
    """
    kernel, found = check_kernel_with_warnings(module, name, config, dtypes, consts, strict_space=strict_space)
    if warnings is not None:
        warnings.extend(found)
    return kernel


def check_kernel_with_warnings(
    module: ast.Module,
    name: str,
    config: Mapping[str, Choice] | None = None,
    dtypes: Mapping[str, DType | str] | None = None,
    consts: Mapping[str, Choice] | None = None,
    *,
    strict_space: bool = True,
    observe: Callable[[Context, ast.Stmt, int], None] | None = None,
) -> tuple[KernelIR, tuple[Diagnostic, ...]]:
    """As `check_kernel`, with the warnings. `observe`: see Context."""
    reporter = Reporter()
    kernel = next((k for k in module.kernels if k.name.id == name), None)
    if kernel is None:
        close = nearest(name, [k.name.id for k in module.kernels])
        known = ", ".join(f"`{k.name.id}`" for k in module.kernels) or "no kernel"
        raise CompileError(
            Diagnostic(
                code=codes.UNKNOWN_KERNEL,
                message=f"{module.source.name} has no kernel `{name}`",
                notes=(f"it has {known}",),
                help=f"did you mean `{close}`?" if close else None,
            ),
            module.source,
        )
    try:
        ir = _check(
            module, kernel, dict(config or {}), dict(dtypes or {}), dict(consts or {}), strict_space, reporter, observe
        )  # fmt: skip
        reporter.warnings.extend(lint.kernel_warnings(kernel))
    except RecursionError:
        ir = None
        reporter.error(codes.TOO_DEEP, "the kernel is nested too deeply", kernel.name.span)
    except TooLarge:
        ir = None
        reporter.error(
            codes.TOO_DEEP, f"the kernel has more than {MAX_OPS} operations once its functions are inlined",
            kernel.name.span,
        )  # fmt: skip
    if reporter.errors or ir is None:
        raise CompileError(reporter.errors or [_unexplained(kernel)], module.source)
    return ir, tuple(reporter.warnings)


def _unexplained(kernel: ast.Kernel) -> Diagnostic:
    return Diagnostic(
        code=codes.INTERNAL,
        message=f"the checker rejects `{kernel.name.id}` without a reason: a bug of Phobos",
        span=kernel.name.span,
    )


def _check(
    module: ast.Module,
    kernel: ast.Kernel,
    config: dict[str, Choice],
    dtypes: dict[str, DType | str],
    consts: dict[str, Choice],
    strict: bool,
    reporter: Reporter,
    observe: Callable[[Context, ast.Stmt, int], None] | None = None,
) -> KernelIR | None:
    constants = file_constants(module, reporter)
    check_file_names(module, constants, reporter)
    sig = signature(kernel, constants, reporter)
    # A wrong header does not hide the errors of the body: what it fails to give is poison there.
    types = _dtypes(sig, dtypes, reporter)
    if len(types) < len(sig.dtype_params):
        return None
    pinned, words, dim_values = _configuration(sig, config, strict, reporter)
    pinned.update(_consts(sig, types, consts, reporter))
    names: dict[str, ConstVal | Poison] = {**constants, **pinned}
    file_scope = Scope(None)
    for const in module.constants:
        binding = Binding(
            name=const.name.id, kind="file constant", entity=constants[const.name.id], span=const.name.span
        )
        file_scope.names.setdefault(const.name.id, binding)
    masks = MaskTable(reporter)
    scope = Scope(file_scope)
    c = Context(
        module=module, reporter=reporter, dtypes=types, file_scope=file_scope, scope=scope, builder=BlockBuilder(),
        masks=masks, tensorcore=sig.attributes.tensorcore, evaluate_node=expressions.evaluate,
        run_block=statements.run, observe=observe,
    )  # fmt: skip
    tensors, scalars, dims, dim_names = _parameters(c, kernel, sig, names, words, dim_values)
    launch = resolve.resolve_launch(sig.attributes, names, reporter)
    options = resolve.resolve_options(sig.attributes, names, words, reporter)
    aligned = resolve.resolve_aligned(sig.attributes, dim_names, names, reporter)
    for promise in aligned:
        c.promised[promise.dim] = promise.multiple
        if promise.dim in c.dims:
            c.affine.set_divisor(c.dims[promise.dim], promise.multiple)
    _bind_names(c, sig, pinned, words, dim_names)
    with c.nested_scope():
        if not c.run(kernel.body):
            c.emit(Return(span=kernel.name.span))
    # The grid can be told only where all slices are understood.
    size: grid.Grid | None = None
    if sig.attributes.grid is not None:
        size = grid.explicit(sig.attributes.grid, dim_names, names, reporter)
        if sig.attributes.grid:
            grid.check_axes(c, len(sig.attributes.grid), sig.attributes.grid[-1].span)
    elif not reporter.errors:
        size = grid.infer(c, kernel, names)
    if reporter.errors or size is None:
        return None
    names.update({name: ConstVal(value) for name, value in dim_values.items()})
    ir = _kernel_ir(c, kernel, sig, tensors, scalars, dims, size, launch, options, aligned, names, words, types)
    check_tile_sizes(ir, reporter)
    return None if reporter.errors else ir


def _kernel_ir(
    c: Context,
    kernel: ast.Kernel,
    sig: Signature,
    tensors: tuple[TensorParam, ...],
    scalars: tuple[ScalarParam, ...],
    dims: tuple[DimParam, ...],
    size: grid.Grid,
    launch: LaunchOptions,
    options: ScheduleOptions,
    aligned: tuple,
    names: Mapping[str, ConstVal | Poison],
    words: Mapping[str, Choice],
    types: Mapping[str, DType],
) -> KernelIR:
    configuration: list[tuple[str, object]] = [(name, str(dtype)) for name, dtype in types.items()]
    for name, value in {**names, **words}.items():
        is_file_constant = any(const.name.id == name for const in c.module.constants)
        if not is_file_constant:
            configuration.append((name, value.value if isinstance(value, ConstVal) else value))
    return KernelIR(
        name=kernel.name.id,
        span=kernel.name.span,
        order=sig.order,
        tensors=tensors,
        scalars=scalars,
        dims=dims,
        body=Block(ops=(*c.entry, *c.builder.ops)),
        grid=size,
        aligned=aligned,
        launch=launch,
        options=options,
        tensorcore=sig.attributes.tensorcore,
        dynshared=sig.attributes.dynshared,
        configuration=tuple(configuration),
    )


# --- the caller's choices ----------------------------------------------------------------------


def _dtypes(sig: Signature, given: dict[str, DType | str], reporter: Reporter) -> dict[str, DType]:
    out: dict[str, DType] = {}
    for name, value in given.items():
        if name not in sig.dtype_params:
            close = nearest(name, sig.dtype_params)
            reporter.error(
                codes.DTYPE_ARGUMENT,
                f"`{sig.name}` has no dtype parameter `{name}`",
                sig.span,
                help=f"did you mean `{close}`?" if close else None,
            )
            continue
        dtype = value if isinstance(value, DType) else DTYPE_BY_NAME.get(str(value))
        if dtype is None or dtype is DType.INDEX:
            close = nearest(str(value), DTYPE_BY_NAME)
            reporter.error(
                codes.DTYPE_ARGUMENT,
                f"`{value}` is no element type for `{name}`",
                sig.span,
                help=f"did you mean `{close}`?" if close else None,
            )
        else:
            out[name] = dtype
    for name in sig.dtype_params:
        if name not in given:
            reporter.error(
                codes.DTYPE_ARGUMENT, f"the dtype parameter `{name}` of `{sig.name}` has no value", sig.span,
                help=f"give one: `--dtype {name}=f16`, in Python `dtypes={{'{name}': 'f16'}}`",
            )  # fmt: skip
    return out


def _configuration(
    sig: Signature, config: dict[str, Choice], strict: bool, reporter: Reporter
) -> tuple[dict[str, ConstVal | Poison], dict[str, Choice], dict[str, int]]:
    """Autotune numbers, autotune words, pinned dims."""
    numbers: dict[str, ConstVal | Poison] = {}
    words: dict[str, Choice] = {}
    dims: dict[str, int] = {}
    for name, value in config.items():
        if name in sig.space:
            continue
        if name in sig.launch_dims and isinstance(value, numbers_abc.Integral) and value is not True and value > 0:
            dims[name] = int(value)
        elif name in sig.launch_dims:
            reporter.error(codes.CONFIG_VALUE, f"the dim `{name}` is a positive integer, not {value!r}", sig.span)
        else:
            close = nearest(name, [*sig.space, *sig.launch_dims])
            known = ", ".join(f"`{n}`" for n in sig.space) or "none"
            reporter.error(
                codes.CONFIG_UNKNOWN,
                f"`{name}` is no autotune name of `{sig.name}`",
                sig.span,
                notes=(f"its autotune names: {known}",),
                help=f"did you mean `{close}`?" if close else None,
            )
    for name, values in sig.space.items():
        span = sig.attributes.space_spans[name]
        listed = "{" + ", ".join(choice_text(v) for v in values) + "}"
        if name not in config and len(values) > 1:
            reporter.error(
                codes.CONFIG_MISSING, f"`{name}` has no value: `{name} in {listed}`", span,
                help=f"give one: `{name}={choice_text(values[0])}`",
            )  # fmt: skip
            numbers[name] = POISON
            continue
        value = config.get(name, values[0])
        if isinstance(value, numbers_abc.Integral) and not isinstance(value, bool):
            value = int(value)  # a NumPy integer
        elif isinstance(value, float):
            value = float(value)  # a NumPy float64
        if not isinstance(value, (bool, int, float, str)):
            numbers[name] = POISON
            reporter.error(codes.CONFIG_VALUE, f"`{name}` cannot be {value!r}: `{name} in {listed}`", span)
            continue
        if strict and not among(value, values):
            numbers[name] = POISON
            # A word where there is none may look like a number.
            word = isinstance(value, str) and not any(isinstance(v, str) for v in values)
            text = repr(value) if word else choice_text(value)
            reporter.error(codes.CONFIG_VALUE, f"`{name}` cannot be {text}: `{name} in {listed}`", span)
            continue
        if isinstance(value, str):
            words[name] = value
        elif isinstance(value, bool):
            numbers[name] = ConstVal(value, DType.BOOL)
        else:
            numbers[name] = ConstVal(value)
    return numbers, words, dims


def _consts(
    sig: Signature, types: Mapping[str, DType], given: dict[str, Choice], reporter: Reporter
) -> dict[str, ConstVal | Poison]:
    out: dict[str, ConstVal | Poison] = {}
    known = [p.name for p in sig.consts]
    for name in given:
        if name not in known:
            close = nearest(name, known)
            reporter.error(
                codes.CONST_ARGUMENT,
                f"`{sig.name}` has no `const` parameter `{name}`",
                sig.span,
                help=f"did you mean `{close}`?" if close else None,
            )
    for param in sig.consts:
        out[param.name] = POISON
        dtype = param.dtype if param.dtype is not None else types.get(str(param.dtype_param))
        if param.name not in given:
            some = "true" if dtype is DType.BOOL else "1"
            reporter.error(
                codes.CONST_ARGUMENT, f"the compile-time parameter `{param.name}` has no value", param.span,
                help=f"give one: `--set {param.name}={some}`, in Python `{param.name}={some.capitalize()}`",
            )  # fmt: skip
            continue
        value = given[param.name]
        if dtype is None:
            continue
        is_bool = isinstance(value, bool)
        if not isinstance(value, (int, float)) or is_bool != (dtype is DType.BOOL):
            reporter.error(codes.CONST_ARGUMENT, f"`{param.name}` is a `{dtype}`, not {value!r}", param.span)
            continue
        try:
            out[param.name] = convert_implicit(ConstVal(value, DType.BOOL if is_bool else None), dtype)
        except FoldError as error:
            reporter.error(codes.CONST_ARGUMENT, f"`{param.name}`: {error}", param.span)
    return out


# --- parameters and names ----------------------------------------------------------------------


def _parameters(
    c: Context,
    kernel: ast.Kernel,
    sig: Signature,
    names: Mapping[str, ConstVal | Poison],
    words: Mapping[str, Choice],
    dim_values: Mapping[str, int],
) -> tuple[tuple[TensorParam, ...], tuple[ScalarParam, ...], tuple[DimParam, ...], dict[str, int | str]]:
    """IR parameters, and every name used as a dim with its pinned value or itself."""
    tensors: list[TensorParam] = []
    scalars: list[ScalarParam] = []
    dims: list[DimParam] = []
    dim_names: dict[str, int | str] = {}
    nodes = {p.name.id: p for p in kernel.params}
    for name, node in nodes.items():
        c.scope.names[name] = Binding(name=name, kind="parameter", entity=POISON, span=node.name.span)
    for name in sig.launch_dims:
        if name in dim_values:
            dim_names[name] = dim_values[name]
    for param in sig.params:
        dtype = param.dtype if param.dtype is not None else c.dtypes[str(param.dtype_param)]
        if param.kind == "const":
            continue
        if param.kind == "scalar":
            value = Value(type=ScalarType(dtype), name=param.name, span=param.span)
            c.named.add(value)
            scalars.append(ScalarParam(name=param.name, value=value))
            binding = Binding(name=param.name, kind="scalar parameter", entity=value, span=param.span)
            c.scope.names[param.name] = binding
            continue
        type = nodes[param.name].type
        if not isinstance(type, ast.ShapedTypeExpr):
            continue  # one of two parameters of that name
        shape: list[int | str] = []
        broken = False
        for expr in type.shape:
            dim = _dim(c, expr, names, words, dim_names)
            if dim is None:
                broken = True
                continue
            shape.append(dim)
            if isinstance(dim, str) and dim not in c.dims:
                value = Value(type=ScalarType(DType.INDEX), name=dim, span=expr.span)
                c.named.add(value)
                c.dims[dim] = value
                dims.append(DimParam(name=dim, value=value))
        if broken:
            continue
        tensor = TensorParam(name=param.name, type=TensorType(dtype, tuple(shape)), span=param.span)
        tensors.append(tensor)
        c.scope.names[param.name] = Binding(name=param.name, kind="tensor", entity=TensorRef(tensor), span=param.span)
    return tuple(tensors), tuple(scalars), tuple(dims), dim_names


def _dim(
    c: Context,
    node: ast.Expr,
    names: Mapping[str, ConstVal | Poison],
    words: Mapping[str, Choice],
    dim_names: dict[str, int | str],
) -> int | str | None:
    """One dim: an int where it is pinned, else its name; None after an error."""
    if isinstance(node, ast.Name) and node.id in words:
        c.error(codes.BAD_EXTENT, f"a dim is a positive integer, and `{node.id}` stands for an option word", node.span)
        return None
    if isinstance(node, ast.Name) and node.id not in names:
        return dim_names.setdefault(node.id, node.id)
    found = evaluate_header(node, names, c.reporter)
    if isinstance(found, Poison):
        return None
    if not found.is_int or found.dtype is DType.BOOL or int(found.value) < 1:
        c.error(codes.BAD_EXTENT, f"a dim is a positive integer, not {choice_text(found.value)}", node.span)
        return None
    if isinstance(node, ast.Name):
        dim_names[node.id] = int(found.value)
    return int(found.value)


def _bind_names(
    c: Context,
    sig: Signature,
    pinned: Mapping[str, ConstVal | Poison],
    words: Mapping[str, Choice],
    dim_names: Mapping[str, int | str],
) -> None:
    """Compile-time names and dims into the kernel's scope."""
    consts = {p.name: p.span for p in sig.consts}
    for name, value in pinned.items():
        kind = "const parameter" if name in consts else "autotune name"
        span = consts.get(name) or sig.attributes.space_spans.get(name)
        c.scope.names[name] = Binding(name=name, kind=kind, entity=value, span=span)
    for name in words:
        span = sig.attributes.space_spans[name]
        c.scope.names[name] = Binding(name=name, kind="autotune word", entity=POISON, span=span)
    for name, dim in dim_names.items():
        if name not in c.scope.names and c.file_scope.find(name) is None:
            entity = ConstVal(dim) if isinstance(dim, int) else c.dims[dim]
            c.scope.names[name] = Binding(name=name, kind="dim", entity=entity, span=None)


def check_module(module: ast.Module) -> tuple[Diagnostic, ...]:
    """All errors and warnings of a file: see `phobos.semantic.module.check_module`."""
    from phobos.semantic.module import check_module as check

    return check(module)
