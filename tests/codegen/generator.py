"""Random kernel texts for the differential test, with arguments.

    case = generate(seed)      # case.text, case.arguments, case.variant

Blocks touch disjoint parts of what they write (the leading axis of every written tensor is the block), so that their
order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from codegen.differential import Variant
from codegen.values import HELD, Val, Values, is_float


@dataclass
class Case:
    text: str
    arguments: dict[str, Any]
    variant: Variant
    seed: int = 0
    lines: list[str] = field(default_factory=list)


class Generator(Values):
    # --- statements --------------------------------------------------------------------------

    def variable(self) -> None:
        dtype, shape = self.r.choice([*self.dtypes, "bool"]), self.r.choice([*self.shapes, ()])
        v = self.fit(self.expr(dtype, shape))
        name = self.name()
        kind = f": {dtype}" if not shape else f": tile<{dtype}>[{self.extents_text(shape)}]"
        self.emit(f"var {name}{kind} = {v.text}")
        mag, frac = HELD.get(dtype, (31, 0))
        self.variables[-1].append(Val(name, dtype, shape, mag, frac))

    def assign(self) -> None:
        candidates = [v for scope in self.variables for v in scope]
        if not candidates:
            return self.variable()
        v, r = self.r.choice(candidates), self.r
        if v.shape and r.random() < 0.2 and v.dtype != "bool":
            part = tuple(r.randrange(1, n + 1) for n in v.shape)
            items = [f"{self.scalar_position()} :+ {n}" for n in part]
            if r.random() < 0.3:
                items, part = [self.scalar_position() for _ in part], ()
            self.emit(f"{v.text}[{', '.join(items)}] = {self.fit(self.expr(v.dtype, part)).text}")
        else:
            self.emit(f"{v.text} = {self.fit(self.expr(v.dtype, v.shape)).text}")

    def store(self) -> None:
        r = self.r
        dtype = self.dtype()
        shape = r.choice([s for s in self.shapes if len(s) <= 2])
        name = self.scratch(dtype)
        items = [f"{self.scalar_position()} :+ {n}" for n in shape]
        if len(shape) == 1:
            items = [self.scalar_position(), *items]
        if r.random() < 0.2 and len(shape) == 2:
            axis = r.randrange(2)
            base = self.let(Val("iota(0)", "i32", (shape[axis],)), typed=True)
            items[axis] = f"{r.choice(['2 - ', '7 - ', '3 * ', '1 + '])}{base.text}"
        if r.random() < 0.2:
            items, shape = [self.scalar_position(), self.scalar_position()], ()
        v = self.fit(self.expr(dtype, shape))
        op = r.choice(["=", "=", "="] + (["+="] if not is_float(dtype) else []))
        self.emit(f"{name}[pid, {', '.join(items)}] {op} {v.text}")

    def atomic(self) -> None:
        r = self.r
        dtype = r.choice(["i32", "u32", "f32", "i64"])
        kind = r.choice(["add", "max", "min"])
        shape = r.choice([(), *(s for s in self.shapes if len(s) == 1)])
        name = self.tensor(f"H{dtype}", dtype, (self.grid, r.choice([5, 17, 64])))
        v = self.fit(self.expr(dtype, shape, 1))
        where = f"{self.scalar_position()} :+ {shape[0]}" if shape else self.scalar_position()
        if shape and r.random() < 0.4 and not is_float(dtype):
            index = self.let(Val(f"({self.expr('i32', shape, 1).text} % 7)", "i32", shape))
            self.emit(f"atomic_{kind}({name}[pid, {index.text}], {v.text})")
            return
        call = f"atomic_{kind}({name}[pid, {where}], {v.text})"
        if r.random() < 0.4 and not is_float(dtype):
            self.let(Val(call, dtype, shape))
        else:
            self.emit(call)

    def swap(self) -> None:
        """Compare-and-swap: of one element, or of elements that are compared with what they are."""
        r = self.r
        name = self.tensor("Hi32cas", "i32", (self.grid, 17))
        at = self.scalar_position()
        call = f"atomic_cas({name}[pid, {at}], {r.choice([f'{name}[pid, {at}]', '3'])}, {self.expr('i32', (), 1).text})"
        if r.random() < 0.5:
            self.let(Val(call, "i32", ()))
        else:
            self.emit(call)

    def view(self) -> None:
        """A slice bound without a type, a slice of it, and a store in between: reading means reading then."""
        r = self.r
        dtype = self.dtype()
        name = self.scratch(dtype)
        a, b = r.choice([2, 4, 7]), r.choice([4, 8])
        self.count += 1
        whole = f"view{self.count}"
        mag, frac = HELD.get(dtype, (31, 0))
        self.emit(f"let {whole} = {name}[pid, {self.scalar_position()} :+ {a}, {self.scalar_position()} :+ {b}]")
        self.emit(f"let part{whole} = {whole}[1 :+ {a - 1}, 0 : {b}]")
        if r.random() < 0.6:
            self.store()
        self.scopes[-1] += [Val(whole, dtype, (a, b), mag, frac), Val(f"part{whole}", dtype, (a - 1, b), mag, frac)]
        v = self.let(Val(f"part{whole}", dtype, (a - 1, b), mag, frac), typed=True)
        if r.random() < 0.5:
            self.emit(f"{name}[pid, 0 :+ {a - 1}, {self.scalar_position()} :+ {b}] = {v.text}")

    def debug(self) -> None:
        v = self.expr(self.dtype(), self.r.choice([(), self.shape()]), 0)
        if self.r.random() < 0.5:
            self.emit(f'print("v ", {v.text}, " %d")')
        else:
            c = self.let(Val(f"({v.text} == {v.text})", "bool", v.shape))
            self.emit(f'assert({c.text}, "equal")')

    def condition(self) -> str:
        kind = self.r.random()
        if kind < 0.5:
            return f"{self.scalar_position()} {self.r.choice(['<', '>', '==', '!='])} {self.r.choice(['0', '1', '2'])}"
        return self.expr("bool", (), 2).text

    def block(self, exits: bool) -> None:
        for _ in range(self.r.randrange(1, 4)):
            self.statement()
        if exits and self.r.random() < 0.4:
            with self.inside(f"if {self.condition()}"):
                if self.r.random() < 0.5:
                    self.assign()
                self.emit(self.r.choice(["break", "continue"]))
            self.assign()

    def loop(self) -> None:
        r = self.r
        i = self.name()
        bounds = r.choice(["3", "0, 4", "1, 6, 2", "4, 0, -1", "2, 2", "pid + 1"])
        unroll = r.choice(["", "", "<unroll 2>"])
        with self.inside(f"for{unroll} {i} in range({bounds})"):
            self.indexes.append(i)
            self.block(True)
            self.indexes.pop()

    def counted_while(self) -> None:
        n = self.name()
        self.emit(f"var {n}: i32 = 0")
        with self.inside(f"while {n} < {self.r.choice(['1', '3'])} && {self.condition()}"):
            self.emit(f"{n} += 1")
            self.indexes.append(n)
            self.block(True)
            self.indexes.pop()

    def branch(self) -> None:
        with self.inside(f"if {self.condition()}"):
            self.block(False)
        if self.r.random() < 0.6:
            self.lines.pop()
            with self.inside("} else"):
                self.block(False)

    def statement(self) -> None:
        kind = self.r.random()
        nested = self.depth < 2
        if self.profile == "memory" and (not nested or self.r.random() < 0.6):
            return self.store() if self.r.random() < 0.8 else self.moving_index()
        if nested and kind < 0.14:
            self.loop()
        elif nested and kind < 0.19:
            self.counted_while()
        elif nested and kind < 0.3:
            self.branch()
        elif kind < 0.42:
            self.store()
        elif kind < 0.48:
            self.atomic()
        elif kind < 0.5:
            self.debug() if self.r.random() < 0.5 else self.swap()
        elif kind < 0.54:
            self.view()
        elif kind < 0.62:
            self.variable()
        elif kind < 0.7:
            self.let(self.expr(self.dtype(), self.shape()))
        else:
            self.assign()

    def moving_index(self) -> None:
        """An index that changes from iteration to iteration without being a loop's own."""
        r = self.r
        held = [n for n in self.indexes if n.startswith("at")]
        if held and self.depth and r.random() < 0.7:
            self.emit(f"{r.choice(held)} {r.choice(['+=', '-='])} {r.choice([1, 4, 8])}")
        elif not self.depth:
            self.count += 1
            self.emit(f"var at{self.count}: i32 = {r.choice([0, 4, 16])}")
            self.indexes.append(f"at{self.count}")
        else:
            self.count += 1
            name = self.scratch("i32")
            self.emit(f"let j{self.count} = {name}[pid, {self.scalar_position()}, {self.scalar_position()}] % 8")
            self.emit(f"{name}[pid, 0, j{self.count}] = j{self.count} + 1")

    def outputs(self) -> None:
        r = self.r
        if self.profile == "memory":
            return
        for number, v in enumerate([*self.variables[0], *self.scopes[0][-3:]]):
            rank = len(v.shape)
            name = self.tensor(f"O{number}", v.dtype, (self.grid, *v.shape) if rank else (self.grid,), zero=True)
            self.emit(f"{name}[pid{''.join(f', 0 :+ {n}' for n in v.shape)}] = {v.text}")
        for number, dtype in enumerate(r.sample([d for d in ("f32", "f16", "f64", "bf16")], 2)):
            shape = self.shape()
            a = self.expr(dtype, shape, 1)
            fn = r.choice(
                ["exp", "exp2", "sin", "cos", "tanh", "sigmoid", "erf", "gelu", "sqrt", "log", "rsqrt", "recip", "mod"]
            )
            positive = f"({dtype}(1.0) + abs({self.fit(a).text}))"
            text = {"recip": f"{a.text} / {positive}", "mod": f"{a.text} % {positive}"}.get(
                fn, f"{fn}({self.fit(a).text})"
            )
            if fn in ("sqrt", "log", "rsqrt"):
                text = f"{fn}({positive})"
            name = self.tensor(f"F{number}", dtype, (self.grid, *shape), zero=True)
            self.emit(f"{name}[pid{''.join(f', 0 :+ {n}' for n in shape)}] = {text}")

    def case(self) -> Case:
        r = self.r
        self.indexes = ["0", "pid", "1"]
        for _ in range(3):
            self.variable()
        for _ in range(r.randrange(3, 8)):
            self.statement()
        if r.random() < 0.2:
            with self.inside(f"if {self.condition()}"):
                self.store()
                self.emit("return")
        self.outputs()
        body = self.lines
        listed = [f"{n}: tensor<{d}>[{', '.join(map(str, dims))}]" for n, (d, dims) in self.tensors.items()]
        listed += [f"{n}: {n[1:-1]}" for n in self.arguments if n not in self.tensors]
        params = ", ".join(listed)
        head = [
            "fn larger(a, b) { return tmax(abs(a), abs(b)) }"
            if r.random() < 0.5
            else "fn larger(a, b) { return abs(a) + abs(b) }",
            "fn halved(a, n) {",
            "  var x = a",
            "  for i in range(2) {",
            "    if i < n { x = x * 0.5 }",
            "  }",
            "  return x",
            "}",
            "fn twisted(a, n) {",
            "  var x = a",
            "  var i = 0",
            "  while i < 3 {",
            "    i += 1",
            "    if i == n { continue }",
            "    x = x + a * 3",
            "    if i > n { break }",
            "  }",
            "  return x",
            "}",
            f"@grid({self.grid})",
            *(["@dynshared"] if r.random() < 0.7 else []),
            *r.choice([[], [], ["@options(vectorize = off)"], ["@options(pad = off)"], ["@options(matmul = fma)"]]),
            f"kernel k({params}) {{",
            "  let pid = ctx.block.x",
        ]
        if "abs(a) + abs(b)" in head[0] and any("reduce(" in line for line in body):
            head[0] = "fn larger(a, b) { return tmax(abs(a), abs(b)) }"  # stays within its bound
        text = "\n".join([*head, *body, "}", ""])
        return Case(text, self.arguments, self.variant(), self.seed)

    def variant(self) -> Variant:
        r = self.r
        overlap = tuple(
            (f"S{d}", f"T{d}") for d in self.dtypes if {f"S{d}", f"T{d}"} <= set(self.tensors) and r.random() < 0.5
        )
        if self.profile == "memory":
            return Variant(
                threads=r.choice([64, 64, 96, 128]), sched=r.randrange(4), weak=r.random() < 0.2, overlap=overlap
            )
        forms = tuple(
            (n, r.choice(["plain", "plain", "padded", "transposed", "inner", "shifted"]))
            for n in self.tensors
            if r.random() < 0.3
        )
        return Variant(
            threads=r.choice([None, None, 32, 64, 96, 128, 256, 384]), sched=r.randrange(4),
            index_bits=r.choice([32, 32, 32, 64]),
            arch=r.choice(["sm_90a", "sm_80", "sm_75"]), debug=r.random() < 0.3, weak=r.random() < 0.2, forms=forms,
            fast_math=r.random() < 0.15,
        )  # fmt: skip


def generate(seed: int, profile: str = "mixed") -> Case:
    return Generator(seed, profile).case()
