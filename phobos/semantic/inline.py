"""Functions of the file are inlined at each call; their generic parameters take what they are given."""

from __future__ import annotations

from phobos.ir.tile import Block, If, Value, Yield
from phobos.ir.types import ScalarType, TileType
from phobos.semantic import codes, control, emit, expressions
from phobos.semantic.context import Context
from phobos.semantic.entities import (
    POISON,
    Binding,
    ConstVal,
    Entity,
    Nothing,
    Poison,
    Poly,
    TensorRef,
    Text,
    type_text,
)
from phobos.semantic.scope import Scope
from phobos.semantic.types import dtype_of, value_type
from phobos.source import Span
from phobos.syntax import ast

MAX_DEPTH = 64


def call(c: Context, node: ast.Call, function: ast.Function) -> Entity:
    """The value of `function(args)`, with its body checked in place."""
    args: list[Entity] = [c.evaluate(a) for a in node.args]
    return _inline(c, node, function, args, [a.span for a in node.args])


def combine(c: Context, node: ast.Call, function: ast.Function, params: tuple[Value, ...]) -> Block | Poison:
    """The combining block of `reduce`: `function` on two scalars."""
    with c.block(isolated=True) as builder:
        before = c.effects
        entity = _inline(c, node, function, list(params), [node.span, node.span])
        if isinstance(entity, Poison):
            return entity
        operand = emit.read(c, entity, node.span)
        value = emit.to_value(c, emit.convert(c, operand, params[0].dtype, node.span), node.span)
        if isinstance(value, Poison):
            return value
        if value.is_tile:
            return c.error(codes.BAD_FUNCTION, f"`{function.name.id}` combines two scalars to a scalar", node.span)
        if c.effects != before:
            return c.error(codes.BAD_FUNCTION, f"`{function.name.id}` has effects and cannot reduce", node.span)
        c.emit(Yield(values=(value,), span=node.span))
        return builder.finish(params)


def _inline(c: Context, node: ast.Call, function: ast.Function, args: list[Entity], spans: list[Span]) -> Entity:
    name = function.name.id
    if name in c.calls:
        cycle = " -> ".join(f"`{f}`" for f in [*c.calls[c.calls.index(name) :], name])
        return c.error(
            codes.RECURSION,
            f"a function cannot call itself: {cycle}",
            node.span,
            notes=("functions are inlined, so that a recursion would not end",),
            help="write a loop",
        )
    if len(c.calls) >= MAX_DEPTH:
        return c.error(codes.TOO_DEEP, f"calls are nested more than {MAX_DEPTH} deep", node.span)
    if len(args) != len(function.params):
        wanted = ", ".join(p.name.id for p in function.params)
        count = len(function.params)
        return c.error(
            codes.ARGUMENT_COUNT,
            f"`{name}` takes {count} argument{'' if count == 1 else 's'}, not {len(args)}",
            node.span,
            help=f"`{name}({wanted})`",
        )
    c.count()
    scope = Scope(c.file_scope)
    outer_loop, outer_statement = c.loop, c.statement
    c.loop, c.statement = None, None
    c.calls.append(name)
    try:
        with c.nested_scope(scope):
            if not _bind(c, function, args, spans):
                return POISON
            entity = _body(c, ((Scope(scope), function.body),), function)
            if function.returns is not None and not isinstance(entity, Poison):
                entity = _returned(c, function, entity)
            return entity
    finally:
        c.calls.pop()
        c.loop, c.statement = outer_loop, outer_statement


# --- parameters ------------------------------------------------------------------------------


def _bind(c: Context, function: ast.Function, args: list[Entity], spans: list[Span]) -> bool:
    """Binds parameters to arguments in the current scope; False where one is wrong."""
    good = True
    for param, arg, span in zip(function.params, args, spans, strict=True):
        name = param.name.id
        if name in c.scope.names and c.scope.names[name].span is not None:
            c.error(codes.DUPLICATE_NAME, f"the parameter `{name}` is declared twice", param.name.span)
            good = False
            continue
        entity = _argument(c, function, param, arg, span)
        good = good and not isinstance(entity, Poison)
        c.scope.names[name] = Binding(name=name, kind="parameter", entity=entity, span=param.name.span)
    return good


