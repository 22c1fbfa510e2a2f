"""A bench on a CUDA device: verify every implementation on the whole output, then time all of them together."""

from __future__ import annotations

import datetime
import math
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbench.bench import MEMORY, Arrays, Bench, Case, Peer, PeerInput, Prepared
from kbench.device import COPY_BYTES, Device
from kbench.protocol import FULL, Call, Plan, Timing, measure, warm_up
from kbench.results import CsvRow, Row
from kbench.roofline import Peaks, attainable_flops
from kbench.text import implementation, load_kernel
from kbench.variant import Variant, variant_of
from phobos.norms import ErrorNorms, error_norms
from phobos.tuning.result import SearchResult

# A peer may use another algorithm than the oracle's tolerance was made for; it must still compute the same thing.
PEER_SLACK = 100.0
# Buffers of one rotation together exceed the L2 cache by this factor.
L2_FACTOR = 3.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One case: rows for the results (none if ours is wrong), lines for the screen, and whether all went well.
    `search` is the search for its configuration, where there was one."""

    rows: tuple[Row, ...]
    csv: tuple[CsvRow, ...]
    notes: tuple[str, ...]
    good: bool
    search: SearchResult | None = None


def measured_copy_rate(device: Device, plan: Plan = FULL) -> float:
    """Bytes per second, read and written, of a device copy of 1 GiB: the ceiling of memory-bound benches."""
    call = device.copy_call(2 * COPY_BYTES)
    warm_up([call], device, plan)
    count = 10
    best = min(device.elapsed([call] * count) for _ in range(plan.rounds))
    return 2.0 * COPY_BYTES * count / best


def run_case(
    bench: Bench,
    case: Case,
    device: Device,
    peaks: Peaks,
    *,
    config: Mapping[str, object],
    plan: Plan = FULL,
    search: bool = False,
    fresh: bool = False,
    options: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Verifies and times one case, with `search` after a search for its configuration (or with the stored result of
    one, except with `fresh`), with options of the schedule as `kbench.text` adds them.

    Raises CompileError and LaunchError as the kernel's compilation and calls do.
    """
    kernel = load_kernel(bench, options)
    name = implementation(options)
    scalars = bench.scalars(case)
    sets = _buffer_sets(bench, case, device)
    pins = {**case.config, **config}
    found = None
    if search:
        trial = _own_outputs(bench, case, device, sets[0])
        found = kernel.search(**trial, **scalars, **case.consts, config=pins, backend=device.backend, fresh=fresh)
        say(found.text())
        pins |= found.best
        del trial
    variant = variant_of(kernel, bench, case, pins, searched=search)
    say(f"{bench.name} {case.label}: {variant.describe()}")

    def ours(tensors: Arrays) -> Call:
        return lambda: kernel(**tensors, **scalars, **case.consts, config=variant.config, backend=device.backend)

    expected = _oracle(bench, device, sets[0], scalars)
    tensors = _own_outputs(bench, case, device, sets[0])
    norms = _verify(Prepared(call=ours(tensors), outputs=_written(bench, case, tensors)), expected, device)
    tolerance = bench.tolerance_of(variant.kinds)
    if not norms.within(tolerance):
        note = f"{bench.name} {case.label}: WRONG, {norms}; tolerance {tolerance:.0e} on rel L2. Not timed."
        return Outcome(rows=(), csv=(), notes=(note,), good=False, search=found)
    notes = [f"{bench.name} {case.label}: verified, {norms}"]

    peers: list[Peer] = []
    good = True
    for peer in bench.peers if device.torch is not None else ():
        own = _own_outputs(bench, case, device, sets[0])
        try:
            prepared = peer.prepare(_peer_input(bench, case, device, own, scalars))
            peer_norms = _verify(prepared, expected, device)
        except RuntimeError as e:  # torch: no kernel of this backend for these arguments, out of memory
            notes.append(f"{bench.name} {case.label}: peer {peer.name} cannot run: {str(e).splitlines()[0]}")
            continue
        if peer_norms is not None and not peer_norms.within(PEER_SLACK * tolerance):
            notes.append(f"{bench.name} {case.label}: peer {peer.name} differs, {peer_norms}. It is not timed.")
            good = False
        else:
            peers.append(peer)
    if device.torch is None:
        notes.append(f"{bench.name}: no peer was timed, torch is not installed")
    del expected

    implementations: dict[str, list[Call]] = {name: [], **{p.name: [] for p in peers}}
    for shared in sets:
        implementations[name].append(ours(_own_outputs(bench, case, device, shared)))
        for peer in peers:
            own = _own_outputs(bench, case, device, shared)
            implementations[peer.name].append(peer.prepare(_peer_input(bench, case, device, own, scalars)).call)
    timings = measure(implementations, device, plan)
    rows = _rows(bench, case, device, peaks, variant, norms, timings, name)
    over = any(r.pct_of_peak is not None and r.pct_of_peak > 105.0 for r in rows)
    if over and set(variant.kinds) <= {"ieee"}:  # rounded products run on another unit than the one it is rated by
        notes.append(f"{bench.name}: above 105 % of the stated peak; the clock or the peak is wrong (--peak-fp32 ...)")
    csv = tuple(_csv(bench, case, peaks, timings, searched=variant.searched))
    return Outcome(rows=tuple(rows), csv=csv, notes=tuple(notes), good=good, search=found)


