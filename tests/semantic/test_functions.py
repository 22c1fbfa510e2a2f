"""Functions: inlining, generic parameters, returns, recursion."""

from __future__ import annotations

import numpy as np
import pytest
from semantic.support import execute, expect, expect_body, failures, ir, ops, wrap

from phobos.ir.tile import If, Load, Reduce, Store

X = np.linspace(-2.0, 2.0, 16, dtype=np.float32).reshape(4, 4)


def run(functions: str, body: str, **more) -> np.ndarray:
    text = f"{functions}\n@grid(1)\nkernel k(X: tensor<f32>[4, 4], Y: tensor<f32>[4, 4], n: i32) {{\n{body}\n}}"
    return execute(text, {"X": X, "Y": np.zeros_like(X), "n": 3, **more})["Y"]


def test_generic_function() -> None:
    f = "fn relu(x) { return max(x, 0.0) }\nfn leaky(x, s) {\nlet y = relu(x)\nvar z = y\nz += s * min(x, 0.0)\nreturn z\n}"  # noqa: E501
    np.testing.assert_allclose(run(f, "Y[:, :] = leaky(X[:, :], 0.5)"), np.where(X > 0, X, X * 0.5))
    assert run(f, "Y[0, 0] = leaky(-4.0, 0.5)")[0, 0] == -2.0


def test_typed_function() -> None:
    f = "fn scale(x: tile<f32>[R, C], s: f32) -> tile<f32>[R, C] {\nlet z: tile<f32>[R, C] = s\nreturn x * z\n}"
    np.testing.assert_allclose(run(f, "Y[:, :] = scale(X[:, :], 3)"), X * 3)


@pytest.mark.parametrize(
    "function",
    [
        "fn f(x: f32) -> f32 {\nif x > 1.0 { return 1.0 }\nlet y = x * x\nif x < -1.0 { return y }\nreturn -y\n}",
        "fn f(x: f32) -> f32 {\nif x > 1.0 { return 1.0 } else if x < -1.0 { return x * x } else { return -(x * x) }\n}",  # noqa: E501
        "fn f(x) {\nvar y = x * x\nif x > 1.0 { y = 1.0\nreturn y }\nif x >= -1.0 {\nlet z = -y\nreturn z\n}\nlet z = y\nreturn z\n}",  # noqa: E501
    ],
)
def test_early_returns(function: str) -> None:
    body = "for i in range(4) {\nfor j in range(4) {\nY[i, j] = f(X[i, j])\n}\n}"
    np.testing.assert_allclose(run(function, body), np.where(X > 1, 1, np.where(X < -1, X * X, -X * X)), rtol=1e-6)


def test_function_with_effects() -> None:
    f = "fn put(T, i, v) {\nif i > 2 { return }\nT[i, :] = v\n}\nfn twice(T: tensor<f32>[R, C], v) {\nput(T, 0, v)\nput(T, R - 1, v)\nT[1, 0] = C\n}"  # noqa: E501
    expected = np.zeros_like(X)
    expected[0] = 2.0
    expected[1, 0] = 4.0
    np.testing.assert_array_equal(run(f, "twice(Y, 2.0)"), expected)


def test_constant_arguments_fold() -> None:
    kernel = ir(
        "var x: tile<f32>[half(8), half(4)] = 0.0\nP[0 :+ half(8), 0 :+ 2] = x", before="fn half(n) { return n / 2 }"
    )
    assert ops(kernel, Store)[0].value.shape == (4, 2)
    kernel = ir(
        "print(f(n, true), f(n, false))", before="fn f(x, const twice: bool) {\nif twice { return x * 2 }\nreturn x\n}"
    )
    assert not ops(kernel, If)


def test_view_arguments_are_read_in_the_function() -> None:
    kernel = ir("print(f(B[0 :+ 4]))", before="fn f(x) { return x + x }")
    assert len(ops(kernel, Load)) == 2
    kernel = ir("print(f(B[0 :+ 4]))", before="fn f(x: tile<f32>[4]) { return x + x }")
    assert len(ops(kernel, Load)) == 1


def test_reduce_with_a_function() -> None:
    f = "fn larger(a, b) {\nif a > b { return a }\nreturn b\n}\nfn plus(a, b) { return a + b }"
    out = run(
        f, "Y[:, 0 :+ 1] = reduce(X[:, :], 1, larger, -inf)\nY[0 :+ 1, 1 :+ 3] = reduce(X[:, 1 :+ 3], 0, plus, 0)"
    )
    np.testing.assert_allclose(out[:, 0], X.max(1))
    np.testing.assert_allclose(out[0, 1:], X[:, 1:].sum(0), atol=1e-6)
    kernel = ir("print(reduce(P[:, :], 0, plus, 0))", before=f)
    (reduce,) = ops(kernel, Reduce)
    assert reduce.kind == "custom" and reduce.result.shape == (1, 16) and reduce.combine is not None


