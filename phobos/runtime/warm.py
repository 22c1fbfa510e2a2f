"""The warm path of a call: from a call seen before to the driver in a few microseconds.

A call is recognised by a key of everything that its checks and its variant depend on, except addresses and the values
of scalars: shapes, strides, dtypes, devices, configuration, classes of scalars. The key leads to a `Record`: the
launcher that served the first such call. Addresses are compared with those of the last call; where they changed,
alignment and overlap are looked at again.

For torch tensors the key is computed by a function made for the kernel, with the kernel's own parameters as Python
parameters, so that CPython binds positions and keywords. Measured for three tensors and a scalar, over a driver library
that does nothing: 2.4 us, of which `cuLaunchKernel` of cuda-bindings takes 0.44 us.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.runtime import binding
from phobos.runtime.arguments import ArrayView, view
from phobos.runtime.facts import ParamFact
from phobos.runtime.launch import Launcher
from phobos.runtime.pipeline import KernelInfo
from phobos.runtime.streams import stream_handle

Entry = Callable[..., None]
# (values by name, config, stream, backend, grid) -> the launcher that served the call on device tensors, else None
SlowCall = Callable[[Mapping[str, Any], Any, Any, str, Any], Launcher | None]

# Records of a kernel; shapes that keep changing must not fill the memory.
_MAX_RECORDS = 4096
_MISS = (KeyError, AttributeError, TypeError, RuntimeError, ValueError)


class Record:
    """A launcher with what must hold of addresses for it to serve a call again."""

    __slots__ = ("_alignment", "_overlaps", "_pairs", "launch", "pointers")

    def __init__(self, launcher: Launcher, views: Sequence[ArrayView], written: Sequence[bool]):
        self.launch = launcher.launch
        self.pointers = tuple(v.pointer for v in views)
        self._alignment = tuple(p & 15 for p in self.pointers)
        spans = []
        for v in views:
            assert v.dtype is not None
            low, high = v.byte_range(v.dtype.bytes)
            spans.append((low - v.pointer, high - v.pointer))
        self._pairs = tuple(
            (i, j, *spans[i], *spans[j])
            for i in range(len(views))
            for j in range(i + 1, len(views))
            if written[i] or written[j]
        )
        self._overlaps = self._overlap_of(self.pointers)

    def _overlap_of(self, pointers: Sequence[int]) -> tuple[bool, ...]:
        return tuple(
            pointers[i] + low < pointers[j] + other_high and pointers[j] + other_low < pointers[i] + high
            for i, j, low, high, other_low, other_high in self._pairs
        )

    def admits(self, pointers: tuple[int, ...]) -> bool:
        """Whether other addresses are served by the same variant: equally aligned, the same pairs overlapping."""
        if tuple(p & 15 for p in pointers) != self._alignment or self._overlap_of(pointers) != self._overlaps:
            return False
        self.pointers = pointers
        return True


class Records:
    """Records of one kernel by key; `remember` after a slow call, `find` in a warm one."""

    def __init__(self, info: KernelInfo, slow: SlowCall):
        self.info = info
        self.slow = slow
        self.torch: dict[Any, Record] = {}
        self.other: dict[Any, Record] = {}
        self.scope: dict[str, Any] = {}
        self._tensors = tuple(p.name for p in info.params if p.kind == "tensor")

    def _bind_torch_stream(self) -> None:
        """From now on the made function asks torch itself for the current stream; a record exists only after this."""
        torch = sys.modules.get("torch")
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None) if torch is not None else None
        if raw is not None:
            self.scope["_current"] = raw

    def call(
        self, values: Mapping[str, Any], torch_key: Any, config: Any, stream: Any, backend: str, grid: Any
    ) -> None:
        """A call that the made function did not serve: by a record for other libraries' arrays, else with every
        check; then remembered."""
        views = self._device_views(values)
        key = None if views is None else self._key(views, values, config, backend, grid)
        if key is not None and views is not None:
            record = self.other.get(key)
            pointers = tuple(v.pointer for v in views)
            if record is not None and torch_key is None and (pointers == record.pointers or record.admits(pointers)):
                if self._launch(record, views, values, stream):
                    return
        launcher = self.slow(values, config, stream, backend, grid)
        if launcher is None or views is None or not self._plain(values, launcher):
            return
        record = Record(launcher, views, [name in launcher.written for name in self._tensors])
        table, wanted = (self.torch, torch_key) if torch_key is not None else (self.other, key)
        if torch_key is not None:
            self._bind_torch_stream()
        if _hashable(wanted):
            if len(table) >= _MAX_RECORDS:
                table.clear()
            table[wanted] = record

    def _device_views(self, values: Mapping[str, Any]) -> list[ArrayView] | None:
        """Views of all tensors if each lies on a device and no check of the argument itself fails."""
        from phobos.diagnostics import LaunchError

        views = []
        for name in self._tensors:
            try:
                found = view(values[name], name)
            except LaunchError:  # the slow call reports it together with everything else
                return None
            if found.device is None or found.dtype is None:
                return None
            views.append(found)
        return views

    def _key(self, views: Sequence[ArrayView], values: Mapping[str, Any], config: Any, backend: str, grid: Any) -> Any:
        scalars = tuple(_scalar_key(p, values[p.name]) for p in self.info.params if p.kind != "tensor")
        tensors = tuple((v.shape, v.strides, v.dtype_name, v.device, v.readonly) for v in views)
        try:
            items = tuple((n, type(v), v or repr(v)) for n, v in config.items()) if config else None
            key = (tensors, scalars, items, backend, _grid_key(grid))
        except AttributeError:
            return None
        return key if _hashable(key) else None

    def _launch(self, record: Record, views: Sequence[ArrayView], values: Mapping[str, Any], stream: Any) -> bool:
        from phobos.runtime.device import follow_producers
        from phobos.runtime.module import get_driver
        from phobos.runtime.streams import caller_stream

        if stream is None:
            device = views[0].device
            assert device is not None
            handle = caller_stream(values.values(), views, device)()
        else:
            handle = stream_handle(stream)
        if any(v.stream is not None for v in views):
            device = views[0].device
            assert device is not None
            follow_producers(get_driver(), views, handle, device)
        scalars = [values[p.name] for p in self.info.params if p.kind == "scalar"]
        try:
            record.launch(handle, *(v.pointer for v in views), *scalars)
        except (struct.error, OverflowError):
            return False
        return True

    def _plain(self, values: Mapping[str, Any], launcher: Launcher) -> bool:
        """Whether a record can take the caller's values as they are: each scalar is a Python number that needs no
        encoding."""
        return all(encoder is None for encoder in launcher.packing.encoders) and all(
            _is_natural(p, values[p.name]) for p in self.info.params if p.kind != "tensor"
        )


def _hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:  # such as a list for the grid
        return False
    return key is not None


def _is_natural(param: ParamFact, value: Any) -> bool:
    if param.generic:
        return type(value) in (int, float)
    dtype = DTYPE_BY_NAME[param.dtype]
    if dtype is DType.BOOL:
        return type(value) is bool
    return type(value) in (int, float) if dtype.is_float else type(value) is int


def _scalar_key(param: ParamFact, value: Any) -> Any:
    """What a record depends on: the value of a const; of a scalar its Python type and its sign class."""
    if param.kind == "const":
        return type(value), value or repr(value) if isinstance(value, (int, float)) else value
    return type(value), value > 0 if type(value) in (int, float) else None


def _grid_key(grid: Any) -> Any:
    """Types count: (2.0, 1) is no grid."""
    return tuple((type(size), size) for size in grid) if type(grid) is tuple else (type(grid), grid)


# --- the made function -----------------------------------------------------------------------

_RESERVED = frozenset({"config", "stream", "backend", "grid"})


def make_entry(info: KernelInfo, slow: SlowCall) -> Entry:
    """The function behind `Kernel.__call__`.

    Its parameters are the kernel's, then the keywords of the call; CPython raises TypeError where a call does not fit
    them. Parameter names that Python or this function need for themselves give the general form.
    """
    import keyword

    records = Records(info, slow)
    names = [p.name for p in info.params]
    if any(keyword.iskeyword(n) or n.startswith("_") or n in _RESERVED for n in names):
        return _general_entry(records)
    text = _entry_text(info.params)
    scope: dict[str, Any] = {
        "__name__": __name__,
        "_records": records.torch,
        "_slow": records.call,
        "_handle": stream_handle,
        "_current": _torch_raw_stream,
        "_MISS": _MISS,
        "_RANGE": (struct.error, OverflowError),
        "_type": type,
        "_repr": repr,
        "_grid": _grid_key,
        "_tuple": tuple,
    }
    records.scope = scope
    exec(compile(text, f"<entry of {info.name}>", "exec"), scope)  # noqa: S102
    return scope["_entry"]


def _general_entry(records: Records) -> Entry:
    params = records.info.params

    def entry(
        *args: Any, config: Any = None, stream: Any = None, backend: str = "auto", grid: Any = None, **kwargs: Any
    ) -> None:
        values = binding.bind_names(records.info.name, params, args, kwargs)
        records.call(values, None, config, stream, backend, grid)

    return entry


def _torch_raw_stream(device: int) -> int:
    from phobos.runtime.streams import torch_current_stream

    current = torch_current_stream(device)
    return 0 if current is None else current()


def _entry_text(params: Sequence[ParamFact]) -> str:
    """The made function's text. Own names begin with an underscore, which no parameter here does."""
    tensors = [p.name for p in params if p.kind == "tensor"]
    scalars = [p.name for p in params if p.kind == "scalar"]
    consts = [p.name for p in params if p.kind == "const"]
    parts: list[str] = []
    for n in tensors:
        # Strides matter only where they are not the row-major ones; is_neg only exists of views.
        parts.append(f"{n}.shape, {n}.dtype, {n}.get_device(), {n}.is_contiguous() or ({n}.stride(), {n}.is_neg())")
    parts += [f"_type({n}), {n} > 0" for n in scalars]
    parts += [f"_type({n}), {n} or _repr({n})" for n in consts]
    # 1, 1.0 and True are other values; so are 0.0 and -0.0.
    items = "_tuple([(_n, _type(_v), _v or _repr(_v)) for _n, _v in config.items()]) if config else None"
    parts.append(f"backend, grid if grid is None else _grid(grid), {items}")
    values = ", ".join(f"{n!r}: {n}" for n in (p.name for p in params))
    keywords = "*, config=None, stream=None, backend='auto', grid=None"
    parameters = ", ".join([*(p.name for p in params), keywords])
    if not tensors:  # nothing to recognise a torch call by
        return f"def _entry({parameters}):\n    _slow({{{values}}}, None, config, stream, backend, grid)\n"
    pointers = ", ".join(f"_p{i}" for i in range(len(tensors)))
    lines = [
        f"def _entry({parameters}):",
        "    _key = None",
        "    try:",
        *(f"        _p{i} = {n}.data_ptr()" for i, n in enumerate(tensors)),
        f"        _key = ({', '.join(parts)},)",
        "        _record = _records[_key]",
        f"        _pointers = ({pointers},)",
        "        if _pointers == _record.pointers or _record.admits(_pointers):",
        f"            _stream = _current({tensors[0]}.get_device()) if stream is None else _handle(stream)",
        f"            return _record.launch({', '.join(['_stream', pointers, *scalars])})",
        "    except _RANGE:",
        "        pass",
        "    except _MISS:",
        "        pass",
        f"    _slow({{{values}}}, _key, config, stream, backend, grid)",
    ]
    return "\n".join(lines) + "\n"
