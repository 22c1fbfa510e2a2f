"""Warnings: masked tiles, unused names, unreachable statements."""

from __future__ import annotations

import re

import pytest
from semantic.support import expect_warnings, warnings

HEAD = "kernel k(K: tensor<f32>[N, D], V: tensor<f32>[N, D], O: tensor<f32>[N]) {\n"


def masked(body: str, attributes: str = "", *codes: str, **options) -> tuple:
    text = f"@grid(1)\n@autotune(D in [64])\n{attributes}\n{HEAD}{body}\n}}"
    return tuple(d for d in warnings(text.replace("§", ""), **options) if d.code == "PH0401")


WRONG = [
    "for j in range(0, N, 16) {\nlet s = dot_t(V[0 :+ 4, :], K[j :+ 16, :])\nO[0 :+ 4] = rowmax(s)\n}",
    "for j in range(0, N, 16) {\nvar s = dot_t(V[0 :+ 4, :], K[j :+ 16, :])\ns = s * 0.5\nO[0 :+ 4] = rowmin(-s)\n}",
    "let s = O[3 :+ 16]\nO[0] = max(s)",
    "let s = O[3 :+ 16]\nO[0] = prod(s)",
    "O[0] = f32(argmin(O[3 :+ 16]))",
    "let s = O[3 :+ 16]\nO[0] = sum(exp(s))",
    "let s = O[3 :+ 16]\nlet m = sum(s) / 16.0\nlet d = s - m\nO[0] = sum(d * d)",
    "let s = K[0 :+ 16, :]\nlet e = exp(s)\nO[0 :+ 1] = reshape(rowsum(colsum(e)), 1)",
    "let s = K[0 :+ 16, :]\nlet e = exp(dot_t(V[0 :+ 4, :], s))\nprint(dot(e, exp(V[0 :+ 16, :])))",
    "let s = transpose(K[0 :+ 16, :])\nO[0 :+ 64] = rowmax(s)",
    "let s = K[0 :+ 16, :]\nO[0 :+ 64] = colmax(reshape(s, 16, 1, 64)[:, 0, :])",
]


@pytest.mark.parametrize("body", WRONG)
def test_masked_tile(body: str) -> None:
    found = masked(body)
    assert len(found) >= 1 or "reshape(s, 16, 1, 64)" in body
    for d in found:
        assert ("where(iota(" in (d.help or "") or "name the fill" in (d.help or "")) and d.severity == "warning"


def pasted(text: str, found) -> str:
    """The text with what the help says, which is put before the line of the reduction or in the place of a slice."""
    lines, help = text.split("\n"), found.help
    at = found.span.line - 1
    for note in found.notes:
        if note.startswith("the ") and " in line " in note:
            at = int(note.split(" in line ")[1].split()[0]) - 1
    quoted = help.split("`")[1::2]
    if help.startswith("name the fill: "):
        slice, _, fill = quoted[0].rpartition(" else ")
        assert slice in lines[at]
        lines[at] = lines[at].replace(slice, f"{slice} else {fill}", 1)
    elif help.startswith("add the line: "):
        lines.insert(at, help.removeprefix("add the line: "))
    else:
        line, new, old = quoted
        lines[at : at + 1] = [line, re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, lines[at], count=1)]
    return "\n".join(lines)


NEUTRAL = {  # dtype: what a maximum and a minimum ignore; None: zero does no harm
    "f16": ("-inf", "inf"), "f8e4m3": ("-448.0", "448.0"), "f64": ("-inf", "inf"), "i8": ("-128", "127"),
    "i32": ("-2147483648", "2147483647"), "i64": ("-9223372036854775808", "9223372036854775807"),
    "u8": (None, "255"), "u32": (None, "4294967295"),
}  # fmt: skip


@pytest.mark.parametrize("place", ["X[3 :+ 16]", "x", "v", "x + x"])
@pytest.mark.parametrize("fn", ["max", "min", "prod"])
@pytest.mark.parametrize("dtype", NEUTRAL)
def test_the_fix_can_be_pasted(dtype: str, fn: str, place: str) -> None:
    """Of every dtype, for a slice, a `let`, a `var` and an expression: it parses and the warning is gone."""
    text = f"@grid(1)\nkernel k(X: tensor<{dtype}>[N], Y: tensor<{dtype}>[1]) {{\n"
    text += "let x = X[3 :+ 16]\nvar v = X[3 :+ 16]\n"
    text += f"let inside = x; print(x, v, inside)\nY[0] = {dtype}({fn}({place}))\n}}"
    found = [d for d in warnings(text) if d.code == "PH0401"]
    neutral = ("1.0" if "f" in dtype else "1") if fn == "prod" else NEUTRAL[dtype][fn == "min"]
    if neutral is None:
        assert found == []
        return
    (only,) = found
    assert only.help is not None and neutral in only.help and ("name the fill" in only.help) == (place[0] == "X")
    assert [d.code for d in warnings(pasted(text, only))] == []


@pytest.mark.parametrize("body", WRONG)
def test_the_fix_of_each_can_be_pasted(body: str) -> None:
    text = f"@grid(1)\n@autotune(D in [64])\n{HEAD}{body}\n}}"
    for _ in range(4):
        found = [d for d in warnings(text) if d.code == "PH0401"]
        if not found:
            return
        text = pasted(text, found[0])
    raise AssertionError(text)


