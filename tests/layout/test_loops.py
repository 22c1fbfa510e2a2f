"""The printed loops and positions, evaluated in Python, against the tables of the layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from layout.relations import layouts, slots

from phobos.ir.storage import Fragment, FragmentRef, Position
from phobos.ir.types import DType
from phobos.layout.loops import Nest, plan
from phobos.layout.positions import ThreadPositions
from phobos.layout.register import RegisterLayout

few = settings(max_examples=25, deadline=None)


class Machine:
    """Evaluates emitted expressions for one thread: C integers that are never negative, `&&`, declared names."""

    def __init__(self, threads: ThreadPositions, warp: int, lane: int):
        self.names: dict[str, int] = {"warp": warp, "lane": lane}
        for line in threads.declarations:
            found = re.fullmatch(r"const (int|bool) (\w+) = (.*);", line)
            assert found, line
            self.names[found[2]] = self.value(found[3])

    def value(self, text: str, **more: int) -> int:
        return eval(text.replace("/", "//").replace("&&", "and"), {}, {**self.names, **more})  # noqa: S307

    def iterations(self, nest: Nest) -> Iterator[dict[str, int]]:
        for values in product(*(range(g.extent) for g in nest.groups)):
            yield {g.variable: v for g, v in zip(nest.groups, values, strict=True)}


def machines(layout: RegisterLayout, threads: ThreadPositions) -> Iterator[tuple[int, int, Machine]]:
    for w in range(layout.warps):
        for lane in range(0, 32, 5 if layout.warps > 2 else 3):
            yield w, lane, Machine(threads, w, lane)


@few
@given(layouts(), st.booleans())
def test_registers_and_positions(layout: RegisterLayout, merge: bool) -> None:
    """Every register once; the position printed for it is its own."""
    threads = ThreadPositions()
    axes = range(layout.rank)
    nest = plan(layout, threads, [Position(DType.INDEX, a) for a in axes], merge=merge)
    texts, register = [nest.position(a) for a in axes], nest.register()
    table = slots(layout)
    for w, lane, machine in machines(layout, threads):
        seen = set()
        for values in machine.iterations(nest):
            r = machine.value(register, **values)
            seen.add(r)
            assert tuple(machine.value(t, **values) for t in texts) == table[w, lane, r][0]
        assert seen == set(range(layout.registers))


@few
@given(layouts())
def test_bases_and_steps_sum_to_positions(layout: RegisterLayout) -> None:
    threads = ThreadPositions()
    nest = plan(layout, threads, merge=False)
    parts = [(nest.base(a) or "0", nest.steps(a)) for a in range(layout.rank)]
    register, table = nest.register(), slots(layout)
    for w, lane, machine in machines(layout, threads):
        for values in machine.iterations(nest):
            position, _ = table[w, lane, machine.value(register, **values)]
            for axis, (base, steps) in enumerate(parts):
                assert machine.value(base) + sum(values[v] * n for v, n in steps) == position[axis]


@few
@given(layouts(), st.data())
def test_vectors(layout: RegisterLayout, data: st.DataObject) -> None:
    """`vector` consecutive registers are left to an inner variable."""
    run = layout.reg[0].extent if layout.reg else 1
    vector = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if run % n == 0]))
    threads = ThreadPositions()
    nest = plan(layout, threads, vector=vector, merge=False)
    register = nest.register(inner="v" if vector > 1 else "")
    texts = [nest.position(a, "v" if vector > 1 and layout.reg[0].stride == 1 else "") for a in range(layout.rank)]
    table = slots(layout)
    for w, lane, machine in machines(layout, threads):
        seen = []
        for values in machine.iterations(nest):
            for v in range(vector):
                r = machine.value(register, v=v, **values)
                seen.append(r)
                if vector == 1 or layout.reg[0].stride == 1:
                    assert tuple(machine.value(t, v=v, **values) for t in texts) == table[w, lane, r][0]
        assert sorted(seen) == list(range(layout.registers))


@few
@given(layouts(), st.data())
def test_fragments_that_broadcast(layout: RegisterLayout, data: st.DataObject) -> None:
    """A fragment with extent-1 axes is read at the register that holds the element's line, however loops are merged."""
    ones = data.draw(st.sets(st.integers(0, layout.rank - 1)))
    shape = tuple(1 if a in ones else n for a, n in enumerate(layout.shape))
    small = Fragment("small", DType.F32, layout.broadcast_source(shape))
    big = Fragment("big", DType.F32, layout)
    refs = [FragmentRef(DType.F32, f) for f in (big, small)]
    threads = ThreadPositions()
    nest = plan(layout, threads, refs)
    texts = [re.fullmatch(r"(\w+)\[(.*)\]", nest.fragment(ref)) for ref in refs]
    assert texts[0] is not None and texts[1] is not None and texts[0][1] == "big" and texts[1][1] == "small"
    tables = slots(layout), slots(small.layout)
    dropped = {a for a in ones if layout.shape[a] != 1}
    for w, lane, machine in machines(layout, threads):
        seen = set()
        for values in machine.iterations(nest):
            r, s = (machine.value(t[2], **values) for t in texts)  # type: ignore[index]
            seen.add(r)
            line = tuple(0 if a in dropped else x for a, x in enumerate(tables[0][w, lane, r][0]))
            assert tables[1][w, lane, s][0] == line
        assert seen == set(range(layout.registers))


