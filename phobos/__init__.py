"""Phobos: kernels over tiles, compiled to CUDA.

    import phobos
    k = phobos.jit(source_text)          # or phobos.load("file.ph")
    k(x, y, 2.0)                         # torch, CuPy, JAX, Numba or NumPy arrays

`import phobos` loads nothing else: every name below is imported at its first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without importing typing
if TYPE_CHECKING:
    from phobos.diagnostics import CompileError, Diagnostic, LaunchError, PhobosError
    from phobos.kernel import Kernel, KernelWarning, jit, load
    from phobos.runtime.compiled import Compiled

__version__ = "0.1.0"
__all__ = [
    "CompileError",
    "Compiled",
    "Diagnostic",
    "Kernel",
    "KernelWarning",
    "LaunchError",
    "PhobosError",
    "jit",
    "load",
]

_HOME = {
    "CompileError": "phobos.diagnostics",
    "Compiled": "phobos.runtime.compiled",
    "Diagnostic": "phobos.diagnostics",
    "Kernel": "phobos.kernel",
    "KernelWarning": "phobos.kernel",
    "LaunchError": "phobos.diagnostics",
    "PhobosError": "phobos.diagnostics",
    "jit": "phobos.kernel",
    "load": "phobos.kernel",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'phobos' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
