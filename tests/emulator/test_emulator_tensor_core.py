"""ldmatrix, mma, wmma, wgmma and TMA against the layouts of the PTX ISA, written out in the kernels and here."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.executors import Run, executors
from emulator.support import Out, Shape, Tma, emulate, from_bf16, kernel_text, to_bf16

RNG = np.random.default_rng(2)
SCHEDULES = (0, 1)
sched = pytest.mark.parametrize("sched", SCHEDULES)


@executors
@sched
def test_mma_f16_and_bf16(run: Run, sched: int) -> None:
    a, b = RNG.standard_normal((16, 16)), RNG.standard_normal((16, 8))
    for kind in (0, 1):
        x, y = (a.astype(np.float16), b.astype(np.float16)) if kind == 0 else (to_bf16(a), to_bf16(b))
        d = np.full((16, 8), np.nan, np.float32)
        arguments = [x.view(np.uint16), y.view(np.uint16), Out(d), np.int32(kind)]
        run(kernel_text("unit"), "u_mma", Shape(), arguments, sched=sched)
        exact = [(v if kind == 0 else from_bf16(v)).astype(np.float64) for v in (x, y)]
        assert np.allclose(d, exact[0] @ exact[1], rtol=0, atol=1e-5)


@executors
@sched
def test_mma_tf32(run: Run, sched: int) -> None:
    a, b = RNG.standard_normal((16, 8)).astype(np.float32), RNG.standard_normal((8, 8)).astype(np.float32)
    d = np.full((16, 8), np.nan, np.float32)
    run(kernel_text("unit"), "u_tf32", Shape(), [a, b, Out(d)], sched=sched)
    rounded = [((v.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64) for v in (a, b)]
    assert np.allclose(d, rounded[0] @ rounded[1], rtol=0, atol=1e-5)
    assert not np.allclose(d, a.astype(np.float64) @ b, rtol=0, atol=1e-5)


@executors
@sched
@pytest.mark.parametrize("kind", ("s8", "u8", "e4m3", "e5m2"))
def test_mma_of_8_bit_operands(run: Run, sched: int, kind: str) -> None:
    integer = kind in ("s8", "u8")
    a, b = RNG.integers(0, 256, (16, 32), dtype=np.uint8), RNG.integers(0, 256, (32, 8), dtype=np.uint8)
    if not integer:
        # codes of moderate size, so that an f32 sum of 32 products is accurate; none is NaN
        a, b = (v & 0xBF for v in (a, b))
    d = np.full((16, 8), -1, np.int32 if integer else np.float32)
    run(kernel_text("unit_narrow"), f"u_{kind}", Shape(granule=1), [a, b, Out(d)], sched=sched)
    if kind == "u8":
        exact = [v.astype(np.int64) for v in (a, b)]
    elif kind == "s8":
        exact = [v.view(np.int8).astype(np.int64) for v in (a, b)]
    else:
        mantissa, bias = (3, 7) if kind == "e4m3" else (2, 15)
        exact = [_f8(v, mantissa, bias) for v in (a, b)]
    expected = exact[0] @ exact[1]
    if integer:
        assert np.array_equal(d, expected)
    else:
        # the tensor cores keep fewer bits of a sum than f32
        assert np.allclose(d, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


def _f8(code: np.ndarray, mantissa: int, bias: int) -> np.ndarray:
    magnitude = (code & 0x7F).astype(np.int64)
    exponent, fraction = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    normal = np.ldexp(1.0 + fraction / (1 << mantissa), exponent - bias)
    value = np.where(exponent > 0, normal, np.ldexp(fraction / (1 << mantissa), 1 - bias))
    return np.where(code & 0x80, -value, value)


@executors
@sched
def test_ldmatrix(run: Run, sched: int) -> None:
    x = np.arange(256, dtype=np.uint16).reshape(32, 8)
    r = np.zeros((6, 32, 4), np.uint32)
    run(kernel_text("unit"), "u_ldmatrix", Shape(shared=512), [x, Out(r)], sched=sched)
    expected = np.zeros_like(r)
    for variant, (count, transposed) in enumerate([(1, 0), (2, 0), (4, 0), (1, 1), (2, 1), (4, 1)]):
        for i in range(count):
            m = x[8 * i : 8 * i + 8].T if transposed else x[8 * i : 8 * i + 8]
            for lane in range(32):
                row, column = lane // 4, 2 * (lane % 4)
                expected[variant, lane, i] = int(m[row, column]) | int(m[row, column + 1]) << 16
    assert np.array_equal(r, expected)


@executors
@sched
def test_reads_at_places(run: Run, sched: int) -> None:
    x = RNG.standard_normal((32, 4)).astype(np.float32)
    y = np.zeros_like(x)
    run(kernel_text("unit"), "u_place", Shape(shared=528), [x, Out(y)], sched=sched)
    assert np.array_equal(y, x[[(31 - lane) % 31 + 1 for lane in range(32)]])


@executors
@sched
def test_wmma_in_all_memory_layouts(run: Run, sched: int) -> None:
    a, b = RNG.standard_normal((16, 16)), RNG.standard_normal((16, 16))
    start = RNG.standard_normal((16, 16)).astype(np.float32)
    for dtype in ("f16", "bf16"):
        x, y = (a.astype(np.float16), b.astype(np.float16)) if dtype == "f16" else (to_bf16(a), to_bf16(b))
        d = np.zeros((4, 16, 16), np.float32)
        arguments = [x.view(np.uint16), y.view(np.uint16), start, Out(d)]
        run(kernel_text("unit_wmma"), f"u_wmma_{dtype}", Shape(shared=4096), arguments, sched=sched)
        exact = [(v if dtype == "f16" else from_bf16(v)).astype(np.float64) for v in (x, y)]
        assert np.allclose(d, 2 * (exact[0] @ exact[1] + start), rtol=0, atol=1e-4)


@executors
@sched
def test_wmma_tf32_in_all_memory_layouts(run: Run, sched: int) -> None:
    a, b = RNG.standard_normal((16, 8)).astype(np.float32), RNG.standard_normal((8, 16)).astype(np.float32)
    start = RNG.standard_normal((16, 16)).astype(np.float32)
    d = np.zeros((4, 16, 16), np.float32)
    run(kernel_text("unit_wmma"), "u_wmma_tf32", Shape(shared=4096, granule=4), [a, b, start, Out(d)], sched=sched)
    rounded = [((v.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64) for v in (a, b)]
    assert np.allclose(d, 2 * (rounded[0] @ rounded[1] + start), rtol=0, atol=1e-5)
    assert not np.allclose(d, 2 * (a.astype(np.float64) @ b + start), rtol=0, atol=1e-5)


@pytest.mark.parametrize("start, pitch, wrong", ((0, 16, False), (16, 24, False), (8, 16, True), (0, 20, True)))
def test_wmma_tiles_must_be_aligned(start: int, pitch: int, wrong: bool) -> None:
    text = f"""PH_KERNEL(32, 1) k(ph_global<float> Y) {{
  const int lane = ph_tid();
  const ph_shared<ph_half> s = ph_smem<ph_half>(0);
  for (int i = lane; i < 512; i += 32) s[i] = ph_f2h(1.f);
  ph_syncwarp();
  ph_wmma_a<ph_half, false> a;
  ph_wmma_load_a<{start}>(a, s, {pitch});
  Y[lane] = 0.f;
}}"""
    result = emulate(text, "k", Shape(shared=1024), [Out(np.zeros(32, np.float32))])
    assert [r.kind for r in result.reports] == (["misaligned"] if wrong else [])


@executors
@sched
def test_wgmma_with_b_n_major_in_two_panels(run: Run, sched: int) -> None:
    a, b = to_bf16(RNG.standard_normal((64, 64))), to_bf16(RNG.standard_normal((64, 128)))
    d = np.zeros((64, 128), np.float32)
    run(kernel_text("unit_hopper"), "u_wgmma_nmajor", Shape(threads=128, shared=24576), [a, b, Out(d)], sched=sched)
    assert np.allclose(d, from_bf16(a).astype(np.float64) @ from_bf16(b), rtol=0, atol=1e-3)


@executors
@sched
def test_wgmma_with_a_in_registers_and_b_k_major(run: Run, sched: int) -> None:
    a, b = to_bf16(RNG.standard_normal((64, 64))), to_bf16(RNG.standard_normal((64, 64)))
    d = np.zeros((64, 64), np.float32)
    run(kernel_text("unit_hopper"), "u_wgmma_registers", Shape(threads=128, shared=8192), [a, b, Out(d)], sched=sched)
    assert np.allclose(d, from_bf16(a).astype(np.float64) @ from_bf16(b).T, rtol=0, atol=1e-3)


@executors
@pytest.mark.parametrize("sched", (0, 1, 2, 3))
def test_tma_past_both_edges(run: Run, sched: int) -> None:
    m = np.arange(20 * 72, dtype=np.uint16).reshape(20, 72)
    y = np.zeros((8, 64), np.uint16)
    arguments = [Tma(m, (64, 8)), Out(y), np.int32(40), np.int32(15)]
    run(kernel_text("unit_hopper"), "u_tma", Shape(shared=1032), arguments, sched=sched)
    expected = np.zeros((8, 64), np.uint16)
    expected[:5, :32] = m[15:20, 40:72]
    assert np.array_equal(y, expected)


@executors
@pytest.mark.parametrize("sched", (0, 1, 2, 3))
def test_ring_of_one_buffer_between_tma_and_ldmatrix(run: Run, sched: int) -> None:
    m = np.arange(32 * 64, dtype=np.uint16).reshape(32, 64)
    y = np.zeros((4, 32, 4), np.uint32)
    arguments = [Tma(m, (64, 8)), Out(y), np.int32(4)]
    run(kernel_text("unit_hopper"), "elect", Shape(threads=64, shared=1040), arguments, sched=sched)
    pairs = m.reshape(4, 8, 64)[:, :, :32].reshape(4, 8, 4, 4, 2).transpose(0, 1, 3, 2, 4).reshape(4, 32, 4, 2)
    assert np.array_equal(y, pairs[..., 0] | pairs[..., 1].astype(np.uint32) << 16)
