"""print and assert: in debug builds only, with the values, once for each element or block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.differential import Variant, dims_of, kernel_of, lowered

from phobos import emulator


def run(body: str, debug: bool = True, threads: int = 64, **arguments: Any) -> emulator.EmulatorResult:
    text = f"@grid(2)\nkernel k(X: tensor<f32>[6], U: tensor<u32>[2], n: i32) {{\n{body}\n}}\n"
    kernel = kernel_of(text)
    given = {
        "X": np.arange(6, dtype=np.float32) / 4,
        "U": np.array([4000000000, 7], np.uint32),
        "n": -3,
        **arguments,
    }
    _, program = lowered(kernel, given, Variant(threads=threads, debug=debug))
    return emulator.run(program, given, dims=dims_of(kernel, given))


def lines(result: emulator.EmulatorResult) -> list[str]:
    assert [str(r) for r in result.reports] == []
    return sorted(result.output.splitlines())


def test_scalars_are_printed_once_a_block() -> None:
    body = 'let b = n < 0\nprint("n=", n, " 100% of ", U[0], " ", b, " ", X[1], " ", ctx.block.x, "\\\\n")'
    assert lines(run(body)) == [f"n=-3 100% of 4000000000 1 0.25 {block}\\n" for block in (0, 1)]


@pytest.mark.parametrize("threads", [32, 64, 128])
def test_tiles_are_printed_once_an_element(threads: int) -> None:
    """Whatever the number of threads that hold it; scalars of the statement stand in every line."""
    body = 'let row: tile<f32>[6] = X[:]\nif ctx.block.x == 1 { print("block ", n, ": ", row) }'
    assert lines(run(body, threads=threads)) == sorted(f"block -3: row[{i}] = {i / 4:g}" for i in range(6))


def test_tiles_of_two_axes_and_small_types() -> None:
    body = "let x = f16(reshape(X[:], 2, 3))\nif ctx.block.x == 0 { print(x > 0.5, x) }"
    found = lines(run(body))
    assert sum("= 1" == line[-3:] for line in found) >= 3
    assert any(line.endswith("[1, 2] = 1.25") for line in found)
    assert len(found) == 12


def test_nothing_in_other_builds() -> None:
    body = 'print("x", n)\nassert(n > 0, "positive")'
    result = run(body, debug=False)
    assert result.output == "" and not result.reports


@pytest.mark.parametrize(
    "condition, text, line",
    [("x < 1.0", 'small \\"x\\" 100%', 4), ("n > 0", "n is positive", 4), ("x < 2.0 && n > 0", "both", 4)],
)
def test_assertions_name_their_line_and_text(condition: str, text: str, line: int) -> None:
    (report,) = run(f'let x: tile<f32>[6] = X[:]\nassert({condition}, "{text}")').reports
    assert (report.kind, report.line) == ("assert", line)
    assert text.replace("\\", "") in report.text


def test_assertions_that_hold_say_nothing() -> None:
    body = 'let x: tile<f32>[6] = X[:]\nassert(x < 2.0, "small")\nassert(n < 0, "negative")'
    assert not run(body).reports
