"""Options that take `NAME=VALUE`, several of them at a time: reading them, and what their values may be.

Imports click only: the command line reads its options before it knows what else a command needs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*\Z")

Value = int | float | bool | str


class Assignments(click.ParamType):
    """`NAME=VALUE`, or several of them separated by blanks or commas; gives a tuple of (name, text)."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        pairs = []
        for item in value.replace(",", " ").split():
            name, equals, text = item.partition("=")
            if not equals or not name.isidentifier() or not text:
                self.fail(f"{item!r} is not NAME=VALUE", param, ctx)
            pairs.append((name, text))
        if not pairs:
            self.fail("is empty; give NAME=VALUE", param, ctx)
        return tuple(pairs)


class Positive(click.FloatRange):
    """A number above 0, which NaN is not."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if found != found:
            self.fail(f"{value} is no number", param, ctx)
        return found


class SpreadCommand(click.Command):
    """Lets one option take several assignments: `--dim N=64 M=32` is `--dim N=64 --dim M=32`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spreading = {o for p in self.params if isinstance(p.type, Assignments) for o in p.opts}
        out: list[str] = []
        option: str | None = None
        value_next = False
        for arg in args:
            if value_next:
                value_next = False
            elif arg in spreading:
                option, value_next = arg, True
            elif option is not None and _ASSIGNMENT.match(arg):
                out.append(option)
            else:
                option = None
            out.append(arg)
        return super().parse_args(ctx, out)


def flatten(pairs: Sequence[Sequence[tuple[str, str]]], option: str) -> dict[str, str]:
    """All assignments of one option; the same name with two values is wrong usage."""
    out: dict[str, str] = {}
    for name, text in (pair for group in pairs for pair in group):
        if out.setdefault(name, text) != text:
            raise click.UsageError(f"{option} gives {name} twice: {out[name]} and {text}")
    return out


def parse_value(text: str) -> Value:
    """A compile-time value as written: integer (decimal, hex, with _), float, true, false, else a word."""
    if text in ("true", "false"):
        return text == "true"
    if not text.isascii():  # Python reads the digits of every script
        return text
    for convert in (lambda t: int(t, 0), float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def integers(assignments: dict[str, str], option: str) -> dict[str, int]:
    """The values of `--dim`: non-negative integers, else wrong usage."""
    out = {}
    for name, text in assignments.items():
        value = parse_value(text)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise click.UsageError(f"{option} {name}={text}: not a size (an integer, 0 or more)")
        out[name] = value
    return out


def numbers(assignments: dict[str, str], option: str) -> dict[str, int | float | bool]:
    """The values of `--scalar`: numbers or true/false, else wrong usage."""
    out: dict[str, int | float | bool] = {}
    for name, text in assignments.items():
        value = parse_value(text)
        if isinstance(value, str):
            raise click.UsageError(f"{option} {name}={text}: not a number")
        out[name] = value
    return out
