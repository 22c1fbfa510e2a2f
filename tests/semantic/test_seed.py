"""The seed kernel and paraphrases of it: structure, and values on the reference against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from semantic.support import check, execute, module, ops, warnings

from phobos.ir.options import TensorCoreRequest
from phobos.ir.tile import Dot, For, Load, Reduce, Store
from phobos.semantic.check import check_module
from phobos.semantic.signature import signatures

CONFIG = {"BR": 8, "BC": 4}
HEAD = """@autotune(D in [16], BR in [4, 128], BC in [4, 128])
kernel flash_attention(Q: tensor<f32>[Nq, D], K: tensor<f32>[Nk, D], V: tensor<f32>[Nk, D], O: tensor<f32>[Nq, D],
                       scale: f32) {
"""

PARAPHRASES = {
    "renamed and merged": HEAD
    + """
  var num: tile<f32>[BR, D] = 0.0
  var top: tile<f32>[BR, 1] = -inf
  var den: tile<f32>[BR, 1] = 0.0
  for j in range(0, Nk, BC) {
    let x = where(iota(1) < Nk - j, dot_t(Q[ctx.block.x * BR :+ BR, :], K[j :+ BC, :]) * scale, -inf)
    let t = max(top, rowmax(x))
    let p = exp(x - t)
    let c = exp(top - t)
    den = den * c + rowsum(p)
    num = num * c + dot(p, V[j :+ BC, :])
    top = t
  }
  O[ctx.block.x * BR :+ BR, :] = num / den
}""",
    "in functions": """
fn scores(q, k, scale, left) {
  let s = dot_t(q, k) * scale
  return where(iota(1) < left, s, -1.0e30)
}
fn correction(old: tile<f32>[R, 1], new: tile<f32>[R, 1]) -> tile<f32>[R, 1] { return exp(old - new) }
"""
    + HEAD
    + """
  let row = ctx.block.x * BR
  var acc: tile<f32>[BR, D] = 0.0
  var m: tile<f32>[BR, 1] = -1.0e30
  var l: tile<f32>[BR, 1] = 0.0
  var kt = 0
  while kt < Nk {
    let s = scores(Q[row :+ BR, :], K[kt :+ BC, :], scale, Nk - kt)
    let mnew = tmax(m, rowmax(s))
    let p = exp(s - mnew)
    let corr = correction(m, mnew)
    l *= corr
    l += rowsum(p)
    acc *= corr
    acc += dot(p, V[kt :+ BC, :])
    m = mnew
    kt += BC
  }
  O[row :+ BR, :] = acc / l
}""",
    "two passes": HEAD
    + """
  let row = ctx.block.x * BR
  let q: tile<f32>[BR, D] = Q[row :+ BR, :]
  var m = full(f32, BR, 1, -inf)
  for kt in range(0, Nk, BC) {
    let s = dot(q, transpose(K[kt :+ BC, :])) * scale
    m = tmax(m, rowmax(where(iota(1) + kt < Nk, s, -inf)))
  }
  var acc = zeros(f32, BR, D)
  var l = zeros(f32, BR, 1)
  for kt in range(0, Nk, BC) {
    var p = exp(dot(q, transpose(K[kt :+ BC, :])) * scale - m)
    if kt + BC > Nk {
      p = where(iota(1) < Nk - kt, p, 0.0)
    }
    l += rowsum(p)
    acc += dot(p, V[kt :+ BC, :])
  }
  O[row :+ BR, :] = acc / l
}""",
}


def attention(nq: int, nk: int) -> tuple[dict, np.ndarray]:
    rng = np.random.default_rng(nq * 100 + nk)
    q, k, v = (rng.standard_normal((n, 16)).astype(np.float32) for n in (nq, nk, nk))
    s = q.astype(np.float64) @ k.T.astype(np.float64) * 0.25
    p = np.exp(s - s.max(1, keepdims=True))
    expected = (p / p.sum(1, keepdims=True)) @ v
    return {"Q": q, "K": k, "V": v, "O": np.zeros((nq, 16), np.float32), "scale": 0.25}, expected


@pytest.mark.parametrize("text", PARAPHRASES.values(), ids=PARAPHRASES.keys())
@pytest.mark.parametrize(("nq", "nk"), [(16, 8), (11, 7)])
def test_paraphrase(text: str, nq: int, nk: int) -> None:
    arguments, expected = attention(nq, nk)
    out = execute(text, arguments, "flash_attention", config=CONFIG)
    np.testing.assert_allclose(out["O"], expected, rtol=2e-5, atol=2e-6)
    assert warnings(text, "flash_attention", config=CONFIG) == ()


def test_the_seed_numerically(seed: str) -> None:
    arguments, expected = attention(16, 8)
    text = seed.replace("D in [64]", "D in [16]").replace("@tensorcore\n", "")
    out = execute(text, arguments, "flash_attention", config=CONFIG)
    np.testing.assert_allclose(out["O"], expected, rtol=2e-5, atol=2e-6)


def test_the_seed(seed: str) -> None:
    (signature,) = signatures(module(seed))
    assert signature.space == {"D": (64,), "BR": (4, 8, 16, 32, 64, 128), "BC": (4, 8, 16, 32, 64, 128)}
    assert signature.order == ("Q", "K", "V", "O", "scale") and signature.launch_dims == ("Nq", "Nk")
    for config in signature.configurations():
        kernel = check(seed, "flash_attention", config=config)
        br, bc = config["BR"], config["BC"]
        assert [str(g) for g in kernel.grid] == [f"ceildiv(Nq, {br})", "1", "1"]
        assert kernel.tensorcore == TensorCoreRequest(kind="f16") and kernel.launch.threads == 128
        assert [(p.dim, p.multiple) for p in kernel.aligned] == [("Nq", br), ("Nk", bc)]
        assert [(d.transpose_b, d.kinds, d.result.shape) for d in ops(kernel, Dot)] == [
            (True, ("f16", "ieee"), (br, bc)),
            (False, ("f16", "ieee"), (br, 64)),
        ]
        (loop,) = ops(kernel, For)
        assert [r.name for r in loop.results] == ["acc", "m", "l"]
        assert [load.result.name for load in ops(kernel, Load)] == ["q", "k", "v"]
        assert [r.kind for r in ops(kernel, Reduce)] == ["max", "sum"] and len(ops(kernel, Store)) == 1
    assert check_module(module(seed)) == ()


def test_names_of_the_seed_survive(seed: str) -> None:
    kernel = check(seed, "flash_attention", config=CONFIG)
    (loop,) = ops(kernel, For)
    names = [value.name for op in loop.body.ops for value in op.defined()]
    for name in ("q", "k", "v", "s", "mnew", "corr", "l", "acc"):
        assert name in names
