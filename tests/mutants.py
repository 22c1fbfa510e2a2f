"""Mutants of an emitted text: one barrier or one guard deleted at a time.

`mutants` gives each as a text of its own; `switched` gives one text that holds them all, so that it compiles once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Statements that only order memory accesses. Each stands alone; deleting it keeps the text well-formed.
_SYNCHRONISATION = re.compile(
    r"\bph_(?:syncthreads|syncwarp|bar_sync|cp_wait|cp_commit|fence\w*)(?:<[^;]*?>)?\([^;]*\);"
)
# Every helper whose name says that it orders something: none may escape the pattern above.
_ORDERING = re.compile(r"\bph_(?!cp_async)\w*(?:sync|bar_|fence|wait|commit|arrive)\w*")
# Conditions under which one thread of several acts: the owner of a replicated element, or the first thread.
_OWNER = re.compile(r"\bif \((owner_\d+|tid == 0)\)")
_GUARD = re.compile(r"\bPH_GUARD\(")
_SIGNATURE = re.compile(r"\bPH_KERNEL\w*\([^()]*\)\s*\w+\(")
SWITCH = "ph_mutant"
"""The parameter of a switched text: the number of the mutant to be, or -1 for none."""


@dataclass(frozen=True)
class Mutant:
    """`what` is the deleted text, `line` its 1-based line in the body, `body` what is left."""

    what: str
    line: int
    body: str

    @property
    def label(self) -> str:
        return f"line {self.line}: {self.what}"


def mutants(body: str) -> Iterator[Mutant]:
    """Every mutant of `body`: a synchronising statement removed, or a mask taken as true: the condition of a PH_GUARD,
    or that a thread owns an element."""
    for kind, start, end in _places(_blank_comments(body)):
        yield _replace(body, start, end, ";" if kind == "sync" else "true")


def switched(body: str) -> tuple[str, tuple[str, ...]]:
    """(text, labels): the text with one more parameter, the `int` SWITCH, at the end, which says which of the mutants
    it is; their labels are in the order of `mutants`."""
    code = _blank_comments(body)
    inserts: list[tuple[int, str]] = []
    for number, (kind, start, end) in enumerate(_places(code)):
        if kind == "sync":
            inserts += [(start, f"{{ if ({SWITCH} != {number}) "), (end, " }")]
        elif kind == "owner":
            inserts += [(start, f"({SWITCH} == {number} || "), (end, ")")]
        else:
            inserts += [(start + len("PH_GUARD("), f"{SWITCH} == {number} || ("), (end - 1, ")")]
    signature = _SIGNATURE.search(code)
    if signature is None:
        raise ValueError("there is no kernel in the text")
    closing = _closing(code, signature.end() - 1)
    if any(at < closing for at, _ in inserts):
        raise ValueError("a mutant lies outside of the kernel")
    comma = ", " if code[signature.end() : closing].strip() else ""
    out, last = [], 0
    for at, text in sorted([*inserts, (closing, f"{comma}const int {SWITCH}")], key=lambda i: i[0]):
        out += [body[last:at], text]
        last = at
    return "".join([*out, body[last:]]), tuple(m.label for m in mutants(body))


def _places(code: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of everything that a mutant changes, in a text without comments."""
    for match in _SYNCHRONISATION.finditer(code):
        yield "sync", match.start(), match.end()
    for match in _OWNER.finditer(code):
        yield "owner", match.start(1), match.end(1)
    for match in _GUARD.finditer(code):
        yield "guard", match.start(), _closing(code, match.end() - 1) + 1


def unmatched_synchronisation(body: str) -> list[str]:
    """Names of synchronising helpers in `body` that `mutants` would not delete."""
    code = _SYNCHRONISATION.sub("", _blank_comments(body))
    return sorted(set(_ORDERING.findall(code)))


def _replace(body: str, start: int, end: int, by: str) -> Mutant:
    return Mutant(body[start:end], body.count("\n", 0, start) + 1, body[:start] + by + body[end:])


def _closing(text: str, opening: int) -> int:
    """Offset of the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError(f"unbalanced parentheses from offset {opening}")


def _blank_comments(text: str) -> str:
    """The text with comments, preprocessor lines and strings blanked out, offsets kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*|"(?:[^"\\\n]|\\.)*"', re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
