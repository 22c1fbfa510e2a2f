"""Judging outputs: whole tensors, in every dtype, against the reference or each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import phobos
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.runtime.pipeline import Request
from phobos.tuning.verify import compare, poison, poison_byte, reference_outputs, tolerances

SOFTMAX = """
@autotune(BR in {1, 4})
kernel softmax(X: tensor<f32>[M, N], Y: tensor<f32>[M, N]) {
  let r = ctx.block.x * BR
  let x: tile<f32>[BR, 64] = X[r :+ BR, 0 :+ 64] else -inf
  let e = exp(x - rowmax(x))
  Y[r :+ BR, 0 :+ 64] = e / rowsum(e)
}
"""
PRODUCT = """
@tensorcore({kind})
kernel product<T>(A: tensor<T>[32, 32], B: tensor<T>[32, 32], C: tensor<f32>[32, 32]) {{
  C[:, :] += dot(A[:, :], B[:, :])
}}
"""


def ir(text: str, **request: Any) -> KernelIR:
    kernel = phobos.jit(text)
    return kernel._frontend.ir(Request(kernel=kernel.name, **request))


# --- comparing -------------------------------------------------------------------------------


def test_rounding_passes_and_errors_do_not() -> None:
    rng = np.random.default_rng(0)
    exact = rng.standard_normal((300, 1000))
    right = exact.astype(np.float32)
    noisy = (exact * (1 + 1e-6 * rng.standard_normal(exact.shape))).astype(np.float32)
    found = compare(noisy, right, DType.F32, 2e-5)
    assert found.problem is None and found.error == pytest.approx(1e-6, rel=0.1)
    far = (exact * (1 + 1e-4 * rng.standard_normal(exact.shape))).astype(np.float32)
    assert "relative L2 error" in (compare(far, right, DType.F32, 2e-5).problem or "")


def test_one_wrong_element_among_a_million_is_seen() -> None:
    """Its share of the L2 norm is below the tolerance of f16."""
    right = np.random.default_rng(1).standard_normal(1 << 20).astype(np.float16)
    wrong = right.copy()
    wrong[-3] += np.float16(2.0)
    found = compare(wrong, right, DType.F16, 4e-3)
    assert found.error < 4e-3 and found.problem == "1 elements are far off"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_be_the_same(value: float) -> None:
    right = np.ones(10, np.float32)
    wrong = right.copy()
    wrong[4] = value
    assert "1 elements are NaN, infinite or unwritten" in (compare(wrong, right, DType.F32, 1e-5).problem or "")
    assert compare(right, wrong, DType.F32, 1e-5).problem is not None
    assert compare(wrong, wrong.copy(), DType.F32, 1e-5).problem is None
    other = wrong.copy()
    other[4] = -value
    assert (compare(other, wrong, DType.F32, 1e-5).problem is None) == bool(np.isnan(value))


def test_bits_of_bf16() -> None:
    x = np.array([1.0, -2.0, 3.140625, 0.0], np.float32)
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    assert compare(bits, bits.copy(), DType.BF16, 3e-2).problem is None
    near, far = bits.copy(), bits.copy()
    near[1] += 1  # one unit in the last place of 2 is 2^-7
    far[2] += 32
    found = compare(near, bits, DType.BF16, 3e-2)
    assert found.problem is None and found.error == pytest.approx(2.0**-6 / np.sqrt(1 + 4 + 3.140625**2))
    assert compare(far, bits, DType.BF16, 3e-2).problem is not None


def test_integers_are_exact_unless_floats_led_to_them() -> None:
    right = np.full(1000, 2**60, np.int64)
    wrong = right.copy()
    wrong[7] += 1  # invisible in float64
    assert compare(wrong, right, DType.I64, 0.0).problem == "1 elements differ"
    counts = np.full(100_000, 40, np.int32)
    moved = counts.copy()
    moved[0] += 1
    assert compare(moved, counts, DType.I32, 1e-3).problem is None
    assert compare(moved, counts, DType.I32, 0.0).problem is not None


def test_shapes_must_be_equal_and_empty_ones_are() -> None:
    assert compare(np.zeros(4, np.float32), np.zeros((2, 2), np.float32), DType.F32, 1e-5).problem is not None
    assert compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), DType.F32, 1e-5).problem is None


def test_tolerances_follow_types_and_permitted_products() -> None:
    f32 = tolerances(ir(SOFTMAX, config=(("BR", 4),)))["Y"]
    kinds = {
        kind: tolerances(ir(PRODUCT.format(kind=kind), dtypes=(("T", DType.F32),)))["C"] for kind in ("f16", "tf32x3")
    }
    half = tolerances(ir(PRODUCT.format(kind="f16"), dtypes=(("T", DType.BF16),)))["C"]
    assert f32 < kinds["tf32x3"] < kinds["f16"] < half < 0.1
    histogram = "kernel h(X: tensor<i32>[N], Y: tensor<i32>[N]) {\n  Y[0 :+ 4] = X[0 :+ 4] + 1\n}\n"
    assert set(tolerances(ir(histogram)).values()) == {0.0}


# --- the reference ---------------------------------------------------------------------------


def test_the_reference_of_a_kernel() -> None:
    x = np.random.default_rng(2).standard_normal((10, 50)).astype(np.float32)
    arrays = {"X": x, "Y": np.zeros_like(x)}
    kernel = ir(SOFTMAX, config=(("BR", 4),))
    found = reference_outputs(kernel, lambda: arrays, {}, {"Y": False}, elements=1000, grid=(3, 1, 1))
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert found is not None and set(found) == {"Y"} and found["Y"].dtype == np.float32
    np.testing.assert_array_equal(found["Y"], (e / e.sum(axis=1, keepdims=True)).astype(np.float32))
    assert not arrays["Y"].any() and x.flags.owndata


def test_what_the_kernel_leaves_alone_stays_poisoned() -> None:
    x = np.random.default_rng(3).standard_normal((10, 50)).astype(np.float32)
    kernel = ir(SOFTMAX, config=(("BR", 4),))
    arrays = {"X": x, "Y": np.ones_like(x)}
    short = reference_outputs(kernel, lambda: arrays, {}, {"Y": False}, elements=1000, grid=(2, 1, 1))
    kept = reference_outputs(kernel, lambda: arrays, {}, {"Y": True}, elements=1000, grid=(2, 1, 1))
    assert short is not None and kept is not None
    assert np.isfinite(short["Y"][:8]).all() and np.isnan(short["Y"][8:]).all()
    assert (kept["Y"][8:] == 1).all()


def test_a_slow_reference_is_left_out_early() -> None:
    import time

    rows = 1 << 15
    x = np.zeros((rows, 64), np.float32)
    kernel = ir(SOFTMAX, config=(("BR", 1),))
    begin = time.perf_counter()
    found = reference_outputs(
        kernel, lambda: {"X": x, "Y": x}, {}, {"Y": False}, elements=2 * x.size, grid=(rows, 1, 1), seconds=0.6
    )
    assert found is None and time.perf_counter() - begin < 3

    def never() -> Any:
        raise AssertionError("arrays of this size must not be fetched")

    assert reference_outputs(kernel, never, {}, {"Y": False}, elements=1 << 40, grid=(rows, 1, 1)) is None


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.INDEX])
def test_poison_is_what_the_bytes_say(dtype: DType) -> None:
    value = poison(dtype)
    assert value.tobytes() == bytes([poison_byte(dtype)]) * dtype.bytes
    if dtype in (DType.F16, DType.F32, DType.F64):
        assert np.isnan(value)
    if dtype is DType.BF16:
        assert np.isnan((np.array([value]).astype(np.uint32) << 16).view(np.float32)[0])
