"""Compiles the emulator's runtime (once per machine) and kernel bodies (content-addressed) with the host C++ compiler.

Everything lies in `settings.cache_dir() / "emulator"`, or in a temporary folder of this process where the cache is
turned off. A file's name is a hash of all that its contents depend on: the texts, the flags, the compiler and the CPU
(-march=native).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from phobos import settings
from phobos.codegen import prelude
from phobos.diagnostics import CompileError, Diagnostic
from phobos.files import evict
from phobos.resources import templates_dir

_RUNTIME_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w")
_RUNTIME_LIBS = ("-lm", "-lpthread")
# Uninitialised registers are poisoned; products and sums are not contracted; a large frame cannot jump over a guard
# page.
_KERNEL_FLAGS = (
    "-std=c++17",
    "-march=native",
    "-ffp-contract=off",
    "-ftrivial-auto-var-init=pattern",
    "-fstack-clash-protection",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fno-plt",
    "-fvisibility=hidden",
    "-shared",
    "-fPIC",
    "-nostdlib",
    "-w",
)
_CHECKSUM_BYTES = 32
_UNFINISHED = "build_"  # begins the name of what a compiler is writing
_EVICT_EVERY = 16  # builds, by chance, since processes are mostly short
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|File too large|final link failed|[Ww]rite error")
# The runtime holds the handlers.
_CHECK_FLAGS = ("-fsanitize=bounds,shift,signed-integer-overflow,integer-divide-by-zero",)


def kernel_library(body: str, name: str, *, check: bool, opt: str = "-O1") -> Path:
    """The shared object of the kernel `name` in the emitted text `body`; compiled unless it is in the cache.

    Its one exported function is `ph_entry(void** arguments)`. With `check` False pointers are plain.
    Raises CompileError: PH0940 without a compiler, PH0941 where it rejects the text, PH0943 where there is no room.
    """
    source = "\n".join(
        (
            f"#define PH_CHECK {int(check)}",
            prelude.select_host(body),
            f"namespace ph_kernel {{\n{body}",
            f'#line 1 "export"\nPH_EXPORT({name})\n}}\n',
        )
    )
    flags = (*_KERNEL_FLAGS, opt, *(_CHECK_FLAGS if check else ()))
    complaint = f"the host compiler rejects the emitted text of kernel '{name}'"
    file = f"kernel_{_digest(source, *flags, _compiler_identity(), _cpu())}.so"
    return _made(file, lambda out: _compile(source, out, flags, (), complaint, "PH0941"))


@cache
def runtime_library() -> ctypes.CDLL:
    """The runtime, loaded so that kernel objects find its functions.

    Raises CompileError: PH0940 without a compiler, PH0942 where the runtime does not compile or load.
    """
    host = templates_dir() / "prelude" / "host"
    main = host / "runtime" / "runtime.cpp"
    texts = [p.read_text(encoding="utf-8") for p in sorted(host.rglob("*")) if p.suffix in (".h", ".cpp")]
    text = f'#include "{main}"\n'
    complaint = "the emulator's runtime does not compile"

    def make(out: Path) -> None:
        with _lock(out.with_suffix(".lock")):
            if not _intact(out):  # another process may have built it meanwhile
                _compile(text, out, _RUNTIME_FLAGS, _RUNTIME_LIBS, complaint, "PH0942")

    out = _made(f"runtime_{_digest(*texts, *_RUNTIME_FLAGS, _compiler_identity(), _cpu())}.so", make)
    try:
        library = ctypes.CDLL(str(out), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CompileError(
            Diagnostic(code="PH0942", message=f"the emulator's runtime does not load: {error}")
        ) from None
    library.ph_start.argtypes = [ctypes.c_void_p]
    library.ph_start.restype = ctypes.c_int
    return library


def _made(file: str, make: Callable[[Path], None]) -> Path:
    """The file of that name, made unless it is in the cache as it was written there (a part of a shared object would
    take the process down); in a temporary folder where the cache's cannot be used."""
    out = _folder() / file
    if _intact(out):
        with suppress(OSError):  # a read-only folder still serves what it holds
            os.utime(out)  # marks the use, for eviction
        return out
    try:
        make(out)
    except OSError:
        out = _temporary_folder() / file
        if not _intact(out):
            try:
                make(out)
            except OSError as error:
                reason = error.strerror or str(error)
                raise CompileError(
                    Diagnostic(
                        code="PH0943",
                        message=f"the emulator's build cannot be written to {str(out.parent)!r}: {reason}",
                        help="make room there, or name another folder in TMPDIR or PHOBOS_CACHE_DIR",
                    )
                ) from None
    return out


