"""Parameters that share memory: the host's backends do what the text says, in its order, as NumPy does with views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import phobos

Step = Callable[[np.ndarray, np.ndarray], None]


def later_view(X: np.ndarray, Y: np.ndarray) -> None:
    Y[4:20] = X[0:16].copy() + 1
    Y[32:48] = X[0:16].copy() * 2


def through_memory(X: np.ndarray, Y: np.ndarray) -> None:
    for i in range(0, 32, 4):
        Y[i : i + 4] = X[i + 4 : i + 8] + Y[i : i + 4]


def read_in_a_loop(X: np.ndarray, Y: np.ndarray) -> None:
    total = np.zeros(8)
    for _ in range(5):
        total = total + X[0:8]
        Y[0:8] = total
    Y[8:16] = total


def old_values(X: np.ndarray, Y: np.ndarray) -> None:
    Y[0:8] += 1
    Y[16:24] = X[0:8].copy()
    old = Y[4:8].copy()
    Y[4:8] += X[0].copy()
    Y[30:34] = old


VECTORS: dict[str, tuple[str, Step]] = {
    "a view is read where it is used": (
        "let x = X[0 :+ 16]\n  Y[4 :+ 16] = x + 1.0\n  Y[32 :+ 16] = x * 2.0",
        later_view,
    ),
    "from iteration to iteration": (
        "for i in range(0, 32, 4) {\n    Y[i :+ 4] = X[i + 4 :+ 4] + Y[i :+ 4]\n  }",
        through_memory,
    ),
    "the same slice in a loop": (
        "var t: tile<f32>[8] = 0.0\n  for i in range(5) {\n    t += X[0 :+ 8]\n    Y[0 :+ 8] = t\n  }\n  Y[8 :+ 8] = t",
        read_in_a_loop,
    ),
    "atomics": (
        "let g = X[0 :+ 8]\n  atomic_add(Y[0 :+ 8], 1.0)\n  Y[16 :+ 8] = g\n"
        "  let o = atomic_add(Y[4 :+ 4], g[0])\n  Y[30 :+ 4] = o",
        old_values,
    ),
}


def run(text: str, step: Any, base: np.ndarray, views: Callable[[np.ndarray], dict[str, np.ndarray]], on: str) -> None:
    expected = base.astype(np.float64)
    step(**views(expected))
    ours = base.copy()
    phobos.jit(text)(**views(ours), backend=on)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("shift", [0, 1, 4, 5, 16])
@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str, shift: int, backend: str) -> None:
    body, step = VECTORS[name]
    text = f"kernel k(X: tensor<f32>[N], Y: tensor<f32>[M]) {{\n  {body}\n}}"
    base = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    run(text, step, base, lambda b: {"X": b[shift : shift + 50], "Y": b[:50]}, backend)


PRODUCTS = """
@launch(64)
kernel k(X: tensor<f32>[N, 16], Y: tensor<f32>[M, 16]) {
  let a = X[0 :+ 16, :]
  Y[0 :+ 16, :] = dot(a, a)
  var sum: tile<f32>[16, 16] = 0.0
  for i in range(0, 32, 16) {
    sum += dot(a, X[i :+ 16, :])
    Y[i :+ 16, :] = sum
  }
}
"""


def products(X: np.ndarray, Y: np.ndarray) -> None:
    Y[:16] = X[:16] @ X[:16]
    total = np.zeros((16, 16))
    for i in (0, 16):
        total = total + X[:16] @ X[i : i + 16]
        Y[i : i + 16] = total


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("shift", [0, 1, 8, 16, 24])
def test_products(shift: int, backend: str) -> None:
    base = 0.3 * np.random.default_rng(2).standard_normal((80, 16)).astype(np.float32)
    run(PRODUCTS, products, base, lambda b: {"X": b[shift : shift + 40], "Y": b[:40]}, backend)
