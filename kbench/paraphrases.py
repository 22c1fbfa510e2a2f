"""Is the compiler general, or does it know the benchmarks' texts? `python -m kbench.paraphrases --out results/h200`.

Five other ways to write `gemm_fp16` and `attention` each (tests/paraphrases/*.ph: renamed, statements split and merged,
parts moved into functions, a longer epilogue, permuted strides), and the originals on tensors whose axes lie in another
order in memory, are verified on their whole output and timed beside their original, interleaved in one process, with
the configuration that the original has. Exit status 1 if one does not reach 0.97 of the original's speed.

A longer epilogue does more work than the original: its ratio is against the original's time, without allowance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

import phobos
from kbench import benches
from kbench.bench import Arrays, Bench, Case, Scalars, Tensor
from kbench.device import Device, open_device
from kbench.gpu import result_row
from kbench.protocol import FULL, QUICK, Plan, Timing, measure
from kbench.results import Row, check_target, merged_json, read_old, table, write_new
from kbench.roofline import device_peaks
from kbench.text import parse_pins
from kbench.variant import Variant, variant_of
from phobos import resources
from phobos.cli import HELP, Guarded
from phobos.diagnostics import PhobosError
from phobos.norms import ErrorNorms, error_norms

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "paraphrases"
LEAST = 0.97


def _nothing(case: Case) -> dict[str, Tensor]:
    return {}


def _as_it_is(xp: Any, result: Any, tensors: Arrays) -> Any:
    return result


@dataclass(frozen=True, kw_only=True)
class Paraphrase:
    """Another way to have the original's work done.

    `file` is its text in tests/paraphrases/, None for the original's own. `names` says what dims, configuration,
    parameters and dtype names of the original are called here, `dtypes` binds dtype names that the original lacks.
    `order`: of an original's tensor (by its name there) whose axes are stored in another order, the original's axis at
    each place; with `views` it is passed as a view whose axes have the original's order, else the text declares it as
    it is stored. `extra` are tensors that only this text takes, and `finish(xp, result, tensors)` is what it does to
    the original's result.
    """

    original: str
    name: str
    file: str | None
    names: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    order: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    views: bool = False
    extra: Callable[[Case], dict[str, Tensor]] = _nothing
    finish: Callable[[Any, Any, Arrays], Any] = _as_it_is

    @property
    def path(self) -> Path:
        if self.file is None:
            return resources.examples_dir() / benches.get_bench(self.original).example
        return FOLDER / self.file

    def called(self, name: str) -> str:
        return self.names.get(name, name)

    def renamed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self.called(name): value for name, value in values.items()}

    def bench(self, bench: Bench) -> Bench:
        """The original's bench for this text: tensors under their names here, in the order in which they are stored.
        Its functions take the original's cases."""

        def tensors(case: Case) -> dict[str, Tensor]:
            out = {}
            for name, spec in bench.tensors(case).items():
                order = self.order.get(name)
                shape = spec.shape if order is None else tuple(spec.shape[axis] for axis in order)
                out[self.called(name)] = replace(spec, shape=shape)
            return {**out, **self.extra(case)}

        def oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
            back = {there: here for here, there in self.names.items()}
            plain = {back.get(n, n): v for n, v in t.items()}
            for name, order in self.order.items():
                plain[name] = xp.moveaxis(plain[name], tuple(range(len(order))), order)
            scalars = {back.get(n, n): v for n, v in s.items()}
            out = {}
            for name, result in bench.oracle(xp, plain, scalars).items():
                result = self.finish(xp, result, t)
                if name in self.order:
                    order = self.order[name]
                    result = xp.moveaxis(result, order, tuple(range(len(order))))
                out[self.called(name)] = result
            return out

        return replace(
            bench,
            example=str(self.path),
            tensors=tensors,
            scalars=lambda case: self.renamed(bench.scalars(case)),
            oracle=oracle,
            dtypes={**self.renamed(bench.dtypes), **self.dtypes},
        )

    def case(self, case: Case) -> Case:
        """The original's case in the names of this text, for compiling it."""
        return replace(
            case, dims=self.renamed(case.dims), config=self.renamed(case.config), consts=self.renamed(case.consts)
        )

    def arguments(self, stored: Arrays) -> dict[str, Any]:
        """What the kernel is called with, from tensors as they are stored."""
        out = dict(stored)
        if self.views:
            for name, order in self.order.items():
                out[self.called(name)] = permuted(out[self.called(name)], order)
        return out


