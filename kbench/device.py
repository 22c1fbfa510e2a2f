"""The device that a bench runs on: buffers, random inputs, events and graphs. Through torch where it is installed, else
through the CUDA driver alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kbench.bench import Tensor
from kbench.protocol import Call, Clock
from kbench.roofline import DeviceInfo
from phobos.diagnostics import LaunchError
from phobos.runtime.module import Driver, get_driver

COPY_BYTES = 1 << 30
BF16_NAN = 0x7FC0
_NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i8": np.int8}


class Device(Clock, Protocol):
    """What kbench needs of a CUDA device. Buffers are what a Phobos kernel takes as arguments."""

    info: DeviceInfo
    backend: str  # of kernel calls
    torch: Any  # the module, None where peers cannot run
    xp: Any  # NumPy or torch: in which oracles compute on what `float64` gives

    def random(self, spec: Tensor, seed: int) -> Any:
        """A buffer of the tensor's shape and dtype with its random content."""
        ...

    def clone(self, buffer: Any) -> Any: ...

    def poison(self, buffer: Any) -> None:
        """Fills with NaN (integers: the smallest value)."""
        ...

    def float64(self, buffer: Any) -> Any:
        """The content as float64, where `xp` computes."""
        ...

    def copy_call(self, bytes_moved: int) -> Call:
        """A call that enqueues one device copy which reads and writes `bytes_moved` in all."""
        ...


def open_device() -> Device:
    """The current CUDA device. Raises LaunchError (PH092x) where there is none."""
    driver = get_driver()
    try:
        import torch
    except ImportError:
        return DriverDevice(driver)
    if not torch.cuda.is_available():
        return DriverDevice(driver)
    return TorchDevice(torch, driver)


def device_info(driver: Driver, ordinal: int, torch_version: str = "") -> DeviceInfo:
    device = driver.device(ordinal)
    handle = driver.call("cuDeviceGet", ordinal)
    kinds = driver.api.CUdevice_attribute
    version = int(driver.call("cuDriverGetVersion"))
    return DeviceInfo(
        name=device.name,
        capability=device.capability,
        sm_count=device.multiprocessors,
        clock_hz=1e3 * int(driver.call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_CLOCK_RATE, handle)),
        l2_bytes=int(driver.call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, handle)),
        driver=_driver_version(),
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        torch=torch_version,
    )


