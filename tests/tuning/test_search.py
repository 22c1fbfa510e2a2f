"""The search, with a toolchain and a clock made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from phobos.diagnostics import Diagnostic
from phobos.ir.types import DType
from phobos.tuning import search as search_module
from phobos.tuning.candidates import Dropped
from phobos.tuning.result import SKIPPED, TIMED, Outcome
from phobos.tuning.search import Progress, Search
from phobos.tuning.space import Space
from phobos.tuning.timer import DeviceLost
from phobos.tuning.verify import Agreement, Judge
from phobos.tuning.workers import WorkerDied, WorkerFailed

from .fakes import RIGHT, FakeTimer, FakeToolchain, against

SPACE = Space.of((("A", (1, 2, 3, 4)), ("B", (10, 20))), {})


def microseconds(config: Mapping[str, Any]) -> float:
    """Fastest at A=3 B=20: 100 us; no two within 3 %."""
    return 100e-6 * (1 + abs(config["A"] - 3) / 2 + (0.25 if config["B"] == 10 else 0))


def run(
    toolchain: FakeToolchain | None = None,
    timer: FakeTimer | None = None,
    judge: Judge | None = None,
    **options: Any,
) -> Search:
    made: list[Sequence[Any]] = []
    search = Search(SPACE, toolchain or FakeToolchain(), timer or FakeTimer(microseconds), **options)
    search.run(lambda configs: made.append(configs) or judge or against())  # type: ignore[func-returns-value]
    return search


def of(search: Search, **config: Any) -> Outcome:
    (found,) = [o for o in search.outcomes if o.config == config]
    return found


def test_every_configuration_is_timed_and_the_fastest_wins() -> None:
    timer = FakeTimer(microseconds)
    search = run(timer=timer)
    assert [o.status for o in search.outcomes] == [TIMED] * 8 and search.complete
    assert [o.config for o in search.outcomes] == list(SPACE.configurations())
    assert search.best is not None and search.best.config == {"A": 3, "B": 20}
    assert search.best.microseconds == pytest.approx(100.0)
    assert of(search, A=1, B=10).microseconds == pytest.approx(225.0)
    assert all(o.launches >= 5 and o.error == 0.0 and o.registers == 40 for o in search.outcomes)
    # The first candidate runs for a quarter of a second before anything is timed.
    first = [launches for config, launches in timer.calls if config == {"A": 1, "B": 10}]
    assert 0.25 < sum(first) * 225e-6 < 0.32
    assert [config for config, _ in timer.calls[: len(first)]] == [{"A": 1, "B": 10}] * len(first)


def test_best_estimate_first_and_the_limit() -> None:
    toolchain = FakeToolchain(estimate=lambda c: 10.0 * c["A"] - c["B"] / 10)
    search = run(toolchain, limit=3)
    assert toolchain.built == [{"A": 1, "B": 20}, {"A": 1, "B": 10}, {"A": 2, "B": 20}]
    assert search.best is not None and search.best.config == {"A": 2, "B": 20} and not search.complete
    left = [o for o in search.outcomes if o.stage == "limit"]
    assert len(left) == 5 and of(search, A=4, B=10).reason == "estimate number 8 of 8; the search was limited to 3"


def test_whatever_fails_is_skipped_with_its_reason() -> None:
    def estimate(config: Mapping[str, Any]) -> Any:
        if config == {"A": 1, "B": 10}:
            return Dropped(stage="check", reason="PH0301: a tile is too large")
        return 1.0

    failures: dict[int, Any] = {
        2: Dropped(stage="fit", reason="60000 bytes of shared memory"),
        3: WorkerDied("the compiling process ended with status -9"),
        4: WorkerFailed("MemoryError: "),
    }
    toolchain = FakeToolchain(estimate, drops=lambda c: failures.get(c["A"]) if c["B"] == 20 else None)
    search = run(toolchain, FakeTimer(microseconds, refuses=lambda c: c == {"A": 4, "B": 10}))
    reasons = {(o.config["A"], o.config["B"]): (o.stage, o.reason) for o in search.outcomes if o.status == SKIPPED}
    assert reasons == {
        (1, 10): ("check", "PH0301: a tile is too large"),
        (2, 20): ("fit", "60000 bytes of shared memory"),
        (3, 20): ("compile", "the compiling process ended with status -9"),
        (4, 20): ("compile", "MemoryError: "),
        (4, 10): ("launch", "PH0720: too many threads"),
    }
    assert {"A": 1, "B": 10} not in toolchain.built
    assert search.best is not None and search.best.config == {"A": 3, "B": 10} and search.complete


def test_spilling_candidates_are_timed_only_if_nothing_else_is_left() -> None:
    some = run(FakeToolchain(spills=lambda c: 64 if c["A"] == 3 else 0))
    assert some.best is not None and some.best.config == {"A": 2, "B": 20}
    assert of(some, A=3, B=20).stage == "spill" and "64 bytes" in (of(some, A=3, B=20).reason or "")
    everything = run(FakeToolchain(spills=lambda c: 64))
    assert everything.best is not None and everything.best.config == {"A": 3, "B": 20}
    assert [o.status for o in everything.outcomes] == [TIMED] * 8
    # ... which is also so where the others compute nonsense.
    wrong = FakeTimer(microseconds, output=lambda c: RIGHT if c["A"] == 3 else RIGHT + 1)
    rest = run(FakeToolchain(spills=lambda c: 64 if c["A"] == 3 else 0), wrong)
    assert rest.best is not None and rest.best.config == {"A": 3, "B": 20} and rest.best.spill_bytes == 64


def test_a_wrong_output_is_rejected_however_fast() -> None:
    bad = RIGHT.copy()
    bad[5] = np.nan
    timer = FakeTimer(microseconds, output=lambda c: bad if c == {"A": 3, "B": 20} else RIGHT)
    search = run(timer=timer)
    assert search.best is not None and search.best.config == {"A": 3, "B": 10}
    found = of(search, A=3, B=20)
    assert found.stage == "verify" and "output O: 1 elements are NaN" in (found.reason or "")
    assert {"A": 3, "B": 20} not in [config for config, _ in timer.calls]


def agreement() -> Agreement:
    return Agreement({"O": DType.F32}, {"O": 1e-5})


def test_without_a_reference_two_that_agree_are_right() -> None:
    # The first two candidates are wrong, each in its own way; the last agrees with the first.
    wrong = {(1, 10): RIGHT + 1, (1, 20): RIGHT * 2, (4, 20): RIGHT * 2 + 1e-8}
    timer = FakeTimer(microseconds, output=lambda c: wrong.get((c["A"], c["B"]), RIGHT))
    search = run(timer=timer, judge=agreement())
    dropped = {(o.config["A"], o.config["B"]) for o in search.outcomes if o.stage == "verify"}
    assert dropped == set(wrong) and search.best is not None and search.best.config == {"A": 3, "B": 20}
    assert search.reference.startswith("the output of two configurations")


def test_where_no_two_agree_nothing_is_right() -> None:
    timer = FakeTimer(microseconds, output=lambda c: RIGHT * (c["A"] + c["B"]))
    search = run(timer=timer, judge=agreement())
    assert search.best is None and {o.stage for o in search.outcomes} == {"verify"}


def test_a_single_candidate_is_taken_on_trust_and_said_so() -> None:
    only = FakeToolchain(drops=lambda c: None if c == {"A": 1, "B": 20} else Dropped(stage="fit", reason="too large"))
    search = run(only, judge=agreement())
    assert search.best is not None and search.best.config == {"A": 1, "B": 20}
    assert search.reference.startswith("nothing")


def test_near_ties_are_timed_again_in_turns() -> None:
    """The clock of the device slows down by 0.02 % a batch: what is timed first looks best at first."""
    true = {(a, b): 1.0 for a in (1, 2, 3, 4) for b in (10, 20)} | {(4, 20): 0.99}
    timer = FakeTimer(lambda c: true[c["A"], c["B"]] * 1e-4 * (1 + 2e-4 * len(timer.calls)))
    search = run(timer=timer)
    assert search.best is not None and search.best.config == {"A": 4, "B": 20}
    turns = timer.calls[-7 * 8 :]
    orders = [tuple((c["A"], c["B"]) for c, _ in turns[i : i + 8]) for i in range(0, len(turns), 8)]
    assert all(len(set(order)) == 8 for order in orders) and len(set(orders)) > 3


def test_only_near_ties_are_timed_again() -> None:
    timer = FakeTimer(lambda c: {1: 1.0, 2: 1.02, 3: 1.05, 4: 2.0}[c["A"]] * (1e-4 if c["B"] == 10 else 3e-4))
    run(timer=timer)
    assert {(c["A"], c["B"]) for c, _ in timer.calls[-7:]} == {(1, 10), (2, 10)}


def test_ctrl_c_keeps_what_was_found() -> None:
    seen: list[int] = []

    def clock(config: Mapping[str, Any]) -> float:
        if (config["A"], config["B"]) == (2, 20):
            raise KeyboardInterrupt
        seen.append(config["A"])
        return microseconds(config)

    search = run(timer=FakeTimer(clock))
    assert search.interrupted and not search.complete
    assert [o.status for o in search.outcomes] == [TIMED] * 3 + [SKIPPED] * 5
    assert {o.stage for o in search.outcomes[3:]} == {"interrupted"}
    assert search.best is not None and search.best.config == {"A": 2, "B": 10}


def test_ctrl_c_before_anything_was_timed_goes_on() -> None:
    def clock(config: Mapping[str, Any]) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(timer=FakeTimer(clock))


def test_a_lost_device_ends_the_search_and_keeps_what_was_found() -> None:
    def clock(config: Mapping[str, Any]) -> float:
        if config["A"] == 2:
            raise DeviceLost(Diagnostic(code="PH0743", message="the kernel faults"))
        return microseconds(config)

    search = run(timer=FakeTimer(clock))
    assert search.lost is not None and search.best is not None and search.best.config == {"A": 1, "B": 20}
    assert of(search, A=2, B=10).reason == "PH0743: the kernel faults"
    assert of(search, A=4, B=20).stage == "interrupted"


def test_a_hopeless_candidate_takes_little_time() -> None:
    timer = FakeTimer(lambda c: 3.0 if c["A"] == 4 else microseconds(c))
    search = run(timer=timer)
    assert of(search, A=4, B=10).launches == 2 and of(search, A=4, B=10).microseconds == pytest.approx(3e6)


def test_batches_suit_the_kernel() -> None:
    assert [search_module._batch(s) for s in (0.0, 1e-6, 1e-5, 1e-4, 0.5)] == [200, 200, 200, 20, 1]


def test_an_unsteady_clock_gets_more_samples() -> None:
    noise = iter(np.random.default_rng(1).uniform(0.9, 1.1, 100000))
    timer = FakeTimer(lambda c: microseconds(c) * float(next(noise)))
    search = run(timer=timer)
    steady = run()
    assert min(o.launches for o in search.outcomes) > max(
        o.launches for o in steady.outcomes if o.microseconds and o.microseconds > 130
    )


def test_progress() -> None:
    found: list[Progress] = []
    run(watcher=found.append)
    phases = list(dict.fromkeys(p.phase for p in found))
    assert phases == ["examining", "timing", "done"]
    timing = [p for p in found if p.phase == "timing"]
    assert [p.done for p in timing] == list(range(1, 9)) and {p.total for p in timing} == {8}
    assert all(p.seconds_left is not None and p.seconds_left >= 0 for p in timing) and timing[-1].seconds_left == 0
    assert timing[0].last is not None and timing[0].last.config == {"A": 1, "B": 10}
    assert found[-1].best is not None and found[-1].best.config == {"A": 3, "B": 20}


def test_an_outcome_is_one_or_the_other() -> None:
    for wrong in (
        {"status": TIMED},
        {"status": SKIPPED, "stage": "fit"},
        {"status": SKIPPED, "stage": "nowhere", "reason": "x"},
        {"status": "lost", "microseconds": 1.0},
    ):
        with pytest.raises(ValueError, match="an outcome is"):
            Outcome(config={}, **wrong)  # type: ignore[arg-type]
