"""The search itself: look at every configuration, compile the promising ones, verify and time what comes back.

It knows neither CUDA nor processes: a `Toolchain` examines and builds configurations, a `Timer` runs them, a `Judge`
says whether outputs are right. Candidates are compiled best estimate first and timed as they arrive, so that a search
that is interrupted has timed the likely ones.
"""

from __future__ import annotations

import math
import queue
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from phobos.diagnostics import CompileError, Diagnostic, LaunchError
from phobos.tuning.candidates import Dropped, Examined
from phobos.tuning.result import SKIPPED, TIMED, Outcome
from phobos.tuning.space import Space
from phobos.tuning.timer import DeviceLost, Timer
from phobos.tuning.verify import Judge
from phobos.tuning.workers import WorkerDied, WorkerFailed, next_done, result

NEAR_TIE = 1.03  # candidates this close to the best are timed again, in turns
_TIE_ROUNDS = 7
_BATCH_SECONDS = 2e-3  # of work between two events: long beside an event's resolution of half a microsecond
_MOST_LAUNCHES = 200  # of a batch
_SAMPLES = 5
_MORE_SAMPLES = 10  # at most, where the first five differ by more than this:
_STEADY = 1.02
_HOPELESS = 20.0  # times slower than the best: two launches are enough, if they take long
_WARM_UP_SECONDS = 0.25  # of work before the first timing: an idle device runs at a low clock


class Toolchain(Protocol):
    """Examines and compiles configurations, in other processes perhaps. Futures may raise WorkerDied, WorkerFailed."""

    def examine(self, config: Mapping[str, Any]) -> Future[Examined | Dropped]: ...

    def build(self, config: Mapping[str, Any]) -> Future[Any]:
        """A future of Dropped, or of something with `registers`, `spill_bytes`, `threads` and `shared_bytes`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a search is. `seconds_left` is None while nothing is known; `last` is what was decided last."""

    phase: str  # "examining", "timing", "near ties", "done"
    done: int
    total: int
    seconds_left: float | None = None
    best: Outcome | None = None
    last: Outcome | None = None


Watcher = Callable[[Progress], object]


class _Candidate:
    """What becomes of one configuration."""

    def __init__(self, number: int, config: dict[str, Any]):
        self.number = number
        self.config = config
        self.cycles: float | None = None
        self.blocks = 0
        self.dropped: Dropped | None = None
        self.built: Any = None
        self.loaded: Any = None
        self.seconds: float | None = None
        self.launches = 0
        self.error: float | None = None

    def drop(self, stage: str, reason: str, error: LaunchError | None = None) -> None:
        found = error.diagnostics if error is not None else ()
        self.dropped = Dropped(stage=stage, reason=reason, diagnostics=found, of_call=bool(found))
        self.loaded = None

    @property
    def usable(self) -> bool:
        return self.seconds is not None and self.dropped is None

    def outcome(self) -> Outcome:
        facts: dict[str, Any] = {}
        if self.built is not None:
            facts = {n: getattr(self.built, n) for n in ("threads", "registers", "spill_bytes", "shared_bytes")}
        if self.cycles is not None and math.isfinite(self.cycles):
            facts["cycles"] = self.cycles
        if self.error is not None and math.isfinite(self.error):
            facts["error"] = self.error
        if self.usable:
            assert self.seconds is not None
            return Outcome(
                config=self.config, status=TIMED, microseconds=self.seconds * 1e6, launches=self.launches, **facts,
            )  # fmt: skip
        dropped = self.dropped or Dropped(stage="interrupted", reason="the search ended before its turn")
        return Outcome(config=self.config, status=SKIPPED, stage=dropped.stage, reason=dropped.reason, **facts)


