"""Random expressions of the kernel language: the part of the generator (codegen.generator) that makes values.

Floats stay multiples of a power of two below a bound that fits their significand, so that every order of summation and
every contraction gives the same bits: what differs is a fault. Integers wrap freely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from codegen.differential import random_array

# Bits of the significand, and (bound, fraction bits) of what variables hold.
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}
HELD = {"f64": (3, 2), "f32": (3, 2), "f16": (3, 2), "bf16": (3, 2), "f8e4m3": (3, 0), "f8e5m2": (2, 0)}
FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i32", "i32", "u32", "i64", "i8", "u8")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33, 48, 64, 100)
ACCUMULATOR = {"f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64", "i8": "i32", "u8": "i32"}


@dataclass(frozen=True)
class Val:
    """An expression: floats are multiples of 2^-frac, at most 2^mag in size."""

    text: str
    dtype: str
    shape: tuple[int, ...]
    mag: int = 31
    frac: int = 0


def is_float(dtype: str) -> bool:
    return dtype in DIGITS


def literal(r: random.Random, dtype: str) -> str:
    if dtype == "bool":
        return r.choice(["true", "false"])
    if is_float(dtype):
        return r.choice(
            ["0.0", "1.0", "-1.0", "0.5", "2.0", "-1.5", "3.0"] if HELD[dtype][1] else ["0.0", "1.0", "-2.0"]
        )
    if dtype in ("u8", "u32"):
        return r.choice(["0", "1", "2", "3", "7", "100", "250"] + (["4000000000"] if dtype == "u32" else []))
    wide = {"i32": ["2147483647", "-2147483648", "65537"], "i64": ["5000000000", "-9223372036854775807"]}.get(dtype, [])
    return r.choice(["0", "1", "-1", "2", "3", "-5", "7", "100", "-128", *wide])


class Values:
    def __init__(self, seed: int, profile: str = "mixed"):
        self.seed, self.profile = seed, profile
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0
        self.scopes: list[list[Val]] = [[]]
        self.variables: list[list[Val]] = [[]]
        self.indexes: list[str] = ["0"]
        self.tensors: dict[str, tuple[str, tuple[int | str, ...]]] = {}
        self.arguments: dict[str, Any] = {}
        self.loops = 0
        self.grid = self.r.choice([1, 2, 3])
        self.np = np.random.default_rng(seed)
        limit = self.r.choice([64, 512, 2048])
        self.extents = [e for e in EXTENTS if e <= 64] if limit < 2048 else list(EXTENTS)
        c = self.r.choice(self.extents)
        rows = [e for e in self.extents if e * c <= limit] or [1]
        d = self.r.choice(rows)
        planes = [e for e in (1, 2, 3, 5) if e * c * d <= limit] or [1]
        p = self.r.choice(planes)
        self.shapes: list[tuple[int, ...]] = [(c,), (d, c), (d, c), (d, 1), (1, c), (d,), (c, d)]
        if self.r.random() < 0.4:
            self.shapes += [(p, d, c), (p, d, c), (p, 1, c), (p, d, 1), (1, d, c), (p, c, d)]
        self.dtypes = [self.r.choice(FLOATS), "f32", self.r.choice(INTEGERS), "i32"]
        if profile == "memory":
            # Small tiles, two tensors that may be one memory, elementwise work only: nothing hides a missing barrier.
            self.dtypes = ["f32", "i32"]
            self.shapes = [(8,), (4, 8), (4, 8), (8, 4), (4, 1), (1, 8), (16,), (2, 4, 8)]
            self.planes = (self.r.choice([12, 16]), self.r.choice([16, 20]))

    # --- text --------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        self.lines.append("  " * (self.depth + 1) + text)

    def name(self) -> str:
        self.count += 1
        return self.r.choice(["a", "t", "v", "acc", "pos", "x", "s", "out", "lane", "part"]) + str(self.count)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        self.emit(head + " {")
        self.depth += 1
        self.scopes.append([])
        self.variables.append([])
        yield
        self.scopes.pop()
        self.variables.pop()
        self.depth -= 1
        self.emit("}")

    def known(self, dtype: str, shape: tuple[int, ...]) -> list[Val]:
        return [v for scope in (*self.scopes, *self.variables) for v in scope if v.dtype == dtype and v.shape == shape]

    def dtype(self) -> str:
        return self.r.choice(self.dtypes)

    def shape(self) -> tuple[int, ...]:
        return self.r.choice(self.shapes)

    # --- values ------------------------------------------------------------------------------

    def let(self, v: Val, typed: bool = False) -> Val:
        name = self.name()
        kind = f": tile<{v.dtype}>[{', '.join(map(str, v.shape))}]" if typed and v.shape else ""
        self.emit(f"let {name}{kind} = {v.text}")
        out = Val(name, v.dtype, v.shape, v.mag, v.frac)
        self.scopes[-1].append(out)
        return out

    def fit(self, v: Val, limit: tuple[int, int] | None = None) -> Val:
        """Within the bounds of a variable (or `limit`), by clamping and rounding."""
        if not is_float(v.dtype):
            return v
        mag, frac = limit or HELD[v.dtype]
        text = v.text
        if v.frac > frac:
            text = f"{self.r.choice(['floor', 'ceil', 'round'])}({text})"
            frac = 0
        if v.mag > mag:
            text = f"clamp({text}, {-float(1 << mag)}, {float(1 << mag)})"
        return Val(text, v.dtype, v.shape, min(v.mag, mag), min(v.frac, frac))

    def settle(self, v: Val) -> Val:
        """An expression whose value is certainly exact."""
        return self.fit(v) if is_float(v.dtype) and v.mag + v.frac > DIGITS[v.dtype] else v

    def scalar_position(self) -> str:
        base = self.r.choice(self.indexes)
        shift = self.r.choice(["", "", " + 1", " - 2", " + 3", " * 2"])
        if self.profile == "memory":
            shift = self.r.choice(["", " * 2", " * 4", " * 4", " * 8", " * 8 + 4"])
            if self.r.random() < 0.3:
                shift += f" {self.r.choice('+-')} {self.r.choice(self.indexes)} * {self.r.choice([1, 4, 8])}"
        return base + shift

    def expr(self, dtype: str, shape: tuple[int, ...], depth: int = 2) -> Val:
        """An exact value of the type."""
        r = self.r
        known = self.known(dtype, shape)
        if depth <= 0 or r.random() < 0.2:
            if known and r.random() < 0.9:
                return r.choice(known)
            return self.leaf(dtype, shape)
        makers = [self.elementwise] * 5 + [self.convert, self.leaf]
        if self.profile == "memory":
            makers = [self.elementwise] * 3 + [self.leaf] * 5
            if len(shape) == 2 and r.random() < 0.06:
                makers = [self.movement, self.reduction if 1 in shape else self.movement]
        elif shape:
            makers += [self.call] if dtype not in ("bool", "f8e4m3") else []
            makers += [self.movement] * 3 + [self.reduction] * (2 if 1 in shape else 0)
            if len(shape) == 2 and dtype in ACCUMULATOR.values() and shape[0] * shape[1] <= 1024:
                makers += [self.product]
        else:
            makers += [self.whole_reduction, self.element]
        out = self.settle(r.choice(makers)(dtype, shape, depth))
        if r.random() < 0.4:
            out = self.let(out)
        return out

    def leaf(self, dtype: str, shape: tuple[int, ...], depth: int = 0) -> Val:
        r = self.r
        mag, frac = HELD.get(dtype, (31, 0))
        if not shape:
            mag = 8 if dtype in ("i8", "u8") else mag
            if dtype == "bool":
                return Val(f"({self.scalar_position()} > {r.choice(['0', '1', '2'])})", dtype, ())
            if not is_float(dtype) and dtype[0] != "u" and r.random() < 0.4:
                return Val(f"{dtype}({self.scalar_position()})", dtype, ())
            if r.random() < 0.3 and dtype != "f8e4m3":
                return Val(self.parameter(dtype), dtype, (), mag, frac)
            text = literal(r, dtype)
            return Val(f"{dtype}({text})", dtype, (), mag, frac)
        kind = r.random()
        if kind < 0.5 and dtype != "bool":
            return self.load(dtype, shape)
        if kind < 0.65:
            known = self.known(dtype, ())
            text = r.choice(known).text if known else f"{literal(r, dtype)}"
            return Val(f"full({dtype}, {self.extents_text(shape)}, {text})", dtype, shape, mag, frac)
        if dtype == "bool":
            a = self.leaf("i32", shape)
            return Val(f"({a.text} < {r.choice(['1', '2', '5'])})", dtype, shape)
        axis = r.randrange(len(shape))
        v = self.let(Val(f"iota({axis})", "i32", shape), typed=True)
        if dtype == "i32":
            return v
        return self.fit(Val(f"{dtype}({v.text})", dtype, shape, 7, 0))

    @staticmethod
    def extents_text(shape: tuple[int, ...]) -> str:
        return ", ".join(map(str, shape))

    def elementwise(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        r = self.r
        if dtype == "bool":
            kind = r.random()
            if kind < 0.3:
                return Val(f"(!{self.expr('bool', shape, depth - 1).text})", dtype, shape)
            if kind < 0.6:
                a, b = self.expr("bool", shape, depth - 1), self.expr("bool", self.narrower(shape), depth - 1)
                return Val(f"({a.text} {r.choice(['&&', '||'])} {b.text})", dtype, shape)
            other = self.dtype()
            a, b = self.expr(other, shape, depth - 1), self.expr(other, self.narrower(shape), depth - 1)
            return Val(f"({a.text} {r.choice(['<', '<=', '>', '>=', '==', '!='])} {b.text})", dtype, shape)
        a = self.expr(dtype, shape, depth - 1)
        kind = r.random()
        if kind < 0.2:
            return self.unary(a)
        if kind < 0.35:
            c = self.expr("bool", self.narrower(shape), depth - 1)
            b = self.expr(dtype, self.narrower(shape), depth - 1)
            return Val(f"where({c.text}, {a.text}, {b.text})", dtype, shape, max(a.mag, b.mag), max(a.frac, b.frac))
        b = self.expr(dtype, self.narrower(shape), depth - 1)
        if r.random() < 0.5:
            a, b = b, a
        return self.binary(a, b, shape)

    def unary(self, a: Val) -> Val:
        r = self.r
        if is_float(a.dtype):
            fn = r.choice(["-", "abs", "floor", "ceil", "round", "tril"])
            if fn == "tril":
                if len(a.shape) == 2:
                    return Val(
                        f"{r.choice(['tril', 'triu'])}({a.text}, {r.choice([-1, 0, 2])})",
                        a.dtype,
                        a.shape,
                        a.mag,
                        a.frac,
                    )
                fn = "-"
            text = f"(-{a.text})" if fn == "-" else f"{fn}({a.text})"
            rounds = fn in ("floor", "ceil", "round")
            return Val(text, a.dtype, a.shape, a.mag + rounds, 0 if rounds else a.frac)
        fn = r.choice(["~", "abs", "-"])
        return Val(f"{fn}({a.text})", a.dtype, a.shape)

    def binary(self, a: Val, b: Val, shape: tuple[int, ...]) -> Val:
        r, dtype = self.r, a.dtype
        if is_float(dtype):
            fn = r.choice(["+", "-", "*", "*", "tmin", "tmax", "fma", "/"])
            mag, frac = max(a.mag, b.mag), max(a.frac, b.frac)
            if fn in ("+", "-"):
                return Val(f"({a.text} {fn} {b.text})", dtype, shape, mag + 1, frac)
            if fn in ("tmin", "tmax"):
                return Val(f"{fn}({a.text}, {b.text})", dtype, shape, mag, frac)
            if fn == "/":
                return Val(f"({a.text} / 2.0 + {b.text})", dtype, shape, mag + 1, frac + 1)
            a, b = self.fit(a), self.fit(b)
            mag, frac = a.mag + b.mag, a.frac + b.frac
            if mag + frac + 1 > DIGITS[dtype]:
                return Val(f"tmax({a.text}, {b.text})", dtype, shape, max(a.mag, b.mag), max(a.frac, b.frac))
            if fn == "*":
                return Val(f"({a.text} * {b.text})", dtype, shape, mag, frac)
            return Val(
                f"fma({a.text}, {b.text}, {literal(r, dtype)})", dtype, shape, mag + 1, max(frac, HELD[dtype][1])
            )
        fn = r.choice(["+", "-", "*", "&", "|", "^", "tmin", "tmax", "/", "%", "<<", ">>", "clamp"])
        if fn in ("tmin", "tmax"):
            return Val(f"{fn}({a.text}, {b.text})", dtype, shape)
        if fn == "clamp":
            return Val(f"clamp({a.text}, {'3' if dtype[0] == 'u' else '-3'}, {b.text})", dtype, shape)
        if fn in ("/", "%"):
            divisor = r.choice(["3", "7", "16", f"({b.text} | 1)"] + ([] if dtype[0] == "u" else ["-4", "-1"]))
            if divisor[0] != "(" and a.shape != shape:
                a, b = b, a
            return Val(f"({a.text} {fn} {divisor})", dtype, shape)
        if fn in ("<<", ">>"):
            if a.shape != shape:
                a, b = b, a
            return Val(f"({a.text} {fn} {r.choice(['1', '3', '7'])})", dtype, shape)
        return Val(f"({a.text} {fn} {b.text})", dtype, shape)

    def narrower(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        r = self.r
        kind = r.random()
        if kind < 0.5 or not shape:
            return shape
        if kind < 0.65:
            return ()
        if kind < 0.75 and len(shape) > 1:
            return shape[1:]
        return tuple(1 if r.random() < 0.5 else n for n in shape)

    def convert(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        r = self.r
        source = r.choice([*self.dtypes, "i8", "f16", "u32"] + (["bool"] if dtype != "bool" else []))
        if source == dtype:
            source = "i32" if dtype != "i32" else "f32"
        a = self.expr(source, shape, depth - 1)
        mag, frac = (1, 0) if source == "bool" else (a.mag, a.frac) if is_float(source) else (65, 0)
        if is_float(dtype):
            out = Val(f"{dtype}({a.text})", dtype, shape, mag, frac)
            return self.fit(out) if mag + frac > DIGITS[dtype] else out
        return Val(f"{dtype}({a.text})", dtype, shape)

    def load(self, dtype: str, shape: tuple[int, ...], tensor: str | None = None) -> Val:
        """A slice of an input or of the scratch tensor that the kernel also writes."""
        r = self.r
        mag, frac = HELD.get(dtype, (31, 0))
        if tensor is None and r.random() < (0.7 if self.profile == "memory" else 0.3) and len(shape) <= 2:
            tensor = self.scratch(dtype)
        items = [f"{self.scalar_position()} :+ {n}" for n in shape]
        if tensor is None and r.random() < 0.15:  # gathered along one axis
            axis = r.randrange(len(shape))
            items[axis] = self.let(self.expr("i32", (shape[axis],), 1)).text
        if tensor is None and r.random() < 0.25:  # of a tensor with more axes
            for _ in range(r.choice([1, 1, 2])):
                items.insert(r.randrange(len(items) + 1), self.scalar_position())
        name = tensor or self.input(dtype, len(items))
        lead = ["pid"] if name[0] in "ST" else []
        if lead and len(shape) == 1:
            items = [self.scalar_position(), *items]
        fill = ""
        if r.random() < 0.2:
            fill = f" else {literal(r, dtype)}"
        v = Val(f"{name}[{', '.join([*lead, *items])}]{fill}", dtype, shape, mag, frac)
        return self.let(v, typed=r.random() < 0.5)

    def movement(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        r = self.r
        kinds = ["reshape", "cat", "slice", "broadcast", "cumsum"]
        if len(shape) > 1:
            kinds += ["transpose", "transpose"]
        if shape[0] <= 64:
            kinds += ["gather"]
        if dtype == "bool":
            kinds = ["transpose"] if len(shape) > 1 else ["reshape"]
        kind = r.choice(kinds)
        if kind == "transpose":
            a = self.expr(dtype, (*shape[:-2], shape[-1], shape[-2]), depth - 1)
            return Val(f"transpose({a.text})", dtype, shape, a.mag, a.frac)
        if kind == "reshape":
            size = int(np.prod(shape))
            others = [
                s
                for s in ((size,), (1, size), (size, 1), tuple(reversed(shape)), (1, *shape)[:3], shape)
                if np.prod(s) == size
            ]
            others = [s for s in others if 1 <= len(s) <= 3 and size <= 4096]
            a = self.expr(dtype, r.choice(others), depth - 1)
            return Val(f"reshape({a.text}, {self.extents_text(shape)})", dtype, shape, a.mag, a.frac)
        axis = r.randrange(len(shape))
        if kind == "cat" and shape[axis] > 1:
            cut = r.randrange(1, shape[axis])
            parts = [
                self.expr(dtype, (*shape[:axis], n, *shape[axis + 1 :]), depth - 1) for n in (cut, shape[axis] - cut)
            ]
            mag, frac = max(p.mag for p in parts), max(p.frac for p in parts)
            return Val(f"cat({parts[0].text}, {parts[1].text}, {axis})", dtype, shape, mag, frac)
        if kind == "slice":
            big = tuple(n + r.choice([0, 0, 1, 3]) for n in shape)
            a = self.let(self.expr(dtype, big, depth - 1))
            if r.random() < 0.3 and len(big) < 3:
                big = (r.choice([2, 3]), *big)
                a = self.let(self.expr(dtype, big, 0))
            items = [
                f"{self.scalar_position()} :+ {n}" if r.random() < 0.5 else f"{b - n} :+ {n}"
                for n, b in zip(shape, big[-len(shape) :], strict=True)
            ]
            items = [self.scalar_position()] * (len(big) - len(shape)) + items
            return Val(f"{a.text}[{', '.join(items)}]", dtype, shape, a.mag, a.frac)
        if kind == "broadcast":
            a = self.expr(dtype, tuple(1 if i == axis else n for i, n in enumerate(shape)), depth - 1)
            return Val(f"broadcast({a.text}, {self.extents_text(shape)})", dtype, shape, a.mag, a.frac)
        if kind == "gather":
            table = self.let(self.expr(dtype, (r.choice([1, 3, 8]), *shape[1:]), depth - 1))
            idx = self.expr("i32", (shape[0],), 1)
            return Val(f"gather({table.text}, {idx.text})", dtype, shape, table.mag, table.frac)
        a = self.expr(dtype, shape, depth - 1)
        if dtype in ("i8", "u8") or kind == "cat":
            return a
        grown = a.mag + (shape[axis] - 1).bit_length()
        if is_float(dtype) and grown + a.frac > DIGITS[dtype]:
            return a
        return Val(f"cumsum({a.text}, {axis})", dtype, shape, grown, a.frac)

    def reduction(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        """Along an axis of extent 1 of the result."""
        r = self.r
        axis = r.choice([a for a, n in enumerate(shape) if n == 1])
        wanted = [
            s
            for s in self.shapes
            if len(s) == len(shape) and all(n == m for a, (n, m) in enumerate(zip(s, shape, strict=True)) if a != axis)
        ]
        source = r.choice(wanted) if wanted else tuple(5 if a == axis else n for a, n in enumerate(shape))
        return self.reduced(dtype, source, axis, shape, depth)

    def reduced(self, dtype: str, source: tuple[int, ...], axis: int | None, shape: tuple[int, ...], depth: int) -> Val:
        r = self.r
        extent = source[axis] if axis is not None else int(np.prod(source))
        prefix = {None: ""} if axis is None else {}
        if axis == len(source) - 1:
            prefix[axis] = "row"
        elif axis == 0:
            prefix[axis] = "col"
        if dtype == "i32" and r.random() < 0.3 and axis in prefix:
            a = self.expr(self.dtype(), source, depth - 1)
            return Val(f"{prefix[axis]}{r.choice(['argmax', 'argmin'])}({a.text})", dtype, shape)
        if dtype in ("i8", "u8", "bool"):
            kind = r.choice(["max", "min"])
            if dtype == "bool" or axis not in prefix:
                return self.leaf(dtype, shape)
            return Val(f"{prefix[axis]}{kind}({self.expr(dtype, source, depth - 1).text})", dtype, shape)
        a = self.expr(dtype, source, depth - 1)
        kind = r.choice(["sum", "sum", "max", "min", "custom", "prod"])
        if kind == "custom" or axis not in prefix:
            if axis is None:
                kind = "max"
            else:
                return Val(f"reduce({a.text}, {axis}, larger, {dtype}(0))", dtype, shape, a.mag + 1, a.frac)
        if kind in ("max", "min"):
            return Val(f"{prefix[axis]}{kind}({a.text})", dtype, shape, a.mag, a.frac)
        if kind == "prod":
            if is_float(dtype):
                a = Val(f"where({a.text} > 0.0, {dtype}(1.0), {dtype}(-1.0))", dtype, source, 0, 0)
            return Val(f"{prefix[axis]}prod({a.text})", dtype, shape, 0, 0)
        if is_float(dtype):
            a = self.fit(a)
        grown = a.mag + (extent - 1).bit_length()
        return Val(f"{prefix[axis]}sum({a.text})", dtype, shape, grown, a.frac)

    def call(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        """A function of the file, with a loop or a branch inside."""
        a = self.expr(dtype, shape, depth - 1)
        if is_float(dtype):
            a = self.fit(a)
            return Val(f"halved({a.text}, {self.scalar_position()})", dtype, shape, a.mag, a.frac + 2)
        return Val(f"twisted({a.text}, {self.scalar_position()})", dtype, shape)

    def whole_reduction(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        return self.reduced(dtype, self.shape(), None, (), depth)

    def element(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        source = self.shape()
        a = self.let(self.expr(dtype, source, depth - 1))
        if dtype == "bool" and a.text.startswith("("):
            return self.leaf(dtype, ())
        return Val(f"{a.text}[{', '.join(self.scalar_position() for _ in source)}]", dtype, (), a.mag, a.frac)

    def product(self, dtype: str, shape: tuple[int, ...], depth: int) -> Val:
        r = self.r
        k = r.choice([1, 3, 4, 7, 8, 16, 17, 32])
        operand = r.choice([o for o, acc in ACCUMULATOR.items() if acc == dtype])
        limit = (2, 1) if is_float(operand) else None
        a, b = (self.expr(operand, s, depth - 1) for s in ((shape[0], k), (k, shape[1])))
        transposed = r.random() < 0.5
        if transposed:
            b = self.expr(operand, (shape[1], k), depth - 1)
        if is_float(operand):
            a, b = self.fit(a, limit), self.fit(b, limit)
        out = Val(f"dot{'_t' if transposed else ''}({a.text}, {b.text})", dtype, shape, 4 + k.bit_length(), 2)
        if r.random() < 0.6:
            c = self.expr(dtype, shape, depth - 1)
            out = Val(f"({c.text} + {out.text})", dtype, shape, max(c.mag, out.mag) + 1, max(c.frac, out.frac))
        return out

    # --- tensors -----------------------------------------------------------------------------

    def tensor(self, name: str, dtype: str, shape: tuple[int, ...], zero: bool = False) -> str:
        if name not in self.tensors:
            dims = tuple(f"{name}d{i}" if self.r.random() < 0.6 else n for i, n in enumerate(shape))
            self.tensors[name] = (dtype, dims)
            values = random_array(self.np, dtype, shape)
            self.arguments[name] = np.zeros_like(values) if zero else values
        return name

    def parameter(self, dtype: str) -> str:
        """A scalar argument."""
        name = f"p{dtype}{self.r.randrange(2)}"
        if name not in self.arguments:
            low = 0 if dtype[0] == "u" else -3
            self.arguments[name] = self.r.randrange(low, 6) / (2 if is_float(dtype) else 1)
            if not is_float(dtype):
                self.arguments[name] = int(self.arguments[name])
        return name

    def input(self, dtype: str, rank: int) -> str:
        extents = [self.r.choice([*self.extents, 16, 48, 64] if rank < 4 else [1, 2, 3, 8, 16]) for _ in range(rank)]
        return self.tensor(f"X{dtype}{rank}{self.r.randrange(2)}", dtype, tuple(extents))

    def scratch(self, dtype: str) -> str:
        """Read and written, one plane for each block."""
        if self.profile == "memory":
            return self.tensor(self.r.choice("ST") + dtype, dtype, (self.grid, *self.planes))
        a, b = self.r.choice(self.extents), self.r.choice(self.extents)
        return self.tensor(f"S{dtype}", dtype, (self.grid, a, b))
