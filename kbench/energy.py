"""What a launch costs in energy, and in time on a cool and on a hot card: `python -m kbench.energy --bench gemm_fp16`.

A card at its power limit makes a kernel as slow as its energy demands, and how hot it is decides more than most changes
of a kernel. So each variant is looked at in three ways, beside the bench's first peer:

- alone, back to back for a while: joules (the card's own counter), microseconds, watts and the clock;
- cool: a few launches after a pause;
- in turns with the peer, as the protocol of kbench does it: the ratio that results have.

Not a result: nothing is written. Outputs are verified first, like those of kbench.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kbench import gpu
from kbench.bench import Bench, Case
from kbench.device import Device, open_device
from kbench.protocol import Call, Plan, measure
from kbench.text import implementation, known_name, load_kernel, parse_options
from kbench.variant import variant_of
from phobos.cli import HELP, Guarded
from phobos.commands.assignments import Positive

PAUSE, BURST = 0.03, 6  # seconds before, launches in, a look at a cool card


class Meter:
    """The energy counter and the SM clock of the current device. Raises OSError where NVML has none."""

    def __init__(self, torch: Any):
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self._nvml.nvmlInit_v2())
        self._device = ctypes.c_void_p()
        name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        self._check(self._nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self._device)))

    @staticmethod
    def _check(status: int) -> None:
        if status != 0:
            raise OSError(f"NVML returns {status}")

    def joules(self) -> float:
        value = ctypes.c_ulonglong()
        self._check(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(value)))
        return value.value * 1e-3

    def megahertz(self) -> int:
        value = ctypes.c_uint()
        self._check(self._nvml.nvmlDeviceGetClockInfo(self._device, 1, ctypes.byref(value)))
        return value.value


@dataclass(frozen=True, kw_only=True)
class Steady:
    """A launch among many without a pause."""

    joules: float
    us: float
    watts: float
    megahertz: float

    def __str__(self) -> str:
        return f"{self.joules:.4f} J, {self.us:.1f} us, {self.watts:.0f} W at {self.megahertz:.0f} MHz"


def steady(
    call: Call, device: Device, meter: Meter, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> Steady:
    """The means over `seconds`, after half of that to warm up."""

    def burst(limit: float) -> tuple[int, float, float]:
        begin, count, clocks = clock(), 0, []
        while clock() - begin < limit:
            for _ in range(20):
                call()
            device.finish()
            count += 20
            clocks.append(meter.megahertz())
        return count, clock() - begin, statistics.median(clocks)

    burst(seconds / 2)
    before = meter.joules()
    count, took, megahertz = burst(seconds)
    used = meter.joules() - before
    return Steady(joules=used / count, us=took / count * 1e6, watts=used / took, megahertz=megahertz)


def cool(call: Call, device: Device) -> float:
    """Microseconds of a launch on a card that had a pause."""
    found = []
    for _ in range(5):
        time.sleep(PAUSE)
        call()
        found.append(device.elapsed([call] * BURST) / BURST * 1e6)
    return statistics.median(found)


def look(
    bench: Bench, case: Case, device: Device, meter: Meter, variants: Sequence[dict[str, str]], seconds: float,
    say: Callable[[str], None],
) -> bool:  # fmt: skip
    """Says what each variant costs; False where one is wrong."""
    scalars = bench.scalars(case)
    (shared, *_) = gpu._buffer_sets(bench, case, device)
    expected = gpu._oracle(bench, device, shared, scalars)
    own = gpu._own_outputs(bench, case, device, shared)
    peer = bench.peers[0] if bench.peers and device.torch is not None else None
    theirs = peer.prepare(gpu._peer_input(bench, case, device, own, scalars)).call if peer is not None else None
    if peer is not None and theirs is not None:
        say(f"{peer.name}: {steady(theirs, device, meter, seconds)}; cool {cool(theirs, device):.1f} us")
    good = True
    for options in variants:
        kernel = load_kernel(bench, options)
        variant = variant_of(kernel, bench, case, case.config)
        tensors = gpu._own_outputs(bench, case, device, shared)

        def ours(kernel: Any = kernel, tensors: Any = tensors, config: Any = variant.config) -> object:
            return kernel(**tensors, **scalars, **case.consts, config=config, backend=device.backend)

        written = gpu._written(bench, case, tensors)
        norms = gpu._verify(gpu.Prepared(call=ours, outputs=written), expected, device)
        name = implementation(options)
        tolerance = bench.tolerance_of(variant.kinds)
        if not norms.within(tolerance):
            say(f"{name}: WRONG, {norms}")
            good = False
            continue
        alone = steady(ours, device, meter, seconds)
        text = f"{name} ({variant.describe()}): {alone}; cool {cool(ours, device):.1f} us"
        if peer is not None and theirs is not None:
            found = measure({name: [ours], peer.name: [theirs]}, device, Plan(warmup_seconds=0.1))
            ratio = found[peer.name].median_us / found[name].median_us
            text += f"; in turns {found[name].median_us:.1f} us, {ratio:.3f} of {peer.name}"
        say(text)
    return good


@click.command("python -m kbench.energy", cls=Guarded, help=__doc__, context_settings=HELP)
@click.option("--bench", "name", required=True, metavar="NAME")
@click.option("--case", "wanted", default="", metavar="TEXT", help="The first case whose label contains TEXT.")
@click.option(
    "--variant", "texts", multiple=True, metavar='"swizzle=on stages=3"', help="Options of the schedule (repeatable)."
)
@click.option("--seconds", type=Positive(), default=0.5, show_default=True, help="For the steady state of each.")
def command(name: str, wanted: str, texts: tuple[str, ...], seconds: float) -> None:
    from kbench import benches

    known_name("bench", name, benches.NAMES)
    found = [(b, c) for b in benches.get_benches(name) for c in b.cases if wanted.lower() in c.label.lower()]
    if not found:
        raise click.UsageError(f"no case of {name} contains {wanted!r}")
    variants = [parse_options([text]) for text in ("", *texts)]
    device = open_device()
    if device.torch is None:
        raise click.ClickException("torch is needed")
    try:
        meter = Meter(device.torch)
    except OSError as error:
        raise click.ClickException(f"the card's energy cannot be read: {error}") from None
    good = look(*found[0], device, meter, variants, seconds, click.echo)
    if not good:
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    command()
