"""The timing protocol, on a clock that counts what it is asked."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from kbench.protocol import FULL, Call, Plan, Timing, cycle, measure, warm_up

QUIET = Plan(warmup_calls=4, warmup_seconds=0.0, rounds=7, calls=50)


class SimulatedDevice:
    """A device on which implementation `name` takes `cost[name](n)` seconds for its n-th call."""

    def __init__(self, cost: dict[str, float], capturable: bool = True):
        self.cost = cost
        self.capturable = capturable
        self.log: list[str] = []
        self.time = 0.0
        self.finished = 0

    def call(self, name: str, buffer: int = 0) -> Call:
        def run() -> None:
            self.log.append(f"{name}{buffer}")
            self.time += self.cost[name]

        return run

    def finish(self) -> None:
        self.finished += 1

    def elapsed(self, calls: Sequence[Call]) -> float:
        begin = self.time
        self.log.append("begin")
        for call in calls:
            call()
        self.log.append("end")
        return self.time - begin

    def capture(self, calls: Sequence[Call]) -> Call | None:
        if not self.capturable:
            return None

        def replay() -> None:
            self.log.append("replay")
            for call in calls:
                call()

        return replay

    def timed(self) -> list[list[str]]:
        """The calls between each pair of events."""
        out: list[list[str]] = []
        inside = False
        for entry in self.log:
            if entry == "begin":
                out.append([])
                inside = True
            elif entry == "end":
                inside = False
            elif inside:
                out[-1].append(entry)
        return out


def test_calls_that_wait_for_the_host_are_replayed() -> None:
    """The device needs 20 us, but the host 70 to start it: events around the calls show the host."""

    class HostBound(SimulatedDevice):
        def call(self, name: str, buffer: int = 0) -> Call:
            run = super().call(name, buffer)

            def slow() -> None:
                time.sleep(self.cost[name])
                run()

            return slow

    device = HostBound({"ours": 200e-6, "peer": 70e-6})
    found = measure({"ours": [device.call("ours")], "peer": [device.call("peer")]}, device, QUIET)
    assert found["ours"].graph and found["peer"].graph
    assert set(sum(device.timed()[2:], [])) >= {"replay"}


def test_the_numbers_are_those_of_the_protocol() -> None:
    assert (FULL.warmup_calls, FULL.warmup_seconds, FULL.rounds, FULL.calls, FULL.graph_below_us) == (
        25,
        0.5,
        7,
        50,
        50,
    )


def test_median_minimum_and_maximum() -> None:
    timing = Timing(rounds_us=(5.0, 1.0, 4.0, 2.0, 30.0, 3.0, 6.0), graph=False)
    assert (timing.median_us, timing.min_us, timing.max_us) == (4.0, 1.0, 30.0)


def test_time_per_call() -> None:
    device = SimulatedDevice({"ours": 120e-6, "peer": 360e-6})
    found = measure({n: [device.call(n)] for n in device.cost}, device, QUIET)
    assert found["ours"].rounds_us == pytest.approx([120.0] * 7)
    assert found["peer"].rounds_us == pytest.approx([360.0] * 7)
    assert not found["ours"].graph


def test_rounds_are_interleaved_and_their_order_is_random() -> None:
    device = SimulatedDevice({"a": 1e-3, "b": 1e-3, "c": 1e-3})
    measure({n: [device.call(n)] for n in device.cost}, device, QUIET)
    timed = device.timed()[3:]  # the first of each is the rough estimate
    assert len(timed) == 21 and all(len(set(calls)) == 1 and len(calls) == 50 for calls in timed)
    order = [calls[0] for calls in timed]
    rounds = [order[i : i + 3] for i in range(0, 21, 3)]
    assert all(sorted(r) == ["a0", "b0", "c0"] for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1


def test_short_calls_are_replayed_as_graphs_for_all() -> None:
    device = SimulatedDevice({"short": 5e-6, "long": 200e-6})
    found = measure({n: [device.call(n)] for n in device.cost}, device, QUIET)
    assert found["short"].graph and found["long"].graph
    assert found["short"].rounds_us == pytest.approx([5.0] * 7)
    assert all(calls[0] == "replay" and len(calls) == 51 for calls in device.timed()[2:])


def test_without_graphs_all_are_called() -> None:
    device = SimulatedDevice({"short": 5e-6, "long": 200e-6}, capturable=False)
    found = measure({n: [device.call(n)] for n in device.cost}, device, QUIET)
    assert not found["short"].graph
    assert found["long"].rounds_us == pytest.approx([200.0] * 7)


def test_buffers_rotate() -> None:
    device = SimulatedDevice({"a": 1e-3})
    measure({"a": [device.call("a", b) for b in range(3)]}, device, QUIET)
    assert device.timed()[-1][:6] == ["a0", "a1", "a2", "a0", "a1", "a2"]
    assert [c() for c in cycle([lambda: 1, lambda: 2], 3)] == [1, 2, 1]


def test_warm_up_lasts_for_both_calls_and_time() -> None:
    device = SimulatedDevice({"a": 0.0})
    warm_up([device.call("a")], device, Plan(warmup_calls=10, warmup_seconds=0.0))
    assert len(device.log) == 10 and device.finished == 1
    warm_up([device.call("a")], device, Plan(warmup_calls=10, warmup_seconds=0.02))
    assert device.finished > 2
