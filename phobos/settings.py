"""Every PHOBOS_* environment variable, typed, in one place."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """PHOBOS_CACHE_DIR, else $XDG_CACHE_HOME/phobos, else ~/.cache/phobos. Holds cubins, the parser's tables,
    emulator builds and tuning results; everything in it can be deleted at any time."""
    explicit = os.environ.get("PHOBOS_CACHE_DIR")
    if explicit:
        return _expand_user(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else _expand_user("~/.cache")
    return root / "phobos"


def _expand_user(path: str) -> Path:
    """`~` as the home directory; a user without one (an arbitrary user id in a container) gets the temporary folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        import tempfile

        return Path(tempfile.gettempdir()) / f"phobos-{os.getuid()}" / path.lstrip("~/")


def cache_enabled() -> bool:
    """PHOBOS_NO_CACHE=1 turns the disk cache off."""
    return os.environ.get("PHOBOS_NO_CACHE", "") not in ("1", "true", "yes")


def cache_limit() -> int:
    """PHOBOS_CACHE_MB: how many MiB each part of the disk cache may hold, default 1024. In bytes."""
    return int(min(_positive_float("PHOBOS_CACHE_MB", 1024.0), 2.0**40) * 2**20)


def host_compiler() -> str:
    """PHOBOS_CXX: the C++17 compiler of the emulator, default g++."""
    return os.environ.get("PHOBOS_CXX", "g++")


def emulator_timeout() -> float:
    """PHOBOS_EMULATOR_TIMEOUT: seconds after which an emulated launch is reported as hung, default 60."""
    return _positive_float("PHOBOS_EMULATOR_TIMEOUT", 60.0)


def compile_jobs() -> int:
    """PHOBOS_JOBS: how many processes compile during a search, default one a core that this process may use."""
    text = os.environ.get("PHOBOS_JOBS")
    if text is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(_positive_float("PHOBOS_JOBS", 1.0), 1024.0)))


def _positive_float(name: str, default: float) -> float:
    from phobos.diagnostics import CompileError, Diagnostic

    text = os.environ.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise CompileError(Diagnostic(code="PH0903", message=f"{name}={text!r} is not a positive number"))
    return value


def show_traceback() -> bool:
    """PHOBOS_TRACEBACK=1 lets an internal error of the command line show its Python traceback."""
    return os.environ.get("PHOBOS_TRACEBACK", "") in ("1", "true", "yes")
