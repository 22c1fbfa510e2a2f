"""kbench on a real device: every bench at its quick sizes, verified and timed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kbench.bench import Tensor
from kbench.benches import NAMES
from kbench.device import DeviceArray, DriverDevice, bf16_to_float64, open_device, random_array
from phobos.cli import cli
from phobos.runtime.module import device_available, get_driver

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not device_available(), reason="no CUDA device")]


@pytest.mark.parametrize("name", NAMES)
def test_quick(name: str) -> None:
    result = CliRunner().invoke(cli, ["kbench", "--quick", "--bench", name, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert rows and all(r["median_us"] > 0 and r["rel_l2"] < 1e-2 for r in rows)
    assert all(r["min_us"] <= r["median_us"] <= r["max_us"] for r in rows)
    assert all(r["pct_of_peak"] > 0 for r in rows)
    if name != "flash_fp32":  # on tensor cores, rated by the f32 peak
        assert all(r["pct_of_peak"] < 110 for r in rows)


def test_without_torch() -> None:
    """The driver alone: memory, events and a copy at a rate that a GPU can have."""
    device = DriverDevice(get_driver())
    call = device.copy_call(2 << 28)
    device.elapsed([call] * 3)
    seconds = device.elapsed([call] * 10) / 10
    assert 20e9 < (2 << 28) / seconds < 20e12
    assert device.info.sm_count > 0 and device.info.clock_hz > 1e8 and device.info.l2_bytes > 1 << 16


def test_buffers() -> None:
    import numpy as np

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = DeviceArray(get_driver(), array)
    np.testing.assert_array_equal(buffer.read(), array)
    driver = DriverDevice(get_driver())
    spec = Tensor(shape=(100,), dtype="bf16")
    bits = driver.random(spec, 3)
    np.testing.assert_array_equal(driver.float64(driver.clone(bits)), bf16_to_float64(random_array(spec, 3)))
    driver.poison(bits)
    assert np.isnan(driver.float64(bits)).all()
    assert open_device().info.name
