"""Where the grammar, the code templates and the examples lie: inside an installed package, or in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(packaged: str, checkout: str) -> Path:
    inside = _PACKAGE / packaged
    return inside if inside.is_dir() else _PACKAGE.parent / checkout


def grammar_dir() -> Path:
    """Folder of phobos.lark and SPEC.md."""
    return _folder("_grammar", "grammar")


def templates_dir() -> Path:
    """Folder of kernel.cu.j2 and prelude/."""
    return _folder("_templates", "codegen_templates")


def examples_dir() -> Path:
    """Folder of the example kernels, *.ph, which are also what kbench measures."""
    return _folder("_examples", "examples")
