"""The grid: from `@grid(...)`, or from the spans that `ctx.block.*` indexes."""

from __future__ import annotations

from collections.abc import Mapping

from phobos.diagnostics import nearest
from phobos.ir.dims import DimBinary, DimConst, DimExpr, DimName
from phobos.ir.tile import Value
from phobos.semantic import codes
from phobos.semantic.attributes import Environment
from phobos.semantic.constants import FoldError, fold
from phobos.semantic.context import Context, SpanUse
from phobos.semantic.entities import ConstVal, Poison
from phobos.semantic.report import Reporter
from phobos.source import Span
from phobos.syntax import ast

Grid = tuple[DimExpr, DimExpr, DimExpr]
ONE = DimConst(1)
_OPERATORS = {"+": "+", "-": "-", "*": "*", "/": "//", "%": "%"}
_FUNCTIONS = {"min": "min", "max": "max", "tmin": "min", "tmax": "max", "ceildiv": "ceildiv"}
_FOLDED = {"+": "add", "-": "sub", "*": "mul", "//": "div", "%": "mod", **{f: f for f in ("min", "max", "ceildiv")}}


def explicit(
    exprs: tuple[ast.Expr, ...], dims: Mapping[str, int | str], names: Environment, reporter: Reporter
) -> Grid | None:
    """The grid of `@grid`; None after reporting what is wrong."""
    found = [_expression(e, dims, names, reporter) for e in exprs]
    for expr, node in zip(found, exprs, strict=True):
        if isinstance(expr, DimConst) and expr.value < 1:
            reporter.error(codes.BAD_GRID, f"a grid has at least one block per axis, not {expr.value}", node.span)
            return None
    if any(e is None for e in found):
        return None
    good = [e for e in found if e is not None] + [ONE] * (3 - len(found))
    return good[0], good[1], good[2]


def _expression(
    node: ast.Expr, dims: Mapping[str, int | str], names: Environment, reporter: Reporter
) -> DimExpr | None:
    if isinstance(node, ast.IntLiteral):
        return DimConst(node.value)
    if isinstance(node, ast.Name):
        if node.id in dims:
            dim = dims[node.id]
            return DimConst(dim) if isinstance(dim, int) else DimName(dim)
        if node.id in names:
            const = names[node.id]
            if isinstance(const, Poison):
                return None
            if const.is_int:
                return DimConst(int(const.value))
            reporter.error(codes.BAD_GRID, f"`{node.id}` is not an integer", node.span)
            return None
        close = nearest(node.id, [*dims, *names])
        reporter.error(
            codes.BAD_GRID,
            f"`{node.id}` is neither a dim nor a compile-time name",
            node.span,
            notes=("a grid is computed at launch from dims alone",),
            help=f"did you mean `{close}`?" if close else None,
        )
        return None
    if isinstance(node, ast.Binary) and node.op in _OPERATORS:
        return _combine(_OPERATORS[node.op], (node.left, node.right), node.span, dims, names, reporter)
    if isinstance(node, ast.Call) and node.function.id in _FUNCTIONS and len(node.args) == 2:
        return _combine(_FUNCTIONS[node.function.id], node.args, node.span, dims, names, reporter)
    if isinstance(node, ast.Unary) and node.op == "-":
        return _combine("-", (ast.IntLiteral(span=node.span, value=0), node.operand), node.span, dims, names, reporter)
    reporter.error(
        codes.BAD_GRID,
        "a grid is an expression of dims with + - * / % and min, max, ceildiv",
        node.span,
    )
    return None


def _combine(
    op: str,
    parts: tuple[ast.Expr, ...],
    span: Span,
    dims: Mapping[str, int | str],
    names: Environment,
    reporter: Reporter,
) -> DimExpr | None:
    left, right = (_expression(p, dims, names, reporter) for p in parts)
    if left is None or right is None:
        return None
    if isinstance(left, DimConst) and isinstance(right, DimConst):
        try:
            return DimConst(int(fold(_FOLDED[op], [ConstVal(left.value), ConstVal(right.value)]).value))
        except FoldError as error:
            reporter.error(codes.BAD_GRID, str(error), span)
            return None
    if op in ("//", "%", "ceildiv") and isinstance(right, DimConst) and right.value == 0:
        reporter.error(codes.BAD_GRID, "division by zero", span)
        return None
    return DimBinary(op, left, right)


# --- inference -------------------------------------------------------------------------------


def infer(c: Context, kernel: ast.Kernel) -> Grid | None:
    """The grid from spans `pid * L :+ L` (ceildiv(N, L) blocks) and positions `[pid]` (N blocks) on dims N."""
    out: list[DimExpr] = []
    failed = False
    for axis in range(3):
        pid = c.ids.get(("block", axis))
        found = None if pid is None else _axis(c, kernel, pid, "xyz"[axis])
        if pid is None:
            out.append(ONE)
        elif found is None:
            failed = True
        else:
            out.append(found)
    return None if failed else (out[0], out[1], out[2])


def _axis(c: Context, kernel: ast.Kernel, pid: Value, letter: str) -> DimExpr | None:
    candidates: dict[str, tuple[DimExpr, SpanUse]] = {}
    for use in c.uses:
        expr = _blocks(use, pid)
        if expr is not None:
            candidates.setdefault(str(expr), (expr, use))
    if len(candidates) == 1:
        return next(iter(candidates.values()))[0]
    if not candidates:
        notes: tuple[str, ...] = (
            f"no slice starts at `ctx.block.{letter} * L` with length L, nor is any position `ctx.block.{letter}`",
        )
        help = (
            f"slice by `[ctx.block.{letter} * L :+ L]`, or state it: `@grid(...)` before the kernel, with the number "
            f"of blocks along {letter}"
        )
    else:
        notes = tuple(f"line {use.span.line} gives {text}" for text, (_, use) in candidates.items())
        help = f"state it: `@grid({next(iter(candidates))}{'...' if letter != 'x' else ''})`"
        if letter != "x":
            help = f"state it with `@grid(...)`, {letter} being one of them"
    c.error(
        codes.GRID_NOT_UNIQUE,
        f"the size of the grid along {letter} does not follow from the slices",
        kernel.name.span,
        notes=notes,
        help=help,
    )
    return None


def _blocks(use: SpanUse, pid: Value) -> DimExpr | None:
    """How many blocks cover the dim of a use that is one whole step of `pid`, else None."""
    length = 1 if use.length is None else use.length
    if use.start.constant != 0 or len(use.start.terms) != 1 or use.start.coefficient(pid) != length:
        return None
    if isinstance(use.dim, int):
        return DimConst(-(-use.dim // length))
    dim = DimName(use.dim)
    return dim if length == 1 else DimBinary("ceildiv", dim, DimConst(length))
