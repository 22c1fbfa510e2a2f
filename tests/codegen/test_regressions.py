"""Minimal kernels that were once lowered wrongly, each with the wrong decision in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen.differential import Variant, kernel_of, lowered, random_array, run_both

SCHEDULES = tuple(Variant(threads=64, sched=s) for s in (0, 3))


def agree(text: str, arguments: Mapping[str, Any], *variants: Variant) -> None:
    kernel = kernel_of(text)
    for variant in variants or (Variant(),):
        assert run_both(kernel, arguments, variant) == []


def array(dtype: str, *shape: int) -> np.ndarray:
    return random_array(np.random.default_rng(len(shape) + sum(shape)), dtype, shape)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def test_condition_of_while_reads_what_the_body_stored() -> None:
    """simplify took the load in the condition for the one in front of the loop."""
    text = """
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {
      Y[0] = X[0]
      while X[0] < 10.0 {
        X[0] = X[0] + 1.0
      }
    }
    """
    agree(text, {"X": zeros(4), "Y": zeros(4)})


def test_condition_of_while_keeps_the_carried_tile() -> None:
    """The condition's arithmetic was done in place of the carried tile, which the body reads afterwards."""
    text = """
    fn spread(t) {
      let y = t * 2.0
      return max(y) - min(y)
    }
    kernel k(X: tensor<f32>[64], Y: tensor<f32>[64]) {
      var x: tile<f32>[64] = X[:]
      while spread(x) > 1.0 {
        x = x * 0.5
      }
      Y[:] = x
    }
    """
    agree(text, {"X": array("f32", 64), "Y": zeros(64)})


def test_initial_value_read_in_the_loop_through_a_broadcast() -> None:
    """A loop took over the registers of its initial value, which an inlined broadcast read inside the loop."""
    text = """
    kernel k(X: tensor<f32>[4, 8], Y: tensor<f32>[4, 8]) {
      let x: tile<f32>[4, 8] = X[:, :]
      let s = rowsum(x)
      let b = broadcast(s, 4, 8)
      var a = s
      var t: tile<f32>[4, 8] = 0.0
      for i in range(3) {
        a = a + 1.0
        t = t * a + b
      }
      Y[:, :] = t + a
    }
    """
    agree(text, {"X": array("f32", 4, 8), "Y": zeros(4, 8)})


def test_accumulator_is_an_operand_of_its_product() -> None:
    """x * 2 + dot(broadcast(x), b) doubled x in place before the product had read it."""
    text = """
    kernel k(X: tensor<f32>[4, 1], B: tensor<f32>[8, 1], Y: tensor<f32>[4, 1]) {
      let x: tile<f32>[4, 1] = X[:, :]
      let b: tile<f32>[8, 1] = B[:, :]
      Y[:, :] = x * 2.0 + dot(broadcast(x, 4, 8), b)
    }
    """
    agree(text, {"X": array("f32", 4, 1), "B": array("f32", 8, 1), "Y": zeros(4, 1)})


def test_product_added_inside_a_larger_expression() -> None:
    """x + dot(a, b) was inlined into its reader, where no accumulator existed."""
    text = """
    kernel k(A: tensor<f32>[8, 4], B: tensor<f32>[4, 8], Y: tensor<f32>[8, 8]) {
      let y: tile<f32>[8, 8] = Y[:, :]
      Y[:, :] = tmax(y + dot(A[:, :], B[:, :]), 0.5)
    }
    """
    agree(text, {"A": array("f32", 8, 4), "B": array("f32", 4, 8), "Y": array("f32", 8, 8)})


def test_positions_of_a_gather_computed_in_place() -> None:
    """An index tile that lives nowhere (an iota) was looked up among the registers."""
    text = """
    kernel k(X: tensor<f32>[N, 8], Y: tensor<f32>[4, 8]) {
      let rows: tile<i32>[4] = iota(0)
      Y[:, :] = X[rows * 2, 0 :+ 8] + X[rows, 0 :+ 8]
    }
    """
    agree(text, {"X": array("f32", 6, 8), "Y": zeros(4, 8)})


