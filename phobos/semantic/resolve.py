"""Attributes under a configuration: expressions of autotune names become numbers and words."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from phobos.diagnostics import nearest
from phobos.ir.options import INTEGER_OPTIONS, OPTION_WORDS, LaunchOptions, ScheduleOptions
from phobos.ir.tile import AlignedPromise
from phobos.ir.types import DType
from phobos.semantic import codes, expressions
from phobos.semantic.attributes import (
    KERNEL_ATTRIBUTES,
    LAUNCH_FIELDS,
    Choice,
    Environment,
    KernelAttributes,
    choice_text,
    has_count,
    plain_values,
    word_list,
)
from phobos.semantic.constants import evaluate_header, number_text
from phobos.semantic.context import Context
from phobos.semantic.entities import ConstVal, Poison
from phobos.semantic.report import Reporter
from phobos.syntax import ast

_LAUNCH_LIMITS = {"threads": (32, 1024), "min_blocks": (1, 32), "max_regs": (16, 255)}


def resolve_launch(attributes: KernelAttributes, names: Environment, reporter: Reporter) -> LaunchOptions:
    values: dict[str, int] = {}
    for name, node in zip(LAUNCH_FIELDS, attributes.launch, strict=False):
        found = evaluate_header(node, names, reporter)
        if isinstance(found, ConstVal):
            value = _launch_value(name, found.value, node, reporter)
            if value is not None:
                values[name] = value
    return LaunchOptions(**values)


def _launch_value(name: str, choice: Choice, node: ast.Expr, reporter: Reporter) -> int | None:
    low, high = _LAUNCH_LIMITS[name]
    if isinstance(choice, bool) or not isinstance(choice, int) or not low <= choice <= high:
        reporter.error(
            codes.BAD_ATTRIBUTE,
            f"{name.replace('_', ' ')} of `@launch` is an integer from {low} to {high}, not {choice_text(choice)}",
            node.span,
        )
        return None
    if name == "threads" and choice % 32:
        reporter.error(codes.BAD_ATTRIBUTE, f"threads of `@launch` is a multiple of 32, not {choice}", node.span)
        return None
    return choice


def resolve_options(
    attributes: KernelAttributes, names: Environment, words: Mapping[str, Choice], reporter: Reporter
) -> ScheduleOptions:
    """`names` are compile-time numbers, `words` the autotune names that stand for words."""
    values: dict[str, str | int] = {}
    for option, node in attributes.options:
        choice: Choice
        if isinstance(node, ast.Name) and node.id not in names:
            choice = words.get(node.id, node.id)
        else:
            found = evaluate_header(node, names, reporter)
            if isinstance(found, Poison):
                continue
            choice = found.value
        value = _option_value(option.id, choice, node, reporter)
        if value is not None:
            values[option.id] = value
    return ScheduleOptions(**values)  # type: ignore[arg-type]


def _option_value(option: str, choice: Choice, node: ast.Expr, reporter: Reporter) -> str | int | None:
    allowed = OPTION_WORDS[option]
    if isinstance(choice, str) and choice in allowed:
        return choice
    if isinstance(choice, int) and not isinstance(choice, bool) and option in INTEGER_OPTIONS:
        if choice in (32, 64) if option == "index" else 1 <= choice <= 16:
            return choice
    close = nearest(choice, allowed) if isinstance(choice, str) else None
    reporter.error(
        codes.UNKNOWN_OPTION,
        f"the option `{option}` takes {word_list(allowed)}{' or a number from 1 to 16' if option == 'stages' else ''}, "
        f"not `{choice_text(choice)}`",
        node.span,
        help=f"did you mean `{close}`?" if close else None,
    )
    return None


def check_choices(
    attributes: KernelAttributes,
    dims: Collection[str],
    pinned: Collection[str],
    constants: Environment,
    reporter: Reporter,
) -> None:
    """Checks what holds under every configuration: each value of an autotune name where it is used, plain words and
    numbers, and the dims of @aligned. `pinned` are names that only a configuration gives a value."""

    def choices(node: ast.Expr) -> tuple[Choice, ...]:
        if isinstance(node, ast.Name):
            if node.id in attributes.space:
                return attributes.space[node.id]
            if node.id not in constants and node.id not in pinned:
                return (node.id,)
        if not isinstance(node, (ast.Name, ast.IntLiteral, ast.FloatLiteral, ast.BoolLiteral)):
            return ()
        if isinstance(node, ast.Name) and node.id not in constants:
            return ()
        found = evaluate_header(node, constants, reporter)
        return (found.value,) if isinstance(found, ConstVal) else ()

    for name, node in zip(LAUNCH_FIELDS, attributes.launch, strict=False):
        for choice in choices(node):
            if isinstance(node, ast.Name) and choice == node.id:
                evaluate_header(node, constants, reporter)
            elif _launch_value(name, choice, node, reporter) is None:
                break
    for option, node in attributes.options:
        for choice in choices(node):
            if _option_value(option.id, choice, node, reporter) is None:
                break
    for dim, _ in attributes.aligned:
        if dim.id not in dims:
            close = nearest(dim.id, dims)
            reporter.error(
                codes.UNKNOWN_DIM,
                f"`{dim.id}` is not a dim of a tensor parameter",
                dim.span,
                help=f"did you mean `{close}`?" if close else f"dims are {word_list(tuple(dims))}" if dims else None,
            )


def resolve_aligned(
    attributes: KernelAttributes, dims: Mapping[str, int | str], names: Environment, reporter: Reporter
) -> tuple[AlignedPromise, ...]:
    """`dims`: every name used as a dim of a tensor, with its pinned value or itself."""
    out: list[AlignedPromise] = []
    for name, node in attributes.aligned:
        found = evaluate_header(node, names, reporter)
        if name.id not in dims or isinstance(found, Poison):
            continue  # reported with the header
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
        if not has_count(attribute, c.reporter, 1, 1, "@pipeline(n)"):
            continue
        for value in plain_values(attribute, c.reporter):
            found = expressions.constant_int(c, value, "the depth of a pipeline")
            if isinstance(found, int):
                if not 1 <= found <= 16:
                    c.error(codes.BAD_ATTRIBUTE, f"a pipeline has 1 to 16 stages, not {found}", value.span)
                else:
                    depth = found
    return depth
