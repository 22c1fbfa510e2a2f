"""Attributes of kernels and loops: validated as text for the signature, resolved under a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from phobos.diagnostics import nearest
from phobos.ir.options import (
    DOT_KINDS,
    INTEGER_OPTIONS,
    OPTION_WORDS,
    LaunchOptions,
    ScheduleOptions,
    TensorCoreRequest,
)
from phobos.ir.tile import AlignedPromise
from phobos.ir.types import DType
from phobos.semantic import codes, expressions
from phobos.semantic.constants import evaluate_header, number_text
from phobos.semantic.context import Context
from phobos.semantic.entities import ConstVal, Poison
from phobos.semantic.report import Reporter
from phobos.source import Span
from phobos.syntax import ast

KERNEL_ATTRIBUTES = ("launch", "autotune", "aligned", "tensorcore", "dynshared", "grid", "options")
RESERVED = ("cluster", "persistent")
LAUNCH_FIELDS = ("threads", "min_blocks", "max_regs")
_LAUNCH_LIMITS = {"threads": (32, 1024), "min_blocks": (1, 32), "max_regs": (16, 255)}
TENSORCORE_KINDS = tuple(k for k in DOT_KINDS if k != "ieee")
ALL_OPTION_WORDS = frozenset(w for words in OPTION_WORDS.values() for w in words)

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
                help=f"did you mean `@{close}`?" if close else f"attributes are {_list(KERNEL_ATTRIBUTES, '@')}",
            )
        else:
            out.update(_READERS[name](attribute, constants, reporter))
    return KernelAttributes(**out)


def _list(names: tuple[str, ...], prefix: str = "") -> str:
    return ", ".join(f"`{prefix}{n}`" for n in names)


def _plain_values(attribute: ast.Attribute, reporter: Reporter) -> list[ast.Expr]:
    """Arguments that are plain expressions; others are reported."""
    out: list[ast.Expr] = []
    for arg in attribute.args:
        if arg.name is not None or isinstance(arg.value, ast.ListExpr):
            reporter.error(
                codes.BAD_ATTRIBUTE, f"`@{attribute.name}` takes plain values, as in `@{attribute.name}(...)`", arg.span
            )
        else:
            out.append(arg.value)
    return out


def _count(attribute: ast.Attribute, reporter: Reporter, least: int, most: int, usage: str) -> bool:
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
    if not _count(attribute, reporter, 1, 3, "@launch(threads[, min_blocks[, max_regs]])"):
        return {}
    return {"launch": tuple(_plain_values(attribute, reporter))}


def _dynshared(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    return {"dynshared": True} if _count(attribute, reporter, 0, 0, "@dynshared") else {}


def _grid(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    if not _count(attribute, reporter, 1, 3, "@grid(x[, y[, z]])"):
        return {}
    values = tuple(_plain_values(attribute, reporter))
    return {"grid": values, "grid_span": attribute.span} if len(values) == len(attribute.args) else {}


def _tensorcore(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    kind, require = None, False
    known = (*TENSORCORE_KINDS, "require")
    for value in _plain_values(attribute, reporter):
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
                help=f"did you mean `{close}`?" if close else f"its words are {_list(known)}",
            )
    return {"tensorcore": TensorCoreRequest(kind=kind or "f16", require=require)}


def _aligned(attribute: ast.Attribute, constants: Environment, reporter: Reporter) -> dict:
    out: list[tuple[ast.Name, ast.Expr]] = []
    if not attribute.args:
        _count(attribute, reporter, 1, 15, "@aligned(DIM = TILE, ...)")
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
        _count(attribute, reporter, 1, len(OPTION_WORDS), "@options(name = word, ...)")
    for arg in attribute.args:
        if arg.name is None or arg.relation != "=" or isinstance(arg.value, ast.ListExpr):
            reporter.error(codes.BAD_ATTRIBUTE, "expected `name = word` in `@options`", arg.span)
        elif arg.name.id not in OPTION_WORDS:
            close = nearest(arg.name.id, OPTION_WORDS)
            reporter.error(
                codes.UNKNOWN_OPTION,
                f"unknown option `{arg.name.id}`",
                arg.name.span,
                help=f"did you mean `{close}`?" if close else f"options are {_list(tuple(OPTION_WORDS))}",
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
        _count(attribute, reporter, 1, 100, "@autotune(X in [a, b], ...)")
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
    seen: list[tuple[type, Choice]] = []
    for value, item in zip(values, node.items, strict=True):
        if (type(value), value) in seen:
            reporter.error(codes.BAD_SPACE, f"`{choice_text(value)}` is listed twice", item.span)
            return ()
        seen.append((type(value), value))
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


# --- under a configuration -------------------------------------------------------------------


def resolve_launch(attributes: KernelAttributes, names: Environment, reporter: Reporter) -> LaunchOptions:
    values: dict[str, int] = {}
    for name, node in zip(LAUNCH_FIELDS, attributes.launch, strict=False):
        found = evaluate_header(node, names, reporter)
        if isinstance(found, Poison):
            continue
        low, high = _LAUNCH_LIMITS[name]
        what = name.replace("_", " ")
        if not found.is_int or not low <= int(found.value) <= high:
            reporter.error(
                codes.BAD_ATTRIBUTE,
                f"{what} of `@launch` is an integer from {low} to {high}, not {number_text(found.value)}",
                node.span,
            )
        elif name == "threads" and int(found.value) % 32:
            reporter.error(
                codes.BAD_ATTRIBUTE, f"threads of `@launch` is a multiple of 32, not {found.value}", node.span
            )
        else:
            values[name] = int(found.value)
    return LaunchOptions(**values)


def resolve_options(
    attributes: KernelAttributes, names: Environment, words: Mapping[str, Choice], reporter: Reporter
) -> ScheduleOptions:
    """`names` are compile-time numbers, `words` the autotune names that stand for words."""
    values: dict[str, str | int] = {}
    for option, node in attributes.options:
        allowed = OPTION_WORDS[option.id]
        choice: Choice | Poison
        if isinstance(node, ast.Name) and node.id in words:
            choice = words[node.id]
        elif isinstance(node, ast.Name) and node.id not in names:
            choice = node.id
        else:
            found = evaluate_header(node, names, reporter)
            choice = found if isinstance(found, Poison) else found.value
        if isinstance(choice, Poison):
            continue
        if option.id == "index" and choice in ("32", "64"):
            choice = int(choice)
        integer = isinstance(choice, int) and not isinstance(choice, bool)
        good = choice in allowed if isinstance(choice, str) else integer and option.id in INTEGER_OPTIONS
        if good and option.id == "index" and integer:
            good = choice in (32, 64)
        if good and option.id == "stages" and integer:
            good = 1 <= int(choice) <= 16
        if not good:
            close = nearest(choice, allowed) if isinstance(choice, str) else None
            kinds = _list(allowed) + (" or a number from 1 to 16" if option.id == "stages" else "")
            reporter.error(
                codes.UNKNOWN_OPTION,
                f"the option `{option.id}` takes {kinds}, not `{choice_text(choice)}`",
                node.span,
                help=f"did you mean `{close}`?" if close else None,
            )
            continue
        assert isinstance(choice, (str, int))
        values[option.id] = choice
    return ScheduleOptions(**values)  # type: ignore[arg-type]


def resolve_aligned(
    attributes: KernelAttributes, dims: Mapping[str, int | str], names: Environment, reporter: Reporter
) -> tuple[AlignedPromise, ...]:
    """`dims`: every name used as a dim of a tensor, with its pinned value or itself."""
    out: list[AlignedPromise] = []
    for name, node in attributes.aligned:
        found = evaluate_header(node, names, reporter)
        if name.id not in dims:
            close = nearest(name.id, dims)
            reporter.error(
                codes.UNKNOWN_DIM,
                f"`{name.id}` is not a dim of a tensor parameter",
                name.span,
                help=f"did you mean `{close}`?" if close else None,
            )
            continue
        if isinstance(found, Poison):
            continue
        if not found.is_int or found.dtype is DType.BOOL or int(found.value) < 1:
            reporter.error(
                codes.BAD_ALIGNED, f"`@aligned` takes a positive integer, not {number_text(found.value)}", node.span
            )
            continue
        pinned, multiple = dims[name.id], int(found.value)
        if isinstance(pinned, int) and pinned % multiple:
            reporter.error(
                codes.BAD_ALIGNED, f"`{name.id}` is {pinned}, which is not a multiple of {multiple}", name.span
            )
            continue
        out.append(AlignedPromise(dim=name.id, multiple=multiple, span=name.span))
    return tuple(out)


def pipeline(c: Context, node: ast.For) -> int | None:
    """The depth of `@pipeline(n)` before a loop; any other attribute there is an error."""
    depth: int | None = None
    seen = False
    for attribute in node.attributes:
        if attribute.name != "pipeline":
            what = "a kernel" if attribute.name in KERNEL_ATTRIBUTES else None
            close = nearest(attribute.name, ["pipeline"])
            c.error(
                codes.BAD_ATTRIBUTE if what else codes.UNKNOWN_ATTRIBUTE,
                f"`@{attribute.name}` stands before {what}, not a loop"
                if what
                else f"unknown attribute `@{attribute.name}`",
                attribute.span,
                help=f"did you mean `@{close}`?" if close and not what else None,
            )
            continue
        if seen:
            c.error(codes.DUPLICATE_ATTRIBUTE, "`@pipeline` is given twice", attribute.span)
            continue
        seen = True
        if not _count(attribute, c.reporter, 1, 1, "@pipeline(n)"):
            continue
        for value in _plain_values(attribute, c.reporter):
            found = expressions.constant_int(c, value, "the depth of a pipeline")
            if isinstance(found, int):
                if not 1 <= found <= 16:
                    c.error(codes.BAD_ATTRIBUTE, f"a pipeline has 1 to 16 stages, not {found}", value.span)
                else:
                    depth = found
    return depth
