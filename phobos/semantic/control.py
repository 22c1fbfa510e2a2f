"""Control flow: `if`, `for`, `while` and jumps as structured ops with carried values (SSA)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from phobos.ir.tile import Break, Continue, For, If, Return, Value, While, Yield
from phobos.ir.types import DType, ScalarType
from phobos.semantic import codes, emit, expressions, resolve
from phobos.semantic.context import BlockBuilder, Context, Loop
from phobos.semantic.dtypes import join
from phobos.semantic.entities import Binding, ConstVal, Poison, Poly, Variable, type_text
from phobos.semantic.masks import State
from phobos.source import Span
from phobos.syntax import ast

Snapshot = dict[Variable, Value | None]


def statement(c: Context, node: ast.Stmt) -> bool:
    """One statement of control flow; True where control does not reach what follows it."""
    if isinstance(node, ast.If):
        return _if(c, node)
    if isinstance(node, ast.For):
        _for(c, node)
        return False
    if isinstance(node, ast.While):
        return _while(c, node)
    if isinstance(node, (ast.Break, ast.Continue)):
        return _jump(c, node)
    if isinstance(node, ast.Return):
        return _return(c, node)
    raise TypeError(f"unknown statement {type(node).__name__}")


def snapshot(c: Context) -> Snapshot:
    return {v: v.value for v in c.scope.variables()}


def restore(state: Snapshot) -> None:
    for variable, value in state.items():
        variable.value = value


def condition(c: Context, node: ast.Expr) -> Value | bool | Poison:
    """A uniform condition: a Python bool where it is known at compile time."""
    found = expressions.operand(c, node)
    if isinstance(found, Poison):
        return found
    if isinstance(found, Poly) or (isinstance(found, Value) and found.is_tile):
        return c.error(
            codes.CONDITION,
            "a condition is one `bool` for the whole block, and this is a tile",
            node.span,
            help="select elements with `where(condition, a, b)`, or reduce it to a scalar",
        )
    if found.dtype is not DType.BOOL:
        return c.error(
            codes.CONDITION,
            f"a condition is a `bool`, not {type_text(found)}",
            node.span,
            help=f"compare it: `{c.text(node)} != 0`",
        )
    return bool(found.value) if isinstance(found, ConstVal) else found


# --- if --------------------------------------------------------------------------------------


def _if(c: Context, node: ast.If) -> bool:
    test = condition(c, node.condition)
    if isinstance(test, bool):
        # The dead branch vanishes unchecked: it may be valid only under other compile-time values.
        with c.nested_scope():
            return c.run(node.then if test else node.orelse)
    before = snapshot(c)
    with c.block() as then, c.nested_scope():
        then_ends = c.run(node.then)
    after_then = {v: v.value for v in before}
    restore(before)
    with c.block() as orelse, c.nested_scope():
        else_ends = c.run(node.orelse)
    after_else = {v: v.value for v in before}
    restore(before)
    if isinstance(test, Poison):
        merge_unknown(before, after_then, after_else, then_ends, else_ends)
        return then_ends and else_ends
    results: list[Value] = []
    then_values: list[Value] = []
    else_values: list[Value] = []
    for variable, old in before.items():
        a = old if then_ends else after_then[variable]
        b = old if else_ends else after_else[variable]
        if then_ends and not else_ends:
            a = b
        elif else_ends and not then_ends:
            b = a
        if a is None or b is None or isinstance(variable.type, Poison):
            variable.value = None
            continue
        if a is old and b is old:
            continue
        result = c.value(variable.type, variable.name, node.span)
        c.named.add(result)
        _merge_masks(c, a, b, result)
        results.append(result)
        then_values.append(a)
        else_values.append(b)
        variable.value = result
    if not then_ends:
        then.ops.append(Yield(values=tuple(then_values), span=node.span))
    if not else_ends:
        orelse.ops.append(Yield(values=tuple(else_values), span=node.span))
    c.emit(
        If(
            results=tuple(results),
            condition=test,
            then=then.finish(),
            orelse=orelse.finish(),
            span=node.span,
        )
    )
    if then_ends and else_ends:
        # Control never comes here, but a block ends in a terminator.
        if c.loop is not None:
            c.emit(Continue(values=_hand_on(c, c.loop), span=node.span))
        else:
            c.emit(Return(span=node.span))
    return then_ends and else_ends


def merge_unknown(before: Snapshot, a: Snapshot, b: Snapshot, a_ends: bool, b_ends: bool) -> None:
    """After an `if` whose condition is wrong: variables keep a value, so that no further error follows from it."""
    for variable, old in before.items():
        first = None if a_ends else a[variable]
        second = None if b_ends else b[variable]
        variable.value = old or first or second


def _merge_masks(c: Context, a: Value, b: Value, result: Value) -> None:
    """Masked positions that both branches leave: `if kt + BC > Nk { s = where(...) }` has dealt with them."""
    one, other = c.masks.of(a), c.masks.of(b)
    merged: State = {}
    for axis, fills in one.items():
        merged[axis] = {origin: fill for origin, fill in fills.items() if origin in other.get(axis, {})}
    c.masks.set_state(result, merged)


# --- loops -----------------------------------------------------------------------------------


def assigned(statements: Iterable[ast.Stmt]) -> set[str]:
    """Names of outer variables that the statements may assign, dead branches included."""
    out: set[str] = set()
    local: set[str] = set()
    for node in statements:
        found: set[str] = set()
        if isinstance(node, (ast.Let, ast.Var, ast.Const)):
            local.add(node.name.id)
        elif isinstance(node, ast.Assign):
            target = node.target
            while isinstance(target, ast.Subscript):
                target = target.base
            if isinstance(target, ast.Name):
                found.add(target.id)
        elif isinstance(node, (ast.For, ast.While)):
            found = assigned(node.body)
            if isinstance(node, ast.For):
                found.discard(node.index.id)
        elif isinstance(node, ast.If):
            found = assigned(node.then) | assigned(node.orelse)
        out |= found - local
    return out


def _carried(c: Context, body: tuple[ast.Stmt, ...]) -> list[Variable]:
    """Variables with a value that the body may assign. One without a value is not carried: what the body writes to
    it does not count as written after a loop that may not run."""
    names = assigned(body)
    found = [c.scope.find(name) for name in names]
    mine = {v for v in found if isinstance(v, Variable) and v.value is not None}
    return [v for v in c.scope.variables() if v in mine]


def _loop_values(c: Context, carried: list[Variable], span: Span) -> tuple[Value, ...]:
    """Fresh block params for carried variables, which become their current values."""
    out = []
    for variable in carried:
        assert variable.value is not None and not isinstance(variable.type, Poison)
        value = c.value(variable.type, variable.name, span)
        c.masks.copy(variable.value, value)
        c.named.add(value)
        variable.value = value
        out.append(value)
    return tuple(out)


def _unchanged(loop: Loop, *params: tuple[Value, ...]) -> set[Variable]:
    """Carried variables that every path through the body hands on as they came."""
    out = set()
    for i, variable in enumerate(loop.carried):
        own = {p[i] for p in params}
        if all(values[i] in own for values in loop.handed):
            out.add(variable)
    return out


def _hand_on(c: Context, loop: Loop) -> tuple[Value, ...]:
    values = tuple(v.value for v in loop.carried)
    assert all(v is not None for v in values)
    checked = tuple(v for v in values if v is not None)
    loop.handed.append(checked)
    return checked


def _close_body(c: Context, builder: BlockBuilder, loop: Loop, ended: bool, span: Span) -> None:
    if not ended:
        builder.ops.append(Yield(values=_hand_on(c, loop), span=span))


def _results(c: Context, carried: list[Variable], span: Span) -> tuple[Value, ...]:
    out = []
    for variable in carried:
        assert not isinstance(variable.type, Poison)
        result = c.value(variable.type, variable.name, span)
        c.named.add(result)
        if variable.value is not None:
            c.masks.copy(variable.value, result)
        variable.value = result
        out.append(result)
    return tuple(out)


def _for(c: Context, node: ast.For) -> None:
    bounds = _bounds(c, node)
    unroll = None
    if node.unroll is not None:
        count = expressions.constant_int(c, node.unroll, "an unroll factor")
        if not isinstance(count, Poison):
            unroll = count
            if count < 1:
                c.error(codes.BAD_RANGE, f"an unroll factor is positive, not {count}", node.unroll.span)
    pipeline = resolve.pipeline(c, node)
    carried = _carried(c, node.body)
    while True:
        before, uses = snapshot(c), len(c.uses)
        inits = tuple(v.value for v in carried if v.value is not None)
        dtype = bounds[0].dtype if bounds else DType.INDEX
        index = c.value(ScalarType(dtype), node.index.id, node.index.span)
        c.named.add(index)
        if bounds:
            lo, step = c.affine.of(bounds[0]), c.affine.of(bounds[2])
            c.affine.set_divisor(index, math.gcd(c.affine.divisor(lo), c.affine.divisor(step)) or 1)
        loop = Loop(carried)
        with c.block() as builder, c.nested_scope():
            params = _loop_values(c, carried, node.span)
            binding = Binding(name=node.index.id, kind="loop index", entity=index, span=node.index.span)
            _declare_index(c, node, binding)
            outer, c.loop = c.loop, loop
            with c.nested_scope():
                ended = c.run(node.body)
            _close_body(c, builder, loop, ended, node.span)
            c.loop = outer
        last = {v: v.value for v in carried}
        restore(before)
        same = _unchanged(loop, params)
        if not same:
            break
        # Only dead branches assign these: build again without carrying them.
        carried = [v for v in carried if v not in same]
        del c.uses[uses:]
    for variable, value in last.items():
        variable.value = value
    results = _results(c, carried, node.span)
    if bounds:
        c.emit(
            For(
                results=results,
                lo=bounds[0],
                hi=bounds[1],
                step=bounds[2],
                inits=inits,
                body=builder.finish((index, *params)),
                unroll=unroll,
                pipeline=pipeline,
                span=node.span,
            )
        )


def _declare_index(c: Context, node: ast.For, binding: Binding) -> None:
    from phobos.semantic.statements import declare

    declare(c, node.index, binding)


def _bounds(c: Context, node: ast.For) -> tuple[Value, Value, Value] | None:
    """(lo, hi, step) of one integer type; None where one is wrong."""
    if not 1 <= len(node.args) <= 3:
        c.error(
            codes.ARGUMENT_COUNT, f"`range` takes 1 to 3 arguments, not {len(node.args)}", node.span,
            help="`range(hi)`, `range(lo, hi)` or `range(lo, hi, step)`",
        )  # fmt: skip
        for arg in node.args:
            expressions.operand(c, arg)
        return None
    found = [(expressions.operand(c, arg), arg.span) for arg in node.args]
    dtype: DType | None = None
    failed = False
    for item, span in found:
        if isinstance(item, Poison):
            failed = True
            continue
        is_tile = isinstance(item, Poly) or (isinstance(item, Value) and item.is_tile)
        if (
            is_tile
            or (item.dtype is not None and not item.dtype.is_integer)
            or (isinstance(item, ConstVal) and not item.is_int)
        ):
            c.error(codes.BAD_RANGE, f"a bound of `range` is an integer scalar, not {type_text(item)}", span)
            failed = True
        elif item.dtype is not None:
            joined = item.dtype if dtype is None else join(dtype, item.dtype)
            if joined is None:
                c.error(codes.FORBIDDEN_MIX, f"the bounds mix `{dtype}` and `{item.dtype}`", span)
                failed = True
            else:
                dtype = joined
    if failed:
        return None
    dtype = dtype or DType.INDEX
    values = []
    for item, span in found:
        value = emit.to_value(c, emit.convert(c, item, dtype, span), span, dtype)
        if isinstance(value, Poison):
            return None
        values.append(value)
    span = node.span
    if len(values) == 1:
        values.insert(0, c.constant(0, dtype, span))
    if len(values) == 2:
        values.append(c.constant(1, dtype, span))
    step = c.affine.of(values[2])
    if step.is_constant and step.constant == 0:
        c.error(codes.BAD_RANGE, "the step of `range` is zero", node.args[2].span)
        return None
    return values[0], values[1], values[2]


def _while(c: Context, node: ast.While) -> bool:
    carried = _carried(c, node.body)
    while True:
        before, uses, effects = snapshot(c), len(c.uses), c.effects
        inits = tuple(v.value for v in carried if v.value is not None)
        loop = Loop(carried)
        with c.block() as test_block, c.nested_scope():
            test_params = _loop_values(c, carried, node.span)
            test = condition(c, node.condition)
            if test is False:
                restore(before)
                return False
            value = c.constant(True, DType.BOOL, node.condition.span) if test is True else test
            if not isinstance(value, Poison):
                c.emit(Yield(values=(value,), span=node.condition.span))
        restore(before)
        if c.effects != effects:
            return _while(c, _with_test_inside(node))
        with c.block() as builder, c.nested_scope():
            params = _loop_values(c, carried, node.span)
            outer, c.loop = c.loop, loop
            ended = c.run(node.body)
            _close_body(c, builder, loop, ended, node.span)
            c.loop = outer
        last = {v: v.value for v in carried}
        restore(before)
        same = _unchanged(loop, params)
        if not same:
            break
        carried = [v for v in carried if v not in same]
        del c.uses[uses:]
    for variable, after in last.items():
        variable.value = after
    results = _results(c, carried, node.span)
    if not isinstance(value, Poison):
        c.emit(
            While(
                results=results,
                inits=inits,
                condition=test_block.finish(test_params),
                body=builder.finish(params),
                span=node.span,
            )
        )
    return False


def _with_test_inside(node: ast.While) -> ast.While:
    """`while true { if !condition { break } ... }`: a condition with effects (a spin lock) is part of the body, since
    the condition of the op only computes."""
    span = node.condition.span
    leave = ast.If(
        span=span,
        condition=ast.Unary(span=span, op="!", operand=node.condition),
        then=(ast.Break(span=span),),
        orelse=(),
    )
    return ast.While(span=node.span, condition=ast.BoolLiteral(span=span, value=True), body=(leave, *node.body))


# --- jumps -----------------------------------------------------------------------------------


def _jump(c: Context, node: ast.Break | ast.Continue) -> bool:
    word = "break" if isinstance(node, ast.Break) else "continue"
    if c.loop is None:
        c.error(codes.OUTSIDE_LOOP, f"`{word}` outside of a loop", node.span)
        return True
    values = _hand_on(c, c.loop)
    c.emit(Break(values=values, span=node.span) if word == "break" else Continue(values=values, span=node.span))
    return True


def _return(c: Context, node: ast.Return) -> bool:
    if c.calls:
        c.error(
            codes.BAD_RETURN,
            "a function returns at its end, or at the end of every branch of an `if` there",
            node.span,
            help="assign to a `var` here and return it at the end",
        )
        return True
    if node.value is not None:
        expressions.operand(c, node.value)
        c.error(
            codes.BAD_RETURN, "a kernel returns no value", node.span, help="store the result in a tensor, then `return`"
        )
        return True
    c.emit(Return(span=node.span))
    return True
