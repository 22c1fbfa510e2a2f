"""Lines of text with indentation and source positions."""

from __future__ import annotations

import re

from phobos.source import SourceFile, Span

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def _comment(text: str) -> str:
    """`// text`. C++ would continue a comment that ends in a backslash on the next line."""
    return f"// {_CONTROL.sub(' ', text)}".rstrip().rstrip("\\")


class Writer:
    """Collects the body of a kernel.

    `#line` is printed in front of a line that touches memory or synchronises, if the compiler would otherwise count it
    as another source line: that is how the emulator, the debugger and profilers find the kernel text.
    """

    def __init__(self, source: SourceFile, depth: int = 1):
        self._source = source
        self._depth = depth
        self._lines: list[str] = []
        self._span: Span | None = None
        self._implied: int | None = None  # source line that the compiler will give the next text line
        self._commented: int | None = None

    def at(self, span: Span, note: str = "") -> None:
        """What follows belongs to this statement; its source line is shown once as a comment."""
        self._span = span
        if span.line != self._commented and span.file == self._source.name:
            text = self._source.line(span.line).strip()
            if text:
                self.line(_comment(f"{span.line}: {text}"))
            self._commented = span.line
        if note:
            self.line(_comment(note))

    def line(self, text: str, *, memory: bool = False) -> None:
        if memory and self._span is not None and self._implied != self._span.line:
            name = _CONTROL.sub("?", self._source.name).replace("\\", "\\\\").replace('"', '\\"')
            self._lines.append(f'#line {self._span.line} "{name}"')
            self._implied = self._span.line
        self._lines.append("  " * self._depth + text if text else "")
        if self._implied is not None:
            self._implied += 1

    def open(self, text: str) -> None:
        stripped = text.lstrip()
        self.line(f"{text} {{" if stripped else "{")
        self._depth += 1

    def reopen(self, text: str) -> None:
        """Closes a block and opens the next on one line: `} else {`."""
        self._depth -= 1
        self.line(f"}} {text} {{")
        self._depth += 1

    def close(self) -> None:
        self._depth -= 1
        self.line("}")

    @property
    def count(self) -> int:
        """Lines so far."""
        return len(self._lines)

    def text(self) -> str:
        return "\n".join(self._lines)
