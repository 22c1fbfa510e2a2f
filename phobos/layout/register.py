"""Register layouts: which (warp, lane, register) holds which tile element.

A layout is a relation written as mixed-radix digits. The lane number is split into digits, the warp number
likewise, and the register number likewise; each digit moves the element position along one tile axis by
`stride`, or along none (a *replica* digit: the same element is held again). A slot whose position falls outside
the tile holds nothing (*padding*). The *owner* of an element is its slot with every replica digit at 0.

So an m16n8 accumulator fragment is lane = (column digit 4 x stride 2, row digit 8 x stride 1), register =
(column digit 2 x stride 1, row digit 2 x stride 8), and repeats are further register digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

WARP = 32


@dataclass(frozen=True)
class Digit:
    """`extent` values that move the position along `axis` by `stride` elements each; axis None: a replica."""

    axis: int | None
    extent: int
    stride: int = 0

    def __post_init__(self) -> None:
        if self.extent < 1 or (self.axis is None) != (self.stride == 0):
            raise ValueError(f"not a digit: {self}")

    def __str__(self) -> str:
        return f"r{self.extent}" if self.axis is None else f"{'ijk'[self.axis]}{self.extent}*{self.stride}"


def _canonical(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Drops digits of extent 1 and merges neighbours that continue each other."""
    out: list[Digit] = []
    for d in digits:
        if d.extent == 1:
            continue
        if out:
            p = out[-1]
            if d.axis is None and p.axis is None:
                out[-1] = Digit(None, p.extent * d.extent)
                continue
            if d.axis is not None and d.axis == p.axis and d.stride == p.stride * p.extent:
                out[-1] = Digit(d.axis, p.extent * d.extent, p.stride)
                continue
        out.append(d)
    return tuple(out)


