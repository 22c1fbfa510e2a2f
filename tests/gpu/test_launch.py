"""Launches on a device: every kind of array, streams, graphs, threads, what a launch costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import phobos
from phobos.runtime.module import get_driver

SAXPY = """
@launch(128)
@autotune(B in [128, 512])
kernel saxpy(X: tensor<f32>[N], Y: tensor<f32>[N], Z: tensor<f32>[N], a: f32, b: f32) {
  let i = ctx.block.x * B
  Z[i :+ B] = a * X[i :+ B] + b * Y[i :+ B]
}
"""
CONFIG = {"B": 512}
SCALE = """
@launch(128)
kernel scale<T>(X: tensor<T>[M, N], Y: tensor<T>[M, N], a: f32) {
  let i = ctx.block.x * 4
  let j = ctx.block.y * 32
  Y[i :+ 4, j :+ 32] = T(f32(X[i :+ 4, j :+ 32]) * a)
}
"""


def inputs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    return x, y, 2.0 * x.astype(np.float64) + 0.5 * y.astype(np.float64)


def close(got: Any, want: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(got, dtype=np.float64), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 511, 4096, 100_003])
def test_numpy(n: int) -> None:
    x, y, want = inputs(n)
    z = np.full(n, np.nan, np.float32)
    phobos.jit(SAXPY)(x, y, z, 2.0, 0.5, config=CONFIG)
    close(z, want)
    back = np.full(2 * n, np.nan, np.float32)
    phobos.jit(SAXPY)(x, y, back[::-2], 2.0, 0.5, config=CONFIG)
    close(back[::-2], want)
    assert np.isnan(back[::2]).all()


def test_cubin_of_the_device_and_resources() -> None:
    c = phobos.jit(SAXPY).compile(CONFIG)
    assert c.target == get_driver().device(0).target
    assert c.spill_bytes == 0


def test_torch_warm_and_current_stream() -> None:
    torch = pytest.importorskip("torch")
    x, y, want = inputs(100_000)
    k = phobos.jit(SAXPY)
    dx, dy = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    for _ in range(3):
        z = torch.full_like(dx, float("nan"))
        k(dx, dy, z, 2.0, b=0.5, config=CONFIG)
        close(z.cpu(), want)
    # On a side stream the launch is ordered after work of that stream only.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        slow = torch.zeros(1 << 26, device="cuda")
        for _ in range(20):
            slow.add_(1.0)
        source = torch.full_like(dx, 0.0).copy_(dx)
        z = torch.empty_like(dx)
        k(source, dy, z, 2.0, 0.5, config=CONFIG)
    side.synchronize()
    close(z.cpu(), want)
    z = torch.empty_like(dx)
    torch.cuda.synchronize()
    k(dx, dy, z, 2.0, 0.5, config=CONFIG, stream=side)
    side.synchronize()
    close(z.cpu(), want)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "misaligned"])
def test_torch_dtypes_and_layouts(name: str, layout: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    base = torch.randn(130, 70, device="cuda").to(dtype)
    source = {
        "contiguous": base,
        "transposed": base.t(),
        "sliced": base[1::2, 2:66],
        "misaligned": base[:, 1:],
    }[layout]
    out = torch.full(source.shape, float("nan"), device="cuda", dtype=dtype)
    phobos.jit(SCALE)(source, out, 2.0)
    assert torch.equal(out, source * 2)


def test_in_place_and_overlap() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(64, 64, device="cuda")
    want = x * 3
    phobos.jit(SCALE)(x, x, 3.0)
    assert torch.equal(x, want)


def test_graph_capture() -> None:
    torch = pytest.importorskip("torch")
    x, y, want = inputs(5000)
    k = phobos.jit(SAXPY)
    dx, dy, z = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda(), torch.empty(5000, device="cuda")
    k(dx, dy, z, 2.0, 0.5, config=CONFIG)
    prepared = k.prepare(dx, dy, z, 2.0, 0.5, config=CONFIG)
    for launch in (lambda: k(dx, dy, z, 2.0, 0.5, config=CONFIG), prepared):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        z.fill_(float("nan"))
        graph.replay()
        close(z.cpu(), want)


def test_a_thread_without_a_context() -> None:
    torch = pytest.importorskip("torch")
    x, y, want = inputs(5000)
    k = phobos.jit(SAXPY)
    dx, dy, z = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda(), torch.empty(5000, device="cuda")
    k(dx, dy, z, 2.0, 0.5, config=CONFIG)
    z.fill_(float("nan"))
    torch.cuda.synchronize()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            k(dx, dy, z, 2.0, 0.5, config=CONFIG, stream=0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    torch.cuda.synchronize()
    close(z.cpu(), want)


def test_second_device() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    x, y, want = inputs(5000)
    k = phobos.jit(SAXPY)
    for device in (0, 1, 0, 1):
        dx, dy = (torch.from_numpy(v).to(f"cuda:{device}") for v in (x, y))
        z = torch.empty_like(dx)
        k(dx, dy, z, 2.0, 0.5, config=CONFIG)
        close(z.cpu(), want)
    with pytest.raises(phobos.LaunchError) as info:
        k(dx, dy, torch.empty(5000, device="cuda:0"), 2.0, 0.5, config=CONFIG)
    assert [d.code for d in info.value.diagnostics] == ["PH0715"]


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    x, y, want = inputs(5000)
    k = phobos.jit(SAXPY)
    dx, dy = cupy.asarray(x), cupy.asarray(y)
    for _ in range(2):
        z = cupy.full(5000, np.nan, np.float32)
        k(dx, dy, z, 2.0, 0.5, config=CONFIG)
        close(z.get(), want)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        z = cupy.full(5000, np.nan, np.float32)
        k(dx, dy, z, 2.0, 0.5, config=CONFIG)
        stream.synchronize()
        close(z.get(), want)
    k(dx, dy, z, 2.0, 0.5, config=CONFIG, stream=stream)
    stream.synchronize()


def test_numba() -> None:
    cuda = pytest.importorskip("numba.cuda")
    x, y, want = inputs(5000)
    dx, dy, z = cuda.to_device(x), cuda.to_device(y), cuda.device_array(5000, np.float32)
    phobos.jit(SAXPY)(dx, dy, z, 2.0, 0.5, config=CONFIG)
    close(z.copy_to_host(), want)


def test_jax_inputs() -> None:
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    if not any(d.platform in ("gpu", "cuda") for d in jax.devices()):
        pytest.skip("jax without CUDA")
    x, y, want = inputs(5000)
    z = torch.empty(5000, device="cuda")
    phobos.jit(SAXPY)(jax.numpy.asarray(x), jax.numpy.asarray(y), z, 2.0, 0.5, config=CONFIG)
    close(z.cpu(), want)


def test_dynamic_shared_memory_above_48_kilobytes() -> None:
    text = """
