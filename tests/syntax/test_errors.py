"""Every kind of syntax error: code, place, what was found and expected, the fix, and nothing that only follows."""

import pytest

from phobos.diagnostics import CompileError, Diagnostic
from phobos.source import SourceFile
from phobos.syntax.driver import MAX_DEPTH
from phobos.syntax.parser import parse


def errors(text: str) -> tuple[Diagnostic, ...]:
    source = SourceFile("k.ph", text)
    with pytest.raises(CompileError) as raised:
        parse(source)
    assert raised.value.source is source
    return raised.value.diagnostics


def places(text: str) -> list[tuple[str, int, int]]:
    out = []
    for d in errors(text):
        assert d.span is not None and d.span.file == "k.ph" and d.severity == "error"
        assert (d.span.line, d.span.column) <= (d.span.end_line, d.span.end_column)
        out.append((d.code, d.span.line, d.span.column))
    return out


def in_body(text: str) -> str:
    """A kernel with a body that begins on line 2."""
    return f"kernel k(X: tensor<f32>[N]) {{\n{text}\n}}\n"


# (body text, what each error is: code, line, column, a part of the message, a part of the help)
BODY = [
    # characters and literals
    ("x = 3 $ 4", [("PH0101", 2, 7, "unknown character `$`", None)]),
    ("x = a ? b : c", [("PH0101", 2, 7, "unknown character `?`", "where(condition, a, b)")]),
    ("# old comment", [("PH0101", 2, 1, "unknown character `#`", "//")]),
    ("x = \x00\x01", [("PH0101", 2, 5, "unknown characters U+0000, U+0001", None)]),
    ("let größe = 1", [("PH0101", 2, 7, "`ö`", "ASCII")]),
    ("x = a # 'why' `b`", [("PH0101", 2, 7, "`#`", "//")]),
    ('print("abc, x)\nx = 1 1', [("PH0102", 2, 7, "no closing", None), ("PH0128", 3, 7, "", None)]),
    ("x = 12ab", [("PH0103", 2, 5, "`12ab` is not a number", "cannot start with a digit")]),
    ("x = 1.0f", [("PH0103", 2, 5, "`1.0f`", "drop the suffix")]),
    ("x = 1_ + 2__3", [("PH0103", 2, 5, "`1_`", "between two digits"), ("PH0103", 2, 10, "`2__3`", None)]),
    ("x = 0b11 + 0x", [("PH0103", 2, 5, "`0b11`", "hexadecimal"), ("PH0103", 2, 12, "`0x`", None)]),
    ("x = 007", [("PH0103", 2, 5, "starts with a zero", "`7`")]),
    ("x = 1.2.3", [("PH0103", 2, 5, "`1.2.3` is not a number", None)]),
    ("for i in 0..N {\n}", [("PH0103", 2, 10, "`0..N`", "range(lo, hi)")]),
    ("x = 18446744073709551616", [("PH0104", 2, 5, "does not fit in 64 bits", "18446744073709551615")]),
    ("x = 0x1_0000_0000_0000_0000", [("PH0104", 2, 5, "does not fit in 64 bits", None)]),
    ("x = 1e999", [("PH0104", 2, 5, "does not fit in f64", "`inf`")]),
    (r'print("a\qb")', [("PH0105", 2, 9, r"unknown escape `\q`", r"\n")]),
    # what is missing
    ("let x =\nlet y = 2",
     [("PH0110", 2, 8, "expected an expression after `=`, found the keyword `let` on line 3", None)]),
    ("x = a +\n\n// c\n", [("PH0110", 2, 8, "expected an expression after `+`, found `}`", None)]),
    ("let x: f32",
     [("PH0110", 2, 11, "expected `=` after the name `f32`, found the end of the line", "needs a value")]),
    ("let x", [("PH0110", 2, 6, "expected `=` or `:` after the name `x`", None)]),
    ("const N: i32 = 3", [("PH0110", 2, 8, "expected `=`", "the type of its value")]),
    ("var x: tile<f32> = 3", [("PH0110", 2, 17, "expected `[` after `>`", "tile<f32>[R, C]")]),
    ("X[]", [("PH0110", 2, 3, "expected an expression or `:` after `[`, found `]`", None)]),
    ("x = X[1 : 2 : 3]", [("PH0110", 2, 13, "expected `,` or `]`", None)]),
    ("x = f(a b, c)", [("PH0110", 2, 9, "expected `,` or `)` after the name `a`, found the name `b`", None)]),
    ("x = f(a,, b)", [("PH0110", 2, 9, "expected an expression or `)` after `,`", None)]),
    ("for i in N {\n}", [("PH0110", 2, 12, "expected `(` after the name `N`", "range(lo, hi, step)")]),
    ("for i in 3 {\n}", [("PH0110", 2, 10, "expected `range(...)`", "range(lo, hi, step)")]),
    ("for (i = 0; i < 3; i++) {\n}", [("PH0110", 2, 5, "after the keyword `for`, found `(`", "range(lo, hi, step)")]),
    ("x = K[:] else y", [("PH0110", 2, 15, "expected a number such as `0.0` or `-inf`", None)]),
    ("else {\n}", [("PH0110", 2, 1, "found the keyword `else`", "follows the `}` of an `if`")]),
    ("lett x = 3", [("PH0110", 2, 6, "found the name `x`", "did you mean `let`?")]),
    ("int x = 3", [("PH0110", 2, 5, "found the name `x`", "let x = e")]),
    ("{\n}", [("PH0110", 2, 1, "expected a statement or `}`", "a block follows `for`")]),
    ("x = [1, 2]", [("PH0110", 2, 5, "expected an expression after `=`, found `[`", None)]),
    (";", [("PH0110", 2, 1, "expected a statement", None)]),
    ("var x: 3", [("PH0110", 2, 8, "expected a type after `:`, found the number `3`", None)]),
    # brackets
    ("x = f(a\nlet y = 2", [("PH0111", 2, 8, "expected `)`, found the keyword `let` on line 3", "missing `)`")]),
    ("x = f(a\nX[0] = 1.0", [("PH0111", 2, 8, "expected `)`, found the name `X` on line 3", None)]),
    ("x = f(a,\nX[0] = g(1.0)", [("PH0111", 2, 9, "expected `)`, found a new statement on line 3", None)]),
    ("x = X[0\n", [("PH0111", 2, 8, "expected `]`, found `}`", None)]),
    ("x = X[(0]", [("PH0111", 2, 9, "expected `)`, found `]`", "close the `(` first")]),
    ("while (a < b {\nx = 1 1\n}", [("PH0111", 2, 13, "expected `)`, found `{`", None), ("PH0128", 3, 7, "", None)]),
    ("var x: tile<f32>[3\nlet y = 2", [("PH0111", 2, 19, "expected `]`", None)]),
    ("x = a)\ny = ]", [("PH0112", 2, 6, "`)` closes nothing", None), ("PH0112", 3, 5, "`]` closes nothing", None)]),
    # blocks and lines
    ("for i in range(3)\n{\nx = 1 1\n}",
     [("PH0113", 3, 1, "`{` stands on the next line", "end of the line before"), ("PH0128", 4, 7, "", None)]),
    ("if a {\n}\nelse {\nx = 1 1\n}",
     [("PH0114", 4, 1, "`else` stands on the line after", "} else {"), ("PH0128", 5, 7, "", None)]),
    ("if a {\n} // why\n\nelse if b {\n}\nelse {\n}", [("PH0114", 5, 1, "", None), ("PH0114", 7, 1, "", None)]),
    ("x = K[:]\n  else -inf", [("PH0114", 3, 3, "the `else` of a load", "on the line of the load")]),
    ("x = a\n+ b", [("PH0118", 3, 1, "cannot start with `+`", "at the end of the line before")]),
    ("x = a\n&& b", [("PH0118", 3, 1, "cannot start with `&&`", None)]),
    ("x = a\n.b", [("PH0118", 3, 1, "cannot start with `.`", None)]),
    ("x = 3 let y = 4", [("PH0128", 2, 7, "expected the end of the statement", "`;`")]),
    ("x = a b", [("PH0128", 2, 7, "found the name `b`", None)]),
    ("break 3", [("PH0128", 2, 7, "after the keyword `break`", None)]),
    ("if a { } if b {\n} else {\nx = 1 1\n}", [("PH0128", 2, 10, "", None), ("PH0128", 4, 7, "", None)]),
    ("if a { } x = 1", [("PH0128", 2, 10, "", None)]),
    # assignments and comparisons
    ("while x < y < z {\n}", [("PH0115", 2, 13, "comparisons do not chain", "a < b && b < c")]),
    ("x = a == b != c", [("PH0115", 2, 12, "comparisons do not chain: `==` and then `!=`", None)]),
    ("if a < b & c < d {\n}", [("PH0115", 2, 14, "do not chain", "the logical one is `&&`")]),
    ("if a = 3 {\nx = 1 1\n}", [("PH0116", 2, 6, "`=` in a condition", "`==`"), ("PH0128", 3, 7, "", None)]),
    ("while a += 3 {\n}", [("PH0116", 2, 9, "`+=` in a condition", None)]),
    ("x = f(y = 3)", [("PH0116", 2, 9, "`=` in an expression", "by position")]),
    ("x = y = z", [("PH0116", 2, 7, "`=` in an expression", "assigns once")]),
    ("a + b = c", [("PH0117", 2, 1, "cannot assign to an expression", "a name or a slice")]),
    ("f(x) = c", [("PH0117", 2, 1, "cannot assign to a call of `f`", None)]),
    ("X.y += c", [("PH0117", 2, 1, "cannot assign to the member `.y`", None)]),
    ("3 = c", [("PH0117", 2, 1, "cannot assign to a literal", None)]),
    ("-x = c", [("PH0117", 2, 1, "cannot assign", None)]),
    # words
    ("let in = 3", [("PH0119", 2, 5, "expected a name after the keyword `let`, found `in`", "choose another name")]),
    ("let inf = 3", [("PH0119", 2, 5, "found `inf`", "choose another name")]),
    ("x = a.for", [("PH0119", 2, 7, "found `for`", None)]),
    ("fn f() {\n}", [("PH0121", 2, 1, "`fn` inside a body", None)]),
    ("@pipeline(2)\nwhile x {\n}", [("PH0122", 3, 1, "expected `for` after the attribute", "only a `for`")]),
    ("for<unrol 4> i in range(3) {\n}", [("PH0123", 2, 5, "found `unrol`, expected `unroll`", "for<unroll 4>")]),
    ("for i in rang(3) {\n}", [("PH0123", 2, 10, "found `rang`, expected `range`", None)]),
    ("var x: til<f32>[3]", [("PH0123", 2, 8, "found `til`, expected `tensor` or `tile`", "`tile`")]),
    ("var x: tile", [("PH0123", 2, 8, "`tile` needs an element type", "tile<f32>[R, C]")]),
    ("var x", [("PH0125", 2, 1, "neither a type nor a value", None)]),
    ("x = a and b", [("PH0127", 2, 7, "found `and`", "`&&`")]),
    ("x = not b", [("PH0127", 2, 5, "`not`", "`!`")]),
    ("elif x {\n}", [("PH0127", 2, 1, "`elif`", "else if")]),
    ("if x {\n} elif y {\nx = 1 1\n}", [("PH0127", 3, 3, "found `elif`", "else if"), ("PH0128", 4, 7, "", None)]),
    ("x = a as f32", [("PH0127", 2, 7, "found `as`", "f16(x)")]),
    # operators of other languages
    ("x++", [("PH0127", 2, 3, "found `+`", "x += 1")]),
    ("x--", [("PH0110", 2, 4, "expected an expression after `-`", None)]),
    ("x = x ** 2", [("PH0127", 2, 8, "found `*`", "pow(x, y)")]),
    ("x %= 3", [("PH0127", 2, 4, "found `=`", "x = x % e")]),
    ("let y := 3", [("PH0127", 2, 8, "found `=`", "let x = e")]),
    ("/* hi */", [("PH0127", 2, 1, "found `/`", "a comment starts with `//`")]),
    ("x = y.to(f16)", [("PH0127", 2, 9, "found `(`", "f16(x)")]),
    ("x = tl.load(p)", [("PH0127", 2, 12, "found `(`", "X[i :+ n]")]),
    ("x = tl.program_id(0)", [("PH0127", 2, 18, "found `(`", "ctx.block.x")]),
    ("for i in 0 to 5 {\n}", [("PH0110", 2, 10, "expected `range(...)`", None)]),
    ("x = (f16) y", [("PH0128", 2, 11, "found the name `y`", "a conversion is `f16(x)`")]),
    ("x = a if b else c", [("PH0128", 2, 7, "found the keyword `if`", "where(condition, a, b)")]),
    ("x = tile<f32>[4]", [("PH0115", 2, 13, "`tile<...>` is a type", "zeros(f32, r, c)")]),
    ("x = zeros([4])", [("PH0110", 2, 11, "found `[`", "there are no lists")]),
    ("x = sum(y, axis=1)", [("PH0116", 2, 16, "`=` in an expression", "`rowsum(x)`")]),
    ("x = X[0:8:2]", [("PH0110", 2, 10, "expected `,` or `]`", "no step")]),
    ("x = X[N // 2]\ny = 1", [("PH0111", 2, 8, "expected `]`", "`//` starts a comment")]),
    ("__shared__ float s[4]", [("PH0127", 2, 1, "`__shared__`", "the compiler's choice")]),
    ("for i in range(3):\nx = 1", [("PH0110", 2, 18, "expected `{` after `)`, found `:`", "`{ }`")]),
    ("x = +b", [("PH0127", 2, 5, "found `+`", "no unary `+`")]),
    ("x = a @ b", [("PH0127", 2, 7, "found `@`", "dot(a, b)")]),
    ("f(x)(y)", [("PH0127", 2, 5, "found `(`", "only a name can be called")]),
    # strings
    ('x = "hi"', [("PH0129", 2, 5, "a string cannot stand here", "print")]),
    ('exp("hi")', [("PH0129", 2, 5, "`exp` takes no string", "print")]),
    ('print("a" + b)', [("PH0110", 2, 11, "expected `,` or `)`", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), BODY, ids=[text for text, _ in BODY])
def test_body(text: str, wanted: list[tuple[str, int, int, str, str | None]]) -> None:
    found = errors(in_body(text))
    assert places(in_body(text)) == [w[:3] for w in wanted], [str(d) for d in found]
    for diagnostic, (_, _, _, message, help) in zip(found, wanted, strict=True):
        assert message in diagnostic.message
        if help is not None:
            assert diagnostic.help is not None and help in diagnostic.help


KERNEL = "kernel k() {\n}\n"
FILE = [
    ("", [("PH0126", 1, 1, "is empty")]),
    (" \r\n\t\n", [("PH0126", 1, 1, "is empty")]),
    ("// nothing here\n", [("PH0126", 1, 1, "has no kernel")]),
    ("const N = 3\nfn f() {}\n", [("PH0126", 1, 1, "has no kernel")]),
    ("hello world\n", [("PH0110", 1, 1, "expected `kernel`, `fn`, `const` or an attribute, found the name `hello`")]),
    ("kernal k() {\nx = 1 1\n}", [("PH0110", 1, 1, "found the name `kernal`"), ("PH0128", 2, 7, "")]),
    ("def f(x) {\n}\n" + KERNEL, [("PH0110", 1, 1, "found the name `def`")]),
    ("let x = 3\n" + KERNEL, [("PH0120", 1, 1, "`let` stands outside")]),
    ("x = 3\n" + KERNEL, [("PH0120", 1, 1, "a statement stands outside")]),
    ("kernel k() {\nx = 1\n}\n}\ny = 2\n" + KERNEL, [("PH0112", 4, 1, "`}` closes nothing")]),
    ("kernel k() {\nif a {\nx = 1\n}\n", [("PH0111", 4, 2, "expected `}`, found the end of the file")]),
    ("kernel k() {\nx = 1\n\nkernel j() {\nx = 1 1\n}\n",
     [("PH0121", 4, 1, "a `}` is missing before it"), ("PH0128", 5, 7, "")]),
    ("kernel k() {\nx = 1\n@launch(4)\nkernel j() {}\n", [("PH0121", 4, 1, "a `}` is missing before it")]),
    ("kernel k() {\nx =", [("PH0110", 2, 4, "expected an expression after `=`, found the end of the file")]),
    ("kernel k(X) {\n}", [("PH0125", 1, 10, "`X` has no type")]),
    ("kernel k(const N) {\n}", [("PH0125", 1, 10, "`N` has no type")]),
    ("kernel (a: f32) {\nx = 1 1\n}", [("PH0110", 1, 8, "expected the name of the kernel"), ("PH0128", 2, 7, "")]),
    ("kernel in() {\n}", [("PH0119", 1, 8, "found `in`")]),
    ("kernel k a: f32) {\n}", [("PH0110", 1, 10, "expected `(` after the name `k`")]),
    ("kernel k(a: f32 b: f32) {\n}", [("PH0110", 1, 17, "expected `,` or `)` after the name `f32`")]),
    ("kernel k(X: tensor<f32[N]) {\nx = 1 1\n}", [("PH0110", 1, 23, "expected `>`"), ("PH0128", 2, 7, "")]),
    ("kernel k(a: f32\n{\n}", [("PH0111", 1, 16, "expected `)`, found `{` on line 2")]),
    ("kernel k()\n{\nx = 1 1\n}", [("PH0113", 2, 1, ""), ("PH0128", 3, 7, "")]),
    ("kernel k() {} kernel j() {}", [("PH0128", 1, 15, "expected a newline after `}`")]),
    ("fn f<T>(x) {}\n" + KERNEL, [("PH0110", 1, 5, "expected `(` after the name `f`")]),
    ("const N\n" + KERNEL, [("PH0110", 1, 8, "expected `=` after the name `N`")]),
    ("@launch(128\nkernel k() {\nx = 1 1\n}",
     [("PH0111", 1, 12, "expected `)`, found the keyword `kernel`"), ("PH0128", 3, 7, "")]),
    ("@launch(128) fn f() {}\n" + KERNEL, [("PH0122", 1, 14, "expected `kernel` after its attributes")]),
    ("@autotune(A in [4, 8)\n" + KERNEL, [("PH0111", 1, 21, "expected `]`, found `)`")]),
    ("@autotune(A = [4, 8])\n" + KERNEL, [("PH0110", 1, 15, "found `[`")]),
    ("@autotune(A in 4)\n" + KERNEL, [("PH0110", 1, 16, "expected `[` or `{`")]),
    ("@autotune(A in {4 8})\n" + KERNEL, [("PH0110", 1, 19, "expected `,` or `}`")]),
    ("@3\n" + KERNEL, [("PH0110", 1, 2, "expected the name of an attribute")]),
    ("\ufeffkernel k() {\r\n\tx = 1 1\r\n}\r\n", [("PH0128", 2, 8, "")]),
    ("\ufeff$", [("PH0101", 1, 1, "")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), FILE, ids=[text for text, _ in FILE])
def test_file(text: str, wanted: list[tuple[str, int, int, str]]) -> None:
    if text.strip("\ufeff \r\n\t"):
        assert places(text) == [w[:3] for w in wanted]
    for diagnostic, (code, line, column, message) in zip(errors(text), wanted, strict=True):
        assert diagnostic.span is not None
        assert (diagnostic.code, diagnostic.span.line, diagnostic.span.column) == (code, line, column)
        assert message in diagnostic.message


HEADS = [
    ("kernel k(X: f32*) {\n}", 1, 16, "X: tensor<f32>[N]"),
    ("kernel k(const c: bool = true) {\n}", 1, 24, "no default values"),
    ("@autotune(A in 4)\n" + KERNEL, 1, 16, "a search space is"),
]


@pytest.mark.parametrize(("text", "line", "column", "help"), HEADS)
def test_fixes_of_headers(text: str, line: int, column: int, help: str) -> None:
    (error,) = errors(text)
    assert error.span is not None and (error.span.line, error.span.column) == (line, column)
    assert error.help is not None and help in error.help and error.notes == ()


def test_carets_and_notes() -> None:
    (error,) = errors(in_body("  x = f(a + b\n  let y = 1"))
    assert error.notes == ("the `(` at line 2, column 8 is never closed",)
    (error,) = errors(in_body("  let whyever = 12ab + 1"))
    assert error.render(SourceFile("k.ph", in_body("  let whyever = 12ab + 1"))).splitlines()[2:5] == [
        "  |",
        "2 |   let whyever = 12ab + 1",
        "  |                 ^^^^",
    ]


def test_several_errors_in_one_run() -> None:
    text = in_body(
        "let a = \nlet b = 2 2\nif a = b {\n  x ++ y\n} else {\n  z = (1\n}\nfor i in range(3 {\n  f(,)\n}\nlet c = d"
    )
    assert [(code, line) for code, line, _ in places(text)] == [
        ("PH0110", 2), ("PH0128", 3), ("PH0116", 4), ("PH0127", 5), ("PH0111", 7), ("PH0111", 9), ("PH0110", 10),
    ]  # fmt: skip


def test_errors_in_several_kernels() -> None:
    broken = "kernel k() {\n  let x = \n}\n"
    assert [line for _, line, _ in places(broken * 3)] == [2, 5, 8]


def test_one_bad_line_is_one_error_wherever_it_stands() -> None:
    """No cascades: a broken line among good ones gives its own error and no other."""
    good = ["let a = f(1)", "if a {", "x = 1", "} else {", "X[0] = 1", "}", "while b {", "break", "}", "y = 2"]
    bad = ["let = 3", "x = * 2", "x 3 4 5", "f(a, 3", "y = 3 )", "let z = a b c = d", "= 3", "x = a[1", "in in in"]
    for line in bad:
        for at in range(len(good) + 1):
            text = in_body("\n".join(good[:at] + [line] + good[at:]))
            assert [place[1] for place in places(text)] == [at + 2], text


def test_missing_braces() -> None:
    """A forgotten `{` costs one error, and a forgotten `}` names the block that the indentation gives away."""
    assert places(in_body("if a\n  x = 1\n} else {\n  y = 2\n}\nz = 1 1")) == [("PH0110", 2, 5), ("PH0128", 7, 7)]
    assert places("kernel k()\n  x = 1\n}\n") == [("PH0110", 1, 11)]
    # Where both braces of a block are missing, that is one mistake.
    assert places("kernel k() {\n  if (a)\n    x = 1\n}\n") == [("PH0110", 2, 9)]
    (error,) = errors("kernel k() {\n  for i in range(3) {\n    if a {\n      x = 1\n  }\n}\n")
    assert error.code == "PH0111" and error.notes == (
        "by its indentation, the `{` at line 3, column 10 is the one without a `}`",
    )


def test_at_most_twenty() -> None:
    assert len(errors(in_body("let x = \n" * 100 + "y = 1"))) == 20
    assert len(errors(in_body("x = 1_\n" * 100))) == 20
    assert len(errors(in_body("x = $\n" * 100))) == 20


DEEP = [
    ("let x = " + "f(" * MAX_DEPTH, "a", ")" * MAX_DEPTH),
    ("let x = " + "-" * 2000, "a", ""),
    ("if a {\n" * 2000, "x = 1", "\n}" * 2000),
    ("let x = a" + " + a" * 2000, "", ""),
    ("if a {}" + " else if b {}" * 2000, "", ""),
    ("let x = " + "a[" * 2000, "0", "]" * 2000),
]


@pytest.mark.parametrize(("prefix", "middle", "suffix"), DEEP, ids=("calls", "minus", "ifs", "sum", "elses", "slices"))
def test_nesting_has_a_limit(prefix: str, middle: str, suffix: str) -> None:
    (error,) = errors(in_body(prefix + middle + suffix))
    assert error.code == "PH0124" and str(MAX_DEPTH) in error.message


def test_nesting_below_the_limit_is_fine() -> None:
    depth = MAX_DEPTH - 2  # the kernel is one level, the literal none
    parse(SourceFile("k.ph", in_body("let x = " + "f(" * depth + "a" + ")" * depth)))
    parse(SourceFile("k.ph", in_body("let x = " + "(" * 5000 + "a" + ")" * 5000)))


@pytest.mark.parametrize("count", [17, 18, 19, 20, 40])
def test_the_largest_integers(count: int) -> None:
    text = in_body("let x = " + "9" * count)
    if int("9" * count) < 2**64:
        parse(SourceFile("k.ph", text))
    else:
        assert places(text) == [("PH0104", 2, 9)]
