"""Calls on a device, by a fake driver that computes: copies, streams, variants, the warm path, prepared launches."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import phobos
from phobos.ir.abi import DimArg, ScalarArg, StrideArg, TensorArg
from phobos.runtime import module, nvrtc
from phobos.runtime.launch import Launcher
from phobos.runtime.module import Driver

from .fakes import CONFIG, SAXPY, FakeApi, FakeCupyArray, FakeTorchTensor, Launch, codes, data, fake_torch


class Machine:
    """A fake driver under Phobos, whose launches compute `Y = a X + Y` on what the argument block says."""

    def __init__(self, **options: Any):
        self.api = FakeApi(on_launch=self._run, **options)
        self.kernel = phobos.jit(SAXPY)
        self.strides: list[tuple[int, int]] = []

    def _run(self, launch: Launch) -> None:
        values: dict[Any, Any] = {}
        for index, arg in enumerate(self._arguments_of(launch.function)):
            if isinstance(arg, TensorArg):
                values[arg.name] = launch.argument(index, ctypes.c_uint64)
            elif isinstance(arg, ScalarArg):
                values[arg.name] = launch.argument(index, ctypes.c_float)
            elif isinstance(arg, DimArg):
                values[arg.name] = launch.argument(index, ctypes.c_int32)
            else:
                assert isinstance(arg, StrideArg)
                values[arg.tensor + "s"] = launch.argument(index, ctypes.c_int32)
        n = values["N"]
        assert launch.grid == (-(-n // 64), 1, 1) and launch.block == (64, 1, 1)

        def array(name: str) -> np.ndarray:
            stride = values.get(name + "s", 1)
            low = min(0, (n - 1) * stride) * 4
            span = (abs((n - 1) * stride) + 1) * 4
            memory = (ctypes.c_char * span).from_address(values[name] + low)
            return np.ndarray(n, np.float32, memory, offset=-low, strides=(stride * 4,))

        array("Y")[:] += np.float32(values["a"]) * array("X")

    def _arguments_of(self, handle: int) -> Any:
        """The arguments of the variant behind a function handle: a variant with strides takes more than one without."""
        for key, cell in list(self.kernel._cells.items()):
            if key[0] == "function" and cell.value[0].handle == handle:
                (program,) = [p for k, p in self.kernel._frontend._programs.items() if k[1] == key[2]]
                return program.args
        raise AssertionError(handle)

    def __call__(self, *args: Any, **options: Any) -> None:
        self.kernel(*args, **{"config": CONFIG, **options})

    @property
    def variants(self) -> int:
        return len(self.kernel._frontend._programs)


@pytest.fixture
def machine(no_driver: None) -> Iterator[Machine]:
    out = Machine()
    module.use_driver(Driver(out.api))
    yield out
    assert out.api.contexts == []


def on_device(*arrays: np.ndarray) -> list[FakeTorchTensor]:
    return [FakeTorchTensor(a) for a in arrays]


def aligned(values: np.ndarray, offset: int = 0) -> np.ndarray:
    raw = np.zeros(values.nbytes + 64, np.uint8)
    start = (-raw.ctypes.data) % 16 + offset
    out = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out


def test_host_arrays_are_copied_in_and_out(machine: Machine) -> None:
    x, y, want = data()
    machine(x, y, 2.0)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    assert len(machine.api.named("cuMemcpyHtoD")) == 2 and len(machine.api.named("cuMemcpyDtoH")) == 1
    assert machine.api.memory == {}
    assert machine.api.launches[0].stream == 0


def test_strided_host_arrays(machine: Machine) -> None:
    base_x, base_y, _ = data(400)
    x, y = base_x[::-4], base_y[1::4]
    want = 2.0 * x.astype(np.float64) + y
    others = base_y.copy()
    machine(x, y, 2.0)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    mask = np.ones(400, bool)
    mask[1::4] = False
    np.testing.assert_array_equal(base_y[mask], others[mask])
    assert machine.variants == 1  # compact copies are contiguous


def test_one_array_passed_twice_is_copied_once(machine: Machine) -> None:
    x, _, _ = data()
    want = 3.0 * x.astype(np.float64)
    machine(x, x, 2.0)
    np.testing.assert_allclose(x, want, rtol=1e-6)
    assert len(machine.api.named("cuMemcpyHtoD")) == 1 and len(machine.api.named("cuMemcpyDtoH")) == 1


def test_overlapping_host_arrays_share_memory(machine: Machine) -> None:
    base, _, _ = data(128)
    expect = base.copy()
    expect[64:] = 2.0 * base[:64] + base[64:]
    machine(base[:64], base[64:], 2.0)  # neighbours, no overlap
    np.testing.assert_allclose(base, expect, rtol=1e-6)
    both = base.copy()
    want_odd = 2.0 * both[0::2].astype(np.float64) + both[1::2]
    even = both[0::2].copy()
    machine(both[0::2], both[1::2], 2.0)  # byte ranges interleave
    np.testing.assert_allclose(both[1::2], want_odd, rtol=1e-6)
    np.testing.assert_array_equal(both[0::2], even)
    spec = list(machine.kernel._frontend._programs)[-1][1]
    assert spec.overlap == {"X", "Y"} and not spec.tensor("X").contiguous


def test_read_only_input_and_output(machine: Machine) -> None:
    x, y, want = data()
    x.flags.writeable = False
    machine(x, y, 2.0)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    y.flags.writeable = False
    with pytest.raises(phobos.LaunchError) as info:
        machine(x, y, 2.0)
    assert codes(info) == ["PH0713"]


def test_device_memory_is_freed_when_the_launch_fails(machine: Machine) -> None:
    machine.api.fail["cuLaunchKernel"] = [701]
    x, y, _ = data()
    with pytest.raises(phobos.LaunchError):
        machine(x, y, 2.0)
    machine.api.fail["cuMemAlloc"] = [0, 2]
    with pytest.raises(phobos.LaunchError, match="OUT_OF_MEMORY"):
        machine(x, y, 2.0)
    assert len(machine.api.memory) == 1  # the allocation that the fake made although it "failed"


def test_torch_tensors_in_place_on_the_current_stream(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(stream=0x51))
    x, y, want = data()
    slow: list[int] = []
    original = machine.kernel._slow_call
    monkeypatch.setattr(machine.kernel, "_slow_call", lambda *a: (slow.append(1), original(*a))[1])
    tx, ty = on_device(x, y)
    machine(tx, ty, 2.0)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    assert machine.api.named("cuMemAlloc") == []
    for step in range(3):  # warm, also by keyword and with another scalar
        machine(tx, Y=ty, a=1.0 + step)
    np.testing.assert_allclose(y, want + 6.0 * x, rtol=1e-5)
    assert len(slow) == 1 and machine.variants == 1
    assert {launch.stream for launch in machine.api.launches} == {0x51}
    machine(tx, ty, 2.0, stream=0x99)
    assert machine.api.launches[-1].stream == 0x99
    machine(tx, ty, a=2)  # an integer for a float: another key, the same variant
    assert len(slow) == 2 and machine.variants == 1


def test_warm_calls_notice_what_changed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    x, y, want = data()

    def run(x_array: np.ndarray, y_array: np.ndarray, want: np.ndarray) -> Any:
        machine(*on_device(x_array, y_array), 2.0)
        np.testing.assert_allclose(y_array, want, rtol=1e-5)
        return list(machine.kernel._frontend._programs)[-1][1]

    for _ in range(2):  # cold, then warm with other addresses
        spec = run(aligned(x), aligned(y), want)
        assert spec.tensor("X").align16 and spec.overlap == frozenset()
    assert machine.variants == 1
    assert not run(aligned(x, 4), aligned(y), want).tensor("X").align16
    assert machine.variants == 2
    same = aligned(x)
    assert run(same, same, 3 * x).overlap == {"X", "Y"}
    spread = np.zeros(300, np.float32)
    spread[::3] = x
    assert not run(spread[::3], aligned(y), want).tensor("X").contiguous
    count = machine.variants
    for _ in range(3):
        run(aligned(x), aligned(y), want)
        same = aligned(x)
        run(same, same, 3 * x)
        run(aligned(x, 4), aligned(y), want)
    assert machine.variants == count
    shorter = aligned(y[:50])
    run(aligned(x[:50]), shorter, want[:50])


def test_warm_calls_still_check(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    x, y, _ = data()
    tx, ty = on_device(x, y)
    machine(tx, ty, 2.0)
    launches = len(machine.api.launches)
    other = FakeTorchTensor(x, device=1)
    for args, code in (
        ((tx, ty, 1e300), "PH0717"),
        ((tx, ty, True), "PH0716"),
        ((tx, FakeTorchTensor(y[:50]), 2.0), "PH0710"),
        ((tx, FakeTorchTensor(y.astype(np.float64)), 2.0), "PH0707"),
        ((other, ty, 2.0), "PH0715"),
        ((tx, y, 2.0), "PH0715"),
    ):
        with pytest.raises(phobos.LaunchError) as info:
            machine(*args)
        assert codes(info) == [code]
    machine(tx, ty, 2.0, grid=(2, 1))
    for options, code in (
        ({"config": {n: float(v) for n, v in CONFIG.items()}}, "PH0308"),  # equal to those that are remembered
        ({"grid": (2.0, 1)}, "PH0718"),
        ({"grid": (2, True)}, "PH0718"),
    ):
        with pytest.raises(phobos.PhobosError) as wrong:
            machine(tx, ty, 2.0, **options)
        assert codes(wrong) == [code]
    launches += 1
    with pytest.raises(phobos.LaunchError) as info:
        machine(tx, ty, 2.0, backend="reference")
    assert codes(info) == ["PH0725"]
    assert len(machine.api.launches) == launches


def test_cupy_arrays(machine: Machine) -> None:
    x, y, want = data()
    cx, cy = FakeCupyArray(x, stream=0x71), FakeCupyArray(y, stream=0x71)
    machine(cx, cy, 2.0)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    assert machine.api.launches[-1].stream == 0x71
    machine(cx, cy, 0.0)
    assert machine.variants == 1 and len(machine.api.launches) == 2
    assert machine.api.named("cuEventRecord") == []
    machine(cx, cy, 0.0, stream=0x72)  # other than the producers': it waits for them
    assert machine.api.named("cuEventRecord") == [("cuEventRecord", 0x77, 0x71)]
    assert machine.api.named("cuStreamWaitEvent") == [("cuStreamWaitEvent", 0x72, 0x77)]
    assert len(machine.api.named("cuEventDestroy")) == 1
    with pytest.raises(phobos.LaunchError) as info:
        machine(cx, FakeCupyArray(y, readonly=True), 2.0)
    assert codes(info) == ["PH0713"]


def test_empty_grid_does_not_launch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    empty = np.zeros(0, np.float32)
    machine(empty, empty.copy(), 2.0)
    machine(*on_device(empty, empty.copy()), 2.0)
    machine.kernel.prepare(*on_device(empty, empty.copy()), 2.0, config=CONFIG)()
    assert machine.api.launches == []


def test_prepared_launch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(stream=0x51)
    monkeypatch.setitem(sys.modules, "torch", torch)
    x, y, want = data()
    launch = machine.kernel.prepare(*on_device(x, y), a=2.0, config=CONFIG)
    assert machine.api.launches == [] and launch.grid == (2, 1, 1)
    launch()
    np.testing.assert_allclose(y, want, rtol=1e-6)
    launch()
    np.testing.assert_allclose(y, want + 2 * x, rtol=1e-5)
    machine.kernel.prepare(*on_device(x, y), a=2.0, config=CONFIG, stream=0x88)()
    assert [launch.stream for launch in machine.api.launches] == [0x51, 0x51, 0x88]
    machine.api.fail["cuLaunchKernel"] = [201]
    launch()
    assert machine.api.launches[-1].context == 0x1000
    with pytest.raises(phobos.LaunchError) as info:
        machine.kernel.prepare(x, y, 2.0, config=CONFIG)
    assert codes(info) == ["PH0725"]


def test_two_threads_compile_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    compiled: list[str] = []
    original = nvrtc.compile_program

    def count(program: Any, target: Any, **options: Any) -> Any:
        compiled.append(program.name)
        return original(program, target, **options)

    monkeypatch.setattr(nvrtc, "compile_program", count)
    start = threading.Barrier(4, timeout=30)
    results: list[bool] = []

    def work() -> None:
        x, y, want = data()
        start.wait()
        machine(*on_device(aligned(x), aligned(y)), 2.0)
        results.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == [True] * 4 and compiled == ["saxpy"]
    assert len(machine.api.loaded) == 1 and len(machine.api.launches) == 4


def test_parameter_names_that_python_reserves(no_driver: None) -> None:
    text = "@launch(32)\nkernel k(lambda: tensor<f32>[N], _p0: tensor<f32>[N]) {\n  _p0[0 :+ 4] = lambda[0 :+ 4]\n}\n"
    k = phobos.jit(text)
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    k(x, y, backend="reference")
    np.testing.assert_array_equal(y, x)
    k(backend="reference", **{"_p0": y, "lambda": 2 * x})
    np.testing.assert_array_equal(y, 2 * x)


def test_records_do_not_grow_without_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from phobos.runtime import warm

    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    monkeypatch.setattr(warm, "_MAX_RECORDS", 8)
    x, y, _ = data(64)
    for n in range(1, 30):
        machine(*on_device(aligned(x[:n]), aligned(y[:n])), 2.0)
    assert len(machine.api.launches) == 29
    cells = [v for v in vars(machine.kernel).values() if isinstance(v, dict)]
    assert all(len(c) < 29 for c in cells)


def test_launcher_type_is_public_through_prepare(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    x, y, _ = data()
    prepared = machine.kernel.prepare(*on_device(x, y), 2.0, config=CONFIG)
    assert isinstance(prepared._launcher, Launcher)  # type: ignore[union-attr]
