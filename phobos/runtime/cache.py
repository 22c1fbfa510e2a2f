"""Content-addressed disk cache: one checksummed file per entry, written by rename.

Any number of processes may use one folder at a time: a reader sees a whole entry or none, two writers of one key
write the same content. An entry that fails its checksum is deleted and counts as missing. Where the folder cannot be
written, everything works without it, after one warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from phobos import resources, settings
from phobos.files import evict

_MAGIC = b"PHOBOS1\n"
_DIGEST_BYTES = 32
_UNFINISHED = ".new-"  # begins the name of an entry that is being written


class CacheWarning(UserWarning):
    """The disk cache cannot be used; results are the same, only slower."""


_warned: set[str] = set()
_warn_lock = threading.Lock()


def _warn_once(folder: Path, error: OSError) -> None:
    # Once for the cache, not for each kind of entry in it.
    with _warn_lock:
        if str(folder.parent) in _warned:
            return
        _warned.add(str(folder.parent))
    warnings.warn(
        f"warning[PH0930]: the cache folder {folder} cannot be used ({error.strerror or error}); continuing without "
        "it. Set PHOBOS_CACHE_DIR to a writable folder, or PHOBOS_NO_CACHE=1",
        CacheWarning,
        stacklevel=2,
    )


def digest(*parts: object) -> str:
    """A key: the SHA-256 of the parts, each of them str, bytes, int, bool, None or a tuple of such."""
    h = hashlib.sha256()
    _feed(h, parts)
    return h.hexdigest()


def _feed(h: Any, part: object) -> None:
    # Every part is preceded by its kind and length, so that different lists never give the same stream.
    if isinstance(part, bytes):
        h.update(b"b%d:" % len(part))
        h.update(part)
    elif isinstance(part, str):
        data = part.encode(errors="surrogatepass")  # arguments of a command line may hold half characters
        h.update(b"s%d:" % len(data))
        h.update(data)
    elif part is None or isinstance(part, (bool, int, float)):
        text = repr(part).encode()
        h.update(b"v%d:" % len(text))
        h.update(text)
    elif isinstance(part, (tuple, list)):
        h.update(b"t%d:" % len(part))
        for item in part:
            _feed(h, item)
    elif isinstance(part, frozenset):
        _feed(h, tuple(sorted(part)))
    else:
        raise TypeError(f"a cache key cannot hold {type(part).__name__}")


def pack(meta: dict[str, Any], blobs: dict[str, bytes]) -> bytes:
    """One byte string from JSON-able `meta` and named byte strings."""
    header = json.dumps({"meta": meta, "blobs": [[name, len(data)] for name, data in blobs.items()]}).encode()
    return b"".join([len(header).to_bytes(8, "little"), header, *blobs.values()])


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The inverse of `pack`."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    blobs = {}
    for name, size in header["blobs"]:
        blobs[name] = data[end : end + size]
        end += size
    return header["meta"], blobs


class Store:
    """Entries of one kind in one folder, at most `limit` bytes in all: the least recently used go first."""

    enabled = True

    def __init__(self, folder: Path, limit: int, *, evict_every: int = 32):
        self.folder = folder
        self.limit = limit
        self.evict_every = evict_every

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.bin"

    def get(self, key: str) -> bytes | None:
        """The entry's content, or None where there is none (or only a damaged one, which is then removed)."""
        path = self.path(key)
        try:
            with open(path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn_once(self.folder, error)
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        content = data[start:]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content).digest() != data[len(_MAGIC) : start]:
            self._remove(path)
            return None
        try:
            os.utime(path)  # marks the use, for eviction
        except OSError:
            return content  # a read-only folder still serves its entries
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an entry. A folder that cannot be written gives one warning per process and is otherwise ignored."""
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=_UNFINISHED, dir=self.folder)
            with os.fdopen(handle, "wb") as f:
                f.write(_MAGIC)
                f.write(hashlib.sha256(content).digest())
                f.write(content)
            os.replace(temporary, self.path(key))
            temporary = None
            # Looking at all entries takes milliseconds per thousand, so only one of 32 writes does, by chance: the
            # processes that write here are mostly short.
            if int.from_bytes(os.urandom(2), "little") % self.evict_every == 0:
                evict(self.folder, self.limit, _UNFINISHED)
        except OSError as error:
            _warn_once(self.folder, error)
        finally:
            if temporary is not None:
                self._remove(Path(temporary))

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _warn_once(self.folder, error)


class _NoStore(Store):
    """Stands for the cache where PHOBOS_NO_CACHE turns it off."""

    enabled = False

    def __init__(self) -> None:
        super().__init__(Path(), 0)

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, content: bytes) -> None:
        return None


def store(kind: str) -> Store:
    """The store of one kind of entries, "cubin" or "front", under `settings.cache_dir()`."""
    if not settings.cache_enabled():
        return _NoStore()
    return Store(settings.cache_dir() / kind, settings.cache_limit())


# --- the compiler's version ------------------------------------------------------------------


def _compiler_files() -> list[Path]:
    """Everything that decides what a kernel text compiles to: Python sources, grammar and templates."""
    package = Path(__file__).resolve().parent.parent
    files: list[Path] = []
    for root, suffixes in (
        (package, (".py",)),
        (resources.grammar_dir(), (".lark",)),
        (resources.templates_dir(), (".j2", ".cuh", ".h", ".cpp")),
    ):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            files.extend(Path(folder, name) for name in sorted(names) if name.endswith(suffixes))
    return files


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """A hash over the compiler's own sources, grammar and templates.

    The hash over contents is remembered under a signature of names, sizes and times of the files, so that a process
    pays one `stat` per file (a few milliseconds) and not the reading.
    """
    files = _compiler_files()
    stats = [f.stat() for f in files]
    signature = digest(tuple((str(f), s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)))
    memo = store("version")
    known = memo.get(signature)
    if known is not None:
        return known.decode()
    value = digest(tuple((f.name, f.read_bytes()) for f in files))
    memo.put(signature, value.encode())
    return value
