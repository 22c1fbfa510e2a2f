"""Broadcasting, iota without a shape of its own, tile shapes."""

from __future__ import annotations

import numpy as np
import pytest
from semantic.support import execute, expect_body, failures, ir, ops

from phobos.ir.tile import Broadcast, Compute, Iota, Reshape, Store

TILES = "X: tensor<f32>[8, 16], R: tensor<f32>[16], C: tensor<f32>[8, 1], Y: tensor<f32>[8, 16], n: i32"


def run(body: str, **more: np.ndarray | float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arguments: dict = {
        "X": rng.standard_normal((8, 16)).astype(np.float32),
        "R": rng.standard_normal(16).astype(np.float32),
        "C": rng.standard_normal((8, 1)).astype(np.float32),
        "Y": np.zeros((8, 16), np.float32),
        "n": 5,
        **more,
    }
    out = execute(f"kernel k({TILES}) {{\nlet x = X[:, :]\n{body}\n}}", arguments)
    return {"before_X": arguments["X"], **out}


def test_broadcast_follows_numpy() -> None:
    out = run("Y[:, :] = x * C[:, :] + R[:]")
    np.testing.assert_allclose(out["Y"], out["X"] * out["C"] + out["R"], rtol=1e-6)


def test_store_repeats_extent_one_axes_and_scalars() -> None:
    np.testing.assert_array_equal(run("Y[:, :] = 2.0")["Y"], np.full((8, 16), 2.0))
    out = run("Y[:, :] = R[:]")
    np.testing.assert_array_equal(out["Y"], np.broadcast_to(out["R"], (8, 16)))
    out = run("Y[:, :] = C[:, :]")
    np.testing.assert_array_equal(out["Y"], np.broadcast_to(out["C"], (8, 16)))


def test_row_statistics_are_stored_in_a_vector() -> None:
    kernel = ir("V[:] = rowsum(X[:, :])", "X: tensor<f32>[8, 16], V: tensor<f32>[8]", "")
    assert len(ops(kernel, Reshape)) == 1 and ops(kernel, Store)[0].value.shape == (8,)


IOTA = [
    ("where(iota(1) < n, x, 0.0)", lambda x: np.where(np.arange(16)[None, :] < 5, x, 0)),
    ("where(iota(0) < n, x, 0.0)", lambda x: np.where(np.arange(8)[:, None] < 5, x, 0)),
    ("where(iota(0) >= iota(1), x, 0.0)", np.tril),
    (
        "where(n > iota(1) && iota(0) + 1 > 2, x, -1.0)",
        lambda x: np.where((np.arange(16)[None, :] < 5) & (np.arange(8)[:, None] > 1), x, -1),
    ),
    ("x + f32(iota(1)) * 2.0", lambda x: x + 2 * np.arange(16)),
    ("x + f32(iota(0, 8))", lambda x: x + np.arange(8)[:, None]),
    ("x + f32(iota(1, 16) * 3)", lambda x: x + 3 * np.arange(16)),
    ("f32(iota(0, 8) * 16 + iota(1, 16))", lambda x: np.arange(128).reshape(8, 16)),
    ("f32(iota(0) * 16 + iota(1))", lambda x: np.arange(128).reshape(8, 16)),
    ("f32(iota(0, 8) + iota(1))", lambda x: np.arange(8)[:, None] + np.arange(16)),
    ("iota(1)", lambda x: np.broadcast_to(np.arange(16), (8, 16))),
    ("where(iota(1) < i32(C[:, :] * 0.0) + 3, x, 0.0)", lambda x: np.where(np.arange(16) < 3, x, 0)),
    ("where(iota(0) < i32(R[:] * 0.0) + 3, x, 0.0)", lambda x: np.where(np.arange(8)[:, None] < 3, x, 0)),
    ("min(iota(1), n)", lambda x: np.broadcast_to(np.minimum(np.arange(16), 5), (8, 16))),
    ("broadcast(f32(iota(1)), 8, 16)", lambda x: np.broadcast_to(np.arange(16), (8, 16))),
]


@pytest.mark.parametrize(("expression", "oracle"), IOTA, ids=[c[0] for c in IOTA])
def test_iota_takes_the_shape_of_its_statement(expression: str, oracle) -> None:
    out = run(f"Y[:, :] = {expression}")
    np.testing.assert_allclose(out["Y"], oracle(out["before_X"]), rtol=1e-6)


def test_iota_meets_a_var_and_a_declared_type() -> None:
    out = run("var y: tile<i32>[8, 16] = iota(1)\ny = iota(0) + y\ny += iota(1)\nY[:, :] = y")
    np.testing.assert_array_equal(out["Y"], np.arange(8)[:, None] + 2 * np.arange(16))


def test_iota_with_extent_fits_rank_one() -> None:
    kernel = ir("let i: tile<i32>[16] = iota(0, 16)\nlet j = iota(1, 4)\nprint(i, j)")
    assert [i.result.shape for i in ops(kernel, Iota)] == [(16,), (1, 4)]


def test_mask_of_an_extent_one_tile_works() -> None:
    # The seed's mask with a tile of one column: nothing else tells the extent.
    text = "@autotune(BC in {1, 4})\n@grid(1)\nkernel k(X: tensor<f32>[8, N]) {\n"
    text += "for kt in range(0, N, BC) {\nlet s = X[:, kt :+ BC] * 1.0\nX[:, kt :+ BC] = where(iota(1) < 3 - kt, s, -1.0)\n}\n}"  # noqa: E501
    x = np.ones((8, 5), np.float32)
    for width in (1, 4):
        out = execute(text, {"X": x}, config={"BC": width})["X"]
        np.testing.assert_array_equal(out, np.where(np.arange(5) < 3, x, -1.0))


BAD = [
    ("let without shape", "let i = §iota(0)\nprint(i)", "PH0225"),
    ("let with scalars only", "let i = §iota(1) < n\nprint(i)", "PH0225"),
    ("var without shape", "var i = §iota(0)\nprint(i)", "PH0225"),
    ("reduction", "print(rowmax(§iota(1)))", "PH0225"),
    ("subscript", "print(A[§iota(0), 0])", "PH0225"),
    ("axis 3", "P[:, :] = iota(§3)", "PH0226"),
    ("axis not constant", "P[:, :] = iota(§n)", "PH0215"),
    ("axis too large for the tile", "B[0 :+ 4] = §iota(1)", "PH0226"),
    ("extent zero", "print(iota(0, §0))", "PH0224"),
    ("extent does not fit", "P[:, :] = §P[:, :] + iota(1, 8)", "PH0220"),
    ("shapes", "print(§P[:, :] + P[0 :+ 4, 0 :+ 4])", "PH0220"),
    ("shapes with iota", "print(§P[:, :] + iota(0) * P[0 :+ 4, 0 :+ 4])", "PH0220"),
    ("rank", "let x: tile<f32>§[2, 2, 2, 2] = 0.0", "PH0224"),
    ("extent", "let x: tile<f32>[§0] = 0.0", "PH0224"),
    ("extent not constant", "let x: tile<f32>[§n] = 0.0", "PH0215"),
    ("extent of float", "let x: tile<f32>[§1.5] = 0.0", "PH0212"),
    ("declared shape", "let x: tile<f32>[8, 8] = §P[:, :]\nprint(x)", "PH0221"),
    ("declared shape not repeated", "let x: tile<f32>[8, 16] = §rowsum(P[:, :])\nprint(x)", "PH0221"),
    ("tile for a scalar", "let x: f32 = §P[:, :]\nprint(x)", "PH0221"),
    ("store shape", "B[0 :+ 8] = §P[:, :]", "PH0221"),
    ("store into an element", "B[0] = §P[:, :]", "PH0221"),
    ("var shape", "var x = P[:, :]\nx = §P[0 :+ 4, :]\nprint(x)", "PH0216"),
    ("var shape not repeated", "var x = P[:, :]\nx = §rowsum(x)\nprint(x)", "PH0216"),
    ("var scalar becomes a tile", "var x = 0.0\nx = §P[:, :]\nprint(x)", "PH0216"),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_shape_errors(body: str, codes: str) -> None:
    # The place of a type is that of its whole text, which the parser decides.
    if "tile<f32>§" in body:
        body = body.replace("§", "").replace("tile", "§tile")
    expect_body(body, *codes.split())


def test_scalar_fills_a_var() -> None:
    kernel = ir("var x = P[:, :]\nx = 1.0\nx = a\nP[:, :] = x")
    assert len(ops(kernel, Broadcast)) == 2
    assert not ops(kernel, Compute)


def test_messages_show_both_shapes() -> None:
    (found,) = expect_body("var x = P[:, :]\nx = §h", "PH0216", params="P: tensor<i32>[8, 16], h: f16")
    assert "tile<i32>[8, 16]" in found.message and "f16" in found.message
    (found,) = expect_body("var x: tile<f32>[8, 16] = 0.0\nx = rowsum(x)", "PH0216")
    assert "tile<f32>[8, 16]" in found.message and "tile<f32>[8, 1]" in found.message
    assert found.help == "`broadcast(x, 8, 16)`"


def test_the_extent_that_an_iota_lacks_has_no_name_of_the_kernel() -> None:
    head = "@grid(1)\nkernel k(X: tensor<i32>[N], n: i32, EXTENT: i32) {\n"
    (found,) = failures(head + "let i = iota(0)\nX[0 :+ 4] = i\n}")
    assert found.code == "PH0225" and found.help is not None and "`iota(0, EXTENT2)`" in found.help
