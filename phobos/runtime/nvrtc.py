"""CUDA C++ text to cubin through NVRTC.

The library comes from the `nvidia-cuda-nvrtc` wheel (no CUDA toolkit is needed) and is called through ctypes: importing
`cuda.bindings.nvrtc` costs 0.1 s and its library search another 0.08 s, where `dlopen` takes 0.01 s and a first compile
of a small kernel 0.08 s, loading included.

ptxas reports registers, spills, stack and shared bytes in the program's log (`--ptxas-options=-v`), so no other tool
is needed to know them.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from phobos.diagnostics import WARNING, CompileError, Diagnostic
from phobos.ir.abi import Program
from phobos.runtime import cache
from phobos.source import Span
from phobos.target import Target

# Part of the cache key: raise it when the meaning of an entry changes.
_ENTRY_FORMAT = 1
# Emitted text declares names that a variant may not use; that is not worth a warning to a user.
_SUPPRESSED = "177,550"
_INSTALL = "pip install 'nvidia-cuda-nvrtc>=13.0,<13.1'"


@dataclass(frozen=True, kw_only=True)
class Binary:
    """A compiled program: `cubin` for exactly one architecture, and what ptxas says about it.

    `entry` is the kernel's symbol. Bytes are per thread (`spill_bytes`: stores plus loads; `stack_bytes`) or per block
    (`static_shared_bytes`). `seconds` is the time NVRTC took, also when it came from the cache.
    `warnings` are ptxas performance remarks such as C7510 (serialized wgmma), one text each.
    """

    cubin: bytes
    ptx: str
    log: str
    entry: str
    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    warnings: tuple[str, ...]
    seconds: float
    from_cache: bool = False


def compile_program(program: Program, target: Target, *, use_cache: bool = True) -> Binary:
    """Compile to a cubin for `target`, or take it from the disk cache.

    Raises CompileError: PH0601 where NVRTC rejects the text, PH0910 without an NVRTC library, PH0911 where the
    installed NVRTC is too old for the architecture.
    """
    options = compile_options(program, target)
    text = program.cuda
    key = binary_key(text, options)
    if use_cache:
        found = load_binary(key)
        if found is not None:
            return found
    binary = _compile(program, text, options, target)
    if use_cache:
        store_binary(key, binary)
    return binary


def compile_options(program: Program, target: Target) -> tuple[str, ...]:
    """NVRTC's options for a program, in a fixed order."""
    options = [
        f"--gpu-architecture={target.arch}",
        "--std=c++17",
        "--ptxas-options=-v",
        f"--diag-suppress={_SUPPRESSED}",
    ]
    if program.fast_math:
        options.append("--use_fast_math")
    if program.max_regs is not None:
        options.append(f"--maxrregcount={program.max_regs}")
    if program.debug:
        options.append("--generate-line-info")
    return tuple(options)


def binary_key(text: str, options: tuple[str, ...]) -> str:
    """Cache key: everything that determines the cubin. The text holds all that the code generator and the templates
    put into it, so the compiler's own version adds nothing here."""
    return cache.digest("cubin", _ENTRY_FORMAT, library_fingerprint(), options, text)


def load_binary(key: str) -> Binary | None:
    """The cached binary of a key, or None."""
    entry = cache.store("cubin").get(key)
    if entry is None:
        return None
    meta, blobs = cache.unpack(entry)
    return Binary(
        cubin=blobs["cubin"],
        ptx=blobs["ptx"].decode(),
        log=meta["log"],
        entry=meta["entry"],
        registers=meta["registers"],
        spill_bytes=meta["spill_bytes"],
        stack_bytes=meta["stack_bytes"],
        static_shared_bytes=meta["static_shared_bytes"],
        warnings=tuple(meta["warnings"]),
        seconds=meta["seconds"],
        from_cache=True,
    )


def store_binary(key: str, binary: Binary) -> None:
    meta = {
        "log": binary.log,
        "entry": binary.entry,
        "registers": binary.registers,
        "spill_bytes": binary.spill_bytes,
        "stack_bytes": binary.stack_bytes,
        "static_shared_bytes": binary.static_shared_bytes,
        "warnings": list(binary.warnings),
        "seconds": binary.seconds,
    }
    cache.store("cubin").put(key, cache.pack(meta, {"cubin": binary.cubin, "ptx": binary.ptx.encode()}))


# --- the library -----------------------------------------------------------------------------


