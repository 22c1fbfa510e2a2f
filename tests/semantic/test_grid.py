"""The grid: explicit and inferred."""

from __future__ import annotations

import pytest
from semantic.support import check, expect, failures

HEAD = "kernel k(X: tensor<f32>[N, M], Y: tensor<f32>[N], Z: tensor<f32>[L], W: tensor<f32>[100], n: i32) {\n"


def grid(body: str, attributes: str = "", **options) -> list[str]:
    return [str(g) for g in check(f"{attributes}\n{HEAD}{body}\n}}", **options).grid]


INFERRED = [
    ("print(1)", ["1", "1", "1"]),
    ("Y[ctx.block.x * 32 :+ 32] = 1.0", ["ceildiv(N, 32)", "1", "1"]),
    ("let pid = ctx.block.x\nlet row = pid * 16\nlet r2 = row + 0\nY[r2 :+ 16] = 1.0", ["ceildiv(N, 16)", "1", "1"]),
    ("Y[8 * ctx.block.x + 8 * ctx.block.x :+ 16] = 1.0", ["ceildiv(N, 16)", "1", "1"]),
    ("Y[(ctx.block.x + 1) * 16 - 16 :+ 16] = 1.0", ["ceildiv(N, 16)", "1", "1"]),
    ("Y[ctx.block.x << 4 :+ 16] = 1.0", ["ceildiv(N, 16)", "1", "1"]),
    ("let r = ctx.block.x * 16\nY[r : r + 16] = 1.0", ["ceildiv(N, 16)", "1", "1"]),
    ("Y[ctx.block.x] = 1.0", ["N", "1", "1"]),
    ("Y[ctx.block.x :+ 1] = 1.0", ["N", "1", "1"]),
    ("W[ctx.block.x * 32 :+ 32] = 1.0", ["4", "1", "1"]),
    ("X[ctx.block.y * 4 :+ 4, ctx.block.x * 8 :+ 8] = 1.0", ["ceildiv(M, 8)", "ceildiv(N, 4)", "1"]),
    ("X[ctx.block.z, ctx.block.x * 8 :+ 8] = 1.0", ["ceildiv(M, 8)", "1", "N"]),
    ("let v = Y[ctx.block.x * 8 :+ 8]\nprint(v)", ["ceildiv(N, 8)", "1", "1"]),
    (
        "let r = ctx.block.x * 8\nprint(Y[r - 1 :+ 10])\nY[r :+ 8] = 1.0\nZ[r + n :+ 8] = 1.0",
        ["ceildiv(N, 8)", "1", "1"],
    ),
    ("let r = ctx.block.x * 8\nfor j in range(4) { print(X[r :+ 8, j * 4 :+ 4]) }", ["ceildiv(N, 8)", "1", "1"]),
    ("if n > 0 { Y[ctx.block.x * 8 :+ 8] = 1.0 } else { Y[ctx.block.x * 8 :+ 8] = 2.0 }", ["ceildiv(N, 8)", "1", "1"]),
]


@pytest.mark.parametrize(("body", "expected"), INFERRED)
def test_inferred(body: str, expected: list[str]) -> None:
    assert grid(body) == expected


NOT_UNIQUE = [
    "let r = ctx.block.x * 8\nY[r :+ 8] = 1.0\nZ[r :+ 8] = 1.0",
    "let r = ctx.block.x * 8\nY[r :+ 8] = 1.0\nY[ctx.block.x] = 1.0",
    "Y[ctx.block.x * 8 :+ 4] = 1.0",
    "Y[ctx.block.x * 8 + 4 :+ 8] = 1.0",
    "Y[ctx.block.x / 2 * 8 :+ 8] = 1.0",
    "Y[ctx.block.x * n :+ 8] = 1.0",
    "print(ctx.block.x)",
    "for i in range(ctx.block.x * 8, N, ctx.grid.x * 8) { Y[i :+ 8] = 1.0 }",
]