def _driver_version() -> str:
    """The kernel module's version, such as 580.159.03; empty where the system does not tell."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as f:
            words = f.readline().split()
    except OSError:
        return ""
    return next((w for w in words if w[:1].isdigit() and "." in w), "")


class TorchDevice:
    """The current device through torch, on torch's current stream. TF32 is switched off for the process."""

    backend = "cuda"

    def __init__(self, torch: Any, driver: Driver):
        self.torch = self.xp = torch
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        ordinal = torch.cuda.current_device()
        self._where = torch.device("cuda", ordinal)
        self.info = device_info(driver, ordinal, torch.__version__)
        self._dtypes = {
            "f16": torch.float16,
            "bf16": torch.bfloat16,
            "f32": torch.float32,
            "f64": torch.float64,
            "i8": torch.int8,
            "i32": torch.int32,
            "i64": torch.int64,
        }

    def random(self, spec: Tensor, seed: int) -> Any:
        torch = self.torch
        generator = torch.Generator(device=self._where).manual_seed(seed)
        dtype = self._dtypes[spec.dtype]
        if spec.low is None or spec.high is None:
            return torch.randn(spec.shape, generator=generator, device=self._where, dtype=torch.float32).to(dtype)
        x = torch.rand(spec.shape, generator=generator, device=self._where, dtype=torch.float32)
        return (spec.low + (spec.high - spec.low) * x).to(dtype)

    def clone(self, buffer: Any) -> Any:
        return buffer.clone()

    def poison(self, buffer: Any) -> None:
        buffer.fill_(math.nan if buffer.is_floating_point() else self.torch.iinfo(buffer.dtype).min)

    def float64(self, buffer: Any) -> Any:
        return buffer.double()

    def copy_call(self, bytes_moved: int) -> Call:
        source = self.torch.randn(max(1, bytes_moved // 8), device=self._where, dtype=self.torch.float32)
        target = self.torch.empty_like(source)
        return lambda: target.copy_(source)

    def finish(self) -> None:
        self.torch.cuda.synchronize()

    def elapsed(self, calls: Sequence[Call]) -> float:
        first = self.torch.cuda.Event(enable_timing=True)
        last = self.torch.cuda.Event(enable_timing=True)
        first.record()
        for call in calls:
            call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e-3

    def capture(self, calls: Sequence[Call]) -> Call | None:
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for call in calls:
                    call()
        except (RuntimeError, LaunchError):  # something in the calls waits for the device, which a capture forbids
            torch.cuda.synchronize()
            return None
        return graph.replay


class DeviceArray:
    """Row-major device memory of the driver, as CUDA array interface version 3. `bf16`: its elements are the bits of
    bfloat16, for which NumPy has no dtype."""

    def __init__(self, driver: Driver, array: np.ndarray, bf16: bool = False):
        self._driver, self.bf16 = driver, bf16
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self.pointer = driver.allocate(array.nbytes)
        self.write(array)

    def __del__(self) -> None:
        self._driver.free(self.pointer)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "strides": None,
            "stream": 1,
        }

    def write(self, array: np.ndarray) -> None:
        source = np.ascontiguousarray(array, dtype=self.dtype)
        self._driver.copy_in(self.pointer, source.ctypes.data, self.nbytes)

    def read(self) -> np.ndarray:
        out = np.empty(self.shape, self.dtype)
        self._driver.copy_out(out.ctypes.data, self.pointer, self.nbytes)
        return out


class DriverDevice:
    """Device 0 through the driver alone: no torch, so no peers and no graphs."""

    backend = "cuda"
    torch: Any = None
    xp: Any = np

    def __init__(self, driver: Driver):
        self._driver = driver
        driver.call("cuCtxSetCurrent", driver.context(0))
        self.info = device_info(driver, 0)

    def random(self, spec: Tensor, seed: int) -> DeviceArray:
        return DeviceArray(self._driver, random_array(spec, seed), spec.dtype == "bf16")

    def clone(self, buffer: DeviceArray) -> DeviceArray:
        return DeviceArray(self._driver, buffer.read(), buffer.bf16)

    def poison(self, buffer: DeviceArray) -> None:
        floating = buffer.dtype.kind == "f"
        value = BF16_NAN if buffer.bf16 else np.nan if floating else np.iinfo(buffer.dtype).min
        buffer.write(np.full(buffer.shape, value, buffer.dtype))

    def float64(self, buffer: DeviceArray) -> np.ndarray:
        array = buffer.read()
        return bf16_to_float64(array) if buffer.bf16 else array.astype(np.float64)

    def copy_call(self, bytes_moved: int) -> Call:
        size = max(4, bytes_moved // 2)
        source = self.random(Tensor(shape=(size // 4,), dtype="f32"), 1)
        target = self.clone(source)
        return lambda: self._driver.call("cuMemcpyDtoDAsync", target.pointer, source.pointer, source.nbytes, 0)

    def finish(self) -> None:
        self._driver.call("cuCtxSynchronize")

    def elapsed(self, calls: Sequence[Call]) -> float:
        first = self._driver.call("cuEventCreate", 0)
        last = self._driver.call("cuEventCreate", 0)
        try:
            self._driver.call("cuEventRecord", first, 0)
            for call in calls:
                call()
            self._driver.call("cuEventRecord", last, 0)
            self._driver.call("cuEventSynchronize", last)
            return float(self._driver.call("cuEventElapsedTime", first, last)) * 1e-3
        finally:
            self._driver.call("cuEventDestroy", first)
            self._driver.call("cuEventDestroy", last)

    def capture(self, calls: Sequence[Call]) -> Call | None:
        return None


def bf16_to_float64(bits: np.ndarray) -> np.ndarray:
    """The values of bfloat16 numbers given by their bits in uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def random_array(spec: Tensor, seed: int) -> np.ndarray:
    """The tensor's random content as a NumPy array. bf16 has no NumPy dtype: its bits come in uint16."""
    rng = np.random.default_rng(seed)
    if spec.low is None or spec.high is None:
        x = rng.standard_normal(spec.shape, dtype=np.float32)
    else:
        x = rng.uniform(spec.low, spec.high, spec.shape).astype(np.float32)
    if spec.dtype == "bf16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return x.astype(_NUMPY[spec.dtype])
