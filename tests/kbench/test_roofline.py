"""Peaks against the figures that NVIDIA publishes."""

from __future__ import annotations

import pytest

from kbench.roofline import DeviceInfo, attainable_flops, device_peaks


def info(name: str, capability: tuple[int, int], sms: int, mhz: float) -> DeviceInfo:
    return DeviceInfo(name=name, capability=capability, sm_count=sms, clock_hz=mhz * 1e6, l2_bytes=0)


@pytest.mark.parametrize(
    "device, unit, tflops",
    [
        # Data sheets: H100 SXM (at 1830 MHz under tensor load, 1980 for f32), A100, RTX 4090, RTX 2080 SUPER, T4, L40S.
        (info("NVIDIA H200", (9, 0), 132, 1980), "fp32", 66.9),
        (info("NVIDIA H200", (9, 0), 132, 1830), "fp16tcf32acc", 989.4),
        (info("NVIDIA H200", (9, 0), 132, 1830), "tf32tc", 494.7),
        (info("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410), "fp32", 19.5),
        (info("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410), "fp16tcf32acc", 312.0),
        (info("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520), "fp32", 82.6),
        (info("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520), "fp16tc", 330.3),
        (info("NVIDIA GeForce RTX 4090", (8, 9), 128, 2520), "fp16tcf32acc", 165.2),
        (info("NVIDIA GeForce RTX 2080 SUPER", (7, 5), 48, 1815), "fp32", 11.15),
        (info("Tesla T4", (7, 5), 40, 1590), "fp16tcf32acc", 65.1),
        (info("NVIDIA L40S", (8, 9), 142, 2520), "fp16tcf32acc", 366.4),
    ],
)
def test_published_peaks(device: DeviceInfo, unit: str, tflops: float) -> None:
    assert device_peaks(device).of(unit) == pytest.approx(tflops * 1e12, rel=5e-3)


def test_the_seed_is_rated_as_it_says() -> None:
    """5.5 TFLOP/s on an RTX 2080 SUPER is 48 % of its f32 peak (to within its clock)."""
    peak = device_peaks(info("NVIDIA GeForce RTX 2080 SUPER", (7, 5), 48, 1860)).of("fp32")
    assert peak is not None
    assert 100 * 5.5e12 / peak == pytest.approx(48, abs=1)


def test_overrides_win() -> None:
    peaks = device_peaks(info("NVIDIA H200", (9, 0), 132, 1980), {"fp32": 60.0}, copy_bytes=4e12)
    assert peaks.of("fp32") == 60e12
    assert peaks.of("tf32tc") == pytest.approx(535.3e12, rel=1e-3)
    assert peaks.copy_bytes == 4e12
    with pytest.raises(ValueError, match="unknown unit"):
        device_peaks(info("NVIDIA H200", (9, 0), 132, 1980), {"fp23": 60.0})


def test_unknown_capabilities() -> None:
    assert device_peaks(info("new", (13, 0), 100, 1000)).flops == {}
    assert device_peaks(info("new", (13, 0), 100, 1000), {"fp32": 1.0}).of("fp32") == 1e12
    orin = device_peaks(info("Orin", (8, 7), 16, 1000))  # takes the row of 8.6
    assert orin.of("fp32") == pytest.approx(16 * 256 * 1e9)


def test_units_that_a_card_lacks() -> None:
    assert device_peaks(info("Tesla T4", (7, 5), 40, 1590)).of("tf32tc") is None


def test_roofline() -> None:
    assert attainable_flops(60e12, 4e12, 1 / 6) == pytest.approx(4e12 / 6)
    assert attainable_flops(60e12, 4e12, 100.0) == 60e12
    assert attainable_flops(60e12, None, 100.0) == 60e12
    assert attainable_flops(None, None, 1.0) is None