def _candidates() -> Iterator[Path]:
    """Files that may be NVRTC, best first: wheels of CUDA 13 and 12, then a toolkit that the environment names."""
    for entry in sys.path:
        root = Path(entry or ".") / "nvidia"
        yield from sorted(root.glob("cu1[3-9]/lib/libnvrtc.so.1[3-9]"), reverse=True)
        yield from sorted(root.glob("cuda_nvrtc/lib/libnvrtc.so.12"))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        root_text = os.environ.get(variable)
        if root_text:
            for folder in ("lib64", "lib"):
                yield from sorted((Path(root_text) / folder).glob("libnvrtc.so.1[2-9]"), reverse=True)


def _search_system() -> Path | None:
    """NVRTC where cuda.pathfinder finds it (conda, Windows, system folders)."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return None
    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except (RuntimeError, OSError, ImportError):
        return None
    return Path(path) if path else None


@lru_cache(maxsize=1)
def library_path() -> Path | None:
    """The NVRTC library that will be used, or None if there is none."""
    for path in _candidates():
        if path.is_file():
            return path
    return _search_system()


@lru_cache(maxsize=1)
def library_fingerprint() -> str:
    """Identifies the installed NVRTC without loading it; empty without one."""
    path = library_path()
    return f"{path.name}:{path.stat().st_size}" if path else ""


class _Library:
    """NVRTC's C interface, only what is used here. Its functions may be called from several threads."""

    def __init__(self, path: Path):
        # NVRTC opens its builtins by plain name. Loading them from the same folder first makes that succeed
        # wherever the folder is.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):
            if ".alt." not in builtins.name:
                ctypes.CDLL(str(builtins))
        lib = ctypes.CDLL(str(path))
        pointer, size_p = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
        names = ctypes.POINTER(ctypes.c_char_p)
        lib.nvrtcCreateProgram.argtypes = [
            ctypes.POINTER(pointer), ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, names, names,
        ]  # fmt: skip
        lib.nvrtcCompileProgram.argtypes = [pointer, ctypes.c_int, names]
        lib.nvrtcDestroyProgram.argtypes = [ctypes.POINTER(pointer)]
        for name in ("ProgramLog", "PTX", "CUBIN"):
            getattr(lib, f"nvrtcGet{name}Size").argtypes = [pointer, size_p]
            getattr(lib, f"nvrtcGet{name}").argtypes = [pointer, ctypes.c_char_p]
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._lib = lib
        major, minor = ctypes.c_int(), ctypes.c_int()
        lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)

    def architectures(self) -> tuple[int, ...]:
        """Compute capabilities the library can compile for, as 75, 80, ..."""
        count = ctypes.c_int()
        self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        values = (ctypes.c_int * count.value)()
        self._lib.nvrtcGetSupportedArchs(values)
        return tuple(values)

    def error_text(self, status: int) -> str:
        return self._lib.nvrtcGetErrorString(status).decode()

    def _get(self, handle: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        status = getattr(self._lib, f"nvrtcGet{what}Size")(handle, ctypes.byref(size))
        if status != 0 or size.value == 0:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._lib, f"nvrtcGet{what}")(handle, buffer)
        return buffer.raw[: size.value]

    def compile(self, text: str, name: str, options: tuple[str, ...]) -> tuple[int, bytes, str, str]:
        """Returns (status, cubin, ptx, log); status 0 is success."""
        handle = ctypes.c_void_p()
        status = self._lib.nvrtcCreateProgram(ctypes.byref(handle), text.encode(), name.encode(), 0, None, None)
        if status != 0:
            return status, b"", "", self.error_text(status)
        try:
            array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            status = self._lib.nvrtcCompileProgram(handle, len(options), array)
            log = self._get(handle, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if status != 0:
                return status, b"", "", log
            ptx = self._get(handle, "PTX").rstrip(b"\0").decode()
            return status, self._get(handle, "CUBIN"), ptx, log
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(handle))


_load_lock = threading.Lock()
_loaded: _Library | None = None


def load_library() -> _Library:
    """The NVRTC library, loaded once. Raises CompileError PH0910 if there is none or it does not load."""
    global _loaded
    with _load_lock:
        if _loaded is None:
            path = library_path()
            if path is None:
                raise CompileError(
                    Diagnostic(
                        code="PH0910",
                        message="NVRTC, the CUDA runtime compiler, is not installed, so no cubin can be made",
                        help=_INSTALL,
                    )
                )
            try:
                _loaded = _Library(path)
            except (OSError, AttributeError) as error:
                raise CompileError(
                    Diagnostic(
                        code="PH0910",
                        message=f"NVRTC at {path} cannot be loaded: {error}",
                        help=_INSTALL,
                    )
                ) from None
        return _loaded