def test_position_that_moves_by_more_than_the_loop() -> None:
    """i + c was said to be another position in every iteration though c counts down as i counts up: no barrier."""
    text = """
    kernel k(X: tensor<f32>[64], Y: tensor<f32>[64]) {
      var c = 0
      for i in range(0, 64, 8) {
        let t: tile<f32>[8] = Y[i + c :+ 8]
        Y[i + c :+ 8] = t + cat(t[4:8], t[0:4], 0)
        c = c - 8
      }
    }
    """
    agree(text, {"X": array("f32", 64), "Y": array("f32", 64)}, *SCHEDULES)


def test_position_that_two_loops_move() -> None:
    """l * 8 + m * 8 meets what an earlier iteration of the outer loop stored at another l: no barrier."""
    text = """
    kernel k(Y: tensor<f32>[64, 8], Z: tensor<f32>[8, 8]) {
      var acc: tile<f32>[8, 8] = 0.0
      for m in range(0, 4) {
        for l in range(0, 2) {
          let t: tile<f32>[8, 8] = Y[l * 8 + m * 8 :+ 8, :]
          acc += t
          Y[l * 8 + m * 8 :+ 8, :] = broadcast(iota(0, 8), 8, 8) * 1.0 + f32(m)
        }
      }
      Z[:, :] = acc + dot(acc, acc)
    }
    """
    agree(text, {"Y": array("f32", 64, 8), "Z": zeros(8, 8)}, *SCHEDULES)


@pytest.mark.parametrize("term", ["where(x > 0.0, x, 1.0)", "x - y", "x * 0.5", "-x"])
@pytest.mark.parametrize("kind", ["rowsum", "rowprod"])
def test_reduction_of_an_expression(kind: str, term: str) -> None:
    """The summand was printed without parentheses: total + c ? a : b."""
    text = f"""
    kernel k(X: tensor<f32>[4, 6], Y: tensor<f32>[4, 6], Z: tensor<f32>[4]) {{
      let x: tile<f32>[4, 6] = X[:, :]
      let y: tile<f32>[4, 6] = Y[:, :]
      Z[:] = {kind}({term})
    }}
    """
    agree(text, {"X": array("f32", 4, 6), "Y": array("f32", 4, 6) + 0.5, "Z": zeros(4)}, Variant(threads=32))


def test_reduction_of_a_remainder() -> None:
    text = """
    kernel k(X: tensor<i32>[4, 6], Z: tensor<i32>[4]) {
      let x: tile<i32>[4, 6] = X[:, :]
      Z[:] = rowsum(x % 7)
    }
    """
    agree(text, {"X": array("i32", 4, 6), "Z": zeros(4, dtype=np.int32)})


@pytest.mark.parametrize("threads", [32, 64, 128])
def test_largest_of_a_whole_tile(threads: int) -> None:
    """argmax over a whole tile gave the row instead of the row-major position."""
    text = """
    kernel k(X: tensor<f32>[5, 7], Y: tensor<i32>[2]) {
      let x: tile<f32>[5, 7] = X[:, :]
      Y[0] = argmax(x)
      Y[1] = argmin(x)
    }
    """
    agree(text, {"X": array("f32", 5, 7), "Y": zeros(2, dtype=np.int32)}, Variant(threads=threads))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "u32", "i64"])
