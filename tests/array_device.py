"""A device for kbench that is made of NumPy arrays, and small cases for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbench.bench import Bench, Tensor
from kbench.benches import get_bench
from kbench.device import BF16_NAN, bf16_to_float64, random_array
from kbench.protocol import Call
from kbench.roofline import DeviceInfo

INFO = DeviceInfo(
    name="test device", capability=(9, 0), sm_count=1, clock_hz=1e9, l2_bytes=1 << 20, driver="580", cuda="13.0"
)


class ArrayDevice:
    """NumPy arrays, bf16 as bits; every call takes 100 us."""

    info = INFO
    backend = "reference"
    torch: Any = None
    xp: Any = np

    def random(self, spec: Tensor, seed: int) -> Any:
        return random_array(spec, seed)

    def clone(self, buffer: Any) -> Any:
        return buffer.copy()

    def poison(self, buffer: Any) -> None:
        buffer.fill(BF16_NAN if buffer.dtype == np.uint16 else np.nan)

    def float64(self, buffer: Any) -> Any:
        return bf16_to_float64(buffer) if buffer.dtype == np.uint16 else buffer.astype(np.float64)

    def copy_call(self, bytes_moved: int) -> Call:
        return lambda: None

    def finish(self) -> None:
        return None

    def elapsed(self, calls: Sequence[Call]) -> float:
        for call in calls:
            call()
        return 100e-6 * len(calls)

    def capture(self, calls: Sequence[Call]) -> Call | None:
        return None


def small(name: str) -> tuple[Bench, Any]:
    bench = get_bench(name)
    return bench, bench.host_cases({})[0]
