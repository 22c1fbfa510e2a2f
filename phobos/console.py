"""What commands write on a terminal: diagnostics on standard error, in color where it is wanted; and JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from phobos.diagnostics import ERROR, Diagnostic
from phobos.source import SourceFile

_COLORS = {"error": "red", "warning": "yellow", "ok": "green", "missing": "yellow", "problem": "red"}


def paint(kind: str, text: str, *, err: bool = False) -> str:
    """`text` in the color of `kind` where the stream is a terminal that wants color (NO_COLOR is honoured)."""
    stream = sys.stderr if err else sys.stdout
    if kind not in _COLORS or "NO_COLOR" in os.environ or not stream.isatty():
        return text
    return click.style(text, fg=_COLORS[kind], bold=kind != "ok")


def print_diagnostics(diagnostics: Iterable[Diagnostic], source: SourceFile | None = None) -> None:
    """All of them with an empty line between, then how many errors there are if there are several."""
    errors = 0
    for number, diagnostic in enumerate(diagnostics):
        errors += diagnostic.severity == ERROR
        heading, newline, rest = diagnostic.render(source).partition("\n")
        click.echo(("\n" if number else "") + paint(diagnostic.severity, heading, err=True) + newline + rest, err=True)
    if errors > 1:
        click.echo(f"\n{errors} errors", err=True)


def json_text(data: Any) -> str:
    """As JSON, which has no infinities and no NaN: they are the words "inf", "-inf" and "nan"."""
    return json.dumps(spelled(data), indent=2, allow_nan=False)


def spelled(data: Any) -> Any:
    """The data with those words in it."""
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    if isinstance(data, dict):
        return {name: spelled(value) for name, value in data.items()}
    return [spelled(value) for value in data] if isinstance(data, (list, tuple)) else data
