"""Texts to trees: every construct, spans, newlines."""

import ast as python_ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phobos.diagnostics import CompileError
from phobos.source import SourceFile
from phobos.syntax import ast
from phobos.syntax.dump import dump
from phobos.syntax.parser import parse

DATA = Path(__file__).parent / "data"


def body(text: str) -> tuple[ast.Stmt, ...]:
    return parse(SourceFile("k.ph", f"kernel k() {{\n{text}\n}}\n")).kernels[0].body


def expression(text: str) -> ast.Expr:
    (statement,) = body(f"let x = {text}")
    assert isinstance(statement, ast.Let)
    return statement.value


def show(node: ast.Node | None) -> str:
    """An expression with all its parentheses."""
    match node:
        case None:
            return ""
        case ast.Name():
            return node.id
        case ast.IntLiteral():
            return str(node.value)
        case ast.FloatLiteral():
            return node.text
        case ast.BoolLiteral():
            return str(node.value).lower()
        case ast.StringLiteral():
            return repr(node.value)
        case ast.Unary():
            return f"({node.op}{show(node.operand)})"
        case ast.Binary():
            return f"({show(node.left)} {node.op} {show(node.right)})"
        case ast.Member():
            return f"{show(node.base)}.{node.name}"
        case ast.Call():
            return f"{node.function.id}({', '.join(map(show, node.args))})"
        case ast.Subscript():
            fill = f" else {show(node.fill)}" if node.fill else ""
            return f"{show(node.base)}[{', '.join(map(show, node.items))}]{fill}"
        case ast.IndexItem():
            return show(node.index)
        case ast.RangeItem():
            return f"{show(node.start)}:{show(node.end)}"
        case ast.SpanItem():
            return f"{show(node.start)}:+{show(node.length)}"
    raise AssertionError(node)


# --- expressions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", "a"),
        ("-a.b.c[1]", "(-a.b.c[1])"),
        ("!a && ~b == -c", "((!a) && ((~b) == (-c)))"),
        ("a || b && c || d", "((a || (b && c)) || d)"),
        ("a | b ^ c & d << e + f * g", "(a | (b ^ (c & (d << (e + (f * g))))))"),
        ("a * b / c % d", "(((a * b) / c) % d)"),
        ("a - b - c", "((a - b) - c)"),
        ("a < b | c", "(a < (b | c))"),
        ("a >> 1 >> 2", "((a >> 1) >> 2)"),
        ("(a < b) == (c < d)", "((a < b) == (c < d))"),
        ("- - -a", "(-(-(-a)))"),
        ("f()", "f()"),
        ("f(g(a), -1,)", "f(g(a), (-1))"),
        ("dot(a, b)[0, :]", "dot(a, b)[0, :]"),
        ("A[i]", "A[i]"),
        ("A[s : e, s :+ n, :, : e, s :, idx,]", "A[s:e, s:+n, :, :e, s:, idx]"),
        ("A[a + 1 :+ b * 2]", "A[(a + 1):+(b * 2)]"),
        ("A[:] else -inf", "A[:] else (-inf)"),
        ("f(A[:] else 0, B[0] else -1.5) + 1", "(f(A[:] else 0, B[0] else (-1.5)) + 1)"),
        ("-A[0] else 2 * 3", "((-A[0] else 2) * 3)"),
        ("true && false", "(true && false)"),
        ("0x1F + 1_000 + 0XaB", "((31 + 1000) + 171)"),
        ("18446744073709551615", "18446744073709551615"),
        ("0xFFFF_FFFF_FFFF_FFFF", "18446744073709551615"),
        ("1.0e30 + 1e-5 + 1. + .5 + 1.5E+3", "((((1.0e30 + 1e-5) + 1.) + .5) + 1.5E+3)"),
        ("inf - nan", "(inf - nan)"),
        ("tensor + tile + range + ctx + unroll + f32", "(((((tensor + tile) + range) + ctx) + unroll) + f32)"),
        ("iffy + inform + nano + truest + for_ + _", "(((((iffy + inform) + nano) + truest) + for_) + _)"),
    ],
)
def test_expressions(text: str, tree: str) -> None:
    assert show(expression(text)) == tree


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), ("1_0.2_5e1", 102.5), (".25", 0.25), ("3.", 3.0), ("1e3", 1000.0), ("inf", float("inf"))],
)
def test_float_values(text: str, value: float) -> None:
    node = expression(text)
    assert isinstance(node, ast.FloatLiteral) and node.value == value and node.text == text


