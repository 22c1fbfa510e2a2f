"""Runs kernel texts on the emulator or on a GPU with the same arguments."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phobos.codegen import prelude
from phobos.emulator.build import kernel_library
from phobos.emulator.launch import Argument, LaunchShape, Tensor, TensorMap, launch
from phobos.emulator.reports import EmulatorResult

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True, eq=False)
class Out:
    """An array that the kernel writes; `init`: it may read it before."""

    array: np.ndarray
    init: bool = False
    name: str = "out"


@dataclass(frozen=True, eq=False)
class Tma:
    """A tensor map over a row-major array; box = (columns, rows)."""

    array: np.ndarray
    box: tuple[int, int]


Value = np.ndarray | Out | Tma | np.generic | bytes


@dataclass(frozen=True)
class Shape:
    threads: int = 32
    grid: tuple[int, ...] = (1,)
    shared: int = 0
    granule: int = 2

    @property
    def grid3(self) -> tuple[int, int, int]:
        x, y, z = (*self.grid, 1, 1)[:3]
        return x, y, z


def kernel_text(name: str) -> str:
    return (KERNELS / f"{name}.cu").read_text(encoding="utf-8")


def emulate(
    text: str,
    name: str,
    shape: Shape,
    arguments: Sequence[Value],
    *,
    sched: int = 0,
    check: bool = True,
    workers: int = 1,
    timeout: float = 20.0,
    record: bool = False,
    opt: str = "-O0",
) -> EmulatorResult:
    converted: list[Argument] = []
    for i, a in enumerate(arguments):
        if isinstance(a, Out):
            converted.append(Tensor(name=a.name, array=a.array, writable=True, init=a.init))
        elif isinstance(a, Tma):
            converted.append(TensorMap(name=f"argument {i}", array=a.array, box=a.box))
        elif isinstance(a, np.ndarray):
            converted.append(Tensor(name=f"argument {i}", array=a))
        else:
            converted.append(a if isinstance(a, bytes) else a.tobytes())
    library = kernel_library(text, name, check=check, opt=opt)
    launch_shape = LaunchShape(
        grid=shape.grid3, threads=shape.threads, shared_bytes=shape.shared, granule=shape.granule
    )
    return launch(
        library, launch_shape, converted, sched=sched, check=check, workers=workers, timeout=timeout, record=record
    )


def kinds(result: EmulatorResult) -> set[str]:
    return {r.kind for r in result.reports}


def describe(result: EmulatorResult) -> str:
    return "\n".join(f"{r.line}: {r.kind} x{r.count}: {r.text}" for r in result.reports)


# ---- NVRTC and a GPU


def compile_cuda(text: str, arch: str, *, shared: int, dynamic: bool = False, ptx: bool = False) -> bytes:
    """A cubin (or PTX) of the text behind its prelude. Fails with NVRTC's log."""
    from cuda.bindings import nvrtc

    source = prelude.select(text, dynamic_shared=dynamic, shared_bytes=shared) + text
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, [], [])
    target = arch.replace("sm_", "compute_") if ptx else arch
    options = [f"--gpu-architecture={target}".encode(), b"--std=c++17", b"-diag-suppress=177"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    get_size, get = (
        (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if ptx else (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    )
    _, size = get_size(program)
    out = b" " * size
    get(program, out)
    nvrtc.nvrtcDestroyProgram(program)
    return out


@functools.cache
def gpu_arch() -> str | None:
    """The architecture of device 0 for NVRTC, or None without a usable device; its context is made current."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError:  # no driver library
        return None
    if status != driver.CUresult.CUDA_SUCCESS:
        return None
    status, device = driver.cuDeviceGet(0)
    if status != driver.CUresult.CUDA_SUCCESS:
        return None
    _, context = driver.cuDevicePrimaryCtxRetain(device)
    driver.cuCtxSetCurrent(context)
    attribute = driver.CUdevice_attribute
    _, major = driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    _, minor = driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def run_cuda(text: str, name: str, shape: Shape, arguments: Sequence[Value]) -> None:
    """The same launch on the GPU."""
    from cuda.bindings import driver

    def ok(answer: tuple[Any, ...]) -> Any:
        assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
        return answer[1] if len(answer) == 2 else None

    arch = gpu_arch()
    assert arch is not None
    module = ok(driver.cuModuleLoadData(compile_cuda(text, arch, shared=shape.shared, dynamic=True)))
    function = ok(driver.cuModuleGetFunction(module, name.encode()))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ok(driver.cuFuncSetAttribute(function, attribute, shape.shared))
    copies: list[tuple[np.ndarray, Any]] = []
    values: list[Any] = []  # ctypes objects, kept alive until the launch is done
    maps: list[Any] = []
    for a in arguments:
        if isinstance(a, bytes | np.generic):
            raw = a if isinstance(a, bytes) else a.tobytes()
            values.append((ctypes.c_char * len(raw)).from_buffer_copy(raw))
            continue
        array = a if isinstance(a, np.ndarray) else a.array
        pointer = ok(driver.cuMemAlloc(max(16, array.nbytes)))
        ok(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
        copies.append((array, pointer))
        if isinstance(a, Tma):
            maps.append(_tensor_map(a, pointer, ok))
            values.append(maps[-1])
        else:
            values.append(ctypes.c_void_p(int(pointer)))
    addresses = [
        v.getPtr() if not isinstance(v, ctypes._SimpleCData | ctypes.Array) else ctypes.addressof(v) for v in values
    ]
    table = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
    ok(driver.cuLaunchKernel(function, *shape.grid3, shape.threads, 1, 1, shape.shared, 0, ctypes.addressof(table), 0))
    ok(driver.cuCtxSynchronize())
    for (array, pointer), a in zip(
        copies, [a for a in arguments if not isinstance(a, bytes | np.generic)], strict=True
    ):
        if isinstance(a, Out):
            ok(driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
        ok(driver.cuMemFree(pointer))
    ok(driver.cuModuleUnload(module))


def _tensor_map(a: Tma, pointer: Any, ok: Any) -> Any:
    from cuda.bindings import driver

    assert a.array.itemsize == 2
    u32, u64 = driver.cuuint32_t, driver.cuuint64_t
    return ok(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,
            2,
            pointer,
            [u64(a.array.shape[1]), u64(a.array.shape[0])],
            [u64(a.array.strides[0])],
            [u32(a.box[0]), u32(a.box[1])],
            [u32(1), u32(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )


# ---- bf16 in NumPy, independent of the package


def to_bf16(values: Any) -> np.ndarray:
    """Nearest even; no NaN expected."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)
