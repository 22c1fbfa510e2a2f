"""Symbolic expressions over launch-time dims: grid sizes, launch checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DimConst:
    value: int

    def evaluate(self, dims: Mapping[str, int]) -> int:
        return self.value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class DimName:
    name: str

    def evaluate(self, dims: Mapping[str, int]) -> int:
        return dims[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DimBinary:
    """op is one of + - * // % min max ceildiv; // and % are the kernel language's truncating `/` and `%`."""

    op: str
    left: "DimExpr"
    right: "DimExpr"

    def evaluate(self, dims: Mapping[str, int]) -> int:
        a, b = self.left.evaluate(dims), self.right.evaluate(dims)
        if self.op in ("//", "%", "ceildiv") and b == 0:
            raise ZeroDivisionError(f"{self} divides by zero")
        if self.op == "+":
            return a + b
        if self.op == "-":
            return a - b
        if self.op == "*":
            return a * b
        if self.op == "//":
            q = abs(a) // abs(b)
            return q if (a >= 0) == (b >= 0) else -q
        if self.op == "%":
            r = abs(a) % abs(b)
            return r if a >= 0 else -r
        if self.op == "min":
            return min(a, b)
        if self.op == "max":
            return max(a, b)
        if self.op == "ceildiv":
            return -(-a // b)
        raise ValueError(f"unknown dim operator {self.op!r}")

    def __str__(self) -> str:
        if self.op in ("min", "max", "ceildiv"):
            return f"{self.op}({self.left}, {self.right})"
        return f"({self.left} {self.op} {self.right})"


DimExpr = DimConst | DimName | DimBinary
