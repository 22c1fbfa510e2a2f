"""Reading kernel files and writing results: every failure is one diagnostic, and nothing is left half written."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from phobos.diagnostics import CompileError, Diagnostic
from phobos.source import SourceFile

# A kernel text is a few kilobytes; anything far larger is the wrong file, and would only be slow to refuse.
MAX_SOURCE_BYTES = 4 * 1024 * 1024


def read_source(path: str) -> SourceFile:
    """The kernel text in `path`, or standard input for "-".

    Raises CompileError: PH1001 no such file, PH1002 a directory or a device, PH1003 not UTF-8 or too large, PH1004
    any other reason that the system gives.
    """
    try:
        if path == "-":
            return SourceFile("<stdin>", _decode(sys.stdin.buffer.read(), "<stdin>"))
        if os.path.isdir(path):
            raise _error("PH1002", f"{path!r} is a directory, not a kernel file", _files_in(path))
        with open(path, "rb") as f:
            data = f.read(MAX_SOURCE_BYTES + 1)
    except FileNotFoundError:
        raise _error("PH1001", f"no such file: {path!r}", _similar(path)) from None
    except ValueError:  # a NUL in the name
        raise _error("PH1001", f"no such file: {path!r}") from None
    except OSError as e:
        raise _error("PH1004", f"cannot read {path!r}: {e.strerror or e}") from None
    # A name is bytes to the system: what is no UTF-8 cannot be printed as it is.
    return SourceFile(os.fsencode(path).decode(errors="replace"), _decode(data, path))


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_SOURCE_BYTES:
        raise _error("PH1003", f"{name!r} is larger than {MAX_SOURCE_BYTES >> 20} MiB; is it a kernel file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise _error(
            "PH1003", f"{name!r} is not UTF-8 text: byte 0x{data[e.start]:02x} at offset {e.start}, line {line}"
        ) from None
    return text


def _similar(path: str) -> str | None:
    """Help for a misspelt name: the nearest name in the same folder."""
    from phobos.diagnostics import nearest

    folder = Path(path).parent
    try:
        names = [p.name for p in folder.iterdir()]
    except OSError:
        return f"there is no folder {str(folder)!r}" if not folder.exists() else None
    guess = nearest(Path(path).name, names)
    return f"did you mean {str(folder / guess)!r}?" if guess else None


def _files_in(folder: str) -> str | None:
    try:
        found = sorted(p.name for p in Path(folder).glob("*.ph"))
    except OSError:
        return None
    return f"kernel files in it: {', '.join(found[:8])}" if found else None


def write_output(path: str, data: bytes) -> None:
    """Writes `data` to `path`: a new or regular file by rename, so that a reader sees the old or the new content, never
    a part; a device or pipe (/dev/null, /dev/stdout) directly.

    Raises CompileError (PH1005) where the file cannot be written; an existing file is then unchanged.
    """
    try:
        if os.path.isdir(path):
            raise _error("PH1005", f"cannot write {path!r}: it is a directory")
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "wb") as f:
                f.write(data)
            return
        _replace(Path(os.path.realpath(path)), data)
    except ValueError:  # a NUL in the name
        raise _error("PH1005", f"cannot write {path!r}: not a file name") from None
    except BrokenPipeError:
        raise
    except OSError as e:
        raise _error("PH1005", f"cannot write {path!r}: {e.strerror or e}") from None


def check_outputs(outputs: Mapping[str, str | None], read: str | None = None) -> None:
    """Before anything runs: raises CompileError PH1007 where two of the outputs (by option) are one file, or one of
    them is the file that is read. "-" and None are none; a device or pipe can take several."""
    places = {} if read in (None, "-") else {_place(str(read)): f"{read!r}, which is read"}
    for option, path in outputs.items():
        if path is None or path == "-":
            continue
        place = _place(path)
        if place is not None and place in places:
            message = f"{option} {path!r} would overwrite {places[place]}"
            raise _error("PH1007", message, "choose another path")
        places[place] = f"what {option} writes"


def _place(path: str) -> tuple[object, ...] | None:
    """Equal for two names of one file, relative or through links; None for what is no regular file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return (os.path.realpath(path) if "\0" not in path else path,)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _replace(target: Path, data: bytes) -> None:
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(13, "Permission denied")
        mode = stat.S_IMODE(target.stat().st_mode)
    else:
        umask = os.umask(0)
        os.umask(umask)
        mode = 0o666 & ~umask
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _error(code: str, message: str, help: str | None = None) -> CompileError:
    return CompileError(Diagnostic(code=code, message=message, help=help))


_ABANDONED_AFTER = 3600.0  # seconds after which a file that is being written is what a killed process left


def evict(folder: Path, limit: int, unfinished: str) -> None:
    """Deletes the least recently used files of a cache folder where they hold more than `limit` bytes in all, and what
    killed processes left of files whose names begin with `unfinished`. Raises OSError."""
    entries = []
    total = 0
    with os.scandir(folder) as listing:
        for item in listing:
            try:
                info = item.stat()
                if item.name.startswith(unfinished):
                    if time.time() - info.st_mtime > _ABANDONED_AFTER:
                        os.unlink(item.path)
                    continue  # else another process is writing it
            except FileNotFoundError:  # another process evicted it
                continue
            entries.append((info.st_mtime_ns, info.st_size, item.path))
            total += info.st_size
    if total <= limit:
        return
    # Down to 80 %, so that a full cache is not sorted anew at every entry.
    for _, size, path in sorted(entries):
        if total <= limit * 0.8:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
