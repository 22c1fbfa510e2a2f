"""Result rows in the fixed format, their files (JSON by bench, CSV for all) and the table on the screen.

Files are merged: a row replaces the row of the same key and leaves the others, so a run of one bench keeps the rest.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from phobos.diagnostics import CompileError, Diagnostic
from phobos.files import write_output
from phobos.tuning.result import SearchResult

_NUMBER = re.compile(r"-?[\d.]+(e[-+]\d+)?( %)?")
CSV_COLUMNS = ("benchmark", "impl", "precision", "gflops", "peak_gflops", "pct_of_peak")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One implementation of one case beside one peer. Times are microseconds per call; `ratio` is the peer's median
    over ours (above 1: we are faster); `peak`, in TFLOP/s or GB/s as the rate, is that of `unit` (a key of
    `roofline.UNITS`, or "copy" for the measured rate of a device copy). None where nothing was
    measured. `searched` says that the configuration came from a search."""

    bench: str
    case: str
    impl: str
    peer: str | None
    ratio: float | None
    median_us: float
    min_us: float
    max_us: float
    tflops: float | None
    gbps: float | None
    peak: float | None
    unit: str
    pct_of_peak: float | None
    rel_l2: float
    max_abs: float
    mean_abs: float
    rmse: float
    config: Mapping[str, object]
    searched: bool
    spills: int | None
    registers: int | None
    peer_median_us: float | None
    device: str
    driver: str
    cuda: str
    torch: str
    commit: str
    date: str

    def key(self) -> tuple[object, ...]:
        return (self.bench, self.case, self.impl, self.peer, self.searched)

    def to_json(self) -> dict[str, object]:
        """All fields, but of `tflops` and `gbps` only the one that the bench is rated in."""
        unused = "gbps" if self.gbps is None else "tflops"
        return {name: value for name, value in asdict(self).items() if name != unused}


@dataclass(frozen=True, kw_only=True)
class CsvRow:
    """A line of results.csv. `gflops` counts the bench's arithmetic, `peak_gflops` what its bound allows: the unit's
    peak, or the measured copy rate times the bench's FLOP per byte.
    """

    benchmark: str
    impl: str
    precision: str
    gflops: float
    peak_gflops: float | None
    pct_of_peak: float | None

    def cells(self) -> tuple[str, ...]:
        return (
            self.benchmark,
            self.impl,
            self.precision,
            f"{self.gflops:.1f}",
            "" if self.peak_gflops is None else f"{self.peak_gflops:.1f}",
            "" if self.pct_of_peak is None else f"{self.pct_of_peak:.1f}",
        )


assert tuple(f.name for f in fields(CsvRow)) == CSV_COLUMNS


def merged_json(old_text: str | None, rows: Iterable[Row], path: str = "results") -> str:
    """The JSON list of a file's rows with `rows` added or put in place of those with the same key.

    Raises CompileError PH1030 if the old text is no such list: it is not overwritten.
    """
    kept: dict[tuple[object, ...], dict[str, object]] = {}
    if old_text is not None:
        try:
            old = json.loads(old_text)
            if not isinstance(old, list):
                raise TypeError("not a list")
            for item in old:
                kept[tuple(item[k] for k in ("bench", "case", "impl", "peer", "searched"))] = item
        except (ValueError, TypeError, KeyError):
            raise CompileError(
                Diagnostic(
                    code="PH1030",
                    message=f"{path} is not a list of result rows; it is left as it is",
                    help="move it away, or choose another path",
                )
            ) from None
    for row in rows:
        kept[row.key()] = row.to_json()
    lines = ",\n".join("  " + json.dumps(item) for item in kept.values())
    return f"[\n{lines}\n]\n" if kept else "[]\n"


def merged_search(old_text: str | None, found: Mapping[str, SearchResult], path: str) -> str:
    """The JSON object of a bench's search logs by case, with those in `found` added or replaced.

    Raises CompileError PH1030 if the old text is no such object: it is not overwritten.
    """
    try:
        kept = json.loads(old_text) if old_text is not None else {}
        if not isinstance(kept, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError):
        raise CompileError(
            Diagnostic(
                code="PH1030",
                message=f"{path} is not an object of search logs; it is left as it is",
                help="move it away, or choose another path",
            )
        ) from None
    kept.update({case: result.to_json() for case, result in found.items()})
    return json.dumps(kept, indent=1) + "\n"


def merged_csv(old_text: str | None, rows: Iterable[CsvRow], path: str = "results.csv") -> str:
    """The CSV table with `rows` added or put in place of those of the same benchmark, impl and precision.

    Raises CompileError PH1030 if the old text has other columns.
    """
    kept: dict[tuple[str, ...], Sequence[str]] = {}
    if old_text:
        table = list(csv.reader(io.StringIO(old_text)))
        if tuple(table[0]) != CSV_COLUMNS or any(len(r) != len(CSV_COLUMNS) for r in table):
            raise CompileError(
                Diagnostic(
                    code="PH1030",
                    message=f"{path} does not have the columns {','.join(CSV_COLUMNS)}; it is left as it is",
                    help="move it away, or choose another path",
                )
            )
        kept = {tuple(r[:3]): r for r in table[1:]}
    for row in rows:
        kept[row.cells()[:3]] = row.cells()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows(kept.values())
    return out.getvalue()


def read_old(path: Path) -> str | None:
    """The text of a results file that may not exist yet. Raises CompileError PH1031 where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as e:
        raise _unusable(path, "read", e) from None


def write_new(path: Path, text: str) -> None:
    """Writes by rename, making the folder. Raises CompileError PH1005 or PH1031 where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise _unusable(path.parent, "make", e) from None
    write_output(str(path), text.encode())


def _unusable(path: Path, verb: str, error: Exception) -> CompileError:
    reason = getattr(error, "strerror", None) or str(error)
    return CompileError(Diagnostic(code="PH1031", message=f"cannot {verb} {str(path)!r}: {reason}"))


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Plain text columns, numbers to the right."""
    widths = [max(len(str(r[i])) for r in (headings, *lines)) for i in range(len(headings))]

    def show(cells: Sequence[str], header: bool = False) -> str:
        parts = []
        for i, cell in enumerate(cells):
            left = header or not _NUMBER.fullmatch(cell)
            parts.append(f"{cell:{'<' if left else '>'}{widths[i]}}")
        return "  ".join(parts).rstrip()

    return "\n".join([show(headings, True), *(show(line) for line in lines)])
