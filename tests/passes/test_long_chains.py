"""Kernels with hundreds of operations one after the other: no pass follows definitions without a limit, nor one
definition once for each way that leads to it."""

from __future__ import annotations

import time

import numpy as np
import pytest

import phobos

STEPS = 700
KERNEL = """
@grid(1)
kernel k(X: tensor<f32>[N]) {{
  {start}
{steps}
  {end}
}}
"""
CHAINS = {
    "tile": ("var x: tile<f32>[64] = X[0 :+ 64]", "x = x * 0.5 + 1.0", "X[0 :+ 64] = x"),
    "reduced tile": ("var x: tile<f32>[64] = X[0 :+ 64]", "x = x * 0.5 + 1.0", "X[0 :+ 64] = sum(x)"),
    "casts": ("var x: tile<f32>[64] = X[0 :+ 64]", "x = f32(i32(x)) * 0.5", "X[0 :+ 64] = x"),
    "positions": ("var x = iota(0, 64)", "x = x + 1", "X[0 :+ 64] = f32(x)"),
    "scalar": ("var x = X[3]", "x = x * 0.5 + 1.0", "X[0 :+ 64] = x"),
    "integer": ("var x = i32(X[3])", "x = x * 3 + 1", "X[0 :+ 64] = f32(x)"),
    "index": ("var x = ctx.block.x * 64", "x = x + 1", "X[x - 700 :+ 64] = 3.0"),
    "condition": ("var x = X[3] > 0.0", "x = x && X[5] > 1.0", "if x { X[0 :+ 64] = 3.0 }"),
}


@pytest.mark.parametrize("name", CHAINS)
def test_long_chains(name: str) -> None:
    start, step, end = CHAINS[name]
    k = phobos.jit(KERNEL.format(start=start, steps=f"  {step}\n" * STEPS, end=end))
    assert k.compile(arch="sm_80").cuda
    ours, reference = (np.arange(64, dtype=np.float32) for _ in range(2))
    k(ours, backend="emulator")
    k(reference, backend="reference")
    np.testing.assert_allclose(ours, reference, rtol=1e-5)
    assert (reference != np.arange(64)).any()


@pytest.mark.parametrize("step", ["x = x + x", "x = min(x + 1, x * 2)", "x = x * x - x"])
def test_values_that_are_read_twice_at_each_step(step: str) -> None:
    steps = f"  {step}\n" * 60
    text = KERNEL.format(start="for i in range(N) {\n  var x = i", steps=steps, end="X[x :+ 4] = 1.0 }")
    begin = time.perf_counter()
    assert phobos.jit(text).compile(arch="sm_80").cuda
    assert time.perf_counter() - begin < 60  # by way of every path it would take longer than the universe is old
