"""Whatever the text, parsing it gives a tree or a CompileError, soon."""

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.diagnostics import CompileError
from phobos.source import SourceFile
from phobos.syntax import ast
from phobos.syntax.lexer import MAX_ERRORS
from phobos.syntax.parser import parse

TEXT = (Path(__file__).parent / "data" / "everything.ph").read_text(encoding="utf-8")
TOKENS = (
    "kernel fn let var const if else for in while break continue return true false inf nan x f tile range unroll "
    '0 1.5 "s" ( ) [ ] { } < > = == != <= >= + - * / % & | ^ && || << >> ! ~ , ; : :+ . -> @ += -= *= /= $ " 0x 1_ '
    "\n \n \n"
).split(" ")


def check(text: str) -> None:
    source = SourceFile("k.ph", text)
    try:
        module = parse(source)
    except CompileError as error:
        assert 1 <= len(error.diagnostics) <= MAX_ERRORS
        for diagnostic in error.diagnostics:
            span = diagnostic.span
            assert span is not None and diagnostic.code.startswith("PH01") and diagnostic.message
            # The place exists: a line of the file, and a column on it or just past its end.
            assert 1 <= span.line <= max(1, len(source.lines)) and span.line <= span.end_line
            assert 1 <= span.column <= len(source.line(span.line)) + 1
        assert str(error)
    else:
        assert isinstance(module, ast.Module) and module.kernels


@given(st.lists(st.sampled_from(TOKENS), max_size=80).map(" ".join))
@settings(max_examples=300, deadline=None)
def test_token_soup(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(TOKENS), max_size=60).map(" ".join))
@settings(max_examples=300, deadline=None)
def test_token_soup_in_a_body(text: str) -> None:
    check(f"@a(\nx in {{1}})\nkernel k() {{\n{text}\n}}\nkernel j() {{}}\n")


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text(text: str) -> None:
    check(text)


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_mutations_of_a_valid_file(seed: int) -> None:
    rnd = random.Random(seed)
    text = TEXT
    for _ in range(rnd.randint(1, 6)):
        at = rnd.randrange(len(text))
        until = min(len(text), at + rnd.choice([0, 0, 1, 1, 3, 20, 200]))
        other = rnd.randrange(len(text))
        new = rnd.choice(["", rnd.choice(TOKENS), text[other : other + rnd.randint(1, 30)], chr(rnd.randrange(0x250))])
        text = text[:at] + new + text[until:]
        if not text:
            break
    check(text)


LARGE = (
    [c * 10**5 for c in ("\0", "(", ")", "{", ";", '"', "é")]
    + ["let " * 30_000, "kernel\n" * 30_000, "@a\n" * 30_000, "\ud800kernel", "\u2028\x0c\x85$"]
    + ["kernel k() { x = " + c * 50_000 for c in ("(", "-", "a[", "f(a b; ", "{")]
    + ["kernel k() {\n" + "if a {\n" * 20_000, "kernel k() {\nx = " + "9" * 10**6]
)


@pytest.mark.parametrize("text", LARGE, ids=lambda text: ascii(text[:24]))
def test_large_and_odd(text: str) -> None:
    start = time.process_time()
    check(text)
    assert time.process_time() - start < 10


def test_a_megabyte_of_garbage() -> None:
    rnd = random.Random(7)
    for alphabet in ("".join(map(chr, range(1, 256))), "abc (){}[]=+-*/<>@.,:;\n", "x = ( \n"):
        start = time.process_time()
        check("".join(rnd.choices(alphabet, k=10**6)))
        assert time.process_time() - start < 20