def _argument(c: Context, function: ast.Function, param: ast.Param, arg: Entity, span: Span) -> Entity:
    what = f" as the argument `{param.name.id}` of `{function.name.id}`"
    if isinstance(arg, Poison):
        return arg
    if param.const:
        if not isinstance(arg, ConstVal):
            return c.error(codes.NOT_CONSTANT, f"{type_text(arg)} is not a compile-time value{what}", span)
    if param.type is None:
        if isinstance(arg, (Text, Nothing)):
            return emit.read(c, arg, span)
        if isinstance(arg, Poly) and arg.known:
            return emit.materialize(c, arg, span)
        return arg
    if isinstance(param.type, ast.ShapedTypeExpr) and param.type.kind == "tensor":
        return _tensor_argument(c, param.type, arg, span, what)
    operand = emit.read(c, arg, span)
    if isinstance(operand, Poison):
        return operand
    if isinstance(param.type, ast.ShapedTypeExpr) and isinstance(operand, Value):
        _bind_extents(c, param.type, operand)
    type = value_type(c, param.type)
    if isinstance(type, Poison):
        return type
    if isinstance(operand, Poly):
        operand = emit.materialize(c, operand, span, shape=type.shape if isinstance(type, TileType) else None)
    operand = emit.convert(c, operand, type.dtype, span, what=what)
    if isinstance(operand, Poison) or (isinstance(operand, ConstVal) and isinstance(type, ScalarType)):
        return operand
    shape = operand.shape if isinstance(operand, Value) else ()
    if shape != (type.shape if isinstance(type, TileType) else ()):
        return c.error(codes.SHAPE_MISMATCH, f"expected {type}, found {type_text(operand)}{what}", span)
    return operand


def _bind_extents(c: Context, type: ast.ShapedTypeExpr, value: Value) -> None:
    """A name in the shape of a parameter that is not known yet is the extent of the argument there."""
    if len(type.shape) != len(value.shape):
        return
    for node, extent in zip(type.shape, value.shape, strict=True):
        if isinstance(node, ast.Name) and c.scope.find(node.id) is None:
            binding = Binding(name=node.id, kind="extent", entity=ConstVal(extent), span=None)
            c.scope.names[node.id] = binding


def _tensor_argument(c: Context, type: ast.ShapedTypeExpr, arg: Entity, span: Span, what: str) -> Entity:
    """A tensor handed on to a function, whose parameter may write its type."""
    if not isinstance(arg, TensorRef):
        return c.error(codes.WRONG_OPERAND, f"expected a tensor, found {type_text(arg)}{what}", span)
    dtype = dtype_of(type.dtype, c.dtypes, c.reporter)
    if isinstance(dtype, Poison):
        return dtype
    have = arg.param.type
    if dtype is not have.dtype or len(type.shape) != have.rank:
        return c.error(
            codes.WRONG_OPERAND, f"expected a tensor of `{dtype}` with {len(type.shape)} axes, found {have}{what}", span
        )
    for node, dim in zip(type.shape, have.dims, strict=True):
        if isinstance(node, ast.Name) and c.scope.find(node.id) is None:
            entity: Entity = ConstVal(dim) if isinstance(dim, int) else c.dims[dim]
            c.scope.names[node.id] = Binding(name=node.id, kind="dim", entity=entity, span=None)
    return arg


# --- bodies ----------------------------------------------------------------------------------


def _returns(statements: tuple[ast.Stmt, ...]) -> bool:
    """Whether a `return` stands anywhere in the statements."""
    for node in statements:
        if isinstance(node, ast.Return):
            return True
        if isinstance(node, ast.If) and (_returns(node.then) or _returns(node.orelse)):
            return True
        if isinstance(node, (ast.For, ast.While)) and _returns(node.body):
            return True
    return False


Frames = tuple[tuple[Scope, tuple[ast.Stmt, ...]], ...]


def _body(c: Context, frames: Frames, function: ast.Function) -> Entity:
    """Checks a body whose returns stand at the ends of its paths; gives the returned entity.

    `frames` are the statements to go, innermost block first, each with its scope.
    """
    for depth, (scope, statements) in enumerate(frames):
        with c.nested_scope(scope):
            for i, node in enumerate(statements):
                if isinstance(node, ast.Return):
                    return Nothing() if node.value is None else c.evaluate(node.value)
                if isinstance(node, ast.If) and (_returns(node.then) or _returns(node.orelse)):
                    return _branch(c, node, ((scope, statements[i + 1 :]), *frames[depth + 1 :]), function)
                if isinstance(node, (ast.For, ast.While)) and _returns(node.body):
                    return c.error(
                        codes.BAD_RETURN,
                        f"`{function.name.id}` returns from inside of a loop",
                        _first_return(node.body).span,
                        help="assign to a `var`, `break`, and return it at the end",
                    )
                if c.run((node,)):
                    return POISON
    if function.returns is not None:
        return c.error(
            codes.BAD_RETURN,
            f"`{function.name.id}` ends without `return` on some path",
            function.name.span,
            help="end it with `return expression`",
        )
    return Nothing()