def permuted(stored: Any, order: tuple[int, ...]) -> Any:
    """A view of the array whose axis `order[i]` is axis i of `stored`."""
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    if hasattr(stored, "permute"):  # torch
        return stored.permute(inverse)
    if hasattr(stored, "transpose"):  # NumPy
        return stored.transpose(inverse)
    return _View(stored, inverse)


class _View:
    """A transposed view of device memory that knows no strides of its own."""

    def __init__(self, base: Any, axes: tuple[int, ...]):
        self._base = base  # keeps the memory
        interface = dict(base.__cuda_array_interface__)
        strides: list[int] = []
        step = base.dtype.itemsize
        for extent in reversed(base.shape):
            strides.insert(0, step)
            step *= extent
        interface["shape"] = tuple(base.shape[a] for a in axes)
        interface["strides"] = tuple(strides[a] for a in axes)
        self.__cuda_array_interface__ = interface


# --- the texts -------------------------------------------------------------------------------


def _bias_and_scale(case: Case) -> dict[str, Tensor]:
    return {
        "bias": Tensor(shape=(case.dims["N"],), dtype="f16"),
        "scale": Tensor(shape=(case.dims["M"], 1), dtype="f32"),
    }


def _gates(case: Case) -> dict[str, Tensor]:
    return {"gate": Tensor(shape=(case.dims["H"],), dtype="f32")}


def _gated(xp: Any, result: Any, t: Arrays) -> Any:
    gates = 1.0 / (1.0 + xp.exp(-t["gate"]))
    return xp.clip(result * gates[None, :, None, None], -1000.0, 1000.0)


_HEADS_INSIDE = {name: (0, 2, 1, 3) for name in ("Q", "K", "V", "O")}  # [B, M, H, D]

PARAPHRASES: tuple[Paraphrase, ...] = (
    Paraphrase(
        original="gemm_fp16", name="p1 renamed", file="gemm_p1_renamed.ph",
        names={
            "A": "left", "B": "right", "C": "out", "alpha": "grow", "beta": "shrink", "M": "Rows", "N": "Cols",
            "K": "Inner", "BM": "TILE_ROWS", "BN": "TILE_COLS", "BK": "TILE_INNER",
        },
    ),
    Paraphrase(original="gemm_fp16", name="p2 split", file="gemm_p2_split.ph"),
    Paraphrase(original="gemm_fp16", name="p3 fn", file="gemm_p3_fn.ph", dtypes={"T": "f16"}),
    Paraphrase(
        original="gemm_fp16", name="p4 epilogue", file="gemm_p4_epilogue.ph", extra=_bias_and_scale,
        finish=lambda xp, c, t: xp.clip(c + t["bias"][None, :], 0.0, None) * t["scale"],
    ),
    Paraphrase(original="gemm_fp16", name="p5 strides", file="gemm_p5_strides.ph", order={"B": (1, 0)}),
    Paraphrase(original="gemm_fp16", name="views", file=None, order={"B": (1, 0)}, views=True),
    Paraphrase(
        original="attention", name="p1 renamed", file="attention_p1_renamed.ph",
        names={
            "Q": "question", "K": "address", "V": "content", "O": "answer", "scale": "sharpness", "causal": "only_past",
            "B": "Batch", "H": "Heads", "HK": "Sources", "M": "Queries", "N": "Keys", "D": "WIDTH", "BR": "ROWS",
            "BC": "COLS", "T": "E",
        },
    ),
    Paraphrase(original="attention", name="p2 split", file="attention_p2_split.ph"),
    Paraphrase(original="attention", name="p3 fn", file="attention_p3_fn.ph"),
    Paraphrase(original="attention", name="p4 epilogue", file="attention_p4_epilogue.ph", extra=_gates, finish=_gated),
    Paraphrase(original="attention", name="p5 strides", file="attention_p5_strides.ph", order=_HEADS_INSIDE),
    Paraphrase(original="attention", name="views", file=None, order=_HEADS_INSIDE, views=True),
)  # fmt: skip


