"""Devices, contexts, cubins and launches through the CUDA driver interface.

`Driver` wraps an object with the functions of `cuda.bindings.driver`; tests inject one that needs no GPU. All errors
are LaunchErrors: PH092x where there is no usable driver or device, PH073x where a driver call fails.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.runtime.nvrtc import Binary
from phobos.target import STATIC_SHARED_LIMIT, Target, target_for_capability

_INSTALL = "pip install 'cuda-bindings>=13.0'"


def _error(code: str, message: str, help: str | None = None, notes: tuple[str, ...] = ()) -> LaunchError:
    return LaunchError(Diagnostic(code=code, message=message, help=help, notes=notes))


_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def _no_device() -> LaunchError:
    return _error("PH0921", "the CUDA driver sees no device", "check CUDA_VISIBLE_DEVICES and `nvidia-smi`")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU. `shared_per_block` is the opt-in limit in bytes."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    shared_per_block: int
    multiprocessors: int

    @property
    def target(self) -> Target:
        """Raises CompileError PH0902 where the compiler knows no target for the device."""
        return target_for_capability(*self.capability)


class Driver:
    """The CUDA driver, initialised. `api` has the functions and enums of `cuda.bindings.driver`.

    Raises LaunchError PH0921 where `cuInit` finds no device, PH0922 where it fails otherwise.
    """

    def __init__(self, api: Any):
        self.api = api
        result = api.cuInit(0)
        if int(result[0]) == _NO_DEVICE:
            raise _no_device()
        if int(result[0]) != 0:
            name, text = self.error_names(result[0])
            raise _error("PH0922", f"the CUDA driver does not start: {name} ({text})", "see `phobos doctor`")
        self._devices: dict[int, Device] = {}
        self._contexts: dict[int, Any] = {}
        self._lock = threading.Lock()

    def error_names(self, status: Any) -> tuple[str, str]:
        """The name of a CUresult and the driver's text for it."""
        _, name = self.api.cuGetErrorName(status)
        _, text = self.api.cuGetErrorString(status)
        decode = lambda b: b.decode() if isinstance(b, bytes) else str(b)  # noqa: E731
        return decode(name), decode(text)

    def call(self, function: str, *args: Any) -> Any:
        """Calls `api.<function>` and returns its single result (None if it has none, a tuple if several).

        Raises LaunchError PH0730 with the function, the error's name and its text.
        """
        result = getattr(self.api, function)(*args)
        if int(result[0]) != 0:
            name, text = self.error_names(result[0])
            raise _error("PH0730", f"{function} failed: {name} ({text})")
        if len(result) == 1:
            return None
        return result[1] if len(result) == 2 else result[1:]

    # --- devices and contexts ---

    def device_count(self) -> int:
        return int(self.call("cuDeviceGetCount"))

    def device(self, ordinal: int) -> Device:
        """Facts about a device. Raises LaunchError PH0921 where the ordinal does not exist."""
        found = self._devices.get(ordinal)
        if found is None:
            count = self.device_count()
            if not 0 <= ordinal < count:
                raise _error("PH0921", f"there is no CUDA device {ordinal}; this machine has {count}")
            handle = self.call("cuDeviceGet", ordinal)
            kinds = self.api.CUdevice_attribute

            def attribute(name: str) -> int:
                return int(self.call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

            name = self.call("cuDeviceGetName", 256, handle)
            found = Device(
                ordinal=ordinal,
                name=(name.decode() if isinstance(name, bytes) else str(name)).rstrip("\0 "),
                capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
                shared_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
                multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
            )
            self._devices[ordinal] = found
        return found

    def current_device(self) -> int:
        """The device of the calling thread's current context, 0 where it has none."""
        if int(self.call("cuCtxGetCurrent")) == 0:
            return 0
        return int(self.call("cuCtxGetDevice"))

    def context(self, ordinal: int) -> Any:
        """The primary context of a device (the one that torch, CuPy and the CUDA runtime use), retained once."""
        with self._lock:
            context = self._contexts.get(ordinal)
            if context is None:
                self.device(ordinal)
                context = self.call("cuDevicePrimaryCtxRetain", self.call("cuDeviceGet", ordinal))
                self._contexts[ordinal] = context
        return context

    @contextmanager
    def current(self, ordinal: int) -> Iterator[None]:
        """Makes the device's primary context current for the block."""
        self.call("cuCtxPushCurrent", self.context(ordinal))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")

    # --- memory, streams ---

    def allocate(self, size: int) -> int:
        """Device memory of the current context, in bytes (at least one is allocated)."""
        return int(self.call("cuMemAlloc", max(1, size)))

    def free(self, pointer: int) -> None:
        self.call("cuMemFree", pointer)

    def copy_in(self, pointer: int, host: int, size: int) -> None:
        """Host to device, `size` bytes; returns when done."""
        if size:
            self.call("cuMemcpyHtoD", pointer, host, size)

    def copy_out(self, host: int, pointer: int, size: int) -> None:
        """Device to host, `size` bytes; returns when done."""
        if size:
            self.call("cuMemcpyDtoH", host, pointer, size)

    def synchronize(self, stream: int = 0) -> None:
        self.call("cuStreamSynchronize", stream)

    def wait_for(self, stream: int, producer: int) -> None:
        """Work on `stream` issued after this call waits for what `producer` holds now."""
        event = self.call("cuEventCreate", int(self.api.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        try:
            self.call("cuEventRecord", event, producer)
            self.call("cuStreamWaitEvent", stream, event, 0)
        finally:
            self.call("cuEventDestroy", event)

    def pointer_device(self, pointer: int) -> int:
        """The device that owns a device pointer."""
        kind = self.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(self.call("cuPointerGetAttribute", kind, pointer))


@dataclass(frozen=True, kw_only=True, eq=False)
class Function:
    """A kernel loaded on one device. `module` keeps the code alive. `max_threads` is the driver's limit for it."""

    device: int
    module: Any
    handle: Any
    max_threads: int
    registers: int


def load_function(driver: Driver, ordinal: int, binary: Binary, *, dynamic_shared: int) -> Function:
    """Load a cubin on a device and allow `dynamic_shared` bytes per launch.

    Raises LaunchError PH0731 where the driver refuses the cubin, PH0719 where the device has less shared memory.
    """
    device = driver.device(ordinal)
    need = dynamic_shared + binary.static_shared_bytes
    if need > device.shared_per_block:
        raise _error(
            "PH0719",
            f"the kernel needs {need} bytes of shared memory per block; {device.name} allows {device.shared_per_block}",
            "choose smaller tiles or fewer stages",
        )
    with driver.current(ordinal):
        try:
            module = driver.call("cuModuleLoadData", binary.cubin)
            handle = driver.call("cuModuleGetFunction", module, binary.entry.encode())
        except LaunchError as error:
            raise _error(
                "PH0731",
                f"{device.name} cannot load kernel {binary.entry!r}: {error.diagnostics[0].message}",
                "the driver may be older than the compiler's CUDA version; see `phobos doctor`",
            ) from None
        kinds = driver.api.CUfunction_attribute
        if dynamic_shared + binary.static_shared_bytes > STATIC_SHARED_LIMIT:
            kind = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuFuncSetAttribute", handle, kind, dynamic_shared)
        return Function(
            device=ordinal,
            module=module,
            handle=handle,
            max_threads=int(driver.call("cuFuncGetAttribute", kinds.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, handle)),
            registers=int(driver.call("cuFuncGetAttribute", kinds.CU_FUNC_ATTRIBUTE_NUM_REGS, handle)),
        )


# --- the process's driver --------------------------------------------------------------------

_lock = threading.RLock()
_driver: Driver | None = None
_failure: LaunchError | None = None


def get_driver() -> Driver:
    """The process's driver, started at the first call.

    Raises LaunchError: PH0920 without a driver library or cuda-bindings, PH0921 without a device, PH0922 where the
    driver does not start. The outcome of the first call holds for the process.
    """
    global _driver, _failure
    with _lock:
        if _failure is not None:
            raise LaunchError(_failure.diagnostics)
        if _driver is None:
            try:
                _driver = _start()
            except LaunchError as error:
                _failure = error
                raise
        return _driver


def use_driver(driver: Driver | None) -> Driver | None:
    """Replace the process's driver (None: search anew at the next use); returns the one before. For tests."""
    global _driver, _failure
    with _lock:
        before, _driver, _failure = _driver, driver, None
        return before


def device_available() -> bool:
    """Whether a kernel could be launched here. Never raises; cheap where there is no driver."""
    try:
        get_driver()
    except LaunchError:
        return False
    return True


def _start() -> Driver:
    if not _driver_library_loads():
        raise _error(
            "PH0920",
            "no CUDA driver on this machine",
            "install the NVIDIA driver, or choose the backend 'reference' or 'emulator'",
        )
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise _error("PH0920", f"the Python package cuda-bindings is not usable: {error}", _INSTALL) from None
    try:
        found = Driver(api)
        count = found.device_count()
    except RuntimeError as error:  # cuda-bindings: the library lacks a function
        raise _error("PH0922", f"the CUDA driver does not start: {error}") from None
    if count == 0:
        raise _no_device()
    return found


def _driver_library_loads() -> bool:
    """Whether the driver's library is there: tells in a millisecond what importing cuda-bindings takes 0.1 s to."""
    import ctypes

    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
