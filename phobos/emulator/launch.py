"""One launch: arguments in memory shared with a child process, which runs the grid; the parent waits, and reads the
outcome.

The child is where a crash or an endless loop ends. The structures are those of prelude/host/runtime/interface.h.
"""

from __future__ import annotations

import ctypes as C
import mmap
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.emulator.build import runtime_library
from phobos.emulator.reports import EmulatorReport, EmulatorResult

Array = npt.NDArray[Any]
MAX_REPORTS = 64
MAX_WORKERS = 16
ACCESS_KINDS = ("plain", "atomic", "ldmatrix", "cp_async")
# One memory access of one thread. `space`: 0 global, 1 shared; `tensor`: index of the argument, -1 for shared memory;
# `offset` in bytes from the tensor's first byte or from the start of shared memory; `sequence` counts the thread's
# accesses; `kind` as above.
ACCESS_DTYPE = np.dtype(
    [
        ("block", np.uint32),
        ("thread", np.uint16),
        ("space", np.uint8),
        ("is_write", np.uint8),
        ("sequence", np.uint32),
        ("line", np.int32),
        ("tensor", np.int32),
        ("size", np.uint16),
        ("kind", np.uint16),
        ("offset", np.int64),
    ]
)


class _Entry(C.Structure):
    _fields_ = [
        ("kind", C.c_char * 24),
        ("line", C.c_int),
        ("line2", C.c_int),
        ("count", C.c_longlong),
        ("text", C.c_char * 488),
    ]


class _Report(C.Structure):
    _fields_ = [("n", C.c_int), ("pad", C.c_int), ("total", C.c_longlong), ("entries", _Entry * MAX_REPORTS)]


class _Progress(C.Structure):
    _fields_ = [
        ("running", C.c_int),
        ("block", C.c_int * 3),
        ("thread", C.c_int),
        ("line", C.c_int),
        ("stack_overflow", C.c_int),
        ("pad", C.c_int),
    ]


class _Region(C.Structure):
    _fields_ = [
        ("base", C.c_void_p),
        ("bytes", C.c_uint64),
        ("granule", C.c_int),
        ("shadowed", C.c_int),
        ("init", C.c_int),
        ("pad", C.c_int),
        ("shadow", C.c_void_p),
    ]


class _Tensor(C.Structure):
    _fields_ = [
        ("base", C.c_void_p),
        ("bytes", C.c_uint64),
        ("item", C.c_int),
        ("writable", C.c_int),
        ("region", C.c_int),
        ("index", C.c_int),
        ("member", C.c_void_p),
        ("unwritten", C.c_longlong),
        ("name", C.c_char * 64),
    ]


class _Job(C.Structure):
    _fields_ = [
        ("call", C.c_void_p),
        ("args", C.c_void_p),
        ("grid", C.c_int * 3),
        ("threads", C.c_int),
        ("shared_bytes", C.c_uint32),
        ("workers", C.c_int),
        ("check", C.c_int),
        ("shift", C.c_int),
        ("sched", C.c_int),
        ("n_tensors", C.c_int),
        ("n_regions", C.c_int),
        ("tensors", C.c_void_p),
        ("regions", C.c_void_p),
        ("record_fd", C.c_int),
        ("print_fd", C.c_int),
        ("finished", C.c_int),
        ("pad", C.c_int),
        ("report", _Report),
        ("progress", _Progress * MAX_WORKERS),
    ]


class _Pointer(C.Structure):  # ph_global<T>
    _fields_ = [("p", C.c_void_p), ("t", C.c_void_p)]


