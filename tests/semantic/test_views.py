"""Slices of tensors and tiles: bounds, gathers, laziness, static lengths."""

from __future__ import annotations

import numpy as np
import pytest
from semantic.support import check, execute, expect_body, failures, ir, ops

from phobos.ir.tile import AtIndex, AxisGather, AxisRange, Extract, Gather, Insert, Load, Store


def axes(kernel) -> list:
    return [load.view.axes for load in ops(kernel, Load)]


def test_axes_of_a_view() -> None:
    kernel = ir(
        "print(A[n, 3 :+ 4])\nprint(P[2 : 6, :])\nprint(P[: 3, 5 :])\nprint(A[n : n + 4, n * 2 - 1 : n * 2 + 1])"
    )
    first, second, third, fourth = axes(kernel)
    assert isinstance(first[0], AtIndex) and isinstance(first[1], AxisRange) and first[1].length == 4
    assert [a.length for a in second] == [4, 16]
    assert [a.length for a in third] == [3, 11]
    assert [a.length for a in fourth] == [4, 2]


def test_only_statically_whole_axes_are_unguarded() -> None:
    kernel = ir("print(P[2 :+ 6, :], P[2 :+ 7, n :+ 1], P[-1 :+ 2, 0 :+ 16], A[0 :+ 1, 0 :+ 1])")
    assert [[a.guarded for a in view] for view in axes(kernel)] == [
        [False, False],
        [True, True],
        [True, False],
        [True, True],
    ]


def test_pinned_dims_are_static() -> None:
    kernel = check(
        "@grid(1)\n@autotune(D in [64])\nkernel k(X: tensor<f32>[N, D], W: tensor<f32>[D * 2]) {\nprint(X[0 :+ 4, :], W[:])\n}"  # noqa: E501
    )
    assert [load.result.shape for load in ops(kernel, Load)] == [(4, 64), (128,)]


def test_view_bound_by_let_is_read_where_it_is_used() -> None:
    kernel = ir("let v = B[0 :+ 4]\nB[0 :+ 4] = 1.0\nprint(v)\nprint(v)")
    kinds = [type(op).__name__ for op in kernel.body.ops if isinstance(op, (Load, Store))]
    assert kinds == ["Store", "Load", "Load"]
    assert {load.result.name for load in ops(kernel, Load)} == {"v"}


def test_view_in_a_var_or_a_declared_let_is_read_at_once() -> None:
    for line in ("var v = B[0 :+ 4]", "let v: tile<f32>[4] = B[0 :+ 4]", "let v: tile<f16>[4] = B[0 :+ 4]"):
        kernel = ir(f"{line}\nB[0 :+ 4] = 1.0\nprint(v)\nprint(v)")
        kinds = [type(op).__name__ for op in kernel.body.ops if isinstance(op, (Load, Store))]
        assert kinds == ["Load", "Store"]


def test_one_element_is_read_at_once() -> None:
    out = execute(
        "@grid(1)\nkernel k(B: tensor<f32>[2]) {\nlet x = B[0]\nB[0] = x + 1.0\nB[1] = x\n}",
        {"B": np.array([5.0, 0.0], np.float32)},
    )
    assert out["B"].tolist() == [6.0, 5.0]


def test_fill_of_a_load() -> None:
    kernel = ir("let v = A[n :+ 4, 0] else -inf\nprint(v, I[0 :+ 4] else -1, H[0, 0 :+ 4] else 1)")
    fills = [load.fill for load in ops(kernel, Load)]
    assert fills == [float("-inf"), -1, 1.0] and isinstance(fills[2], float)


def test_slice_of_a_view_is_a_view() -> None:
    kernel = ir("let v = A[n :+ 8, 0 :+ 16]\nprint(v[2 :+ 4, :], v[1, 0 :+ 2])")
    loads = ops(kernel, Load)
    assert [load.result.shape for load in loads] == [(4, 16), (2,)] and not ops(kernel, Extract)
    # Where positions may leave the view, it is read first: outside of it there are zeros.
    kernel = ir("let v = A[n :+ 8, 0 :+ 16]\nprint(v[n :+ 4, :])")
    assert len(ops(kernel, Load)) == 1 and len(ops(kernel, Extract)) == 1


