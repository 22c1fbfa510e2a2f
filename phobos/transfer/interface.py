"""What moves a view of a tensor: positions, strides, bounds, as the text that the emitting rooms need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AxisText:
    """One axis of a tensor in a view.

    `start`: position of the tile's first element (or the one position); `tile_axis`: which axis of the tile runs along
    it, None for a single position. `low`, `high`: that bound needs a check. `gather`: name of the index fragment, if
    positions are gathered, and `cast` what makes signed numbers of them in an offset. `stride` "" means 1.
    """

    start: str
    length: int
    dim: str
    stride: str
    tile_axis: int | None
    low: bool
    high: bool
    gather: str | None = None
    cast: str = ""


@dataclass(frozen=True)
class GlobalText:
    """A view of a tensor: parameter name, C element type, axes, and elements per provably legal vector access."""

    tensor: str
    ctype: str
    axes: tuple[AxisText, ...]
    vector: int
    fill: str = "0"

    @property
    def guarded(self) -> bool:
        return any(a.low or a.high or a.gather is not None for a in self.axes)

    def whole(self) -> str | None:
        """A condition, the same for all threads, under which no element is masked; None if there is none to state."""
        tests: list[str] = []
        for a in self.axes:
            if a.gather is not None:
                return None
            if a.low:
                tests.append(f"{a.start} >= 0")
            if a.high:
                # Not start + length - 1 < dim: a start may lie just below 2^31, no dim lies that far below 0.
                end = a.dim if a.length == 1 else f"{a.dim} - {a.length - 1}"
                tests.append(f"{a.start} < {end}")
        return " && ".join(f"PH_GUARD({t})" for t in tests) or None
