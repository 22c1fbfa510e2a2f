"""The build cache: two processes at once, keys, a missing or failing compiler, no cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phobos.diagnostics import CompileError
from phobos.emulator import build

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import numpy as np
from phobos.emulator.build import kernel_library, runtime_library
from phobos.emulator.launch import LaunchShape, Tensor, launch
text = "PH_KERNEL(32, 1) k(ph_global<int> Y) { Y[ph_tid()] = ph_tid(); }"
y = np.zeros(32, np.int32)
shape = LaunchShape(grid=(1, 1, 1), threads=32, shared_bytes=0)
tensor = Tensor(name="Y", array=y, writable=True, init=False)
result = launch(kernel_library(text, "k", check=True), shape, [tensor], sched=0, check=True, workers=1, timeout=20.0)
assert not result.reports and y.tolist() == list(range(32)), result
print("ok", runtime_library()._name)
"""
KERNEL = "PH_KERNEL(32, 1) k(ph_global<int> Y) { Y[ph_tid()] = ph_tid(); }"


@pytest.mark.slow
def test_two_processes_build_the_runtime_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PHOBOS_CACHE_DIR": str(tmp_path), "PHOBOS_NO_CACHE": "0"}
    command = [sys.executable, "-c", SCRIPT]
    both = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] and outputs[0][0].startswith("ok")
    names = sorted(p.name.split("_")[0] + p.suffix for p in (tmp_path / "emulator").iterdir())
    assert names == ["kernel.so", "runtime.lock", "runtime.so"]  # nothing half-built is left


def test_the_key_holds_text_check_and_optimisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    first = build.kernel_library(KERNEL, "k", check=True, opt="-O0")
    stamp = first.stat().st_ino
    assert build.kernel_library(KERNEL, "k", check=True, opt="-O0") == first and first.stat().st_ino == stamp
    others = {
        build.kernel_library(KERNEL, "k", check=False, opt="-O0"),
        build.kernel_library(KERNEL, "k", check=True, opt="-O1"),
        build.kernel_library(KERNEL + "\n", "k", check=True, opt="-O0"),
    }
    assert len(others | {first}) == 4 and first.parent == tmp_path / "emulator"


def test_no_cache_leaves_the_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    assert build.kernel_library(KERNEL, "k", check=True, opt="-O0").is_file()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compiler", ("/nonexistent/g++", "/", "false"))
def test_a_missing_compiler_is_a_diagnostic(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PHOBOS_CXX", compiler)
    with pytest.raises(CompileError) as error:
        build.kernel_library(KERNEL, "k", check=True)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "PH0940" and repr(compiler) in diagnostic.message and "PHOBOS_CXX" in str(diagnostic.help)


def test_a_compiler_that_lacks_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old-g++"
    old.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'g++ 9' && exit 0\n"
        "echo \"g++: error: unrecognized command-line option '-ftrivial-auto-var-init=pattern'\" >&2\nexit 1\n"
    )
    old.chmod(0o755)
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PHOBOS_CXX", str(old))
    with pytest.raises(CompileError, match="too old") as error:
        build.kernel_library(KERNEL, "k", check=True)
    assert error.value.diagnostics[0].code == "PH0940" and "12 or newer" in str(error.value.diagnostics[0].help)


def test_a_text_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    with pytest.raises(CompileError) as error:
        build.kernel_library('#line 7 "bad.ph"\n' + KERNEL.replace("ph_tid()]", "missing]"), "k", check=True)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "PH0941" and "kernel 'k'" in diagnostic.message
    assert any("bad.ph:7" in note and "missing" in note for note in diagnostic.notes)
    assert list((tmp_path / "emulator").iterdir()) == []


def test_a_store_through_a_pointer_to_const_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    text = "PH_KERNEL(32, 1) k(ph_global<const int> Y) { Y[ph_tid()] = 1; }"
    with pytest.raises(CompileError, match="pointer to const"):
        build.kernel_library(text, "k", check=True)
