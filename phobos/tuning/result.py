"""What a search leaves behind: every configuration timed, or skipped for a stated reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from phobos.tuning.space import config_text

TIMED, SKIPPED = "timed", "skipped"

# Where a configuration dropped out. All before "compile" are found without running the CUDA compiler.
STAGES = ("check", "promise", "fit", "limit", "compile", "spill", "launch", "verify", "interrupted")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One configuration. A timed one has `microseconds` (the median of a launch); a skipped one `stage` and `reason`.

    `cycles` is the cost model's estimate, `error` the largest relative L2 error of an output against the reference.
    """

    config: Mapping[str, Any]
    status: str
    stage: str | None = None
    reason: str | None = None
    microseconds: float | None = None
    launches: int = 0
    error: float | None = None
    cycles: float | None = None
    threads: int | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None

    def __post_init__(self) -> None:
        timed = self.status == TIMED and self.microseconds is not None and self.stage is None
        skipped = self.status == SKIPPED and self.stage in STAGES and bool(self.reason)
        if not (timed or skipped):
            raise ValueError(f"an outcome is timed, or skipped with a stage and a reason: {self}")

    def text(self) -> str:
        """One line: `BR=64 BC=32   timed 412.3 us ...` or `... skipped (fit): 70912 bytes ...`."""
        if self.status == SKIPPED:
            return f"{config_text(self.config)}: skipped ({self.stage}): {self.reason}"
        extra = [f"{self.launches} launches"]
        if self.threads is not None:
            extra.append(f"{self.threads} threads")
        if self.registers is not None:
            extra.append(f"{self.registers} registers")
        if self.spill_bytes:
            extra.append(f"{self.spill_bytes} bytes spilled")
        if self.shared_bytes is not None:
            extra.append(f"{self.shared_bytes} bytes shared")
        return f"{config_text(self.config)}: timed {self.microseconds:.2f} us ({', '.join(extra)})"


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """A search. `best` is one of the timed configurations.

    `complete`: every configuration of the space was compiled, or skipped for a reason of its own; not so where the
    search was interrupted or had a limit. `reference` says what outputs were compared with. `seconds`: duration.
    `compiler` identifies the compiler's version. `from_store`: nothing was timed, this is an earlier search's result.
    """

    kernel: str
    device: str
    capability: tuple[int, int]
    dims: Mapping[str, int]
    dtypes: Mapping[str, str]
    consts: Mapping[str, Any]
    pins: Mapping[str, Any]
    best: Mapping[str, Any]
    microseconds: float
    complete: bool
    interrupted: bool
    limit: int | None
    space_size: int
    reference: str
    seconds: float
    date: str
    compiler: str
    outcomes: tuple[Outcome, ...]
    from_store: bool = False

    @property
    def timed(self) -> tuple[Outcome, ...]:
        """Fastest first."""
        found = (o for o in self.outcomes if o.status == TIMED)
        return tuple(sorted(found, key=lambda o: o.microseconds or 0.0))

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.status == SKIPPED)

    def summary(self) -> str:
        """One line."""
        how = "interrupted" if self.interrupted else f"{self.seconds:.1f} s"
        if self.from_store:
            how = f"from the store, searched on {self.date}"
        return (
            f"{self.kernel}: best {config_text(self.best)}, {self.microseconds:.2f} us; {len(self.timed)} timed, "
            f"{len(self.skipped)} skipped of {self.space_size} ({how}); outputs compared with {self.reference}"
        )

    def text(self) -> str:
        """Every configuration on a line, the fastest first, then the skipped ones, then the summary."""
        return "\n".join([*(o.text() for o in self.timed), *(o.text() for o in self.skipped), self.summary()])

    def to_json(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("outcomes", "from_store")}
        for name in ("dims", "dtypes", "consts", "pins", "best"):
            out[name] = dict(out[name])
        out["capability"] = list(self.capability)
        out["outcomes"] = [
            {name: value for name, value in asdict(o).items() if value is not None and (name, value) != ("launches", 0)}
            for o in self.outcomes
        ]
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "SearchResult":
        """Raises KeyError, TypeError or ValueError for what `to_json` did not write."""
        values = dict(data)
        major, minor = values["capability"]
        values["capability"] = (int(major), int(minor))
        if not isinstance(values["outcomes"], list):
            raise TypeError("outcomes are a list")
        values["outcomes"] = tuple(Outcome(**o) for o in values["outcomes"])
        found = SearchResult(**values)
        if not (_typed(found, _TYPES) and all(_typed(o, _OUTCOME_TYPES) for o in found.outcomes)):
            raise TypeError("a value of another type")
        return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_config(value: Any) -> bool:
    return isinstance(value, dict) and all(type(v) in (int, float, bool, str) for v in value.values())


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_bool(value: Any) -> bool:
    return type(value) is bool


def _or_none(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or test(value)


def _typed(value: object, tests: Mapping[str, Callable[[Any], bool]]) -> bool:
    return all(test(getattr(value, name)) for name, test in tests.items())


_TYPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("kernel", "device", "reference", "date", "compiler"), _is_text),
    **dict.fromkeys(("consts", "pins", "best"), _is_config),
    **dict.fromkeys(("microseconds", "seconds"), _is_number),
    **dict.fromkeys(("complete", "interrupted"), _is_bool),
    "dims": lambda value: _is_config(value) and all(map(_is_count, value.values())),
    "dtypes": lambda value: _is_config(value) and all(map(_is_text, value.values())),
    "limit": _or_none(_is_count),
    "space_size": _is_count,
}
_OUTCOME_TYPES: dict[str, Callable[[Any], bool]] = {
    "config": _is_config,
    "launches": _is_count,
    **dict.fromkeys(("stage", "reason"), _or_none(_is_text)),
    **dict.fromkeys(("microseconds", "error", "cycles"), _or_none(_is_number)),
    **dict.fromkeys(("threads", "registers", "spill_bytes", "shared_bytes"), _or_none(_is_count)),
}
