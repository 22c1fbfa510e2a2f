"""Where the rooms and the layouts print."""

from __future__ import annotations

from typing import Protocol


class TextWriter(Protocol):
    """`memory=True` marks a line that touches memory or synchronises, so that it keeps its source line."""

    def line(self, text: str, *, memory: bool = False) -> None: ...

    def open(self, text: str) -> None: ...

    def reopen(self, text: str) -> None: ...

    def close(self) -> None: ...
