"""Stand-ins for what this suite has not got: a CUDA driver, torch, CuPy."""

from __future__ import annotations

import ctypes
import enum
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

SAXPY = """
@launch(64)
@autotune(B in [64, 128])
kernel saxpy(X: tensor<f32>[N], Y: tensor<f32>[N], a: f32) {
  let i = ctx.block.x * B
  Y[i :+ B] = a * X[i :+ B] + Y[i :+ B]
}
"""
CONFIG = {"B": 64}


def codes(info: pytest.ExceptionInfo[Any]) -> list[str]:
    return [d.code for d in info.value.diagnostics]


def data(n: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    return x, y, (2.0 * x.astype(np.float64) + y).astype(np.float32)


class _Attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16


class _FunctionAttribute(enum.IntEnum):
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class _PointerAttribute(enum.IntEnum):
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9


class _EventFlags(enum.IntEnum):
    CU_EVENT_DISABLE_TIMING = 2


@dataclass
class Launch:
    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    pointers: int
    context: int

    def argument(self, index: int, kind: Any) -> Any:
        """Argument `index` read as ctypes type `kind`, from the memory the driver was shown."""
        address = ctypes.cast(self.pointers, ctypes.POINTER(ctypes.c_void_p))[index]
        assert address is not None
        return kind.from_address(address).value


@dataclass
class FakeApi:
    """The functions of `cuda.bindings.driver` that Phobos uses. Device memory is host memory. `fail` maps a function's
    name to the CUresult it shall give once (a list of them: one per call)."""

    devices: int = 1
    capability: tuple[int, int] = (9, 0)
    shared: int = 232448
    max_threads: int = 1024
    fail: dict[str, list[int]] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)
    contexts: list[int] = field(default_factory=list)
    loaded: list[bytes] = field(default_factory=list)
    on_launch: Any = None
    arguments_at_launch: list[bytes] = field(default_factory=list)
    argument_bytes: int = 0

    CUdevice_attribute = _Attribute
    CUfunction_attribute = _FunctionAttribute
    CUpointer_attribute = _PointerAttribute
    CUevent_flags = _EventFlags

    def _status(self, name: str, *args: Any) -> int:
        self.calls.append((name, *args))
        queue = self.fail.get(name)
        return queue.pop(0) if queue else 0

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [c for c in self.calls if c[0] == name]

    def cuInit(self, flags: int) -> tuple[int]:
        return (self._status("cuInit"),)

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        names = {
            1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY", 100: b"CUDA_ERROR_NO_DEVICE",
            201: b"CUDA_ERROR_INVALID_CONTEXT", 209: b"CUDA_ERROR_NO_BINARY_FOR_GPU", 400: b"CUDA_ERROR_INVALID_HANDLE",
            701: b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        }  # fmt: skip
        return 0, names[int(status)]

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, f"text of error {int(status)}".encode()

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return self._status("cuDeviceGetCount"), self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> tuple[int, bytes]:
        return 0, b"Fake GPU\0\0\0"

    def cuDeviceGetAttribute(self, kind: int, device: int) -> tuple[int, int]:
        return 0, {75: self.capability[0], 76: self.capability[1], 97: self.shared, 16: 132}[int(kind)]

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, self.contexts[-1] if self.contexts else 0

    def cuCtxGetDevice(self) -> tuple[int, int]:
        return 0, self.contexts[-1] - 0x1000

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int, int]:
        return self._status("cuDevicePrimaryCtxRetain", device), 0x1000 + device

    def cuCtxPushCurrent(self, context: int) -> tuple[int]:
        self.contexts.append(context)
        return (self._status("cuCtxPushCurrent", context),)

    def cuCtxPopCurrent(self) -> tuple[int, int]:
        return self._status("cuCtxPopCurrent"), self.contexts.pop()

    def cuMemAlloc(self, size: int) -> tuple[int, int]:
        status = self._status("cuMemAlloc", size)
        raw = ctypes.create_string_buffer(size + 256)
        address = (ctypes.addressof(raw) + 255) & ~255
        self.memory[address] = raw
        return status, address

    def cuMemFree(self, pointer: int) -> tuple[int]:
        del self.memory[pointer]
        return (self._status("cuMemFree", pointer),)

    def cuMemcpyHtoD(self, pointer: int, host: int, size: int) -> tuple[int]:
        status = self._status("cuMemcpyHtoD", pointer, host, size)
        ctypes.memmove(pointer, host, size)
        return (status,)

    def cuMemcpyDtoH(self, host: int, pointer: int, size: int) -> tuple[int]:
        status = self._status("cuMemcpyDtoH", host, pointer, size)
        ctypes.memmove(host, pointer, size)
        return (status,)

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        return (self._status("cuStreamSynchronize", stream),)

    def cuEventCreate(self, flags: int) -> tuple[int, int]:
        return self._status("cuEventCreate", flags), 0x77

    def cuEventRecord(self, event: int, stream: int) -> tuple[int]:
        return (self._status("cuEventRecord", event, stream),)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> tuple[int]:
        return (self._status("cuStreamWaitEvent", stream, event),)

    def cuEventDestroy(self, event: int) -> tuple[int]:
        return (self._status("cuEventDestroy", event),)

    def cuPointerGetAttribute(self, kind: int, pointer: int) -> tuple[int, int]:
        return 0, 0

    def cuModuleLoadData(self, image: bytes) -> tuple[int, int]:
        self.loaded.append(image)
        return self._status("cuModuleLoadData"), 0x2000 + len(self.loaded)

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int, int]:
        return self._status("cuModuleGetFunction", module, name), 0x3000 + module

    def cuFuncSetAttribute(self, function: int, kind: int, value: int) -> tuple[int]:
        return (self._status("cuFuncSetAttribute", function, int(kind), value),)

    def cuFuncGetAttribute(self, kind: int, function: int) -> tuple[int, int]:
        return 0, {0: self.max_threads, 4: 32}[int(kind)]

    def cuLaunchKernel(
        self, function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: Any,
        pointers: int, extra: int,
    ) -> tuple[int]:  # fmt: skip
        status = self._status("cuLaunchKernel")
        if status == 0:
            context = self.contexts[-1] if self.contexts else 0
            launch = Launch(function, (gx, gy, gz), (bx, by, bz), shared, int(stream), pointers, context)
            self.launches.append(launch)
            if self.on_launch is not None:
                self.on_launch(launch)
        return (status,)


