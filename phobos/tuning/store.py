"""Results of searches on disk: one JSON file per kernel text, device, dims, dtypes, consts and pins.

Files are written by rename, so that any number of processes may search and read at a time. A damaged file gives a
warning and counts as missing; the next search replaces it. Where the folder cannot be written, or the cache is turned
off, results are kept for the process.
"""

from __future__ import annotations

import hashlib
import json
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
from phobos.runtime import cache
from phobos.runtime.module import Device
from phobos.runtime.pipeline import Config, Frontend, KernelInfo, Request
from phobos.tuning.result import SearchResult

# Part of the key: raise it when a stored configuration may mean something else.
FORMAT = 1
_COMMENT = re.compile(r"[ \t]*//[^\n]*")


class TuningWarning(UserWarning):
    """A stored result cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a result belongs to. `dims`: extents that the kernel's text leaves open; `pins`: what the caller fixed."""

    text: str
    kernel: str
    device: str
    capability: tuple[int, int]
    dims: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    consts: tuple[tuple[str, Any], ...]
    pins: tuple[tuple[str, Any], ...]

    @property
    def digest(self) -> str:
        return cache.digest(
            "tuning", FORMAT, normalized(self.text), self.kernel, self.device, self.capability, self.dims, self.dtypes,
            self.consts, self.pins,
        )  # fmt: skip


def key_of(text: str, info: KernelInfo, pinned: Request, dims: Mapping[str, int], device: Device) -> Key | None:
    """The key of a request whose open names a search would choose; None where `dims` does not name all extents."""
    if any(name not in dims for name in info.launch_dims):
        return None
    given = {name for name, values in info.space if len(values) == 1}  # saying them or not is the same
    return Key(
        text=text,
        kernel=info.name,
        device=device.name,
        capability=device.capability,
        dims=tuple((name, dims[name]) for name in info.launch_dims),
        dtypes=tuple((name, dtype.value) for name, dtype in pinned.dtypes),
        consts=pinned.consts,
        pins=tuple((name, value) for name, value in pinned.config if name not in given),
    )


def best_for(
    frontend: Frontend, info: KernelInfo, pinned: Request, dims: Mapping[str, int], device: Device
) -> tuple[Config, str] | None:
    """The stored best configuration of a request and the reason for the report, or None."""
    key = key_of(frontend.source.text, info, pinned, dims, device)
    found = None if key is None else load(key)
    if found is None:
        return None
    config = tuple(sorted({**found.best, **dict(pinned.config)}.items()))
    reason = (
        f"stored best of a search on {found.date}: {found.microseconds:.2f} us, {len(found.timed)} configurations "
        f"timed, {len(found.skipped)} skipped"
    )
    if found.compiler != cache.compiler_version():
        # Another version of the compiler may refuse what that one took.
        try:
            configured = frontend.configured(replace(pinned, config=config))
            frontend.program(configured, configured.spec, device.target, debug=False, fast_math=False)
        except CompileError:
            return None
        reason += ", by another version of the compiler"
    return config, reason


def normalized(text: str) -> str:
    """The text without comments, empty lines and trailing blanks: what they say changes no kernel."""
    lines = (line.rstrip() for line in _COMMENT.sub("", text).splitlines())
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
    path = path_of(key)
    if settings.cache_enabled():
        found = _read(path)
        if found is not None:
            return found
    with _lock:
        return _kept.get(str(path))


def save(key: Key, result: SearchResult) -> None:
    """Stores a result in place of an earlier one. An interrupted search replaces no whole one of the same compiler."""
    path = path_of(key)
    if result.interrupted:
        before = load(key)
        if before is not None and not before.interrupted and before.compiler == result.compiler:
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


def _read(path: Path) -> SearchResult | None:
    try:
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
        return replace(SearchResult.from_json(content["result"]), from_store=True)
    except (ValueError, TypeError, KeyError, AttributeError):
        with _lock:
            known = path in _warned
            _warned.add(path)
        if not known:
            warnings.warn(
                f"warning[PH0931]: {path} is damaged and is not used; the next search of kernel replaces it",
                TuningWarning,
                stacklevel=2,
            )
        return None
