"""Host arrays on a device: copied in before a launch, written ones copied back after it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phobos.ir.types import DType
from phobos.runtime.arguments import CARRIER, ArrayView
from phobos.runtime.module import Driver


@dataclass(frozen=True, kw_only=True)
class _Region:
    """Device memory for arrays that share host memory. `low` is the host address of its first byte."""

    names: tuple[str, ...]
    low: int
    size: int


def _regions(views: Mapping[str, ArrayView], dtypes: Mapping[str, DType]) -> list[_Region]:
    """Groups of arrays whose byte ranges overlap, the same array passed twice included."""
    ranges = sorted((*views[name].byte_range(dtypes[name].bytes), name) for name in views)
    out: list[_Region] = []
    names: list[str] = []
    low = high = 0
    for lo, hi, name in ranges:
        if names and lo < high:
            names.append(name)
            high = max(high, hi)
            continue
        if names:
            out.append(_Region(names=tuple(names), low=low, size=high - low))
        names, low, high = [name], lo, hi
    if names:
        out.append(_Region(names=tuple(names), low=low, size=high - low))
    return out


class HostCopies:
    """Device copies of host arrays, on the current context of `driver`.

    An array that overlaps no other is copied compactly (row-major, whatever its strides are). Overlapping ones keep
    their layout in one common region, so that the kernel sees the same aliasing. `views` are what to launch with.
    """

    def __init__(self, driver: Driver, views: Mapping[str, ArrayView], dtypes: Mapping[str, DType]):
        self._driver = driver
        self._host = dict(views)
        self._dtypes = dict(dtypes)
        self._regions = _regions(views, dtypes)
        self._memory: list[int] = []
        self.views: dict[str, ArrayView] = {}
        try:
            for region in self._regions:
                self._upload(region)
        except BaseException:
            self.free()
            raise

    def _upload(self, region: _Region) -> None:
        if len(region.names) == 1:
            (name,) = region.names
            compact = np.ascontiguousarray(self._host[name].host)
            pointer = self._new(compact.nbytes)
            self._driver.copy_in(pointer, compact.ctypes.data, compact.nbytes)
            strides = tuple(s // compact.itemsize for s in compact.strides)
            self.views[name] = self._device_view(name, pointer, strides)
            return
        pointer = self._new(region.size)
        self._driver.copy_in(pointer, region.low, region.size)
        for name in region.names:
            view = self._host[name]
            self.views[name] = self._device_view(name, pointer + (view.pointer - region.low), view.strides)

    def _device_view(self, name: str, pointer: int, strides: tuple[int, ...]) -> ArrayView:
        view = self._host[name]
        return ArrayView(
            pointer=pointer, shape=view.shape, strides=strides, dtype=view.dtype, dtype_name=view.dtype_name,
            device=None, readonly=view.readonly,
        )  # fmt: skip

    def _new(self, size: int) -> int:
        pointer = self._driver.allocate(size)
        self._memory.append(pointer)
        return pointer

    def download(self, written: Iterable[str]) -> None:
        """Copy the written arrays back; the work that writes them must be done."""
        wanted = set(written)
        for region, pointer in zip(self._regions, self._memory, strict=True):
            names = [name for name in region.names if name in wanted]
            if not names or region.size == 0:
                continue
            if len(region.names) == 1:
                self._download_compact(names[0], pointer)
                continue
            raw = np.empty(region.size, np.uint8)
            self._driver.copy_out(raw.ctypes.data, pointer, region.size)
            for name in names:
                view = self._host[name]
                item = np.dtype(CARRIER[self._dtypes[name]])
                shadow: Any = np.ndarray(
                    view.shape,
                    item,
                    buffer=raw,
                    offset=view.pointer - region.low,
                    strides=tuple(s * item.itemsize for s in view.strides),
                )
                view.host[...] = shadow.view(view.host.dtype)

    def _download_compact(self, name: str, pointer: int) -> None:
        host = self._host[name].host
        if host.flags.c_contiguous and host.flags.aligned:
            self._driver.copy_out(host.ctypes.data, pointer, host.nbytes)
            return
        compact = np.empty(host.shape, host.dtype)
        self._driver.copy_out(compact.ctypes.data, pointer, math.prod(host.shape) * host.itemsize)
        host[...] = compact

    def free(self) -> None:
        while self._memory:
            self._driver.free(self._memory.pop())
