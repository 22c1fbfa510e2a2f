"""The algebra of register layouts against the relation worked out digit by digit."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout.relations import held, inside, layouts, slots

from phobos.layout.register import WARP, Digit, RegisterLayout, blocked

few = settings(max_examples=30, deadline=None)


@few
@given(layouts())
def test_tables_say_what_the_digits_say(layout: RegisterLayout) -> None:
    for (w, lane, r), (position, owner) in slots(layout).items():
        valid = inside(position, layout.shape)
        assert tuple(layout.positions[w, lane, r]) == position
        assert layout.valid[w, lane, r] == valid
        assert layout.owners[w, lane, r] == (valid and owner)


@few
@given(layouts())
def test_every_element_has_one_owner_and_equally_many_replicas(layout: RegisterLayout) -> None:
    owners: Counter[tuple[int, ...]] = Counter()
    copies: Counter[tuple[int, ...]] = Counter()
    for place in map(tuple, np.argwhere(layout.valid)):
        position = tuple(int(x) for x in layout.positions[place])
        copies[position] += 1
        owners[position] += int(layout.owners[place])
    assert set(owners) == set(product(*map(range, layout.shape)))
    assert set(owners.values()) == {1}
    replicas = int(np.prod([d.extent for d in (*layout.lane, *layout.warp) if d.axis is None]))
    assert set(copies.values()) == {replicas}
    assert layout.has_replicas == (replicas > 1)


@few
@given(layouts())
def test_sizes_and_padding(layout: RegisterLayout) -> None:
    table = slots(layout)
    assert (layout.warps, WARP, layout.registers) == tuple(max(s[i] for s in table) + 1 for i in range(3))
    reached = [max(p[a] for p, _ in table.values()) + 1 for a in range(layout.rank)]
    assert [layout.covered(a) for a in range(layout.rank)] == reached
    assert [layout.padded(a) for a in range(layout.rank)] == [
        n != m for n, m in zip(reached, layout.shape, strict=True)
    ]
    assert layout.has_padding == any(not inside(p, layout.shape) for p, _ in table.values())


@few
@given(layouts())
def test_registers_in_order(layout: RegisterLayout) -> None:
    table = slots(layout)
    first, _ = table[0, 0, 0]
    assert first == (0,) * layout.rank
    steps = list(layout.register_steps())
    assert [n for n, _ in steps] == list(range(layout.registers))
    assert [offset for _, offset in steps] == [table[0, 0, r][0] for r in range(layout.registers)]
    for axis in range(layout.rank):
        run = layout.contiguous_run(axis)
        unit = tuple(int(a == axis) for a in range(layout.rank))
        for (w, lane, r), (position, _) in table.items():
            start, _ = table[w, lane, r - r % run]
            assert position == tuple(s + r % run * u for s, u in zip(start, unit, strict=True))


@few
@given(layouts(), st.data())
def test_slice_holds_the_lines_that_a_thread_had_part_of(layout: RegisterLayout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    result = layout.sliced(axis)
    assert result.shape == tuple(1 if a == axis else n for a, n in enumerate(layout.shape))
    assert held(result) == {(w, lane, (*p[:axis], 0, *p[axis + 1 :])) for w, lane, p in held(layout)}
    # Register for register: dropping the digits of the axis from a register number gives the slice's register.
    table, sliced = slots(layout), slots(result)
    kept = [d for d in layout.reg if d.axis != axis]
    for (w, lane, r), (position, _) in table.items():
        number, weight, rest = 0, 1, r
        for d in layout.reg:
            if d in kept:
                number += rest % d.extent * weight
                weight *= d.extent
            rest //= d.extent
        assert sliced[w, lane, number][0] == (*position[:axis], 0, *position[axis + 1 :])


@few
@given(layouts(), st.data())
def test_broadcast_source_is_the_slice_along_all_unit_axes(layout: RegisterLayout, data: st.DataObject) -> None:
    ones = data.draw(st.sets(st.integers(0, layout.rank - 1)))
    shape = tuple(1 if a in ones else n for a, n in enumerate(layout.shape))
    result = layout.broadcast_source(shape)
    assert result.shape == shape
    # An axis that has extent 1 in both keeps what it has.
    dropped = {a for a in ones if layout.shape[a] != 1}
    wanted = {(w, lane, tuple(0 if a in dropped else x for a, x in enumerate(p))) for w, lane, p in held(layout)}
    assert held(result) == wanted


@few
@given(layouts(), st.data())
def test_permuted(layout: RegisterLayout, data: st.DataObject) -> None:
    axes = tuple(data.draw(st.permutations(range(layout.rank))))
    result = layout.permuted(axes)
    for slot, (position, owner) in slots(layout).items():
        assert slots_of(result)[slot] == (tuple(position[a] for a in axes), owner)
    back = tuple(axes.index(a) for a in range(layout.rank))
    assert result.permuted(back) == layout


def slots_of(layout: RegisterLayout, cache: dict[RegisterLayout, dict] = {}) -> dict:  # noqa: B006 (a cache)
    if layout not in cache:
        cache.clear()
        cache[layout] = slots(layout)
    return cache[layout]


@few
@given(layouts(), st.data())
def test_kept_axes(layout: RegisterLayout, data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, layout.rank - 1), min_size=1))))
    result = layout.kept(axes)
    assert result.shape == tuple(layout.shape[a] for a in axes)
    assert held(result) == {(w, lane, tuple(p[a] for a in axes)) for w, lane, p in held(layout)}


@few
@given(layouts(), st.data())
def test_unit_axes_come_and_go(layout: RegisterLayout, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, layout.rank))
    more = layout.with_axis(place)
    assert more.shape == (*layout.shape[:place], 1, *layout.shape[place:])
    table = slots(more)
    for slot, (position, owner) in slots(layout).items():
        assert table[slot] == ((*position[:place], 0, *position[place:]), owner)
    back = more.with_unit_axes(layout.shape)
    padded_unit_axis = any(n == 1 and layout.padded(a) for a, n in enumerate(layout.shape))
    assert back == (None if padded_unit_axis else layout)


def test_with_unit_axes_refuses_other_shapes() -> None:
    layout = blocked((4, 8), 2)
    assert layout.with_unit_axes((8, 4)) is None
    assert layout.with_unit_axes((32,)) is None
    found = layout.with_unit_axes((4, 1, 8))
    assert found is not None and found.shape == (4, 1, 8)


@few
@given(layouts(), st.data())
def test_canonical_form(layout: RegisterLayout, data: st.DataObject) -> None:
    """Digits of extent 1 vanish, and a digit written as two neighbours is the same layout."""

    def rewritten(digits: tuple[Digit, ...]) -> list[Digit]:
        out: list[Digit] = []
        for d in digits:
            if data.draw(st.booleans()):
                out.append(Digit(0, 1, 1))
            half = next((n for n in (2, 3) if d.extent % n == 0 and d.extent > n), None)
            if half is not None and data.draw(st.booleans()):
                out.append(Digit(d.axis, half, d.stride))
                out.append(Digit(d.axis, d.extent // half, d.stride * half if d.axis is not None else 0))
            else:
                out.append(d)
        return out

    again = RegisterLayout.make(layout.shape, rewritten(layout.reg), rewritten(layout.lane), rewritten(layout.warp))
    assert again == layout
    assert hash(again) == hash(layout)


@pytest.mark.parametrize(
    "shape, reg, lane, warp, complaint",
    [
        ((16,), [], [Digit(0, 16, 1)], [], "multiply to 16"),
        ((64,), [], [Digit(0, 32, 1)], [], "covered only to 32"),
        ((64,), [Digit(0, 2, 64)], [Digit(0, 32, 1)], [], "gap or an overlap"),
        ((64,), [Digit(0, 2, 16)], [Digit(0, 32, 1)], [], "gap or an overlap"),
        ((32,), [Digit(None, 2)], [Digit(0, 32, 1)], [], "must have an axis"),
    ],
)
def test_what_is_no_layout(shape: tuple, reg: list, lane: list, warp: list, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RegisterLayout.make(shape, reg, lane, warp)


@pytest.mark.parametrize("axis, extent, stride", [(0, 0, 1), (None, 2, 1), (0, 2, 0)])
def test_what_is_no_digit(axis: int | None, extent: int, stride: int) -> None:
    with pytest.raises(ValueError, match="not a digit"):
        Digit(axis, extent, stride)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 5, 7, 16, 31, 32, 33, 48, 100]), min_size=1, max_size=3),
    st.sampled_from([1, 2, 3, 4, 5, 6, 8, 16]),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.data(),
)
def test_blocked_covers_any_shape(extents: list[int], warps: int, vector: int, data: st.DataObject) -> None:
    fast = data.draw(st.none() | st.integers(0, len(extents) - 1))
    while np.prod(extents) > 20000:
        extents[int(np.argmax(extents))] = 3
    shape = tuple(extents)
    layout = blocked(shape, warps, vector, fast)
    assert layout.shape == shape
    assert layout.warps == warps
    owned = defaultdict(int)
    for place in map(tuple, np.argwhere(layout.owners)):
        owned[tuple(int(x) for x in layout.positions[place])] += 1
    assert len(owned) == np.prod(shape) and set(owned.values()) == {1}
    # An access of the vector width is there wherever the extent divides.
    axis = len(shape) - 1 if fast is None else fast
    if shape[axis] % vector == 0:
        assert layout.contiguous_run(axis) % vector == 0


def test_layout_as_text() -> None:
    layout = RegisterLayout.make((8, 8), [Digit(1, 2, 1)], [Digit(1, 4, 2), Digit(0, 8, 1)], [Digit(None, 4)])
    assert str(layout) == "8x8: reg(j2*1) lane(j4*2 i8*1) warp(r4)"
