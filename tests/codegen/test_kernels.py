"""Kernels at the edges of the language: small floats, bools, long rows, middle axes, many axes, loops of all types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from codegen.differential import Variant, kernel_of, random_array, run_both

TWO = (Variant(), Variant(threads=96, sched=3))


def array(dtype: str, *shape: int) -> np.ndarray:
    return random_array(np.random.default_rng(sum(shape)), dtype, shape)


def agree(text: str, arguments: Mapping[str, Any], variants: tuple[Variant, ...] = TWO) -> None:
    for variant in variants:
        assert run_both(kernel_of(text), arguments, variant) == []


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_small_floats_move_convert_and_multiply(dtype: str) -> None:
    text = f"""
    kernel k(X: tensor<{dtype}>[M, N], Y: tensor<{dtype}>[N, M], Z: tensor<f32>[M, N], W: tensor<{dtype}>[1]) {{
      let x: tile<{dtype}>[12, 20] = X[0 :+ 12, 0 :+ 20] else 1.0
      Y[0 :+ 20, 0 :+ 12] = transpose(x)
      let h = cat(x[0 :+ 4, :], x[8 :+ 4, :], 0)
      Z[0 :+ 8, 0 :+ 20] = f32(h) * 2.0 + f32(reshape(x[2 :+ 8, :], 8, 20)) + rowsum(f32(x[0:8, :]))
      Z[8 :+ 4, 0 :+ 16] = dot_t(x[0 :+ 4, 0 :+ 16], cat(x[0 : 12, 0 : 16], x[0 : 4, 0 : 16], 0))
      W[0] = x[3, 4]
    }}
    """
    agree(text, {"X": array(dtype, 11, 19), "Y": array(dtype, 19, 11), "Z": array("f32", 11, 19), "W": array(dtype, 1)})


def test_bools_in_memory_and_in_conditions() -> None:
    text = """
    kernel k(X: tensor<bool>[M, N], Y: tensor<bool>[N, M], C: tensor<i32>[M]) {
      let x: tile<bool>[12, 20] = X[0 :+ 12, 0 :+ 20]
      Y[0 :+ 20, 0 :+ 12] = transpose(x) || transpose(x && iota(0) < 3)
      C[0 :+ 12] = rowsum(i32(x))
      Y[0, 0] = x[0, 1]
      if X[1, 2] { C[0] = 77 } else { C[0] = 78 }
    }
    """
    agree(text, {"X": array("bool", 11, 19), "Y": array("bool", 19, 11), "C": array("i32", 11)})


@pytest.mark.parametrize("threads", [96, 1024])
def test_long_rows(threads: int) -> None:
    text = """
    kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[M, N]) {
      let r = ctx.block.x
      let x: tile<f32>[1, 4096] = X[r :+ 1, 0 :+ 4096]
      Y[r :+ 1, 0 :+ 4096] = cumsum(x - rowmax(x), 1) + f32(rowargmin(x))
    }
    """
    agree(text, {"X": array("f32", 2, 4001), "Y": np.zeros((2, 4001), np.float32)}, (Variant(threads=threads),))


def test_the_axis_in_the_middle() -> None:
    text = """
    fn larger(a, b) { return tmax(a, b) }
    kernel k(X: tensor<f32>[A, B, C], Y: tensor<f32>[A, C], Z: tensor<f32>[A, C, B]) {
      let x: tile<f32>[3, 7, 10] = X[0 :+ 3, 0 :+ 7, 0 :+ 10]
      Y[0 :+ 3, 0 :+ 10] = reshape(reduce(x, 1, larger, -inf), 3, 10)
      Z[0 :+ 3, 0 :+ 10, 0 :+ 7] = transpose(cumsum(x, 1)) + rowsum(transpose(x)) + colsum(transpose(x))
    }
    """
    outputs = {"Y": np.zeros((3, 9), np.float32), "Z": np.zeros((3, 9, 7), np.float32)}
    agree(text, {"X": array("f32", 3, 7, 9), **outputs})


@pytest.mark.parametrize(
    "variant",
    [
        Variant(),
        Variant(forms=(("X", "transposed"), ("Y", "padded"))),
        Variant(forms=(("X", "inner"), ("Y", "shifted"))),
        Variant(index_bits=64, weak=True),
    ],
)
def test_five_axes(variant: Variant) -> None:
    text = """
    kernel k(X: tensor<f16>[A, B, C, D, 8], Y: tensor<f16>[A, B, D, C, 8]) {
      let a = ctx.block.x
      let b = ctx.block.y
      for d in range(D) {
        Y[a, b, d, 0 :+ 8, :] = X[a, b, 0 :+ 8, d, :] * 2.0
      }
    }
    """
    agree(text, {"X": array("f16", 2, 3, 7, 4, 8), "Y": np.zeros((2, 3, 4, 7, 8), np.float16)}, (variant,))


@pytest.mark.parametrize("index_bits", [32, 64])
def test_loops_over_every_type(index_bits: int) -> None:
    text = """
    kernel k(Y: tensor<i32>[16], n: i32, u: u32, b: u8, s: i8, l: i64) {
      var c: i32 = 0
      for i in range(n) { c += i32(i) * 3 }
      for i in range(u) { c += i32(i) + 1 }
      for i in range(b) { c = c ^ 5 + i32(i) }
      for i in range(s, 3) { c -= i32(i) }
      for i in range(l, l + 4, 2) { c += i32(i) }
      for i in range(n, 0 - n, 0 - 2) { c = c * 3 + i32(i) }
      Y[0] = c
    }
    """
    arguments = {"Y": array("i32", 16), "n": 5, "u": 3, "b": 200, "s": -3, "l": 1}
    agree(text, arguments, (Variant(index_bits=index_bits),))


@pytest.mark.parametrize("weak", [False, True])
def test_tensors_without_elements(weak: bool) -> None:
    text = """
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[M]) {
      var acc: tile<f32>[8] = 0.0
      for i in range(0, N, 8) { acc += X[i :+ 8] }
      Y[ctx.block.x * 8 :+ 8] = acc + X[0 :+ 8]
    }
    """
    agree(text, {"X": np.zeros(0, np.float32), "Y": array("f32", 20)}, (Variant(weak=weak),))