# --- torch -----------------------------------------------------------------------------------


class FakeTorchTensor:
    """What Phobos uses of a torch tensor on a CUDA device (or the CPU, `device=None`), over a NumPy array."""

    def __init__(self, array: np.ndarray, dtype: str | None = None, device: int | None = 0):
        self.array = array
        self.dtype_name = dtype or array.dtype.name
        self.ordinal = device
        self.layout = "strided"
        self.requires_grad = False

    @property
    def dtype(self) -> Any:
        return _TORCH_DTYPES.setdefault(self.dtype_name, types.SimpleNamespace(name=f"torch.{self.dtype_name}"))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def device(self) -> Any:
        return types.SimpleNamespace(type="cpu" if self.ordinal is None else "cuda", index=self.ordinal)

    def data_ptr(self) -> int:
        return self.array.__array_interface__["data"][0]

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def is_neg(self) -> bool:
        return False

    def get_device(self) -> int:
        return -1 if self.ordinal is None else self.ordinal

    def view(self, dtype: Any) -> "FakeTorchTensor":
        return FakeTorchTensor(self.array.view(str(dtype)), device=self.ordinal)

    def numpy(self) -> np.ndarray:
        return self.array


class _Dtype(types.SimpleNamespace):
    def __str__(self) -> str:
        return str(self.name)

    def __hash__(self) -> int:
        return id(self)


_TORCH_DTYPES: dict[str, Any] = {
    name: _Dtype(name=f"torch.{name}")
    for name in (
        "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "bool",
        "float8_e4m3fn", "float8_e5m2", "complex64", "int16",
    )
}  # fmt: skip


def fake_torch(stream: int = 0x51) -> Any:
    """A module that looks like torch as far as Phobos looks."""
    return types.SimpleNamespace(
        Tensor=FakeTorchTensor,
        strided="strided",
        int16="int16",
        uint8="uint8",
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: stream + device),
    )


class FakeCupyArray:
    """An array with `__cuda_array_interface__` over host memory."""

    def __init__(self, array: np.ndarray, stream: int | None = None, readonly: bool = False, device: int = 0):
        self.array = array
        self.device = types.SimpleNamespace(id=device)
        contiguous = array.flags.c_contiguous
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.__array_interface__["data"][0], readonly),
            "strides": None if contiguous else array.strides,
            "version": 3,
            "stream": stream,
        }
