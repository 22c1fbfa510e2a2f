"""Statements: declarations, assignments, stores. Control flow is in `control`."""

from __future__ import annotations

from phobos.ir.tile import Broadcast, Insert, Store, Value, View
from phobos.ir.types import DType, ScalarType, TileType
from phobos.semantic import codes, control, emit, expressions, views
from phobos.semantic.context import Context
from phobos.semantic.entities import (
    POISON,
    Binding,
    Entity,
    Nothing,
    Operand,
    Poison,
    Poly,
    TensorRef,
    Text,
    Variable,
    ViewRef,
    type_text,
)
from phobos.semantic.shapes import MAX_RANK, broadcast_shapes, shape_text, squeezed
from phobos.semantic.types import value_type
from phobos.source import Span
from phobos.syntax import ast

OPERATORS = {"+=": "add", "-=": "sub", "*=": "mul", "/=": "div"}


def run(c: Context, statements: tuple[ast.Stmt, ...]) -> bool:
    """Checks statements in the current scope; True where control does not reach the end."""
    for statement in statements:
        if _statement(c, statement):
            # What follows cannot run; lint warns about it.
            return True
    return False


def _statement(c: Context, node: ast.Stmt) -> bool:
    first = len(c.builder.ops)
    if isinstance(node, ast.Let):
        _let(c, node)
    elif isinstance(node, ast.Var):
        _var(c, node)
    elif isinstance(node, ast.Const):
        const = expressions.constant(c, node.value, f"`const {node.name.id}`")
        declare(c, node.name, Binding(name=node.name.id, kind="const", entity=const, span=node.name.span))
    elif isinstance(node, ast.Assign):
        _assign(c, node)
    elif isinstance(node, ast.ExprStmt):
        _expression(c, node)
    else:
        return control.statement(c, node)
    if c.observe is not None:
        c.observe(c, node, first)
    return False


def declare(c: Context, name: ast.Name, item: Binding | Variable) -> None:
    """Adds a name to the current scope. Inner blocks may hide outer local names, but no name of the kernel."""
    here = c.scope.names.get(name.id)
    if name.id == "ctx":
        c.error(codes.FORBIDDEN_NAME, "`ctx` is the block's context and cannot be declared", name.span)
        return
    if here is not None:
        line = f" in line {here.span.line}" if here.span is not None else ""
        c.error(codes.DUPLICATE_NAME, f"`{name.id}` is already declared{line}", name.span, help="choose another name")
    else:
        outer = c.scope.find(name.id)
        if isinstance(outer, Binding) and outer.kind in KERNEL_KINDS:
            c.error(
                codes.DUPLICATE_NAME,
                f"`{name.id}` is already the name of a {outer.kind}",
                name.span,
                help="choose another name",
            )
    c.scope.names[name.id] = item


KERNEL_KINDS = frozenset({"tensor", "scalar parameter", "const parameter", "dim", "autotune name", "file constant"})


def declared_value(c: Context, operand: Operand, type: ScalarType | TileType, span: Span, what: str) -> Operand:
    """`operand` as a declared type: dtype converted (narrowing allowed), scalars fill a tile."""
    if isinstance(operand, Poly):
        if isinstance(type, TileType):
            operand = emit.materialize(c, operand, span, shape=type.shape)
        else:
            operand = emit.materialize(c, operand, span)
    operand = emit.convert(c, operand, type.dtype, span, narrow=True, what=what)
    if isinstance(operand, Poison):
        return operand
    if isinstance(type, ScalarType):
        if isinstance(operand, Value) and operand.is_tile:
            return c.error(
                codes.SHAPE_MISMATCH, f"{operand.type} is not the scalar `{type}`{what}", span,
                help="a tile of one element becomes a scalar by a subscript, as in `x[0, 0]`",
            )  # fmt: skip
        return operand
    value = emit.to_value(c, operand, span)
    if isinstance(value, Poison) or value.shape == type.shape:
        return value
    if value.is_tile:
        return c.error(
            codes.SHAPE_MISMATCH,
            f"the shape {shape_text(value.shape)} is not {shape_text(type.shape)}{what}",
            span,
            help=f"`broadcast(x, {', '.join(map(str, type.shape))})`"
            if broadcast_shapes([value.shape, type.shape]) == type.shape
            else None,
        )
    return emit.broadcast(c, value, type.shape, span)


