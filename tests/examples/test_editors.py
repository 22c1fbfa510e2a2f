"""The editor grammars know exactly the keywords of the Lark grammar, and the types and built-ins of the checker."""

from __future__ import annotations

import json
import re
from typing import Any

import harness

from phobos.ir.types import DTYPE_BY_NAME
from phobos.resources import grammar_dir
from phobos.syntax.lexer import KEYWORDS

EDITORS = harness.EXAMPLES.parent / "grammar" / "editors"
WORDS = re.compile(r"[a-z_][a-z_0-9]*")


def _grammar_words() -> set[str]:
    text = (grammar_dir() / "phobos.lark").read_text(encoding="utf-8")
    text = re.sub(r"^//.*$", "", text, flags=re.MULTILINE)
    return set(re.findall(r'"([a-z]+)"', text))


def _textmate() -> dict[str, Any]:
    return json.loads((EDITORS / "phobos.tmLanguage.json").read_text(encoding="utf-8"))["repository"]


def _alternatives(pattern: str) -> set[str]:
    """The words of the one `(a|b|c)` group of a pattern."""
    (group,) = re.findall(r"\(([a-z_0-9|]+)\)", pattern)
    return set(group.split("|"))


def _vim() -> dict[str, set[str]]:
    text = (EDITORS / "phobos.vim").read_text(encoding="utf-8")
    groups: dict[str, set[str]] = {}
    for name, words in re.findall(r"^syntax keyword phobos(\w+) (.+)$", text, re.MULTILINE):
        groups.setdefault(name, set()).update(words.split())
    return groups


def test_keywords() -> None:
    words = _grammar_words()
    assert words == set(KEYWORDS) | {"inf", "nan"}
    repository, vim = _textmate(), _vim()
    textmate = set.union(*(_alternatives(p["match"]) for p in repository["keyword"]["patterns"]))
    assert textmate | _alternatives(repository["constant"]["match"]) == words
    assert vim["Declaration"] | vim["Control"] | vim["Constant"] == words


def test_types() -> None:
    types = set(DTYPE_BY_NAME) | {"tensor", "tile"}
    assert _alternatives(_textmate()["type"]["match"]) == types
    assert _vim()["Type"] == types


def test_builtins() -> None:
    from phobos.semantic.catalogue import BUILTINS

    names = set(BUILTINS) | {"range"}
    assert _alternatives(_textmate()["builtin"]["match"].replace("(?=\\()", "")) == names
    assert _vim()["Builtin"] == names


def test_patterns_compile() -> None:
    def patterns(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node[k] for k in ("match", "begin", "end") if k in node]
            return own + [p for v in node.values() for p in patterns(v)]
        return [p for v in node for p in patterns(v)] if isinstance(node, list) else []

    found = patterns(_textmate())
    assert len(found) > 10
    for pattern in found:
        re.compile(pattern)
