"""Operands of products whose positions an iteration computes: no copy may start before its position is known."""

from __future__ import annotations

import numpy as np
import pytest

import phobos

TEXT = """
{options}
kernel g(A: tensor<f16>[16, K], B: tensor<f16>[K, 16], C: tensor<f32>[16, 16], I: tensor<i32>[8]) {{
  var acc: tile<f32>[16, 16] = 0.0
  var t: tile<i32>[8] = I[0 :+ 8]
  {promise}
  for k in range(0, 4) {{
    {position}
    acc += dot(A[0 :+ 16, o * 16 :+ 16], B[k * 16 :+ 16, 0 :+ 16])
  }}
  C[0 :+ 16, 0 :+ 16] = acc
}}
"""
POSITIONS = {
    "an element of a tile": "let o = t[k]",
    "an element of a tile that changes": "let o = t[0]\n t[0 :+ 7] = t[1 :+ 7]",
    "a scalar load": "let o = I[k]",
    "a maximum": "let o = max(I[k :+ 1])",
    "a sum": "let o = sum(where(iota(0) == k, t, 0))",
    "a place": "let o = argmax(where(iota(0) == t[k], t * 0 + 1, t * 0))",
    "arithmetic": "let p = sum(where(iota(0) == k, t, 0))\n let o = (p + 1) * 2 / 2 - 1",
    "an atomic": "let o = atomic_max(I[k], -5)",
}
PAGES = np.array([2, 0, 3, 1, 1, 2, 3, 0], np.int32)


def text(name: str, options: str = "", promise: str = "") -> str:
    return TEXT.format(options=options, promise=promise, position=POSITIONS[name])


OPTIONS = ("", "@options(matmul = fma)", "@options(stages = 1)", "@options(stages = 3)", "@options(matmul = wmma)")


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", POSITIONS)
def test_positions(name: str, options: str, backend: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-2, 3, (16, 64)).astype(np.float16), rng.integers(-2, 3, (64, 16)).astype(np.float16)
    want = np.zeros((16, 16))
    for k in range(4):
        want += a[:, 16 * PAGES[k] : 16 * PAGES[k] + 16].astype(float) @ b[16 * k : 16 * k + 16].astype(float)
    c, pages = np.full((16, 16), 7, np.float32), PAGES.copy()
    phobos.jit(text(name, options))(a, b, c, pages, backend=backend)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize("name", POSITIONS)
def test_they_compile(name: str, arch: str) -> None:
    assert phobos.jit(text(name)).compile(arch=arch).cubin


@pytest.mark.parametrize("name", POSITIONS)
def test_they_cannot_be_promised(name: str) -> None:
    with pytest.raises(phobos.CompileError, match="PH0550"):
        phobos.jit(text(name, promise="@pipeline(2)")).compile(arch="sm_90a")
