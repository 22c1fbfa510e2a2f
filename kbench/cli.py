"""`phobos kbench`: the command. Imports what measures only when it is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbench.bench import Bench, Case
    from kbench.gpu import Outcome
    from kbench.host import HostCheck
    from kbench.results import CsvRow, Row

BACKENDS = ("auto", "cuda", "reference", "emulator")


@click.command("kbench", short_help="Verify and time the benchmark kernels beside their peers.")
@click.option("--list", "list_only", is_flag=True, help="Print the benches and stop.")
@click.option("--bench", "names", metavar="NAME", multiple=True, help="Only this bench (may be repeated).")
@click.option(
    "--case", "wanted", metavar="TEXT", multiple=True, help="Only cases whose label contains TEXT, or is TEXT."
)
@click.option("--autotune", "pins", metavar='"BR=64 BC=32"', multiple=True, help="Pin the configuration.")
@click.option(
    "--option", "schedule", metavar="NAME=VALUE", multiple=True, help="Fix an option of the schedule: matmul=wmma."
)
@click.option(
    "--csv", "csv_path", metavar="[PATH]", is_flag=False, flag_value="-", help="CSV, to a file or the output."
)
@click.option("--json", "json_path", metavar="[PATH]", is_flag=False, flag_value="-", help="JSON, likewise.")
@click.option("--out", metavar="DIR", help="Merge the rows into DIR/<bench>.json and DIR/../results.csv.")
@click.option("--search", is_flag=True, help="Search each configuration first (stored results are used again).")
@click.option("--fresh", is_flag=True, help="With --search: search even where a stored result answers.")
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer rounds: a look, not a result.")
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--peak-fp32", type=float, metavar="TFLOPS", help="Peak of f32 FMA.")
@click.option("--peak-fp16tc", type=float, metavar="TFLOPS", help="Peak of f16 tensor cores with f16 sums.")
@click.option("--peak-fp16tcf32acc", type=float, metavar="TFLOPS", help="Peak of f16 tensor cores with f32 sums.")
def command(
    list_only: bool,
    names: Sequence[str],
    wanted: Sequence[str],
    pins: Sequence[str],
    schedule: Sequence[str],
    csv_path: str | None,
    json_path: str | None,
    out: str | None,
    search: bool,
    fresh: bool,
    quick: bool,
    backend: str,
    peak_fp32: float | None,
    peak_fp16tc: float | None,
    peak_fp16tcf32acc: float | None,
) -> None:
    """Verify the benchmark kernels on their whole output, then time them beside their peers.

    Without a CUDA device, small sizes run on the reference and on the emulator, are compared with an independent
    oracle, and nothing is timed.
    """
    from kbench import benches
    from kbench.text import known_name, parse_options, parse_pins

    chosen = tuple(dict.fromkeys(known_name("bench", n, benches.NAMES) for n in names)) or benches.NAMES
    if list_only:
        _list(_selected(chosen, wanted, lambda b: b.cases))
        return
    config = parse_pins(pins)
    options = parse_options(schedule)
    overrides = {"fp32": peak_fp32, "fp16tc": peak_fp16tc, "fp16tcf32acc": peak_fp16tcf32acc}
    for unit, value in overrides.items():
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise click.UsageError(f"--peak-{unit} must be a positive number of TFLOP/s")
    if csv_path == "-" and json_path == "-":
        raise click.UsageError("--csv and --json both go to standard output; give one of them a path")
    if fresh and not search:
        raise click.UsageError("--fresh goes with --search")
    to_stdout = "-" in (csv_path, json_path)
    on_gpu = _on_gpu(backend)
    _check_outputs(chosen, csv_path, json_path, None if quick else out, search, on_gpu)
    if on_gpu:
        peaks = {u: v for u, v in overrides.items() if v is not None}
        work = _selected(chosen, wanted, lambda b: b.quick_cases if quick else b.cases)
        good = _gpu(work, config, options, peaks, search, fresh, quick, csv_path, json_path, out, to_stdout)
    else:
        backends = ("reference", "emulator") if backend == "auto" else (backend,)
        work = _selected(chosen, wanted, lambda b: b.host_cases(config))
        good = _host(work, config, options, backends, csv_path, json_path, out, to_stdout)
        if search:
            click.echo("nothing was searched either: timing a configuration needs a CUDA device", err=to_stdout)
    if not good:
        raise click.exceptions.Exit(1)


def _list(work: Sequence[tuple[Bench, Case]]) -> None:
    for name in dict.fromkeys(bench.name for bench, _ in work):
        found = [(bench, case) for bench, case in work if bench.name == name]
        cases = ", ".join(case.label for _, case in found)
        peers = ", ".join(dict.fromkeys(p.name for bench, _ in found for p in bench.peers)) or "none"
        first = found[0][0]
        click.echo(f"{name:19} {first.title}: {cases}; rated by {first.bound}; peers: {peers}")


def _check_outputs(
    names: Sequence[str], csv_path: str | None, json_path: str | None, out: str | None, search: bool, on_gpu: bool
) -> None:
    """Before anything runs: raises CompileError where a file could not be written at the end, or two are one."""
    from kbench.results import check_target, merged_checks, merged_csv, merged_json, merged_search
    from phobos.files import check_outputs

    own = {} if out is None else {f"--out: {n}.json": str(Path(out) / f"{n}.json") for n in names}
    logs = {f"--out: search/{n}.json": str(Path(out) / "search" / f"{n}.json") for n in names} if out and search else {}
    table = {} if out is None else {"--out: results.csv": str(Path(out).parent / "results.csv")}
    check_outputs({"--csv": csv_path, "--json": json_path, **own, **logs, **table})
    if not on_gpu:  # then --csv and --out are left as they are
        if json_path not in (None, "-"):
            check_target(Path(str(json_path)), merged_checks)
        return
    merges = (
        ([csv_path, *table.values()], merged_csv), ([json_path, *own.values()], merged_json),
        (list(logs.values()), merged_search),
    )  # fmt: skip
    for paths, merge in merges:
        for path in paths:
            if path is not None and path != "-":
                check_target(Path(path), merge)


def _selected(
    names: Sequence[str], wanted: Sequence[str], cases: Callable[[Bench], Sequence[Case]]
) -> list[tuple[Bench, Case]]:
    """The cases of these benches whose labels contain one of the wanted texts, in order; all of them if there is none.
    A text that is a label in whole means that case alone."""
    from kbench import benches

    found = [(bench, case) for name in names for bench in benches.get_benches(name) for case in cases(bench)]
    labels = {case.label for _, case in found}
    if not wanted:
        return found
    for text in wanted:
        if not any(text.lower() in label.lower() for label in labels):
            raise click.UsageError(f"no case contains {text!r}; there are: {', '.join(sorted(labels))}")

    def chosen(label: str) -> bool:
        return any(label == text if text in labels else text.lower() in label.lower() for text in wanted)

    return [(bench, case) for bench, case in found if chosen(case.label)]


def _pins(config: dict[str, object], work: Sequence[tuple[Bench, Case]]) -> dict[str, dict[str, object]]:
    """By example: of the pinned names those that its space has. Raises UsageError for a name that none has, and for a
    value that none allows."""
    from kbench.text import known_name, load_kernel
    from phobos.ir.exact import among

    examples = {bench.example: bench for bench, _ in work}
    if not config:
        return dict.fromkeys(examples, config)
    spaces = {example: dict(load_kernel(bench).info.space) for example, bench in examples.items()}
    known = sorted(set().union(*spaces.values()))
    for name, value in config.items():
        known_name("configuration name", name, known)
        sets = {example: space[name] for example, space in spaces.items() if name in space}
        if not any(among(value, values) for values in sets.values()):
            listed = "; ".join(f"{example}: {', '.join(map(str, values))}" for example, values in sets.items())
            raise click.UsageError(f"--autotune: {name} cannot be {value}; it is one of those in {listed}")
    return {example: {n: v for n, v in config.items() if n in space} for example, space in spaces.items()}


def _on_gpu(backend: str) -> bool:
    if backend in ("reference", "emulator"):
        return False
    from phobos.runtime.module import device_available, get_driver

    if backend == "cuda":
        get_driver()  # raises the diagnostic that says what is missing
    return device_available()


def _gpu(
    work: Sequence[tuple[Bench, Case]],
    config: dict[str, object],
    options: dict[str, str],
    overrides: dict[str, float],
    search: bool,
    fresh: bool,
    quick: bool,
    csv_path: str | None,
    json_path: str | None,
    out: str | None,
    to_stdout: bool,
) -> bool:
    from kbench import gpu
    from kbench.device import open_device
    from kbench.protocol import FULL, QUICK
    from kbench.roofline import device_peaks
    from phobos.diagnostics import PhobosError

    pins = _pins(config, work)
    device = open_device()
    plan = QUICK if quick else FULL
    copy_rate = gpu.measured_copy_rate(device, plan)
    peaks = device_peaks(device.info, overrides, copy_rate)
    info = device.info

    def say(text: str) -> None:
        click.echo(text, err=to_stdout)

    say(
        f"{info.name}, driver {info.driver or 'unknown'}, CUDA {info.cuda}, torch {info.torch or 'absent'}; "
        f"copy {copy_rate * 1e-9:.0f} GB/s; peaks "
        + (", ".join(f"{u} {f * 1e-12:.1f}" for u, f in peaks.flops.items()) or "unknown")
        + " TFLOP/s"
    )
    rows: list[Row] = []
    csv_rows: list[CsvRow] = []
    good = True
    for bench, case in work:
        try:
            outcome = gpu.run_case(
                bench, case, device, peaks, config=pins[bench.example], plan=plan, search=search, fresh=fresh,
                options=options, say=say,
            )  # fmt: skip
        except PhobosError as e:
            say(f"{bench.name} {case.label}: FAILED\n{e}")
            good = False
            continue
        for note in outcome.notes:
            say(note)
        good = good and outcome.good
        rows.extend(outcome.rows)
        lines = outcome.csv if bench.stands_for_all(case) else ()
        csv_rows.extend(lines)
        if out is not None and not quick:  # case by case, so that a run that is cut short keeps what it has
            try:
                _record(Path(out), bench.name, case.label, outcome, lines)
            except PhobosError as e:
                say(f"{bench.name} {case.label}: NOT WRITTEN\n{e}")
                good = False
    if rows:
        say("\n" + _gpu_table(rows))
    _write(rows, csv_rows, csv_path, json_path)
    if out is not None and quick:
        say("--quick figures are no results: nothing was written to --out")
    return good


def _record(out: Path, name: str, case: str, outcome: Outcome, lines: Sequence[CsvRow]) -> None:
    """Merges the rows, the log of the search and the lines of the table into their files."""
    from kbench import results

    def merge(path: Path, merged: Callable[..., str], found: object) -> Callable[[], None]:
        return lambda: results.write_new(path, merged(results.read_old(path), found, str(path)))

    ours = {row.impl for row in outcome.rows} - {"phobos"}
    found = {" ".join([case, *ours]): outcome.search}
    actions = [merge(out / f"{name}.json", results.merged_json, outcome.rows)] if outcome.rows else []
    if outcome.search is not None:
        actions.append(merge(out / "search" / f"{name}.json", results.merged_search, found))
    if lines:
        actions.append(merge(out.parent / "results.csv", results.merged_csv, lines))
    results.write_all(actions)


def _gpu_table(rows: Sequence[Row]) -> str:
    from kbench.results import table

    lines = []
    for r in rows:
        rate = f"{r.gbps:.0f} GB/s" if r.gbps is not None else f"{r.tflops:.2f} TFLOP/s"
        lines.append(
            (
                r.bench + r.impl.removeprefix("phobos"),
                r.case,
                f"{r.median_us:.1f}",
                f"{r.min_us:.1f}..{r.max_us:.1f}",
                rate,
                f"{r.pct_of_peak:.1f} %" if r.pct_of_peak is not None else "",
                r.unit,
                r.peer or "",
                f"{r.peer_median_us:.1f}" if r.peer_median_us is not None else "",
                f"{r.ratio:.3f}" if r.ratio is not None else "",
                " ".join(f"{k}={v}" for k, v in r.config.items()),
                str(r.spills) if r.spills is not None else "",
            )
        )
    headings = ("bench", "case", "us", "min..max", "rate", "of peak", "unit", "peer", "us", "ratio", "config", "spills")
    return table(headings, lines)


def _host(
    work: Sequence[tuple[Bench, Case]],
    config: dict[str, object],
    options: dict[str, str],
    backends: Sequence[str],
    csv_path: str | None,
    json_path: str | None,
    out: str | None,
    to_stdout: bool,
) -> bool:
    import shutil

    from kbench.host import check_case
    from kbench.results import CSV_COLUMNS, merged_checks, read_old, table, write_new
    from phobos import settings

    def say(text: str) -> None:
        click.echo(text, err=to_stdout)

    if "emulator" in backends and len(backends) > 1 and shutil.which(settings.host_compiler()) is None:
        say(f"no C++ compiler {settings.host_compiler()!r}: the emulator is left out (see `phobos doctor`)")
        backends = tuple(b for b in backends if b != "emulator")
    pins = _pins(config, work)
    checks: list[HostCheck] = [
        check_case(bench, case, b, pins[bench.example], options) for bench, case in work for b in backends
    ]
    lines = [
        (
            c.bench,
            c.case,
            c.backend,
            f"{c.norms.rel_l2:.1e}" if c.norms else "-",
            f"{c.norms.max_abs:.1e}" if c.norms else "-",
            "ok" if c.good else c.problem or f"WRONG: tolerance {c.tolerance:.0e}",
        )
        for c in checks
    ]
    say(table(("bench", "case", "backend", "rel L2", "max abs", "against the float64 oracle"), lines))
    why = "no CUDA device" if backends != ("reference",) and backends != ("emulator",) else f"backend {backends[0]}"
    say(f"\n{why}: small sizes were compared, nothing was timed" + ("" if out is None else ", nothing is written"))
    if json_path is not None:
        items = [_host_json(c) for c in checks]
        if json_path == "-":
            click.echo(merged_checks(None, items), nl=False)
        else:
            write_new(Path(json_path), merged_checks(read_old(Path(json_path)), items, json_path))
    if csv_path is not None:
        text = ",".join(CSV_COLUMNS)  # the columns of what would have been timed
        click.echo(text) if csv_path == "-" else say(f"{csv_path} is left as it is")
    return all(c.good for c in checks)


def _host_json(check: HostCheck) -> dict[str, object]:
    norms = check.norms

    def finite(x: float | None) -> float | None:
        return x if x is not None and math.isfinite(x) else None

    return {
        "bench": check.bench,
        "case": check.case,
        "impl": check.impl,
        "backend": check.backend,
        "config": dict(check.config),
        "ok": check.good,
        "problem": check.problem,
        "rel_l2": finite(norms.rel_l2 if norms else None),
        "max_abs": finite(norms.max_abs if norms else None),
        "tolerance": check.tolerance,
        "median_us": None,
        "ratio": None,
    }


def _write(rows: Sequence[Row], csv_rows: Sequence[CsvRow], csv_path: str | None, json_path: str | None) -> None:
    """To standard output for "-", else merged into the file."""
    from kbench.results import merged_csv, merged_json, read_old, write_all, write_new

    def write(to: str | None, merged: Callable[..., str], found: object) -> None:
        if to == "-":
            click.echo(merged(None, found), nl=False)
        elif to is not None:
            write_new(Path(to), merged(read_old(Path(to)), found, to))

    write_all([lambda: write(json_path, merged_json, rows), lambda: write(csv_path, merged_csv, csv_rows)])