# --- compiling -------------------------------------------------------------------------------


def _compile(program: Program, text: str, options: tuple[str, ...], target: Target) -> Binary:
    library = load_library()
    capability = target.capability[0] * 10 + target.capability[1]
    if capability not in library.architectures():
        known = ", ".join(f"sm_{a}" for a in library.architectures())
        version = ".".join(map(str, library.version))
        raise CompileError(
            Diagnostic(
                code="PH0911",
                message=f"the installed NVRTC {version} cannot compile for {target.arch}",
                notes=(f"it knows {known}",),
                help=_INSTALL,
            )
        )
    start = time.perf_counter()
    if library.version >= (13, 0):
        # NVRTC has a cache of its own where there is a driver; what comes from there has no ptxas log, so no registers
        # and no spills (seen on an H200).
        options += ("--no-cache",)
    status, cubin, ptx, log = library.compile(text, f"{program.name}.cu", options)
    seconds = time.perf_counter() - start
    if status != 0:
        raise CompileError(error_diagnostics(log or library.error_text(status), program, target))
    return replace(_resources(log, program.name), cubin=cubin, ptx=ptx, log=log, seconds=seconds)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_REMARK = re.compile(r"\(C7\d\d\d\)[^\n]*")


def _resources(log: str, name: str) -> Binary:
    """A Binary that holds only what ptxas wrote to the log."""
    entry = _ENTRY.search(log)
    registers = _REGISTERS.search(log)
    stack = _STACK.search(log)
    shared = _SHARED.search(log)
    return Binary(
        cubin=b"",
        ptx="",
        log="",
        entry=entry.group(1) if entry else name,
        registers=int(registers.group(1)) if registers else 0,
        spill_bytes=int(stack.group(2)) + int(stack.group(3)) if stack else 0,
        stack_bytes=int(stack.group(1)) if stack else 0,
        static_shared_bytes=int(shared.group(1)) if shared else 0,
        warnings=tuple(dict.fromkeys(_REMARK.findall(log))),
        seconds=0.0,
    )


_ERROR_LINE = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<text>.*)$")


def error_diagnostics(log: str, program: Program, target: Target) -> list[Diagnostic]:
    """PH0601, one per error that NVRTC names (at most five); `#line` makes its positions those of the kernel text."""
    found: list[Diagnostic] = []
    for line in log.splitlines():
        match = _ERROR_LINE.match(line)
        if match is None:
            continue
        span = None
        notes: tuple[str, ...] = ()
        if match["file"] == program.source_name:
            number = int(match["line"])
            span = Span(file=program.source_name, line=number, column=1, end_line=number, end_column=2)
        else:
            notes = (f"at {match['file']}:{match['line']} of the emitted text",)
        found.append(
            Diagnostic(
                code="PH0601",
                message=f"NVRTC rejects the text emitted for kernel {program.name!r} ({target.arch}): {match['text']}",
                span=span,
                notes=notes,
                help="this is a fault of the compiler, not of the kernel; please report it with the kernel's text",
            )
        )
        if len(found) == 5:
            break
    if found:
        return found
    lines = [line for line in log.splitlines() if line.strip()][:8]
    return [
        Diagnostic(
            code="PH0601",
            message=f"NVRTC fails on the text emitted for kernel {program.name!r} ({target.arch})",
            notes=tuple(lines),
            help="this is a fault of the compiler, not of the kernel; please report it with the kernel's text",
        )
    ]


def warning_diagnostics(binary: Binary, name: str) -> list[Diagnostic]:
    """PH0602 warnings: ptxas performance remarks and spills of a compiled kernel."""
    out = [
        Diagnostic(code="PH0602", severity=WARNING, message=f"kernel {name!r}: ptxas: {text}")
        for text in binary.warnings
    ]
    if binary.spill_bytes:
        out.append(
            Diagnostic(
                code="PH0603",
                severity=WARNING,
                message=f"kernel {name!r} spills registers: {binary.spill_bytes} bytes per thread "
                f"({binary.registers} registers used)",
                help="smaller tiles or more threads need fewer registers per thread",
            )
        )
    return out
