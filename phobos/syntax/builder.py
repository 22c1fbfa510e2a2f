"""The grammar's actions: each reduction's children to an AST node, with the checks that no grammar states.

One method per rule name or alias of grammar/phobos.lark. Children arrive as Lark's tree builder would pass them:
string terminals dropped (kept in rules marked `!`), `[x]` as None where absent, helper rules flattened.
After an error the driver puts None in the place of a broken statement; no tree is returned then.
"""

from __future__ import annotations

import re
from typing import Any

from phobos.diagnostics import Diagnostic, nearest
from phobos.syntax import ast
from phobos.syntax.lexer import ESCAPES, Positions, Token, integer

STRING_FUNCTIONS = ("print", "assert")


class Builder:
    """Builds the tree of one file. `diagnostics` collects what is wrong with well-formed text."""

    def __init__(self, positions: Positions):
        self.positions = positions
        self.source = positions.source
        self.span = positions.span
        self.diagnostics: list[Diagnostic] = []

    def report(self, code: str, message: str, node: ast.Node, help: str | None = None) -> None:
        self.diagnostics.append(Diagnostic(code=code, message=message, span=node.span, help=help))

    def name_of(self, token: Token) -> ast.Name:
        return ast.Name(span=self.span(token.start, token.end), id=token.text)

    # --- declarations ------------------------------------------------------------------------

    def build_start(self, start: int, end: int, items: list[Any]) -> ast.Module:
        return ast.Module(
            span=self.span(max(start, 0), max(end, 0)),  # a file of comments has no tokens
            source=self.source,
            constants=tuple(i for i in items if isinstance(i, ast.Const)),
            functions=tuple(i for i in items if isinstance(i, ast.Function)),
            kernels=tuple(i for i in items if isinstance(i, ast.Kernel)),
        )

    def build_kernel(self, start: int, end: int, children: list[Any]) -> ast.Kernel:
        attributes, name, dtype_params, params, body = children
        for param in params or ():
            if param.type is None:
                help = f"write `{param.name.id}: f32` or `{param.name.id}: tensor<f32>[N]`"
                self.report("PH0125", f"the kernel parameter `{param.name.id}` has no type", param, help)
        return ast.Kernel(
            span=self.span(start, end),
            attributes=attributes,
            name=self.name_of(name),
            dtype_params=dtype_params or (),
            params=params or (),
            body=body,
        )

    def build_function(self, start: int, end: int, children: list[Any]) -> ast.Function:
        name, params, returns, body = children
        return ast.Function(
            span=self.span(start, end), name=self.name_of(name), params=params or (), returns=returns, body=body
        )

    def build_const(self, start: int, end: int, children: list[Any]) -> ast.Const:
        name, value = children
        return ast.Const(span=self.span(start, end), name=self.name_of(name), value=value)

    def build_dtype_params(self, start: int, end: int, children: list[Any]) -> tuple[ast.Name, ...]:
        return tuple(self.name_of(token) for token in children)

    def build_params(self, start: int, end: int, children: list[Any]) -> tuple[ast.Param, ...]:
        return tuple(children)

    def build_param(self, start: int, end: int, children: list[Any]) -> ast.Param:
        name, type = children
        return ast.Param(span=self.span(start, end), name=self.name_of(name), type=type)

    def build_const_param(self, start: int, end: int, children: list[Any]) -> ast.Param:
        name, type = children
        return ast.Param(span=self.span(start, end), name=self.name_of(name), type=type, const=True)

    def build_attributes(self, start: int, end: int, children: list[Any]) -> tuple[ast.Attribute, ...]:
        return tuple(children)

    def build_attribute(self, start: int, end: int, children: list[Any]) -> ast.Attribute:
        name, args = children
        return ast.Attribute(span=self.span(start, end), name=name.text, args=args or ())

    def build_attribute_args(self, start: int, end: int, children: list[Any]) -> tuple[ast.AttributeArg, ...]:
        return tuple(children)

    def build_positional_arg(self, start: int, end: int, children: list[Any]) -> ast.AttributeArg:
        return ast.AttributeArg(span=self.span(start, end), name=None, relation=None, value=children[0])

    def build_keyword_arg(self, start: int, end: int, children: list[Any]) -> ast.AttributeArg:
        name, value = children
        return ast.AttributeArg(span=self.span(start, end), name=self.name_of(name), relation="=", value=value)

    def build_search_arg(self, start: int, end: int, children: list[Any]) -> ast.AttributeArg:
        name, value = children
        return ast.AttributeArg(span=self.span(start, end), name=self.name_of(name), relation="in", value=value)

    def build_list(self, start: int, end: int, children: list[Any]) -> ast.ListExpr:
        bracket, items, _ = children
        return ast.ListExpr(span=self.span(start, end), bracket=bracket.text, items=items)

    def build_scalar_type(self, start: int, end: int, children: list[Any]) -> ast.ScalarTypeExpr:
        type = ast.ScalarTypeExpr(span=self.span(start, end), dtype=self.name_of(children[0]))
        if type.dtype.id in ("tensor", "tile"):
            shape = "f32>[N]" if type.dtype.id == "tensor" else "f32>[R, C]"
            help = f"write for instance `{type.dtype.id}<{shape}`"
            self.report("PH0123", f"`{type.dtype.id}` needs an element type and a shape", type, help)
        return type

    def build_shaped_type(self, start: int, end: int, children: list[Any]) -> ast.ShapedTypeExpr:
        kind, dtype, shape = children
        if kind.text not in ("tensor", "tile"):
            guess = nearest(kind.text, ("tensor", "tile"))
            help = f"did you mean `{guess}`?" if guess else None
            name = self.name_of(kind)
            self.report("PH0123", f"found `{kind.text}`, expected `tensor` or `tile`", name, help)
        return ast.ShapedTypeExpr(
            span=self.span(start, end), kind=kind.text, dtype=self.name_of(dtype), shape=shape
        )  # fmt: skip

    # --- statements --------------------------------------------------------------------------

    def build_block(self, start: int, end: int, children: list[Any]) -> tuple[ast.Stmt, ...]:
        return tuple(children)

    def build_let(self, start: int, end: int, children: list[Any]) -> ast.Let:
        name, type, value = children
        return ast.Let(span=self.span(start, end), name=self.name_of(name), type=type, value=value)

    def build_var(self, start: int, end: int, children: list[Any]) -> ast.Var:
        name, type, value = children
        node = ast.Var(span=self.span(start, end), name=self.name_of(name), type=type, value=value)
        if type is None and value is None:
            help = f"write `var {name.text} = value` or `var {name.text}: f32`"
            self.report("PH0125", f"`var {name.text}` has neither a type nor a value", node, help)
        return node

    def build_assign(self, start: int, end: int, children: list[Any]) -> ast.Assign:
        target, op, value = children
        if not isinstance(target, (ast.Name, ast.Subscript)):
            help = "the left side is a name or a slice, as in `x = 1` or `O[i :+ n, :] = x`"
            if op == "=":
                help += "; a comparison is `==`"
            self.report("PH0117", f"cannot assign to {describe(target)}", target, help)
        return ast.Assign(span=self.span(start, end), target=target, op=op, value=value)

    def build_assign_op(self, start: int, end: int, children: list[Any]) -> str:
        return children[0].text

    def build_for(self, start: int, end: int, children: list[Any]) -> ast.For:
        attributes, unroll, index, range_word, args, body = children
        if range_word.text != "range":
            help = "a loop is `for i in range(lo, hi, step)`"
            name = self.name_of(range_word)
            self.report("PH0123", f"found `{range_word.text}`, expected `range`", name, help)
        return ast.For(
            span=self.span(start, end),
            attributes=attributes,
            unroll=unroll,
            index=self.name_of(index),
            args=args,
            body=body,
        )

    def build_unroll(self, start: int, end: int, children: list[Any]) -> ast.Expr:
        word, count = children
        if word.text != "unroll":
            name = self.name_of(word)
            self.report("PH0123", f"found `{word.text}`, expected `unroll`", name, "write `for<unroll 4>`")
        return count

    def build_while(self, start: int, end: int, children: list[Any]) -> ast.While:
        condition, body = children
        return ast.While(span=self.span(start, end), condition=condition, body=body)

    def build_if(self, start: int, end: int, children: list[Any]) -> ast.If:
        condition, then, orelse = children
        if isinstance(orelse, ast.If):
            orelse = (orelse,)
        return ast.If(span=self.span(start, end), condition=condition, then=then, orelse=orelse or ())

    def build_break(self, start: int, end: int, children: list[Any]) -> ast.Break:
        return ast.Break(span=self.span(start, end))

    def build_continue(self, start: int, end: int, children: list[Any]) -> ast.Continue:
        return ast.Continue(span=self.span(start, end))

    def build_return(self, start: int, end: int, children: list[Any]) -> ast.Return:
        return ast.Return(span=self.span(start, end), value=children[0])

    def build_expr_stmt(self, start: int, end: int, children: list[Any]) -> ast.ExprStmt:
        return ast.ExprStmt(span=self.span(start, end), value=children[0])

    # --- expressions -------------------------------------------------------------------------

    def build_binary(self, start: int, end: int, children: list[Any]) -> ast.Binary:
        left, op, right = children
        return ast.Binary(span=self.span(start, end), op=op.text, left=left, right=right)

    def build_unary(self, start: int, end: int, children: list[Any]) -> ast.Unary:
        op, operand = children
        return ast.Unary(span=self.span(start, end), op=op.text, operand=operand)

    def build_call(self, start: int, end: int, children: list[Any]) -> ast.Call:
        function, args = children
        for arg in args or ():
            if isinstance(arg, ast.StringLiteral) and function.text not in STRING_FUNCTIONS:
                self.report("PH0129", f"`{function.text}` takes no string", arg, STRING_HELP)
        return ast.Call(span=self.span(start, end), function=self.name_of(function), args=args or ())

    def build_args(self, start: int, end: int, children: list[Any]) -> tuple[ast.Expr, ...]:
        return tuple(children)

    build_exprs = build_args

    def build_member(self, start: int, end: int, children: list[Any]) -> ast.Member:
        base, name = children
        return ast.Member(span=self.span(start, end), base=base, name=name.text)

    def build_subscript(self, start: int, end: int, children: list[Any]) -> ast.Subscript:
        base, items = children
        return ast.Subscript(span=self.span(start, end), base=base, items=items)

    def build_filled_subscript(self, start: int, end: int, children: list[Any]) -> ast.Subscript:
        base, items, fill = children
        return ast.Subscript(span=self.span(start, end), base=base, items=items, fill=fill)

    def build_subscripts(self, start: int, end: int, children: list[Any]) -> tuple[ast.SubscriptItem, ...]:
        return tuple(children)

    def build_index_item(self, start: int, end: int, children: list[Any]) -> ast.IndexItem:
        return ast.IndexItem(span=self.span(start, end), index=children[0])

    def build_range_item(self, start: int, end: int, children: list[Any]) -> ast.RangeItem:
        first, last = children
        return ast.RangeItem(span=self.span(start, end), start=first, end=last)

    def build_span_item(self, start: int, end: int, children: list[Any]) -> ast.SpanItem:
        first, length = children
        return ast.SpanItem(span=self.span(start, end), start=first, length=length)

    def build_name(self, start: int, end: int, children: list[Any]) -> ast.Name:
        return self.name_of(children[0])

    def build_int(self, start: int, end: int, children: list[Any]) -> ast.IntLiteral:
        value = integer(children[0].text)
        assert value is not None  # the lexer put 0 for one that is too large
        return ast.IntLiteral(span=self.span(start, end), value=value)

    def build_float(self, start: int, end: int, children: list[Any]) -> ast.FloatLiteral:
        text = children[0].text
        return ast.FloatLiteral(span=self.span(start, end), value=float(text.replace("_", "")), text=text)

    def build_bool(self, start: int, end: int, children: list[Any]) -> ast.BoolLiteral:
        return ast.BoolLiteral(span=self.span(start, end), value=children[0].text == "true")

    def build_string(self, start: int, end: int, children: list[Any]) -> ast.StringLiteral:
        text = re.sub(r"\\(.)", lambda found: ESCAPES[found.group(1)], children[0].text[1:-1])
        return ast.StringLiteral(span=self.span(start, end), value=text)


STRING_HELP = 'strings stand only in `print("text", x)` and `assert(condition, "text")`'


def describe(node: ast.Expr) -> str:
    """An expression in words."""
    match node:
        case ast.Call():
            return f"a call of `{node.function.id}`"
        case ast.Member():
            return f"the member `.{node.name}`"
        case ast.IntLiteral() | ast.FloatLiteral() | ast.BoolLiteral() | ast.StringLiteral():
            return "a literal"
        case ast.Name():
            return f"`{node.id}`"
        case ast.Subscript():
            return "a slice with a fill" if node.fill is not None else "a slice"
    return "an expression"
