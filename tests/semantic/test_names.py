"""Names: unknown, duplicate, not assignable, reserved."""

from __future__ import annotations

import pytest
from semantic.support import check, expect, expect_body, failures, ir, wrap

BODY = [
    ("unknown name", "let x = §aa + 1.0\nB[0] = x", "PH0201"),
    ("unknown twice", "B[0] = §aa\nB[1] = §aa", "PH0201 PH0201"),
    ("function as value", "let x = §exp\nB[0] = 1.0", "PH0217"),
    ("type as value", "let x = §f32\nB[0] = 1.0", "PH0217"),
    ("whole tensor", "let x = §A\nB[0] = 1.0", "PH0217"),
    ("whole tensor in arithmetic", "B[0 :+ 4] = §B + 1.0", "PH0217"),
    ("ctx alone", "let x = §ctx\nB[0] = 1.0", "PH0217"),
    ("ctx without axis", "let x = §ctx.block\nB[0] = 1.0", "PH0217"),
    ("ctx.thread", "let x = §ctx.thread.x\nB[0] = 1.0", "PH0201"),
    ("ctx.block.w", "let x = §ctx.block.w\nB[0] = 1.0", "PH0201"),
    ("member of a value", "let x = §a.y\nB[0] = 1.0", "PH0201"),
    ("unknown function", "B[0] = §expp(a)", "PH0203"),
    ("call of a value", "B[0] = §a(1.0)", "PH0203"),
    ("range as value", "let x = §range(4)\nB[0] = 1.0", "PH0203"),
    ("unknown type of let", "let x: §f33 = 1.0\nB[0] = x", "PH0204"),
    ("unknown type of tile", "var x: tile<§half>[4] = 1.0\nB[0 :+ 4] = x", "PH0204"),
    ("tensor type in body", "var x: §tensor<f32>[4] = 1.0\nB[0 :+ 4] = x", "PH0204"),
    ("duplicate let", "let x = 1.0\nlet §x = 2.0\nB[0] = x", "PH0202"),
    ("duplicate var", "let x = 1.0\nvar §x = 2.0\nB[0] = x", "PH0202"),
    ("let of a dim", "let §N = 2\nB[0] = f32(N)", "PH0202"),
    ("let of a tensor", "let §A = 2.0\nB[0] = A", "PH0202"),
    ("let of a scalar", "let §a = 2.0\nB[0] = a", "PH0202"),
    ("let of ctx", "let §ctx = 2.0\nB[0] = 1.0", "PH0206"),
    ("assign let", "let x = 1.0\n§x = 2.0\nB[0] = x", "PH0205"),
    ("add to let", "let x = 1.0\n§x += 2.0\nB[0] = x", "PH0205"),
    ("assign view", "let x = B[0 :+ 4]\n§x = x + 1.0", "PH0205"),
    ("assign tensor", "§B = 1.0", "PH0205"),
    ("assign scalar", "§a = 1.0", "PH0205"),
    ("assign dim", "§N = 1", "PH0205"),
    ("assign const", "const X = 1\n§X = 2", "PH0205"),
    ("assign index", "for i in range(4) {\n§i = 2\n}", "PH0205"),
    ("assign unknown", "§x = 2", "PH0201"),
    ("assign element of let", "let x = B[0 :+ 4] + 1.0\n§x[0] = 2.0", "PH0205"),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in BODY], ids=[c[0] for c in BODY])
def test_names_in_bodies(body: str, codes: str) -> None:
    expect_body(body, *codes.split())


def test_nearest_name_is_suggested() -> None:
    (found,) = failures(wrap("let total = a\nB[0] = totl"))
    assert found.help == "did you mean `total`?"
    (found,) = failures(wrap("B[0] = sqr(a)"))
    assert found.help == "did you mean `sqrt`?"
    (found,) = failures(wrap("let x: f23 = a\nB[0] = x"))
    assert found.help == "did you mean `f32`?"


# Habits of other languages: what is written, and a part of the help.
HABITS = [
    ("let x = True\nB[0] = a", "write `true`"),
    ("let i = threadIdx.x\nB[0] = a", "never speaks of threads"),
    ("let i = blockIdx.x\nB[0] = a", "write `ctx.block.x`"),
    ("let i = gridDim.y\nB[0] = a", "write `ctx.grid.x`"),
    ("let rows = A.shape\nB[0] = a", "its name in the type"),
    ("let x = P[:, :].T\nB[0] = a", "write `transpose(x)`"),
    ("__syncthreads()\nB[0] = a", "the compiler places the barriers"),
    ("let i = arange(0, 128)\nB[0] = a", "`iota(axis)`"),
    ("B[0] = fmaxf(a, 0.0)", "write `tmax(x, y)`"),
    ("B[0 :+ 8] = softmax(B[0 :+ 8])", "exp(x - rowmax(x))"),
    ("total = a\nB[0] = a", "declare it: `let total = ...`, or `var total = ...`"),
    ("B[0 :+ BN] = 0.0", "`@autotune(BN in [16, 64])` or `const BN = 64`"),
]


