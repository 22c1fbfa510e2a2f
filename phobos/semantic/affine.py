"""Scalar integers as affine forms over program ids, dims, loop indices and opaque values.

Used for static lengths (`A[s : s + 4]`), for the inference of the grid and for alignment. Overflow is ignored, as
it is undefined for positions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from phobos.ir.tile import Value


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficient * atom)`; an atom is a Value or a structural key of a nonlinear operation."""

    constant: int
    terms: frozenset[tuple[Hashable, int]] = frozenset()

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, atom: Hashable) -> int:
        return dict(self.terms).get(atom, 0)

    def plus(self, other: "Affine", sign: int = 1) -> "Affine":
        terms = dict(self.terms)
        for atom, k in other.terms:
            terms[atom] = terms.get(atom, 0) + sign * k
        return Affine(self.constant + sign * other.constant, frozenset((a, k) for a, k in terms.items() if k))

    def times(self, factor: int) -> "Affine":
        if factor == 0:
            return Affine(0)
        return Affine(self.constant * factor, frozenset((a, k * factor) for a, k in self.terms))


def atom(value: Hashable) -> Affine:
    return Affine(0, frozenset({(value, 1)}))


class AffineTable:
    """Affine forms of the scalar integer values of one kernel, and known divisors of atoms."""

    def __init__(self) -> None:
        self._forms: dict[Value, Affine] = {}
        self._divisors: dict[Hashable, int] = {}

    def of(self, value: Value) -> Affine:
        form = self._forms.get(value)
        return atom(value) if form is None else form

    def set(self, value: Value, form: Affine) -> None:
        self._forms[value] = form

    def set_divisor(self, value: Value, divisor: int) -> None:
        self._divisors[value] = divisor

    def divisor(self, form: Affine) -> int:
        """A number that divides the form's value for sure; 0 for the constant zero."""
        out = abs(form.constant)
        for key, k in form.terms:
            out = math.gcd(out, abs(k) * self._divisors.get(key, 1))
        return out

    def compute(self, fn: str, args: list[Affine]) -> Affine:
        """The form of an integer operation; opaque, but equal for equal operands, where it is not affine."""
        if fn == "add":
            return args[0].plus(args[1])
        if fn == "sub":
            return args[0].plus(args[1], -1)
        if fn == "neg":
            return args[0].times(-1)
        if fn == "mul":
            if args[0].is_constant:
                return args[1].times(args[0].constant)
            if args[1].is_constant:
                return args[0].times(args[1].constant)
            return atom((fn, frozenset([(args[0], 1), (args[1], 1)] if args[0] != args[1] else [(args[0], 2)])))
        if fn == "shl" and args[1].is_constant and 0 <= args[1].constant < 32:
            return args[0].times(2 ** args[1].constant)
        return atom((fn, tuple(args)))
