"""Damaged and unusable files in the emulator's build cache: they are made anew, and never loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phobos.diagnostics import CompileError
from phobos.emulator import build

KERNEL = "PH_KERNEL(32, 1) k(ph_global<int> Y) { Y[ph_tid()] = ph_tid(); }"


def library() -> Path:
    return build.kernel_library(KERNEL, "k", check=True, opt="-O0")


@pytest.mark.parametrize("damage", ["emptied", "cut", "changed"])
def test_damaged_objects_are_built_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    good = library().read_bytes()
    middle = len(good) // 2
    bad = {"emptied": b"", "cut": good[:middle], "changed": good[:middle] + b"\x55\xaa" + good[middle + 2 :]}[damage]
    library().write_bytes(bad)
    assert library().read_bytes() == good


def test_a_damaged_runtime_is_built_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from phobos.emulator.build import runtime_library as r; print(r()._name)"]
    environment = {"PHOBOS_CACHE_DIR": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    folder = Path(__file__).resolve().parents[2]

    def load() -> Path:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    file = load()
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 3])  # to load this would end the process with a bus error
    assert load() == file and file.read_bytes() == good


def test_a_folder_in_the_place_of_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    file = library()
    file.unlink()
    file.mkdir()
    other = library()
    assert other.is_file() and tmp_path not in other.parents


def test_a_compiler_that_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PHOBOS_CXX", "/bin/true")
    with pytest.raises(CompileError) as info:
        library()
    assert info.value.diagnostics[0].code == "PH0940"
    assert not list((tmp_path / "emulator").iterdir())
