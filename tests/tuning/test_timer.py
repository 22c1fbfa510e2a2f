"""The CUDA timer over a driver whose device is host memory: clones, poison, graphs, faults, and nothing left behind."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import phobos
from phobos.diagnostics import LaunchError
from phobos.ir.types import DType
from phobos.runtime import binding
from phobos.runtime.module import Driver
from phobos.tuning.candidates import Built, Job, build, without_memory
from phobos.tuning.timer import CudaTimer, DeviceLost

from ..runtime.fakes import FakeCupyArray
from .fakes import TimingApi

SAXPY = """
@launch(64)
kernel saxpy(X: tensor<f32>[N], Y: tensor<f32>[N], a: f32) {
  let i = ctx.block.x * 64
  Y[i :+ 64] = a * X[i :+ 64] + Y[i :+ 64]
}
"""
SCALE = """
@launch(64)
kernel scale(X: tensor<f32>[N], Y: tensor<f32>[N], a: f32) {
  let i = ctx.block.x * 64
  Y[i :+ 64] = a * X[i :+ 64]
}
"""
F32 = ctypes.c_float


class Rig:
    """A kernel, its arguments, and a device that computes `act(x, y, a)` in place on what the launch points to."""

    def __init__(self, text: str, values: dict[str, Any], act: Callable[[np.ndarray, np.ndarray, float], None]):
        kernel = phobos.jit(text)
        self.call = binding.bind(kernel.name, kernel.info.params, values)
        self.api = TimingApi()
        self.driver = Driver(self.api)
        self.api.on_launch = self._launch
        self.api.read_arguments = self._read
        self.act = act
        self.timer = CudaTimer(self.driver, 0, self.call, {"X": DType.F32, "Y": DType.F32})
        job = Job(
            source=kernel.source, kernel=kernel.name, dtypes=(), consts=(), call=without_memory(self.timer.call),
            arch="sm_90a",
        )  # fmt: skip
        found = build(job, {})
        assert isinstance(found, Built)
        self.built = found
        self.names = [getattr(a, "name", None) for a in found.program.args]
        self.addresses: list[tuple[int, int]] = []

    def _read(self, launch: Any) -> tuple[int, int, float]:
        pointers = [launch.argument(self.names.index(n), ctypes.c_void_p) for n in ("X", "Y")]
        return pointers[0], pointers[1], launch.argument(self.names.index("a"), F32)

    def _launch(self, launch: Any, arguments: tuple[int, int, float]) -> None:
        x, y, a = arguments
        self.addresses.append((x, y))
        n = self.call.dims["N"]
        self.act(*(np.frombuffer((F32 * n).from_address(p), np.float32) for p in (x, y)), a)


def saxpy(x: np.ndarray, y: np.ndarray, a: float) -> None:
    y += np.float32(a) * x


def scale(x: np.ndarray, y: np.ndarray, a: float) -> None:
    y[:] = np.float32(a) * x


def vectors(n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32)


@pytest.fixture
def rigs() -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(*args: Any) -> Rig:
        made.append(Rig(*args))
        return made[-1]

    yield make
    for rig in made:
        rig.timer.close()
        assert rig.api.memory == {} and rig.api.contexts == [] and rig.api.graphs == {}


def test_outputs_come_from_clones(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()
    start = y.copy()
    rig = rigs(SAXPY, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 2.0}, saxpy)
    loaded = rig.timer.load(rig.built)
    for _ in range(3):  # each time from the arguments as they were given
        np.testing.assert_allclose(rig.timer.outputs(loaded)["Y"], 2.0 * x + start, rtol=1e-6)
    np.testing.assert_array_equal(y, start)
    ((read, written),) = set(rig.addresses)
    original = y.__array_interface__["data"][0]
    assert read == x.__array_interface__["data"][0] and written != original and (written - original) % 256 == 0
    assert rig.api.named("cuMemsetD8Async") == []  # Y is read too


def test_what_is_only_written_starts_poisoned(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()

    def half(x: np.ndarray, y: np.ndarray, a: float) -> None:
        assert np.isnan(y).all()
        y[:500] = np.float32(a) * x[:500]

    rig = rigs(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 2.0}, half)
    out = rig.timer.outputs(rig.timer.load(rig.built))["Y"]
    np.testing.assert_allclose(out[:500], 2.0 * x[:500], rtol=1e-6)
    assert np.isnan(out[500:]).all() and np.isfinite(y).all()


def test_a_batch_is_one_graph(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()
    rig = rigs(SAXPY, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 1.0}, saxpy)
    loaded = rig.timer.load(rig.built)
    assert rig.timer.seconds(loaded, 1) == pytest.approx(1e-5)
    before = len(rig.addresses)
    assert rig.timer.seconds(loaded, 50) == pytest.approx(1e-5)
    assert rig.timer.seconds(loaded, 50) == pytest.approx(1e-5)
    # One replay to warm up, two that are timed; the graph was made once.
    assert len(rig.addresses) - before == 150 and len(rig.api.named("cuGraphInstantiate")) == 1
    assert len(rig.api.named("cuGraphLaunch")) == 3
    assert rig.timer.seconds(loaded, 20) == pytest.approx(1e-5)
    assert len(rig.api.named("cuGraphInstantiate")) == 2


def test_where_graphs_are_refused_launches_are_issued_singly(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()
    rig = rigs(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 1.0}, scale)
    loaded = rig.timer.load(rig.built)
    rig.api.fail["cuStreamBeginCapture"] = [1]
    assert rig.timer.seconds(loaded, 5) == pytest.approx(1e-5) and len(rig.addresses) == 5


def test_host_arrays_are_copied(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()
    back = np.concatenate([y, y])[::-2]
    start = back.copy()
    rig = rigs(SAXPY, {"X": x, "Y": back, "a": 2.0}, saxpy)
    np.testing.assert_allclose(rig.timer.outputs(rig.timer.load(rig.built))["Y"], 2.0 * x + start, rtol=1e-6)
    np.testing.assert_array_equal(back, start)
    held = rig.timer.host_arrays()
    np.testing.assert_array_equal(held["X"], x)
    np.testing.assert_array_equal(held["Y"], start)


def test_arrays_that_overlap_are_cloned_together(rigs: Callable[..., Rig]) -> None:
    memory = np.arange(1100, dtype=np.float32)
    x, y = memory[:1000], memory[100:]
    rig = rigs(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 3.0}, lambda x, y, a: None)
    out = rig.timer.outputs(rig.timer.load(rig.built))["Y"]
    np.testing.assert_array_equal(out, y)  # not poisoned: X is read through the same bytes
    ((read, written),) = rig.addresses
    assert written - read == 400 and read != x.__array_interface__["data"][0]
    assert rig.built.facts.written == ("Y",)


def test_a_strided_output(rigs: Callable[..., Rig]) -> None:
    memory = np.arange(2000, dtype=np.float32)
    values = {"X": FakeCupyArray(np.ones(400, np.float32)), "Y": FakeCupyArray(memory[1001::2][:400]), "a": 1.0}
    rig = rigs(SAXPY, values, lambda x, y, a: None)
    np.testing.assert_array_equal(rig.timer.outputs(rig.timer.load(rig.built))["Y"], memory[1001:1801:2])


def test_waiting_and_faults(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()
    rig = rigs(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 1.0}, scale)
    loaded = rig.timer.load(rig.built)
    rig.api.status = [600, 600, 600]
    assert set(rig.timer.outputs(loaded)) == {"Y"} and rig.api.status == []

    lost = Rig(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 1.0}, scale)
    loaded = lost.timer.load(lost.built)
    lost.api.status = [600, 700]
    with pytest.raises(DeviceLost, match="PH0743.*CUDA_ERROR_ILLEGAL_ADDRESS"):
        lost.timer.seconds(loaded, 1)
    before = len(lost.api.calls)
    lost.timer.close()  # a dead context takes no calls
    assert len(lost.api.calls) == before


def test_an_endless_kernel_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from phobos.tuning import timer

    monkeypatch.setattr(timer, "_LONGEST_LAUNCH", 0.05)
    x, y = vectors()
    rig = Rig(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 1.0}, scale)
    loaded = rig.timer.load(rig.built)
    rig.api.status = [600] * 100_000
    with pytest.raises(DeviceLost, match="does not end"):
        rig.timer.outputs(loaded)


def test_what_cannot_be_launched(rigs: Callable[..., Rig]) -> None:
    x, y = vectors()
    rig = rigs(SCALE, {"X": FakeCupyArray(x), "Y": FakeCupyArray(y), "a": 1.0}, scale)
    rig.api.max_threads = 32
    with pytest.raises(LaunchError, match="PH0720"):
        rig.timer.load(rig.built)
    rig.api.max_threads = 1024
    rig.timer._call = dataclasses.replace(rig.timer._call, dims={"N": 0})
    with pytest.raises(LaunchError, match="PH0742"):
        rig.timer.load(rig.built)