def _first_return(statements: tuple[ast.Stmt, ...]) -> ast.Stmt:
    for node in statements:
        if isinstance(node, ast.Return):
            return node
        if isinstance(node, (ast.For, ast.While)) and _returns(node.body):
            return _first_return(node.body)
        if isinstance(node, ast.If) and _returns(node.then + node.orelse):
            return _first_return(node.then + node.orelse)
    return statements[0]


def _path(c: Context, body: tuple[ast.Stmt, ...], rest: Frames, function: ast.Function) -> Entity:
    """One side of a branch and all that follows it; names declared on the way are forgotten."""
    names = [dict(scope.names) for scope, _ in rest]
    entity = _body(c, ((Scope(rest[0][0]), body), *rest), function)
    for (scope, _), saved in zip(rest, names, strict=True):
        scope.names = saved
    return entity


def _branch(c: Context, node: ast.If, rest: Frames, function: ast.Function) -> Entity:
    """An `if` that returns: each path goes on with the rest of the body, and both values meet."""
    test = control.condition(c, node.condition)
    if isinstance(test, bool):
        return _path(c, node.then if test else node.orelse, rest, function)
    before = control.snapshot(c)
    with c.block() as then:
        a = _path_value(c, _path(c, node.then, rest, function), node.span)
    control.restore(before)
    with c.block() as orelse:
        b = _path_value(c, _path(c, node.orelse, rest, function), node.span)
    control.restore(before)
    if isinstance(test, Poison) or isinstance(a, Poison) or isinstance(b, Poison):
        return POISON
    if isinstance(a, Nothing) or isinstance(b, Nothing):
        if type(a) is not type(b):
            return c.error(codes.BAD_RETURN, f"only some paths of `{function.name.id}` return a value", node.span)
        for builder in (then, orelse):
            builder.ops.append(Yield(span=node.span))
        c.emit(If(results=(), condition=test, then=then.finish(), orelse=orelse.finish(), span=node.span))
        return Nothing()
    dtype = expressions.common_dtype(c, [a, b], node.span, what=f" in the results of `{function.name.id}`")
    if isinstance(dtype, Poison):
        return dtype
    values = []
    for builder, operand in ((then, a), (orelse, b)):
        outer, c.builder = c.builder, builder
        value = emit.to_value(c, emit.convert(c, operand, dtype, node.span), node.span)
        c.builder = outer
        if isinstance(value, Poison):
            return value
        values.append(value)
    if values[0].shape != values[1].shape:
        return c.error(
            codes.SHAPE_MISMATCH,
            f"the paths of `{function.name.id}` return {values[0].type} and {values[1].type}",
            node.span,
        )
    for builder, value in zip((then, orelse), values, strict=True):
        builder.ops.append(Yield(values=(value,), span=node.span))
    result = c.value(values[0].type, function.name.id, node.span)
    c.emit(If(results=(result,), condition=test, then=then.finish(), orelse=orelse.finish(), span=node.span))
    return result


def _path_value(c: Context, entity: Entity, span: Span) -> Poison | Nothing | ConstVal | Value:
    if isinstance(entity, Nothing):
        return entity
    operand = emit.read(c, entity, span)
    return emit.materialize(c, operand, span) if isinstance(operand, Poly) else operand


def _returned(c: Context, function: ast.Function, entity: Entity) -> Entity:
    """The result as the declared type."""
    assert function.returns is not None
    what = f" as the result of `{function.name.id}`"
    span = function.returns.span
    if isinstance(entity, Nothing):
        return c.error(codes.BAD_RETURN, f"`{function.name.id}` returns no value, and declares one", span)
    type = value_type(c, function.returns)
    operand = emit.read(c, entity, span)
    if isinstance(type, Poison) or isinstance(operand, Poison):
        return POISON
    if isinstance(operand, Poly):
        operand = emit.materialize(c, operand, span, shape=type.shape if isinstance(type, TileType) else None)
    operand = emit.convert(c, operand, type.dtype, span, what=what)
    if isinstance(operand, Poison):
        return operand
    if isinstance(operand, ConstVal):
        if isinstance(type, ScalarType):
            return operand
        value = emit.to_value(c, operand, span)
        return value if isinstance(value, Poison) else emit.broadcast(c, value, type.shape, span)
    shape = operand.shape if isinstance(operand, Value) else ()
    if shape != (type.shape if isinstance(type, TileType) else ()):
        return c.error(codes.SHAPE_MISMATCH, f"expected {type}, found {type_text(operand)}{what}", span)
    return operand
