"""Which axes of a tile may hold masked positions, and whether those still hold the load's zero fill.

Only feeds the warning PH0401: a zero that stands for a missing element is right for a sum and wrong for a max, a
product, or a sum of `exp` of it. Axes are counted from the last one (-1), so broadcasting keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from phobos.ir.tile import Value
from phobos.ir.types import DType
from phobos.semantic import codes
from phobos.semantic.entities import Origin
from phobos.semantic.report import Reporter
from phobos.source import Span


@dataclass(frozen=True)
class Written:
    """How the text writes the operand of a reduction: `assignable` for a `var`, `loaded` for a slice of a tensor that
    stands there and may get a fill. `free`: a name that is not taken. `neutral`: what a reduction of the user's own
    begins with."""

    text: str
    assignable: bool
    loaded: bool
    free: str
    neutral: str | None = None


@dataclass(frozen=True)
class Fill:
    """What masked positions hold: zero, or (dirty) what `by` made of it at `span`."""

    by: str | None = None
    span: Span | None = None

    @property
    def dirty(self) -> bool:
        return self.by is not None


ZERO = Fill()
State = dict[int, dict[Origin, Fill]]

# fn(0) == 0
_KEEPS_ZERO = frozenset("neg abs sqrt sin tanh floor ceil round erf gelu".split())
_NO_STATE = frozenset("eq ne lt le gt ge and or not isnan where".split())
_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}


class MaskTable:
    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._states: dict[Value, State] = {}
        self._warned: set[tuple[Origin, int]] = set()

    def of(self, value: Value) -> State:
        return self._states.get(value, {})

    def set_load(self, value: Value, origins: tuple[Origin | None, ...]) -> None:
        rank = len(origins)
        state: State = {i - rank: {o: ZERO} for i, o in enumerate(origins) if o is not None}
        if state:
            self._states[value] = state

    def set_state(self, value: Value, state: State) -> None:
        state = {axis: fills for axis, fills in state.items() if fills}
        if state:
            self._states[value] = state

    def copy(self, source: Value, target: Value) -> None:
        self.set_state(target, self.of(source))

    def compute(self, result: Value, fn: str, args: tuple[Value, ...], span: Span) -> None:
        if fn in _NO_STATE:
            return
        states = [self.of(a) for a in args]
        out: State = {}
        for axis in {axis for s in states for axis in s}:
            keys = {o for s in states for o in s.get(axis, {})}
            spread = [-axis > len(a.shape) or a.shape[axis] == 1 for a in args]
            combined: dict[Origin, Fill] = {}
            for key in keys:
                fills = [s.get(axis, {}).get(key) for s in states]
                if fn in ("add", "sub") and any(
                    f is None and not wide and not (g is not None and g.dirty)
                    for f, g, wide in zip(fills, reversed(fills), spread, strict=True)
                ):
                    # Adding zeros to a tile with elements of its own there, as an accumulator has, is right.
                    continue
                combined[key] = self._combine(fn, fills, span)
            out[axis] = combined
        self.set_state(result, out)

    @staticmethod
    def _combine(fn: str, fills: list[Fill | None], span: Span) -> Fill:
        zero = [f is not None and not f.dirty for f in fills]
        if fn in _KEEPS_ZERO and zero[0]:
            return ZERO
        if fn == "mul" and any(zero):
            return ZERO
        if fn in ("div", "mod") and zero[0] and fills[1] is None:
            return ZERO
        if fn in ("add", "sub", "min", "max") and all(zero):
            return ZERO
        if fn == "fma" and (zero[0] or zero[1]) and zero[2]:
            return ZERO
        for f in fills:
            if f is not None and f.dirty:
                return f
        return Fill(fn, span)

    def reduce(
        self, kind: str, operand: Value, axis: int | None, result: Value, span: Span, written: Written
    ) -> None:
        """Warns where the reduction of `operand` along `axis` (None: all) meets masked positions of a wrong value."""
        state = self.of(operand)
        rank = len(operand.shape)
        axes = range(rank) if axis is None else [axis]
        for a in axes:
            for origin, fill in state.get(a - rank, {}).items():
                if (kind in ("sum", "custom") or kind == "max" and not operand.dtype.is_signed) and not fill.dirty:
                    continue
                self._warn(kind, operand, a, origin, fill, span, written)
        if axis is not None:
            self.set_state(result, {k: v for k, v in state.items() if k != axis - rank})

    def dot(
        self, a: Value, b: Value, transpose_b: bool, result: Value, span: Span, written: tuple[Written, Written]
    ) -> None:
        rows = self.of(a).get(-2, {})
        columns = self.of(b).get(-2 if transpose_b else -1, {})
        self.set_state(result, {-2: dict(rows), -1: dict(columns)})
        ka, kb = self.of(a).get(-1, {}), self.of(b).get(-1 if transpose_b else -2, {})
        for origin in [*ka, *(o for o in kb if o not in ka)]:
            fills = [f for f in (ka.get(origin), kb.get(origin)) if f is not None]
            if all(f.dirty for f in fills):
                operand, axis = (a, 1) if origin in ka else (b, 1 if transpose_b else 0)
                self._warn("sum", operand, axis, origin, fills[0], span, written[0 if operand is a else 1])

    def _warn(
        self, kind: str, operand: Value, axis: int, origin: Origin, fill: Fill, span: Span, written: Written
    ) -> None:
        if (origin, axis) in self._warned:
            return
        self._warned.add((origin, axis))
        rest = origin.dim if origin.start_text in ("0", "") else f"{origin.dim} - {origin.start_text}"
        axis_text = "row" if axis == len(operand.shape) - 2 else "column" if len(operand.shape) >= 2 else "element"
        where = fill.span if fill.dirty and fill.span is not None else span
        what = f"`{_SYMBOL.get(fill.by or '', fill.by)}`" if fill.dirty else f"a {kind} reduction"
        message = (
            f"{what} meets {axis_text}s past the end of `{origin.dim}`, which `{origin.tensor}[...]` fills with zero"
        )
        notes = []
        if fill.dirty and fill.span is not None:
            notes.append(f"the {kind} in line {span.line} then counts what {what} makes of the zeros")
        if not origin.dim.isdigit():
            notes.append(f"no warning where `@aligned({origin.dim} = {origin.length})` promises whole tiles")
        self._reporter.warning(
            codes.MASKED_TILE,
            message,
            where,
            notes=tuple(notes),
            help=_fix(written, f"iota({axis}) < {rest}", written.neutral or _neutral(kind, operand.dtype), fill),
        )


def _fix(written: Written, inside: str, neutral: str, fill: Fill) -> str:
    """What to write instead, to be pasted."""
    if written.loaded and not fill.dirty:
        return f"name the fill: `{written.text} else {neutral}`"
    masked = f"where({inside}, {written.text}, {neutral})"
    if written.assignable:
        return f"add the line: {written.text} = {masked}"
    return f"add the line `let {written.free} = {masked}`, and take `{written.free}` for `{written.text}` here"


def _neutral(kind: str, dtype: DType) -> str:
    """The literal of what a reduction ignores."""
    if kind in ("max", "argmax"):
        return _end(dtype, low=True)
    if kind in ("min", "argmin"):
        return _end(dtype, low=False)
    one = "1" if kind == "prod" else "0"
    return f"{one}.0" if dtype.is_float else one


def _end(dtype: DType, *, low: bool) -> str:
    """The smallest or the largest value of a type."""
    if dtype is DType.F8E4M3:  # has no infinity
        return "-448.0" if low else "448.0"
    if dtype.is_float:
        return "-inf" if low else "inf"
    if not dtype.is_signed:
        return "0" if low else str(2 ** (8 * dtype.bytes) - 1)
    bits = 32 if dtype is DType.INDEX else 8 * dtype.bytes  # positions may be counted in 32
    return str(-(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1)
