"""How diagnostics show source lines that are longer than a screen."""

from __future__ import annotations

import pytest

from phobos.diagnostics import Diagnostic
from phobos.source import SourceFile, Span


@pytest.mark.parametrize(("start", "end"), [(1, 4), (150, 160), (1500, 1503), (2990, 3001), (100, 2900), (3001, 3002)])
def test_long_lines_are_cut_around_the_place(start: int, end: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(3000))
    span = Span(file="k.ph", line=1, column=start, end_line=1, end_column=end)
    shown = Diagnostic(code="PH0000", message="m", span=span).render(SourceFile("k.ph", text)).splitlines()
    assert all(len(line) <= 175 for line in shown)
    line, carets = shown[3].removeprefix("1 | "), shown[4].removeprefix("  | ")
    first = len(carets) - len(carets.lstrip())
    marked = line[first : len(carets)]
    assert set(carets.strip()) == {"^"} and line.strip(".") in text
    whole = text[start - 1 : end - 1]
    assert marked and whole.startswith(marked) if whole else first == len(line)


def test_short_lines_are_shown_whole() -> None:
    text = "x" * 160
    span = Span(file="k.ph", line=1, column=3, end_line=1, end_column=5)
    shown = Diagnostic(code="PH0000", message="m", span=span).render(SourceFile("k.ph", text)).splitlines()
    assert shown[3:] == [f"1 | {text}", "  |   ^^"]
