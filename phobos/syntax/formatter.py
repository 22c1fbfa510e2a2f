"""Canonical layout of a kernel file (`phobos fmt`).

The formatter works on tokens: it keeps every token but `;`, every comment, and the line breaks inside a statement, and
decides all else: one statement a line, two spaces of indentation, the spaces between tokens, at most one empty line in
a row, trailing comments of adjacent lines in one column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from phobos.source import SourceFile
from phobos.syntax import tables
from phobos.syntax.lexer import NEWLINE, Positions, Token, ends_statement, lex
from phobos.syntax.parser import parse_any
from phobos.syntax.tables import END

INDENT = 2
CONTINUATION = 4  # of a line that continues a statement, so that it stands apart from a body

_BREAK = re.compile(r"\r\n?|\n")
_OPERAND_ENDS = frozenset(("NAME", "INT", "FLOAT", "STRING", "inf", "nan", "true", "false", ")", "]"))
_UNARY = frozenset("-!~")


def format_source(source: SourceFile | str) -> str:
    """The text of a file in canonical layout, with `\\n` line ends; formatting it again changes nothing.

    Raises CompileError where the text has syntax errors: only a text that parses has a layout.
    """
    if isinstance(source, str):
        source = SourceFile("<string>", source)
    parse_any(source)
    lexed = lex(source, tables.load(), Positions(source))
    tokens = [t for t in lexed.tokens if t.kind not in (NEWLINE, END)]
    layout = _Layout(source.text)
    for token in sorted(tokens + lexed.comments, key=lambda t: t.start):
        layout.add(token)
    return layout.text()


@dataclass
class _Line:
    indent: int
    text: str = ""
    comment: str = ""  # after the text, or alone where there is no text
    blank_before: bool = False

    @property
    def width(self) -> int:
        return self.indent + len(self.text)


@dataclass
class _Bracket:
    """An open bracket: what it is, where its contents align and where its line begins."""

    kind: str  # ( [ { for a block, "set" for the braces of an @autotune entry
    column: int = 0
    line_indent: int = 0
    hanging: bool = False  # the line breaks right after it


@dataclass
class _Layout:
    source: str
    lines: list[_Line] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    previous: Token | None = None  # last token other than comments and `;`
    before: Token | None = None  # the one before that
    end: int = 0  # where the last token or comment ended in the source
    must_break: bool = False
    angle: bool = False  # inside the < > of a type, a parameter list or an unroll
    angle_closed: bool = False  # `previous` is the > of one
    unary: bool = False  # `previous` is a unary operator
    attribute: int = 0  # 1 after `@`, 2 after its name, 3 inside its arguments
    statement_indent: int = 0

    def add(self, token: Token) -> None:
        gap = len(_BREAK.findall(self.source[self.end : token.start]))
        self.end = token.end
        if token.kind == "COMMENT":
            self._comment(token, gap)
        elif token.kind == ";":
            self.must_break = True
        else:
            self._token(token, gap)

    def text(self) -> str:
        """The lines put together, trailing comments aligned."""
        out: list[str] = []
        column = 0
        for number, line in enumerate(self.lines):
            if line.blank_before and out:
                out.append("")
            body = " " * line.indent + line.text
            if line.text and line.comment:
                if number == 0 or not self._same_run(self.lines[number - 1], line):
                    column = self._run_width(number) + 2
                body = body.ljust(column) + line.comment
            elif line.comment:
                body += line.comment
            out.append(body)
        return "\n".join(out) + "\n" if out else ""

    def _same_run(self, first: _Line, second: _Line) -> bool:
        both = first.text and first.comment and second.text and second.comment
        return bool(both) and first.indent == second.indent and not second.blank_before

    def _run_width(self, number: int) -> int:
        width = self.lines[number].width
        while number + 1 < len(self.lines) and self._same_run(self.lines[number], self.lines[number + 1]):
            number += 1
            width = max(width, self.lines[number].width)
        return width

    # --- comments ----------------------------------------------------------------------------

    def _comment(self, token: Token, gap: int) -> None:
        text = token.text.rstrip()
        if gap == 0 and self.lines and not self.lines[-1].comment:
            self.lines[-1].comment = text
        else:
            if self._is_continuation():
                indent = self._continuation_indent(None)
            else:
                indent = self._block_indent()
            self.lines.append(_Line(indent, comment=text, blank_before=self._blank(gap, None)))
        if self.brackets and self._after_bracket():
            self.brackets[-1].hanging = True
        self.must_break = True

    # --- tokens ------------------------------------------------------------------------------

    def _token(self, token: Token, gap: int) -> None:
        kind = token.kind
        block_end = kind == "}" and self.brackets[-1].kind == "{"
        fresh = self.previous is None or self.must_break or gap > 0
        if self.attribute == 2 and kind != "(":
            self.attribute = 0  # the attribute has no arguments
            fresh = True
        if self.previous is not None and self._in_block() and not fresh:
            fresh = self.previous.kind == "{" or (self.previous.kind == "}" and kind != "else") or block_end
        if self.previous is not None and block_end and self.previous.kind == "{" and not self._has_comment():
            fresh = False  # {} of an empty block
            space = False
        else:
            space = self._space(token)
        if fresh:
            self._start_line(token, gap, block_end)
        elif space:
            self.lines[-1].text += " "
        self.lines[-1].text += token.text
        self._track(token)

    def _start_line(self, token: Token, gap: int, block_end: bool) -> None:
        if self.brackets and self._after_bracket():
            self.brackets[-1].hanging = True
        if self._is_continuation():
            indent = self._continuation_indent(token)
        else:
            indent = self._block_indent() - (INDENT if block_end else 0)
            self.statement_indent = indent
        self.lines.append(_Line(indent, blank_before=self._blank(gap, token)))

    def _track(self, token: Token) -> None:
        """The state after `token`, which stands at the end of the last line."""
        kind = token.kind
        line = self.lines[-1]
        self.unary = kind in _UNARY and not self._after_operand()
        self.must_break = False
        self.angle_closed = kind == ">" and self.angle
        if self._opens_angle(token):
            self.angle = True
        elif self.angle_closed:
            self.angle = False
        if kind in ("(", "["):
            self.brackets.append(_Bracket(kind, line.width, line.indent))
        elif kind == "{":
            is_set = self.previous is not None and self.previous.kind == "in"
            self.brackets.append(_Bracket("set" if is_set else "{", line.width, line.indent))
        elif kind in (")", "]", "}"):
            self.brackets.pop()
        self._track_attribute(kind)
        self.before = self.previous
        self.previous = token

    def _track_attribute(self, kind: str) -> None:
        """An attribute ends its line: after its name, unless arguments follow, or after them."""
        if kind == "@":
            self.attribute = 1
        elif self.attribute == 1:
            self.attribute = 2
        elif self.attribute == 2:
            self.attribute = 3
        elif self.attribute == 3 and kind == ")" and self._in_block():
            self.attribute = 0
            self.must_break = True

    # --- where things stand ------------------------------------------------------------------

    def _in_block(self) -> bool:
        return not self.brackets or self.brackets[-1].kind == "{"

    def _has_comment(self) -> bool:
        """Whether a comment came after the last token."""
        return bool(self.lines[-1].comment)

    def _after_bracket(self) -> bool:
        """Whether the last token opened the innermost bracket."""
        return self.previous is not None and self.previous.kind in ("(", "[", "{")

    def _after_operand(self) -> bool:
        return self.previous is not None and self.previous.kind in _OPERAND_ENDS and not self.angle_closed

    def _is_continuation(self) -> bool:
        """Whether a line that starts here goes on with a statement."""
        if self.previous is None:
            return False
        if not self._in_block():
            return True
        if self.previous.kind == "{":
            return False
        return not ends_statement(self.previous.kind)

    def _block_indent(self) -> int:
        return INDENT * sum(b.kind == "{" for b in self.brackets)

    def _continuation_indent(self, token: Token | None) -> int:
        if self._in_block():
            return self.statement_indent + CONTINUATION
        bracket = self.brackets[-1]
        closing = token is not None and token.kind in (")", "]", "}")
        if bracket.hanging:
            return bracket.line_indent + (0 if closing else CONTINUATION)
        return bracket.column - (1 if closing else 0)

    def _blank(self, gap: int, token: Token | None) -> bool:
        """Whether an empty line goes before: where there was one, but not at the edges of a block."""
        if gap < 2 or not self.lines:
            return False
        opened = self.previous is not None and self.previous.kind == "{" and not self._has_comment_line()
        closes = token is not None and token.kind == "}"
        return not opened and not closes

    def _has_comment_line(self) -> bool:
        return not self.lines[-1].text

    def _opens_angle(self, token: Token) -> bool:
        if token.kind != "<" or self.previous is None:
            return False
        if self.previous.kind == "for":
            return True
        if self.previous.kind != "NAME" or self.before is None:
            return False
        if self.before.kind in ("kernel", "->"):
            return True
        return self.before.kind == ":" and not self._in_subscript()

    def _in_subscript(self) -> bool:
        return bool(self.brackets) and self.brackets[-1].kind == "["

    def _space(self, token: Token) -> bool:
        """Whether a space stands between the last token and this one, on one line."""
        previous = self.previous
        if previous is None:
            return False
        left, right = previous.kind, token.kind
        if left in ("(", "[", "@", ".") or right in (")", "]", ","):
            return left in ("INT", "FLOAT") and right == "."
        if right == ".":
            return left in ("INT", "FLOAT")  # `1 .x`, where `1.x` would be a number
        if self.unary:
            return False
        if right == "}" or left == "{":
            return False  # of a set; a block breaks the line
        if right == ":":
            return self._in_subscript() and left != "["
        if self.angle_closed:
            return right not in ("(", "[")
        if self._opens_angle(token) or (left == "<" and self.angle) or (right == ">" and self.angle):
            return False
        if right == "(":
            return left != "NAME"
        if right == "[":
            return left not in _OPERAND_ENDS
        return True