def originals() -> dict[str, Bench]:
    """The benches whose texts are paraphrased, f16."""
    return {name: benches.get_bench(name) for name in dict.fromkeys(p.original for p in PARAPHRASES)}


def cases(name: str, quick: bool) -> list[tuple[Bench, Case]]:
    """What is timed: a bench's first size; of attention also the first with D = 128 and the first causal one."""
    bench = originals()[name]
    if quick:
        return [(bench, case) for case in bench.quick_cases]
    found = [(bench, bench.cases[0])]
    if name == "attention":
        found.append((bench, next(c for c in bench.cases if c.dims["D"] == 128)))
        same = (b for b in benches.get_benches(name) if b.dtypes == bench.dtypes)
        found.append(next((b, b.cases[0]) for b in same if b.cases[0].consts["causal"]))
    return found


# --- measuring -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Implementation:
    """One text with its own tensors on the device, and its bench and configuration."""

    paraphrase: Paraphrase
    bench: Bench
    tensors: dict[str, Any]
    call: Callable[[], object]
    variant: Variant


def run_case(
    bench: Bench,
    case: Case,
    device: Device,
    *,
    plan: Plan,
    config: Mapping[str, object],
    say: Callable[[str], None],
) -> tuple[list[Row], bool]:
    """Verifies the original and its paraphrases, then times those that are right together. The rows of the paraphrases,
    and whether all were right and fast enough. Raises CompileError and LaunchError."""
    original = Paraphrase(original=bench.name, name="original", file=None)
    kernel = phobos.load(str(original.path))
    chosen = variant_of(kernel, bench, case, {**case.config, **config}).config
    right: list[tuple[_Implementation, ErrorNorms]] = []
    good = True
    for paraphrase in (original, *(p for p in PARAPHRASES if p.original == bench.name)):
        made = _prepare(paraphrase, bench, case, device, chosen)
        norms = _verify(made, case, device)
        tolerance = bench.tolerance_of(made.variant.kinds)
        label = f"{bench.name} {case.label} {paraphrase.name}"
        say(f"{label}: {made.variant.describe()}; {norms}")
        if norms.within(tolerance):
            right.append((made, norms))
        else:
            say(f"{label}: WRONG, tolerance {tolerance:.0e} on rel L2. Not timed.")
            good = False
    if not right or right[0][0].paraphrase is not original:
        return [], False
    timings = measure({made.paraphrase.name: [made.call] for made, _ in right}, device, plan)
    rows = [_row(made, norms, case, device, timings) for made, norms in right[1:]]
    return rows, good and not any(map(too_slow, rows))


def too_slow(row: Row) -> bool:
    return row.ratio is None or row.ratio < LEAST


