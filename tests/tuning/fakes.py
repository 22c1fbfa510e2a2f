"""Stand-ins for the tuner's parts: a toolchain, a clock, and a driver whose device is host memory."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir.types import DType
from phobos.tuning.candidates import Dropped, Examined
from phobos.tuning.verify import Against

from ..runtime.fakes import FakeApi

Config = Mapping[str, Any]
RIGHT = np.arange(1.0, 9.0, dtype=np.float32)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, BaseException):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


@dataclass(frozen=True)
class FakeBuilt:
    config: Config
    spill_bytes: int = 0
    registers: int = 40
    threads: int = 128
    shared_bytes: int = 1024


@dataclass
class FakeToolchain:
    """`estimate` gives the cycles, or Dropped; `drops` what the compiler makes of a configuration; `spills` bytes."""

    estimate: Callable[[Config], Any] = lambda config: 1.0
    drops: Callable[[Config], Any] = lambda config: None
    spills: Callable[[Config], int] = lambda config: 0
    built: list[dict[str, Any]] = field(default_factory=list)

    def examine(self, config: Config) -> Future[Any]:
        found = self.estimate(config)
        return done(found if isinstance(found, (Dropped, BaseException)) else Examined(cycles=found, blocks=1))

    def build(self, config: Config) -> Future[Any]:
        self.built.append(dict(config))
        dropped = self.drops(config)
        return done(FakeBuilt(dict(config), spill_bytes=self.spills(config)) if dropped is None else dropped)


@dataclass
class FakeTimer:
    """`clock` gives the seconds of a launch; `output` what a configuration computes. `calls` logs every batch."""

    clock: Callable[[Config], float]
    output: Callable[[Config], np.ndarray] = lambda config: RIGHT
    refuses: Callable[[Config], bool] = lambda config: False
    calls: list[tuple[dict[str, Any], int]] = field(default_factory=list)

    def load(self, built: FakeBuilt) -> Config:
        if self.refuses(built.config):
            raise LaunchError(Diagnostic(code="PH0720", message="too many threads"))
        return built.config

    def outputs(self, loaded: Config) -> dict[str, np.ndarray]:
        return {"O": self.output(loaded)}

    def seconds(self, loaded: Config, launches: int) -> float:
        self.calls.append((dict(loaded), launches))
        return self.clock(loaded)

    def close(self) -> None:
        return None


def against() -> Against:
    return Against({"O": RIGHT}, {"O": DType.F32}, {"O": 1e-5}, "known outputs")


# --- a driver --------------------------------------------------------------------------------


class _StreamFlags(enum.IntEnum):
    CU_STREAM_NON_BLOCKING = 1


class _CaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


@dataclass
class TimingApi(FakeApi):
    """Streams, events, graphs and copies on top of the runtime's fake. A launch takes `launch_seconds` of a simulated
    clock; `status` is what cuStreamQuery answers, one a call, then success."""

    launch_seconds: float = 1e-5
    now: float = 0.0
    events: dict[int, float] = field(default_factory=dict)
    graphs: dict[int, list[Any]] = field(default_factory=dict)
    recording: list[Any] | None = None
    status: list[int] = field(default_factory=list)
    unloaded: list[int] = field(default_factory=list)
    handles: int = 0x9000

    CUstream_flags = _StreamFlags
    CUstreamCaptureMode = _CaptureMode

    def _new(self) -> int:
        self.handles += 1
        return self.handles

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        known = {600: b"CUDA_ERROR_NOT_READY", 700: b"CUDA_ERROR_ILLEGAL_ADDRESS"}
        return (0, known[int(status)]) if int(status) in known else super().cuGetErrorName(status)

    def cuStreamCreate(self, flags: int) -> tuple[int, int]:
        return self._status("cuStreamCreate", flags), self._new()

    def cuStreamDestroy(self, stream: int) -> tuple[int]:
        return (self._status("cuStreamDestroy", stream),)

    def cuStreamQuery(self, stream: int) -> tuple[int]:
        return (self.status.pop(0) if self.status else 0,)

    def cuEventCreate(self, flags: int) -> tuple[int, int]:
        return self._status("cuEventCreate", flags), self._new()

    def cuEventRecord(self, event: int, stream: int) -> tuple[int]:
        self.events[event] = self.now
        return (self._status("cuEventRecord", event, stream),)

    def cuEventElapsedTime(self, first: int, last: int) -> tuple[int, float]:
        return 0, (self.events[last] - self.events[first]) * 1e3

    def cuMemsetD8Async(self, pointer: int, value: int, size: int, stream: int) -> tuple[int]:
        status = self._status("cuMemsetD8Async", pointer, value, size)
        ctypes.memset(pointer, value, size)
        return (status,)

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int) -> tuple[int]:
        status = self._status("cuMemcpyDtoDAsync", target, source, size)
        ctypes.memmove(target, source, size)
        return (status,)

    def cuModuleUnload(self, module: int) -> tuple[int]:
        self.unloaded.append(module)
        return (0,)

    def cuStreamBeginCapture(self, stream: int, mode: int) -> tuple[int]:
        status = self._status("cuStreamBeginCapture", stream)
        if status == 0:
            self.recording = []
        return (status,)

    def cuStreamEndCapture(self, stream: int) -> tuple[int, int]:
        assert self.recording is not None
        graph = self._new()
        self.graphs[graph], self.recording = self.recording, None
        return 0, graph

    def cuGraphInstantiate(self, graph: int, flags: int) -> tuple[int, int]:
        made = self._new()
        self.graphs[made] = self.graphs[graph]
        return self._status("cuGraphInstantiate", graph), made

    def cuGraphDestroy(self, graph: int) -> tuple[int]:
        del self.graphs[graph]
        return (0,)

    def cuGraphExecDestroy(self, graph: int) -> tuple[int]:
        del self.graphs[graph]
        return (0,)

    def cuGraphLaunch(self, graph: int, stream: int) -> tuple[int]:
        for launch in self.graphs[graph]:
            self._run(launch)
        return (self._status("cuGraphLaunch", graph, stream),)

    def cuLaunchKernel(self, *args: Any) -> tuple[int]:
        act, self.on_launch = self.on_launch, None
        status = super().cuLaunchKernel(*args)
        self.on_launch = act
        if status[0] == 0:
            launch = self.launches[-1]
            if self.recording is not None:
                # The driver copies arguments when a launch is captured.
                self.recording.append((launch, self._arguments(launch)))
            else:
                self._run((launch, self._arguments(launch)))
        return status

    def _arguments(self, launch: Any) -> Any:
        return self.read_arguments(launch) if self.read_arguments is not None else None

    read_arguments: Any = None

    def _run(self, captured: Any) -> None:
        launch, arguments = captured
        self.now += self.launch_seconds
        if self.on_launch is not None:
            self.on_launch(launch, arguments)