@few
@given(layouts(), st.data())
def test_fragments_of_lower_rank(layout: RegisterLayout, data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, layout.rank - 1), min_size=1))))
    ref = FragmentRef(DType.I32, Fragment("index", DType.I32, layout.kept(axes)), axes)
    threads = ThreadPositions()
    nest = plan(layout, threads, [ref])
    text = nest.fragment(ref).removeprefix("index[").removesuffix("]")
    register, tables = nest.register(), (slots(layout), slots(ref.fragment.layout))
    for w, lane, machine in machines(layout, threads):
        for values in machine.iterations(nest):
            position, _ = tables[0][w, lane, machine.value(register, **values)]
            assert tables[1][w, lane, machine.value(text, **values)][0] == tuple(position[a] for a in axes)


@few
@given(layouts(), st.data())
def test_outer_axes_come_first_and_alone(layout: RegisterLayout, data: st.DataObject) -> None:
    outer = tuple(sorted(data.draw(st.sets(st.integers(0, layout.rank - 1)))))
    nest = plan(layout, ThreadPositions(), outer=outer)
    kinds = [{layout.reg[n].axis in outer for n in g.digits} for g in nest.groups]
    assert all(len(k) == 1 for k in kinds)
    flags = [next(iter(k)) for k in kinds]
    assert flags == sorted(flags, reverse=True)
    assert len({g.variable for g in nest.groups}) == len(nest.groups)


@few
@given(layouts())
def test_owner_condition(layout: RegisterLayout) -> None:
    threads = ThreadPositions()
    condition = threads.owner(layout) or "True"
    table = slots(layout)
    for w, lane, machine in machines(layout, threads):
        assert bool(machine.value(condition)) == table[w, lane, 0][1]
    assert (condition == "True") == (not layout.has_replicas)


@few
@given(layouts(), st.data())
def test_owner_of_a_reduced_line(layout: RegisterLayout, data: st.DataObject) -> None:
    """Of the lanes that share a line after the butterfly, one warp's lane 0 counts; each warp part keeps its own."""
    axis = data.draw(st.integers(0, layout.rank - 1))
    threads = ThreadPositions()
    condition = threads.owner(layout, (axis,)) or "True"
    part = threads.warp_part(layout, (axis,))
    parts = 1
    for d in layout.warp:
        parts *= d.extent if d.axis == axis else 1
    result = layout.sliced(axis)
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    for w in range(layout.warps):
        for lane in range(32):
            machine = Machine(threads, w, lane)
            assert 0 <= machine.value(part) < parts
            if machine.value(condition):
                for r in range(result.registers):
                    position = tuple(int(x) for x in result.positions[w, lane, r])
                    found[machine.value(part), position] = found.get((machine.value(part), position), 0) + 1
    lines = {tuple(int(x) for x in p) for p in result.positions.reshape(-1, layout.rank)}
    assert found == {(n, p): 1 for n in range(parts) for p in lines}
