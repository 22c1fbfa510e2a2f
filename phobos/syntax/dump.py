"""An AST as indented text, for goldens, for comparing two trees and for looking at."""

from __future__ import annotations

from dataclasses import fields

from phobos.source import SourceFile, Span
from phobos.syntax import ast


def dump(node: ast.Node, *, spans: bool = False) -> str:
    """One line for each node: its field, type and plain values; with `spans`, also `line:column-line:column`."""
    out: list[str] = []
    _dump(node, "", 0, spans, out)
    return "\n".join(out) + "\n"


def _dump(node: ast.Node, label: str, depth: int, spans: bool, out: list[str]) -> None:
    plain: list[str] = []
    below: list[tuple[str, object]] = []
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, (Span, SourceFile)):
            continue
        if isinstance(value, (ast.Node, tuple)):
            below.append((field.name, value))
        elif value is not None:
            plain.append(f" {field.name}={value!r}")
    place = ""
    if spans:
        span = node.span
        place = f" @{span.line}:{span.column}-{span.end_line}:{span.end_column}"
    out.append(f"{'  ' * depth}{label}{type(node).__name__}{''.join(plain)}{place}")
    for name, value in below:
        if isinstance(value, ast.Node):
            _dump(value, f"{name}: ", depth + 1, spans, out)
        elif isinstance(value, tuple) and value:
            out.append(f"{'  ' * (depth + 1)}{name}:")
            for item in value:
                _dump(item, "", depth + 2, spans, out)
