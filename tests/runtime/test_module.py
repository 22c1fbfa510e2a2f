"""Driver, devices and function loading over a fake driver; the real driver library where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phobos.diagnostics import CompileError, LaunchError
from phobos.runtime import module, nvrtc
from phobos.runtime.module import Driver, load_function

from .fakes import FakeApi

ROOT = Path(__file__).resolve().parents[2]


def binary(static: int = 0) -> nvrtc.Binary:
    return nvrtc.Binary(
        cubin=b"cubin", ptx="", log="", entry="k", registers=32, spill_bytes=0, stack_bytes=0,
        static_shared_bytes=static, warnings=(), seconds=0.0,
    )  # fmt: skip


def code_of(info: pytest.ExceptionInfo[LaunchError]) -> str:
    (found,) = info.value.diagnostics
    return found.code


def test_device_facts() -> None:
    driver = Driver(FakeApi(capability=(8, 6), shared=101376))
    device = driver.device(0)
    assert (device.name, device.capability, device.shared_per_block) == ("Fake GPU", (8, 6), 101376)
    assert device.target.arch == "sm_86"
    assert Driver(FakeApi(capability=(8, 7))).device(0).target.arch == "sm_86"
    with pytest.raises(CompileError, match="7.0"):
        _ = Driver(FakeApi(capability=(7, 0))).device(0).target
    with pytest.raises(LaunchError) as info:
        driver.device(1)
    assert code_of(info) == "PH0921"


def test_driver_errors_carry_name_and_text() -> None:
    driver = Driver(FakeApi(fail={"cuMemAlloc": [2]}))
    with pytest.raises(LaunchError) as info:
        driver.allocate(100)
    assert code_of(info) == "PH0730"
    assert "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (text of error 2)" in str(info.value)


@pytest.mark.parametrize("status, code", [(100, "PH0921"), (1, "PH0922")])
def test_init_errors(status: int, code: str) -> None:
    with pytest.raises(LaunchError) as info:
        Driver(FakeApi(fail={"cuInit": [status]}))
    assert code_of(info) == code


def test_contexts_are_pushed_and_popped() -> None:
    api = FakeApi(devices=2)
    driver = Driver(api)
    assert driver.current_device() == 0
    with driver.current(1):
        assert driver.current_device() == 1
        with pytest.raises(LaunchError), driver.current(0):
            assert api.contexts == [0x1001, 0x1000]
            raise module._no_device()
        assert api.contexts == [0x1001]
    assert api.contexts == []
    assert len(api.named("cuDevicePrimaryCtxRetain")) == 2
    with driver.current(1):
        pass
    assert len(api.named("cuDevicePrimaryCtxRetain")) == 2


@pytest.mark.parametrize(
    "dynamic, static, attribute",
    [(0, 49152, None), (49152, 0, None), (49153, 0, 49153), (200000, 0, 200000), (40000, 16384, 40000)],
)
def test_large_dynamic_shared_memory_is_asked_for(dynamic: int, static: int, attribute: int | None) -> None:
    api = FakeApi()
    function = load_function(Driver(api), 0, binary(static), dynamic_shared=dynamic)
    assert api.loaded == [b"cubin"] and function.max_threads == 1024 and function.registers == 32
    asked = api.named("cuFuncSetAttribute")
    assert asked == ([] if attribute is None else [("cuFuncSetAttribute", function.handle, 8, attribute)])
    assert api.contexts == []


def test_too_much_shared_memory() -> None:
    with pytest.raises(LaunchError) as info:
        load_function(Driver(FakeApi(shared=101376)), 0, binary(), dynamic_shared=101377)
    assert code_of(info) == "PH0719"
    assert "101377" in str(info.value) and "101376" in str(info.value)


def test_refused_cubin() -> None:
    with pytest.raises(LaunchError) as info:
        load_function(Driver(FakeApi(fail={"cuModuleLoadData": [209]})), 0, binary(), dynamic_shared=0)
    assert code_of(info) == "PH0731"
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in str(info.value) and "'k'" in str(info.value)


def test_injected_driver_counts_as_a_device(no_driver: None) -> None:
    fake = Driver(FakeApi())
    assert module.use_driver(fake) is None
    assert module.device_available() and module.get_driver() is fake


def test_no_library(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(module, "_driver_library_loads", lambda: bool(calls.append(1)))
    assert not module.device_available()
    for _ in range(2):
        with pytest.raises(LaunchError) as info:
            module.get_driver()
        assert code_of(info) == "PH0920" and "backend 'reference'" in str(info.value)
    assert len(calls) == 1  # looked for once


def test_no_bindings(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_driver_library_loads", lambda: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(LaunchError) as info:
        module.get_driver()
    assert code_of(info) == "PH0920" and "pip install 'cuda-bindings" in str(info.value)


def test_asking_for_a_device_is_cheap_without_one() -> None:
    """In a process of its own: no traceback, no cuda-bindings import."""
    text = (
        "import sys; from phobos.runtime.module import device_available as d; x = d();"
        "print(x in (True, False), x or not any(m.startswith('cuda') for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")
