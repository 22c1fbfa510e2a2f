"""phobos fmt: canonical, idempotent, and without effect on the tree or the comments."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.diagnostics import CompileError
from phobos.source import SourceFile
from phobos.syntax import tables
from phobos.syntax.dump import dump
from phobos.syntax.formatter import format_source
from phobos.syntax.lexer import NEWLINE, Positions, ends_statement, lex
from phobos.syntax.parser import parse_any

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("*.ph")) + sorted((Path(__file__).parents[2] / "examples").glob("*.ph"))


def tree(text: str) -> str:
    return dump(parse_any(SourceFile("k.ph", text)))


def comments(text: str) -> list[str]:
    source = SourceFile("k.ph", text)
    return [c.text.rstrip() for c in lex(source, tables.load(), Positions(source)).comments]


def check(text: str) -> str:
    """Formats and asserts what holds for every text."""
    out = format_source(SourceFile("k.ph", text))
    assert tree(out) == tree(text)
    assert format_source(out) == out
    assert comments(out) == comments(text)
    assert "\n\n\n" not in out and "\r" not in out and "\t" not in re.sub(r'//.*|".*"', "", out)
    assert all(line == line.rstrip() for line in out.split("\n"))
    assert out == "" or (out.endswith("\n") and not out.endswith("\n\n") and not out.startswith("\n"))
    return out


def test_canonical_layout() -> None:
    text = '''

@launch( 128 )   @tensorcore @aligned(N=B , M = C)   kernel   k < T , U >( X:tensor<T>[N , M],// first
 const causal :bool,
   Y : tensor < U > [ N ]) {

 let a=b ;  let c = - a*( b+ -c ) ; // two
 let longer = a      // aligned



 if a==b {x=1} else if !c {} else { y += A[i:+n,:,:e,s:,idx , s:e] }
  // own
  @pipeline(2) for<unroll 4>i in range(0,N,B){ // loop

 print("a  b",x)
 // last

 }
 let z = foo(
   a,
   // why
   b
 ) +
  3
 while a<b && c > d { continue ; break }
 let q = K[kt:+BC,:] else - inf
 return
}
fn f(a,b:f32)->tile<f32>[R,C]{ return a [0] . x }
@autotune(X in [4,8], Y in {p,
  q})
kernel l(){ }
kernel m(
a:f32,
b:f32
){
// only a comment
}
'''
    assert check(text) == '''\
@launch(128)
@tensorcore
@aligned(N = B, M = C)
kernel k<T, U>(X: tensor<T>[N, M],  // first
               const causal: bool,
               Y: tensor<U>[N]) {
  let a = b
  let c = -a * (b + -c)  // two
  let longer = a         // aligned

  if a == b {
    x = 1
  } else if !c {} else {
    y += A[i :+ n, :, : e, s :, idx, s : e]
  }
  // own
  @pipeline(2)
  for<unroll 4> i in range(0, N, B) {  // loop
    print("a  b", x)
    // last
  }
  let z = foo(
      a,
      // why
      b
  ) +
      3
  while a < b && c > d {
    continue
    break
  }
  let q = K[kt :+ BC, :] else -inf
  return
}
fn f(a, b: f32) -> tile<f32>[R, C] {
  return a[0].x
}
@autotune(X in [4, 8], Y in {p,
                             q})
kernel l() {}
kernel m(
    a: f32,
    b: f32
) {
  // only a comment
}
'''


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("", ""),
        ("// a\n\n\n// b", "// a\n\n// b\n"),
        ("const A=-1;const B=~A<<2", "const A = -1\nconst B = ~A << 2\n"),
        ("fn f(){}\n\n\n\nfn g(){}", "fn f() {}\n\nfn g() {}\n"),
        ("fn f(){ // c\n}", "fn f() {  // c\n}\n"),
        ("fn f() {\r\n\r\n\tx = 1\r\n\r\n}\r\n", "fn f() {\n  x = 1\n}\n"),
        ("\ufefffn f() {}", "fn f() {}\n"),
        ("fn f() { if (a) { return (b) } }", "fn f() {\n  if (a) {\n    return (b)\n  }\n}\n"),
        ("fn f() { x = a<b; y = (a)[0] ; z = g (x) [1] }", "fn f() {\n  x = a < b\n  y = (a)[0]\n  z = g(x)[1]\n}\n"),
        ("fn f() { x = a - -b - - -c }", "fn f() {\n  x = a - -b - --c\n}\n"),
        ("fn f() { x = 1 .y + 1. .y }", "fn f() {\n  x = 1 .y + 1. .y\n}\n"),
        ("fn f(x: tile < f32 > [ 2 ] , y) {}", "fn f(x: tile<f32>[2], y) {}\n"),
        ("fn f() { x = A[tile < b :+ 1] }", "fn f() {\n  x = A[tile < b :+ 1]\n}\n"),
        ("fn f() { x = A[a : tile < b] }", "fn f() {\n  x = A[a : tile < b]\n}\n"),
        ("fn f() { x = A[:, -1, : -1, !a :] }", "fn f() {\n  x = A[:, -1, : -1, !a :]\n}\n"),
        ("@a\n\n@b(1)\n\nkernel k() {}", "@a\n\n@b(1)\n\nkernel k() {}\n"),
    ],
)
def test_cases(text: str, out: str) -> None:
    assert check(text) == out


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_files(path: Path) -> None:
    check(path.read_text(encoding="utf-8"))


def test_accepts_plain_text_and_refuses_broken_text() -> None:
    assert format_source("kernel k(){}") == "kernel k() {}\n"
    with pytest.raises(CompileError) as error:
        format_source("kernel k( {}")
    assert error.value.diagnostics[0].code == "PH0111"


def respaced(text: str, rnd: random.Random) -> str:
    """The same statements with other blanks, newlines, semicolons and comments."""
    source = SourceFile("k.ph", text)
    tokens = lex(source, tables.load(), Positions(source)).tokens[:-1]
    out: list[str] = []
    depth = 0
    previous = None
    for index, token in enumerate(tokens):
        following = tokens[index + 1].kind if index + 1 < len(tokens) else None
        free = depth > 0 or not ends_statement(previous)
        if token.kind == NEWLINE:
            options = ["\n", "\n\n\n", " // note\n", "\r\n\t\n", "\n  // own line\n\n"]
            if not free and following not in ("kernel", "for", "@", None):
                options += ["; ", " ;\n", "; // after\n"]
            out.append(rnd.choice(options) if not free or rnd.random() < 0.5 else " ")
            continue
        blank = rnd.choice(["", " ", " ", "  ", "\t"])
        if free and out and rnd.random() < 0.1:
            blank = rnd.choice(["\n", " // inside\n", "\n\n\n", "\n// inside\n"])
        if out and re.match(r"[\w.]", token.text) and re.search(r"[\w.]$", out[-1]):
            blank = blank or " "
        out += [blank, token.text]
        depth += (token.kind in ("(", "[")) - (token.kind in (")", "]"))
        previous = token.kind
    return "".join(out)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_respaced_files(seed: int) -> None:
    rnd = random.Random(seed)
    text = rnd.choice(FILES).read_text(encoding="utf-8")
    other = respaced(text, rnd)
    assert tree(other) == tree(text)
    check(other)


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "1", "1.", ".5", "inf", "true", "ctx.block.x"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("-!~"), inner).map("".join),
        st.tuples(inner, st.sampled_from("* / % + - << >> & ^ | && ||".split()), inner).map(" ".join),
        inner.map(lambda e: f"({e})"),
        st.tuples(inner, st.sampled_from(["<", "==", ">="]), inner).map(lambda t: f"(({t[0]}) {t[1]} ({t[2]}))"),
        st.lists(inner, max_size=3).map(lambda items: f"f({', '.join(items)})"),
        st.tuples(inner, inner).map(lambda t: f"A[{t[0]} : {t[1]}, {t[0]} :+ {t[1]}, :, : {t[0]}, {t[1]} :]"),
        inner.map(lambda e: f"(A[{e}] else -0.5)"),
    ),
    max_leaves=12,
)  # fmt: skip


@given(EXPRESSIONS, st.booleans())
@settings(max_examples=200, deadline=None)
def test_expressions(text: str, tight: bool) -> None:
    if tight:
        text = re.sub(r"(?<!else) (?!else)", "", text)
    check(f"fn f() {{ x = {text} }}")
