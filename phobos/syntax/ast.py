"""The untyped abstract syntax tree: frozen, spanned, exactly what was written."""

from __future__ import annotations

from dataclasses import dataclass

from phobos.source import SourceFile, Span


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    span: Span


# --- expressions -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Expr(Node):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Name(Expr):
    id: str


@dataclass(frozen=True, kw_only=True, eq=False)
class IntLiteral(Expr):
    value: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatLiteral(Expr):
    """`text` is the literal as written (`-inf` is Unary minus of FloatLiteral inf)."""

    value: float
    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class BoolLiteral(Expr):
    value: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class StringLiteral(Expr):
    value: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Unary(Expr):
    op: str  # - ! ~
    operand: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class Binary(Expr):
    op: str  # * / % + - << >> & ^ | == != < <= > >= && ||
    left: Expr
    right: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class Member(Expr):
    """`base.name`, as in ctx.block.x."""

    base: Expr
    name: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Call(Expr):
    """`function(args)`; `function` is a plain name: built-in, fn, or dtype (a conversion)."""

    function: Name
    args: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subscript(Expr):
    """`base[items]`; `fill` is the literal of `K[...] else -inf`, if given."""

    base: Expr
    items: tuple["SubscriptItem", ...]
    fill: Expr | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class SubscriptItem(Node):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class IndexItem(SubscriptItem):
    """`A[i]`: an integer scalar drops the axis, an integer tile gathers."""

    index: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class RangeItem(SubscriptItem):
    """`A[s : e]`, `A[:]`, `A[: e]`, `A[s :]`."""

    start: Expr | None
    end: Expr | None


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanItem(SubscriptItem):
    """`A[s :+ n]`: n elements from s."""

    start: Expr
    length: Expr


# --- types as written ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class TypeExpr(Node):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class ScalarTypeExpr(TypeExpr):
    dtype: Name


@dataclass(frozen=True, kw_only=True, eq=False)
class ShapedTypeExpr(TypeExpr):
    """`tensor<T>[d0, ...]` or `tile<T>[r, c]`; `kind` is "tensor" or "tile"."""

    kind: str
    dtype: Name
    shape: tuple[Expr, ...]


# --- statements ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Stmt(Node):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Let(Stmt):
    name: Name
    type: TypeExpr | None
    value: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class Var(Stmt):
    name: Name
    type: TypeExpr | None
    value: Expr | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Const(Stmt):
    """`const N = 12`, at file level or in a body."""

    name: Name
    value: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class Assign(Stmt):
    """`target op value`; target is a Name or a Subscript; op is = += -= *= /=."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class For(Stmt):
    """`for<unroll U> index in range(args) { body }`; attributes hold @pipeline."""

    attributes: tuple["Attribute", ...]
    unroll: Expr | None
    index: Name
    args: tuple[Expr, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class While(Stmt):
    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class If(Stmt):
    """`orelse` holds a single If for `else if`."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Break(Stmt):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Continue(Stmt):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Return(Stmt):
    value: Expr | None


@dataclass(frozen=True, kw_only=True, eq=False)
class ExprStmt(Stmt):
    value: Expr


# --- declarations ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ListExpr(Node):
    """The set of an @autotune entry: `[a, b]` (bracket "[") or `{p, q}` (bracket "{")."""

    bracket: str
    items: tuple[Expr, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class AttributeArg(Node):
    """One argument: `value`, `name = value` (relation "=") or `name in [..]` (relation "in").

    Option words such as `tf32`, `auto`, `fast`, `on` are plain Names here.
    """

    name: Name | None
    relation: str | None
    value: Expr | ListExpr


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribute(Node):
    name: str
    args: tuple[AttributeArg, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Param(Node):
    """A parameter of a kernel or fn. `type` is None for a generic fn parameter; `const` marks a compile-time one."""

    name: Name
    type: TypeExpr | None
    const: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel(Node):
    attributes: tuple[Attribute, ...]
    name: Name
    dtype_params: tuple[Name, ...]
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Function(Node):
    name: Name
    params: tuple[Param, ...]
    returns: TypeExpr | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Module(Node):
    source: SourceFile
    constants: tuple[Const, ...]
    functions: tuple[Function, ...]
    kernels: tuple[Kernel, ...]
