"""narrow_operands: what the text widened from 16 bits, and a product would round back, is multiplied as it is."""

from __future__ import annotations

import numpy as np
import pytest
from contraction.products import assert_product, choices, kernel_of, run
from emulator.support import from_bf16, to_bf16

from phobos import reference
from phobos.compiler import with_kinds
from phobos.ir.tile import Dot
from phobos.ir.types import DType
from phobos.ir.verify import verify
from phobos.ir.walk import kernel_ops
from phobos.target import get_target

TEXT = """\
@tensorcore({kind})
@autotune(BM in {{32}}, BN in {{32}}, BK in {{32}})
kernel k(A: tensor<{a}>[M, K], B: tensor<{b}>[K, N], C: tensor<f32>[M, N]) {{
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = 0.0
  for k in range(0, K, BK) {{
    let a = {left}
    acc += dot(a, f32(B[k :+ BK, col :+ BN]))
  }}
  C[row :+ BM, col :+ BN] = acc
}}
"""
LOADED = "f32(A[row :+ BM, k :+ BK])"
RNG = np.random.default_rng(3)


def text(kind: str = "f16", a: str = "f16", b: str = "f16", left: str = LOADED) -> str:
    return TEXT.format(kind=kind, a=a, b=b, left=left)


def operand_types(source: str) -> list[DType]:
    kernel = with_kinds(kernel_of(source, ()), get_target("sm_90a"))
    verify(kernel)
    return [v.dtype for op in kernel_ops(kernel) if isinstance(op, Dot) for v in (op.a, op.b)]


def stored(dtype: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tensor, and what it holds as float64."""
    if dtype == "f32":
        return values, values.astype(np.float16).astype(np.float64)  # what the product rounds it to
    narrow = values.astype(np.float16) if dtype == "f16" else to_bf16(values)
    return narrow, (narrow if dtype == "f16" else from_bf16(narrow)).astype(np.float64)


COMPUTED = f"exp({LOADED} * 0.25)"


@pytest.mark.parametrize(
    "kind, a, left",
    [
        ("f16", "f16", LOADED), ("bf16", "bf16", LOADED), ("f16", "f16", COMPUTED), ("bf16", "bf16", COMPUTED),
        ("f16", "f32", COMPUTED),
    ],
)  # fmt: skip
def test_the_same_product_with_tiles_copied_ahead(kind: str, a: str, left: str) -> None:
    b = kind
    source = text(kind, a, b, left if a != "f32" else left.replace(LOADED, LOADED[4:-1]))
    assert operand_types(source) == [DType.F16 if kind == "f16" else DType.BF16] * 2
    kernel = kernel_of(source, ())
    x, exact_a = stored(a, RNG.standard_normal((40, 72)).astype(np.float32))
    y, exact_b = stored(b, RNG.standard_normal((72, 50)).astype(np.float32))
    c = np.full((40, 50), np.nan, np.float32)
    done = run(kernel, {"A": x, "B": y, "C": c})
    assert not done.result.reports and not any(done.result.unwritten.values())
    assert any("ring of " in choice or "a tile ahead" in choice for choice in choices(done.program, "staging"))
    assert any(d.choice == f"taken as {kind}" for d in done.program.decisions)
    again = np.full_like(c, np.nan)
    reference.run(with_kinds(kernel, get_target("sm_90a")), {"A": x, "B": y, "C": again})
    if left == LOADED:
        assert_product(c, exact_a, exact_b)
        assert np.allclose(c, again, rtol=0, atol=2e-5)
    else:
        wide = x.astype(np.float64) if a != "bf16" else from_bf16(x).astype(np.float64)
        expected = np.exp(wide * 0.25) @ exact_b
        assert np.abs(c - expected).max() < 2e-2 * np.abs(expected).max()
        assert np.abs(again - expected).max() < 2e-2 * np.abs(expected).max()


@pytest.mark.parametrize(
    "source",
    [
        text().replace("@tensorcore(f16)\n", ""),  # IEEE f32 was asked for
        text("f16", "f32", "f16", LOADED[4:-1]),  # a tile of f32 is rounded on its way from memory
        text("tf32"),  # more bits than the operands have, but not their type
        text("f16", "bf16", "bf16"),  # rounds bf16 to f16
        text("bf16", "f16", "f16"),
        text(left=f"2.0 * {LOADED}").replace("f32(B", "2.0 * f32(B"),
    ],
)
def test_what_stays_f32(source: str) -> None:
    assert operand_types(source) == [DType.F32] * 2
