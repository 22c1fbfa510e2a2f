"""Damaged and unusable files in the emulator's build cache: they are made anew, and never loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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


def compiler_without_room(tmp_path: Path, where: str) -> str:
    """A compiler that finds no room in folders whose names match `where`."""
    script = tmp_path / "cxx"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *{where}*) echo "/usr/bin/ld: final link failed: No space left on device" >&2\n'
        'echo "collect2: error: ld returned 1 exit status" >&2; exit 1;; esac\nexec g++ "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_a_full_disk_under_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build goes to a temporary folder, and no kernel is blamed."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(folder))
    monkeypatch.setenv("PHOBOS_CXX", compiler_without_room(tmp_path, str(folder)))
    made = library()
    assert made.is_file() and folder not in made.parents


def test_no_room_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PHOBOS_CXX", compiler_without_room(tmp_path, "-shared"))
    with pytest.raises(CompileError) as info:
        library()
    (found,) = info.value.diagnostics
    assert found.code == "PH0943" and "No space left" in found.message and "TMPDIR" in (found.help or "")
    assert not list((tmp_path / "cache" / "emulator").iterdir())


def test_old_builds_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PHOBOS_CACHE_MB", "0.1")
    monkeypatch.setattr(build, "_EVICT_EVERY", 1)
    folder = tmp_path / "emulator"
    folder.mkdir()
    for name, age in (("kernel_old.so", 9000), ("build_killed.so", 9000), ("build_now.so", 0)):
        path = folder / name
        path.write_bytes(bytes(100_000))
        os.utime(path, (time.time() - age,) * 2)
    made = library()
    assert {p.name for p in folder.iterdir()} == {made.name, "build_now.so"}


def test_a_locale_without_unicode(tmp_path: Path) -> None:
    """The text of a kernel is UTF-8, whatever the locale's encoding."""
    text = "# \\u20ac\\nkernel k(X: tensor<f32>[N]) { X[0 :+ 4] = 1.0 }  // caf\\u00e9".replace("#", "//")
    code = (
        f"import numpy as np, phobos\nx = np.zeros(5, 'f4')\nphobos.jit('{text}')(x, backend='emulator')\n"
        "assert x.tolist() == [1, 1, 1, 1, 0]"
    )
    environment = {
        "PHOBOS_CACHE_DIR": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
    folder = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
