"""Peaks of a device: floating-point operations per clock and SM by compute capability, times SMs, times clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# FP32 FMA; dense tensor-core products of f16 with f16 sums, of f16 or bf16 with f32 sums, and of tf32.
UNITS = ("fp32", "fp16tc", "fp16tcf32acc", "tf32tc")


@dataclass(frozen=True, kw_only=True)
class PerClock:
    """FLOP per clock and SM (an FMA counts as 2), from NVIDIA's architecture white papers.

    `geforce_halved`: units that run at half of this rate on GeForce cards.
    """

    fp32: int
    fp16tc: int
    fp16tcf32acc: int
    tf32tc: int
    geforce_halved: tuple[str, ...] = ()


_PER_CLOCK: dict[tuple[int, int], PerClock] = {
    (7, 5): PerClock(fp32=128, fp16tc=1024, fp16tcf32acc=1024, tf32tc=0, geforce_halved=("fp16tcf32acc",)),
    (8, 0): PerClock(fp32=128, fp16tc=2048, fp16tcf32acc=2048, tf32tc=1024),
    (8, 6): PerClock(fp32=256, fp16tc=1024, fp16tcf32acc=1024, tf32tc=512, geforce_halved=("fp16tcf32acc", "tf32tc")),
    (8, 9): PerClock(fp32=256, fp16tc=1024, fp16tcf32acc=1024, tf32tc=512, geforce_halved=("fp16tcf32acc", "tf32tc")),
    (9, 0): PerClock(fp32=256, fp16tc=4096, fp16tcf32acc=4096, tf32tc=2048),
    (10, 0): PerClock(fp32=256, fp16tc=8192, fp16tcf32acc=8192, tf32tc=4096),
    (12, 0): PerClock(fp32=256, fp16tc=1024, fp16tcf32acc=1024, tf32tc=512, geforce_halved=("fp16tcf32acc", "tf32tc")),
}


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """What rating and results need of a device. `clock_hz` is the highest clock that the driver names."""

    name: str
    capability: tuple[int, int]
    sm_count: int
    clock_hz: float
    l2_bytes: int
    driver: str = ""
    cuda: str = ""
    torch: str = ""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Peak rates of a device: FLOP/s by unit (absent where unknown), and bytes/s as measured by a device copy."""

    flops: Mapping[str, float] = field(default_factory=dict)
    copy_bytes: float | None = None

    def of(self, unit: str) -> float | None:
        return self.flops.get(unit)


def device_peaks(
    info: DeviceInfo, overrides: Mapping[str, float] | None = None, copy_bytes: float | None = None
) -> Peaks:
    """The peaks of a device. `overrides` are in TFLOP/s by unit and win over the table.

    A capability that the table lacks takes the newest known one of the same major version; where there is none, only
    the overrides are known.
    """
    flops: dict[str, float] = {}
    row = _row(info.capability)
    if row is not None:
        geforce = "geforce" in info.name.lower()
        for unit in UNITS:
            rate = getattr(row, unit) / (2 if geforce and unit in row.geforce_halved else 1)
            if rate:
                flops[unit] = rate * info.sm_count * info.clock_hz
    for unit, tflops in (overrides or {}).items():
        if unit not in UNITS:
            raise ValueError(f"unknown unit {unit!r}; known: {', '.join(UNITS)}")
        flops[unit] = tflops * 1e12
    return Peaks(flops=flops, copy_bytes=copy_bytes)


def _row(capability: tuple[int, int]) -> PerClock | None:
    same_major = [c for c in _PER_CLOCK if c[0] == capability[0] and c <= capability]
    return _PER_CLOCK[max(same_major)] if same_major else None


def attainable_flops(peak_flops: float | None, copy_bytes: float | None, intensity: float) -> float | None:
    """The roofline: the smaller of the unit's peak and what the memory can feed at `intensity` FLOP per byte."""
    known = [x for x in (peak_flops, copy_bytes * intensity if copy_bytes else None) if x]
    return min(known) if known else None
