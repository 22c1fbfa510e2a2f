"""Source text to tokens, with the diagnostics of characters and literals.

Newlines are all kept here (one `_NL` token for each run of empty lines); which of them end a statement depends on the
brackets around them and is decided where the tokens are read, by `ends_statement`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from phobos.diagnostics import Diagnostic
from phobos.source import SourceFile, Span
from phobos.syntax.tables import END, Tables

NEWLINE = "_NL"
ERROR = "ERROR"  # the kind of a token that was reported already
MAX_ERRORS = 20
KEYWORDS = frozenset(
    "kernel fn let var const if else for in while break continue return true false".split()
)  # fmt: skip
LITERAL_WORDS = frozenset({"inf", "nan"})
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "0": "\0"}
MAX_INTEGER = 2**64 - 1

# The tokens after which a newline ends the statement.
_ENDERS = frozenset({"NAME", "INT", "FLOAT", "STRING", ERROR, ")", "]", "}"}) | frozenset(
    {"break", "continue", "return", "true", "false", "inf", "nan"}
)
_NUMBER_TAIL = re.compile(r"[0-9A-Za-z_.]*")
_BROKEN_STRING = re.compile(r'"(?:[^"\\\r\n]|\\[^\r\n])*\\?')
_WORDY = re.compile(r"\w", re.ASCII)
_UNKNOWN_RUN = re.compile(r"[^\s\x21-\x7e]+")

# Characters that people write because another language has them.
_CHARACTER_HELP = {
    "?": "there is no `?:`; write `where(condition, a, b)`",
    "#": "a comment starts with `//`",
    "'": 'strings are written with double quotes, `"text"`',
    "`": 'strings are written with double quotes, `"text"`',
    "\\": "a line that ends in an operator or a comma continues on the next one without a backslash",
}


@dataclass(slots=True)
class Token:
    """`kind` is the terminal (keywords and symbols go by their text); `start` and `end` are offsets in the text."""

    kind: str
    text: str
    start: int
    end: int


class Positions:
    """Offsets of a text to lines and columns, by the same line breaks as SourceFile.lines."""

    def __init__(self, source: SourceFile):
        self.source = source
        self._starts = [0]
        lines = source.text.splitlines(keepends=True)
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        if lines and lines[-1] == source.lines[-1]:
            self._starts.pop()  # the last line has no line break, so no line begins after it
        # A byte order mark takes no column.
        self._bom = 1 if source.text.startswith("\ufeff") else 0

    def line_column(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        column = offset - self._starts[line - 1] + 1
        return line, max(1, column - self._bom) if line == 1 else column

    def line_end(self, offset: int) -> int:
        """The offset of the line break, or of the end of the text, that ends the line of `offset`."""
        line = bisect_right(self._starts, offset)
        return self._starts[line - 1] + len(self.source.line(line))

    def span(self, start: int, end: int) -> Span:
        line, column = self.line_column(start)
        end_line, end_column = self.line_column(end)
        return Span(file=self.source.name, line=line, column=column, end_line=end_line, end_column=end_column)


def ends_statement(previous: str | None) -> bool:
    """Whether a newline after a token of this kind, outside ( ) and [ ], ends the statement."""
    return previous in _ENDERS


@dataclass
class Lexed:
    """`tokens` end with one of kind `END`. `complete` is False where too many errors made the lexer give up."""

    tokens: list[Token]
    comments: list[Token]
    diagnostics: list[Diagnostic]
    complete: bool = True


def lex(source: SourceFile, tables: Tables, positions: Positions) -> Lexed:
    """All tokens of a text. Never raises: what is wrong is in the diagnostics, and in its place a token that lets
    the parser go on (a literal where one was meant, else one of kind ERROR)."""
    text = source.text
    match = _pattern(tables).match
    words = KEYWORDS | LITERAL_WORDS
    out = Lexed(tokens=[], comments=[], diagnostics=[])
    tokens = out.tokens
    at = 1 if text.startswith("\ufeff") else 0
    size = len(text)
    while at < size:
        if len(out.diagnostics) >= MAX_ERRORS:
            out.complete = False
            break
        found = match(text, at)
        if found is None:
            at = _bad_character(text, at, out, positions)
            continue
        end = found.end()
        kind = found.lastgroup
        value = found.group()
        if kind == "NAME":
            tokens.append(Token(value if value in words else "NAME", value, at, end))
        elif kind == "SYMBOL":
            tokens.append(Token(value, value, at, end))
        elif kind == NEWLINE:
            if tokens and tokens[-1].kind != NEWLINE:
                tokens.append(Token(NEWLINE, value, at, end))
        elif kind == "COMMENT":
            out.comments.append(Token("COMMENT", value, at, end))
        elif kind in ("INT", "FLOAT"):
            end = _number(text, kind, at, end, out, positions)
        elif kind == "STRING":
            _string(value, at, end, out, positions)
        at = end
    tokens.append(Token(END, "", at, at))
    return out


def _pattern(tables: Tables) -> re.Pattern[str]:
    """One expression for every terminal, in the order of the tables; symbols longest first."""
    symbols = sorted((s for s in tables.strings if not s.isalpha()), key=len, reverse=True)
    parts = [f"(?P<{name}>{pattern})" for name, pattern in tables.patterns]
    parts.append(f"(?P<SYMBOL>{'|'.join(re.escape(s) for s in symbols)})")
    return re.compile("|".join(parts))


def _report(
    out: Lexed, positions: Positions, code: str, message: str, start: int, end: int, help: str | None = None
) -> None:
    out.diagnostics.append(Diagnostic(code=code, message=message, span=positions.span(start, end), help=help))


def _bad_character(text: str, at: int, out: Lexed, positions: Positions) -> int:
    """Reports what starts at `at`, where no terminal does, and returns where to go on."""
    character = text[at]
    if character == '"':
        found = _BROKEN_STRING.match(text, at)
        assert found is not None
        end = found.end()
        _report(out, positions, "PH0102", 'this string has no closing `"` on its line', at, end, 'add a `"`')
        # It may have swallowed brackets, so the parser passes over the whole statement.
        out.tokens.append(Token(ERROR, text[at:end], at, end))
        return end
    run = _UNKNOWN_RUN.match(text, at)
    end = run.end() if run else at + 1
    what = "unknown characters" if end - at > 1 else "unknown character"
    shown = ", ".join(_shown(c) for c in text[at : min(end, at + 4)]) + (", ..." if end - at > 4 else "")
    if character.isspace():
        shown = _shown(character)
    help = _CHARACTER_HELP.get(character)
    if help is None and any(c.isalpha() for c in text[at:end]):
        help = "names are made of ASCII letters, digits and `_`"
    line = positions.line_column(at)[0]
    if not any(d.code == "PH0101" and d.span is not None and d.span.line == line for d in out.diagnostics[-1:]):
        _report(out, positions, "PH0101", f"{what} {shown}", at, end, help)
    # A word with a foreign letter in it is one mistake, not a mistake between two names.
    while end < len(text) and end - at < 1000 and help and help.startswith("names") and _WORDY.match(text[end]):
        end += 1
    if not (out.tokens and out.tokens[-1].kind == ERROR):
        out.tokens.append(Token(ERROR, text[at:end], at, end))
    return end


def _shown(character: str) -> str:
    if character.isprintable() and not character.isspace():
        return f"`{character}`" if character != "`" else "'`'"
    return f"U+{ord(character):04X}"


def _number(text: str, kind: str, at: int, end: int, out: Lexed, positions: Positions) -> int:
    """Checks a number, appends its token and returns where it ends."""
    tail = _NUMBER_TAIL.match(text, end)
    stop = tail.end() if tail else end
    if stop > end:
        value = text[at:stop]
        _report(out, positions, "PH0103", f"`{short(value)}` is not a number", at, stop, _number_help(value))
        out.tokens.append(Token(kind, "0" if kind == "INT" else "0.0", at, stop))
        return stop
    value = text[at:end]
    if kind == "INT":
        if len(value) > 1 and value[0] == "0" and value[1] not in "xX":
            plain = value.lstrip("0_") or "0"
            help = f"write `{plain}`; there are no octal numbers"
            _report(out, positions, "PH0103", f"`{short(value)}` starts with a zero", at, end, help)
            value = "0"
        elif integer(value) is None:
            help = "the largest is 18446744073709551615 (u64); a float takes a point or an exponent"
            _report(out, positions, "PH0104", f"`{short(value)}` does not fit in 64 bits", at, end, help)
            value = "0"
    elif float(value.replace("_", "")) == float("inf"):
        _report(out, positions, "PH0104", f"`{short(value)}` does not fit in f64", at, end, "infinity is `inf`")
        value = "0.0"
    out.tokens.append(Token(kind, value, at, end))
    return end


def integer(text: str) -> int | None:
    """The value of an INT token, None where it needs more than 64 bits."""
    digits = text.replace("_", "")
    if digits[:2] in ("0x", "0X"):
        value = int(digits, 16)
    elif len(digits) > 40 and len(digits.lstrip("0")) > 20:
        return None  # int() refuses, and would take long over, a number of many thousand digits
    else:
        value = int(digits)
    return value if value <= MAX_INTEGER else None


def _number_help(text: str) -> str | None:
    lower = text.lower()
    if ".." in text:
        return "a range of a loop is `range(lo, hi)`, a slice is `A[lo : hi]`"
    if lower.startswith("0b") or lower.startswith("0o"):
        return "numbers are decimal or hexadecimal (`0x1f`)"
    if re.fullmatch(r"[0-9_.]+(e[0-9]+)?(f|h|l|u|ul|f16|f32|f64|i32|i64|u32)", lower):
        return "a literal takes the type of what it meets: drop the suffix, or convert as in `f16(1.0)`"
    if "_" in text:
        return "a `_` stands between two digits"
    return "a name cannot start with a digit" if re.fullmatch(r"[0-9]+[a-z_][a-z0-9_]*", lower) else None


def _string(value: str, at: int, end: int, out: Lexed, positions: Positions) -> None:
    for found in re.finditer(r"\\(.)", value):
        if found.group(1) not in ESCAPES:
            start = at + found.start()
            known = r"known are \n \t \r \0 \" \\"
            _report(out, positions, "PH0105", f"unknown escape `{found.group()}`", start, start + 2, known)
            value = '""'
            break
    out.tokens.append(Token("STRING", value, at, end))


def short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