def test_integer_functions_with_literals(dtype: str) -> None:
    """ph_max(signed char, int) is ambiguous: C++ literals and small integers are int."""
    low, bits = ("2", "3") if dtype[0] == "u" else ("-7", "-3")
    text = f"""
    kernel k(X: tensor<{dtype}>[N], Y: tensor<{dtype}>[N], Z: tensor<{dtype}>[2]) {{
      let i = ctx.block.x * 16
      let x: tile<{dtype}>[16] = X[i :+ 16]
      Y[i :+ 16] = clamp(tmax(x * 3, 5), {low}, 100) + abs(x) - tmin(x, {bits})
      Z[0] = max(where(x > 4, x, 9))
      Z[1] = min(x)
    }}
    """
    x = array(dtype, 16)
    agree(
        text, {"X": x, "Y": zeros(16, dtype=x.dtype), "Z": zeros(2, dtype=x.dtype)}, Variant(), Variant(index_bits=64)
    )


def test_index_functions_in_64_bits() -> None:
    """ph_min(ph_i64, int): positions and literals are narrower than 64-bit indexes."""
    text = """
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[N], n: i32) {
      let i = ctx.block.x * 8
      let m = i32(tmin(N - i, 5))
      let a: tile<i32>[8] = iota(0)
      Y[i :+ 8] = where(tmin(a, 3) < m, X[i :+ 8], f32(tmax(a, n)))
    }
    """
    agree(text, {"X": array("f32", 19), "Y": zeros(19), "n": 2}, Variant(index_bits=64))


def test_offsets_of_64_bits_from_gathered_positions() -> None:
    """A gathered 32-bit position times a literal stride was a 32-bit product."""
    text = """
    kernel k(T: tensor<f32>[V, 4096], I: tensor<i32>[8], Y: tensor<f32>[8, 16]) {
      let rows: tile<i32>[8] = I[:]
      Y[:, :] = T[rows, 0 :+ 16]
    }
    """
    arguments = {"T": zeros(3, 4096), "I": zeros(8, dtype=np.int32), "Y": zeros(8, 16)}
    _, program = lowered(kernel_of(text), arguments, Variant(index_bits=64))
    assert "* 4096LL" in program.body
    assert "* 4096LL" not in lowered(kernel_of(text), arguments, Variant())[1].body


def test_positions_that_wrap_in_a_narrow_type() -> None:
    """i8(pid * 100) is negative for block 2, but was taken to be below the dim and never negative."""
    text = """
    @grid(4)
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {
      let i = i32(i8(ctx.block.x * 100))
      Y[i :+ 4] = X[i :+ 4]
    }
    """
    agree(text, {"X": array("f32", 400), "Y": zeros(400)})


@pytest.mark.parametrize(
    "name", ["pos_0", "pos", "part_0", "owner_0", "tile", "t", "v", "bitor", "from", "to", "X_stride0", "half", "smem"]
)
def test_names_that_the_printer_uses_too(name: str) -> None:
    """A user's name met one that the printer declares, or a C++ keyword."""
    text = f"""
    kernel k(X: tensor<f32>[N, 8], Y: tensor<f32>[N, 8], {name}_: f32) {{
      let row = ctx.block.x * 8
      let {name}: tile<f32>[8, 8] = X[row :+ 8, :]
      let {name}_1 = sum({name})
      Y[row :+ 8, :] = transpose({name}) + {name}_1 * {name}_
    }}
    """
    forms = Variant(threads=64, forms=(("X", "padded"),))
    agree(text, {"X": array("f32", 9, 8), "Y": zeros(9, 8), f"{name}_": 0.5}, Variant(threads=64), forms)


@pytest.mark.parametrize("name", ["half", "pos_0", "tile", "xor", "X_stride0"])
def test_parameters_with_such_names(name: str) -> None:
    text = f"""
    kernel k({name}: tensor<f32>[N, 8], X: tensor<f32>[N, 8], {name}_: f32) {{
      let row = ctx.block.x * 8
      X[row :+ 8, :] = transpose({name}[row :+ 8, :]) * {name}_
    }}
    """
    variant = Variant(threads=64, forms=(("X", "padded"),))
    agree(text, {name: array("f32", 9, 8), "X": zeros(9, 8), f"{name}_": 0.5}, variant, replace(variant, forms=()))


