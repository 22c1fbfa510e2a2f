"""Positions near the ends of their types: outside of the tensor, and never wrapped into it."""

from __future__ import annotations

import numpy as np
import pytest

import phobos

TEXT = """
@launch(32)
@options(index = {bits})
kernel shifted(X: tensor<f32>[N], Y: tensor<f32>[M], at: {dtype}) {{
  Y[0 :+ 20] = X[at :+ 20] else -3.0
  Y[at :+ 8] = X[3 :+ 8]
  Y[19] = X[at]
  var t: tile<f32>[16] = X[0 :+ 16]
  t[at :+ 4] = 1.0
  Y[20 :+ 16] = t
}}
"""
ENDS = {
    "i32": (-(2**31), -(2**31) + 5, 2**31 - 20, 2**31 - 1),
    "u32": (2**32 - 4, 2**31, 2**31 - 1),
    "i64": (-(2**63), -(2**31) - 1, -(2**32), 2**31, 2**32, 2**32 + 1, 2**40, 2**63 - 8, 2**63 - 1),
}


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("bits", ["auto", "64"])
@pytest.mark.parametrize("dtype", ENDS)
def test_starts_far_outside(dtype: str, bits: str, backend: str) -> None:
    x = np.arange(1, 41, dtype=np.float32)
    expected = np.full(36, -3, np.float32)
    expected[19] = 0
    expected[20:] = x[:16]
    k = phobos.jit(TEXT.format(dtype=dtype, bits=bits))
    for at in ENDS[dtype]:
        y = np.full(36, 7, np.float32)
        k(x, y, at=at, backend=backend)
        np.testing.assert_array_equal(y, expected, err_msg=f"at {at}")


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("dtype", ENDS)
def test_gathers_from_a_tile(dtype: str, backend: str) -> None:
    text = f"""
kernel k(X: tensor<f32>[16], G: tensor<{dtype}>[N], Y: tensor<f32>[N]) {{
  var t: tile<f32>[16] = X[:]
  let g: tile<{dtype}>[16] = G[0 :+ 16]
  Y[0 :+ 16] = gather(t, g) + X[g]
}}
"""
    where = np.array((*ENDS[dtype], 0, 5), {"i32": np.int32, "u32": np.uint32, "i64": np.int64}[dtype])
    x = np.arange(1, 17, dtype=np.float32)
    y = np.full(len(where), 7, np.float32)
    phobos.jit(text)(x, where, y, backend=backend)
    assert y.tolist() == [0.0] * len(ENDS[dtype]) + [2.0, 12.0]


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("dtype", ["u8", "u32", "i32", "i64"])
def test_gathers_along_negative_strides(dtype: str, backend: str) -> None:
    """An unsigned position times a negative stride is no address."""
    text = f"""
kernel k(X: tensor<f32>[M, N], G: tensor<{dtype}>[R], Y: tensor<f32>[R, N]) {{
  let g: tile<{dtype}>[8] = G[0 :+ 8]
  Y[0 :+ 8, 0 :+ 16] = X[g, 0 :+ 16]
}}
"""
    kinds = {"u8": np.uint8, "u32": np.uint32, "i32": np.int32, "i64": np.int64}
    where = np.array([3, 0, 9, 10, 200, 5, 5], kinds[dtype])
    plain = np.arange(130, dtype=np.float32).reshape(10, 13)
    for x in (plain[::-1], plain[:, ::-1]):
        y = np.full((7, 13), 7, np.float32)
        phobos.jit(text)(x, where, y, backend=backend)
        np.testing.assert_array_equal(y, [x[i] if i < 10 else np.zeros(13) for i in where])


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("dtype", ENDS)
def test_rows_far_outside(dtype: str, backend: str) -> None:
    """A position times a stride leaves 32 bits long before the position does."""
    text = f"""
kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[M, N], at: {dtype}) {{
  Y[0 :+ 8, 0 :+ 16] = X[at :+ 8, at :+ 16]
  Y[at :+ 8, 0 :+ 16] = X[0 :+ 8, 0 :+ 16]
  Y[0, 0] = X[at, 3]
}}
"""
    x = np.arange(1, 61, dtype=np.float32).reshape(6, 10)
    k = phobos.jit(text)
    for at in (*ENDS[dtype], 10**9, -(10**6)):
        if dtype == "u32" and at < 0:
            continue
        for array in (x, np.asfortranarray(x), x[::-1]):
            y = np.full((6, 10), 7, np.float32)
            k(array, y, at=at, backend=backend)
            assert not y.any(), at


COUNTS = [
    ("u8", 250, 255, 3), ("u8", 0, 255, 16), ("i8", 100, 127, 20), ("i8", -100, -128, -20), ("i8", -128, 127, 85),
    ("u32", 2**32 - 6, 2**32 - 1, 2), ("i32", 2**31 - 40, 2**31 - 1, 16),
    ("i32", -(2**31) + 40, -(2**31), -16), ("i64", 2**40, 2**40 + 9, 4),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("dtype", "lo", "hi", "step"), COUNTS)
def test_loops_that_end_near_the_end_of_their_type(
    dtype: str, lo: int, hi: int, step: int, known: bool, backend: str
) -> None:
    """The step after the last iteration may leave the type; it must not begin anew."""
    scalar = dtype if dtype in ("u32", "i64") else "i32"
    ends = (lo, hi, step) if known else ("lo", "hi", "step")
    values = ", ".join(f"{dtype}({x})" for x in ends)
    text = f"""
kernel k(Y: tensor<i64>[N], lo: {scalar}, hi: {scalar}, step: {scalar}) {{
  var count: i64 = 0
  var total: i64 = 0
  for i in range({values}) {{
    count += 1
    total += i64(i)
    if count > 50 {{ break }}
  }}
  Y[0] = count
  Y[1] = total + 0 * (i64(lo) + i64(hi) + i64(step))
}}
"""
    y = np.zeros(2, np.int64)
    phobos.jit(text)(y, lo=lo, hi=hi, step=step, backend=backend)
    assert y.tolist() == [len(range(lo, hi, step)), sum(range(lo, hi, step))]
