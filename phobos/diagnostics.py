"""Diagnostics: one object for the text with carets, for JSON and for Python exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phobos.source import SourceFile, Span

ERROR = "error"
WARNING = "warning"
_WIDEST = 160  # characters of a source line that are shown


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """What is wrong, where, and what to do about it.

    `code` is stable (`PH0123`), `span` is None where no source is concerned (a missing GPU),
    `notes` are further facts, `help` is the fix where one is known.
    """

    code: str
    message: str
    span: Span | None = None
    severity: str = ERROR
    notes: tuple[str, ...] = ()
    help: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "span": self.span.to_json() if self.span else None,
            "notes": list(self.notes),
            "help": self.help,
        }

    def render(self, source: SourceFile | None = None) -> str:
        """The diagnostic as text: heading, position, source line, carets, notes, help."""
        out = [f"{self.severity}[{self.code}]: {self.message}"]
        if self.span is not None:
            span = self.span
            out.append(f"  --> {span.file}:{span.line}:{span.column}")
            text = source.line(span.line) if source is not None and source.name == span.file else ""
            if text:
                gutter = len(str(span.line))
                end = span.end_column if span.end_line == span.line else len(text) + 1
                text, column, end = _excerpt(text, span.column, end)
                # Tabs are kept in the padding, so that the carets stay under their text.
                pad = "".join(c if c == "\t" else " " for c in text[: column - 1])
                carets = "^" * max(1, end - column)
                out.append(f"{' ' * gutter} |")
                out.append(f"{span.line} | {text}")
                out.append(f"{' ' * gutter} | {pad}{carets}")
        out.extend(f"  note: {note}" for note in self.notes)
        if self.help:
            out.append(f"  help: {self.help}")
        return "\n".join(out)


def _excerpt(text: str, column: int, end: int) -> tuple[str, int, int]:
    """A part of a very long line, with the columns moved into it."""
    if len(text) <= _WIDEST:
        return text, column, end
    first = max(0, min(column - 1 - _WIDEST // 3, len(text) - _WIDEST))
    last = first + _WIDEST
    before, after = "..." if first else "", "..." if last < len(text) else ""
    moved = len(before) - first
    return f"{before}{text[first:last]}{after}", column + moved, min(end, last + 1) + moved


def render_all(diagnostics: Iterable[Diagnostic], source: SourceFile | None = None) -> str:
    return "\n\n".join(d.render(source) for d in diagnostics)


class PhobosError(Exception):
    """Base of all errors that a user can cause. Carries `diagnostics`, a tuple, never empty."""

    def __init__(self, diagnostics: Iterable[Diagnostic] | Diagnostic, source: SourceFile | None = None):
        items = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        if not items:
            raise ValueError("an error needs at least one diagnostic")
        self.diagnostics: tuple[Diagnostic, ...] = items
        self.source = source
        super().__init__(render_all(items, source))

    def __reduce__(self) -> tuple[object, ...]:
        # An error crosses from one process to another with what it was made of, not with its text.
        return type(self), (self.diagnostics, self.source)


class CompileError(PhobosError):
    """The kernel text, its configuration or its compilation is at fault."""


class LaunchError(PhobosError):
    """A call is at fault: arguments, device, missing GPU or driver."""


# What pyproject.toml lists and these packages import: module -> package. tests/test_packaging.py compares.
PACKAGES = {
    "lark": "lark", "jinja2": "jinja2", "markupsafe": "jinja2", "numpy": "numpy", "rich": "rich", "click": "click",
    "cuda": "cuda-bindings",
}  # fmt: skip


def missing_package(error: ModuleNotFoundError) -> Diagnostic | None:
    """That a package is not installed which Phobos needs, where that is what the error says."""
    package = PACKAGES.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    return Diagnostic(
        code="PH0904",
        message=f"the package {package} is not installed: there is no module {error.name!r}",
        help=f"`python -m pip install {package}`, or install Phobos again",
    )


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known name closest to `word`, if any is close enough to be a likely typo. What is no text is like none."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if isinstance(word, str) else []
    return found[0] if found else None