def test_nan_and_strings() -> None:
    node = expression("nan")
    assert isinstance(node, ast.FloatLiteral) and node.value != node.value
    (statement,) = body(r'print("a\tb\n\"\\ é // no comment", "")')
    assert isinstance(statement, ast.ExprStmt) and isinstance(statement.value, ast.Call)
    first, second = statement.value.args
    assert isinstance(first, ast.StringLiteral) and first.value == 'a\tb\n"\\ é // no comment'
    assert isinstance(second, ast.StringLiteral) and second.value == ""


def from_python(node: python_ast.expr) -> str | None:
    """A Python expression as `show` writes ours; None where Python chains comparisons."""
    ops = {
        "Mult": "*", "Div": "/", "Mod": "%", "Add": "+", "Sub": "-", "LShift": "<<", "RShift": ">>", "BitAnd": "&",
        "BitXor": "^", "BitOr": "|", "Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=",
        "And": "&&", "Or": "||", "USub": "-", "Invert": "~",
    }  # fmt: skip
    match node:
        case python_ast.Name():
            return node.id
        case python_ast.UnaryOp():
            inner = from_python(node.operand)
            return inner and f"({ops[type(node.op).__name__]}{inner})"
        case python_ast.BinOp():
            parts = [from_python(node.left), from_python(node.right)]
            op = ops[type(node.op).__name__]
        case python_ast.Compare():
            if len(node.ops) > 1:
                return None
            parts = [from_python(node.left), from_python(node.comparators[0])]
            op = ops[type(node.ops[0]).__name__]
        case python_ast.BoolOp():
            parts = [from_python(v) for v in node.values]
            op = ops[type(node.op).__name__]
        case _:
            raise AssertionError(node)
    if None in parts:
        return None
    text = str(parts[0])
    for part in parts[1:]:
        text = f"({text} {op} {part})"
    return text


BINARY = ["*", "/", "%", "+", "-", "<<", ">>", "&", "^", "|", "==", "!=", "<", "<=", ">", ">=", "&&", "||"]
OPERANDS = st.recursive(
    st.sampled_from("abcd"),
    lambda inner: st.one_of(
        inner.map(lambda e: f"-{e}"),
        inner.map(lambda e: f"~{e}"),
        st.lists(st.tuples(inner, st.sampled_from(BINARY)), min_size=1, max_size=4).map(
            lambda pairs: "(" + " ".join(f"{e} {op}" for e, op in pairs) + " a)"
        ),
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(OPERANDS, st.sampled_from(BINARY)), max_size=6), OPERANDS)
@settings(max_examples=200, deadline=None)
def test_precedence_is_pythons(pairs: list[tuple[str, str]], last: str) -> None:
    """Python ranks these operators the same way, `!` aside, and chains comparisons where we refuse them."""
    text = " ".join([f"{operand} {op}" for operand, op in pairs] + [last])
    python = python_ast.parse(text.replace("&&", " and ").replace("||", " or "), mode="eval").body
    wanted = from_python(python)
    if wanted is None:
        with pytest.raises(CompileError) as error:
            expression(text)
        assert {d.code for d in error.value.diagnostics} == {"PH0115"}
    else:
        # Python keeps `a and (b and c)` apart from `a and b and c`, as we do.
        assert show(expression(text)) == wanted


# --- statements ------------------------------------------------------------------------------


def test_everything_parses_into_the_expected_tree(request: pytest.FixtureRequest) -> None:
    module = parse(SourceFile("everything.ph", (DATA / "everything.ph").read_text(encoding="utf-8")))
    assert [c.name.id for c in module.constants] == ["WIDTH", "TABLE"]
    assert [f.name.id for f in module.functions] == ["square", "mix", "nothing"]
    first, second = module.kernels
    assert second.name.id == "second" and isinstance(second.body[0], ast.Return)
    assert [a.name for a in first.attributes] == [
        "tensorcore", "tensorcore", "launch", "autotune", "aligned", "options", "grid", "dynshared",
    ]  # fmt: skip
    assert [n.id for n in first.dtype_params] == ["T", "U"]
    assert [(p.name.id, p.const) for p in first.params] == [
        ("X", False), ("Y", False), ("scale", False), ("causal", True), ("window", True),
    ]  # fmt: skip
    square, mix, nothing = module.functions
    assert square.params[0].type is None and square.returns is None and nothing.body == ()
    assert isinstance(mix.returns, ast.ShapedTypeExpr) and mix.params[2].const


