"""Random register layouts, and what a layout means worked out digit by digit without the code under test."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from phobos.layout.register import WARP, Digit, RegisterLayout

Position = tuple[int, ...]
Slot = tuple[int, int, int]  # warp, lane, register


def _count(digits: tuple[Digit, ...]) -> int:
    n = 1
    for d in digits:
        n *= d.extent
    return n


def _offset(number: int, digits: tuple[Digit, ...], rank: int) -> tuple[Position, bool]:
    """(position offset, every replica digit is 0) of a mixed-radix number, least significant digit first."""
    out, owner = [0] * rank, True
    for d in digits:
        value, number = number % d.extent, number // d.extent
        if d.axis is None:
            owner = owner and value == 0
        else:
            out[d.axis] += value * d.stride
    assert number == 0
    return tuple(out), owner


def slots(layout: RegisterLayout) -> dict[Slot, tuple[Position, bool]]:
    """Slot -> (position, which may be padding; owner if it is none)."""
    rank = len(layout.shape)
    counts = _count(layout.warp), WARP, _count(layout.reg)
    out = {}
    for w, lane, r in product(*map(range, counts)):
        parts = [_offset(n, d, rank) for n, d in ((w, layout.warp), (lane, layout.lane), (r, layout.reg))]
        position = tuple(sum(p[0][a] for p in parts) for a in range(rank))
        out[w, lane, r] = position, all(p[1] for p in parts)
    return out


def inside(position: Position, shape: tuple[int, ...]) -> bool:
    return all(p < n for p, n in zip(position, shape, strict=True))


def held(layout: RegisterLayout) -> set[tuple[int, int, Position]]:
    """(warp, lane, position) of everything that threads hold, padding included."""
    return {(w, lane, p) for (w, lane, _), (p, _) in slots(layout).items()}


@st.composite
def layouts(draw: st.DrawFn, rank: int | None = None, most_registers: int = 24) -> RegisterLayout:
    """Any layout that `make` accepts: digits of lanes, warps and registers in any order, replicas, padding."""
    rank = draw(st.integers(1, 3)) if rank is None else rank
    lanes = draw(st.sampled_from([(32,), (4, 8), (8, 4), (2, 16), (2, 2, 8), (4, 2, 4), (2, 2, 2, 2, 2)]))
    warps = draw(st.sampled_from([(), (2,), (4,), (3,), (2, 2), (8,), (2, 3)]))
    registers: list[int] = []
    total = 1
    for extent in draw(st.lists(st.sampled_from([2, 3, 4, 5, 8]), max_size=4)):
        if total * extent <= most_registers:
            registers.append(extent)
            total *= extent
    axes = st.integers(0, rank - 1)
    wanted = [("lane", n, draw(st.none() | axes)) for n in lanes]
    wanted += [("warp", n, draw(st.none() | axes)) for n in warps]
    wanted += [("reg", n, draw(axes)) for n in registers]
    wanted = draw(st.permutations(wanted))
    covered = [1] * rank
    digits: dict[str, list[Digit]] = {"lane": [], "warp": [], "reg": []}
    for place, extent, axis in wanted:
        digits[place].append(Digit(None, extent) if axis is None else Digit(axis, extent, covered[axis]))
        if axis is not None:
            covered[axis] *= extent
    # Less than the last digit is padding that `blocked` and plans would not make, but that the relation allows.
    shape = tuple(draw(st.integers(max(1, n // 2), n)) for n in covered)
    order = {place: draw(st.permutations(listed)) for place, listed in digits.items()}
    return RegisterLayout.make(shape, order["reg"], order["lane"], order["warp"])