def _let(c: Context, node: ast.Let) -> None:
    entity: Entity = c.evaluate(node.value)
    name = node.name.id
    if node.type is not None:
        type = value_type(c, node.type)
        operand = emit.read(c, entity, node.value.span)
        if isinstance(type, Poison):
            entity = type
        else:
            entity = declared_value(c, operand, type, node.value.span, f" of `{name}`")
    elif isinstance(entity, Poly):
        entity = emit.materialize(c, entity, node.value.span)
    elif isinstance(entity, ViewRef):
        entity = ViewRef(entity.view, entity.fill, name, entity.origins, entity.text)
    elif isinstance(entity, (Text, Nothing, TensorRef)):
        entity = emit.read(c, entity, node.value.span)
    if isinstance(entity, Value):
        c.name_value(entity, name)
    declare(c, node.name, Binding(name=name, kind="let", entity=entity, span=node.name.span))


def _var(c: Context, node: ast.Var) -> None:
    name = node.name.id
    type: ScalarType | TileType | Poison | None = None if node.type is None else value_type(c, node.type)
    value: Value | Poison | None = None
    if node.value is not None:
        operand = expressions.operand(c, node.value)
        if type is not None and not isinstance(type, Poison):
            operand = declared_value(c, operand, type, node.value.span, f" of `{name}`")
        value = emit.to_value(c, operand, node.value.span)
    elif type is None:
        type = c.error(
            codes.UNASSIGNED, f"`var {name}` has neither a type nor a value", node.span,
            help=f"`var {name} = 0.0` or `var {name}: tile<f32>[R, C]`",
        )  # fmt: skip
    if isinstance(value, Poison):
        type, value = value, None
    elif value is not None:
        c.name_value(value, name)
        type = value.type
    assert type is not None
    declare(
        c,
        node.name,
        Variable(name=name, type=type, declared=node.type is not None, value=value, span=node.name.span),
    )


# --- assignments -----------------------------------------------------------------------------


def _assign(c: Context, node: ast.Assign) -> None:
    target = node.target
    if isinstance(target, ast.Name):
        _assign_name(c, node, target)
        return
    if not isinstance(target, ast.Subscript):
        c.error(codes.NOT_ASSIGNABLE, "only a name or a slice can be assigned", target.span)
        return
    if isinstance(target.base, ast.Name):
        found = c.scope.find(target.base.id)
        if isinstance(found, Variable):
            _assign_slice(c, node, target, found)
            return
    base = c.evaluate(target.base)
    if isinstance(base, Poison):
        expressions.operand(c, node.value)
        return
    if isinstance(base, (TensorRef, ViewRef)):
        _store(c, node, target, base)
        return
    expressions.operand(c, node.value)
    if isinstance(base, Value) and base.is_tile and isinstance(target.base, ast.Name):
        c.error(
            codes.NOT_ASSIGNABLE,
            f"`{target.base.id}` is not a `var`, so its elements cannot be assigned",
            target.base.span,
            help=f"declare it with `var {target.base.id} = ...`",
        )
    else:
        c.error(codes.NOT_ASSIGNABLE, f"a slice of {type_text(base)} cannot be assigned", target.span)


def _blame(node: ast.Assign) -> Span:
    """Where a value that does not fit its target is shown: the value, or the whole of a compound assignment."""
    return node.value.span if node.op == "=" else node.span


def _assign_name(c: Context, node: ast.Assign, target: ast.Name) -> None:
    found = c.scope.find(target.id)
    if found is None:
        expressions.operand(c, node.value)
        expressions.unknown(c, target, assigned=node.op == "=")
        return
    if isinstance(found, Binding):
        expressions.operand(c, node.value)
        if isinstance(found.entity, (TensorRef, ViewRef)):
            text = found.entity.text if isinstance(found.entity, ViewRef) else f"{target.id}[...]"
            help = f"assign to the slice: `{text} = ...`"
        elif found.kind == "let":
            help = f"declare it with `var {target.id} = ...`"
        else:
            help = "copy it into a `var`"
        what = "bound by `let`" if found.kind == "let" else f"a {found.kind}"
        c.error(codes.NOT_ASSIGNABLE, f"`{target.id}` is {what} and cannot be assigned", target.span, help=help)
        return
    operand: Operand
    if node.op == "=":
        operand = expressions.operand(c, node.value)
    else:
        current = expressions.operand(c, target)
        right = expressions.operand(c, node.value)
        operand = expressions.apply(c, OPERATORS[node.op], [current, right], node.span)
    set_variable(c, found, operand, _blame(node))


