"""Types as written in the text -> types of the IR."""

from __future__ import annotations

from phobos.diagnostics import nearest
from phobos.ir.types import DTYPE_BY_NAME, DType, ScalarType, TileType
from phobos.semantic import codes, expressions
from phobos.semantic.context import Context
from phobos.semantic.entities import POISON, Poison
from phobos.semantic.report import Reporter
from phobos.semantic.shapes import MAX_RANK
from phobos.source import Span
from phobos.syntax import ast


def dtype_of(name: ast.Name, dtypes: dict[str, DType], reporter: Reporter) -> DType | Poison:
    """The element type called `name`."""
    found = dtypes.get(name.id) or DTYPE_BY_NAME.get(name.id)
    if found is not None:
        return found
    close = nearest(name.id, [*DTYPE_BY_NAME, *dtypes])
    return reporter.error(
        codes.UNKNOWN_TYPE,
        f"unknown type `{name.id}`",
        name.span,
        help=f"did you mean `{close}`?" if close else f"element types are {', '.join(DTYPE_BY_NAME)}",
    )


def extents(c: Context, nodes: tuple[ast.Expr, ...], span: Span) -> tuple[int, ...] | Poison:
    """Static extents of a tile."""
    if not 1 <= len(nodes) <= MAX_RANK:
        return c.error(codes.BAD_EXTENT, f"a tile has 1 to {MAX_RANK} axes, not {len(nodes)}", span)
    out: list[int] = []
    for node in nodes:
        n = expressions.constant_int(c, node, "a tile extent")
        if isinstance(n, Poison):
            return POISON
        if n < 1:
            return c.error(codes.BAD_EXTENT, f"a tile extent is positive, not {n}", node.span)
        out.append(n)
    return tuple(out)


def value_type(c: Context, node: ast.TypeExpr) -> ScalarType | TileType | Poison:
    """The type of a declared `let`, `var`, parameter or result of a function."""
    if isinstance(node, ast.ScalarTypeExpr):
        dtype = dtype_of(node.dtype, c.dtypes, c.reporter)
        return dtype if isinstance(dtype, Poison) else ScalarType(dtype)
    assert isinstance(node, ast.ShapedTypeExpr)
    dtype = dtype_of(node.dtype, c.dtypes, c.reporter)
    if node.kind != "tile":
        return c.error(
            codes.UNKNOWN_TYPE,
            "`tensor` is a type of kernel parameters only",
            node.span,
            help="a value of the block is a `tile<T>[...]`",
        )
    shape = extents(c, node.shape, node.span)
    if isinstance(dtype, Poison) or isinstance(shape, Poison):
        return POISON
    return TileType(dtype, shape)