def test_attributes() -> None:
    module = parse(SourceFile("k.ph", "@a @b() @c(1 + 2, x = fast, Y in [4, 8], Z in {p, -1,})\nkernel k() {}"))
    a, b, c = module.kernels[0].attributes
    assert a.args == b.args == ()
    plain, keyword, ascending, listed = c.args
    assert plain.name is None and plain.relation is None and isinstance(plain.value, ast.Binary)
    assert keyword.name is not None and keyword.name.id == "x" and keyword.relation == "="
    assert isinstance(keyword.value, ast.Name) and keyword.value.id == "fast"
    assert ascending.relation == "in" and isinstance(ascending.value, ast.ListExpr) and ascending.value.bracket == "["
    assert [show(i) for i in ascending.value.items] == ["4", "8"]
    assert isinstance(listed.value, ast.ListExpr) and listed.value.bracket == "{"
    assert [show(i) for i in listed.value.items] == ["p", "(-1)"]


def test_declarations_and_assignments() -> None:
    text = "let a: f32 = 1\nvar b: tile<f16>[R, C + 1]\nvar c = 2\nvar d: i32 = 3\nconst E = 4\na = 1\nA[0] += 2"
    let, bare, untyped, full, const, plain, add = body(text)
    assert isinstance(let, ast.Let) and isinstance(let.type, ast.ScalarTypeExpr) and let.type.dtype.id == "f32"
    assert isinstance(bare, ast.Var) and bare.value is None and isinstance(bare.type, ast.ShapedTypeExpr)
    assert (bare.type.kind, bare.type.dtype.id, [show(s) for s in bare.type.shape]) == ("tile", "f16", ["R", "(C + 1)"])
    assert isinstance(untyped, ast.Var) and untyped.type is None and show(untyped.value) == "2"
    assert isinstance(full, ast.Var) and full.type is not None and show(full.value) == "3"
    assert isinstance(const, ast.Const) and const.name.id == "E"
    assert isinstance(plain, ast.Assign) and plain.op == "=" and isinstance(plain.target, ast.Name)
    assert isinstance(add, ast.Assign) and add.op == "+=" and isinstance(add.target, ast.Subscript)


def test_control_flow() -> None:
    text = (
        "@pipeline(2)\n@other\nfor i in range(3) {}\nfor<unroll 4> j in range(0, n) { break }\n"
        "for<unroll U> k in range(0, n, 2) { continue; }\nwhile a < b { f() }\n"
        "if a {} else if b { x = 1 } else { x = 2 }\nreturn\nreturn a"
    )
    first, second, third, loop, choice, bare, value = body(text)
    assert isinstance(first, ast.For) and [a.name for a in first.attributes] == ["pipeline", "other"]
    assert first.unroll is None and first.body == () and [show(a) for a in first.args] == ["3"]
    assert isinstance(second, ast.For) and show(second.unroll) == "4" and isinstance(second.body[0], ast.Break)
    assert isinstance(third, ast.For) and show(third.unroll) == "U" and third.index.id == "k"
    assert [show(a) for a in third.args] == ["0", "n", "2"] and isinstance(third.body[0], ast.Continue)
    assert isinstance(loop, ast.While) and isinstance(loop.body[0], ast.ExprStmt)
    assert isinstance(choice, ast.If) and choice.then == ()
    (inner,) = choice.orelse
    assert isinstance(inner, ast.If) and isinstance(inner.then[0], ast.Assign) and len(inner.orelse) == 1
    assert isinstance(bare, ast.Return) and bare.value is None
    assert isinstance(value, ast.Return) and show(value.value) == "a"


