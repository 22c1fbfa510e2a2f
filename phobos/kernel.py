"""The object that `phobos.jit` returns: compile a kernel, call it, bind a launch."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phobos.diagnostics import CompileError, Diagnostic, LaunchError, nearest
from phobos.ir.abi import Specialization
from phobos.ir.exact import among, exact
from phobos.runtime import binding, request
from phobos.runtime.compiled import Compiled, without_effect
from phobos.runtime.pipeline import Configured, Frontend, KernelInfo, Request
from phobos.source import SourceFile
from phobos.target import DEFAULT_ARCH, Target, get_target

if TYPE_CHECKING:
    from phobos.runtime.launch import Launcher, NothingToLaunch, Prepared
    from phobos.runtime.module import Device
    from phobos.runtime.warm import Entry
    from phobos.trace.api import Trace
    from phobos.tuning.result import SearchResult

BACKENDS = ("auto", "cuda", "emulator", "reference")
_CALL_KEYWORDS = ("config", "stream", "backend", "grid")


class KernelWarning(UserWarning):
    """A warning about a kernel that is called, of the checker (PH04xx) or that an option has no effect (PH0604);
    `Compiled.warnings` has it as an object."""


def jit(source: str, kernel: str | None = None, name: str = "<string>") -> "Kernel":
    """The kernel in a text. `kernel` picks one where there are several; `name` stands for the file in diagnostics.

    Raises CompileError for a text that does not parse, or without such a kernel.
    """
    if not isinstance(source, str):
        raise CompileError(
            Diagnostic(
                code="PH0608",
                message=f"phobos.jit takes the kernel's text, not {type(source).__name__}",
                help="for a file use phobos.load(path)",
            )
        )
    if source.strip().endswith(".ph") and len(source.splitlines()) == 1:
        message = f"phobos.jit takes the kernel's text, and {source.strip()!r:.80} is the name of a file"
        raise CompileError(Diagnostic(code="PH0608", message=message, help="for a file use phobos.load(path)"))
    try:
        source.encode()
    except UnicodeEncodeError as error:  # it can neither be printed nor given to a compiler
        line = source.count("\n", 0, error.start) + 1
        raise CompileError(
            Diagnostic(
                code="PH0608",
                message=f"the kernel's text holds half a character, U+{ord(source[error.start]):04X}, in line {line}",
                help="decode bytes as UTF-8 without errors='surrogateescape'",
            )
        ) from None
    return Kernel(Frontend(SourceFile(str(name).encode(errors="replace").decode(), source)), kernel)


def load(path: str | Path, kernel: str | None = None) -> "Kernel":
    """The kernel in a file. Raises CompileError, PH100x where the file cannot be read."""
    from phobos.files import read_source

    if not isinstance(path, (str, bytes, os.PathLike)):
        message = f"phobos.load takes the path of a kernel file, not {type(path).__name__}"
        raise CompileError(Diagnostic(code="PH0608", message=message, help="for a text use phobos.jit(text)"))
    name = os.fsdecode(path)
    return Kernel(Frontend(read_source(name)), kernel)


def _from_source(source: SourceFile, name: str) -> "Kernel":
    return Kernel(Frontend(source), name)


def _callers_level() -> int:
    """The `stacklevel` at which a warning of the function that calls this points to the code outside of Phobos."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "phobos":
        level, frame = level + 1, frame.f_back
    return level


class _Cell:
    """A place for a value that is made once."""

    __slots__ = ("lock", "value")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.value: Any = None


