"""Kernels whose names, comments or files are spelt in a way that C++, CUDA or PTX give a meaning to."""

from __future__ import annotations

import numpy as np
import pytest

import phobos

TEXT = """
@launch(32)
kernel {kernel}({tensor}: tensor<f32>[{dim}], {scalar}: f32) {{
  var {value}: tile<f32>[8] = {tensor}[0 :+ 8] else 0.0  // {comment}
  for step in range(2) {{
    {value} = {value} * {scalar}
    {value} += rowmax({value})
  }}
  let {value}_1 = sum({value})
  {tensor}[0 :+ 8] = {value} + {value}_1
}}
"""
PLAIN = {"kernel": "k", "tensor": "X", "dim": "N", "scalar": "a", "value": "v", "comment": ""}


def expected() -> np.ndarray:
    x = np.arange(8, dtype=np.float64)
    for _ in range(2):
        x = x * 0.5
        x = x + x.max()
    return x + x.sum()


def run(k: phobos.Kernel, tensor: str = "X", scalar: str = "a") -> np.ndarray:
    x = np.arange(8, dtype=np.float32)
    k(**{tensor: x, scalar: 0.5}, backend="emulator")
    return x


@pytest.mark.parametrize("name", ["nullptr", "norm", "dim3", "std", "_", "WARP_SZ", "make_float4", "cudaArrayDefault"])
def test_names_of_cuda(name: str) -> None:
    """Each of them did not compile in some place, and `_` in none."""
    kernel = phobos.jit(TEXT.format(**{**PLAIN, "kernel": name}))
    compiled = kernel.compile(arch="sm_80")
    assert compiled.name == name and compiled.cubin
    for place in ("tensor", "dim", "scalar", "value"):
        assert phobos.jit(TEXT.format(**{**PLAIN, place: name})).compile(arch="sm_80").cubin


@pytest.mark.parametrize("name", ["pos", "part", "owner", "_", "__", "cudaX", "make_", "x_stride0", "ph_x", "tile"])
def test_names_of_which_numbers_make_no_new_ones(name: str) -> None:
    """A second value called `pos` would be `pos_1`, which is taken, as all that follow: compilation never ended."""
    k = phobos.jit(TEXT.format(**{**PLAIN, "value": name}))
    np.testing.assert_allclose(run(k), expected(), rtol=1e-5)


def test_a_parameter_called_self() -> None:
    k = phobos.jit(TEXT.format(**{**PLAIN, "tensor": "self"}))
    np.testing.assert_allclose(run(k, tensor="self"), expected(), rtol=1e-5)


@pytest.mark.parametrize("comment", ["a \\", "b \\ \t", "??/", "*/ /* \" ' \\\\", "\x0c #error \u2028 #error"])
def test_comments(comment: str) -> None:
    """The emitted text repeats source lines as comments: a backslash at the end would swallow the line after it."""
    k = phobos.jit(TEXT.format(**{**PLAIN, "comment": comment}))
    assert k.compile(arch="sm_80").cubin
    np.testing.assert_allclose(run(k), expected(), rtol=1e-5)


@pytest.mark.parametrize("file", ["a\n#error", "a\\", "a\\\n", 'a"b', "%s", "\udcff", "", "é☃ */"])
def test_file_names(file: str) -> None:
    k = phobos.jit(TEXT.format(**PLAIN), name=file)
    assert k.compile(arch="sm_80").cubin
    np.testing.assert_allclose(run(k), expected(), rtol=1e-5)


def test_half_a_character() -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit("kernel k(X: tensor<f32>[N]) {\n  X[0] = 1.0 // \ud800\n}\n")
    (found,) = info.value.diagnostics
    assert found.code == "PH0608" and "line 2" in found.message