RIGHT = [
    "for j in range(0, N, 16) {\nvar s = dot_t(V[0 :+ 4, :], K[j :+ 16, :])\ns = where(iota(1) < N - j, s, -inf)\nO[0 :+ 4] = rowmax(s)\n}",  # noqa: E501
    "let s = O[3 :+ 16] else -inf\nO[0] = max(s)",
    "O[0] = sum(O[3 :+ 16])",
    "O[0] = sum(O[3 :+ 16] * 2.0)",
    "O[0 :+ 16] = exp(O[3 :+ 16])",
    "O[0 :+ 16] = rowmax(K[0 :+ 16, :])",
    "O[0 :+ 16] = rowsum(exp(K[0 :+ 16, :] - rowmax(K[0 :+ 16, :])))",
    "let s = O[3 :+ 16]\nlet m = sum(s) / 16.0\nlet d = where(iota(0) < N - 3, s - m, 0.0)\nO[0] = sum(d * d)",
    "var acc: tile<f32>[16] = 0.0\nfor j in range(0, N, 16) { acc += O[j :+ 16] }\nO[0] = sum(acc)",
    "let e = exp(dot_t(V[0 :+ 4, :], K[0 :+ 16, :]))\nprint(dot(e, V[0 :+ 16, :]))",
    "for j in range(0, 64, 16) { O[0 :+ 4] = rowmax(V[0 :+ 4, j :+ 16]) }",
    "O[0] = max(O[3])".replace("max(O[3])", "max(O[3], 1.0)"),
]


@pytest.mark.parametrize("body", RIGHT)
def test_no_warning_where_zeros_do_no_harm(body: str) -> None:
    assert masked(body) == ()


@pytest.mark.parametrize("body", WRONG[:1])
def test_no_warning_where_aligned_promises(body: str) -> None:
    assert masked(body, "@aligned(N = 32)") == ()
    assert len(masked(body, "@aligned(N = 8)")) == 1


def test_the_seed_without_its_promise(seed: str) -> None:
    text = seed.replace("@aligned(Nq = BR, Nk = BC)\n", "")
    text = text.replace("rowmax(s)", "§rowmax(s)")
    (found,) = expect_warnings(text, "PH0401", name="flash_attention", config={"BR": 16, "BC": 8})
    assert found.help == "add the line: s = where(iota(1) < Nk - kt, s, -inf)"
    fixed = text.replace("§", "").replace(
        "    // Online", "    s = where(iota(1) < Nk - kt, s, -1.0e30)\n    // Online"
    )
    expect_warnings(fixed, name="flash_attention", config={"BR": 16, "BC": 8})


LINT = [
    ("unused let", "let §x = a\nB[0] = 1.0", "PH0402"),
    ("unused var", "var §x = a\nx = 2.0\nB[0] = 1.0", "PH0402"),
    ("unused var of a tile", "var §x: tile<f32>[4] = 0.0\nx[0] = 2.0\nB[0] = a", "PH0402"),
    ("unused const", "const §X = 3\nB[0] = a", "PH0402"),
    ("underscore", "let _x = a\nB[0] = a", ""),
    ("var that is read by +=", "var x = a\nx += 1.0\nB[0] = x", ""),
    ("unreachable", "B[0] = a\nreturn\n§B[1] = a", "PH0406"),
    ("unreachable in a loop", "for i in range(4) {\nB[i] = a\nbreak\n§B[1] = a\nB[2] = a\n}", "PH0406"),
    ("hidden var", "var x = a\nif a > 1.0 {\nvar §x = 2.0\nB[1] = x\n}\nB[0] = x", "PH0407"),
    ("siblings", "if a > 1.0 { let x = 1.0\nB[0] = x } else { let x = 2.0\nB[0] = x }", ""),
    ("unused index", "for i in range(4) { B[0] = a }", ""),
    ("negative position", "B[0] = a * B[§-1]", "PH0408"),
    ("negative position of a store", "B[§-2] = a", "PH0408"),
    ("negative start", "B[0 :+ 12] = a * B[§-4 :]", "PH0408"),
    ("a span that begins before the first", "B[0 :+ 4] = a * B[-1 :+ 4]", ""),
    ("computed position", "B[0] = a * B[8 - 1]", ""),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in LINT], ids=[c[0] for c in LINT])
def test_lint(body: str, codes: str) -> None:
    expect_warnings(f"kernel k(B: tensor<f32>[8], a: f32) {{\n{body}\n}}", *codes.split())


def test_unused_parameters_and_autotune_names() -> None:
    text = "@autotune(§BR in [4, 8], BC in [4, 8], TH in {32, 64}, AL in [4])\n@launch(TH)\n@aligned(N = AL)\n"
    text += "kernel k(X: tensor<f32>[N, BC], §n: i32, const §c: bool) {\nX[0, 0] = 1.0\n}"
    expect_warnings(text, "PH0404", "PH0403", "PH0403", config={"BR": 4, "BC": 4, "TH": 32}, consts={"c": True})
