"""How times are taken: the same for every implementation of a case, interleaved in one process.

Each implementation is warmed up by at least 25 calls and 500 ms of finished work. Then seven rounds; in each, every
implementation is timed once, in random order, over 50 calls between two events. Where a call takes less than 50 us, or
no longer than the host needs to start it, the 50 calls of every implementation are one CUDA graph, so that Python is
not what is measured. The result is the median, the minimum and the maximum over the rounds, per call.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Call = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The numbers of the protocol."""

    warmup_calls: int = 25
    warmup_seconds: float = 0.5
    rounds: int = 7
    calls: int = 50
    graph_below_us: float = 50.0


FULL = Plan()
# A call that takes the device less than this many times what it takes the host waits for the host.
HOST_BOUND = 1.25
# For a look while working; rows of such a run are never written into results/.
QUICK = Plan(warmup_calls=3, warmup_seconds=0.05, rounds=3, calls=10)


class Clock(Protocol):
    """What timing needs of a device. Calls only enqueue; `finish` waits for all of them."""

    def finish(self) -> None: ...

    def elapsed(self, calls: Sequence[Call]) -> float:
        """Seconds on the device from the first to the end of the last of `calls`, by events."""
        ...

    def capture(self, calls: Sequence[Call]) -> Call | None:
        """One call that replays `calls` as a graph; None where they cannot be captured."""
        ...


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Microseconds per call: one figure a round, and whether the calls were replayed as a graph."""

    rounds_us: tuple[float, ...]
    graph: bool

    @property
    def median_us(self) -> float:
        return statistics.median(self.rounds_us)

    @property
    def min_us(self) -> float:
        return min(self.rounds_us)

    @property
    def max_us(self) -> float:
        return max(self.rounds_us)


def cycle(variants: Sequence[Call], count: int) -> list[Call]:
    """`count` calls that rotate through `variants`, the same work on different buffers."""
    return [variants[i % len(variants)] for i in range(count)]


def measure(
    implementations: Mapping[str, Sequence[Call]], clock: Clock, plan: Plan = FULL, seed: int = 0
) -> dict[str, Timing]:
    """Times every implementation, given as its calls on each set of buffers (at least one)."""
    for variants in implementations.values():
        warm_up(variants, clock, plan)
    rough = {name: clock.elapsed(cycle(v, plan.calls)) / plan.calls * 1e6 for name, v in implementations.items()}
    host = {name: _host_us(cycle(v, plan.calls), clock) for name, v in implementations.items()}
    short = any(rough[name] < max(plan.graph_below_us, HOST_BOUND * host[name]) for name in implementations)
    replays = _captured(implementations, clock, plan) if short else None
    rounds: dict[str, list[float]] = {name: [] for name in implementations}
    order = list(implementations)
    shuffle = random.Random(seed)
    for _ in range(plan.rounds):
        shuffle.shuffle(order)
        for name in order:
            calls = [replays[name]] if replays else cycle(implementations[name], plan.calls)
            # One untimed call leaves L2 in the state of this implementation, not of the one before it, and keeps the
            # device busy until the first timed call is enqueued.
            calls[-1]()
            rounds[name].append(clock.elapsed(calls) / plan.calls * 1e6)
    return {name: Timing(rounds_us=tuple(r), graph=replays is not None) for name, r in rounds.items()}


def _host_us(calls: Sequence[Call], clock: Clock) -> float:
    """Microseconds of the host to enqueue a call, on an idle device."""
    clock.finish()
    begin = time.perf_counter()
    for call in calls:
        call()
    enqueued = time.perf_counter() - begin
    clock.finish()
    return enqueued / len(calls) * 1e6


def warm_up(variants: Sequence[Call], clock: Clock, plan: Plan) -> None:
    """At least `warmup_calls` calls and `warmup_seconds` of finished work."""
    begin = time.perf_counter()
    done = 0
    while done < plan.warmup_calls or time.perf_counter() - begin < plan.warmup_seconds:
        for call in cycle(variants, plan.warmup_calls):
            call()
        done += plan.warmup_calls
        clock.finish()


def _captured(implementations: Mapping[str, Sequence[Call]], clock: Clock, plan: Plan) -> dict[str, Call] | None:
    """A graph for each implementation, or None if one cannot be captured: then none is, so that all are timed alike."""
    replays: dict[str, Call] = {}
    for name, variants in implementations.items():
        replay = clock.capture(cycle(variants, plan.calls))
        if replay is None:
            return None
        replay()
        replays[name] = replay
    clock.finish()
    return replays
