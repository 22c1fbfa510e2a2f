"""Parts of the JSON trace: arrays, layouts, buffers, accesses, each stored once and named by number. FORMAT.md says
what the fields mean."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir.storage import Buffer
from phobos.layout.register import Digit, RegisterLayout
from phobos.trace.accesses import Log, Site, by_warp, cost

Json = dict[str, Any]


class Table:
    """Different items in order; `number` gives an item's place and adds it where it is new."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self.items: list[Any] = []
        self._places: dict[Hashable, int] = {}
        self._count = count

    def number(self, key: Hashable, item: Any, size: int) -> int:
        """`size`: about how many characters the item takes as JSON."""
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.items)
            self.items.append(item)
            self._count(size)
        return found


_TYPES = {"f": "f4", "i": "i4", "u": "i4", "b": "u1"}


def _packed(values: np.ndarray) -> tuple[str, np.ndarray]:
    """Element type of the format, and the values in it: f4 (also for narrower floats), f8, i4, u1 (bool)."""
    kind = values.dtype.kind
    if kind == "f" and values.dtype.itemsize == 8:
        return "f8", values.astype("<f8")
    if kind in "iu" and values.size and (values.max() > 2**31 - 1 or values.min() < -(2**31)):
        return "f8", values.astype("<f8")
    code = _TYPES[kind]
    return code, values.astype("<" + code)


class Encoder:
    """Collects what several steps share. `most`: how many bytes the trace may have as JSON, about."""

    def __init__(self, most: float = math.inf) -> None:
        self.most, self.size = most, 0
        self.data, self.layouts, self.patterns, self.accesses = (Table(self.count) for _ in range(4))
        self._costs: dict[tuple[Site, int, int], tuple[int, int] | None] = {}

    def count(self, size: int) -> None:
        """Adds to the size of the trace. Raises LaunchError PH1020 where that is too much."""
        self.size += size
        if self.size > self.most:
            raise LaunchError(
                Diagnostic(
                    code="PH1020",
                    message=f"the trace of this run has more than {self.most / 1e6:.4g} MB, too much for one page",
                    help="choose smaller dims or tiles, or allow more: `--max-size MB`, in Python `max_size=MB`",
                )
            )

    def array(self, values: np.ndarray) -> int:
        """Number of an array in `data`."""
        code, packed = _packed(np.asarray(values))
        raw = packed.tobytes()
        key = (code, packed.shape, raw)
        item = {"type": code, "shape": list(packed.shape), "base64": base64.b64encode(raw).decode("ascii")}
        return self.data.number(key, item, len(item["base64"]) + 50)

    def layout(self, layout: RegisterLayout) -> int:
        def digits(found: tuple[Digit, ...]) -> list[list[int | None]]:
            return [[d.axis, d.extent, d.stride] for d in found]

        item = {
            "shape": list(layout.shape), "registers": layout.registers, "text": str(layout),
            "reg": digits(layout.reg), "lane": digits(layout.lane), "warp": digits(layout.warp),
        }  # fmt: skip
        return self.layouts.number(layout, item, 300)

    def log(self, log: Log) -> list[int]:
        """Numbers in `accesses`, one for each site of the statement."""
        sites: dict[Site, list[list[int | None]]] = {}
        for request in log.requests:
            rows = sites.setdefault(request.site, [])
            for warp, offsets in by_warp(request):
                base = min(a for a in offsets if a >= 0)
                pattern = tuple(a - base if a >= 0 else -1 for a in offsets)
                number = self.patterns.number(pattern, list(pattern), 150)
                # Lines and banks repeat after 128 bytes.
                key = (request.site, number, base % 128)
                if key not in self._costs:
                    found = cost(request.site, offsets)
                    self._costs[key] = None if found is None else (found.count, found.ideal)
                count, ideal = self._costs[key] or (None, None)
                rows.append([warp, number, base, count, ideal])
        out = []
        for site, rows in sites.items():
            item = {
                "memory": site.memory, "name": site.name, "write": site.write, "size": site.size, "kind": site.kind,
                "requests": rows,
            }  # fmt: skip
            out.append(self.accesses.number((site, tuple(map(tuple, rows))), item, 100 + 20 * len(rows)))
        return out


def buffer_json(buffer: Buffer, offset: int) -> Json:
    layout = buffer.layout
    return {
        "name": buffer.name, "dtype": str(buffer.dtype), "shape": list(layout.shape), "order": list(layout.order),
        "pitch": layout.pitch, "swizzle": layout.swizzle, "itemsize": layout.itemsize, "offset": offset,
        "bytes": buffer.bytes, "stages": buffer.stages, "stage_bytes": buffer.stage_bytes,
    }  # fmt: skip
