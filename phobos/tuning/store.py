"""Results of searches on disk: one JSON file per kernel text, device, dims, dtypes, consts, pins and grid.

Files are written by rename, so that any number of processes may search and read at a time. A damaged file gives a
warning and counts as missing, and so does a result that the compiler refuses; the next search replaces it. Where the
folder cannot be written, or the cache is turned off, results are kept for the process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phobos import settings
from phobos.diagnostics import CompileError
from phobos.ir.exact import exact, exact_items
from phobos.runtime import cache
from phobos.runtime.module import Device
from phobos.runtime.pipeline import Config, Frontend, KernelInfo, Request
from phobos.tuning.result import SearchResult
from phobos.tuning.space import config_text

# Part of the key: raise it when a stored configuration may mean something else.
FORMAT = 2
# As the grammar has them: a string may hold what looks like a comment.
_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\\r\n]|\\[^\r\n])*")|[ \t]*//[^\r\n]*')
_LINE_END = re.compile(r"\r\n|\r|\n")


class TuningWarning(UserWarning):
    """A stored result cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a result belongs to. `dims`: extents that the kernel's text leaves open; `pins`: what the caller fixed;
    `grid`: the blocks that he gave in place of the kernel's own."""

    text: str
    kernel: str
    device: str
    capability: tuple[int, int]
    dims: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    consts: tuple[tuple[str, Any], ...]
    pins: tuple[tuple[str, Any], ...]
    grid: tuple[int, int, int] | None = None

    @property
    def digest(self) -> str:
        return cache.digest(
            "tuning", FORMAT, normalized(self.text), self.kernel, self.device, self.capability, self.dims, self.dtypes,
            self.consts, self.pins, self.grid,
        )  # fmt: skip


def key_of(
    text: str,
    info: KernelInfo,
    pinned: Request,
    dims: Mapping[str, int],
    device: Device,
    grid: tuple[int, int, int] | None = None,
) -> Key | None:
    """The key of a request whose open names a search would choose; None where `dims` does not name all extents."""
    if any(name not in dims for name in info.launch_dims):
        return None
    # Saying the only value of a name or not is the same.
    given = {name: exact(values[0]) for name, values in info.space if len(values) == 1}
    return Key(
        text=text,
        kernel=info.name,
        device=device.name,
        capability=device.capability,
        dims=tuple((name, dims[name]) for name in info.launch_dims),
        dtypes=tuple((name, dtype.value) for name, dtype in pinned.dtypes),
        consts=pinned.consts,
        pins=tuple((name, value) for name, value in pinned.config if given.get(name) != exact(value)),
        grid=grid,
    )


def best_for(
    frontend: Frontend,
    info: KernelInfo,
    pinned: Request,
    dims: Mapping[str, int],
    device: Device,
    grid: tuple[int, int, int] | None = None,
) -> tuple[Config | None, str]:
    """The stored best configuration of a request, None where there is none that compiles, and what the report says of
    it. A call does not fail of what is stored: it gets a warning PH0932 and the cost model's choice."""
    key = key_of(frontend.source.text, info, pinned, dims, device, grid)
    found = None if key is None else load(key)
    if key is None or found is None:
        return None, ""
    config = merged(found, pinned)
    why_not = refused(frontend, found, pinned, device)
    if why_not is not None:
        text = f"the stored best of a search on {found.date} ({config_text(dict(config))}) is not used: {why_not}"
        _warn_once(path_of(key), f"warning[PH0932]: kernel {info.name!r}: {text}; the next search replaces it")
        return None, text
    reason = (
        f"stored best of a search on {found.date}: {found.microseconds:.2f} us, {len(found.timed)} configurations "
        f"timed, {len(found.skipped)} skipped"
    )
    return config, reason + (", by another version of the compiler" if _is_old(found) else "")


def merged(found: SearchResult, pinned: Request) -> Config:
    """The stored best with what the caller fixed."""
    return tuple(sorted({**found.best, **dict(pinned.config)}.items()))