def test_slice_of_a_view_numerically() -> None:
    text = """@grid(1)
kernel k(X: tensor<f32>[6, 5], Y: tensor<f32>[4, 5], n: i32) {
  let v = X[1 :+ 4, :]
  Y[0 :+ 2, :] = v[1 :+ 2, :]
  Y[2 :+ 2, :] = v[n :+ 2, :]
}"""
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    out = execute(text, {"X": x, "Y": np.ones((4, 5), np.float32), "n": 3})["Y"]
    np.testing.assert_array_equal(out[:2], x[2:4])
    np.testing.assert_array_equal(out[2:], [x[4], np.zeros(5)])


def test_store_through_a_view() -> None:
    kernel = ir("let v = A[n :+ 8, 0 :+ 16]\nv[0 :+ 4, :] = 1.0")
    assert [a.length for a in ops(kernel, Store)[0].view.axes] == [4, 16]
    expect_body("let v = A[n :+ 8, 0 :+ 16]\n§v[n :+ 4, :] = 1.0", "PH0205")


def test_gather_and_scatter() -> None:
    text = """kernel k(X: tensor<f32>[6, 3], I: tensor<i32>[4], Y: tensor<f32>[4, 3], Z: tensor<f32>[6, 3]) {
  let i = I[:]
  Y[:, :] = X[i, :]
  Z[i, :] = X[i, :] * 2.0
  Y[iota(0, 2) + 2, 0] = 7.0
}"""
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    i = np.array([5, 0, 9, 2], np.int32)
    out = execute(text, {"X": x, "I": i, "Y": np.zeros((4, 3), np.float32), "Z": np.zeros((6, 3), np.float32)})
    expected = np.stack([x[5], x[0], np.zeros(3), x[2]])
    expected[2:, 0] = 7.0
    np.testing.assert_array_equal(out["Y"], expected)
    scattered = np.zeros((6, 3), np.float32)
    scattered[[5, 0, 2]] = 2 * x[[5, 0, 2]]
    np.testing.assert_array_equal(out["Z"], scattered)
    kernel = check(text)
    assert any(isinstance(a, AxisGather) for store in ops(kernel, Store) for a in store.view.axes)


def test_index_tile_of_a_reduction_is_flattened() -> None:
    kernel = ir("let i = rowargmax(P[:, :])\nprint(A[i, 0 :+ 2])")
    assert ops(kernel, Load)[-1].result.shape == (8, 2)


def test_tile_slices() -> None:
    kernel = ir("let t = P[:, :] * 2.0\nprint(t[1, 2], t[n :+ 4, :], t[3, :], t[:, :], t[iota(0, 3), :])")
    assert [e.result.shape for e in ops(kernel, Extract)] == [(), (4, 16), (16,)]
    assert ops(kernel, Gather)[0].result.shape == (3, 16)


def test_tile_slices_numerically() -> None:
    text = """@grid(1)
kernel k(X: tensor<f32>[4, 6], Y: tensor<f32>[4, 6], n: i32) {
  var t = X[:, :]
  t[n :+ 2, 0 : 3] = 9.0
  t[0, 5] += 1.0
  t[3, :] = t[0, :] * 2.0
  Y[:, :] = t
}"""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected = x.copy()
    expected[3:, 0:3] = 9.0  # rows 3 and 4, of which 4 is outside
    expected[0, 5] += 1
    expected[3] = expected[0] * 2
    out = execute(text, {"X": x, "Y": np.zeros_like(x), "n": 3})["Y"]
    np.testing.assert_array_equal(out, expected)
    assert len(ops(check(text), Insert)) == 3


