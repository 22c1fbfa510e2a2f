"""Running and timing candidates: the interface, and the CUDA device behind it.

Arguments of the caller are never written: what a candidate writes are clones, which lie at equal addresses modulo 256
bytes and overlap each other as the originals do, so that the variant is the one that the caller's own call will use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir.types import DType
from phobos.runtime import device
from phobos.runtime.arguments import CARRIER, ArrayView
from phobos.runtime.binding import Call
from phobos.runtime.facts import KernelFacts
from phobos.runtime.hostcopy import HostCopies
from phobos.runtime.launch import Launcher, Packing
from phobos.runtime.module import Driver, Function, load_function
from phobos.tuning.candidates import Built
from phobos.tuning.verify import poison_byte

# Offsets within this many bytes are those of the original: alignment, and lines of the caches.
_ALIGNMENT = 256
# A launch that runs longer than this is taken for endless; it cannot be ended, so the device is lost with it.
_LONGEST_LAUNCH = 60.0
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class DeviceLost(LaunchError):
    """The device's context is unusable: a kernel faulted or does not end. Nothing can be run in this process."""


class Timer(Protocol):
    """What a search needs of a device. Tests have one that needs none."""

    def load(self, built: Any) -> Any:
        """A handle for a compiled candidate. Raises LaunchError where it cannot be launched."""
        ...

    def outputs(self, loaded: Any) -> Mapping[str, np.ndarray]:
        """Whole written tensors in storage form after one launch, from the arguments as the caller gave them; tensors
        that the kernel only writes start poisoned."""
        ...

    def seconds(self, loaded: Any, launches: int) -> float:
        """Time of a launch on the device, the mean over `launches` that follow each other."""
        ...

    def close(self) -> None: ...


@dataclass(eq=False)
class Loaded:
    """A candidate on the device. `graph` replays `graph_launches` launches."""

    facts: KernelFacts
    function: Function
    launcher: Launcher
    values: list[Any]
    graph: Any = None
    graph_launches: int = 0


@dataclass
class _Clone:
    """A copy of the byte range [low, low + size) that tensors `names` share; `address` stands for `low`."""

    names: tuple[str, ...]
    low: int
    size: int
    memory: int
    address: int


@dataclass
class _Cleanup:
    """Actions that undo what was made, run last first."""

    actions: list[Callable[[], object]] = field(default_factory=list)

    def run(self) -> None:
        while self.actions:
            self.actions.pop()()


