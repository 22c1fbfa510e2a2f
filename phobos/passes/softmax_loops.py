"""What a loop with a running maximum does with it: an abstract interpretation for lazy_rescale.

Every value that depends on the running maximum gets a kind; a value without one is invariant: it does not change if
another reference stands for the maximum. An op for which there is no rule ends the analysis with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from phobos.ir.tile import Broadcast, Cast, Compute, Dot, For, Op, Reduce, Transpose, Value, Yield
from phobos.ir.types import DType
from phobos.ir.walk import defined_in, walk
from phobos.passes.tile_facts import TileFacts, leaves_early

_P_BOUND = 257.0  # p <= 2^8 but for rounding
_F16_MAX = 65504.0


class Unfit(Exception):
    """The loop may not be changed; the text says why."""


class _Restart(Exception):
    def __init__(self, slot: int):
        self.slot = slot


@dataclass(frozen=True)
class Old:
    """`factor` times the maximum before this iteration; after the loop, the final one."""

    factor: Value | None = None


@dataclass(frozen=True)
class Growing:
    """A maximum of the old one and some of the new values."""


@dataclass(frozen=True)
class Reference:
    """`factor` times what scores are compared with: the new maximum or, where that is -inf, a constant (`source`)."""

    source: Value
    factor: Value | None = None


@dataclass(frozen=True)
class Gap:
    """`factor` times (`x` minus the reference `source`); x None: the old maximum."""

    x: Value | None
    source: Value
    factor: Value | None = None


@dataclass(frozen=True)
class Correction:
    """exp of the old maximum minus the reference."""


@dataclass(frozen=True)
class Carried:
    """A sum relative to the old maximum."""

    slot: int


@dataclass(frozen=True)
class Linear:
    """Scales with exp(-reference), where the position along the axes `rows` says which reference is an element's.

    `bound`: no element is larger, if known. `terms`: what it is the plain sum of, if that is all it is: exponentials,
    and carried sums by their slots.
    """

    rows: frozenset[int]
    bound: float | None = None
    terms: frozenset[object] | None = None


@dataclass(frozen=True)
class Inverse:
    """Scales with exp(+reference)."""

    rows: frozenset[int]


@dataclass(frozen=True)
class Logarithm:
    """log of something linear: invariant once the reference is added."""

    rows: frozenset[int]


Kind = Old | Growing | Reference | Gap | Correction | Carried | Linear | Inverse | Logarithm


def running_maxima(facts: TileFacts, loop: For) -> list[int]:
    """Numbers of the carried f32 tiles m with m = max(m, ...), in a loop with exponentials of f32 tiles."""
    end = loop.body.ops[-1]
    exponentials = any(
        isinstance(op, Compute) and op.fn in ("exp", "exp2") and op.result.is_tile and op.result.dtype is DType.F32
        for op in loop.body.ops
    )
    if not (isinstance(end, Yield) and exponentials):
        return []
    inside = set(loop.body.ops)
    return [
        n
        for n, (param, v) in enumerate(zip(loop.body.params[1:], end.values))
        if param.is_tile and param.dtype is DType.F32 and v is not param
        if facts.defs.get(v) in inside and param in _maximum(facts, v)[1]
    ]


def _maximum(facts: TileFacts, v: Value) -> tuple[set[Value], list[Value]]:
    """(maxima taken on the way, values) of the tree of `max` of which v is the root."""
    op = facts.defs.get(v)
    if not (isinstance(op, Compute) and op.fn == "max"):
        return set(), [v]
    inner, leaves = {v}, []
    for a in op.args:
        below, found = _maximum(facts, a)
        inner |= below
        leaves += found
    return inner, leaves


def shown(op: Op) -> str:
    name = op.fn if isinstance(op, Compute) else type(op).__name__.lower()
    return f"{name} (line {op.span.line})"


class Rules:
    """Kinds of values, and the rules that hold inside and after a loop."""

    def __init__(self, facts: TileFacts):
        self.facts = facts
        self.kinds: dict[Value, Kind] = {}

    def kind(self, v: Value) -> Kind | None:
        return self.kinds.get(v)

    def unfit(self, op: Op) -> Unfit:
        names = [v.name for v in op.operands() if v in self.kinds]
        return Unfit(f"{names[0]} is used in {shown(op)}")

    def linear(self, op: Op) -> Linear:
        """The result of an op of which some operands are linear and the others invariant."""
        kinds = [self.kind(v) for v in op.operands()]
        found = [k for k in kinds if isinstance(k, Linear)]
        if not found or any(k is not None and not isinstance(k, Linear) for k in kinds):
            raise self.unfit(op)
        rows = found[0].rows
        if any(k.rows != rows for k in found):
            raise Unfit(f"rows meet other rows in {shown(op)}")
        if isinstance(op, Compute):
            return self._linear_compute(op, kinds, found)
        (k,) = found if len(found) == 1 else (None,)
        if k is None:
            raise self.unfit(op)
        if isinstance(op, Cast):
            return self._rounded(op, k)
        if isinstance(op, Broadcast):
            return replace(k, terms=None)
        if isinstance(op, Transpose):
            rank = len(op.operand.shape)
            swapped = {rank - 1: rank - 2, rank - 2: rank - 1}
            return replace(k, rows=frozenset(swapped.get(a, a) for a in rows), terms=None)
        if isinstance(op, Reduce) and op.kind == "sum" and op.axis is not None:
            if op.axis in rows:
                raise Unfit(f"rows are added up in {shown(op)}")
            return Linear(rows, None if k.bound is None else k.bound * op.operand.shape[op.axis], k.terms)
        if isinstance(op, Dot):
            return self._product(op, k)
        raise self.unfit(op)

    def _linear_compute(self, op: Compute, kinds: list[Kind | None], found: list[Linear]) -> Linear:
        rows = found[0].rows
        both = len(found) == 2
        if op.fn in ("add", "sub") and both:
            a, b = (k.terms for k in found)
            joined = a | b if op.fn == "add" and a is not None and b is not None and not a & b else None
            bounds = [k.bound for k in found if k.bound is not None]
            return Linear(rows, sum(bounds) if len(bounds) == 2 else None, joined)
        if op.fn == "neg" or (op.fn == "mul" and not both) or (op.fn == "div" and kinds[1] is None):
            return Linear(rows)
        if op.fn == "fma" and both and kinds[2] is not None:
            return Linear(rows)
        if op.fn == "where" and kinds[0] is None:
            if both:
                bounds = [k.bound for k in found if k.bound is not None]
                return Linear(rows, max(bounds) if len(bounds) == 2 else None)
            other = op.args[1] if kinds[1] is None else op.args[2]
            if self.facts.constant(other) == 0:
                return replace(found[0], terms=None)
        raise self.unfit(op)

    def _rounded(self, op: Cast, k: Linear) -> Linear:
        dtype = op.result.dtype
        if dtype in (DType.F32, DType.F64, DType.BF16):
            return k
        if dtype is DType.F16 and k.bound is not None and k.bound < _F16_MAX:
            return k
        raise Unfit(f"{op.operand.name} is rounded to {dtype} (line {op.span.line}), which might overflow")

    def _product(self, op: Dot, k: Linear) -> Linear:
        left = self.kind(op.a) is not None
        summed = 1 if left or op.transpose_b else 0
        if summed in k.rows:
            raise Unfit(f"rows are added up in {shown(op)}")
        if op.kind in ("f16", "f16x2") and (k.bound is None or k.bound >= _F16_MAX):
            raise Unfit(f"an operand of {shown(op)} is rounded to f16, which might overflow")
        if left:
            return Linear(k.rows)
        return Linear(frozenset({1} if k.rows else ()))


class SoftmaxLoop(Rules):
    """A loop that may use a lagging reference for carried value `slot`, as far as its body goes. Raises Unfit.

    `sums`: the carried values relative to it, by slot, with their rows; `whole`: those that are the sum of every p.
    `base` and `factor`: exponentials are base(factor * (x - m)). `corrections` and what they subtract (`references`).
    """

    def __init__(self, facts: TileFacts, loop: For, slot: int, fast: bool):
        super().__init__(facts)
        self.loop, self.slot, self.fast = loop, slot, fast
        self.old = loop.body.params[1 + slot]
        end = loop.body.ops[-1]
        assert isinstance(end, Yield)
        self.new = end.values[slot]
        if leaves_early(loop.body):
            raise Unfit("an iteration can end early")
        shape = self.old.shape
        self.rows = frozenset(a for a, n in enumerate(shape) if n != 1)
        inner, leaves = _maximum(facts, self.new)
        if leaves.count(self.old) != 1:
            raise Unfit("the maximum so far enters the new one twice")
        self.tree = {v for v in inner if self.old in _maximum(facts, v)[1]}
        self.bounded: set[Value] = set()
        self.bounded_scaled: set[tuple[Value, Value]] = set()
        for v in (*leaves, *(inner - self.tree)):
            if v is not self.old:
                self._bounds(v)
        self.base = ""
        self.factor: Value | None = None
        self.corrections: set[Value] = set()
        self.references: dict[Value, Value] = {}
        self.exponentials: set[Value] = set()
        self.sums: dict[int, frozenset[int]] = {}
        self.whole: set[int] = set()
        slots: set[int] = set()
        while True:
            try:
                self._interpret(slots, end)
                break
            except _Restart as more:
                slots.add(more.slot)
        if not self.exponentials or not self.corrections:
            raise Unfit("the loop does not correct sums of exponentials by it")
        if self.factor is not None and self.factor in defined_in(loop.body):
            raise Unfit(f"{self.factor.name} changes in the loop")
        names = ", ".join(loop.body.params[1 + n].name for n in self.sums)
        self.description = f"{names} are relative to it and are multiplied only where it changes"

    def _bounds(self, r: Value) -> None:
        """Notes what is not above the maximum because r is not."""
        self.bounded.add(r)
        op = self.facts.defs.get(r)
        if isinstance(op, Reduce) and op.kind == "max":
            self.bounded.add(op.operand)
        scaled = self.facts.product(r)
        if scaled is not None:
            source = self.facts.defs.get(scaled[0])
            if isinstance(source, Reduce) and source.kind == "max":
                self.bounded_scaled.add((source.operand, scaled[1]))

    def _is_bounded(self, x: Value) -> bool:
        if x in self.bounded or self.facts.product(x) in self.bounded_scaled or self.facts.is_minus_inf(x):
            return True
        op = self.facts.defs.get(x)
        return isinstance(op, Compute) and op.fn == "where" and all(map(self._is_bounded, op.args[1:]))

    # --- the body ----------------------------------------------------------------------------

    def _interpret(self, slots: set[int], end: Yield) -> None:
        params = self.loop.body.params[1:]
        self.kinds = {self.old: Old(), **{params[n]: Carried(n) for n in slots}}
        self.exponentials.clear()
        self.corrections.clear()
        for op in self.loop.body.ops[:-1]:
            self._step(op)
        for n, (param, v) in enumerate(zip(params, end.values)):
            k = self.kind(v)
            if n == self.slot or (k is None and n not in slots):
                continue
            if not isinstance(k, Linear):
                raise Unfit(f"{param.name} is carried in a way that is not understood")
            if n not in slots and self.facts.readers.get(param):
                raise Unfit(f"{param.name} is not multiplied by the correction")
            self.sums[n] = k.rows
            if k.terms == self.exponentials | {n}:
                self.whole.add(n)

    def _step(self, op: Op) -> None:
        for block in op.blocks():
            for inner in walk(block):
                if any(v in self.kinds for v in inner.operands()):
                    raise Unfit(f"it is used in nested control flow (line {inner.span.line})")
        if not any(v in self.kinds for v in op.operands()):
            return
        if not (len(op.defined()) == 1 and not op.blocks()):
            raise self.unfit(op)
        (result,) = op.defined()
        found = self._compute(op) if isinstance(op, Compute) else self._other(op)
        if found is not None:
            self.kinds[result] = found

    def _other(self, op: Op) -> Kind:
        if isinstance(op, Broadcast):
            k = self.kind(op.operand)
            if isinstance(k, (Old, Reference, Correction)):
                return k
        return self.linear(op)

    def _compute(self, op: Compute) -> Kind | None:
        kinds = [self.kind(a) for a in op.args]
        if op.result in self.tree:
            return Reference(op.result) if op.result is self.new else Growing()
        if op.fn in ("eq", "ne", "gt") and isinstance(kinds[0], (Old, Reference)) and kinds[0].factor is None:
            if self.facts.is_minus_inf(op.args[1]):
                return None  # a lagging maximum is -inf where the maximum is
        if op.fn == "where" and (guarded := self._guard(op, kinds)) is not None:
            return guarded
        if op.fn == "mul":
            for k, other in ((kinds[0], op.args[1]), (kinds[1], op.args[0])):
                if isinstance(k, (Old, Reference, Gap)):
                    if k.factor is not None or other.is_tile or not self.facts.positive(other):
                        where = f"{other.name} (line {op.span.line})"
                        raise Unfit(f"it is scaled by {where}, which is not known to be positive")
                    return replace(k, factor=other)
                if isinstance(k, Correction):
                    return self._corrected(op, other)
        if op.fn == "fma" and any(isinstance(k, Correction) for k in kinds[:2]):
            if not isinstance(kinds[2], Linear):
                raise self.unfit(op)
            other = op.args[1] if isinstance(kinds[0], Correction) else op.args[0]
            corrected = self._corrected(op, other)
            if corrected.rows != kinds[2].rows:
                raise Unfit(f"rows meet other rows in {shown(op)}")
            return Linear(corrected.rows)
        if op.fn == "sub" and isinstance(kinds[1], Reference):
            return self._gap(op, kinds[0], kinds[1])
        if op.fn in ("exp", "exp2") and isinstance(kinds[0], Gap):
            return self._exponential(op, kinds[0])
        for a, k in zip(op.args, kinds):
            if k is None and a in self.loop.body.params[1:] and op.fn in ("add", "sub"):
                raise Unfit(f"{a.name} is not multiplied by the correction")
        return self.linear(op)

    def _guard(self, op: Compute, kinds: list[Kind | None]) -> Kind | None:
        """where(m == -inf, c, m), or the same by `!=` or `>`; where(m == -inf, 0, p), and that of the correction."""
        test = self.facts.defs.get(op.args[0])
        if not (isinstance(test, Compute) and test.fn in ("eq", "ne", "gt") and self.facts.is_minus_inf(test.args[1])):
            return None
        tested = self.kind(test.args[0])
        k, stand_in = (kinds[2], op.args[1]) if test.fn == "eq" else (kinds[1], op.args[2])
        value = self.facts.constant(stand_in)
        if isinstance(tested, Reference) and isinstance(k, Reference) and k.factor is None and value is not None:
            return Reference(op.result)
        if isinstance(tested, Reference) and isinstance(k, Linear) and value == 0:
            return k  # there was nothing but -inf so far, where p is NaN or 0
        if isinstance(tested, (Old, Reference)) and isinstance(k, Correction) and value == 0:
            self.corrections.add(op.result)
            return k
        return None

    def _corrected(self, op: Compute, x: Value) -> Linear:
        k = self.kind(x)
        params = self.loop.body.params[1:]
        if k is None and x in params:
            raise _Restart(params.index(x))
        if not isinstance(k, Carried):
            raise Unfit(f"{x.name} is multiplied by the correction in {shown(op)}, but is no carried sum")
        if len(self.facts.readers[x]) != 1:
            raise Unfit(f"{x.name} is used before it is multiplied by the correction")
        return Linear(self.rows, None, frozenset({k.slot}))

    def _gap(self, op: Compute, left: Kind | None, reference: Reference) -> Gap:
        x: Value | None = op.args[0]
        if isinstance(left, Old):
            if left.factor is not reference.factor:
                raise Unfit(f"maxima of different scale meet in {shown(op)}")
            return Gap(None, reference.source, reference.factor)
        if left is not None or x is None:
            raise self.unfit(op)
        if reference.factor is not None:
            scaled = self.facts.product(x)
            x = scaled[0] if scaled is not None and scaled[1] is reference.factor else None
        if x is None or not self._is_bounded(x):
            raise Unfit(f"{op.args[0].name} (line {op.span.line}) is not known to be below the new maximum")
        return Gap(x, reference.source, reference.factor)

    def _exponential(self, op: Compute, gap: Gap) -> Kind:
        if self.base and (self.base, self.factor) != (op.fn, gap.factor):
            raise Unfit("exponentials of different scale")
        self.base, self.factor = op.fn, gap.factor
        if gap.x is None:
            self.corrections.add(op.result)
            self.references[op.result] = gap.source
            return Correction()
        if not (op.approximate or self.fast):
            raise Unfit(f"{op.result.name} (line {op.span.line}) may not be approximate: it feeds no f16 or bf16")
        self.exponentials.add(op.result)
        return Linear(self.rows, _P_BOUND, frozenset({op.result}))
