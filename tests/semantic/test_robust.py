"""Mutated texts: whatever the input, the checker gives a verified kernel or a CompileError."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phobos.diagnostics import CompileError, render_all
from phobos.ir.verify import verify
from phobos.semantic.check import check_kernel, check_module
from phobos.semantic.signature import signatures
from phobos.source import SourceFile
from phobos.syntax.parser import parse

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.ph"))
TOKENS = re.compile(r"//[^\n]*|[A-Za-z_]\w*|\d[\w.]*(?:[eE][-+]?\d+)?|:\+|[-+*/]=|[<>=!]=|&&|\|\||\n|.")
WORDS = (
    "0 1 3 -1 1.5 -1.0e30 inf nan true false x acc s BR BC N Nk K Q f32 f16 i32 bool ctx ctx.block.x ctx.grid.y iota(0) iota(1) "  # noqa: E501
    "iota(0, 4) rowmax(s) exp(s) K[0 :+ 4, :] sum where dot max min [0] [0, 0] [:] :+ : , + - * / % ! ~ & && < == ( ) "
    "break continue return let var const for if else while transpose(s) f32(s) i32(1) f16 16 64 @tensorcore @grid(1) print(s)"  # noqa: E501
).split(" ")


def attempt(text: str) -> None:
    source = SourceFile("<fuzz>", text)
    try:
        module = parse(source)
    except CompileError:
        return
    found = check_module(module)
    render_all(found, source)
    try:
        kernels = signatures(module)
    except CompileError:
        assert any(d.severity == "error" for d in found)
        return
    for signature in kernels:
        config = {name: values[0] for name, values in signature.space.items()}
        consts = {p.name: False if str(p.dtype) == "bool" else 1 for p in signature.consts}
        try:
            kernel = check_kernel(module, signature.name, config, dict.fromkeys(signature.dtype_params, "f32"), consts)
        except CompileError as error:
            assert all(d.code.startswith(("PH02", "PH03")) and d.code != "PH0299" for d in error.diagnostics)
            continue
        verify(kernel)


def mutate(text: str, rng: random.Random) -> str:
    tokens = TOKENS.findall(text)
    names = sorted({t for t in tokens if t[0].isalpha()})
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(tokens))
        kind = rng.randrange(5)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, f" {rng.choice(WORDS)} ")
        elif kind == 2:
            tokens[at] = rng.choice(names)
        elif kind == 3:
            tokens[at] = rng.choice(WORDS)
        else:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.integers(0, 2**32))
def test_mutated_examples(seed: int) -> None:
    rng = random.Random(seed)
    attempt(mutate(rng.choice(EXAMPLES).read_text(encoding="utf-8"), rng))


STATEMENTS = [
    "let x{n} = {e}",
    "var x{n} = {e}",
    "let x{n}: tile<f32>[4, 4] = {e}",
    "var x{n}: f32 = {e}",
    "x{m} = {e}",
    "x{m} += {e}",
    "x{m}[{e} :+ 2, :] = {e}",
    "A[{e} :+ 4, 0 :+ 4] = {e}",
    "P[:, :] -= {e}",
    "print({e}, {e})",
    "if {e} {{ {s} }} else {{ {s} }}",
    "for i{n} in range({e}, {e}) {{ {s}\n{s} }}",
    "while {e} {{ {s}\nbreak }}",
    "if {e} {{ continue }}",
    "if {e} {{ return }}",
    "atomic_add(A[{e}, {e}], {e})",
    "assert({e})",
]
EXPRESSIONS = [
    "x{m}",
    "x{m}",
    "1",
    "2.5",
    "n",
    "a",
    "true",
    "N",
    "A[{e} :+ 4, 0 :+ 4]",
    "P[:, :]",
    "P[{e}, :]",
    "x{m}[0, {e}]",
    "({e} + {e})",
    "({e} * {e})",
    "({e} < {e})",
    "({e} && {e})",
    "-{e}",
    "!{e}",
    "iota(1)",
    "iota(0, 4)",
    "max({e}, {e})",
    "where({e}, {e}, {e})",
    "rowsum({e})",
    "exp({e})",
    "f16({e})",
    "i32({e})",
    "dot({e}, {e})",
    "transpose({e})",
    "reshape({e}, 16)",
    "f({e}, {e})",
    "reduce({e}, 0, g, {e})",
    "gather({e}, {e})",
    "cat({e}, {e}, 0)",
    "tril({e})",
    "sum({e})",
    "~{e}",
    "({e} >> {e})",
    "broadcast({e}, 4, 4)",
]


class Writer:
    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.n = 0

    def fill(self, template: str, depth: int) -> str:
        out = re.sub(
            r"\{[esnm]\}", lambda m: self.part(m.group()[1], depth), template.replace("{{", "\0").replace("}}", "\1")
        )
        return out.replace("\0", "{").replace("\1", "}")

    def part(self, kind: str, depth: int) -> str:
        if kind == "n":
            self.n += 1
            return str(self.n)
        if kind == "m":
            return str(self.rng.randint(1, max(1, self.n)))
        if kind == "e":
            return self.fill(self.rng.choice(EXPRESSIONS[:9] if depth > 3 else EXPRESSIONS), depth + 1)
        return self.fill(self.rng.choice(STATEMENTS[:10] if depth > 2 else STATEMENTS), depth + 1)

    def kernel(self) -> str:
        body = "\n".join(self.part("s", 0) for _ in range(self.rng.randint(2, 8)))
        head = "fn f(x, y) {\nif x { return y }\nreturn x + y\n}\nfn g(a, b) { return a * b }\n@grid(1)\n"
        return (
            head
            + f"kernel k(A: tensor<f32>[N, M], P: tensor<f32>[4, 4], n: i32, a: f32) {{\nvar x1 = P[:, :]\n{body}\n}}"
        )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.integers(0, 2**32))
def test_random_kernels(seed: int) -> None:
    attempt(Writer(seed).kernel())


@pytest.mark.parametrize(
    "text",
    [
        "kernel k() {\n}",
        "kernel k(X: tensor<f32>[9223372036854775807]) {\nX[9223372036854775807] = 1.0\n}",
        "kernel k(X: tensor<f32>[4]) {\nX[0 :+ 4] = full(f32, 1000000, 1000000, 1000000, 1.0)[0, 0, 0]\n}",
        "kernel k(X: tensor<f32>[4]) {\nX[0] = exp(exp(exp(exp(10.0))))\n}",
        "kernel k(X: tensor<f64>[4]) {\nX[0] = 1.0 / 0.0 - inf\nX[1] = f64(nan)\nX[2] = pow(0.0, -1.0)\n}",
        "const A = 1 << 63\nconst B = A * A\nkernel k(X: tensor<f32>[B]) {\n}",
    ],
)
def test_extremes(text: str) -> None:
    attempt(text)