class Kernel:
    """A kernel of a text, in all its variants. Calls may come from several threads; each variant is compiled once."""

    def __init__(self, frontend: Frontend, name: str | None = None):
        self._frontend = frontend
        self._info = frontend.kernel(name)
        self._lock = threading.Lock()
        self._cells: dict[tuple[Any, ...], _Cell] = {}
        self._fast: Entry = self._first_call

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def source(self) -> SourceFile:
        return self._frontend.source

    @property
    def info(self) -> KernelInfo:
        """Parameters and search space, as the text declares them."""
        return self._info

    def __reduce__(self) -> "tuple[object, ...]":
        """A copy, in another process too, is made from the text; nothing compiled goes with it."""
        return _from_source, (self.source, self.name)

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.type_text}" for p in self._info.params)
        return f"<phobos.Kernel {self.name}({params}) of {self.source.name}>"

    # --- calling

    def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        """Run the kernel: tensors and scalars by position in the kernel's order or by keyword.

        Keywords `config` (values of @autotune names), `stream` (a CUDA stream; default: the caller's current one),
        `backend` ("cuda", "emulator", "reference", or "auto": cuda where there is a device, else reference) and
        `grid` (blocks along x, y, z, in place of the kernel's own) are for the call itself.

        Raises LaunchError for a wrong call (PH07xx), a failed check of the emulator (PH08xx) or a missing device
        (PH092x), CompileError for what the compiler finds under this configuration.
        """
        try:
            self._fast(*args, **kwargs)
        except TypeError:
            # Perhaps the arguments do not fit the parameters: that gets a diagnostic. Anything else goes on.
            fault = self._misfit(args, kwargs)
            if fault is not None:
                raise fault from None
            raise

    def _misfit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LaunchError | None:
        """What is wrong with the names of a call, if anything is."""
        own = {name: value for name, value in kwargs.items() if name not in _CALL_KEYWORDS}
        try:
            binding.bind_names(self.name, self._info.params, args, own)
        except LaunchError as error:
            return error
        return None

    def _first_call(self, /, *args: Any, **kwargs: Any) -> None:
        """Stands for the entry function until the first call, so that `jit` and `compile` need not make one."""
        from phobos.runtime.warm import make_entry

        self._fast = make_entry(self._info, self._slow_call)
        self._fast(*args, **kwargs)

    def _slow_call(
        self, values: Mapping[str, Any], config: Any, stream: Any, backend: str, grid: Any
    ) -> "Launcher | None":
        """A call with every check. Returns the launcher that did it, for the warm path, or None."""
        call = binding.bind(self.name, self._info.params, values)
        kind = self._backend(backend)
        if kind == "cuda":
            return self._call_cuda(values, call, config, stream, grid)
        if stream is not None:
            raise LaunchError(
                Diagnostic(code="PH0722", message=f"backend {kind!r} runs on the host; it takes no stream")
            )
        self._call_host(kind, call, config, grid)
        return None

    def _backend(self, backend: str) -> str:
        if backend not in BACKENDS:
            guess = nearest(str(backend), BACKENDS)
            raise LaunchError(
                Diagnostic(
                    code="PH0721",
                    message=f"unknown backend {backend!r}; known: {', '.join(BACKENDS)}",
                    help=f"did you mean {guess!r}?" if guess else None,
                )
            )
        if backend != "auto":
            return backend
        from phobos.runtime.module import device_available

        return "cuda" if device_available() else "reference"

    def _configure(
        self, config: Any, call: binding.Call, target: Target, device: "Device | None" = None, grid: Any = None
    ) -> tuple[Configured, str | None]:
        """The configured kernel for a call, after the checks that depend on the configuration."""
        wanted, reason = self._request(
            config, dict(call.consts), call.dims, tuple(sorted(call.dtypes.items())), target, device, grid,
            from_shapes=True,
        )  # fmt: skip
        configured = self._frontend.configured(wanted)
        binding.check_call(configured.facts, self._info.params, call)
        self._once(("warned", wanted), lambda: self._warn(configured.warnings))
        return configured, reason

    def _warn(self, diagnostics: Iterable[Diagnostic]) -> bool:
        for found in diagnostics:
            warnings.warn(found.render(self.source), KernelWarning, stacklevel=_callers_level())
        return True

    def _request(
        self,
        config: Any,
        consts: dict[str, Any],
        dims: Mapping[str, int],
        dtypes: tuple[tuple[str, Any], ...],
        target: Target,
        device: "Device | None",
        grid: Any = None,
        *,
        from_shapes: bool,
    ) -> tuple[Request, str | None]:
        """A complete request, and why where the caller left something open: the stored best of a search on `device`,
        else the cost model's choice."""
        found = self._open_request(config, consts, dims, dtypes, from_shapes=from_shapes)
        items = dict(found.config)
        if all(len(allowed) == 1 or name in items for name, allowed in self._info.space):
            return found, None
        request.check_names(self._info, items)
        chosen, stored = None, ""
        if device is not None:
            from phobos.runtime.device import given_grid
            from phobos.tuning import store

            blocks = given_grid(grid, self.name)
            chosen, stored = store.best_for(self._frontend, self._info, found, dims, device, blocks)
        reason = stored
        if chosen is None:
            if from_shapes:
                dims = request.representative(dims, [name for name, _ in self._info.space])
            chosen, reason = self._frontend.choose(found, dims, target)
            reason += f"; {stored}" if stored else ""
        return Request(kernel=self.name, config=chosen, dtypes=dtypes, consts=found.consts), reason

    def _open_request(
        self,
        config: Any,
        consts: dict[str, Any],
        dims: Mapping[str, int],
        dtypes: tuple[tuple[str, Any], ...],
        *,
        from_shapes: bool,
    ) -> Request:
        """What the caller fixes: the configuration that was given, and names that are dims of the arguments."""
        items = dict(request.config_items(config))
        for name in self._info.consts:
            if name in items:
                value = items.pop(name)
                if exact(consts.setdefault(name, value)) != exact(value):
                    raise CompileError(
                        Diagnostic(
                            code="PH0607",
                            message=f"const {name!r} is given twice: {consts[name]!r}, in config {value!r}",
                        )
                    )
        # A searched name that is also a dim is not free: the shape decides it.
        for name, allowed in self._info.space:
            if name in dims and len(allowed) > 1:
                if from_shapes and not among(dims[name], allowed):
                    raise LaunchError(
                        Diagnostic(
                            code="PH0711",
                            message=f"dim {name!r} is {dims[name]}, but the kernel allows only "
                            f"{{{', '.join(map(str, allowed))}}}",
                        )
                    )
                items.setdefault(name, dims[name])
        return Request(
            kernel=self.name, config=tuple(sorted(items.items())), dtypes=dtypes, consts=tuple(sorted(consts.items()))
        )

    # --- on the device

    def _call_cuda(
        self, values: Mapping[str, Any], call: binding.Call, config: Any, stream: Any, grid: Any
    ) -> "Launcher | None":
        from phobos.runtime import device
        from phobos.runtime.launch import Launcher
        from phobos.runtime.module import get_driver
        from phobos.runtime.streams import caller_stream, stream_handle

        driver = get_driver()
        ordinal = call.device if call.device is not None else driver.current_device()
        place = driver.device(ordinal)
        configured, reason = self._configure(config, call, place.target, place, grid)
        if call.device is None and call.views:
            handle = 0 if stream is None else stream_handle(stream)
            device.run_on_copies(
                driver, ordinal, configured.facts, call,
                lambda copied: self._launcher(driver, ordinal, configured, reason, copied, grid),
                handle,
            )  # fmt: skip
            return None
        launcher = self._launcher(driver, ordinal, configured, reason, call, grid)
        if not isinstance(launcher, Launcher):
            return None
        current = caller_stream(values.values(), call.views.values(), ordinal)
        handle = current() if stream is None else stream_handle(stream)
        device.follow_producers(driver, call.views.values(), handle, ordinal)
        launcher.launch(handle, *launcher.encode(device.dynamic_values(launcher, call)))
        return launcher

    def _launcher(
        self, driver: Any, ordinal: int, configured: Configured, reason: str | None, call: binding.Call, grid: Any
    ) -> "Launcher | NothingToLaunch":
        """The launch of a call with device views: its variant compiled and loaded."""
        from phobos.runtime import device
        from phobos.runtime.launch import NothingToLaunch

        spec = binding.specialize(configured.facts, call, configured.signs)
        target = driver.device(ordinal).target
        blocks = device.grid_of(configured.facts, call, grid)
        if 0 in blocks:
            return NothingToLaunch(blocks)
        compiled = self._variant(configured, spec, target, reason)
        key = ("function", configured.request, spec, ordinal, id(driver))
        function, packing = self._once(key, lambda: device.load(driver, ordinal, compiled, configured.facts))
        return device.launcher(driver, function, packing, compiled.program, blocks, call)

    def _variant(self, configured: Configured, spec: Specialization, target: Target, reason: str | None) -> Compiled:
        key = (configured.request, spec, target.arch)
        compiled: Compiled = self._once(
            ("variant", *key),
            lambda: self._compile(configured, spec, target, reason, debug=False, fast_math=False),
        )
        self._once(("idle", *key), lambda: self._warn(without_effect(compiled.decisions)))
        return compiled

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The value of `key`, made by the first thread that asks; the others wait for that one only."""
        with self._lock:
            cell = self._cells.setdefault(key, _Cell())
        if cell.value is None:
            with cell.lock:
                if cell.value is None:
                    cell.value = make()
        return cell.value

    def prepare(
        self,
        /,
        *args: Any,
        config: Mapping[str, Any] | None = None,
        stream: Any = None,
        grid: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> "Prepared | NothingToLaunch":
        """Bind a launch once: the result, called without arguments, launches with the same memory and scalars.

        Every check runs here and none when it is called, so the tensors must keep their memory. Takes device tensors
        only. Raises what a call raises.
        """
        from phobos.runtime import device
        from phobos.runtime.launch import Launcher, Prepared
        from phobos.runtime.module import get_driver
        from phobos.runtime.streams import caller_stream, stream_handle

        values = binding.bind_names(self.name, self._info.params, args, kwargs)
        call = binding.bind(self.name, self._info.params, values)
        driver = get_driver()
        if call.device is None and call.views:
            raise LaunchError(
                Diagnostic(
                    code="PH0725",
                    message="a prepared launch needs device tensors, but host arrays were passed",
                    help="call the kernel directly: it copies host arrays in and out",
                )
            )
        ordinal = call.device if call.device is not None else driver.current_device()
        place = driver.device(ordinal)
        configured, reason = self._configure(config, call, place.target, place, grid)
        launcher = self._launcher(driver, ordinal, configured, reason, call, grid)
        if not isinstance(launcher, Launcher):
            return launcher
        return Prepared(
            launcher,
            launcher.encode(device.dynamic_values(launcher, call)),
            (dict(values), call),
            None if stream is None else stream_handle(stream),
            caller_stream(values.values(), call.views.values(), ordinal),
        )

    def autotune(self, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The fastest configuration for these arguments, found by timing all of them; see `search`."""
        return dict(self.search(*args, **kwargs).best)

    def search(
        self,
        /,
        *args: Any,
        config: Mapping[str, Any] | None = None,
        stream: Any = None,
        backend: str = "auto",
        grid: Any = None,
        **kwargs: Any,
    ) -> "SearchResult":
        """Compiles, verifies and times the configurations for these arguments, whose memory stays as it is.

        The best one is stored for this kernel text, device, dims, dtypes and pins; later calls without it in `config`
        use it. Takes the arguments of a call; `config` pins names. More keywords, where no parameter of the kernel has
        their name: `limit`, how many configurations are compiled at most, best estimates first; `fresh=True` searches
        even where a stored result answers; `progress`, a function that gets `phobos.tuning.search.Progress` (False:
        none, default: a line on a terminal). Ctrl-C ends the search and keeps the best so far.

        Raises LaunchError: what a call raises, PH0740 where nothing can be timed (only a CUDA device can), PH0741 where
        no configuration runs, PH0743 where a kernel took the device away; CompileError for a kernel that no
        configuration makes right.
        """
        from phobos.tuning import tune

        options = tune.take_options(self._info, kwargs)
        values = binding.bind_names(self.name, self._info.params, args, kwargs)
        call = binding.bind(self.name, self._info.params, values)
        driver = tune.timing_driver(self._backend(backend))
        pinned = self._open_request(
            config, dict(call.consts), call.dims, tuple(sorted(call.dtypes.items())), from_shapes=True
        )
        result = tune.tune(self._frontend, self._info, pinned, call, values, driver, stream, grid, options)
        self._fast = self._first_call  # what warm calls remember was chosen before
        return result

    # --- on the host

    def _call_host(self, kind: str, call: binding.Call, config: Any, grid: Any) -> None:
        from phobos.runtime import host

        target = get_target(DEFAULT_ARCH)
        configured, _ = self._configure(config, call, target)
        arrays = host.arrays(call, kind)
        idle = host.without_effect(self._frontend, configured, call, target, debug=kind == "emulator")
        self._once(("idle", configured.request, idle), lambda: self._warn(idle))
        if kind == "reference":
            host.run_reference(self._frontend, configured, call, arrays, grid, target)
            return
        host.run_emulator(self._frontend, configured, call, arrays, grid, target)

    # --- compiling without running

    def compile(
        self,
        config: Mapping[str, Any] | None = None,
        arch: str | None = None,
        dims: Mapping[str, int] | None = None,
        dtypes: Mapping[str, Any] | None = None,
        consts: Mapping[str, Any] | None = None,
        debug: bool = False,
        fast_math: bool = False,
    ) -> Compiled:
        """The variant for a configuration and an architecture; needs no GPU.

        `dims` guide what is left open: the choice of a configuration, and what a variant may assume of extents and
        strides. Without them tensors count as large, contiguous and aligned. `dtypes` binds dtype parameters
        ({"T": "f16"}); const parameters come in `consts` or `config`. Without `arch` the target is the device at hand,
        and a stored best for it and these dims is used. Raises CompileError.
        """
        target, device = self._target(arch)
        extents = request.extents(self._info, dims)
        wanted, reason = self._request(
            config,
            dict(request.config_items(consts)),
            extents,
            request.parse_dtypes(self._info, dtypes or {}),
            target,
            device,
            from_shapes=False,
        )
        configured = self._frontend.configured(wanted)
        request.check_extents(extents, dict(configured.facts.configuration))
        spec = request.guided_spec(configured.facts, configured.spec, extents)
        return self._compile(configured, spec, target, reason, debug=debug, fast_math=fast_math)

    def trace(
        self,
        *args: Any,
        config: Mapping[str, Any] | None = None,
        compare: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        dtypes: Mapping[str, Any] | None = None,
        arch: str | None = None,
        emulator: bool = False,
        max_size: float | None = None,
        **kwargs: Any,
    ) -> "Trace":
        """A run to look at step by step; needs no GPU. Shows itself in a notebook, and
        `save("trace.html")` writes a page.

        Takes the arguments of a call, which stay as they are; where tensors are left out they are random and small, of
        extents `dims` and types `dtypes` where given. `config`: values of @autotune names, the smallest ones that
        compile where left out; `compare`: changes to it for a second trace beside the first. `emulator`: records the
        addresses of a run on the emulator and says whether they are those of the layouts. `max_size`: the most MB that
        a trace may have, 20 where left out.

        Raises CompileError and LaunchError as a call does; LaunchError PH1020 for a run too long or large to look at.
        """
        from phobos.trace.api import trace_kernel

        return trace_kernel(
            self._frontend, self._info, args, kwargs,
            config=config, compare=compare, dims=dims, dtypes=dtypes, arch=arch, emulator=emulator, max_size=max_size,
        )  # fmt: skip

    def _compile(
        self,
        configured: Configured,
        spec: Specialization,
        target: Target,
        reason: str | None,
        *,
        debug: bool,
        fast_math: bool,
    ) -> Compiled:
        program = self._frontend.program(configured, spec, target, debug=debug, fast_math=fast_math)
        return Compiled(self._frontend, self._info, configured, program, target, spec, reason)

    def _target(self, arch: str | None) -> "tuple[Target, Device | None]":
        """The target, and the device at hand where no architecture was named."""
        if arch is not None:
            return get_target(arch), None
        from phobos.runtime import module

        if module.device_available():
            driver = module.get_driver()
            device = driver.device(driver.current_device())
            return device.target, device
        return get_target(DEFAULT_ARCH), None
