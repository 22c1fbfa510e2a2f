"""Kernel text through parser and checker into the interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from phobos.diagnostics import LaunchError
from phobos.ir.printer import print_kernel
from phobos.ir.tile import KernelIR
from phobos.ir.verify import verify
from phobos.reference import run
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse

FLASH = """
@tensorcore
@launch(128)
@autotune(D in [64], BR in [4, 128], BC in [4, 128])
@aligned(Nq = BR, Nk = BC)
kernel flash_attention(Q: tensor<f32>[Nq, D],
                       K: tensor<f32>[Nk, D],
                       V: tensor<f32>[Nk, D],
                       O: tensor<f32>[Nq, D],
                       scale: f32) {
  let pid = ctx.block.x
  let row = pid * BR
  let q = Q[row :+ BR, :]

  var acc: tile<f32>[BR, D] = 0.0       // unnormalized output sum p*v
  var m: tile<f32>[BR, 1] = -1.0e30  // running row max, from a stand-in for -inf
  var l: tile<f32>[BR, 1] = 0.0         // running denominator sum p

  for kt in range(0, Nk, BC) {
    let k = K[kt :+ BC, :]
    let v = V[kt :+ BC, :]

    var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
    s = s * scale

    // Online softmax update.
    var mnew: tile<f32>[BR, 1] = rowmax(s)
    mnew = tmax(m, mnew)
    s = exp(s - mnew)                         // unnormalized probabilities
    var corr: tile<f32>[BR, 1] = exp(m - mnew) // rescales the carried state

    l = l * corr
    l += rowsum(s)

    acc = acc * corr                         // rescale carried output
    acc += dot(s, v)                         // add this block's contribution

    m = mnew
  }

  acc = acc / l
  O[row :+ BR, :] = acc
}
"""


def check(text: str, name: str | None = None, **options: Any) -> KernelIR:
    module = parse(SourceFile("test.ph", text))
    kernel = check_kernel(module, name or module.kernels[0].name.id, **options)
    verify(kernel, after="checking")
    assert print_kernel(kernel) == print_kernel(kernel)
    return kernel


@pytest.mark.parametrize("br,bc", [(64, 64), (4, 128), (128, 8)])
def test_the_flash_attention_of_the_seed(br: int, bc: int) -> None:
    kernel = check(FLASH, config={"BR": br, "BC": bc})
    rng = np.random.default_rng(11)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float32) for n in (256, 128, 128))
    s = q.astype(np.float64) @ k.astype(np.float64).T * 0.125
    p = np.exp(s - s.max(axis=1, keepdims=True))
    expected = p / p.sum(axis=1, keepdims=True) @ v
    out = np.full((256, 64), np.nan, np.float32)
    run(kernel, {"Q": q, "K": k, "V": v, "O": out, "scale": 0.125})
    assert np.max(np.abs(out - expected)) < 1e-6
    oracle = np.full((256, 64), np.nan)
    run(kernel, {"Q": q, "K": k, "V": v, "O": oracle, "scale": 0.125}, float64=True)
    assert np.max(np.abs(oracle - expected)) < 1e-14


def test_its_aligned_promise_is_checked() -> None:
    kernel = check(FLASH, config={"BR": 64, "BC": 64})
    q, k = np.zeros((64, 64), np.float32), np.zeros((77, 64), np.float32)
    with pytest.raises(LaunchError, match="Nk is 77, but @aligned promises a multiple of 64"):
        run(kernel, {"Q": q, "K": k, "V": k, "O": q.copy(), "scale": 0.125})


def test_dtype_names_functions_and_masks() -> None:
    text = """
    fn square(x) { return x * x }
    @autotune(B in {8})
    kernel norms<T>(X: tensor<T>[N, M], Y: tensor<f32>[N]) {
      let row = ctx.block.x
      var total: f32 = 0.0
      for j in range(0, M, B) {
        let x = X[row, j :+ B] else 1.0
        total += sum(square(f32(x)))
      }
      Y[row] = sqrt(total)
    }
    """
    x = np.arange(15, dtype=np.float64).reshape(3, 5)
    for name, dtype in (("f16", np.float16), ("f32", np.float32), ("f64", np.float64)):
        kernel = check(text, dtypes={"T": name})
        out = np.zeros(3, np.float32)
        run(kernel, {"X": x.astype(dtype), "Y": out})
        assert np.allclose(out, np.sqrt((x * x).sum(axis=1) + 3), rtol=1e-6)  # three masked ones a row


def test_control_flow_from_text() -> None:
    text = """
    @grid(N)
    kernel collatz(X: tensor<i32>[N], Y: tensor<i32>[N]) {
      for i in range(ctx.block.x, N, ctx.grid.x) {
        var x = X[i]
        if x < 1 { Y[i] = -1; continue }
        var steps = i32(0)
        while x != 1 {
          if x % 2 == 0 { x = x / 2 } else { x = 3 * x + 1 }
          steps += 1
          if steps == 100 { break }
        }
        Y[i] = steps
      }
    }
    """

    def steps(x: int) -> int:
        if x < 1:
            return -1
        count = 0
        while x != 1 and count < 100:
            x, count = (x // 2 if x % 2 == 0 else 3 * x + 1), count + 1
        return count

    x = np.array([1, 6, 27, 0, -5, 97, 64], np.int32)
    out = np.zeros(7, np.int32)
    run(check(text), {"X": x, "Y": out}, grid=(2,))
    assert out.tolist() == [steps(int(v)) for v in x]


def test_custom_reductions_scans_and_atomics_from_text() -> None:
    text = """
    fn larger(a, b) { return tmax(abs(a), abs(b)) }
    kernel mix(X: tensor<f32>[N], Bins: tensor<i32>[N], H: tensor<i32>[B], S: tensor<f32>[N], M: tensor<f32>[1]) {
      let start = ctx.block.x * 8
      let x = X[start :+ 8]
      S[start :+ 8] = cumsum(x)
      atomic_add(H[Bins[start :+ 8] else -1], 1)
      atomic_max(M[0], reduce(x, 0, larger, 0.0)[0])
    }
    """
    rng = np.random.default_rng(12)
    x, bins = rng.standard_normal(21).astype(np.float32), rng.integers(-1, 5, 21).astype(np.int32)
    h, s, m = np.zeros(4, np.int32), np.zeros(21, np.float32), np.zeros(1, np.float32)
    run(check(text), {"X": x, "Bins": bins, "H": h, "S": s, "M": m})
    assert h.tolist() == [int((bins == i).sum()) for i in range(4)]
    assert m[0] == np.abs(x).max()
    padded = np.zeros(24)
    padded[:21] = x
    assert np.allclose(s, np.cumsum(padded.reshape(3, 8), axis=1).ravel()[:21], atol=1e-6)
