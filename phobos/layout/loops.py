"""Loop nests over the registers of a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from phobos.ir.storage import Expr, Fragment, FragmentRef, Position, expr_walk
from phobos.layout.positions import ThreadPositions
from phobos.layout.register import RegisterLayout
from phobos.layout.text import TextWriter

_VARIABLES = "ijkuvxyz"


@dataclass(frozen=True)
class Group:
    """One loop: some neighbouring register digits of the layout taken together."""

    extent: int
    digits: tuple[int, ...]  # indexes into layout.reg
    variable: str


@dataclass(frozen=True)
class Nest:
    """Loops over the registers of `layout`, outermost first. `vector`: consecutive registers left to the body."""

    layout: RegisterLayout
    groups: tuple[Group, ...]
    vector: int
    threads: ThreadPositions

    def _value(self, digit: int, weight: int) -> str | None:
        """weight times the digit's value as text, None if the digit is not looped over."""
        for g in self.groups:
            if digit in g.digits:
                first = g.digits[0]
                if digit != first:
                    return None  # carried by the first digit of its group, whose weight continues
                return g.variable if weight == 1 else f"{g.variable} * {weight}"
        return None

    def register(self, kept: Callable[[int], bool] = lambda axis: True, inner: str = "") -> str:
        """Register number in a fragment that has the digits of axes for which `kept` holds."""
        terms: list[str] = []
        weight = 1
        for n, d in enumerate(self.layout.reg):
            assert d.axis is not None
            if not kept(d.axis):
                continue
            # The first digit runs in steps of `vector`; its loop variable counts those steps.
            step = weight * (self.vector if n == 0 else 1)
            text = self._value(n, step)
            if text is not None:
                terms.append(text)
            weight *= d.extent
        terms.reverse()
        if inner:
            terms.append(inner)
        return " + ".join(terms) or "0"

    def register_of(self, digits: set[int], inner: str = "") -> str:
        """The part of the register number that these (least significant) digits of the layout make."""
        terms: list[str] = []
        weight = 1
        for n, d in enumerate(self.layout.reg):
            if n in digits:
                text = self._value(n, weight * (self.vector if n == 0 else 1))
                if text is not None:
                    terms.append(text)
            weight *= d.extent
        terms.reverse()
        if inner:
            terms.append(inner)
        return " + ".join(terms) or "0"

    def base(self, axis: int) -> str:
        """Position along `axis` of this thread's first register, "" for 0."""
        return self.threads.base(self.layout, axis)

    def steps(self, axis: int) -> list[tuple[str, int]]:
        """(loop variable, elements along `axis` that one step of it moves)."""
        out: list[tuple[str, int]] = []
        for n, d in enumerate(self.layout.reg):
            if d.axis == axis:
                for g in self.groups:
                    if g.digits[0] == n:
                        out.append((g.variable, d.stride * (self.vector if n == 0 else 1)))
        return out

    def position(self, axis: int, inner: str = "") -> str:
        """Position along `axis` of the current register; `inner` counts within a vector."""
        terms = [t for t in [self.threads.base(self.layout, axis)] if t]
        for n, d in enumerate(self.layout.reg):
            if d.axis == axis:
                text = self._value(n, d.stride * (self.vector if n == 0 else 1))
                if text is not None:
                    terms.append(text)
        if inner and self.layout.reg and self.layout.reg[0].axis == axis:
            terms.append(inner)
        return " + ".join(terms) or "0"

    def fragment(self, ref: FragmentRef, inner: str = "") -> str:
        """`name[register]` of a fragment whose layout is this one, sliced or of lower rank."""
        frag = ref.fragment
        if ref.axes is not None:
            axes = set(ref.axes)
            return f"{frag.name}[{self.register(lambda a: a in axes, inner if self._first_kept(axes) else '')}]"
        dropped = {a for a in range(self.layout.rank) if frag.layout.shape[a] == 1 and self.layout.shape[a] != 1}
        kept = {a for a in range(self.layout.rank)} - dropped
        return f"{frag.name}[{self.register(lambda a: a in kept, inner if self._first_kept(kept) else '')}]"

    def _first_kept(self, axes: set[int]) -> bool:
        return bool(self.layout.reg) and self.layout.reg[0].axis in axes


def plan(
    layout: RegisterLayout, threads: ThreadPositions, exprs: Iterable[Expr] = (), vector: int = 1, merge: bool = True,
    outer: Sequence[int] = (),
) -> Nest:  # fmt: skip
    """The loops for a statement that evaluates `exprs` at every register.

    Neighbouring digits become one loop where every fragment read advances evenly over them and no position is asked
    for. `outer`: axes whose digits must be the outer loops (and are never merged with others).
    """
    positions: set[int] = set()
    fragments: list[tuple[Fragment, tuple[int, ...] | None]] = []
    for e in exprs:
        for x in expr_walk(e):
            if isinstance(x, Position):
                positions.add(x.axis)
            elif isinstance(x, FragmentRef):
                fragments.append((x.fragment, x.axes))

    def keeps(frag: Fragment, axes: tuple[int, ...] | None, axis: int) -> bool:
        if axes is not None:
            return axis in axes
        return not (frag.layout.shape[axis] == 1 and layout.shape[axis] != 1)

    chains: list[list[int]] = []
    for n, d in enumerate(layout.reg):
        if d.extent == (vector if n == 0 else 1):
            continue
        joined = False
        if chains and merge and vector == 1:
            before = layout.reg[chains[-1][-1]]
            assert before.axis is not None and d.axis is not None
            same = chains[-1][-1] == n - 1
            free = before.axis not in positions and d.axis not in positions
            even = all(keeps(f, ax, before.axis) == keeps(f, ax, d.axis) for f, ax in fragments)
            if same and free and even and not ((before.axis in outer) != (d.axis in outer)):
                chains[-1].append(n)
                joined = True
        if not joined:
            chains.append([n])
    chains.reverse()
    chains.sort(key=lambda c: 0 if layout.reg[c[0]].axis in outer else 1)
    groups = []
    for variable, chain in zip(_VARIABLES, chains):
        extent = 1
        for n in chain:
            extent *= layout.reg[n].extent
        if chain[0] == 0:
            extent //= vector
        groups.append(Group(extent, tuple(chain), variable))
    if len(chains) > len(_VARIABLES):
        raise AssertionError(f"a layout with {len(chains)} register digits: {layout}")
    return Nest(layout, tuple(groups), vector, threads)


@contextmanager
def loops(w: TextWriter, groups: Iterable[Group]) -> Iterator[None]:
    """Opens an unrolled `for` per group and closes them at the end."""
    opened = 0
    for g in groups:
        w.line("PH_UNROLL")
        w.open(f"for (int {g.variable} = 0; {g.variable} < {g.extent}; ++{g.variable})")
        opened += 1
    yield
    for _ in range(opened):
        w.close()


def one_liner(w: TextWriter, groups: Iterable[Group], text: str, *, memory: bool = False) -> None:
    """The loops around one short statement, without braces."""
    indent = ""
    listed = list(groups)
    if not listed:
        w.line(text, memory=memory)
        return
    for n, g in enumerate(listed):
        w.line(f"{indent}PH_UNROLL")
        head = f"{indent}for (int {g.variable} = 0; {g.variable} < {g.extent}; ++{g.variable})"
        if n == len(listed) - 1:
            w.line(f"{head} {text}", memory=memory)
        else:
            w.line(head)
        indent += "  "
