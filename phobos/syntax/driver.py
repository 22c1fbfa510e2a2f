"""The LALR automaton: tokens to a tree by the tables, with the newline rule and recovery after an error.

Recovery works at statement boundaries. The parser goes back to where the broken statement (or declaration) began, takes
it as read, and skips to the next place that surely begins or ends one: a newline outside brackets, `;`, `}`, a line
that starts with a keyword of a statement. A `{` on the way is the block of a broken header, whose statements are read
as if the header had been sound.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from phobos.diagnostics import Diagnostic
from phobos.syntax import ast, messages
from phobos.syntax.builder import Builder
from phobos.syntax.lexer import ERROR, MAX_ERRORS, NEWLINE, Positions, Token, ends_statement
from phobos.syntax.tables import END, Tables

MAX_RECOVERIES = 200  # reported or not: what is that broken is no kernel, and each costs a look around
MAX_DEPTH = 128
"""How deep expressions and blocks may nest together: later stages walk the tree recursively."""

_NESTING = frozenset(
    ("binary", "unary", "call", "member", "subscript", "filled_subscript", "for", "while", "if", "kernel", "function")
)
_OPEN = {"(": ")", "[": "]", "{": "}"}
_CLOSE = frozenset(_OPEN.values())
_ASSIGN = frozenset(("=", "+=", "-=", "*=", "/="))
# No expression, parameter list or attribute contains these.
_ONLY_STATEMENTS = frozenset(("kernel", "fn", "let", "var", "while", "break", "continue", "return"))
_STATEMENT_STARTS = _ONLY_STATEMENTS | {"const", "for", "if", "@"}
_ITEM_STARTS = frozenset(("kernel", "fn", "const", "@"))
_HEADERS = frozenset(("kernel", "fn", "for", "while", "if"))


@dataclass(frozen=True)
class Sync:
    """Where reading goes on: at token `index`, after feeding `before`; `level` is what was broken."""

    index: int
    level: str
    before: tuple[str, ...] = ()
    broken: bool = True  # whether the broken statement is taken as read first


class Driver:
    """Parses one file. After `run`, `diagnostics` holds the syntax errors, in order."""

    def __init__(self, tables: Tables, tokens: list[Token], builder: Builder, positions: Positions):
        self.tables = tables
        self.tokens = tokens
        self.builder = builder
        self.positions = positions
        self.diagnostics: list[Diagnostic] = []
        self.states: list[int] = [tables.start]
        # Parallel to `states`: value, offsets of its text (-1 where it has none), nesting, height of `brackets`.
        self.values: list[object] = [None]
        self.starts: list[int] = [-1]
        self.ends: list[int] = [-1]
        self.depths: list[int] = [0]
        self.heights: list[int] = [0]
        self.brackets: list[int] = []  # indices of the open brackets' tokens
        self.closed_lines = 0  # how many of them are ( or [
        self.previous: Token | None = None  # the last token shifted
        self.result: ast.Module | None = None
        self._methods = [getattr(builder, f"build_{r.action}") if r.action else None for r in tables.rules]
        self._since_recovery = 1  # tokens shifted; no error is reported while it is 0
        self._error_line = 0  # of the last error: a second one on the same line mostly follows from the first
        self._forgotten = 0  # blocks that a `kernel` or `fn` inside them cut short: their `}` may yet come
        self._supplied = 0  # `{` that were missing
        self._too_deep = False
        self._recoveries = 0

    def run(self) -> ast.Module | None:
        """The tree, or None where there were errors."""
        tokens = self.tokens
        index = 0
        while True:
            token = tokens[index]
            if token.kind == NEWLINE and self._is_blank(index):
                index += 1
            elif self.feed(token, index):
                if token.kind == END:
                    break
                index += 1
            else:
                resume = self._recover(index)
                if resume is None:
                    return None
                index = resume
        return None if self.diagnostics else self.result

    # --- the automaton -----------------------------------------------------------------------

    def feed(self, token: Token, index: int) -> bool:
        """Reduces and shifts; False (possibly after reductions) where the token cannot stand here."""
        actions = self.tables.actions
        states = self.states
        kind = token.kind
        while True:
            action = actions[states[-1]].get(kind)
            if action is None:
                return False
            if action > 0:
                states.append(action - 1)
                self.values.append(token)
                self.starts.append(token.start)
                self.ends.append(token.end)
                self.depths.append(0)
                if kind in _OPEN:
                    self.brackets.append(index)
                    self.closed_lines += kind != "{"
                elif kind in _CLOSE:
                    self.brackets.pop()
                    self.closed_lines -= kind != "}"
                self.heights.append(len(self.brackets))
                self.previous = token
                self._since_recovery += kind != NEWLINE
                return True
            self._reduce(-action - 1)
            if kind == END and states[-1] == self.tables.accept:
                value = self.values[-1]
                self.result = value if isinstance(value, ast.Module) else None
                return True

    def _reduce(self, number: int) -> None:
        rule = self.tables.rules[number]
        states = self.states
        length = rule.length
        if rule.through and length == 1:
            states[-1] = self.tables.gotos[states[-2]][rule.origin]
            return
        children: list[object] = []
        start = end = -1
        depth = 0
        if length:
            children = self.values[-length:]
            start = next((s for s in self.starts[-length:] if s >= 0), -1)
            end = next((e for e in reversed(self.ends[-length:]) if e >= 0), -1)
            depth = max(self.depths[-length:])
            for stack in (states, self.values, self.starts, self.ends, self.depths, self.heights):
                del stack[-length:]
        kept: list[object] = []
        for index, inlined, before in rule.keep:
            if before:
                kept.extend([None] * before)
            if inlined:
                items = children[index]
                assert isinstance(items, list)
                if kept:
                    kept.extend(items)
                else:
                    kept = items  # a list grows in place: a body of n statements takes n steps
            else:
                kept.append(children[index])
        kept.extend([None] * rule.tail)
        value: object = kept
        method = self._methods[number]
        if rule.through:
            value = kept[0]
        elif method is not None:
            value = method(start, end, kept)
            if rule.action in _NESTING:
                depth = self._check_depth(depth + 1, start, end)
        self.push(rule.origin, value, start, end, depth)

    def push(self, origin: str, value: object, start: int, end: int, depth: int) -> None:
        self.states.append(self.tables.gotos[self.states[-1]][origin])
        self.values.append(value)
        self.starts.append(start)
        self.ends.append(end)
        self.depths.append(depth)
        self.heights.append(len(self.brackets))

    def accepts(self, kind: str) -> bool:
        """Whether a token of this kind could stand here."""
        states = list(self.states)
        while True:
            action = self.tables.actions[states[-1]].get(kind)
            if action is None:
                return False
            if action > 0:
                return True
            rule = self.tables.rules[-action - 1]
            if rule.length:
                del states[-rule.length :]
            states.append(self.tables.gotos[states[-1]][rule.origin])
            if kind == END and states[-1] == self.tables.accept:
                return True

    def expected(self) -> set[str]:
        return {kind for kind in self.tables.actions[self.states[-1]] if self.accepts(kind)}

    def _check_depth(self, depth: int, start: int, end: int) -> int:
        if depth <= MAX_DEPTH:
            return depth
        if not self._too_deep:
            self._too_deep = True
            span = self.positions.span(start, min(end, self.positions.line_end(start)))
            help = "split it with `let`, or move a part into a `fn`"
            message = f"expressions and blocks nest more than {MAX_DEPTH} deep here"
            self.builder.diagnostics.append(Diagnostic(code="PH0124", message=message, span=span, help=help))
        return 0

    # --- newlines ----------------------------------------------------------------------------

    def _is_blank(self, index: int) -> bool:
        """Whether the newline at `index` means nothing; reports those that mean something unwanted."""
        previous = self.previous
        if self.closed_lines or previous is None or not ends_statement(previous.kind):
            return True
        following = self.tokens[index + 1]
        if following.kind in ("{", "else") and self.accepts(following.kind):
            self._add(messages.after_newline(self, previous, following))
            return True
        return False

    # --- recovery ----------------------------------------------------------------------------

    def _add(self, diagnostic: Diagnostic) -> None:
        self.diagnostics.append(diagnostic)

    def _recover(self, index: int) -> int | None:
        """Reports the token at `index`, gets past it and returns the index to go on from, None at the end."""
        token = self.tokens[index]
        missing = self._missing_bracket(index)
        line = self.positions.line_column(token.start)[0]
        if token.kind == "}" and not self.brackets and self._forgotten:
            self._forgotten -= 1
        elif token.kind == END and 0 < len(self.brackets) <= self._supplied:
            pass  # the `}` that is missing belongs to a `{` that was missing before
        elif token.kind != ERROR and self._since_recovery and line != self._error_line:
            diagnostic = messages.explain(self, index, missing)
            self._add(diagnostic)
            line = diagnostic.span.line if diagnostic.span else line
        self._error_line = line
        self._recoveries += 1
        if token.kind == END or len(self.diagnostics) >= MAX_ERRORS or self._recoveries > MAX_RECOVERIES:
            return None
        if token.kind == NEWLINE and self.accepts("{"):
            # The header is sound and its `{` missing: the lines that follow are the body all the same.
            self.tokens[index] = Token("{", "{", token.start, token.start)
            self._supplied += 1
            self._since_recovery = 0
            return index
        if token.kind in _STATEMENT_STARTS - {"@"} and self.level() == "stmt" and self.accepts(NEWLINE):
            # Two statements on one line: both are read.
            self.feed(Token(NEWLINE, "", token.start, token.start), index)
            self._since_recovery = 0
            return index
        sync = self._sync(index, missing)
        if sync.level == "item" and token.kind in ("kernel", "fn"):
            self._forgotten += sum(self.tokens[i].kind == "{" for i in self.brackets)
        self._unwind(sync.level)
        if sync.broken:
            # A token's own offset gives the error node a place; nothing reads it.
            self.push(sync.level, None, token.start, token.end, 0)
            self.previous = Token(ERROR, "", token.start, token.end)
        for kind in sync.before:
            place = self.tokens[sync.index].start
            if not self.feed(Token(kind, "_", place, place), sync.index):
                raise AssertionError(f"cannot resume with {kind}")
        self._since_recovery = 0
        return sync.index

    def context(self, level: str) -> int:
        """The height of the stack at which the innermost statement ("stmt") or declaration ("item") begins."""
        height = self._context(level)
        assert height is not None
        return height

    def _context(self, level: str) -> int | None:
        # A block whose `}` was read, but which is not reduced yet, is over: more brackets were open inside it.
        gotos = self.tables.gotos
        for height in range(len(self.states) - 1, -1, -1):
            if level in gotos[self.states[height]] and self.heights[height] <= self.heights[-1]:
                return height
        return None

    def level(self) -> str:
        """What encloses the current place: "stmt" inside a body, else "item"."""
        return "item" if self._context("stmt") is None else "stmt"

    def first_token(self, level: str, index: int) -> int:
        """The index of the first token of the statement or declaration that the token at `index` breaks."""
        for start in self.starts[self.context(level) + 1 :]:
            if start >= 0:
                return bisect_left(self.tokens, start, key=lambda t: t.start)
        return index

    def opened(self, level: str) -> list[int]:
        """The tokens of the brackets that the broken statement has opened so far."""
        return self.brackets[self.heights[self.context(level)] :]

    def first_on_line(self, index: int) -> bool:
        return index == 0 or self.tokens[index - 1].kind == NEWLINE

    def _unwind(self, level: str) -> None:
        height = self.context(level) + 1
        for stack in (self.states, self.values, self.starts, self.ends, self.depths):
            del stack[height:]
        del self.heights[height:]
        del self.brackets[self.heights[-1] :]
        self.closed_lines = sum(self.tokens[i].kind != "{" for i in self.brackets)

    def _missing_bracket(self, index: int) -> int | None:
        """The innermost bracket that is open at `index`, if it seems to be closed nowhere, as a token index."""
        level = self.level()
        opened = [i for i in self.opened(level)]
        while opened and self.tokens[opened[0]].kind == "{" and not self._is_set(opened[0]):
            opened.pop(0)  # the body of a nested header
        if not opened:
            return None
        attribute = any(t.kind == "@" for t in self.tokens[self.first_token(level, index) : index])
        stack = [self.tokens[i].kind for i in opened]
        for at in range(index, len(self.tokens)):
            kind = self.tokens[at].kind
            if kind in ("(", "[") or (kind == "{" and self._is_set(at)):
                stack.append(kind)
            elif kind in _CLOSE:
                if kind != _OPEN[stack[-1]]:
                    return opened[-1]
                stack.pop()
                if len(stack) < len(opened):
                    return None
            elif kind in (";", "{", END) or kind in _ONLY_STATEMENTS:
                return opened[-1]
            elif kind in _ASSIGN and not attribute and not (level == "item" and at == index):
                return opened[-1]  # not so the `=` of a parameter with a default value
            elif kind in _STATEMENT_STARTS and self.first_on_line(at) and not (kind == "const" and level == "item"):
                return opened[-1]
        return opened[-1]

    def _is_set(self, index: int) -> bool:
        """Whether the `{` at `index` opens a set of an @autotune entry rather than a block."""
        return index > 0 and self.tokens[index - 1].kind == "in"

    def _sync(self, index: int, missing: int | None) -> Sync:
        tokens = self.tokens
        level = self.level()
        first = self.first_token(level, index)
        if level == "item":
            return self._sync_item(index, first)
        if tokens[index].kind in ("kernel", "fn"):
            return Sync(index, "item", (NEWLINE,))
        stack = [] if missing is not None else [tokens[i].kind for i in self.opened(level)]
        if missing is not None and self.first_on_line(index) and tokens[index].kind not in _CLOSE | {"{"}:
            return Sync(index, level, (NEWLINE,))
        for at in range(index, len(tokens)):
            kind = tokens[at].kind
            starts_line = self.first_on_line(at)
            if kind in (END, "}") and not (kind == "}" and "{" in stack):
                return Sync(at, level)
            semicolon = kind == ";" and tokens[first].kind != "for"  # for (i = 0; i < n; i += 1)
            if semicolon or (kind == NEWLINE and not stack):
                return Sync(at, level)
            if starts_line and kind in ("kernel", "fn"):
                return Sync(at, "item", (NEWLINE,))
            if starts_line and kind in _STATEMENT_STARTS and at > first:
                return Sync(at, level, (NEWLINE,))
            if kind == "{" and not self._is_set(at):
                # `if` where there is no telling, because an `else` may follow.
                header = "while" if tokens[first].kind in ("for", "while") else "if"
                return Sync(at, level, (header, "true"), broken=False)
            if kind in _OPEN:
                stack.append(kind)
            elif kind in _CLOSE and stack:
                stack.pop()
        raise AssertionError("the tokens have no end")

    def _sync_item(self, index: int, first: int) -> Sync:
        """The next declaration, or the body of the broken one."""
        tokens = self.tokens
        header = any(t.kind in ("kernel", "fn") for t in tokens[first : index + 1])
        header = header or messages.is_misspelt_header(tokens[first])
        depth = 0  # of blocks that are skipped
        for at in range(index, len(tokens)):
            kind = tokens[at].kind
            starts_line = self.first_on_line(at)
            if kind == END:
                return Sync(at, "item")
            if at > first and (kind in ("kernel", "fn") or (kind in _ITEM_STARTS and starts_line and not depth)):
                parameter = kind == "const" and header
                if not parameter:
                    return Sync(at, "item", (NEWLINE,))
            if kind == "{" and not self._is_set(at):
                if header:
                    return Sync(at, "item", ("kernel", "NAME", "(", ")"), broken=False)
                depth += 1
            elif kind == "}":
                depth = max(0, depth - 1)
        raise AssertionError("the tokens have no end")
