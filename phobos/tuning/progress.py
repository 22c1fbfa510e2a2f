"""A search's progress on a terminal: one line with what is done, how long the rest will take, and the best so far."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from phobos.tuning.search import Progress, Watcher
from phobos.tuning.space import config_text


def line(progress: Progress) -> str:
    """`timing 12/36, 8 s left, best 412.30 us with BR=64 BC=32`."""
    parts = [f"{progress.phase} {progress.done}/{progress.total}"]
    if progress.seconds_left is not None and progress.phase != "done":
        parts.append(f"{progress.seconds_left:.0f} s left")
    if progress.best is not None:
        parts.append(f"best {progress.best.microseconds:.2f} us with {config_text(progress.best.config)}")
    return ", ".join(parts)


class TerminalLine:
    """Shows progress on standard error where that is a terminal, nothing elsewhere. A context manager."""

    def __init__(self, kernel: str):
        self._kernel = kernel
        self._status: Any = None

    def __enter__(self) -> Watcher:
        if not sys.stderr.isatty():
            return lambda progress: None
        from rich.console import Console

        self._status = Console(stderr=True).status(f"{self._kernel}: searching")
        self._status.start()
        return self._show

    def _show(self, progress: Progress) -> None:
        from rich.text import Text

        self._status.update(Text(f"{self._kernel}: {line(progress)}"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