class CudaTimer:
    """Candidates on one CUDA device, on a stream of their own. Host arrays are copied to the device first.

    call: the caller's, whose work on the arrays must be done. grid: blocks in place of the kernel's own, or None.
    """

    def __init__(self, driver: Driver, ordinal: int, call: Call, dtypes: Mapping[str, DType], grid: Any = None):
        self._driver = driver
        self._ordinal = ordinal
        self._dtypes = dict(dtypes)
        self._grid = grid
        self._clones: dict[str, _Clone] = {}
        self._cleanup = _Cleanup()
        self._lost = False
        driver.call("cuCtxPushCurrent", driver.context(ordinal))
        self._cleanup.actions.append(lambda: driver.call("cuCtxPopCurrent"))
        try:
            if call.device is None:
                copies = HostCopies(driver, call.views, self._dtypes)
                self._cleanup.actions.append(copies.free)
                call = replace(call, views=copies.views, device=ordinal)
            self._original = call
            self._call = call  # with clones in place of what is written
            self._stream = int(driver.call("cuStreamCreate", int(driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING)))
            self._cleanup.actions.append(lambda: driver.call("cuStreamDestroy", self._stream))
            self._first, self._last = (driver.call("cuEventCreate", 0) for _ in range(2))
            for event in (self._first, self._last):
                self._cleanup.actions.append(lambda event=event: driver.call("cuEventDestroy", event))  # type: ignore[misc]
        except BaseException:
            self.close()
            raise

    @property
    def call(self) -> Call:
        """The caller's arguments on the device."""
        return self._original

    def load(self, built: Built) -> Loaded:
        driver = self._driver
        blocks = device.grid_of(built.facts, self._call, self._grid)
        if 0 in blocks:
            raise LaunchError(Diagnostic(code="PH0742", message=f"the grid is {blocks}: there is nothing to time"))
        self._clone_written(built.facts.written)
        dynamic = built.program.shared_bytes if built.program.dynamic_shared else 0
        function = load_function(driver, self._ordinal, built.binary, dynamic_shared=dynamic)
        self._cleanup.actions.append(lambda: driver.call("cuModuleUnload", function.module))
        packing = Packing(built.program, built.facts)
        launcher = device.launcher(driver, function, packing, built.program, blocks, self._call)
        values = launcher.encode(device.dynamic_values(launcher, self._call))
        return Loaded(built.facts, function, launcher, values)

    def outputs(self, loaded: Loaded) -> dict[str, np.ndarray]:
        written = loaded.facts.written
        read = {t.name for t in loaded.facts.tensors if t.read}
        for clone in self._clones_of(written):
            self._restore(clone)
            if not read & set(clone.names):
                value = poison_byte(self._dtypes[clone.names[0]])
                self._driver.call("cuMemsetD8Async", clone.address, value, clone.size, self._stream)
        loaded.launcher.launch(self._stream, *loaded.values)
        self._wait()
        return {name: self.download(self._call.views[name], self._dtypes[name]) for name in written}

    def seconds(self, loaded: Loaded, launches: int) -> float:
        driver = self._driver
        if launches > 1 and loaded.graph_launches != launches:
            self._capture(loaded, launches)
        for clone in self._clones_of(loaded.facts.written):
            if any(t.read for t in loaded.facts.tensors if t.name in clone.names):
                self._restore(clone)
        driver.call("cuEventRecord", self._first, self._stream)
        if launches > 1 and loaded.graph is not None:
            driver.call("cuGraphLaunch", loaded.graph, self._stream)
        else:
            for _ in range(launches):
                loaded.launcher.launch(self._stream, *loaded.values)
        driver.call("cuEventRecord", self._last, self._stream)
        self._wait()
        return float(driver.call("cuEventElapsedTime", self._first, self._last)) * 1e-3 / launches

    def close(self) -> None:
        if not self._lost:  # else every call fails, and the context goes with the process
            self._cleanup.run()

    # --- arguments

    def _clone_written(self, written: tuple[str, ...]) -> None:
        views = self._original.views
        for name in written:
            if name in self._clones:
                continue
            names, low, high = _sharing(name, views, self._dtypes)
            memory = self._driver.allocate(high - low + _ALIGNMENT)
            self._cleanup.actions.append(lambda memory=memory: self._driver.free(memory))  # type: ignore[misc]
            clone = _Clone(names, low, high - low, memory, memory + low % _ALIGNMENT)
            moved = {n: views[n]._replace(pointer=views[n].pointer - low + clone.address) for n in names}
            self._clones.update(dict.fromkeys(names, clone))
            self._call = replace(self._call, views={**self._call.views, **moved})

    def _clones_of(self, names: tuple[str, ...]) -> list[_Clone]:
        return list({id(self._clones[n]): self._clones[n] for n in names}.values())

    def _restore(self, clone: _Clone) -> None:
        if clone.size:
            self._driver.call("cuMemcpyDtoDAsync", clone.address, clone.low, clone.size, self._stream)

    def host_arrays(self) -> dict[str, np.ndarray]:
        """All tensors as the caller gave them, in storage form."""
        return {name: self.download(view, self._dtypes[name]) for name, view in self._original.views.items()}

    def download(self, view: ArrayView, dtype: DType) -> np.ndarray:
        item = np.dtype(CARRIER[dtype])
        low, high = view.byte_range(item.itemsize)
        raw = np.empty(high - low, np.uint8)
        self._driver.copy_out(raw.ctypes.data, low, raw.nbytes)
        strides = tuple(s * item.itemsize for s in view.strides)
        offset = view.pointer - low
        strided: Any = np.ndarray(view.shape, item, buffer=raw, offset=offset, strides=strides) if raw.size else None
        return np.empty(view.shape, item) if strided is None else np.ascontiguousarray(strided)

    # --- the stream

    def _capture(self, loaded: Loaded, launches: int) -> None:
        """Makes a graph of that many launches, so that Python is not what is timed, and replays it once. Where the
        driver cannot, launches are issued one by one."""
        driver = self._driver
        self._forget_graph(loaded)
        loaded.graph_launches = launches
        try:
            mode = driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            driver.call("cuStreamBeginCapture", self._stream, mode)
            try:
                for _ in range(launches):
                    loaded.launcher.launch(self._stream, *loaded.values)
            finally:
                graph = driver.call("cuStreamEndCapture", self._stream)
            loaded.graph = driver.call("cuGraphInstantiate", graph, 0)
            driver.call("cuGraphDestroy", graph)
        except LaunchError:
            loaded.graph = None
            return
        self._cleanup.actions.append(lambda: self._forget_graph(loaded))
        driver.call("cuGraphLaunch", loaded.graph, self._stream)
        self._wait()

    def _forget_graph(self, loaded: Loaded) -> None:
        if loaded.graph is not None:
            self._driver.call("cuGraphExecDestroy", loaded.graph)
            loaded.graph = None

    def _wait(self) -> None:
        """Until the stream is empty, by asking again and again: a Ctrl-C gets through, unlike in a blocking call."""
        api, begin = self._driver.api, time.perf_counter()
        while True:
            status = api.cuStreamQuery(self._stream)[0]
            if int(status) == 0:
                return
            spent = time.perf_counter() - begin
            if int(status) != _NOT_READY:
                self._lost = True
                name, text = self._driver.error_names(status)
                raise DeviceLost(Diagnostic(code="PH0743", message=f"the kernel faults: {name} ({text})"))
            if spent > _LONGEST_LAUNCH:
                self._lost = True
                message = f"the kernel does not end: more than {_LONGEST_LAUNCH:.0f} s"
                raise DeviceLost(Diagnostic(code="PH0743", message=message))
            if spent > 2e-3:
                time.sleep(1e-4)


def _sharing(
    name: str, views: Mapping[str, ArrayView], dtypes: Mapping[str, DType]
) -> tuple[tuple[str, ...], int, int]:
    """The tensors that share bytes with `name`, directly or through others, and the range that they cover."""
    ranges = {n: v.byte_range(dtypes[n].bytes) for n, v in views.items()}
    low, high = ranges[name]
    while True:
        names = tuple(n for n, (lo, hi) in ranges.items() if n == name or (lo < high and low < hi and lo < hi))
        bounds = (min(ranges[n][0] for n in names), max(ranges[n][1] for n in names))
        if bounds == (low, high):
            return names, low, high
        low, high = bounds
