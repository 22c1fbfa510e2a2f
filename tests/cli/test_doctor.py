"""`phobos doctor`: each line says what is there or what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from phobos import doctor
from phobos.cli import cli
from phobos.diagnostics import CompileError, Diagnostic
from phobos.doctor import MISSING, OK, PROBLEM, Check
from phobos.runtime import module, nvrtc


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {c.name: c for c in checks}


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise module.LaunchError(Diagnostic(code="PH0920", message="no CUDA driver on this machine"))

    monkeypatch.setattr(module, "get_driver", fail)


@pytest.mark.usefixtures("no_driver")
def test_without_a_gpu_all_that_is_essential_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    (tmp_path / "entry").write_bytes(b"x" * 2_500_000)
    found = CliRunner().invoke(cli, ["doctor"])
    assert found.exit_code == 0
    lines = {line.split()[1]: line for line in found.stdout.splitlines() if not line.startswith(" ")}
    for name in ("python", "lark", "numpy", "click", "jinja2", "nvrtc", "grammar"):
        assert lines[name].startswith("ok "), lines[name]
    assert lines["driver"].startswith("missing") and "no CUDA driver" in lines["driver"]
    assert "1 files, 2.5 MB" in lines["cache"]


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path / "new"))
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    assert found["version"] == 1 and found["ok"] is True
    checks = {c["name"]: c for c in found["checks"]}
    assert set(checks["cache"]) == {"name", "state", "detail", "advice", "essential"}
    assert checks["cache"]["state"] == OK and not (tmp_path / "new").exists()


def test_a_missing_compiler_is_not_essential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CXX", "no-such-compiler")
    checks = doctor.examine()
    found = by_name(checks)["c++"]
    assert found.state == MISSING and "no-such-compiler" in found.detail and "PHOBOS_CXX" in str(found.advice)
    assert doctor.usable(checks)


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CXX", "false")
    assert by_name(doctor.examine())["c++"].state == PROBLEM


def test_a_missing_nvrtc_is_essential(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise CompileError(Diagnostic(code="PH0910", message="NVRTC is not installed", help="pip install it"))

    monkeypatch.setattr(nvrtc, "load_library", fail)
    found = CliRunner().invoke(cli, ["doctor"])
    assert found.exit_code == 1
    assert "missing  nvrtc" in found.stdout and "-> pip install it" in found.stdout


def test_an_unwritable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    found = by_name(doctor.examine())["cache"]
    assert found.state == PROBLEM and "PHOBOS_CACHE_DIR" in str(found.advice)
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    assert by_name(doctor.examine())["cache"].state == OK


class FakeApi:
    """As much of the driver interface as the doctor asks for."""

    def __init__(self, version: int, capability: tuple[int, int]):
        self.version = version
        values = {"COMPUTE_CAPABILITY_MAJOR": capability[0], "COMPUTE_CAPABILITY_MINOR": capability[1]}
        values |= {"MULTIPROCESSOR_COUNT": 132, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448}
        self.CUdevice_attribute = type("A", (), {f"CU_DEVICE_ATTRIBUTE_{k}": v for k, v in values.items()})

    def cuInit(self, flags: int) -> tuple[int]:
        return (0,)

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.version

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, 1

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, size: int, handle: int) -> tuple[int, bytes]:
        return 0, b"NVIDIA H200\0\0"

    def cuDeviceGetAttribute(self, value: int, handle: int) -> tuple[int, int]:
        return 0, value


@pytest.mark.parametrize(
    "version, capability, states",
    [(13000, (9, 0), (OK, OK)), (12080, (9, 0), (PROBLEM, OK)), (13010, (7, 0), (OK, PROBLEM))],
)
def test_devices(version: int, capability: tuple[int, int], states: tuple[str, str]) -> None:
    before = module.use_driver(module.Driver(FakeApi(version, capability)))
    try:
        found = by_name(doctor.examine())
    finally:
        module.use_driver(before)
    assert (found["driver"].state, found["device 0"].state) == states
    assert "NVIDIA H200" in found["device 0"].detail and "132 SMs" in found["device 0"].detail
    assert f"CUDA {version // 1000}." in found["driver"].detail