BAD = [
    ("too few subscripts", "print(§A[0])", "PH0222"),
    ("too many subscripts", "print(§B[0, 0])", "PH0222"),
    ("too few on a tile", "let t = P[:, :] + 1.0\nprint(§t[0])", "PH0222"),
    ("whole launch dim", "print(B[§:])", "PH0223"),
    ("open end", "print(B[§n :])", "PH0223"),
    ("open start", "print(B[§: n])", "PH0223"),
    ("dynamic length", "print(B[0 :+ §n])", "PH0223"),
    ("dynamic range", "print(B[§n : N])", "PH0223"),
    ("empty range", "print(B[§4 : 4])", "PH0224"),
    ("negative range", "print(B[§4 : 2])", "PH0224"),
    ("length zero", "print(B[0 :+ §0])", "PH0224"),
    ("length float", "print(B[0 :+ §1.5])", "PH0229"),
    ("start float", "print(B[§0.5 :+ 2])", "PH0229"),
    ("start tile", "print(B[§I[0 :+ 4] :+ 2])", "PH0229"),
    ("index float", "print(B[§a])", "PH0229"),
    ("index bool", "print(B[§flag])", "PH0229"),
    ("index tile of floats", "print(B[§B[0 :+ 4]])", "PH0229"),
    ("index tile of rank 2", "let i = i32(P[:, :])\nprint(B[§i])", "PH0229"),
    ("two index tiles", "let i = I[0 :+ 4]\nprint(A[i, §i])", "PH0229"),
    ("fill on a tile", "let t = P[:, :] + 1.0\nprint(t[0, :] else §1.0)", "PH0229"),
    ("fill of the wrong type", "print(I[0 :+ 4] else §1.5)", "PH0211"),
    ("fill of an unsigned", "print(U[0 :+ 4] else §-1)", "PH0213"),
    ("fill that overflows", "print(H[0, 0 :+ 4] else §-1.0e30)", "PH0213"),
    ("subscript of a scalar", "print(§a[0])", "PH0212"),
    ("gather along the second axis of a tile", "let t = P[:, :] + 1.0\nprint(t[:, §iota(0, 4)])", "PH0229"),
    ("scatter into a tile", "var t = P[:, :]\n§t[iota(0, 4), :] = 1.0\nP[:, :] = t", "PH0229"),
    ("errors in several items", "print(A[§x, §y])", "PH0201 PH0201"),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_slice_errors(body: str, codes: str) -> None:
    expect_body(body, *codes.split())


def test_too_many_axes_for_a_tile() -> None:
    expect_body("print(§X[:, :, :, :])", "PH0224", params="X: tensor<f32>[2, 2, 2, 2]")
    ir("print(X[:, 0, :, :])", "X: tensor<f32>[2, 2, 2, 2]")


def test_help_shows_the_missing_subscripts() -> None:
    (found,) = expect_body("print(A[n])", "PH0222")
    assert found.help == "`A[n, :]`"


@pytest.mark.parametrize(
    ("dtype", "fill", "written"),
    [
        ("i32", "-inf", "-2147483648"), ("i32", "inf", "2147483647"), ("i8", "1.5", "1"), ("u8", "-inf", "0"),
        ("u8", "300", "255"), ("i64", "nan", "0"), ("f8e4m3", "-inf", "-448.0"), ("f16", "1.0e9", "inf"),
        ("bool", "1", None),
    ],
)  # fmt: skip
def test_the_help_for_a_fill_is_a_literal(dtype: str, fill: str, written: str | None) -> None:
    """A conversion is none, so the help names a literal that parses."""
    text = "@grid(1)\nkernel k(X: tensor<{}>[N]) {{\nX[0 :+ 4] = X[4 :+ 4] {}\n}}"
    (found,) = failures(text.format(dtype, f"else {fill}"))
    if written is None:
        assert found.help == "leave the fill out: masked elements of a `bool` are `false`"
        return
    assert found.help == f"write `{written}`"
    check(text.format(dtype, f"else {written}"))
