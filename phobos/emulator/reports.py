"""What a launch on the emulator found: reports, which are diagnostics, and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from phobos.diagnostics import Diagnostic
from phobos.source import Span

# Kinds of reports by diagnostic code.
CODES: dict[str, str] = {
    "out-of-bounds": "PH0801",
    "misaligned": "PH0802",
    "uninitialized": "PH0803",
    "race": "PH0804",
    "divergent-barrier": "PH0805",
    "barrier": "PH0806",
    "divergent-warp": "PH0807",
    "deadlock": "PH0808",
    "in-flight": "PH0809",
    "read-only": "PH0810",
    "register-index": "PH0811",
    "integer-overflow": "PH0812",
    "shift": "PH0813",
    "division-by-zero": "PH0814",
    "mbarrier": "PH0815",
    "tma": "PH0816",
    "wgmma": "PH0817",
    "wgmma-fence": "PH0818",
    "wgmma-register": "PH0819",
    "proxy-fence": "PH0820",
    "assert": "PH0821",
    "timeout": "PH0822",
    "crash": "PH0823",
}


@dataclass(frozen=True, kw_only=True)
class EmulatorReport:
    """One fault; faults of one kind at the same lines are counted, and the first is described.

    `kind` is a key of CODES; `line` (and `line2`, the other party of a race, or 0) are lines of the kernel text as
    `#line` says; `text` names thread, block and bytes.
    """

    kind: str
    line: int
    line2: int
    count: int
    text: str

    def to_diagnostic(self, source_name: str) -> Diagnostic:
        """The report as an error (PH0801 to PH0823) at its line of `source_name`."""
        at = self.line if self.line > 0 else 1
        notes = (f"the other access is at {source_name}:{self.line2}",) if self.line2 > 0 else ()
        times = f" ({self.count} times in all)" if self.count > 1 else ""
        return Diagnostic(
            code=CODES[self.kind],
            message=f"{self.kind}: {self.text}{times}",
            span=Span(file=source_name, line=at, column=1, end_line=at, end_column=2),
            notes=notes,
        )


@dataclass(frozen=True, kw_only=True)
class EmulatorResult:
    """The outcome of a launch.

    `unwritten`: tensor that the kernel may write -> number of its elements that were never written (all 0 without
    checks); `seconds` of the launch without compilation; `output` is what the kernel printed; `accesses`, if
    recorded, is an array of ACCESS_DTYPE (launch.py), one entry for each memory access of a thread; `total` counts
    faults, also those beyond the number of distinct reports kept.
    """

    reports: tuple[EmulatorReport, ...]
    unwritten: Mapping[str, int]
    seconds: float
    output: str = ""
    total: int = 0
    accesses: np.ndarray | None = field(default=None, repr=False)

    def diagnostics(self, source_name: str) -> tuple[Diagnostic, ...]:
        """All reports as errors."""
        return tuple(r.to_diagnostic(source_name) for r in self.reports)