@launch(256)
@dynshared
@options(state = shared)
kernel square(X: tensor<f32>[N, 128], Y: tensor<f32>[N, 128]) {
  let i = ctx.block.x * 128
  let x = X[i :+ 128, :]
  Y[i :+ 128, :] = dot(x, x)
}
"""
    k = phobos.jit(text)
    x = np.random.default_rng(1).standard_normal((128, 128)).astype(np.float32)
    y = np.empty_like(x)
    assert k.compile().shared_bytes > 48 * 1024
    k(x, y)
    want = x.astype(np.float64) @ x.astype(np.float64)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-3)


def median_us(call: Callable[[], Any], calls: int = 2000, rounds: int = 7) -> float:
    import torch

    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
        torch.cuda.synchronize()
    return sorted(times)[rounds // 2]


def test_launch_cost() -> None:
    """Warm call: at most 0.6 of Triton's; prepared launch: at most 1.3 of a bare cuLaunchKernel."""
    torch = pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    language = triton.language

    @triton.jit
    def peer(X, Y, Z, a, b, n, B: language.constexpr):  # noqa: N803
        i = language.program_id(0) * B + language.arange(0, B)
        inside = i < n
        total = a * language.load(X + i, inside) + b * language.load(Y + i, inside)
        language.store(Z + i, total, inside)

    x, y, z = (torch.randn(512, device="cuda") for _ in range(3))
    k = phobos.jit(SAXPY)
    prepared = k.prepare(x, y, z, 2.0, 0.5, config=CONFIG)
    driver = get_driver()
    launch, head, tail = driver.api.cuLaunchKernel, prepared._head, prepared._tail  # type: ignore[union-attr]
    stream = driver.api.CUstream(torch.cuda.current_stream().cuda_stream)
    calls = {
        "triton": lambda: peer[(1,)](x, y, z, 2.0, 0.5, 512, B=512),
        "warm": lambda: k(x, y, z, 2.0, 0.5, config=CONFIG),
        "prepared": prepared,
        "bare": lambda: launch(*head, stream, tail, 0),
    }
    for call in calls.values():
        call()
    times = {name: median_us(call) for name, call in calls.items()}
    print({name: round(t, 2) for name, t in times.items()})
    assert times["warm"] <= 0.6 * times["triton"], times
    assert times["prepared"] <= 1.3 * times["bare"], times
