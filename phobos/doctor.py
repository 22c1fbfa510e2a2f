"""`phobos doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phobos import resources, settings
from phobos.diagnostics import CompileError, LaunchError

if TYPE_CHECKING:
    from phobos.runtime.module import Driver

OK = "ok"
MISSING = "missing"
PROBLEM = "problem"
_OLDEST_DRIVER = 13000  # CUDA 13.0, as cuDriverGetVersion counts


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the report. `state` is ok, missing or problem; `essential` says that Phobos cannot compile without
    it.
    """

    name: str
    state: str
    detail: str
    advice: str | None = None
    essential: bool = False

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "advice": self.advice,
            "essential": self.essential,
        }


def examine() -> list[Check]:
    """All checks, in the order in which a launch needs things. Never raises for what a machine lacks."""
    checks = [_python()]
    checks += [_package(name, needed_for) for name, needed_for in _REQUIRED]
    checks.append(_package("cuda-bindings", "launching on a GPU", essential=False))
    checks += [_optional_package(name, use) for name, use in _OPTIONAL]
    checks += [_resources(), _nvrtc(), _host_compiler(), *_driver_and_devices(), _cache()]
    return checks


def usable(checks: list[Check]) -> bool:
    """True unless something essential is missing."""
    return not any(c.essential and c.state != OK for c in checks)


def render(checks: list[Check], paint: Callable[[str, str], str]) -> str:
    """The report as text; `paint(state, text)` may add color."""
    width = max(len(c.name) for c in checks)
    out = []
    for c in checks:
        out.append(f"{paint(c.state, f'{c.state:8}')} {c.name:{width}}  {c.detail}")
        if c.advice:
            out.append(f"{'':8} {'':{width}}  -> {c.advice}")
    return "\n".join(out)


_REQUIRED = (
    ("lark", "the parser"),
    ("jinja2", "the code templates"),
    ("numpy", "arrays and the reference"),
    ("rich", "tables and progress"),
    ("click", "the command line"),
)
_OPTIONAL = (("torch", "torch tensors, peers of kbench"), ("matplotlib", "plots of kbench"))


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    return Check(
        name="python",
        state=OK if good else PROBLEM,
        detail=f"{version} ({sys.executable})",
        advice=None if good else "install Python 3.11 or newer",
        essential=True,
    )


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, needed_for: str, *, essential: bool = True) -> Check:
    found = _version(name)
    return Check(
        name=name,
        state=OK if found else MISSING,
        detail=found or f"needed for {needed_for}",
        advice=None if found else f"pip install {name}",
        essential=essential,
    )


def _optional_package(name: str, use: str) -> Check:
    found = _version(name)
    return Check(
        name=name,
        state=OK if found else MISSING,
        detail=found or f"optional: {use}",
        advice=None if found else f"pip install {name}, if you want it",
    )


def _resources() -> Check:
    grammar = resources.grammar_dir() / "phobos.lark"
    templates = resources.templates_dir()
    absent = [str(p) for p in (grammar, templates) if not p.exists()]
    return Check(
        name="grammar",
        state=MISSING if absent else OK,
        detail=f"not found: {', '.join(absent)}" if absent else f"{grammar.parent}, {templates}",
        advice="reinstall phobos; its data files are not there" if absent else None,
        essential=True,
    )


def _nvrtc() -> Check:
    from phobos.runtime import nvrtc

    try:
        library = nvrtc.load_library()
    except CompileError as e:
        d = e.diagnostics[0]
        return Check(name="nvrtc", state=MISSING, detail=d.message, advice=d.help, essential=True)
    known = library.architectures()
    detail = (
        f"CUDA {library.version[0]}.{library.version[1]}, sm_{min(known)} to sm_{max(known)}, {nvrtc.library_path()}"
    )
    return Check(name="nvrtc", state=OK, detail=detail, essential=True)


def _host_compiler() -> Check:
    command = settings.host_compiler()
    advice = "apt-get install g++ (or set PHOBOS_CXX); only the emulator needs it"
    path = shutil.which(command)
    if path is None:
        return Check(name="c++", state=MISSING, detail=f"no {command!r} on the PATH", advice=advice)
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        return Check(name="c++", state=PROBLEM, detail=f"{path}: {_first_line(e)}", advice=advice)
    if done.returncode != 0:
        return Check(name="c++", state=PROBLEM, detail=f"{path} --version fails", advice=advice)
    return Check(name="c++", state=OK, detail=f"{done.stdout.splitlines()[0] if done.stdout else path} ({path})")


def _driver_and_devices() -> list[Check]:
    from phobos.runtime.module import get_driver

    no_gpu = "without a GPU kernels compile, and run on the reference and the emulator"
    try:
        driver = get_driver()
        version = int(driver.call("cuDriverGetVersion"))
        count = driver.device_count()
    except LaunchError as e:
        d = e.diagnostics[0]
        return [Check(name="driver", state=MISSING, detail=d.message, advice=no_gpu)]
    old = version < _OLDEST_DRIVER
    checks = [
        Check(
            name="driver",
            state=PROBLEM if old else OK,
            detail=f"supports CUDA {version // 1000}.{version % 1000 // 10}",
            advice="update the NVIDIA driver to 580 or newer; the compiler is of CUDA 13.0" if old else None,
        )
    ]
    return checks + [_device(driver, i) for i in range(count)]


def _device(driver: Driver, ordinal: int) -> Check:
    device = driver.device(ordinal)
    major, minor = device.capability
    detail = f"{device.name}, compute capability {major}.{minor}, {device.multiprocessors} SMs"
    try:
        target = device.target
    except CompileError as e:
        return Check(name=f"device {ordinal}", state=PROBLEM, detail=detail, advice=e.diagnostics[0].message)
    return Check(name=f"device {ordinal}", state=OK, detail=f"{detail}, compiled for as {target.arch}")


def _cache() -> Check:
    folder = settings.cache_dir()
    if not settings.cache_enabled():
        return Check(name="cache", state=OK, detail="off (PHOBOS_NO_CACHE)")
    advice = "set PHOBOS_CACHE_DIR to a folder that can be written, or PHOBOS_NO_CACHE=1"
    nearest = folder
    try:
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
    except OSError as error:  # such as a name that is too long
        return Check(name="cache", state=PROBLEM, detail=f"{error.strerror}: {folder}", advice=advice)
    if not nearest.is_dir() or not _can_write(nearest):
        return Check(name="cache", state=PROBLEM, detail=f"cannot write {folder}", advice=advice)
    if not folder.exists():
        return Check(name="cache", state=OK, detail=f"{folder} (not made yet)")
    size, count = _size(folder)
    return Check(name="cache", state=OK, detail=f"{folder}, {count} files, {size / 1e6:.1f} MB")


def _can_write(folder: Path) -> bool:
    """Tries it: permission bits say nothing of a read-only file system, and root passes all of them."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _size(folder: Path) -> tuple[int, int]:
    size = count = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(root, name)).st_size
            except OSError:  # deleted by another process meanwhile
                continue
            count += 1
    return size, count


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
