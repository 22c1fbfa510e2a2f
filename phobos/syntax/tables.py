"""The LALR tables and terminals of grammar/phobos.lark as plain data.

Lark reads the grammar and computes the tables; what the parser needs of them is a few lists, which are kept in the
cache directory. A warm start therefore neither imports Lark nor builds anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phobos import settings
from phobos.resources import grammar_dir

END = "$END"
_FORMAT = 1  # of the cached file


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a reduction does: pop `length` symbols, build a value by `action`, go to `origin`.

    `keep` lists the children that reach the action as (index, inlined, number of None placeholders before it), as
    Lark's own tree builder would; `tail` counts the placeholders after the last one. `through` is set where the only
    kept child is passed on unchanged; `action` is None for helper rules, whose value is the list of their children.
    """

    origin: str
    length: int
    action: str | None
    through: bool
    keep: tuple[tuple[int, bool, int], ...]
    tail: int


@dataclass(frozen=True, kw_only=True)
class Tables:
    """`actions[state][terminal]` is state + 1 to shift, -(rule + 1) to reduce; `gotos[state][rule name]` a state.

    Terminals that the grammar writes as strings go by their text (`"let"`, `":+"`), the others by their name.
    `patterns` are the latter's regular expressions in the order in which a lexer tries them.
    """

    patterns: tuple[tuple[str, str], ...]
    strings: tuple[str, ...]
    actions: tuple[dict[str, int], ...]
    gotos: tuple[dict[str, int], ...]
    rules: tuple[Rule, ...]
    start: int
    accept: int


@cache
def load() -> Tables:
    """The tables of grammar/phobos.lark, from the cache directory where they are there and sound, else built.

    The cache file is found by grammar text, Lark version and Python version. A file that is missing, damaged or
    unwritable costs time and nothing else.
    """
    grammar = (grammar_dir() / "phobos.lark").read_text(encoding="utf-8")
    key = hashlib.sha256(f"{_FORMAT}\n{_lark_version()}\n{sys.version}\n{grammar}".encode()).hexdigest()
    path = _cache_file(key)
    data = _read(path) if path else None
    if data is None:
        data = build(grammar)
        if path:
            _write(path, data)
    return _tables(data)


def build(grammar: str) -> dict[str, Any]:
    """Computes the tables with Lark, in the JSON form that the cache holds."""
    import lark

    class NoLexer(lark.lexer.Lexer):
        """Only the tables are wanted; syntax/lexer.py reads the text."""

        def __init__(self, conf: object):
            pass

        def lex(self, lexer_state: object, parser_state: object) -> Iterator[lark.Token]:
            return iter(())

    with _no_collision_check():
        # All three attributes are internal to Lark, hence the exact versions in the key and a test of this function.
        built = lark.Lark(grammar, parser="lalr", lexer=NoLexer, maybe_placeholders=True)
    table = built.parser.parser._parse_table
    names = {t.name: t.pattern.value if t.pattern.type == "str" else t.name for t in built.terminals}
    regular = [t for t in built.terminals if t.pattern.type == "re"]
    regular.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))

    rules: dict[Any, int] = {}
    actions: list[dict[str, int]] = []
    gotos: list[dict[str, int]] = []
    states = {state: number for number, state in enumerate(table.states)}
    nonterminals = {rule.origin.name for rule in built.rules}
    for row in table.states.values():
        actions.append({})
        gotos.append({})
        for symbol, (action, target) in row.items():
            if action is lark.parsers.lalr_analysis.Reduce:
                actions[-1][names.get(symbol, symbol)] = -(rules.setdefault(target, len(rules)) + 1)
            elif symbol in nonterminals:
                gotos[-1][symbol] = states[target]
            else:
                actions[-1][names.get(symbol, symbol)] = states[target] + 1
    return {
        "patterns": [[t.name, t.pattern.to_regexp()] for t in regular],
        "strings": [names[t.name] for t in built.terminals if t.pattern.type == "str"],
        "actions": actions,
        "gotos": gotos,
        "rules": [_rule(rule) for rule in rules],
        "start": states[table.start_states["start"]],
        "accept": states[table.end_states["start"]],
    }


def _rule(rule: Any) -> list[Any]:
    """A Lark rule as [origin, length, action, through, keep, tail], after lark.parse_tree_builder."""
    placeholders = [0] * (len(rule.expansion) + 1)
    if rule.options.empty_indices:
        runs = "".join("1" if empty else "0" for empty in rule.options.empty_indices).split("0")
        placeholders = [len(run) for run in runs]
    keep: list[list[Any]] = []
    pending = 0
    for index, symbol in enumerate(rule.expansion):
        pending += placeholders[index]
        if rule.options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            keep.append([index, not symbol.is_term and symbol.name.startswith("_"), pending])
            pending = 0
    pending += placeholders[-1]
    origin = str(rule.origin.name)
    single = len(keep) == 1 and not pending and not keep[0][1] and not keep[0][2]
    through = bool(rule.options.expand1 and not rule.alias and single)
    action = None if origin.startswith("_") or through else str(rule.alias or origin)
    return [origin, len(rule.expansion), action, through, keep, pending]


def _tables(data: dict[str, Any]) -> Tables:
    return Tables(
        patterns=tuple((name, pattern) for name, pattern in data["patterns"]),
        strings=tuple(data["strings"]),
        actions=tuple(data["actions"]),
        gotos=tuple(data["gotos"]),
        rules=tuple(
            Rule(
                origin=origin,
                length=length,
                action=action,
                through=through,
                keep=tuple((index, inlined, before) for index, inlined, before in keep),
                tail=tail,
            )
            for origin, length, action, through, keep, tail in data["rules"]
        ),
        start=data["start"],
        accept=data["accept"],
    )


@contextmanager
def _no_collision_check() -> Iterator[None]:
    """Keeps Lark from checking its own grammar's terminals with interegular, where that package is there.

    It takes 0.12 s of 0.27 s. The test of our grammar runs the check, by strict=True.
    """
    import lark.lexer

    before = lark.lexer.has_interegular
    lark.lexer.has_interegular = False
    try:
        yield
    finally:
        lark.lexer.has_interegular = before


def _lark_version() -> str:
    """Lark's version, read from its text: importing Lark takes longer than all else here together."""
    import importlib.util

    spec = importlib.util.find_spec("lark")
    if spec is not None and spec.origin is not None:
        try:
            found = re.search(r'__version__[^=\n]*=\s*"([^"]+)"', Path(spec.origin).read_text(encoding="utf-8"))
        except OSError:
            found = None
        if found:
            return found.group(1)
    import lark

    return lark.__version__


def _cache_file(key: str) -> Path | None:
    if not settings.cache_enabled():
        return None
    try:
        return settings.cache_dir() / "syntax" / f"{key[:32]}.json"
    except RuntimeError:  # a user without a home directory
        return None


def _read(path: Path) -> dict[str, Any] | None:
    """The cached tables, or None where the file is not there or not what `_write` wrote."""
    try:
        digest, _, payload = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        return None
    return json.loads(payload)


def _write(path: Path, data: dict[str, Any]) -> None:
    """Writes by rename, so that a reader sees all or nothing. A cache that cannot be written is no error."""
    payload = json.dumps(data, separators=(",", ":")).encode()
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
        os.replace(temporary, path)
    except OSError:
        # Read-only home, full disk: the tables were built, and are built again next time.
        return