@pytest.mark.parametrize(("body", "help"), HABITS)
def test_habits_of_other_languages_are_known(body: str, help: str) -> None:
    (found,) = failures(wrap(body))
    assert found.code in ("PH0201", "PH0203") and help in (found.help or "")


def test_a_habit_is_a_name_like_any_other() -> None:
    ir("let tl = a\nvar math = tl\nmath += 1.0\nB[0] = math")
    check(wrap("B[0] = softmax(a)", before="fn softmax(x) { return x * 2.0 }"))


HEADERS = [
    ("kernel k(X: tensor<f32>[N], §X: tensor<f32>[N]) {\n}", "PH0202"),
    ("kernel k(§config: tensor<f32>[N]) {\n}", "PH0206"),
    ("kernel k(§stream: f32) {\n}", "PH0206"),
    ("kernel k(§backend: f32) {\n}", "PH0206"),
    ("kernel k(§grid: f32) {\n}", "PH0206"),
    ("kernel k(X: tensor<f32>[N], §N: i32) {\n}", "PH0202"),
    ("kernel k(X: tensor<§f>[N]) {\n}", "PH0204"),
    ("kernel k(X: tensor<§index>[N]) {\n}", "PH0204"),
    ("kernel k(X: §tile<f32>[4]) {\n}", "PH0204"),
    ("kernel k(X: §tensor<f32>[A, B, C, D, E, F]) {\n}", "PH0224"),
    ("kernel k(X: tensor<f32>[§0]) {\n}", "PH0224"),
    ("kernel k<T, §T>(X: tensor<T>[N]) {\n}", "PH0202"),
    ("kernel k<§f32>(X: tensor<f32>[N]) {\n}", "PH0202"),
    ("const N = 1\nconst §N = 2\nkernel k(X: tensor<f32>[4]) {\n}", "PH0202"),
    ("const N = §M\nkernel k(X: tensor<f32>[4]) {\n}", "PH0201"),
    ("const N = 1 / 0\nkernel k(X: tensor<f32>[4]) {\n}", "PH0219"),
    ("const n = 1\nkernel k(§n: f32) {\n}", "PH0202"),
    ("fn f(x) { return x }\nfn §f(x) { return x }\nkernel k(X: tensor<f32>[4]) {\n}", "PH0202"),
    ("fn §exp(x) { return x }\nkernel k(X: tensor<f32>[4]) {\n}", "PH0202"),
    ("fn §k(x) { return x }\nkernel k(X: tensor<f32>[4]) {\n}", None),
    ("kernel k(X: tensor<f32>[4]) {\n}\nkernel §k(X: tensor<f32>[4]) {\n}", "PH0202"),
    ("@autotune(BN in [8, 16])\nkernel k(§BN: f32) {\n}", "PH0202"),
    ("const BN = 1\n@autotune(§BN in [8, 16])\nkernel k(X: tensor<f32>[4]) {\n}", "PH0202"),
]


@pytest.mark.parametrize(("text", "code"), HEADERS)
def test_names_in_headers(text: str, code: str | None) -> None:
    if code is None:
        # Reported at the second of the two, which is the kernel here.
        assert [d.code for d in failures(text.replace("§", ""))] == ["PH0202"]
    else:
        expect(
            text, code, config={"BN": 8} if "@autotune(BN" in text else {}, dtypes={"T": "f32"} if "<T" in text else {}
        )


def test_unknown_kernel() -> None:
    (found,) = failures("kernel saxpy(X: tensor<f32>[4]) {\n}", "saxpi")
    assert found.code == "PH0208" and found.help == "did you mean `saxpy`?"


def test_functions_and_values_have_separate_names() -> None:
    ir("let max = max(A[0 :+ 4, 0 :+ 4])\nlet exp = exp(max)\nB[0] = exp")


def test_inner_blocks_have_names_of_their_own() -> None:
    ir("let x = a\nif flag {\nlet y = x\nB[0] = y\n} else {\nlet y = x * 2.0\nB[0] = y\n}")
    expect_body("if flag {\nlet y = a\nB[0] = y\n}\nB[1] = §y", "PH0201")
    expect_body("for i in range(4) {\nB[i] = 0.0\n}\nB[§i] = 1.0", "PH0201")


def test_several_errors_in_one_run() -> None:
    found = expect_body("let x = §aa\nlet y = x + 1.0\nB[0] = y\nB[1] = §bb\n§cc = 1.0", "PH0201", "PH0201", "PH0201")
    assert all(d.severity == "error" for d in found)


def test_file_constants_are_seen_everywhere() -> None:
    text = "const W = 4\nconst W2 = W * 2\nfn f(x) { return x * f32(W2) }\n@grid(W2)\n"
    kernel = check(text + "kernel k(X: tensor<f32>[W2]) {\nX[0 :+ W] = f(X[0 :+ W])\n}")
    assert kernel.tensors[0].type.dims == (8,)
    assert [str(g) for g in kernel.grid] == ["8", "1", "1"]