@dataclass(frozen=True)
class RegisterLayout:
    """Distribution of a tile of `shape` over warps, lanes and registers; digits least significant first.

    Built by `make`, which brings it to canonical form, so that equal relations written alike compare equal.
    """

    shape: tuple[int, ...]
    reg: tuple[Digit, ...]
    lane: tuple[Digit, ...]
    warp: tuple[Digit, ...]

    @staticmethod
    def make(
        shape: tuple[int, ...], reg: Iterable[Digit], lane: Iterable[Digit], warp: Iterable[Digit]
    ) -> "RegisterLayout":
        """Checks that lanes multiply to 32 and that the digits of each axis form a mixed-radix number that covers it.

        Raises ValueError otherwise.
        """
        layout = RegisterLayout(shape, _canonical(reg), _canonical(lane), _canonical(warp))
        n = 1
        for d in layout.lane:
            n *= d.extent
        if n != WARP:
            raise ValueError(f"lane digits multiply to {n}, not {WARP}: {layout}")
        if any(d.axis is None for d in layout.reg):
            raise ValueError(f"a register digit must have an axis: {layout}")
        for axis, extent in enumerate(shape):
            weight = 1
            for d in sorted(layout._axis_digits(axis), key=lambda d: d.stride):
                if d.stride != weight:
                    raise ValueError(f"axis {axis} has a gap or an overlap at stride {d.stride}: {layout}")
                weight *= d.extent
            if weight < extent:
                raise ValueError(f"axis {axis} of extent {extent} is covered only to {weight}: {layout}")
        return layout

    def _axis_digits(self, axis: int) -> list[Digit]:
        return [d for d in (*self.reg, *self.lane, *self.warp) if d.axis == axis]

    # --- sizes -----------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def registers(self) -> int:
        """Elements a thread has room for, padding included."""
        n = 1
        for d in self.reg:
            n *= d.extent
        return n

    @cached_property
    def warps(self) -> int:
        n = 1
        for d in self.warp:
            n *= d.extent
        return n

    def covered(self, axis: int) -> int:
        """Extent of the axis with its padding."""
        n = 1
        for d in self._axis_digits(axis):
            n *= d.extent
        return n

    def padded(self, axis: int) -> bool:
        return self.covered(axis) != self.shape[axis]

    @cached_property
    def has_padding(self) -> bool:
        return any(self.padded(a) for a in range(self.rank))

    @cached_property
    def has_replicas(self) -> bool:
        return any(d.axis is None for d in (*self.lane, *self.warp))

    # --- algebra ---------------------------------------------------------------------------

    def sliced(self, axis: int) -> "RegisterLayout":
        """The layout of a reduction over `axis` (extent 1 stays): every thread that held part of a line holds its
        result."""
        shape = tuple(1 if a == axis else n for a, n in enumerate(self.shape))

        def drop(digits: tuple[Digit, ...]) -> list[Digit]:
            return [Digit(None, d.extent) if d.axis == axis else d for d in digits]

        reg = [d for d in self.reg if d.axis != axis]
        return RegisterLayout.make(shape, reg, drop(self.lane), drop(self.warp))

    def broadcast_source(self, shape: tuple[int, ...]) -> "RegisterLayout":
        """The layout in which a tile of `shape` (extent 1 where it broadcasts) lines up with this one."""
        out = self
        for axis, n in enumerate(shape):
            if n == 1 and self.shape[axis] != 1:
                out = out.sliced(axis)
        return out

    def permuted(self, axes: tuple[int, ...]) -> "RegisterLayout":
        """Axis `i` of the result is axis `axes[i]` of this one (a transpose moves nothing)."""
        new = {old: i for i, old in enumerate(axes)}

        def move(digits: tuple[Digit, ...]) -> list[Digit]:
            return [d if d.axis is None else Digit(new[d.axis], d.extent, d.stride) for d in digits]

        shape = tuple(self.shape[a] for a in axes)
        return RegisterLayout.make(shape, move(self.reg), move(self.lane), move(self.warp))

    def kept(self, axes: tuple[int, ...]) -> "RegisterLayout":
        """The layout of rank len(axes) of a value that depends on these axes only."""
        new = {old: i for i, old in enumerate(axes)}

        def move(digits: tuple[Digit, ...], replicas: bool) -> list[Digit]:
            out = []
            for d in digits:
                if d.axis is None or d.axis in new:
                    out.append(d if d.axis is None else Digit(new[d.axis], d.extent, d.stride))
                elif replicas:
                    out.append(Digit(None, d.extent))
            return out

        shape = tuple(self.shape[a] for a in axes)
        return RegisterLayout.make(shape, move(self.reg, False), move(self.lane, True), move(self.warp, True))

    def with_axis(self, position: int) -> "RegisterLayout":
        """The same values as a tile with one more axis of extent 1 at `position`."""

        def move(digits: tuple[Digit, ...]) -> list[Digit]:
            return [
                d if d.axis is None or d.axis < position else Digit(d.axis + 1, d.extent, d.stride) for d in digits
            ]

        shape = (*self.shape[:position], 1, *self.shape[position:])
        return RegisterLayout.make(shape, move(self.reg), move(self.lane), move(self.warp))

    def with_unit_axes(self, shape: tuple[int, ...]) -> "RegisterLayout | None":
        """The same values as a tile of `shape`, in which axes of extent 1 come or go; None where more differs."""
        old = [a for a, n in enumerate(self.shape) if n != 1]
        new = [a for a, n in enumerate(shape) if n != 1]
        if [self.shape[a] for a in old] != [shape[a] for a in new]:
            return None
        moved = dict(zip(old, new))
        if any(d.axis is not None and d.axis not in moved for d in (*self.reg, *self.lane, *self.warp)):
            return None  # padding along an axis of extent 1

        def move(digits: tuple[Digit, ...]) -> list[Digit]:
            return [d if d.axis is None else Digit(moved[d.axis], d.extent, d.stride) for d in digits]

        return RegisterLayout.make(shape, move(self.reg), move(self.lane), move(self.warp))

    # --- the relation itself ---------------------------------------------------------------

    @cached_property
    def positions(self) -> np.ndarray:
        """int array [warps, 32, registers, rank]: the position of every slot (>= shape where it is padding)."""

        warps, registers = self._offsets(self.warp, self.warps), self._offsets(self.reg, self.registers)
        lanes = self.lane_offsets
        return warps[:, None, None, :] + lanes[None, :, None, :] + registers[None, None, :, :]

    @cached_property
    def lane_offsets(self) -> np.ndarray:
        """int array [32, rank]: how far the positions of a lane lie from those of lane 0."""
        return self._offsets(self.lane, WARP)

    def _offsets(self, digits: tuple[Digit, ...], count: int) -> np.ndarray:
        out = np.zeros((count, self.rank), dtype=np.int64)
        index = np.arange(count)
        for d in digits:
            if d.axis is not None:
                out[:, d.axis] += index % d.extent * d.stride
            index //= d.extent
        return out

    @cached_property
    def valid(self) -> np.ndarray:
        """bool array [warps, 32, registers]: the slot holds an element."""
        return np.asarray((self.positions < np.array(self.shape)).all(axis=-1))

    @cached_property
    def owners(self) -> np.ndarray:
        """bool array [warps, 32, registers]: the slot owns its element."""

        def first(digits: tuple[Digit, ...], count: int) -> np.ndarray:
            out = np.ones(count, dtype=bool)
            index = np.arange(count)
            for d in digits:
                if d.axis is None:
                    out &= index % d.extent == 0
                index //= d.extent
            return out

        warps, lanes = first(self.warp, self.warps), first(self.lane, WARP)
        return (warps[:, None] & lanes[None, :])[:, :, None] & self.valid

    def register_steps(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(register number, position offset) of every register, in order."""
        ranges = [range(d.extent) for d in reversed(self.reg)]
        for number, digits in enumerate(product(*ranges)):
            offset = [0] * self.rank
            for value, d in zip(reversed(digits), self.reg):
                assert d.axis is not None
                offset[d.axis] += value * d.stride
            yield number, tuple(offset)

    def contiguous_run(self, axis: int) -> int:
        """How many consecutive registers hold consecutive elements along `axis`, starting at register 0."""
        if self.reg and self.reg[0].axis == axis and self.reg[0].stride == 1:
            return self.reg[0].extent
        return 1

    def __str__(self) -> str:
        def show(digits: tuple[Digit, ...]) -> str:
            return " ".join(map(str, digits)) or "-"

        shape = "x".join(map(str, self.shape))
        return f"{shape}: reg({show(self.reg)}) lane({show(self.lane)}) warp({show(self.warp)})"


def power_of_two_at_least(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def blocked(shape: tuple[int, ...], warps: int, vector: int = 1, fast_axis: int | None = None) -> RegisterLayout:
    """The default distribution: `vector` elements of the fast axis per access, lanes along the fast axis first,
    then the other axes from the last to the first; warps the other way round, so that a warp owns whole lines
    where lines are short; what is left over repeats in registers.
    """
    rank = len(shape)
    fast = rank - 1 if fast_axis is None else fast_axis
    order = [fast] + [a for a in reversed(range(rank)) if a != fast]
    done = [1] * rank
    reg: list[Digit] = []
    vector = max(1, min(vector, power_of_two_at_least(shape[fast])))
    while vector > 1 and shape[fast] % vector:
        vector //= 2
    if vector > 1:
        reg.append(Digit(fast, vector, 1))
        done[fast] = vector
    lane: list[Digit] = []
    left = WARP
    for axis in order:
        take = min(left, power_of_two_at_least(-(-shape[axis] // done[axis])))
        if take > 1:
            lane.append(Digit(axis, take, done[axis]))
            done[axis] *= take
            left //= take
    if left > 1:
        lane.append(Digit(None, left))
    warp: list[Digit] = []
    left = warps
    for axis in reversed(order):
        need = -(-shape[axis] // done[axis])
        take = max(d for d in range(1, left + 1) if left % d == 0 and d <= max(1, need))
        if take > 1:
            warp.append(Digit(axis, take, done[axis]))
            done[axis] *= take
            left //= take
    if left > 1:
        warp.append(Digit(None, left))
    for axis in order:
        need = -(-shape[axis] // done[axis])
        if need > 1:
            reg.append(Digit(axis, need, done[axis]))
    return RegisterLayout.make(shape, reg, lane, warp)
