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
    """A view of a tensor: parameter name, C element type, axes, and elements per provably legal vector access.
    `moving`: its positions may change from one iteration of a loop to another."""

    tensor: str
    ctype: str
    axes: tuple[AxisText, ...]
    vector: int
    fill: str = "0"
    moving: bool = False

    @property
    def guarded(self) -> bool:
        return any(a.low or a.high or a.gather is not None for a in self.axes)

    def whole(self, *, staged: bool = False) -> str | None:
        """A condition, the same for all threads, under which no element is masked; None if there is none to state.

        Not start + length - 1 < dim: a start may lie just below 2^31. Of the two ways to say it ptxas makes different
        code: `start < dim - (length - 1)` before loads to registers along a row takes a softmax from 80 to 96 of them
        (134 to 159 us on an H200); `dim - start > length - 1` before the result's old values takes an f32 product of
        4096^3 from 2669 to 2749 us, and before tiles that are `staged` in shared memory causal attention with 128
        columns spills. Neither overflows: no dim is that far below 0, nor is a start, which is tested before.
        """
        tests: list[str] = []
        for a in self.axes:
            if a.gather is not None:
                return None
            if a.low:
                tests.append(f"{a.start} >= 0")
            if a.high:
                start = a.start if a.start.isidentifier() or a.start.isdigit() else f"({a.start})"
                if a.length == 1:
                    tests.append(f"{a.start} < {a.dim}")
                elif staged or not (self.moving or a.start.isdigit()):
                    tests.append(f"{a.start} < {a.dim} - {a.length - 1}")
                else:
                    tests.append(f"{a.dim} - {start} > {a.length - 1}")
        return " && ".join(f"PH_GUARD({t})" for t in tests) or None