def _intact(path: Path) -> bool:
    """Whether the file ends with the checksum of what is before: ELF allows bytes after the last section."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data[:-_CHECKSUM_BYTES]).digest() == data[-_CHECKSUM_BYTES:]


def _compile(source: str, out: Path, flags: tuple[str, ...], libs: tuple[str, ...], complaint: str, code: str) -> None:
    """Compiles `source` to `out`, which appears whole or not at all."""
    handle, temporary = tempfile.mkstemp(suffix=".so", prefix=_UNFINISHED, dir=out.parent)
    os.close(handle)
    try:
        command = [settings.host_compiler(), *flags, "-o", temporary, "-x", "c++", "-", *libs]
        try:
            # Whatever the locale: the text is UTF-8, and the compiler's messages may be anything.
            done = subprocess.run(command, input=source, capture_output=True, encoding="utf-8", errors="replace")
        except OSError as error:
            raise _no_compiler(error.strerror or str(error)) from None
        if done.returncode != 0:
            unknown = re.search(r"(?:unrecognized|unknown)[^\n]*\boption[^\n]*|unknown argument[^\n]*", done.stderr)
            if unknown:
                raise _no_compiler(f"it is too old or another compiler ({unknown.group(0)})")
            lines = done.stderr.splitlines()
            full = next((line for line in lines if _NO_ROOM.search(line)), None)
            if full is not None:
                raise OSError(errno.ENOSPC, full)
            errors = [line for line in lines if re.search(r"\berror:", line)] or lines
            raise CompileError(
                Diagnostic(
                    code=code,
                    message=f"{complaint} ({settings.host_compiler()}, exit status {done.returncode})",
                    notes=tuple(errors[:8]),
                )
            )
        data = Path(temporary).read_bytes()
        if not data.startswith(b"\x7fELF"):
            raise _no_compiler("it ends well and writes no shared object")
        with open(temporary, "ab") as file:
            file.write(hashlib.sha256(data).digest())
        os.chmod(temporary, 0o644)
        os.replace(temporary, out)
        if os.urandom(1)[0] % _EVICT_EVERY == 0:
            evict(out.parent, settings.cache_limit(), _UNFINISHED)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _no_compiler(reason: str) -> CompileError:
    return CompileError(
        Diagnostic(
            code="PH0940",
            message=f"the emulator needs a C++ compiler; {settings.host_compiler()!r} cannot be run: {reason}",
            help="install g++ (12 or newer) or name one in PHOBOS_CXX",
        )
    )


def _compiler_identity() -> str:
    return _identity_of(settings.host_compiler())


@cache
def _identity_of(compiler: str) -> str:
    """What distinguishes this compiler from another one behind the same name."""
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, encoding="utf-8", errors="replace")
    except OSError as error:
        raise _no_compiler(error.strerror or str(error)) from None
    if done.returncode != 0:
        raise _no_compiler(f"'--version' gives exit status {done.returncode}")
    return compiler + "\n" + done.stdout


@cache
def _cpu() -> str:
    """What -march=native depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    lines = {line for line in text.splitlines() if line.startswith(wanted)}
    return platform.machine() + "\n" + "\n".join(sorted(lines))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _folder() -> Path:
    if not settings.cache_enabled():
        return _temporary_folder()
    folder = settings.cache_dir() / "emulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary_folder()  # an unusable cache folder costs time, not the launch
    return folder if os.access(folder, os.W_OK) else _temporary_folder()


@cache
def _temporary_folder() -> Path:
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="phobos-emulator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the system frees it when a process dies."""
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
