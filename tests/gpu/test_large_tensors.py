"""Tensors of more than 2^31 elements: positions need 64 bits, and the launcher has to notice."""

from __future__ import annotations

import pytest

import phobos

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

_TEXT = """
@autotune(BN in {1024})
kernel triple(X: tensor<f16>[N], Y: tensor<f16>[N]) {
  let i = ctx.block.x * BN
  Y[i :+ BN] = X[i :+ BN] * 3.0
}
"""
_ROWS = """
@autotune(BN in {1024})
kernel triple_rows(X: tensor<f16>[M, N], Y: tensor<f16>[M, N]) {
  let r = ctx.block.x
  for c in range(0, N, BN) {
    Y[r, c :+ BN] = X[r, c :+ BN] * 3.0
  }
}
"""


def test_more_than_two_to_the_31_elements() -> None:
    n = (1 << 31) + 4099
    if torch.cuda.mem_get_info()[0] < 5 * n:
        pytest.skip("needs 11 GB of device memory")
    x = torch.empty(n, dtype=torch.float16, device="cuda").uniform_(-2, 2)
    y = torch.full_like(x, float("nan"))
    phobos.jit(_TEXT)(x, y)
    assert torch.equal(y, x * 3)


def test_rows_beyond_two_to_the_31() -> None:
    m, n = 70001, 32768  # 2.29e9 elements, in rows that each are small
    if torch.cuda.mem_get_info()[0] < 5 * m * n:
        pytest.skip("needs 12 GB of device memory")
    x = torch.empty((m, n), dtype=torch.float16, device="cuda").uniform_(-2, 2)
    y = torch.full_like(x, float("nan"))
    phobos.jit(_ROWS)(x, y)
    for start in range(0, m, 10000):
        assert torch.equal(y[start : start + 10000], x[start : start + 10000] * 3)


def test_views_without_copies() -> None:
    base = torch.randn((2, 600, 512), dtype=torch.float16, device="cuda")
    x = base[1, ::3, 5:333]  # strided rows, an odd first column
    y = torch.full((200, 700), float("nan"), dtype=torch.float16, device="cuda")[:, 7:335]
    phobos.jit(_ROWS)(x, y)
    assert torch.equal(y, x * 3)
    z = torch.full((328, 200), float("nan"), dtype=torch.float16, device="cuda").t()
    phobos.jit(_ROWS)(x, z)
    assert torch.equal(z, x * 3)
