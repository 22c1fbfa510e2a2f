"""Source text and positions in it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Span:
    """A range of source text. Lines and columns are 1-based; the end column is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    @staticmethod
    def join(first: "Span", last: "Span") -> "Span":
        """The smallest span that covers both, which must lie in the same file and in order."""
        return Span(
            file=first.file,
            line=first.line,
            column=first.column,
            end_line=last.end_line,
            end_column=last.end_column,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
        }


@dataclass(frozen=True)
class SourceFile:
    """A named text. `name` is what diagnostics and `#line` show: a path, or `<string>`."""

    name: str
    text: str
    lines: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(self.text.splitlines()))

    def line(self, number: int) -> str:
        """The text of a 1-based line, empty past the end."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def start(self) -> Span:
        return Span(file=self.name, line=1, column=1, end_line=1, end_column=1)
