"""`phobos check`: representative configurations, deduplicated diagnostics."""

from __future__ import annotations

from pathlib import Path

import pytest
from semantic.support import module, split

from phobos.semantic.check import check_module
from phobos.source import SourceFile
from phobos.syntax.parser import parse

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.ph"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_clean(path: Path) -> None:
    assert check_module(parse(SourceFile(path.name, path.read_text(encoding="utf-8")))) == ()


def codes(text: str) -> list[str]:
    text, places = split(text)
    found = check_module(module(text))
    if places:
        assert sorted((d.span.line, d.span.column) for d in found if d.span) == sorted(places), found
    return [d.code for d in found]


CASES = [
    (
        "every kernel",
        "kernel a(X: tensor<f32>[4]) {\nX[0] = §y\n}\nkernel b(X: tensor<f32>[4]) {\nX[0] = §z\n}",
        ["PH0201", "PH0201"],
    ),
    ("errors first", "kernel a(X: tensor<f32>[4]) {\nlet §u = 1.0\nX[0] = §z\n}", ["PH0201", "PH0402"]),
    (
        "both sides of a const bool",
        "kernel a(X: tensor<f32>[4], const c: bool) {\nif c { X[0] = §y } else { X[0] = §z }\n}",
        ["PH0201", "PH0201"],
    ),
    (
        "smallest and largest",
        "@autotune(B in [4, 16])\nkernel a(X: tensor<f32>[16]) {\nX[0 :+ B] = §X[:] + 1.0\n}",
        ["PH0221"],
    ),
    ("f16 of a dtype name", "kernel a<T>(X: tensor<T>[4]) {\nX[:] = §-1.0e30\n}", ["PH0213"]),
    ("an integer kernel", "kernel a<T>(X: tensor<T>[4], Y: tensor<f32>[N]) {\nY[X[:]] = Y[X[:]] + 1.0\n}", []),
    (
        "recursion that no kernel reaches",
        "fn f(x) { return g(x) }\nfn g(x) { return f(x) }\nkernel a(X: tensor<f32>[4]) {\nX[0] = 1.0\n}",
        ["PH0207", "PH0207", "PH0405", "PH0405"],
    ),
    ("unused function", "fn §f(x) { return x }\nkernel a(X: tensor<f32>[4]) {\nX[0] = 1.0\n}", ["PH0405"]),
    (
        "function used by reduce",
        "fn f(x, y) { return x * y }\nkernel a(X: tensor<f32>[4]) {\nX[0 :+ 1] = reduce(X[:], 0, f, 0)\n}",
        [],
    ),
    (
        "header errors of all kernels",
        "§@lunch\nkernel a(X: tensor<f32>[4]) {\nX[0] = 1.0\n}\nkernel b(X: tensor<§f>[4]) {\nX[0] = 1.0\n}",
        ["PH0301", "PH0204"],
    ),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_check(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_an_error_says_which_configuration_has_it() -> None:
    text = "@autotune(B in [4, 16])\nkernel a(X: tensor<f32>[16], const c: bool) {\n"
    text += "if c { X[0 :+ B] = X[:] + 1.0 }\n}"
    (found,) = check_module(module(text))
    assert any("B = 4" in note and "c = true" in note for note in found.notes)
    (found,) = check_module(module("kernel a<T>(X: tensor<T>[4]) {\nX[:] = -1.0e30\n}"))
    assert any("T = f16" in note for note in found.notes)


def test_the_same_error_is_told_once() -> None:
    text = "fn f(x) { return x + y }\n@autotune(B in [4, 16])\nkernel a<T>(X: tensor<T>[16]) {\nX[0 :+ B] = f(X[0 :+ B])\nX[0] = f(X[0])\n}"  # noqa: E501
    assert codes(text) == ["PH0201"]


def test_deep_expressions_are_no_traceback() -> None:
    for depth in (50, 3000):
        text = f"kernel a(X: tensor<f32>[4], a: f32) {{\nX[0] = {'a + ' * depth}a\n}}"
        try:
            tree = module(text)
        except Exception as error:  # noqa: BLE001 - the parser's own limit is a diagnostic too
            assert type(error).__name__ == "CompileError"
            continue
        assert {d.code for d in check_module(tree)} <= {"PH0239"}


def test_a_wrong_header_does_not_hide_the_body() -> None:
    text = """§@lunch(4)
@autotune(B in [4, 8])
@options(matmul = §wmaa)
@aligned(§Q = B)
kernel a(X: tensor<§f>[N, D], Y: tensor<f32>[B], §grid: f32) {
  let x = X[0 :+ B, :] * grid
  Y[:] = x
  Y[0] = §z
  Y[:] = §Y[:] + zeros(f32, 3)
}"""
    assert sorted(codes(text)) == ["PH0201", "PH0204", "PH0206", "PH0220", "PH0301", "PH0304", "PH0315"]
