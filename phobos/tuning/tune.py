"""A search for a kernel's call on a CUDA device: the parts of this package put together, and the result stored."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from phobos import settings
from phobos.diagnostics import CompileError, Diagnostic, LaunchError
from phobos.runtime import binding, cache, device, request
from phobos.runtime.facts import kernel_facts
from phobos.runtime.module import Driver, get_driver
from phobos.runtime.pipeline import Frontend, KernelInfo, Request
from phobos.runtime.streams import caller_stream, stream_handle
from phobos.tuning import store
from phobos.tuning.candidates import Job, without_memory
from phobos.tuning.progress import TerminalLine
from phobos.tuning.result import SearchResult
from phobos.tuning.search import Search, Watcher
from phobos.tuning.space import Space, config_text
from phobos.tuning.timer import CudaTimer
from phobos.tuning.verify import Against, Agreement, Judge, reference_outputs, tolerances
from phobos.tuning.workers import Pool

# A configuration whose compilation takes longer is not worth waiting for.
_COMPILE_SECONDS = 60.0
_REFERENCE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Keywords of a search beside those of a call."""

    limit: int | None = None
    fresh: bool = False
    progress: Watcher | bool | None = None


def take_options(info: KernelInfo, keywords: dict[str, Any]) -> Options:
    """Takes the options out of a call's keywords; a parameter of the kernel goes before an option of its name.

    Raises LaunchError PH0744 for a value that an option cannot have.
    """
    params = {p.name for p in info.params}
    given = {n: keywords.pop(n) for n in ("limit", "fresh", "progress") if n in keywords and n not in params}
    limit, progress = given.get("limit"), given.get("progress")
    fresh = request.plain_value(given.get("fresh", False))
    problem = None
    most = None if limit is None else request.extent(limit)
    if limit is not None and not most:
        problem = f"limit={limit!r} is not a number of configurations"
    elif not isinstance(fresh, bool):
        problem = f"fresh={given['fresh']!r} is neither True nor False"
    elif not (progress is None or isinstance(progress, bool) or callable(progress)):
        problem = f"progress={progress!r} is not a function"
    if problem is not None:
        raise LaunchError(Diagnostic(code="PH0744", message=problem))
    return Options(limit=most, fresh=fresh is True, progress=progress)


def timing_driver(backend: str) -> Driver:
    """The driver whose device times. Raises LaunchError PH0740 where nothing can be timed."""
    notes: tuple[str, ...] = ()
    if backend == "cuda":
        try:
            return get_driver()
        except LaunchError as error:
            found = error.diagnostics[0]
            why, notes = "there is no CUDA device", (f"{found.code}: {found.message}",)
    else:
        why = f"backend {backend!r} has no clock of a device"
    raise LaunchError(
        Diagnostic(
            code="PH0740",
            message=f"nothing can be timed: {why}; a search needs a CUDA device",
            notes=notes,
            help="a call without config= takes the cost model's choice",
        )
    )


def tune(
    frontend: Frontend,
    info: KernelInfo,
    pinned: Request,
    call: binding.Call,
    values: Mapping[str, Any],
    driver: Driver,
    stream: Any,
    grid: Any,
    options: Options,
) -> SearchResult:
    """Searches for the call, or takes the stored result that answers it. Raises what `Kernel.search` does."""
    request.check_names(info, dict(pinned.config))
    if stream is not None:
        stream_handle(stream)  # also where nothing waits for it
    ordinal = call.device if call.device is not None else driver.current_device()
    place = driver.device(ordinal)
    key = store.key_of(frontend.source.text, info, pinned, call.dims, place, device.given_grid(grid, info.name))
    assert key is not None  # a call binds every dim
    earlier = store.load(key)
    if earlier is not None and store.refused(frontend, earlier, pinned, place) is not None:
        earlier = None
    if earlier is not None and not options.fresh and _answers(earlier, options.limit):
        if _serves(frontend, info, replace(pinned, config=store.merged(earlier, pinned)), call, grid):
            return earlier
    _finish_producers(driver, ordinal, call, values, stream)

    begin = time.perf_counter()
    space = Space.of(info.space, dict(pinned.config))
    dtypes = {name: view.dtype for name, view in call.views.items() if view.dtype is not None}
    timer = CudaTimer(driver, ordinal, call, dtypes, grid)
    try:
        job = Job(
            source=frontend.source, kernel=info.name, dtypes=pinned.dtypes, consts=pinned.consts,
            call=without_memory(timer.call), arch=place.target.arch,
        )  # fmt: skip
        with _pool(space) as pool, _watching(options.progress, info.name) as watcher:
            search = Search(space, Processes(pool, job), timer, limit=options.limit, watcher=watcher)
            search.run(lambda configs: make_judge(frontend, job, configs, timer, grid))
    finally:
        timer.close()

    best = search.best
    if best is None:
        raise search.lost or _nothing_runs(search, job)
    assert best.microseconds is not None
    result = SearchResult(
        kernel=info.name,
        device=place.name,
        capability=place.capability,
        dims=dict(call.dims),
        dtypes={name: dtype.value for name, dtype in pinned.dtypes},
        consts=dict(pinned.consts),
        pins=dict(key.pins),
        best=dict(best.config),
        microseconds=best.microseconds,
        complete=search.complete,
        interrupted=search.interrupted or search.lost is not None,
        limit=options.limit,
        space_size=space.size,
        reference=search.reference,
        seconds=time.perf_counter() - begin,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        compiler=cache.compiler_version(),
        outcomes=search.outcomes,
    )
    store.save(key, result, always=earlier is None)
    if search.lost is not None:
        raise search.lost
    return result