def test_atomics_of_different_kinds_keep_their_order() -> None:
    """A maximum overtook the addition before it, by another thread: atomics were taken to commute."""
    text = """
    kernel k(H: tensor<i32>[64], X: tensor<i32>[64], Y: tensor<i32>[64]) {
      let x: tile<i32>[64] = X[:]
      atomic_add(H[:], x)
      atomic_max(H[3 :+ 32], 5)
      atomic_cas(H[40], 7, 1)
      let old = atomic_add(H[:], x[0])
      Y[:] = old
      atomic_min(H[1], 3)
    }
    """
    arguments = {"X": array("i32", 64), "H": array("i32", 64), "Y": zeros(64, dtype=np.int32)}
    agree(text, arguments, *SCHEDULES, *(Variant(threads=128, sched=s) for s in range(4)))


def test_scattered_elements_at_one_position() -> None:
    """Two elements of a gathered view may be one position, of different threads: reading it after an atomic needs a
    barrier."""
    text = """
    kernel k(I: tensor<i32>[64], H: tensor<i32>[N], Y: tensor<i32>[64]) {
      let bins: tile<i32>[64] = I[:]
      atomic_add(H[bins], 1)
      Y[:] = H[bins]
    }
    """
    bins = np.random.default_rng(3).integers(0, 5, 64).astype(np.int32)
    arguments = {"I": bins, "H": zeros(8, dtype=np.int32), "Y": zeros(64, dtype=np.int32)}
    agree(text, arguments, *SCHEDULES)


@pytest.mark.parametrize(
    "dtype, mask, n, m",
    [
        ("u32", "u32(j) - n < m", 3, 5),
        ("i32", "0 < j + n", 2147483644, 0),
        ("i32", "n + j > m - j", 2147483600, -2147483600),
        ("i32", "j < n && j > m", 8, -1),
        ("i8", "i8(j * 40) < n", 100, 0),
    ],
)
def test_masks_whose_arithmetic_wraps(dtype: str, mask: str, n: int, m: int) -> None:
    """peel_masks took the mask for true everywhere by interval arithmetic that does not wrap."""
    text = f"""
    kernel k(X: tensor<f32>[8, 8], Y: tensor<f32>[8, 8], n: {dtype}, m: {dtype}) {{
      let x: tile<f32>[8, 8] = X[:, :]
      var acc: tile<f32>[8, 8] = 0.0
      for i in range(2) {{
        let j: tile<i32>[8, 8] = iota(1)
        acc += where({mask}, x + f32(i), 0.0)
      }}
      Y[:, :] = acc
    }}
    """
    agree(text, {"X": array("f32", 8, 8), "Y": zeros(8, 8), "n": n, "m": m})


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("overlap", [(), (("A", "C"),)])
@pytest.mark.parametrize("stages", ["auto", "3"])
def test_loads_ahead_of_a_store_to_the_same_memory(dtype: str, overlap: Any, stages: str) -> None:
    """No ring and no prefetch where the loop stores to what it loads, under another name too."""
    text = f"""
    @options(stages = {stages})
    kernel k(A: tensor<{dtype}>[32, 64], B: tensor<{dtype}>[64, 32], C: tensor<{dtype}>[32, 64]) {{
      var acc: tile<f32>[32, 32] = 0.0
      for kk in range(0, 48, 16) {{
        acc += dot(A[:, kk :+ 16], B[kk :+ 16, :])
        C[:, kk + 16 :+ 16] = clamp(acc[:, 0 : 16], -2.0, 2.0)
      }}
      C[:, 0 :+ 16] = clamp(acc[:, 16 : 32], -2.0, 2.0)
    }}
    """
    arguments = {"A": array(dtype, 32, 64), "B": array(dtype, 64, 32), "C": zeros(32, 64, dtype=array(dtype, 1).dtype)}
    agree(text, arguments, *(Variant(threads=64, sched=s, overlap=overlap) for s in (0, 2)))