# --- newlines and blanks ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a = b\nc = d",
        "a = b; c = d",
        "a = b;\nc = d;",
        "a =\n b\nc = (\nd\n)",
        "a = b // comment\n// another\n\n\nc = d // last",
        "a = f(\n)[\n]\nc = d".replace("[\n]", "[\n0\n]"),
    ],
)
def test_two_statements(text: str) -> None:
    assert len(body(text)) == 2


def test_newline_forms_give_one_tree() -> None:
    text = (DATA / "everything.ph").read_text(encoding="utf-8")
    tree = dump(parse(SourceFile("k", text)))
    assert dump(parse(SourceFile("k", text.replace("\n", "\r\n")))) == tree
    assert dump(parse(SourceFile("k", text.replace("\n", "\r")))) == tree
    assert dump(parse(SourceFile("k", text.replace("  ", "\t")))) == tree
    assert dump(parse(SourceFile("k", "\ufeff" + text))) == tree
    assert dump(parse(SourceFile("k", text.rstrip("\n")))) == tree
    assert dump(parse(SourceFile("k", "\n\n" + text + "\n\n  // end"))) == tree


def test_operator_at_line_end_continues() -> None:
    for op in ["*", "/", "%", "+", "-", "<<", ">>", "&", "^", "|", "==", "&&", "||"]:
        (statement,) = body(f"let x = a {op} // why\n\n  b")
        assert isinstance(statement, ast.Let) and show(statement.value) == f"(a {op} b)"
    (statement,) = body("let x: \ntile<\nf32>\n[3] =\n-\na.\nb")
    assert isinstance(statement, ast.Let) and show(statement.value) == "(-a.b)"


def test_line_that_starts_with_minus_is_its_own_statement() -> None:
    first, second = body("let x = a\n  - b")
    assert isinstance(first, ast.Let) and isinstance(second, ast.ExprStmt) and show(second.value) == "(-b)"


# --- spans -----------------------------------------------------------------------------------


def walk(node: ast.Node) -> list[ast.Node]:
    out = [node]
    for value in vars(node).values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, ast.Node):
                out.extend(walk(item))
    return out


def cut(source: SourceFile, node: ast.Node) -> str:
    span = node.span
    lines = [source.line(n) for n in range(span.line, span.end_line + 1)]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["flash_attention_fp32.ph", "everything.ph"])
def test_spans_lie_inside_their_parents_and_on_their_text(name: str) -> None:
    source = SourceFile(name, (DATA / name).read_text(encoding="utf-8"))
    module = parse(source)
    for node in walk(module):
        start = (node.span.line, node.span.column)
        end = (node.span.end_line, node.span.end_column)
        assert start < end and node.span.file == name
        for value in vars(node).values():
            for child in value if isinstance(value, tuple) else (value,):
                if isinstance(child, ast.Node):
                    assert start <= (child.span.line, child.span.column)
                    assert (child.span.end_line, child.span.end_column) <= end
        text = cut(source, node)
        assert text == text.strip() or node is module
        if isinstance(node, ast.Name):
            assert text == node.id
        if isinstance(node, ast.FloatLiteral):
            assert text == node.text
        if isinstance(node, (ast.Kernel, ast.For)):
            assert text[0] in "@kf" and text[-1] == "}"


def test_exact_spans() -> None:
    source = SourceFile("k.ph", "\ufeffkernel k() {\n\tx = (a + b) * f(c)\n}")
    (assign,) = parse(source).kernels[0].body
    assert isinstance(assign, ast.Assign) and isinstance(assign.value, ast.Binary)
    assert cut(source, assign) == "x = (a + b) * f(c)"
    assert cut(source, assign.value) == "(a + b) * f(c)"
    assert cut(source, assign.value.left) == "a + b"
    assert (assign.span.line, assign.span.column, assign.span.end_column) == (2, 2, 20)
    kernel = parse(source).kernels[0]
    assert (kernel.span.line, kernel.span.column, kernel.name.span.column) == (1, 1, 8)


def test_attributes_belong_to_the_span_of_their_kernel() -> None:
    module = parse(SourceFile("k.ph", "\n\n@launch(128)\nkernel k() {}\nkernel j() {}"))
    first, second = module.kernels
    assert (first.span.line, second.span.line, second.span.column) == (3, 5, 1)
