"""What a syntax error says: what was found, what was expected, and the fix where the mistake is a known one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phobos.diagnostics import Diagnostic, nearest
from phobos.source import Span
from phobos.syntax import ast, foreign
from phobos.syntax.builder import STRING_HELP
from phobos.syntax.lexer import KEYWORDS, LITERAL_WORDS, NEWLINE, Token, short
from phobos.syntax.tables import END

if TYPE_CHECKING:
    from phobos.syntax.driver import Driver

_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
_BINARY = _COMPARISONS | frozenset(("+", "-", "*", "/", "%", "<<", ">>", "&", "^", "|", "&&", "||"))
_EXPRESSION = frozenset(("NAME", "INT", "FLOAT", "inf", "nan", "true", "false", "(", "-", "!", "~"))
_STATEMENT = frozenset(("let", "var", "const", "while", "if", "break", "continue", "return"))
_ITEMS = frozenset(("kernel", "fn", "const"))
_ASSIGN = frozenset(("=", "+=", "-=", "*=", "/="))
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPENING = {closing: opening for opening, closing in _CLOSING.items()}


def found(token: Token) -> str:
    """A token in words."""
    kind = token.kind
    if kind == END:
        return "the end of the file"
    if kind == NEWLINE:
        return "the end of the line"
    if kind in KEYWORDS:
        return f"the keyword `{kind}`"
    if kind == "NAME":
        return f"the name `{short(token.text)}`"
    if kind in ("INT", "FLOAT") or kind in LITERAL_WORDS:
        return f"the number `{short(token.text)}`"
    if kind == "STRING":
        return f"the string {short(token.text)}"
    return f"`{short(token.text)}`"


def expected(kinds: set[str], previous: Token | None) -> str:
    """What may follow `previous` in words, the likeliest first, given the terminals that the grammar allows."""
    before = previous.kind if previous else None
    if kinds == {"NAME"}:
        return {
            "kernel": "the name of the kernel",
            "fn": "the name of the function",
            ":": "a type",
            "->": "a type",
            "@": "the name of an attribute",
            "in": "`range(...)`",
            "for": "the name of the loop's index",
        }.get(before or "", "a name")
    kinds = set(kinds)
    parts: list[str] = []
    if _STATEMENT <= kinds:
        parts.append("a statement")
        kinds -= _STATEMENT | _EXPRESSION | {"@", "for"}
    elif _ITEMS <= kinds:
        parts.append("`kernel`, `fn`, `const` or an attribute")
        kinds -= _ITEMS | {"@", END}
    elif _EXPRESSION <= kinds:
        parts.append("an expression")
        kinds -= _EXPRESSION | {"STRING"}
    elif {"INT", "FLOAT", "-"} <= kinds:
        parts.append("a number such as `0.0` or `-inf`")
        kinds -= {"INT", "FLOAT", "-", "inf", "nan"}
    if "||" in kinds:
        # Every expression could go on with an operator or a subscript; what ends it is what is missing.
        kinds -= _BINARY | {"[", ".", "("}
    kinds.discard("else" if kinds - {"else"} else "")
    for kind, text in (("NAME", "a name"), ("INT", "a number"), ("@", "an attribute")):
        if kind in kinds:
            parts.append(text)
            kinds.discard(kind)
    if _ASSIGN <= kinds:
        parts.append("an assignment")
        kinds -= _ASSIGN
    ends = {NEWLINE, ";"} <= kinds
    top = END in kinds
    if ends:
        kinds -= {NEWLINE, ";", END, "}"}
    if before == "NAME" and previous is not None and previous.text not in ("tensor", "tile") and len(kinds) > 1:
        kinds.discard("<")
    order = ["=", ",", ")", "]", ">", ":"]
    solid = sorted(kinds - {END, NEWLINE}, key=lambda k: (order.index(k) if k in order else len(order), k))
    parts += [f"`{kind}`" for kind in solid]
    if ends:
        parts.append("a newline" if top else "the end of the statement (a newline or `;`)")
    if END in kinds and not parts:
        parts.append("the end of the file")
    return join(parts)


def join(parts: list[str]) -> str:
    if len(parts) > 1:
        return f"{', '.join(parts[:-1])} or {parts[-1]}"
    return parts[0] if parts else "nothing"


def is_misspelt_header(token: Token) -> bool:
    """Whether a name was probably meant to be `kernel` or `fn`."""
    if token.kind != "NAME":
        return False
    return token.text in foreign.HEADER_WORDS or nearest(token.text, ("kernel", "fn")) is not None


def after_newline(driver: Driver, previous: Token, following: Token) -> Diagnostic:
    """A `{` or `else` on the line after the one where it belongs."""
    span = driver.positions.span(following.start, following.end)
    if following.kind == "{":
        message = "`{` stands on the next line, but the newline has ended the statement"
        return Diagnostic(code="PH0113", message=message, span=span, help="put `{` at the end of the line before")
    if previous.kind == "}":
        message = "`else` stands on the line after `}`, but the newline has ended the `if`"
        return Diagnostic(code="PH0114", message=message, span=span, help="write `} else {` on one line")
    message = "the `else` of a load stands on the next line, but the newline has ended the statement"
    help = "put it on the line of the load, as in `K[kt :+ BC, :] else -inf`"
    return Diagnostic(code="PH0114", message=message, span=span, help=help)


def explain(driver: Driver, index: int, missing: int | None) -> Diagnostic:
    """The diagnostic of the token at `index`, which cannot stand where it does.

    `missing` is the token index of a bracket that is open there and seems never to be closed.
    """
    return Explanation(driver, index, missing).diagnostic()


class Explanation:
    """Looks at one error from several sides; the first that knows it speaks."""

    def __init__(self, driver: Driver, index: int, missing: int | None):
        self.driver = driver
        self.tokens = driver.tokens
        self.index = index
        self.token = driver.tokens[index]
        self.previous = driver.previous
        self.kinds = driver.expected()
        self.level = driver.level()
        self.first = driver.tokens[driver.first_token(self.level, index)]
        self.opener = driver.tokens[missing] if missing is not None else None
        self.next = driver.tokens[index + 1] if index + 1 < len(driver.tokens) else self.token
        self.starts_line = driver.first_on_line(index)
        # Whether a statement or declaration would begin here, so that nothing is the matter with what came before.
        self.fresh = _STATEMENT <= self.kinds or _ITEMS <= self.kinds
        # The token before, of which the parser may know no more: newlines do not count, broken statements do.
        before = index - 1
        while before >= 0 and driver.tokens[before].kind == NEWLINE:
            before -= 1
        self.before = driver.tokens[before] if before >= 0 else None

    def diagnostic(self) -> Diagnostic:
        for view in (
            self._closing, self._nesting_of_declarations, self._outside, self._bracket, self._comparison, self._equals,
            self._line_start, self._keyword, self._string, self._word, self._operator, self._type,
        ):  # fmt: skip
            diagnostic = view()
            if diagnostic is not None:
                return diagnostic
        return self._plain()

    def _here(self, code: str, message: str, help: str | None = None, notes: tuple[str, ...] = ()) -> Diagnostic:
        if self.token.kind in (NEWLINE, END):
            return self._after(code, message, help, notes)
        span = self.driver.positions.span(self.token.start, self.token.end)
        return Diagnostic(code=code, message=message, span=span, help=help, notes=notes)

    def _after(self, code: str, message: str, help: str | None = None, notes: tuple[str, ...] = ()) -> Diagnostic:
        """Points just past the previous token: where what is missing belongs."""
        if self.before is None:
            span = self.driver.positions.span(self.token.start, self.token.end)
            return Diagnostic(code=code, message=message, span=span, help=help, notes=notes)
        return self._past(self.before, code, message, help, notes)

    def _past(
        self, token: Token, code: str, message: str, help: str | None = None, notes: tuple[str, ...] = ()
    ) -> Diagnostic:
        line, column = self.driver.positions.line_column(token.end)
        file = self.driver.positions.source.name
        span = Span(file=file, line=line, column=column, end_line=line, end_column=column + 1)
        return Diagnostic(code=code, message=message, span=span, help=help, notes=notes)

    def _place(self, token: Token) -> str:
        line, column = self.driver.positions.line_column(token.start)
        return f"line {line}, column {column}"

    def _unclosed(self, opener: Token) -> str:
        """The bracket that is open; for a `{`, the one that the indentation shows to lack its `}`."""
        stack: list[int] = []
        for index, token in enumerate(self.tokens[: self.index]):
            if token.kind == "{":
                stack.append(index)
            elif token.kind == "}" and stack:
                start = stack.pop()
                left = self._indent(self.tokens[start])
                if self.driver.first_on_line(index) and left > self._indent(token) and opener.kind == "{":
                    place = self._place(self.tokens[start])
                    return f"by its indentation, the `{{` at {place} is the one without a `}}`"
        return f"the `{opener.kind}` at {self._place(opener)} is still open"

    def _indent(self, token: Token) -> int:
        line = self.driver.positions.source.line(self._line(token))
        return len(line) - len(line.lstrip(" \t"))

    def _line(self, token: Token) -> int:
        return self.driver.positions.line_column(token.start)[0]

    def _same_line(self, first: Token, last: Token) -> bool:
        return self._line(first) == self._line(last)

    def _found(self) -> str:
        """What was found, with its line where that is not the line of what came before."""
        text = found(self.token)
        if self.starts_line and not self.fresh and self.previous is not None and self.token.kind != END:
            return f"{text} on line {self._line(self.token)}"
        return text

    def _wanted(self) -> str:
        wanted = f"expected {expected(self.kinds, self.previous)}"
        if self.previous is not None and self.previous.kind != NEWLINE and not self.fresh:
            wanted += f" after {found(self.previous)}"
        return wanted

    # --- the known mistakes ------------------------------------------------------------------

    def _closing(self) -> Diagnostic | None:
        """A closing bracket that closes nothing."""
        kind = self.token.kind
        if kind not in _OPENING:
            return None
        brackets = self.driver.brackets
        innermost = self.tokens[brackets[-1]] if brackets else None
        if innermost is not None and (kind == _CLOSING[innermost.kind] or innermost.kind in ("(", "[")):
            return None
        if innermost is None or kind != "}":
            return self._here("PH0112", f"`{kind}` closes nothing: no `{_OPENING[kind]}` is open")
        return None

    def _nesting_of_declarations(self) -> Diagnostic | None:
        """`kernel` or `fn` inside a body, as after a forgotten `}`; an attribute before the wrong thing."""
        kind = self.token.kind
        if kind in ("kernel", "fn") and self.level == "stmt" and self.starts_line:
            opener = next((self.tokens[i] for i in reversed(self.driver.brackets) if self.tokens[i].kind == "{"), None)
            notes = (self._unclosed(opener),) if opener else ()
            return self._here("PH0121", f"`{kind}` inside a body: a `}}` is missing before it", None, notes)
        if "@" in self.kinds and not _STATEMENT <= self.kinds and not _ITEMS <= self.kinds:
            if self.level == "item":
                message = f"expected `kernel` after its attributes, found {self._found()}"
                help = "attributes belong to kernels" if kind in ("fn", "const") else None
            else:
                message = f"expected `for` after the attribute, found {self._found()}"
                help = "in a body only a `for` takes an attribute, `@pipeline(n)`"
            if "(" in self.kinds and kind not in KEYWORDS:
                return None
            return self._here("PH0122", message, help)
        return None

    def _outside(self) -> Diagnostic | None:
        """A statement at file level."""
        if self.level != "item" or not _ITEMS <= self.kinds:
            return None
        kind = self.token.kind
        if kind == "NAME":
            help = foreign.WORDS.get(self.token.text)
            guess = nearest(self.token.text, ("kernel", "fn", "const"))
            if help is None and guess and self.next.kind == "NAME":
                help = f"did you mean `{guess}`?"
            if help is not None:
                return self._here("PH0110", f"{self._wanted_item()}, found {found(self.token)}", help)
        if kind in KEYWORDS or (kind == "NAME" and self.next.kind in _ASSIGN | {"[", "(", "."}):
            what = f"`{kind}`" if kind in KEYWORDS else "a statement"
            help = "is there a `}` too many before it?" if self.previous else "statements stand in the body of a kernel"
            return self._here("PH0120", f"{what} stands outside of every kernel and function", help)
        return self._here("PH0110", f"{self._wanted_item()}, found {found(self.token)}")

    def _wanted_item(self) -> str:
        return "expected `kernel`, `fn`, `const` or an attribute"

    def _bracket(self) -> Diagnostic | None:
        """A bracket that is not closed."""
        token = self.token
        if token.kind == END and self.driver.brackets and self.opener is None:
            opener = self.tokens[self.driver.brackets[-1]]
            closing = _CLOSING[opener.kind]
            notes = (self._unclosed(opener),)
            if closing not in self.kinds:
                return self._after("PH0110", f"{self._wanted()}, found the end of the file", None, notes)
            message = f"expected `{closing}`, found the end of the file"
            return self._after("PH0111", message, f"add the missing `{closing}`", notes)
        if self.opener is None:
            return None
        closing = _CLOSING[self.opener.kind]
        notes = (f"the `{self.opener.kind}` at {self._place(self.opener)} is never closed",)
        if token.kind in _ASSIGN and not self._same_line(self.opener, token):
            # The line of the assignment is a statement of its own; the bracket should have closed before it.
            start = self.index
            while not self.driver.first_on_line(start):
                start -= 1
            last = self.tokens[start - 2]
            message = f"expected `{closing}`, found a new statement on line {self._line(token)}"
            help = self._swallowed(closing) or f"add the missing `{closing}`"
            return self._past(last, "PH0111", message, help, notes)
        if token.kind in _OPENING and token.kind != closing and closing in self.kinds and not self.starts_line:
            message = f"expected `{closing}`, found `{token.kind}`"
            return self._here("PH0111", message, f"close the `{self.opener.kind}` first", notes)
        stops = self.starts_line or token.kind in ("{", "}", ";", END) or token.kind in KEYWORDS - {"true", "false"}
        if stops and closing in self.kinds:
            message = f"expected `{closing}`, found {self._found()}"
            return self._after("PH0111", message, self._swallowed(closing) or f"add the missing `{closing}`", notes)
        return None

    def _swallowed(self, closing: str) -> str | None:
        """The fix where a comment holds the bracket that is missing before it, as in `X[N // 2]`."""
        if self.before is None:
            return None
        line, column = self.driver.positions.line_column(self.before.end)
        rest = self.driver.positions.source.line(line)[column - 1 :].lstrip()
        if rest.startswith("//") and closing in rest:
            return "`//` starts a comment; integers are divided by `/`"
        return None

    def _comparison(self) -> Diagnostic | None:
        values = self.driver.values
        if self.token.kind not in _COMPARISONS or len(values) < 3:
            return None
        first = values[-2]
        if not (isinstance(first, Token) and first.kind in _COMPARISONS and isinstance(values[-3], ast.Expr)):
            return None
        if isinstance(values[-3], ast.Name) and values[-3].id in ("tile", "tensor") and self.token.kind == ">":
            return self._here("PH0115", f"`{values[-3].id}<...>` is a type, not a value", foreign.NEW_TILE)
        help = "join two comparisons with `&&`, as in `a < b && b < c`"
        bits = values[-1]
        if isinstance(bits, ast.Binary) and bits.op in "&|":
            logical = bits.op * 2
            help = f"`{bits.op}` works on bits and binds tighter than `{first.kind}`; the logical one is `{logical}`"
        return self._here("PH0115", f"comparisons do not chain: `{first.kind}` and then `{self.token.kind}`", help)

    def _equals(self) -> Diagnostic | None:
        """An assignment in an expression, or to something that cannot be assigned."""
        token = self.token
        if token.kind not in _ASSIGN or "||" not in self.kinds:
            return None
        if self.first.kind in ("if", "while") and not self.driver.opened(self.level):
            help = "a comparison is `==`" if token.kind == "=" else None
            return self._here("PH0116", f"found `{token.kind}` in a condition, which assigns", help)
        if self.previous is not None and (self.previous.kind, token.kind) in foreign.PAIRS:
            return None
        if self.driver.closed_lines:
            help = "an assignment is a statement"
            if token.kind == "=":
                help = "arguments go by position; a comparison is `==`"
                if self.previous is not None and self.previous.text in ("axis", "dim"):
                    help = "the axis is in the name: `rowsum(x)` is over the last axis, `colsum(x)` over the first"
            return self._here("PH0116", f"found `{token.kind}` in an expression, which assigns", help)
        statement = self.tokens[self.tokens.index(self.first) : self.index]
        if self.level == "stmt" and not any(t.kind in _ASSIGN or t.kind in KEYWORDS for t in statement):
            help = "the left side is a name or a slice, as in `x = 1` or `O[i :+ n, :] = x`"
            span = self.driver.positions.span(self.first.start, statement[-1].end)
            return Diagnostic(code="PH0117", message="cannot assign to an expression", span=span, help=help)
        help = "a statement assigns once; a comparison is `==`"
        return self._here("PH0116", f"found `{token.kind}` in an expression, which assigns", help)

    def _line_start(self) -> Diagnostic | None:
        """A line that was meant to continue the one before."""
        token = self.token
        if not self.starts_line or token.kind not in _BINARY | _ASSIGN | {".", ",", "->", ":", ":+"}:
            return None
        if self.previous is None or self.previous.kind != NEWLINE:
            return None
        message = f"a statement cannot start with `{token.kind}`; the newline has ended the one before"
        return self._here("PH0118", message, f"put `{token.kind}` at the end of the line before, or use parentheses")

    def _keyword(self) -> Diagnostic | None:
        kind = self.token.kind
        names = "NAME" in self.kinds and not _EXPRESSION <= self.kinds
        if not names or not (kind in KEYWORDS or kind in LITERAL_WORDS) or self.starts_line:
            return None
        what = "a keyword" if kind in KEYWORDS else "a number"
        return self._here("PH0119", f"{self._wanted()}, found `{kind}`", f"`{kind}` is {what}; choose another name")

    def _string(self) -> Diagnostic | None:
        if self.token.kind == "STRING" and _EXPRESSION <= self.kinds:
            return self._here("PH0129", "a string cannot stand here", STRING_HELP)
        return None

    def _word(self) -> Diagnostic | None:
        """A name of another language, before or at the error; two names in a row."""
        token, previous = self.token, self.previous
        if token.kind == "NAME" and token.text in foreign.WORDS:
            return self._here("PH0127", f"{self._wanted()}, found `{token.text}`", foreign.WORDS[token.text])
        if previous is None or previous.kind != "NAME" or self.starts_line:
            return None
        member = self.tokens[max(0, self.index - 2)].kind == "."
        if previous.text in foreign.WORDS and not member:
            span = self.driver.positions.span(previous.start, previous.end)
            message = f"found the name `{previous.text}`, followed by {found(token)}"
            return Diagnostic(code="PH0127", message=message, span=span, help=foreign.WORDS[previous.text])
        if token.kind in ("NAME", "{") and previous is self.first and self.level == "stmt":
            help = foreign.DECLARE if previous.text in foreign.TYPES else None
            guess = nearest(previous.text, KEYWORDS)
            if help is None and guess:
                help = f"did you mean `{guess}`?"
            if help:
                return self._here("PH0110", f"{self._wanted()}, found {found(token)}", help)
        return None

    def _operator(self) -> Diagnostic | None:
        """Operators that this language does not have."""
        token, previous = self.token, self.previous
        help = None
        of_type = self.level == "item" and "," in self.kinds and "||" not in self.kinds
        if token.kind == "*" and previous is not None and of_type:
            help = f"an array is a tensor with a shape, as in `X: tensor<{previous.text}>[N]`"
            return self._here("PH0110", f"{self._wanted()}, found `*`", help)
        if previous is not None and previous.end == token.start:
            help = foreign.PAIRS.get((previous.kind, token.kind))
        if help is None and self.next.start == token.end:
            help = foreign.PAIRS.get((token.kind, self.next.kind))
        if help is None and token.kind == "+" and _EXPRESSION <= self.kinds:
            help = "there is no unary `+`"
        if help is None and token.kind == "@" and "||" in self.kinds:
            help = "a product of matrices is `dot(a, b)`"
        if help is None and token.kind == "(" and "||" in self.kinds:
            help = "only a name can be called"
            if previous is not None and self.tokens[max(0, self.index - 2)].kind == ".":
                help = foreign.METHODS.get(previous.text, help)
        if help is None:
            return None
        return self._here("PH0127", f"{self._wanted()}, found `{token.text}`", help)

    def _type(self) -> Diagnostic | None:
        """A type where there is none, or one that is cut short."""
        token, previous = self.token, self.previous
        if self.first.kind == "const" and token.kind == ":" and self.kinds == {"="}:
            return self._here("PH0110", f"{self._wanted()}, found `:`", "a `const` has the type of its value")
        if self.first.kind in ("const", "let") and self.kinds & {"="} and "||" not in self.kinds:
            help = f"a `{self.first.kind}` needs a value: `{self.first.kind} x = e`"
            if token.kind == NEWLINE or self.starts_line:
                return self._after("PH0110", f"{self._wanted()}, found {self._found()}", help)
        if token.kind == "<" and self.kinds == {"("} and self.first.kind == "fn":
            help = "a function has no dtype parameters: leave out a parameter's type and it is generic"
            return self._here("PH0110", f"{self._wanted()}, found `<`", help)
        if previous is not None and previous.kind == ">" and self.kinds == {"["}:
            help = "a shape follows the element type, as in `tile<f32>[R, C]`"
            return self._after("PH0110", f"{self._wanted()}, found {self._found()}", help)
        return None

    def _plain(self) -> Diagnostic:
        token = self.token
        notes: tuple[str, ...] = ()
        if self.opener is not None:
            notes = (f"the `{self.opener.kind}` at {self._place(self.opener)} is never closed",)
        help = None
        if self.previous is not None and self.previous.kind == "in" and self.kinds == {"NAME"}:
            help = "a loop is `for i in range(lo, hi, step)`"
        if self.first.kind == "@" and (
            (token.kind in ("[", "{") and _EXPRESSION <= self.kinds) or {"[", "{"} == self.kinds
        ):
            help = "a search space is `@autotune(BR in [16, 64], BC in {32, 48})`"
        if self.first.kind == "for" and (self.kinds == {"("} or "in" in self.kinds or token.kind == "("):
            help = "a loop is `for i in range(lo, hi, step)`"
        if "{" in self.kinds and token.kind in (":", NEWLINE) and self.first.kind != "@":
            help = foreign.BLOCK
        if token.kind == "=" and self.level == "item" and {",", ")"} <= self.kinds:
            help = "parameters have no default values"
        if token.kind == "[" and _EXPRESSION <= self.kinds and self.level == "stmt":
            help = "there are no lists; a shape is written as arguments, as in `zeros(f32, 4, 64)`"
        if token.kind == ":" and self.kinds <= {",", "]"} | _BINARY | {"[", ".", "("} and self.level == "stmt":
            help = "slices have no step"
        message = f"{self._wanted()}, found {self._found()}"
        statement_over = {NEWLINE, ";"} <= self.kinds and not self.starts_line
        if token.kind == "else" and not self.opener:
            return self._here("PH0110", message, "an `else` follows the `}` of an `if`, or the `]` of a load", notes)
        if statement_over and token.kind in _EXPRESSION | _STATEMENT | {"for", "STRING", "kernel", "fn", "@"}:
            return self._here("PH0128", message, self._two_values(), notes)
        if token.kind in (NEWLINE, END) or (self.starts_line and not self.fresh):
            return self._after("PH0110", message, help, notes)
        if token.kind == "{" and _STATEMENT <= self.kinds:
            help = "a block follows `for`, `while`, `if` or `else`"
        return self._here("PH0110", message, help, notes)

    def _two_values(self) -> str:
        """The fix where a second statement seems to begin on the line of the first."""
        before = self.tokens[max(0, self.index - 3) : self.index]
        if [t.kind for t in before] == ["(", "NAME", ")"] and before[1].text in foreign.TYPES:
            return foreign.CONVERT
        if self.token.kind == "if" and self.previous is not None and self.previous.kind != "}":
            return foreign.SELECT
        return "one statement a line, or `;` between two"
