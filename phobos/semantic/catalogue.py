"""The complete table of built-ins: importing this registers every room's functions."""

from __future__ import annotations

from phobos.semantic import builtins_tile
from phobos.semantic.builtins import BUILTINS

__all__ = ["BUILTINS", "builtins_tile"]
