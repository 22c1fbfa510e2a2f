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


_LETTERS = "xyz"
_Candidates = dict[str, tuple[DimExpr, SpanUse]]  # by how they would be written in `@grid`


def infer(c: Context, kernel: ast.Kernel, names: Environment) -> Grid | None:
    """The grid from spans `pid * L :+ L` (ceildiv(N, L) blocks) and positions `[pid]` (N blocks) on dims N."""
    used = [c.ids.get(("block", axis)) for axis in range(3)]
    found = [None if pid is None else _candidates(c, pid, names) for pid in used]
    open_axes = [axis for axis, these in enumerate(found) if these is not None and len(these) != 1]
    for axis in open_axes:
        _not_unique(c, kernel, axis, found)
    if open_axes:
        return None
    sizes = [ONE if these is None else next(iter(these.values()))[0] for these in found]
    return sizes[0], sizes[1], sizes[2]


def _candidates(c: Context, pid: Value, names: Environment) -> _Candidates:
    """The sizes that uses of `pid` give, each once."""
    out: _Candidates = {}
    sizes: set[str] = set()
    for use in c.uses:
        expr = _blocks(use, pid)
        if expr is not None and str(expr) not in sizes:
            sizes.add(str(expr))
            out[_written(c, use, expr, names)] = (expr, use)
    return out


def _written(c: Context, use: SpanUse, expr: DimExpr, names: Environment) -> str:
    """The size as `@grid` would say it for every configuration: with the length as it is written, where its names have
    values before the kernel begins."""
    if use.stated is None or use.length == 1:
        return str(expr)
    aside = Reporter()
    if _expression(use.stated, {}, names, aside) is None or aside.errors:
        return str(expr)
    return f"ceildiv({use.dim}, {c.text(use.stated)})"


def _not_unique(c: Context, kernel: ast.Kernel, axis: int, found: list[_Candidates | None]) -> None:
    letter, candidates = _LETTERS[axis], found[axis]
    # What `@grid` has to say: a size for every axis up to the last one that is used.
    last = max(a for a, these in enumerate(found) if these is not None)
    sizes = ["1" if these is None else next(iter(these)) if len(these) == 1 else "..." for these in found[: last + 1]]
    state = f"`@grid({', '.join(sizes)})` before the kernel, with the number of blocks along {letter}"
    if not candidates:
        notes: tuple[str, ...] = (
            f"no slice starts at `ctx.block.{letter} * L` with length L, nor is any position `ctx.block.{letter}`",
        )
        help = f"slice by `[ctx.block.{letter} * L :+ L]`, or state it: {state}"
    else:
        notes = tuple(f"line {use.span.line} gives {text}" for text, (_, use) in candidates.items())
        help = f"state it: {state}"
    c.error(
        codes.GRID_NOT_UNIQUE,
        f"the size of the grid along {letter} does not follow from the slices",
        kernel.name.span,
        notes=notes,
        help=help,
    )


def check_axes(c: Context, stated: int, span: Span) -> None:
    """Reports axes of the grid that the kernel uses and `@grid`, which states that many, leaves out."""
    for axis in range(stated, 3):
        if ("block", axis) in c.ids or ("grid", axis) in c.ids:
            use = next(f"ctx.{kind}.{_LETTERS[axis]}" for kind in ("block", "grid") if (kind, axis) in c.ids)
            c.error(
                codes.BAD_GRID,
                f"the kernel uses `{use}`, and `@grid` gives no size along {_LETTERS[axis]}",
                span,
                help=f"write {axis + 1} sizes, the last one how many blocks there are along {_LETTERS[axis]}",
            )
            return


def _blocks(use: SpanUse, pid: Value) -> DimExpr | None:
    """How many blocks cover the dim of a use that is one whole step of `pid`, else None."""
    length = 1 if use.length is None else use.length
    if use.start.constant != 0 or len(use.start.terms) != 1 or use.start.coefficient(pid) != length:
        return None
    if isinstance(use.dim, int):
        return DimConst(-(-use.dim // length))
    dim = DimName(use.dim)
    return dim if length == 1 else DimBinary("ceildiv", dim, DimConst(length))