def set_variable(c: Context, variable: Variable, operand: Operand, span: Span) -> None:
    """Assigns to a variable, whose type stays."""
    type = variable.type
    if isinstance(type, Poison):
        return
    value: Value | Poison
    if isinstance(operand, Poison):
        value = operand
    elif isinstance(operand, Poly) and isinstance(type, TileType):
        value = _as_variable(c, variable, emit.materialize(c, operand, span, shape=type.shape), span)
    else:
        value = _as_variable(c, variable, operand, span)
    if isinstance(value, Poison):
        if variable.value is None:
            # Reported already; the variable must not look unassigned from here on.
            variable.type = value
        return
    c.name_value(value, variable.name)
    variable.value = value


def _as_variable(c: Context, variable: Variable, operand: Operand, span: Span) -> Value | Poison:
    type = variable.type
    if isinstance(operand, Poison) or isinstance(type, Poison):
        return POISON
    what = f" in an assignment to `{variable.name}`"
    if isinstance(operand, (Value, Poly)):
        shape = operand.shape if isinstance(operand, Value) else None
        target = type.shape if isinstance(type, TileType) else ()
        wrong_shape = shape is None or (shape != target and shape != ())
        convertible = emit.widens(operand.dtype, type.dtype) or (
            variable.declared and emit.narrows(operand.dtype, type.dtype)
        )
        if wrong_shape or not convertible:
            help = f"a `var` keeps its type; convert the value: `{type.dtype}(...)`"
            if wrong_shape:
                help = "a `var` keeps its shape; declare another one"
                if shape is not None and target and broadcast_shapes([shape, target]) == target:
                    help = f"`broadcast(x, {', '.join(map(str, target))})`"
            return c.error(
                codes.VAR_CHANGES_TYPE,
                f"`{variable.name}` is {type}, and this value is {type_text(operand)}",
                span,
                help=help,
            )
    converted = emit.convert(c, operand, type.dtype, span, narrow=variable.declared, what=what)
    value = emit.to_value(c, converted, span)
    if isinstance(value, Value) and isinstance(type, TileType):
        return emit.broadcast(c, value, type.shape, span)
    return value


def fit(c: Context, operand: Operand, dtype: DType, shape: tuple[int, ...], span: Span, what: str) -> Value | Poison:
    """A value to put into a slice: converted (narrowing allowed), scalars and extent-1 axes repeated."""
    if len(shape) > MAX_RANK:
        return c.error(
            codes.BAD_EXTENT, f"a slice of {len(shape)} axes is no tile, which has at most {MAX_RANK}", span,
            help="a position instead of a slice drops an axis",
        )  # fmt: skip
    if isinstance(operand, Poly):
        operand = emit.materialize(c, operand, span, shape=shape or None)
    converted = emit.convert(c, operand, dtype, span, narrow=True, what=what)
    value = emit.to_value(c, converted, span)
    if isinstance(value, Poison) or value.shape == shape:
        return value
    if not shape:
        return c.error(
            codes.SHAPE_MISMATCH,
            f"{value.type} does not fit one element{what}",
            span,
            help="a tile of one element becomes a scalar by a subscript, as in `x[0, 0]`",
        )
    if not value.is_tile:
        result = c.value(TileType(dtype, shape), "fill", span)
        c.emit(Broadcast(result=result, operand=value, span=span))
        return result
    if broadcast_shapes([value.shape, shape]) == shape:
        return emit.broadcast(c, value, shape, span)
    if squeezed(value.shape) == squeezed(shape):
        # A reduction keeps its axis with extent 1, a tensor of row statistics has none.
        return emit.reshape(c, value, shape, span)
    return c.error(
        codes.SHAPE_MISMATCH,
        f"the shape {shape_text(value.shape)} does not fit the slice's {shape_text(shape)}{what}",
        span,
    )


