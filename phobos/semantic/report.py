"""Collecting diagnostics: the checker goes on after an error with a poison value that stops cascades."""

from __future__ import annotations

from phobos.diagnostics import WARNING, Diagnostic
from phobos.semantic.entities import POISON, Poison
from phobos.source import Span


class Reporter:
    """Errors and warnings of one check, without duplicates, in the order in which they were found."""

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self._seen: set[tuple[str, Span | None, str]] = set()

    def error(
        self, code: str, message: str, span: Span | None, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> Poison:
        """Records an error and returns the poison value that stands for what could not be computed."""
        self._add(self.errors, Diagnostic(code=code, message=message, span=span, notes=notes, help=help))
        return POISON

    def warning(
        self, code: str, message: str, span: Span | None, *, notes: tuple[str, ...] = (), help: str | None = None
    ) -> None:
        self._add(
            self.warnings,
            Diagnostic(code=code, message=message, span=span, severity=WARNING, notes=notes, help=help),
        )

    def _add(self, items: list[Diagnostic], diagnostic: Diagnostic) -> None:
        key = (diagnostic.code, diagnostic.span, diagnostic.message)
        if key not in self._seen:
            self._seen.add(key)
            items.append(diagnostic)