class Search:
    """One search. `run` examines first and calls `make_judge` while the first candidates compile.

    limit: how many configurations are compiled at most, best estimates first; None for all. After `run`, `outcomes`
    has every configuration, `best` the fastest right one or None, `interrupted` whether Ctrl-C ended it early, `lost`
    the error that took the device away, if one did.
    """

    def __init__(
        self,
        space: Space,
        toolchain: Toolchain,
        timer: Timer,
        *,
        limit: int | None = None,
        watcher: Watcher = lambda progress: None,
        seed: int = 0,
    ):
        self.space = space
        self.interrupted = False
        self.lost: DeviceLost | None = None
        self.complete = False
        self._toolchain = toolchain
        self._timer = timer
        self._limit = limit
        self._watcher = watcher
        self._random = random.Random(seed)
        self._candidates = [_Candidate(i, c) for i, c in enumerate(space.configurations())]
        self._judge: Judge | None = None
        self._warm = False
        self._done = 0
        self._total = len(self._candidates)
        self._begin = 0.0

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(c.outcome() for c in self._candidates)

    @property
    def best(self) -> Outcome | None:
        found = self._best()
        return None if found is None else found.outcome()

    @property
    def reference(self) -> str:
        return "nothing" if self._judge is None else self._judge.description

    def errors(self) -> list[Dropped]:
        """What each dropped configuration failed of, in the space's order."""
        return [c.dropped for c in self._candidates if c.dropped is not None]

    def run(self, make_judge: Callable[[Sequence[Mapping[str, Any]]], Judge]) -> None:
        """`make_judge` gets the configurations that the checker accepts, those with the fewest blocks first.

        A KeyboardInterrupt ends the search and keeps what was timed; if nothing was, it goes on to the caller.
        """
        futures: dict[Future[Any], _Candidate] = {}
        try:
            chosen = self._examine()
            futures = {self._toolchain.build(c.config): c for c in chosen}
            if chosen:
                self._judge = make_judge([c.config for c in sorted(chosen, key=lambda c: (c.blocks, c.number))])
                self._time_all(futures)
                self._near_ties()
            self.complete = self._limit is None and len(self._candidates) == self.space.size
        except DeviceLost as error:
            self.lost = error
        except KeyboardInterrupt:
            self.interrupted = True
            self._settle()
            if self._best() is None:
                raise
        finally:
            for future in futures:
                future.cancel()
        self._report("done")

    # --- before compiling

    def _examine(self) -> list[_Candidate]:
        """The candidates to compile, best estimate first."""
        self._begin = time.monotonic()
        futures = {self._toolchain.examine(c.config): c for c in self._candidates}
        for future, candidate in self._arrivals(futures):
            found = _result(future, "check")
            if isinstance(found, Dropped):
                candidate.dropped = found
            else:
                candidate.cycles, candidate.blocks = found.cycles, found.blocks
            self._done += 1
            self._report("examining", candidate)
        fitting = [c for c in self._candidates if c.dropped is None]
        fitting.sort(key=lambda c: (c.cycles, c.number))
        limit = len(fitting) if self._limit is None else self._limit
        for rank, candidate in enumerate(fitting[limit:], limit + 1):
            candidate.drop("limit", f"estimate number {rank} of {len(fitting)}; the search was limited to {limit}")
        return fitting[:limit]

    def _arrivals(self, futures: Mapping[Future[Any], _Candidate]) -> Iterator[tuple[Future[Any], _Candidate]]:
        """In the order of completion; those that are complete already in the order of `futures`."""
        finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(finished.put)
        for _ in range(len(futures)):
            future = next_done(finished)
            yield future, futures[future]

    # --- timing

    def _time_all(self, futures: Mapping[Future[Any], _Candidate]) -> None:
        self._begin, self._done, self._total = time.monotonic(), 0, len(futures)
        spilling = []
        for future, candidate in self._arrivals(futures):
            found = _result(future, "compile")
            if isinstance(found, Dropped):
                candidate.dropped = found
            else:
                candidate.built = found
                if found.spill_bytes:
                    reason = f"it spills {found.spill_bytes} bytes a thread at {found.registers} registers"
                    candidate.drop("spill", reason)
                    spilling.append(candidate)
                else:
                    self._try(candidate)
            self._done += 1
            self._report("timing", candidate)
        self._settle()
        if self._best() is None and spilling:  # nothing else is left
            self._begin, self._done, self._total = time.monotonic(), 0, len(spilling)
            for candidate in spilling:
                candidate.dropped = None
                self._try(candidate)
                self._done += 1
                self._report("timing", candidate)
            self._settle()

    def _try(self, candidate: _Candidate) -> None:
        """Verify, then time."""
        assert self._judge is not None
        try:
            candidate.loaded = self._timer.load(candidate.built)
            verdict = self._judge.judge(candidate.number, self._timer.outputs(candidate.loaded))
            candidate.error = verdict.error
            if verdict.good is False:
                candidate.drop("verify", verdict.problem or "its output is wrong")
                return
            if not self._warm:
                self._warm_up(candidate.loaded)
            candidate.seconds, candidate.launches = self._measure(candidate.loaded)
        except DeviceLost as error:
            candidate.drop("launch", _text(error))
            raise
        except LaunchError as error:
            candidate.drop("launch", _text(error), error)

    def _seconds(self, loaded: Any, launches: int) -> float:
        """Of a launch. Raises LaunchError PH0745 for what is no time."""
        found = self._timer.seconds(loaded, launches)
        if not (math.isfinite(found) and found >= 0.0):
            raise LaunchError(Diagnostic(code="PH0745", message=f"the device's clock gives {found} seconds"))
        return found

    def _warm_up(self, loaded: Any) -> None:
        spent = self._seconds(loaded, 1)
        launches = _batch(spent)
        for _ in range(1000):
            if spent >= _WARM_UP_SECONDS:
                break
            spent += launches * self._seconds(loaded, launches)
        self._warm = True

    def _measure(self, loaded: Any) -> tuple[float, int]:
        """(median seconds of a launch, launches)."""
        first = self._seconds(loaded, 1)
        best = self._best()
        if best is not None and best.seconds is not None and first > _HOPELESS * best.seconds and first > 0.02:
            return min(first, self._seconds(loaded, 1)), 2
        launches = _batch(first)
        samples = [self._seconds(loaded, launches) for _ in range(_SAMPLES)]
        while max(samples) > _STEADY * min(samples) and len(samples) < _MORE_SAMPLES and sum(samples) * launches < 0.5:
            samples.append(self._seconds(loaded, launches))
        return statistics.median(samples), launches * len(samples)

    def _settle(self) -> None:
        """Candidates whose output nothing confirmed while they were timed."""
        if self._judge is None:
            return
        for number, verdict in self._judge.settle().items():
            candidate = self._candidates[number]
            candidate.error = verdict.error
            if not verdict.good:
                candidate.drop("verify", verdict.problem or "its output is wrong")

    def _near_ties(self) -> None:
        """Times those that are as good as equal again, in turns and in random order, so that a drift of the clock
        decides nothing."""
        best = self._best()
        if best is None or best.seconds is None:
            return
        most = NEAR_TIE * best.seconds
        close = [c for c in self._candidates if c.usable and (c.seconds or 0.0) <= most]
        if len(close) < 2:
            return
        self._begin, self._done, self._total = time.monotonic(), 0, _TIE_ROUNDS
        samples: dict[int, list[float]] = {c.number: [] for c in close}
        launches = {c.number: _batch(c.seconds or 0.0) for c in close}
        for _ in range(_TIE_ROUNDS):
            self._random.shuffle(close)
            for candidate in list(close):
                try:
                    samples[candidate.number].append(self._seconds(candidate.loaded, launches[candidate.number]))
                except DeviceLost:
                    raise
                except LaunchError as error:
                    candidate.drop("launch", _text(error), error)
                    close.remove(candidate)
            self._done += 1
            self._report("near ties")
        for candidate in close:
            candidate.seconds = statistics.median(samples[candidate.number])
            candidate.launches += launches[candidate.number] * _TIE_ROUNDS

    def _best(self) -> _Candidate | None:
        usable = [c for c in self._candidates if c.usable]
        return min(usable, key=lambda c: (c.seconds, c.number)) if usable else None

    def _report(self, phase: str, last: _Candidate | None = None) -> None:
        spent = time.monotonic() - self._begin
        left = spent / self._done * (self._total - self._done) if self._done else None
        best = self._best()
        self._watcher(
            Progress(
                phase=phase,
                done=self._done,
                total=self._total,
                seconds_left=left,
                best=None if best is None else best.outcome(),
                last=None if last is None or (last.dropped is None and last.seconds is None) else last.outcome(),
            )
        )


def _batch(seconds: float) -> int:
    """Launches of about two milliseconds in all."""
    if seconds <= 0:
        return _MOST_LAUNCHES
    return max(1, min(_MOST_LAUNCHES, round(_BATCH_SECONDS / seconds)))


def _result(future: Future[Any], stage: str) -> Any:
    try:
        return result(future)
    except (WorkerDied, WorkerFailed) as error:
        return Dropped(stage=stage, reason=str(error))


def _text(error: LaunchError | CompileError) -> str:
    found = error.diagnostics[0]
    return f"{found.code}: {found.message}"