@pytest.mark.parametrize("body", NOT_UNIQUE)
def test_not_unique(body: str) -> None:
    (found,) = expect(HEAD.replace("kernel k", "kernel §k") + body + "\n}", "PH0311")
    assert "@grid(" in (found.help or "")
    assert grid(body, "@grid(4)") == ["4", "1", "1"]


def test_both_answers_are_shown() -> None:
    (found,) = failures(HEAD + "let r = ctx.block.x * 8\nY[r :+ 8] = 1.0\nZ[r :+ 8] = 1.0\n}")
    assert any("ceildiv(N, 8)" in note for note in found.notes) and any("ceildiv(L, 8)" in note for note in found.notes)


EXPLICIT = [
    ("@grid(N)", ["N", "1", "1"]),
    ("@grid((N + B - 1) / B, M, 2)", ["(((N + 32) - 1) // 32)", "M", "2"]),
    ("@grid(min(N, 64) * 2, ceildiv(M, B), max(1, N % 3))", ["(min(N, 64) * 2)", "ceildiv(M, 32)", "max(1, (N % 3))"]),
    ("@grid(B * 2 - 1)", ["63", "1", "1"]),
]


@pytest.mark.parametrize(("attribute", "expected"), EXPLICIT)
def test_explicit(attribute: str, expected: list[str]) -> None:
    assert grid("print(ctx.block.x + B)", f"@autotune(B in [32])\n{attribute}") == expected


def test_evaluation_at_launch() -> None:
    kernel = check(HEAD + "X[ctx.block.y * 4 :+ 4, ctx.block.x * 8 :+ 8] = 1.0\n}")
    assert [g.evaluate({"N": 9, "M": 16, "L": 1}) for g in kernel.grid] == [2, 3, 1]


def test_pinned_dim_gives_a_number() -> None:
    text = HEAD + "X[ctx.block.y * 4 :+ 4, ctx.block.x * 8 :+ 8] = 1.0\n}"
    assert [str(g) for g in check(text, config={"M": 20}).grid] == ["3", "ceildiv(N, 4)", "1"]


def test_no_second_error_after_a_first() -> None:
    expect(HEAD + "Y[ctx.block.x * §q :+ 8] = 1.0\n}", "PH0201")


TWO = """@autotune(BM in {{32}}, BN in {{64}})
{grid}
kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[L], Z: tensor<f32>[M, L]) {{
  let r = ctx.block.y * BM
  let c = ctx.block.x * BN
  Z[r :+ BM, c :+ BN] = X[r :+ BM, c :+ BN] + Y[c :+ BN]
}}"""


def test_what_to_state_holds_for_every_configuration() -> None:
    """Names as they are written, every axis that is used, and nothing that is only one of several answers."""
    (found,) = failures(TWO.format(grid=""))
    answers = {n.partition("gives ")[2] for n in found.notes}
    assert found.code == "PH0311" and answers == {"ceildiv(N, BN)", "ceildiv(L, BN)"}
    assert found.help is not None and "`@grid(..., ceildiv(M, BM))`" in found.help
    assert [str(g) for g in check(TWO.format(grid="@grid(ceildiv(L, BN), ceildiv(M, BM))")).grid][2] == "1"


@pytest.mark.parametrize("given, axis", [("ceildiv(N, BN)", "y"), ("1, ceildiv(M, BM)", "z"), ("2", "y")])
def test_an_axis_that_is_used_has_a_size(given: str, axis: str) -> None:
    text = TWO.format(grid=f"@grid({given})")
    if axis == "z":
        text = text.replace("ctx.block.y * BM", "ctx.block.y * BM + ctx.block.z")
    (found,) = failures(text)
    assert found.code == "PH0312" and f"no size along {axis}" in found.message
    (found,) = failures(text.replace("ctx.block.y", "ctx.grid.y").replace("ctx.block.z", "ctx.grid.z"))
    assert found.code == "PH0312" and f"`ctx.grid.{axis}`" in found.message
