"""What becomes of the results of a loop that may use a lagging maximum: only quotients and m + log(l) are invariant."""

from __future__ import annotations

from collections.abc import Mapping

from phobos.ir.tile import Compute, For, KernelIR, Op
from phobos.ir.walk import kernel_ops
from phobos.passes.softmax_loops import Inverse, Kind, Linear, Logarithm, Old, Rules, SoftmaxLoop
from phobos.passes.tile_facts import TileFacts

_TINY = 0.5  # a sum that has seen a maximum is at least 1, up to rounding


def check_results(facts: TileFacts, kernel: KernelIR, match: SoftmaxLoop, others: Mapping[For, SoftmaxLoop]) -> None:
    """Raises Unfit unless what becomes of the loop's results is invariant. `others`: loops that may go on with them."""
    rules = _Results(facts, match, others)
    for op in kernel_ops(kernel):
        if any(v in rules.kinds for v in op.operands()):
            rules.step(op)


class _Results(Rules):
    def __init__(self, facts: TileFacts, match: SoftmaxLoop, others: Mapping[For, SoftmaxLoop]):
        super().__init__(facts)
        self.others = others
        results = match.loop.results
        self.rows = match.rows
        self.kinds[results[match.slot]] = Old()
        for n, rows in match.sums.items():
            plain = n in match.whole and _sum_of_all(facts, match, n, others)
            self.kinds[results[n]] = Linear(rows, None, frozenset({n}) if plain else None)

    def step(self, op: Op) -> None:
        if isinstance(op, For):
            return self._loop(op)
        if len(op.defined()) != 1 or op.blocks():
            raise self.unfit(op)
        found = self._compute(op) if isinstance(op, Compute) else self.linear(op)
        if found is not None:
            self.kinds[op.defined()[0]] = found

    def _loop(self, op: For) -> None:
        """Another loop of the kind may go on with the maximum and all sums."""
        match = self.others.get(op)
        if match is None:
            raise self.unfit(op)
        for n, v in enumerate(op.inits):
            k = self.kind(v)
            if k is None and n != match.slot and n not in match.sums:
                continue
            if not (isinstance(k, Old) and n == match.slot):
                if not (isinstance(k, Linear) and match.sums.get(n) == k.rows):
                    raise self.unfit(op)

    def _compute(self, op: Compute) -> Kind | None:
        kinds = [self.kind(a) for a in op.args]
        first = kinds[0]
        second = kinds[1] if len(kinds) > 1 else None
        if op.fn == "add":
            for a, b in ((first, second), (second, first)):
                if isinstance(a, Old) and isinstance(b, Logarithm) and b.rows == self.rows:
                    return None
        if op.fn == "log" and isinstance(first, Linear):
            return Logarithm(first.rows)
        if op.fn == "isnan" and isinstance(first, Linear):
            return None
        if op.fn in ("eq", "ne", "lt", "le", "gt", "ge") and isinstance(first, Linear):
            if self.facts.constant(op.args[1]) == 0:
                return None
        if op.fn == "div" and isinstance(second, Linear):
            if first is None:
                return Inverse(second.rows)
            if isinstance(first, Linear) and first.rows == second.rows:
                return None
        if op.fn == "mul":
            for a, b in ((first, second), (second, first)):
                if isinstance(a, Linear) and isinstance(b, Inverse) and a.rows == b.rows:
                    return None
        if op.fn in ("where", "max") and (guarded := self._guard(op, kinds)) is not None:
            return guarded
        return self.linear(op)

    def _guard(self, op: Compute, kinds: list[Kind | None]) -> Linear | None:
        """where(l == 0, c, l) and max(l, tiny) where l is the sum of every p: l is at least 1, up to rounding, once a
        maximum was taken over; and as long as none was, the reference does not lag."""
        if op.fn == "max":
            for k, other in ((kinds[0], op.args[1]), (kinds[1], op.args[0])):
                value = self.facts.constant(other)
                if isinstance(k, Linear) and k.terms is not None and value is not None and 0 < value <= _TINY:
                    return k
            return None
        test = self.facts.defs.get(op.args[0])
        if not (isinstance(test, Compute) and test.fn in ("eq", "ne", "gt") and self.facts.constant(test.args[1]) == 0):
            return None
        v, stand_in = (op.args[2], op.args[1]) if test.fn == "eq" else (op.args[1], op.args[2])
        k = self.kind(v)
        whole = test.args[0] is v and isinstance(k, Linear) and k.terms is not None
        return k if whole and isinstance(k, Linear) and self.facts.constant(stand_in) is not None else None


def _sum_of_all(facts: TileFacts, match: SoftmaxLoop, slot: int, others: Mapping[For, SoftmaxLoop]) -> bool:
    """Does the sum start at zero, or where another loop of the kind left it?"""
    init = match.loop.inits[slot]
    start = facts.constant(init)
    if start is not None:
        return start >= 0
    before = facts.defs.get(init)
    other = others.get(before) if isinstance(before, For) else None
    if other is None:
        return False
    n = other.loop.results.index(init)
    return n in other.whole and _sum_of_all(facts, other, n, others)
