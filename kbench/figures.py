"""The table of measured figures in README.md, from the files in results/: `python -m kbench.figures [--check]`.

A row of README shows what `phobos kbench --out results/h200` wrote to results/h200/<bench>.json, one row for each
case and peer. With --check nothing is written, and the exit status is 1 if README.md shows something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kbench.results import write_new
from phobos.cli import HELP, Guarded

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: h200 -->", "<!-- /figures -->"


def rows(folder: Path) -> list[Mapping[str, object]]:
    """All rows of the benches, in the order of the benches' names; paraphrases are not a bench."""
    out: list[Mapping[str, object]] = []
    for path in sorted(folder.glob("*.json")):
        if path.stem != "paraphrases":
            out.extend(json.loads(path.read_text(encoding="utf-8")))
    return out


def figures(found: Sequence[Mapping[str, object]]) -> str:
    """The rows as a Markdown table, with the device and the command that made them."""
    devices = sorted({f"{r['device']}, driver {r['driver']}, CUDA {r['cuda']}, torch {r['torch']}" for r in found})
    dates = sorted({str(r["date"]) for r in found})
    lines = [
        f"Measured by `phobos kbench --out results/h200` on one {'; '.join(devices)} ({', '.join(dates)}).",
        "The ratio is the peer's median time over ours in the same run: above 1 we are faster. All of it, with errors,",
        "spreads and configurations: `results/h200/*.json`; what was tried: `results/notes/`.",
        "",
        "| bench | case | us | rate | peer | peer us | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in found:
        rate = f"{r['gbps']:.0f} GB/s" if "gbps" in r else f"{r['tflops']:.1f} TFLOP/s"
        peer = [r["peer"] or "", "", ""]
        if r["ratio"] is not None:
            peer[1:] = [f"{r['peer_median_us']:.1f}", f"{r['ratio']:.2f}"]
        name = f"{r['bench']}{str(r['impl']).removeprefix('phobos')}{' (searched)' if r['searched'] else ''}"
        lines.append("| " + " | ".join(map(str, [name, r["case"], f"{r['median_us']:.1f}", rate, *peer])) + " |")
    return "\n".join(lines)


def filled(readme: str, table: str) -> str:
    """README.md's text with the table in its place. ValueError if the place is missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no place {BEGIN} ... {END}")
    return f"{before}{begin}\n{table}\n{end}{after}"


@click.command("python -m kbench.figures", cls=Guarded, help=__doc__, context_settings=HELP)
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 if README.md is out of date.")
def main(check: bool) -> None:
    path = ROOT / "README.md"
    try:
        old = path.read_text(encoding="utf-8")
        new = filled(old, figures(rows(ROOT / "results" / "h200")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise click.ClickException(f"README.md or results/h200 cannot be used: {error!r:.200}") from None
    if new == old:
        return
    if check:
        raise click.ClickException("README.md does not show what results/h200 holds; run python -m kbench.figures")
    write_new(path, new)


if __name__ == "__main__":
    main()
