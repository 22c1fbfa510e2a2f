"""Random kernels that read and write the same memory in nested loops, for the placement of barriers.

    case = hazard_case(seed)

Two tiles of one shape are kept in different layouts (one is loaded from a tensor that allows wide accesses, the other
from one that does not) and no statement exchanges elements between threads, so that a barrier is there only if the
analysis asks for it.
"""

from __future__ import annotations

import random

import numpy as np
from codegen.differential import Variant, random_array
from codegen.generator import Case


def _position(r: random.Random, indexes: list[str], step: int) -> str:
    terms = [
        f"{i} * {r.choice([step, step, step, step // 2 or 1, 2 * step])}"
        for i in r.sample(indexes, r.randrange(0, min(2, len(indexes)) + 1))
    ]
    shift = r.choice([0, 0, step, step // 2])
    return " + ".join([*terms, *([str(shift)] if shift or not terms else [])])


def hazard_case(seed: int) -> Case:
    r, rng = random.Random(seed), np.random.default_rng(seed)
    rows, columns = r.choice([(8, 8), (4, 16), (16, 4), (2, 32)])
    height = rows * 6
    lines: list[str] = []
    indexes: list[str] = []
    views: list[str] = []
    count = 0
    # Few statements and views leave few barriers to hide a missing one behind.
    most, again = r.choice([3, 3, 5]), r.choice([0.7, 0.95])

    def emit(depth: int, text: str) -> None:
        lines.append("  " * depth + text)

    def view() -> str:
        """Often one that was used before: equal views are where the analysis relies on who touches what."""
        usable = [
            v
            for v in views
            if all(
                w in [*indexes, "S", "T"] or not w.isidentifier() for w in v.replace("[", " ").replace(",", " ").split()
            )
        ]
        if usable and r.random() < again:
            return r.choice(usable)
        tensor = r.choice("SST")
        v = f"{tensor}[{_position(r, indexes, rows)} :+ {rows}, {r.choice(['0', '0', '0', '1'])} :+ {columns}]"
        views.append(v)
        return v

    def statements(depth: int) -> None:
        nonlocal count
        for _ in range(r.choice([1, 1, 2, 3]) if depth == 1 else r.randrange(1, most)):
            kind = r.random() if depth > 2 or r.random() < 0.3 else 0.0
            if kind < 0.3 and depth < 4:
                count += 1
                i = f"i{count}"
                if r.random() < 0.75:
                    bounds = r.choice(
                        ["2", "3", "0, 4, 2", "2, -1, -1", "1, 3"] + ([f"{indexes[0]}, 3"] if indexes else [])
                    )
                    emit(depth, f"for {i} in range({bounds}) {{")
                    indexes.append(i)
                    statements(depth + 1)
                    if r.random() < 0.2:
                        emit(depth + 1, f"if {i} == 1 {{ {r.choice(['break', 'continue'])} }}")
                        statements(depth + 1) if depth < 3 else None
                    indexes.pop()
                else:
                    emit(depth, f"var {i}: i32 = {r.choice([0, 2])}")
                    emit(depth, f"for n{i} in range(3) {{")
                    indexes.append(i)
                    statements(depth + 1)
                    emit(depth + 1, f"{i} {r.choice(['+=', '-='])} 1")
                    indexes.pop()
                emit(depth, "}")
            elif kind < 0.4 and depth < 4 and indexes:
                emit(depth, f"if {r.choice(indexes)} {r.choice(['>', '=='])} 0 {{")
                statements(depth + 1)
                emit(depth, "}")
            elif kind < 0.68:
                name = r.choice("ab")
                emit(depth, f"{name} = clamp({name} * 0.5 + {view()}, -64.0, 64.0)")
            elif kind < 0.95:
                emit(depth, f"{view()} = {r.choice('ab')} + {r.choice(['1.0', *(f'f32({i})' for i in indexes)])}")
            else:
                emit(depth, f"T[{r.choice(['0', *indexes])}, 1] = S[{r.choice(['1', *indexes])}, 0] + 1.0")

    emit(1, f"var a: tile<f32>[{rows}, {columns}] = X[0 :+ {rows}, 0 :+ {columns}]")
    emit(1, f"var b: tile<f32>[{rows}, {columns}] = Y[0 :+ {rows}, 1 :+ {columns}]")
    statements(1)
    emit(1, f"A[0 :+ {rows}, 0 :+ {columns}] = a")
    emit(1, f"B[0 :+ {rows}, 1 :+ {columns}] = b")
    width = columns + 4
    text = "\n".join(
        [
            f"kernel k(X: tensor<f32>[{rows}, {columns}], Y: tensor<f32>[H, W], A: tensor<f32>[{rows}, {columns}], "
            "B: tensor<f32>[H, W], S: tensor<f32>[H, W], T: tensor<f32>[H, W]) {",
            *lines, "}", "",
        ]
    )  # fmt: skip
    arguments = {n: random_array(rng, "f32", (height, width)) for n in "YBST"}
    arguments |= {n: random_array(rng, "f32", (rows, columns)) for n in "XA"}
    overlap = (("S", "T"),) if r.random() < 0.4 else ()
    shift = r.choice([0, 0, 4, 2 * width, width * rows - 4])
    threads = r.choice([64, 64, 128])
    weak = r.random() < 0.2
    variant = Variant(threads=threads, sched=r.randrange(4), overlap=overlap, shift=shift, weak=weak)
    return Case(text, arguments, variant, seed)