def test_jumps_of_the_caller_are_not_those_of_the_function() -> None:
    expect_body("for i in range(4) { f(i) }", "PH0231", before="fn f(x) { print(x)\n§break }")


BAD = [
    ("recursion", "fn f(x) { return §f(x) }", "B[0] = f(a)", "PH0207"),
    ("mutual recursion", "fn f(x) { return g(x) }\nfn g(x) { return §f(x) }", "B[0] = f(a)", "PH0207"),
    ("argument count", "fn f(x, y) { return x }", "B[0] = §f(a)", "PH0214"),
    ("argument type", "fn f(x: f32) { return x }", "B[0] = f(§f64(a))", "PH0211"),
    ("argument shape", "fn f(x: tile<f32>[4]) { return x }", "B[0 :+ 8] = f(§B[0 :+ 8])", "PH0221"),
    ("argument tile", "fn f(x: f32) { return x }", "B[0 :+ 8] = f(§B[0 :+ 8])", "PH0221"),
    (
        "extents that differ",
        "fn f(x: tile<f32>[R], y: tile<f32>[R]) { return x }",
        "print(f(B[0 :+ 8], §B[0 :+ 4]))",
        "PH0221",
    ),
    ("const argument", "fn f(const x: i32) { return x }", "print(f(§n))", "PH0215"),
    ("tensor argument", "fn f(T: tensor<f32>[R]) { print(T[0]) }", "f(§a)", "PH0212"),
    ("tensor rank", "fn f(T: tensor<f32>[R]) { print(T[0]) }", "f(§A)", "PH0212"),
    ("result type", "fn f(x: f32) -> §f16 { return x }", "H[0, 0] = f(a)", "PH0211"),
    ("no result", "fn f(x) { print(x) }", "B[0] = §f(a)", "PH0217"),
    ("no return", "fn §f(x) -> f32 { print(x) }", "B[0] = f(a)", "PH0233"),
    ("no return on a path", "fn §f(x) -> f32 {\nif x > 1.0 { return x }\n}", "B[0] = f(a)", "PH0233"),
    ("return in a loop", "fn f(x) {\nfor i in range(4) { §return x }\nreturn x\n}", "B[0] = f(a)", "PH0233"),
    ("paths differ in shape", "fn f(x, t) {\n§if x > 1.0 { return x }\nreturn t\n}", "print(f(a, P[:, :]))", "PH0221"),
    ("paths differ in kind", "fn f(x, t) {\n§if x > 1.0 { return x }\nreturn x > 0.0\n}", "print(f(a, a))", "PH0210"),
    ("some paths return a value", "fn f(x) {\n§if x > 1.0 { return x }\nprint(x)\n}", "f(a)", "PH0233"),
    ("unknown name inside", "fn f(x) { return x + §y }", "let y = a\nB[0] = f(y)", "PH0201"),
    ("assign a parameter", "fn f(x) {\n§x = 1.0\nreturn x\n}", "B[0] = f(a)", "PH0205"),
    ("duplicate parameter", "fn f(x, §x) { return x }", "B[0] = f(a, a)", "PH0202"),
    ("reduce: no function", "", "print(reduce(P[:, :], 0, §a, 0))", "PH0234"),
    ("reduce: tile result", "fn f(x, y) { return broadcast(x, 4) }", "print(§reduce(P[:, :], 0, f, 0))", "PH0234"),
    ("reduce: effects", "fn f(x, y) { print(x)\nreturn x }", "print(§reduce(P[:, :], 0, f, 0))", "PH0234"),
    ("reduce: tile init", "fn f(x, y) { return x }", "print(reduce(P[:, :], 0, f, §P[:, :]))", "PH0212"),
    ("reduce: axis", "fn f(x, y) { return x }", "print(reduce(P[:, :], §2, f, 0))", "PH0226"),
    ("reduce: arguments", "fn f(x) { return x }", "print(§reduce(P[:, :], 0, f, 0))", "PH0214"),
]


@pytest.mark.parametrize(("functions", "body", "codes"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_function_errors(functions: str, body: str, codes: str) -> None:
    expect_body(body, *codes.split(), before=functions)


def test_recursion_names_the_cycle() -> None:
    (found,) = failures(wrap("B[0] = f(a)", before="fn f(x) { return g(x) }\nfn g(x) { return f(x) }"))
    assert "`f` -> `g` -> `f`" in found.message


def test_exponential_inlining_is_an_error() -> None:
    functions = "fn g0(x) { return x + 1.0 }\n" + "\n".join(
        f"fn g{i}(x) {{ return g{i - 1}(x) + g{i - 1}(x * 2.0) }}" for i in range(1, 18)
    )
    expect(wrap("B[0] = g17(a)", before=functions), "PH0239")