class _TensorMap(C.Structure):  # ph_tmap
    _fields_ = [
        ("base", C.c_void_p),
        ("t", C.c_void_p),
        ("dim", C.c_int * 2),
        ("box", C.c_int * 2),
        ("stride", C.c_uint64),
        ("item", C.c_int),
        ("swizzle", C.c_int),
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tensor:
    """A pointer argument. `init`: the kernel may read elements that it has not written."""

    name: str
    array: Array
    writable: bool = False
    init: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorMap:
    """A two-dimensional TMA tensor map over an array [rows, columns]; `box` = (columns, rows)."""

    name: str
    array: Array
    box: tuple[int, int]
    swizzle: bool = True


Argument = Tensor | TensorMap | bytes  # bytes: a value, as it lies in memory


@dataclass(frozen=True, kw_only=True)
class LaunchShape:
    """Grid, threads of a block, bytes of shared memory, and the smallest element size that touches it."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    granule: int = 1


class _Memory:
    """A bump allocator in one mapping shared with the child."""

    def __init__(self, size: int):
        self.map = mmap.mmap(-1, size)
        self.base = C.addressof(C.c_char.from_buffer(self.map))
        self.used = 0

    def take(self, size: int, align: int = 64, offset: int = 0) -> int:
        """Address of `size` zero bytes, congruent to `offset` modulo `align`."""
        self.used += (offset - (self.base + self.used)) % align
        address = self.base + self.used
        self.used += size
        if self.used > len(self.map):
            raise AssertionError("the shared mapping was sized too small")
        return address


def launch(
    library: Path,
    shape: LaunchShape,
    arguments: Sequence[Argument],
    *,
    sched: int,
    check: bool,
    workers: int,
    timeout: float,
    record: bool = False,
) -> EmulatorResult:
    """Runs `ph_entry` of `library` over the grid and writes the results into the arrays of writable tensors.

    Raises LaunchError (PH0824) if no process can be started.
    """
    runtime = runtime_library()
    tensors = [a for a in arguments if not isinstance(a, bytes)]
    spans = [_byte_span(t.array) for t in tensors]
    regions = _merge(spans)
    masks = [_members(t.array, span) for t, span in zip(tensors, spans, strict=True)]
    size = C.sizeof(_Job) + 1024 * (len(arguments) + 4) + sum(m.size + 64 for m in masks if m is not None)
    memory = _Memory(size + sum(hi - lo + 512 for lo, hi in regions))

    job = _Job.from_address(memory.take(C.sizeof(_Job)))
    region_of = [next(i for i, (lo, hi) in enumerate(regions) if lo <= span[0] and span[1] <= hi) for span in spans]
    moved = []  # new address minus old address
    region_table = (_Region * len(regions)).from_address(memory.take(C.sizeof(_Region) * len(regions)))
    for i, (lo, hi) in enumerate(regions):
        inside = [t for t, r in zip(tensors, region_of, strict=True) if r == i]
        address = memory.take(hi - lo, 256, lo)  # a misaligned array stays misaligned
        C.memmove(address, lo, hi - lo)
        moved.append(address - lo)
        region_table[i].base = address
        region_table[i].bytes = hi - lo
        region_table[i].granule = min(t.array.itemsize for t in inside)
        region_table[i].shadowed = any(isinstance(t, Tensor) and t.writable for t in inside)
        region_table[i].init = any(isinstance(t, TensorMap) or t.init for t in inside)
    tensor_table = (_Tensor * len(tensors)).from_address(memory.take(C.sizeof(_Tensor) * max(1, len(tensors))))
    for i, (t, (lo, hi), mask) in enumerate(zip(tensors, spans, masks, strict=True)):
        entry = tensor_table[i]
        entry.base = lo + moved[region_of[i]]
        entry.bytes = hi - lo
        entry.item = t.array.itemsize
        entry.writable = isinstance(t, Tensor) and t.writable
        entry.region = region_of[i]
        entry.index = i
        entry.name = t.name.encode()[:63]
        if mask is not None:
            entry.member = at = memory.take(mask.size)
            C.memmove(at, mask.ctypes.data, mask.size)

    pointers = (C.c_void_p * len(arguments)).from_address(memory.take(8 * max(1, len(arguments))))
    k = 0
    for i, a in enumerate(arguments):
        if isinstance(a, bytes):
            value = a
        else:
            first = a.array.ctypes.data + moved[region_of[k]]
            value = bytes(_argument_value(a, first, C.addressof(tensor_table[k])))
            k += 1
        pointers[i] = at = memory.take(len(value), 16)
        C.memmove(at, value, len(value))

    loaded = C.CDLL(str(library))
    job.call = C.cast(loaded.ph_entry, C.c_void_p).value
    job.args = C.addressof(pointers)
    job.grid[:] = shape.grid
    job.threads = shape.threads
    job.shared_bytes = shape.shared_bytes
    job.workers = max(1, min(workers, MAX_WORKERS, shape.grid[0] * shape.grid[1] * shape.grid[2]))
    job.check = check
    job.shift = {1: 0, 2: 1}.get(shape.granule, 2)
    job.sched = sched
    job.n_tensors, job.n_regions = len(tensors), len(regions)
    job.tensors, job.regions = C.addressof(tensor_table), C.addressof(region_table)
    with tempfile.TemporaryFile() as records, tempfile.TemporaryFile() as printed:
        job.record_fd = records.fileno() if record else -1
        job.print_fd = printed.fileno()
        start = time.perf_counter()
        pid = runtime.ph_start(C.addressof(job))
        if pid < 0:
            raise LaunchError(Diagnostic(code="PH0824", message="the emulator cannot start a process (fork failed)"))
        status = _wait(pid, timeout)
        seconds = time.perf_counter() - start
        accesses = _read_records(records) if record else None
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    _unload(loaded)

    for t, r in zip(tensors, region_of, strict=True):
        if isinstance(t, Tensor) and t.writable and t.array.size:
            first = t.array.ctypes.data + moved[r] - memory.base
            t.array[...] = np.ndarray(t.array.shape, t.array.dtype, memory.map, first, t.array.strides)
    reports = _reports(job, status, timeout)
    unwritten = {t.name: tensor_table[i].unwritten for i, t in enumerate(tensors) if tensor_table[i].writable}
    total = max(job.report.total, len(reports))
    return EmulatorResult(
        reports=reports, unwritten=unwritten, seconds=seconds, output=output, total=total, accesses=accesses
    )


def _byte_span(array: Array) -> tuple[int, int]:
    """First and past-the-last byte address of an array's elements."""
    lo = hi = array.ctypes.data
    if array.size == 0:
        return lo, lo
    for extent, stride in zip(array.shape, array.strides, strict=True):
        lo, hi = lo + min(0, (extent - 1) * stride), hi + max(0, (extent - 1) * stride)
    return lo, hi + array.itemsize


def _merge(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint stretches that cover the spans: arrays that overlap share one."""
    out: list[tuple[int, int]] = []
    for lo, hi in sorted(spans):
        if out and lo < out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], hi))
        elif not out or (lo, hi) != out[-1]:
            out.append((lo, hi))
    return out


def _members(array: Array, span: tuple[int, int]) -> npt.NDArray[np.uint8] | None:
    """For an array with gaps: one byte for each element-sized place of its span, 1 where an element is. Else None."""
    lo, hi = span
    item = array.itemsize
    if array.size == 0 or (hi - lo) == array.size * item or any(s % item for s in array.strides):
        return None
    mask = np.zeros((hi - lo) // item, np.uint8)
    first = (array.ctypes.data - lo) // item
    np.ndarray(array.shape, np.uint8, mask.data, first, tuple(s // item for s in array.strides))[...] = 1
    return mask


def _argument_value(a: Tensor | TensorMap, address: int, tensor: int) -> C.Structure:
    if isinstance(a, Tensor):
        return _Pointer(address, tensor)
    rows, columns = a.array.shape
    return _TensorMap(
        address,
        tensor,
        (C.c_int * 2)(columns, rows),
        (C.c_int * 2)(*a.box),
        a.array.strides[0],
        a.array.itemsize,
        a.swizzle,
    )


def _wait(pid: int, timeout: float) -> int | None:
    """The wait status of the child, or None if it was killed for taking longer than `timeout` seconds."""
    deadline = time.monotonic() + timeout
    delay = 0.0002
    try:
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            if time.monotonic() > deadline:
                return None
            time.sleep(delay)
            delay = min(delay * 1.3, 0.01)
    finally:
        # After a timeout or an interrupt from the keyboard the child must not stay.
        if not _is_gone(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _read_records(file: IO[bytes]) -> Array:
    file.seek(0)
    data = file.read()
    return np.frombuffer(data[: len(data) - len(data) % ACCESS_DTYPE.itemsize], ACCESS_DTYPE).copy()


def _unload(library: C.CDLL) -> None:
    """A test run launches thousands of kernels; none stays mapped."""
    import _ctypes

    _ctypes.dlclose(library._handle)


def _reports(job: _Job, status: int | None, timeout: float) -> tuple[EmulatorReport, ...]:
    found = [
        EmulatorReport(
            kind=e.kind.decode(), line=e.line, line2=e.line2, count=e.count, text=e.text.decode(errors="replace")
        )
        for e in job.report.entries[: job.report.n]
    ]
    if status is None:
        found.append(_stopped(job, "timeout", f"the launch did not end within {timeout:g} s"))
    elif not job.finished:
        found.append(_stopped(job, "crash", _crash_reason(job, status)))
    return tuple(found)


def _crash_reason(job: _Job, status: int) -> str:
    if any(p.stack_overflow for p in job.progress):
        return "stack overflow: the local arrays of a thread take more than 256 KiB"
    if not os.WIFSIGNALED(status):
        return f"the process of the launch ended with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    reasons = {signal.SIGFPE: "integer division by zero", signal.SIGKILL: "killed, perhaps for lack of memory"}
    text = reasons.get(signal.Signals(number), "the kernel text crashed")
    return f"{text} ({signal.Signals(number).name})"


def _stopped(job: _Job, kind: str, reason: str) -> EmulatorReport:
    """A report on what the workers were doing when the process ended."""
    working = [p for p in job.progress if p.running]
    # A worker that overflowed its stack is the one to name.
    working.sort(key=lambda p: -p.stack_overflow)
    places = [
        f"thread {p.thread} of block ({p.block[0]},{p.block[1]},{p.block[2]}), last at line {p.line}" for p in working
    ]
    text = f"{reason}; {'; '.join(places)}" if places else reason
    return EmulatorReport(kind=kind, line=working[0].line if working else 0, line2=0, count=1, text=text)