def refused(frontend: Frontend, found: SearchResult, pinned: Request, device: Device) -> str | None:
    """What the compiler has against a stored best, None where it takes it. Another version of the compiler may refuse
    what that one took."""
    try:
        configured = frontend.configured(replace(pinned, config=merged(found, pinned)))
        if _is_old(found):
            frontend.program(configured, configured.spec, device.target, debug=False, fast_math=False)
    except CompileError as error:
        return f"{error.diagnostics[0].code}: {error.diagnostics[0].message}"
    return None


def _is_old(found: SearchResult) -> bool:
    return found.compiler != cache.compiler_version()


def normalized(text: str) -> str:
    """The text without comments, empty lines and trailing blanks: what they say changes no kernel."""
    bare = _STRING_OR_COMMENT.sub(lambda found: found[1] or "", text)
    lines = (line.rstrip(" \t") for line in _LINE_END.split(bare))
    return "\n".join(line for line in lines if line)


def folder() -> Path:
    return settings.cache_dir() / "tuning"


def path_of(key: Key) -> Path:
    return folder() / f"{key.kernel}-{key.digest[:32]}.json"


_lock = threading.Lock()
_kept: dict[str, SearchResult] = {}  # by path: what this process found, also where it cannot be written
_warned: set[Path] = set()


def load(key: Key) -> SearchResult | None:
    """The stored result, or None where there is none that can be used."""
    if settings.cache_enabled():
        found = _read(key)
        if found is not None:
            return found
    with _lock:
        return _kept.get(str(path_of(key)))


def save(key: Key, result: SearchResult, *, always: bool = False) -> None:
    """Stores a result in place of an earlier one. An interrupted search, or one with a limit, replaces none of the same
    compiler that looked at more, except with `always`."""
    path = path_of(key)
    less = result.interrupted or result.limit is not None
    before = load(key) if less and not always else None
    if before is not None and not before.interrupted and before.compiler == result.compiler:
        if result.interrupted or _limit(result) < _limit(before):
            return
    with _lock:
        _kept[str(path)] = replace(result, from_store=True)
    if not settings.cache_enabled():
        return
    content = {"format": FORMAT, "result": result.to_json()}
    content["sha256"] = _checksum(content)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".new-", suffix=".json", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        cache._warn_once(path.parent, error)
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _checksum(content: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _limit(result: SearchResult) -> float:
    return math.inf if result.limit is None else result.limit


def _read(key: Key) -> SearchResult | None:
    path = path_of(key)
    try:
        if path.exists() and not path.is_file():
            raise OSError(f"{path.name} is no file")
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        cache._warn_once(path.parent, error)
        return None
    try:
        content = json.loads(text)
        if content["sha256"] != _checksum(content) or content["format"] != FORMAT:
            raise ValueError("checksum")
        found = replace(SearchResult.from_json(content["result"]), from_store=True)
        if not _belongs(found, key):
            raise ValueError("a result of something else")
        return found
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        message = f"{path} is damaged and is not used; the next search of kernel {key.kernel!r} replaces it"
        _warn_once(path, f"warning[PH0931]: {message}")
        return None


def _belongs(found: SearchResult, key: Key) -> bool:
    """Whether a file holds what its name says."""
    return (
        (found.kernel, found.device, found.capability) == (key.kernel, key.device, key.capability)
        and key.dims == tuple((name, found.dims.get(name)) for name, _ in key.dims)
        and sorted(key.dtypes) == sorted(found.dtypes.items())
        and sorted(exact_items(key.consts)) == sorted(exact_items(found.consts.items()))
        and sorted(exact_items(key.pins)) == sorted(exact_items(found.pins.items()))
    )


def _warn_once(path: Path, text: str) -> None:
    with _lock:
        known = path in _warned
        _warned.add(path)
    if not known:
        warnings.warn(text, TuningWarning, stacklevel=2)