def view_target(c: Context, target: ast.Subscript, base: TensorRef | ViewRef) -> ViewRef | Poison:
    """The view that a store or an atomic writes."""
    if target.fill is not None:
        c.error(codes.BAD_INDEX, "a fill belongs to a load, and this is written", target.fill.span)
    ref = views.view_of(c, base, target)
    if ref is None:
        return c.error(
            codes.NOT_ASSIGNABLE,
            "a slice of a view is written only at positions known to lie inside of it",
            target.span,
            help="slice the tensor itself",
        )
    return ref


def _store(c: Context, node: ast.Assign, target: ast.Subscript, base: TensorRef | ViewRef) -> None:
    ref = view_target(c, target, base)
    if isinstance(ref, Poison):
        expressions.operand(c, node.value)
        return
    view = ref.view
    dtype, shape = view.tensor.type.dtype, view.shape
    operand = _combined(c, node, lambda: emit.load(c, ref, target.span))
    value = fit(c, operand, dtype, shape, _blame(node), f" in a store to `{view.tensor.name}`")
    if isinstance(value, Value):
        store(c, view, value, node.span)


def store(c: Context, view: View, value: Value, span: Span) -> None:
    c.emit(Store(view=view, value=value, span=span))
    c.written_tensors.add(view.tensor.name)
    c.effects += 1


def _combined(c: Context, node: ast.Assign, current) -> Operand:
    """The value of `=`, or of a compound assignment with the slice's current value."""
    if node.op == "=":
        return expressions.operand(c, node.value)
    before = current()
    right = expressions.operand(c, node.value)
    return expressions.apply(c, OPERATORS[node.op], [before, right], node.span)


def _assign_slice(c: Context, node: ast.Assign, target: ast.Subscript, variable: Variable) -> None:
    assert isinstance(target.base, ast.Name)
    tile = expressions.operand(c, target.base)
    if isinstance(tile, Poison):
        expressions.operand(c, node.value)
        return
    if not isinstance(tile, Value) or not tile.is_tile:
        c.error(codes.WRONG_OPERAND, f"{type_text(tile)} has no axes to subscript", target.span)
        return
    if target.fill is not None:
        c.error(codes.BAD_INDEX, "a fill belongs to a load of a tensor", target.fill.span)
    items = views.tile_axes(c, tile, target)
    if isinstance(items, Poison):
        expressions.operand(c, node.value)
        return
    if any(i.index is not None for i in items):
        c.error(codes.BAD_INDEX, "an index tile cannot select what is written in a tile", target.span)
        return
    shape = tuple(i.length for i in items if i.length is not None)
    operand = _combined(c, node, lambda: views.extract(c, tile, items, target.span))
    value = fit(c, operand, tile.dtype, shape, _blame(node), f" in an assignment to `{variable.name}[...]`")
    if isinstance(value, Poison):
        return
    if all(i.whole for i in items):
        c.name_value(value, variable.name)
        variable.value = value
        return
    axes = views.extract_axes(c, items, tile.shape)
    result = c.value(tile.type, variable.name, node.span)
    c.emit(Insert(result=result, operand=tile, axes=axes, value=value, span=node.span))
    c.masks.copy(tile, result)
    c.named.add(result)
    variable.value = result


# --- expression statements -------------------------------------------------------------------


def _expression(c: Context, node: ast.ExprStmt) -> None:
    before, outer = c.effects, c.statement
    c.statement = node.value
    entity = c.evaluate(node.value)
    c.statement = outer
    if isinstance(entity, (Poison, Nothing)) or c.effects != before:
        return
    what = c.text(node.value)
    what = what if len(what) <= 40 else f"{what[:37]}..."
    c.error(
        codes.NO_EFFECT,
        f"the value of `{what}` is not used",
        node.span,
        notes=("a newline ends a statement unless the line ends in an operator or a comma",),
        help="bind it with `let`, or move the operator to the end of the line above",
    )
