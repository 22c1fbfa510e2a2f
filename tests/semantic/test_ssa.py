"""Random structured programs on integers: the kernel under the reference against the same program in Python."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from semantic.support import execute

LIMIT = 1000  # values stay below, so that no type overflows


class Program:
    """Phobos and Python text of one random program over the variables v0, v1, v2."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.count = 0
        self.kernel: list[str] = []
        self.python: list[str] = []
        self.block(0, 0, False, ["v0", "v1", "v2"])

    def line(self, depth: int, kernel: str, python: str | None) -> None:
        self.kernel.append("  " * depth + kernel)
        if python is not None:
            self.python.append("  " * depth + python)

    def expression(self, names: list[str]) -> str:
        a, b = (self.rng.choice([*names, "n", "2", "7"]) for _ in range(2))
        return self.rng.choice([f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", a])

    def test(self, names: list[str]) -> tuple[str, str]:
        a, b = self.expression(names), self.expression(names)
        op = self.rng.choice(["<", "<=", "==", "!=", ">"])
        if self.rng.random() < 0.15:
            value = self.rng.random() < 0.5
            return str(value).lower(), str(value)
        return f"{a} {op} {b}", f"{a} {op} {b}"

    def block(self, depth: int, nesting: int, loop: bool, names: list[str]) -> None:
        """Statements; what follows a jump is left out."""
        names = list(names)
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.randrange(10)
            if kind <= 3:
                name = self.rng.choice([x for x in names if x[0] in "vw"])
                e = self.expression(names)
                self.line(depth, f"{name} = ({e}) % {LIMIT}", f"{name} = rem({e}, {LIMIT})")
            elif kind == 4:
                self.count += 1
                name = f"w{self.count}"
                e = self.expression(names)
                self.line(depth, f"var {name} = ({e}) % {LIMIT}", f"{name} = rem({e}, {LIMIT})")
                names.append(name)
            elif kind <= 6 and nesting < 4:
                test, python = self.test(names)
                self.line(depth, f"if {test} {{", f"if {python}:")
                self.block(depth + 1, nesting + 1, loop, names)
                if self.rng.random() < 0.6:
                    self.line(depth, "} else {", "else:")
                    self.block(depth + 1, nesting + 1, loop, names)
                self.line(depth, "}", None)
            elif kind == 7 and nesting < 4:
                self.count += 1
                index, hi = f"i{self.count}", self.rng.choice(["3", "n", "0"])
                self.line(depth, f"for {index} in range({hi}) {{", f"for {index} in range({hi}):")
                self.block(depth + 1, nesting + 1, True, [*names, index])
                self.line(depth, "}", None)
            elif kind == 8 and nesting < 4:
                self.count += 1
                name = f"c{self.count}"
                self.line(depth, f"var {name} = 0", f"{name} = 0")
                self.line(depth, f"while {name} < 3 {{", f"while {name} < 3:")
                self.line(depth + 1, f"{name} += 1", f"{name} += 1")
                self.block(depth + 1, nesting + 1, True, names)
                self.line(depth, "}", None)
            elif kind == 9 and loop and nesting > 1:
                word = self.rng.choice(["break", "continue"])
                self.line(depth, word, word)
                return
        if depth > 0 and not self.python[-1].startswith("  " * depth):
            self.line(depth, "v0 += 0", "pass")

    def kernel_text(self) -> str:
        body = "\n".join(self.kernel)
        return (
            f"@grid(1)\nkernel k(B: tensor<i32>[3], m: i32) {{\nlet n = index(m)\nvar v0 = 1\nvar v1 = 2\nvar v2 = 3\n{body}\n"  # noqa: E501
            "B[0] = v0\nB[1] = v1\nB[2] = v2\n}"
        )

    def python_values(self, n: int) -> list[int]:
        def rem(a: int, b: int) -> int:
            return abs(a) % b if a >= 0 else -(abs(a) % b)

        names = {"n": n, "v0": 1, "v1": 2, "v2": 3, "rem": rem}
        exec("\n".join(self.python), names)  # noqa: S102 - text made above
        return [names["v0"], names["v1"], names["v2"]]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.integers(0, 2**32), st.integers(-2, 5))
def test_control_flow_matches_python(seed: int, n: int) -> None:
    program = Program(seed)
    out = execute(program.kernel_text(), {"B": np.zeros(3, np.int32), "m": n})
    assert out["B"].tolist() == program.python_values(n), program.kernel_text()