def _buffer_sets(bench: Bench, case: Case, device: Device) -> list[dict[str, Any]]:
    """Random arguments; for a memory-bound bench as many sets as exceed L2 together, two at least."""
    specs = bench.tensors(case)
    total = sum(t.bytes for t in specs.values())
    count = max(2, math.ceil(L2_FACTOR * device.info.l2_bytes / total)) if bench.bound == MEMORY else 1
    return [
        {name: device.random(t, seed=1000 * i + j) for j, (name, t) in enumerate(specs.items())} for i in range(count)
    ]


def _own_outputs(bench: Bench, case: Case, device: Device, shared: Arrays) -> dict[str, Any]:
    """The set with its own copy of what is written: "out" ones poisoned, "inout" ones as they are."""
    out = dict(shared)
    for name, spec in bench.tensors(case).items():
        if spec.role != "in":
            out[name] = device.clone(shared[name])
        if spec.role == "out":
            device.poison(out[name])
    return out


def _written(bench: Bench, case: Case, tensors: Arrays) -> dict[str, Any]:
    return {name: tensors[name] for name, spec in bench.tensors(case).items() if spec.role != "in"}


def _peer_input(bench: Bench, case: Case, device: Device, tensors: Arrays, scalars: Mapping[str, float]) -> PeerInput:
    return PeerInput(torch=device.torch, tensors=tensors, scalars=scalars, bytes=bench.bytes(case))


def _oracle(bench: Bench, device: Device, tensors: Arrays, scalars: Mapping[str, float]) -> dict[str, Any]:
    return bench.oracle(device.xp, {name: device.float64(t) for name, t in tensors.items()}, scalars)


def _verify(prepared: Prepared, expected: Arrays, device: Device) -> Any:
    """Runs once and compares every output in whole; the norms of the worst one, None if there is none to compare."""
    prepared.call()
    device.finish()
    found = [error_norms(device.float64(out), expected[name]) for name, out in prepared.outputs.items()]
    return max(found, key=lambda n: math.inf if math.isnan(n.rel_l2) else n.rel_l2) if found else None


def _rows(
    bench: Bench,
    case: Case,
    device: Device,
    peaks: Peaks,
    variant: Variant,
    norms: ErrorNorms,
    timings: Mapping[str, Timing],
    ours: str = "phobos",
) -> list[Row]:
    peers: list[str | None] = [name for name in timings if name != ours]
    return [result_row(bench, case, device, peaks, variant, norms, timings, ours, peer) for peer in peers or [None]]


def result_row(
    bench: Bench,
    case: Case,
    device: Device,
    peaks: Peaks,
    variant: Variant,
    norms: ErrorNorms,
    timings: Mapping[str, Timing],
    impl: str,
    peer: str | None,
) -> Row:
    """The row of `impl`'s timing beside the peer's, rated by the bench's bound; without a peer there is no ratio."""
    ours = timings[impl]
    theirs = timings[peer].median_us if peer is not None else None
    seconds = ours.median_us * 1e-6
    tflops = gbps = peak = None
    if bench.bound == MEMORY:
        gbps = bench.bytes(case) / seconds * 1e-9
        peak = peaks.copy_bytes * 1e-9 if peaks.copy_bytes else None
    else:
        tflops = bench.flops(case) / seconds * 1e-12
        unit = peaks.of(bench.unit)
        peak = unit * 1e-12 if unit else None
    rate = gbps if gbps is not None else tflops
    info = device.info
    return Row(
        bench=bench.name,
        case=case.label,
        impl=impl,
        peer=peer,
        ratio=theirs / ours.median_us if theirs is not None else None,
        median_us=ours.median_us,
        min_us=ours.min_us,
        max_us=ours.max_us,
        tflops=tflops,
        gbps=gbps,
        peak=peak,
        unit="copy" if bench.bound == MEMORY else bench.unit,
        pct_of_peak=100.0 * rate / peak if rate is not None and peak else None,
        rel_l2=norms.rel_l2,
        max_abs=norms.max_abs,
        mean_abs=norms.mean_abs,
        rmse=norms.rmse,
        config=variant.config,
        searched=variant.searched,
        spills=variant.spills,
        registers=variant.registers,
        peer_median_us=theirs,
        device=info.name,
        driver=info.driver,
        cuda=info.cuda,
        torch=info.torch,
        commit=commit(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def _csv(
    bench: Bench, case: Case, peaks: Peaks, timings: Mapping[str, Timing], *, searched: bool = False
) -> list[CsvRow]:
    """A line for each implementation; a searched configuration is not what a plain run takes, and is named so."""
    flops = bench.flops(case)
    copy = peaks.copy_bytes if bench.bound == MEMORY else None
    peak = attainable_flops(peaks.of(bench.unit), copy, flops / bench.bytes(case))
    out = []
    for name, timing in timings.items():
        if name == "copy":  # moves bytes and computes nothing
            continue
        rate = flops / (timing.median_us * 1e-6)
        out.append(
            CsvRow(
                benchmark=bench.name,
                impl=f"{name}:searched" if searched and name.partition(":")[0] == "phobos" else name,
                precision=bench.precision,
                gflops=rate * 1e-9,
                peak_gflops=peak * 1e-9 if peak else None,
                pct_of_peak=100.0 * rate / peak if peak else None,
            )
        )
    return out


@cache
def commit() -> str:
    """PHOBOS_COMMIT where it is set (for a copy without history), else the checkout's short commit, with `+` if files
    differ from it; empty outside a checkout."""
    if named := os.environ.get("PHOBOS_COMMIT"):
        return named
    root = Path(__file__).resolve().parent.parent
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=10"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
