"""Mutants of an emitted text: one barrier or one guard deleted at a time."""

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
    code = _blank_comments(body)
    for match in _SYNCHRONISATION.finditer(code):
        yield _replace(body, match.start(), match.end(), ";")
    for match in _OWNER.finditer(code):
        yield _replace(body, match.start(1), match.end(1), "true")
    for match in _GUARD.finditer(code):
        yield _replace(body, match.start(), _closing(code, match.end() - 1) + 1, "true")


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
