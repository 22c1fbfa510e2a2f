"""The `run` parameter of conformance tests: the emulator in all schedules, and the GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from emulator.support import Shape, Value, describe, emulate, gpu_arch, run_cuda

Run = Callable[..., None]


def on_emulator(text: str, name: str, shape: Shape, arguments: Sequence[Value], *, sched: int = 0) -> None:
    result = emulate(text, name, shape, arguments, sched=sched)
    assert not result.reports, describe(result)
    assert not any(result.unwritten.values()), result.unwritten


def on_gpu(text: str, name: str, shape: Shape, arguments: Sequence[Value], *, sched: int = 0) -> None:
    if gpu_arch() is None:
        pytest.skip("no CUDA device")
    run_cuda(text, name, shape, arguments)


executors = pytest.mark.parametrize(
    "run", [pytest.param(on_emulator, id="emulator"), pytest.param(on_gpu, id="gpu", marks=pytest.mark.gpu)]
)
