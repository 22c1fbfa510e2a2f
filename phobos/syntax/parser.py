"""Source text to AST."""

from __future__ import annotations

from phobos.diagnostics import CompileError, Diagnostic
from phobos.source import SourceFile
from phobos.syntax import ast, tables
from phobos.syntax.builder import Builder
from phobos.syntax.driver import Driver
from phobos.syntax.lexer import MAX_ERRORS, Positions, lex


def parse(source: SourceFile) -> ast.Module:
    """The syntax tree of a file with at least one kernel.

    Raises CompileError, and nothing else whatever the text, with the errors found (at most 20, in order of place).
    """
    module = parse_any(source)
    if not module.kernels:
        empty = source.text.strip("\ufeff \t\r\n") == ""
        message = f"{source.name} is empty" if empty else f"{source.name} has no kernel"
        help = "a file needs at least one `kernel name(...) { ... }`"
        raise CompileError(Diagnostic(code="PH0126", message=message, span=source.start(), help=help), source)
    return module


def parse_any(source: SourceFile) -> ast.Module:
    """As `parse`, for a file that may be without a kernel."""
    rules = tables.load()
    positions = Positions(source)
    lexed = lex(source, rules, positions)
    builder = Builder(positions)
    driver = Driver(rules, lexed.tokens, builder, positions)
    module = driver.run()
    found = driver.diagnostics
    if not lexed.complete:
        # The parser saw a text that was cut off: what it says about the cut is not the user's.
        found = [d for d in found if _place(d)[0] < _place(lexed.diagnostics[-1])[0]]
    lines = {_place(d)[0] for d in builder.diagnostics}
    found = [d for d in found if _place(d)[0] not in lines]  # mostly the same mistake, seen a second time
    errors = _sorted([*lexed.diagnostics, *found, *builder.diagnostics])
    if errors:
        raise CompileError(errors[:MAX_ERRORS], source)
    assert module is not None
    return module


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    assert diagnostic.span is not None
    return diagnostic.span.line, diagnostic.span.column


def _sorted(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """In order of place, one for each place: two errors at one place are one mistake."""
    out: list[Diagnostic] = []
    for diagnostic in sorted(diagnostics, key=_place):
        if not out or _place(out[-1]) != _place(diagnostic):
            out.append(diagnostic)
    return out
