"""The grammar file: free of conflicts and collisions, and the same to our driver as to Lark."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import lark
import pytest

from phobos.resources import grammar_dir
from phobos.source import SourceFile
from phobos.syntax import tables
from phobos.syntax.lexer import NEWLINE, Positions, ends_statement, lex
from phobos.syntax.parser import parse

DATA = Path(__file__).parent / "data"
GRAMMAR = (grammar_dir() / "phobos.lark").read_text(encoding="utf-8")


def test_no_conflicts_and_no_collisions(caplog: pytest.LogCaptureFixture) -> None:
    """strict=True makes Lark raise on shift/reduce conflicts and on terminals that match a common text."""
    pytest.importorskip("interegular")
    with caplog.at_level(logging.DEBUG, logger="lark"):
        lark.Lark(GRAMMAR, parser="lalr", lexer="basic", strict=True)
    assert not [r.message for r in caplog.records if "onflict" in r.message or "ollision" in r.message]


def test_strict_mode_would_see_a_conflict() -> None:
    """The proof above is worth something: an ambiguous variant of our grammar fails it."""
    pytest.importorskip("interegular")
    chained = GRAMMAR.replace('bit_or ("==" |', 'comparison ("==" |').replace('">=") bit_or ', '">=") comparison ')
    assert chained != GRAMMAR
    with pytest.raises(lark.exceptions.GrammarError):
        lark.Lark(chained, parser="lalr", lexer="basic", strict=True)


@pytest.mark.parametrize("name", ["flash_attention_fp32.ph", "everything.ph"])
def test_lark_reads_the_same_tokens_and_accepts_them(name: str) -> None:
    """Lark's lexer and parser, with the newline rule between them, agree with ours on valid files."""
    text = (DATA / name).read_text(encoding="utf-8")
    ours = lex(SourceFile(name, text), tables.load(), Positions(SourceFile(name, text)))
    parser = lark.Lark(GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=True)
    theirs = [t for t in parser.lex(text)]
    solid = [t for t in ours.tokens if t.kind not in (NEWLINE, tables.END)]
    assert [(t.start, t.end, t.text) for t in solid] == [
        (t.start_pos, t.end_pos, str(t)) for t in theirs if t.type != NEWLINE
    ]
    interactive = parser.parse_interactive("")
    values = {t.name: t.pattern.value for t in parser.terminals if t.pattern.type == "str"}
    depth, previous = 0, None
    for token in theirs:
        kind = values.get(token.type, token.type)
        depth += (kind in ("(", "[")) - (kind in (")", "]"))
        if kind != NEWLINE or (depth == 0 and ends_statement(previous)):
            interactive.feed_token(token)
            previous = kind
    tree = interactive.feed_eof()
    module = parse(SourceFile(name, text))
    kernels = [t for t in tree.children if isinstance(t, lark.Tree) and t.data == "kernel"]
    assert [str(k.children[1]) for k in kernels] == [k.name.id for k in module.kernels]


def test_every_rule_has_an_action() -> None:
    from phobos.syntax.builder import Builder

    actions = {rule.action for rule in tables.load().rules if rule.action}
    methods = {name.removeprefix("build_") for name in dir(Builder) if name.startswith("build_")}
    assert actions == methods


def test_cache_round_trip_and_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("PHOBOS_NO_CACHE", raising=False)
    fresh = tables.load.__wrapped__()
    (file,) = (tmp_path / "syntax").iterdir()
    built: list[int] = []
    build = tables.build
    monkeypatch.setattr(tables, "build", lambda grammar: built.append(1) or build(grammar))
    assert tables.load.__wrapped__() == fresh
    assert not built
    sound = file.read_bytes()
    damages = [b"", b"not json", sound[:-10], sound.replace(b"NAME", b"NAMF", 1), b"\xff" * 100]
    for count, damaged in enumerate(damages, start=1):
        file.write_bytes(damaged)
        again = tables.load.__wrapped__()  # Lark numbers the states differently each time
        assert (len(again.actions), set(again.rules)) == (len(fresh.actions), set(fresh.rules))
        assert len(built) == count
        assert tables.load.__wrapped__() == again  # the file was written anew
    assert len(built) == 5
    assert [p.suffix for p in (tmp_path / "syntax").iterdir()] == [".json"]


def test_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the cache directory should be")
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(blocked))
    assert tables.load.__wrapped__().strings
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    assert tables.load.__wrapped__().strings
    assert os.path.isfile(blocked)


def test_version_is_read_without_importing_lark() -> None:
    assert tables._lark_version() == lark.__version__


def test_a_warm_start_does_not_import_lark(tmp_path: Path) -> None:
    """Lark and the tables take 0.2 s to import and to build; a start with a cache takes neither."""
    code = (
        "import sys; from phobos.source import SourceFile; from phobos.syntax.parser import parse\n"
        "parse(SourceFile('k', 'kernel k() {}')); print('lark' in sys.modules)"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PHOBOS_CACHE_DIR": str(tmp_path), "PHOBOS_NO_CACHE": "", "PYTHONPATH": root}
    for lark_imported in ("True", "False"):
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == lark_imported
