"""Attributes of kernels and loops: validated as text for the signature, resolved under a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from phobos.diagnostics import nearest
from phobos.ir.exact import among
from phobos.ir.options import (
    DOT_KINDS,
    OPTION_WORDS,
    TensorCoreRequest,
)
from phobos.semantic import codes
from phobos.semantic.constants import evaluate_header, number_text
from phobos.semantic.entities import ConstVal, Poison
from phobos.semantic.report import Reporter
from phobos.source import Span
from phobos.syntax import ast

KERNEL_ATTRIBUTES = ("launch", "autotune", "aligned", "tensorcore", "dynshared", "grid", "options")
RESERVED = ("cluster", "persistent")
LAUNCH_FIELDS = ("threads", "min_blocks", "max_regs")
TENSORCORE_KINDS = tuple(k for k in DOT_KINDS if k != "ieee")
ALL_OPTION_WORDS = frozenset(w for words in OPTION_WORDS.values() for w in words)

_USAGE = {
    "launch": "@launch(128)",
    "grid": "@grid(ceildiv(N, 64))",
    "tensorcore": "@tensorcore(tf32)",
    "pipeline": "@pipeline(2)",
}

Choice = int | float | bool | str
Environment = Mapping[str, ConstVal | Poison]


@dataclass(frozen=True)
class KernelAttributes:
    """Attributes of a kernel as written, after validation of names and shapes of their arguments.

    `space`: autotune name -> its values in order. `launch`, `options`, `aligned` and `grid` hold expressions,
    which a configuration resolves.
    """

    space: dict[str, tuple[Choice, ...]] = field(default_factory=dict)
    space_spans: dict[str, Span] = field(default_factory=dict)
    launch: tuple[ast.Expr, ...] = ()
    aligned: tuple[tuple[ast.Name, ast.Expr], ...] = ()
    tensorcore: TensorCoreRequest | None = None
    dynshared: bool = False
    grid: tuple[ast.Expr, ...] | None = None
    grid_span: Span | None = None
    options: tuple[tuple[ast.Name, ast.Expr], ...] = ()


def validate(kernel: ast.Kernel, constants: Environment, reporter: Reporter) -> KernelAttributes:
    """Reads the attributes of a kernel; what is wrong is reported and left out."""
    out: dict = {}
    seen: dict[str, Span] = {}
    for attribute in kernel.attributes:
        name = attribute.name
        if name in seen:
            reporter.error(
                codes.DUPLICATE_ATTRIBUTE, f"`@{name}` is already given in line {seen[name].line}", attribute.span
            )
            continue
        seen[name] = attribute.span
        if name in RESERVED:
            reporter.error(codes.RESERVED_ATTRIBUTE, f"`@{name}` is reserved and not supported yet", attribute.span)
        elif name == "pipeline":
            reporter.error(codes.BAD_ATTRIBUTE, "`@pipeline(n)` stands before a `for`, not a kernel", attribute.span)
        elif name not in KERNEL_ATTRIBUTES:
            close = nearest(name, [*KERNEL_ATTRIBUTES, "pipeline"])
            reporter.error(
                codes.UNKNOWN_ATTRIBUTE,
                f"unknown attribute `@{name}`",
                attribute.span,
                help=f"did you mean `@{close}`?" if close else f"attributes are {word_list(KERNEL_ATTRIBUTES, '@')}",
            )
        else:
            out.update(_READERS[name](attribute, constants, reporter))
    return KernelAttributes(**out)


def word_list(names: tuple[str, ...], prefix: str = "") -> str:
    return ", ".join(f"`{prefix}{n}`" for n in names)


def plain_values(attribute: ast.Attribute, reporter: Reporter) -> list[ast.Expr]:
    """Arguments that are plain expressions; others are reported."""
    out: list[ast.Expr] = []
    for arg in attribute.args:
        if arg.name is not None or isinstance(arg.value, ast.ListExpr):
            reporter.error(
                codes.BAD_ATTRIBUTE, f"`@{attribute.name}` takes its values by position", arg.span,
                help=f"write `{_USAGE[attribute.name]}`",
            )  # fmt: skip
        else:
            out.append(arg.value)
    return out


def has_count(attribute: ast.Attribute, reporter: Reporter, least: int, most: int, usage: str) -> bool:
    n = len(attribute.args)
    if least <= n <= most:
        return True
    reporter.error(
        codes.BAD_ATTRIBUTE,
        f"`@{attribute.name}` takes {least if least == most else f'{least} to {most}'} arguments, not {n}",
        attribute.span,
        help=f"`{usage}`",
    )
    return False


def _launch(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    if not has_count(attribute, reporter, 1, 3, "@launch(threads[, min_blocks[, max_regs]])"):
        return {}
    return {"launch": tuple(plain_values(attribute, reporter))}


def _dynshared(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    return {"dynshared": True} if has_count(attribute, reporter, 0, 0, "@dynshared") else {}


def _grid(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    if not has_count(attribute, reporter, 1, 3, "@grid(x[, y[, z]])"):
        return {}
    values = tuple(plain_values(attribute, reporter))
    return {"grid": values, "grid_span": attribute.span} if len(values) == len(attribute.args) else {}


def _tensorcore(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    kind, require = None, False
    known = (*TENSORCORE_KINDS, "require")
    for value in plain_values(attribute, reporter):
        word = value.id if isinstance(value, ast.Name) else None
        if word == "require":
            require = True
        elif word in TENSORCORE_KINDS:
            if kind is not None:
                reporter.error(codes.BAD_ATTRIBUTE, f"`@tensorcore` takes one kind, and `{kind}` is given", value.span)
            kind = kind or word
        else:
            close = nearest(word, known) if word else None
            reporter.error(
                codes.BAD_ATTRIBUTE,
                f"`@tensorcore` does not know {'`' + word + '`' if word else 'this argument'}",
                value.span,
                help=f"did you mean `{close}`?" if close else f"its words are {word_list(known)}",
            )
    return {"tensorcore": TensorCoreRequest(kind=kind or "f16", require=require)}


def _aligned(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    out: list[tuple[ast.Name, ast.Expr]] = []
    if not attribute.args:
        has_count(attribute, reporter, 1, 15, "@aligned(DIM = TILE, ...)")
    for arg in attribute.args:
        if arg.name is None or arg.relation != "=" or isinstance(arg.value, ast.ListExpr):
            reporter.error(codes.BAD_ALIGNED, "expected `DIM = TILE` in `@aligned`", arg.span)
        elif any(arg.name.id == name.id for name, _ in out):
            reporter.error(codes.BAD_ALIGNED, f"`{arg.name.id}` is promised twice", arg.name.span)
        else:
            out.append((arg.name, arg.value))
    return {"aligned": tuple(out)}


def _options(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    out: list[tuple[ast.Name, ast.Expr]] = []
    if not attribute.args:
        has_count(attribute, reporter, 1, len(OPTION_WORDS), "@options(name = word, ...)")
    for arg in attribute.args:
        if arg.name is None or arg.relation != "=" or isinstance(arg.value, ast.ListExpr):
            reporter.error(codes.BAD_ATTRIBUTE, "expected `name = word` in `@options`", arg.span)
        elif arg.name.id not in OPTION_WORDS:
            close = nearest(arg.name.id, OPTION_WORDS)
            reporter.error(
                codes.UNKNOWN_OPTION,
                f"unknown option `{arg.name.id}`",
                arg.name.span,
                help=f"did you mean `{close}`?" if close else f"options are {word_list(tuple(OPTION_WORDS))}",
            )
        elif any(arg.name.id == name.id for name, _ in out):
            reporter.error(codes.BAD_ATTRIBUTE, f"the option `{arg.name.id}` is given twice", arg.name.span)
        else:
            out.append((arg.name, arg.value))
    return {"options": tuple(out)}


# --- @autotune -------------------------------------------------------------------------------


def _autotune(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    space: dict[str, tuple[Choice, ...]] = {}
    spans: dict[str, Span] = {}
    if not attribute.args:
        has_count(attribute, reporter, 1, 100, "@autotune(X in [a, b], ...)")
    for arg in attribute.args:
        if arg.name is None or arg.relation != "in" or not isinstance(arg.value, ast.ListExpr):
            reporter.error(codes.BAD_SPACE, "expected `NAME in [a, b]` or `NAME in {a, b, c}` in `@autotune`", arg.span)
            continue
        name = arg.name.id
        if name in space:
            reporter.error(codes.BAD_SPACE, f"`{name}` is tuned twice", arg.name.span)
            continue
        if name in ALL_OPTION_WORDS or name in TENSORCORE_KINDS or name == "require":
            reporter.error(
                codes.BAD_SPACE, f"`{name}` is an option word and cannot be an autotune name", arg.name.span,
                help="choose another name",
            )  # fmt: skip
            continue
        if name in constants:
            reporter.error(codes.DUPLICATE_NAME, f"`{name}` is a constant of the file already", arg.name.span)
            continue
        values = _space(arg.value, constants, reporter)
        # A wrong set still declares its name, so that uses of it are not reported too.
        space[name] = values or (1,)
        spans[name] = arg.span
    return {"space": space, "space_spans": spans}


def _space(node: ast.ListExpr, constants: Environment, reporter: Reporter) -> tuple[Choice, ...]:
    values: list[Choice] = []
    for item in node.items:
        if isinstance(item, ast.Name) and item.id not in constants:
            if item.id not in ALL_OPTION_WORDS:
                close = nearest(item.id, [*ALL_OPTION_WORDS, *constants])
                reporter.error(
                    codes.BAD_SPACE,
                    f"`{item.id}` is neither a constant of the file nor an option word",
                    item.span,
                    help=f"did you mean `{close}`?" if close else None,
                )
                return ()
            values.append(item.id)
            continue
        found = evaluate_header(item, constants, reporter)
        if isinstance(found, Poison):
            return ()
        values.append(found.value)
    if not values:
        reporter.error(codes.BAD_SPACE, "the set is empty", node.span)
        return ()
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if node.bracket == "[" and len(numbers) == len(values) == 2 and numbers[0] < numbers[1]:
        return _doubling(node, numbers[0], numbers[1], reporter)
    for number, (value, item) in enumerate(zip(values, node.items, strict=True)):
        if among(value, values[:number]):
            reporter.error(codes.BAD_SPACE, f"`{choice_text(value)}` is listed twice", item.span)
            return ()
    return tuple(values)


def _doubling(node: ast.ListExpr, low: int | float, high: int | float, reporter: Reporter) -> tuple[Choice, ...]:
    if low <= 0 or not high < float("inf"):
        reporter.error(
            codes.BAD_SPACE,
            f"[{choice_text(low)}, {choice_text(high)}] doubles from its first value, which must be positive",
            node.span,
            help=f"list the values: `{{{choice_text(low)}, {choice_text(high)}}}`",
        )
        return ()
    out: list[Choice] = []
    value = low
    while value < high:
        out.append(value)
        value *= 2
    return (*out, high)


def choice_text(value: Choice) -> str:
    return value if isinstance(value, str) else number_text(value)


_READERS = {
    "launch": _launch,
    "autotune": _autotune,
    "aligned": _aligned,
    "tensorcore": _tensorcore,
    "dynshared": _dynshared,
    "grid": _grid,
    "options": _options,
}