def _prepare(
    paraphrase: Paraphrase, bench: Bench, case: Case, device: Device, chosen: Mapping[str, object]
) -> _Implementation:
    own = paraphrase.bench(bench)
    here = paraphrase.case(case)
    kernel = phobos.load(str(paraphrase.path))
    variant = variant_of(kernel, own, here, paraphrase.renamed(chosen))  # of views: as if they were row-major
    specs = own.tensors(case)
    tensors = {n: device.random(spec, seed=i) for i, (n, spec) in enumerate(specs.items())}
    for n, spec in specs.items():
        if spec.role == "out":
            device.poison(tensors[n])
    values = {**paraphrase.arguments(tensors), **own.scalars(case), **here.consts}

    def call() -> None:
        kernel(**values, config=variant.config, backend=device.backend)

    return _Implementation(paraphrase=paraphrase, bench=own, tensors=tensors, call=call, variant=variant)


def _verify(made: _Implementation, case: Case, device: Device) -> ErrorNorms:
    """Runs once; the norms over the whole output."""
    wide = {n: device.float64(t) for n, t in made.tensors.items()}
    ((name, expected),) = made.bench.oracle(device.xp, wide, made.bench.scalars(case)).items()
    del wide
    made.call()
    device.finish()
    return error_norms(device.float64(made.tensors[name]), expected)


def _row(made: _Implementation, norms: ErrorNorms, case: Case, device: Device, timings: Mapping[str, Timing]) -> Row:
    bench, peaks = made.bench, device_peaks(device.info)
    found = result_row(bench, case, device, peaks, made.variant, norms, timings, made.paraphrase.name, "original")
    return replace(found, bench="paraphrases", case=f"{bench.name} {case.label}")


@click.command("python -m kbench.paraphrases", cls=Guarded, context_settings=HELP)
@click.option("--out", metavar="DIR", help="Merge the rows into DIR/paraphrases.json.")
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer rounds: a look, not a result.")
@click.option("--original", "only", metavar="NAME", help="Only the paraphrases of this bench.")
@click.option("--autotune", "pins", metavar='"BM=128 BN=256"', multiple=True, help="Pin the originals' configuration.")
def command(out: str | None, quick: bool, only: str | None, pins: tuple[str, ...]) -> None:
    """Time paraphrases of the benchmark kernels beside their originals, on a CUDA device."""
    if not FOLDER.is_dir():
        raise click.ClickException(f"{str(FOLDER)!r} is not there: the paraphrases are part of a checkout's tests")
    if only is not None and only not in originals():
        raise click.UsageError(f"--original: no {only!r}; known: {', '.join(originals())}")
    config = parse_pins(pins)
    if out is not None and not quick:
        check_target(Path(out) / "paraphrases.json", merged_json)
    device = open_device()
    info = device.info
    click.echo(f"{info.name}, driver {info.driver or 'unknown'}, CUDA {info.cuda}, torch {info.torch or 'absent'}")
    rows: list[Row] = []
    good = True
    for name in originals() if only is None else (only,):
        for bench, case in cases(name, quick):
            try:
                found, fine = run_case(
                    bench, case, device, plan=QUICK if quick else FULL, config=config, say=click.echo
                )
            except PhobosError as error:
                click.echo(f"{name} {case.label}: FAILED\n{error}")
                found, fine = [], False
            rows += found
            good = good and fine
    if rows:
        click.echo("\n" + table(_HEADINGS, [_line(row) for row in rows]))
    if out is not None and quick:
        click.echo("--quick figures are no results: nothing was written to --out")
    elif out is not None and rows:
        path = Path(out) / "paraphrases.json"
        write_new(path, merged_json(read_old(path), rows, str(path)))
    if not good:
        raise click.exceptions.Exit(1)


_HEADINGS = ("case", "paraphrase", "us", "min..max", "original us", "ratio", "", "registers", "spills")


def _line(row: Row) -> tuple[str, ...]:
    return (
        row.case,
        row.impl,
        f"{row.median_us:.1f}",
        f"{row.min_us:.1f}..{row.max_us:.1f}",
        f"{row.peer_median_us:.1f}",
        f"{row.ratio:.3f}",
        "TOO SLOW" if too_slow(row) else "ok",
        str(row.registers),
        str(row.spills),
    )


if __name__ == "__main__":
    command()