def _answers(earlier: SearchResult, limit: int | None) -> bool:
    """Whether a stored result is what a search with this limit would find again."""
    if earlier.interrupted or earlier.compiler != cache.compiler_version():
        return False
    return earlier.limit is None or (limit is not None and limit <= earlier.limit)


def _serves(frontend: Frontend, info: KernelInfo, wanted: Request, call: binding.Call, grid: Any) -> bool:
    """Whether a call with these arguments can run under this configuration. Else the search says what is wrong."""
    configured = frontend.configured(wanted)
    facts = configured.facts
    try:
        binding.check_call(facts, info.params, call)
        binding.specialize(facts, call, configured.signs)
        return 0 not in device.grid_of(facts, call, grid)
    except LaunchError:
        return False


def _finish_producers(driver: Driver, ordinal: int, call: binding.Call, values: Mapping[str, Any], stream: Any) -> None:
    """Waits for what the caller has enqueued on the arrays; the search runs on a stream of its own."""
    if call.device is None:
        return
    current = caller_stream(values.values(), call.views.values(), ordinal)
    handle = current() if stream is None else stream_handle(stream)
    with driver.current(ordinal):
        device.follow_producers(driver, call.views.values(), handle, ordinal)
        driver.synchronize(handle)


class Processes:
    """Examines and builds candidates of a job in a pool."""

    def __init__(self, pool: Pool, job: Job):
        self._pool = pool
        self._job = job

    def examine(self, config: Mapping[str, Any]) -> Future[Any]:
        return self._pool.submit("examine", self._job, config)

    def build(self, config: Mapping[str, Any]) -> Future[Any]:
        return self._pool.submit("build", self._job, config)


def _pool(space: Space) -> Pool:
    """A process a core; one core is left to this process where there are many. A handful is compiled by threads: a
    process takes half a second to start."""
    jobs = settings.compile_jobs()
    count = min(jobs if jobs <= 4 else jobs - 1, space.size)
    return Pool(count, "phobos.tuning.candidates", task_seconds=_COMPILE_SECONDS, processes=jobs > 1 and space.size > 2)


def _watching(progress: Watcher | bool | None, kernel: str) -> AbstractContextManager[Watcher]:
    if progress is None or progress is True:
        return TerminalLine(kernel)
    return nullcontext(progress if callable(progress) else lambda found: None)


def make_judge(
    frontend: Frontend, job: Job, configs: Sequence[Mapping[str, Any]], timer: CudaTimer, grid: Any
) -> Judge:
    """The float64 reference of the configuration with the fewest blocks, if it is quick enough; else agreement."""
    kernel = frontend.ir(job.request(configs[0]))
    facts = kernel_facts(kernel)
    dtypes = {t.name: t.dtype for t in facts.tensors}
    tolerance = tolerances(kernel)
    written = {t.name: t.read for t in facts.tensors if t.written}
    # The reference works on copies, which do not share memory as the arguments may.
    if not binding.overlapping(facts, job.call.views):
        expected = reference_outputs(
            kernel,
            timer.host_arrays,
            job.call.scalars,
            written,
            elements=sum(view.size for view in job.call.views.values()),
            grid=device.grid_of(facts, job.call, grid),
            seconds=_REFERENCE_SECONDS,
        )
        if expected is not None:
            return Against(expected, dtypes, tolerance, "the float64 reference")
    return Agreement(dtypes, tolerance)


def _nothing_runs(search: Search, job: Job) -> CompileError | LaunchError:
    """Why there is no result: the checker's own errors where all configurations have some, what a call says where it
    says the same of all."""
    dropped = search.errors()
    if dropped and all(d.stage == "check" and d.diagnostics for d in dropped):
        return CompileError(dropped[0].diagnostics, job.source)
    if dropped and all(d.of_call and d.diagnostics == dropped[0].diagnostics for d in dropped):
        return LaunchError(dropped[0].diagnostics)
    reasons = [f"{config_text(o.config)}: {o.reason}" for o in search.outcomes]
    notes = reasons[:8] + ([f"and {len(reasons) - 8} more"] if len(reasons) > 8 else [])
    return LaunchError(
        Diagnostic(
            code="PH0741", message=f"no configuration of kernel {job.kernel!r} could be timed", notes=tuple(notes)
        )
    )
