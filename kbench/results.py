"""Result rows in the fixed format, their files (JSON by bench, CSV for all) and the table on the screen.

Files are merged: a row replaces the row of the same key and leaves the others, so a run of one bench keeps the rest.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from phobos.console import spelled
from phobos.diagnostics import CompileError, Diagnostic, PhobosError
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


_ROW_KEY = ("bench", "case", "impl", "peer", "searched")
_CHECK_KEY = ("bench", "case", "impl", "backend")


def merged_json(old_text: str | None, rows: Iterable[Row] = (), path: str = "results") -> str:
    """The JSON list of a file's rows with `rows` added or put in place of those with the same key.

    Raises CompileError PH1030 if the old text is no such list: it is not overwritten.
    """
    kept = _old_items(old_text, _ROW_KEY, "result rows", path)
    kept.update({row.key(): row.to_json() for row in rows})
    lines = ",\n".join("  " + json.dumps(spelled(item)) for item in kept.values())
    return f"[\n{lines}\n]\n" if kept else "[]\n"


def merged_checks(old_text: str | None, checks: Iterable[Mapping[str, object]] = (), path: str = "results") -> str:
    """The same for checks without a device, as `phobos kbench --json` gives them; they are no result rows."""
    kept = _old_items(old_text, _CHECK_KEY, "checks without a device", path)
    kept.update({tuple(check[k] for k in _CHECK_KEY): check for check in checks})
    return json.dumps(spelled(list(kept.values())), indent=2) + "\n"


def _old_items(
    old_text: str | None, key: Sequence[str], what: str, path: str
) -> dict[tuple[object, ...], Mapping[str, object]]:
    kept: dict[tuple[object, ...], Mapping[str, object]] = {}
    try:
        old = [] if old_text is None else json.loads(old_text)
        if not isinstance(old, list):
            raise TypeError("not a list")
        for item in old:
            kept[tuple(item[k] for k in key)] = item
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _foreign(path, f"is not a list of {what}") from None
    return kept


def merged_search(
    old_text: str | None, found: Mapping[str, SearchResult] | None = None, path: str = "results"
) -> str:
    """The JSON object of a bench's search logs by case, with those in `found` added or replaced.

    Raises CompileError PH1030 if the old text is no such object: it is not overwritten.
    """
    try:
        kept = json.loads(old_text) if old_text is not None else {}
        if not isinstance(kept, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError, RecursionError):
        raise _foreign(path, "is not an object of search logs") from None
    kept.update({case: result.to_json() for case, result in (found or {}).items()})
    return json.dumps(spelled(kept), indent=1) + "\n"


def merged_csv(old_text: str | None, rows: Iterable[CsvRow] = (), path: str = "results.csv") -> str:
    """The CSV table with `rows` added or put in place of those of the same benchmark, impl and precision.

    Raises CompileError PH1030 if the old text has other columns.
    """
    kept: dict[tuple[str, ...], Sequence[str]] = {}
    if old_text:
        try:
            table = list(csv.reader(io.StringIO(old_text), strict=True))
        except csv.Error:
            table = [[]]
        if tuple(table[0]) != CSV_COLUMNS or any(len(r) != len(CSV_COLUMNS) for r in table):
            raise _foreign(path, f"does not have the columns {','.join(CSV_COLUMNS)}")
        kept = {tuple(r[:3]): r for r in table[1:]}
    for row in rows:
        kept[row.cells()[:3]] = row.cells()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows(kept.values())
    return out.getvalue()


def _foreign(path: str, how: str) -> CompileError:
    return CompileError(
        Diagnostic(
            code="PH1030",
            message=f"{path} {how}; it is left as it is",
            help="move it away, or choose another path",
        )
    )


def check_target(path: Path, merge: Callable[..., str]) -> None:
    """Before what is to be written is made: raises what `read_old`, `merge` (one of the above) and `write_new` would
    raise of this path, as far as it can be known."""
    merge(read_old(path), path=str(path))
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise _unusable(path, "write", NotADirectoryError(20, f"{str(folder)!r} is no folder"))
    target = path if path.exists() else folder
    if not os.access(target, os.W_OK) or not os.access(folder, os.X_OK):
        raise _unusable(path, "write", PermissionError(13, "Permission denied"))


def write_all(actions: Iterable[Callable[[], None]]) -> None:
    """Runs all of them, and then raises CompileError with what went wrong: one file's failure loses no other."""
    errors: list[Diagnostic] = []
    for act in actions:
        try:
            act()
        except PhobosError as e:
            errors.extend(e.diagnostics)
    if errors:
        raise CompileError(errors)


def read_old(path: Path) -> str | None:
    """The text of a results file that may not exist yet. Raises CompileError PH1031 where it cannot be read."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            return None  # a device or pipe holds nothing
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:  # no UTF-8, a NUL in the name
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
