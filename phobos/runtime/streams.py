"""CUDA streams of every library as raw handles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.runtime.arguments import ArrayView


def stream_handle(stream: Any) -> int:
    """The raw handle of a stream of torch, CuPy, Numba, cuda.core or cuda.bindings, or of an integer handle.

    Raises LaunchError PH0722 for anything else.
    """
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream >= 0:
            return stream
    elif hasattr(stream, "__cuda_stream__"):  # the protocol of cuda.core: (version, handle)
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    else:
        for attribute in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba and cuda.core
            handle = getattr(stream, attribute, None)
            if handle is not None:
                value = getattr(handle, "value", handle)
                return int(value) if value is not None else 0
        if type(stream).__name__ in ("CUstream", "cudaStream_t"):
            return int(stream)
    raise LaunchError(
        Diagnostic(
            code="PH0722",
            message=f"stream={stream!r} is not a CUDA stream",
            help="pass a stream of torch, CuPy, Numba or cuda.core, or its handle as an integer",
        )
    )


def torch_current_stream(device: int) -> Callable[[], int] | None:
    """A function that gives torch's current stream on a device as a raw handle; None without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return partial(raw, device)
    return lambda: torch.cuda.current_stream(device).cuda_stream


def _default() -> int:
    return 0


def caller_stream(values: Iterable[Any], views: Iterable[ArrayView], device: int) -> Callable[[], int]:
    """Where a call without `stream=` goes: torch's current stream if a torch tensor is among the values, else the
    stream that an array asks to follow (CuPy: its current stream), else the default stream."""
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
        current = torch_current_stream(device)
        if current is not None:
            return current
    for view in views:
        if view.stream is not None:
            stream = int(view.stream)
            return lambda: stream
    return _default
