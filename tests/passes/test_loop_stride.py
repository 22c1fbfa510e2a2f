"""loop_stride: loops that count blocks step through elements; others stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

import phobos
from phobos.ir import tile as ir
from phobos.ir.verify import verify
from phobos.ir.walk import kernel_ops
from phobos.passes import hoist, loop_stride, simplify
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse

TEXT = """
@grid(1)
kernel k(X: tensor<f32>[N], Y: tensor<f32>[N], Z: tensor<f32>[P]) {{
  let n = P - 128  // of either sign
  {before}
  Z[n + 128] = 1.0
  for i in range({range}) {{
    {body}
  }}
}}
"""


def rewritten(range: str, body: str, before: str = "") -> tuple[ir.KernelIR, ir.KernelIR]:
    module = parse(SourceFile("k.ph", TEXT.format(range=range, body=body, before=before)))
    kernel = check_kernel(module, "k", {}, {}, {}, strict_space=False)
    kernel = simplify.run(hoist.run(simplify.run(kernel)))
    out = loop_stride.run(kernel)
    verify(out, "loop_stride")
    return kernel, out


COPY = "Y[i * 16 :+ 16] = X[i * 16 :+ 16] + 1.0"
TAKEN = {
    "blocks of a dim": ("ceildiv(N, 16)", COPY, ""),
    "by name": ("0, blocks", "let at = 16 * i\n Y[at :+ 16] = X[at :+ 16] + 1.0", "let blocks = (N + 15) / 16"),
    "a number of blocks": ("3", COPY, ""),
    "an expression": ("ceildiv(n + 1, 16)", COPY, ""),
    "within an if": ("ceildiv(N, 16)", f"if n > 0 {{ {COPY} }}", ""),
    "with break": ("ceildiv(N, 16)", f"{COPY}\n if X[i * 16] > 30.0 {{ break }}", ""),
}
LEFT = {
    "another use": ("ceildiv(N, 16)", f"{COPY}\n if i == 1 {{ break }}", ""),
    "two factors": ("ceildiv(N, 16)", "Y[i * 16 :+ 16] = X[i * 8 :+ 16]", ""),
    "other blocks": ("ceildiv(N, 32)", COPY, ""),
    "floor": ("N / 16", COPY, ""),
    "from 1": ("1, ceildiv(N, 16)", COPY, ""),
    "every second": ("0, ceildiv(N, 16), 2", COPY, ""),
    "backwards": ("3, 0, -1", COPY, ""),
    "no use": ("ceildiv(N, 16)", "Y[0 :+ 16] = X[0 :+ 16] + f32(n)", ""),
    "a sum": ("ceildiv(N, 16)", "Y[i + 16 :+ 16] = X[i + 16 :+ 16]", ""),
    "another type": ("0, i32(3)", COPY, ""),
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_steps(name: str) -> None:
    _, out = rewritten(*TAKEN[name])
    loop = next(op for op in kernel_ops(out) if isinstance(op, ir.For))
    constants = {op.result: op.value for op in kernel_ops(out) if isinstance(op, ir.Constant)}
    assert constants[loop.step] == 16
    assert not any(isinstance(op, ir.Compute) and op.fn == "mul" for op in kernel_ops(out) if op not in out.body.ops)


@pytest.mark.parametrize("name", LEFT)
def test_it_leaves(name: str) -> None:
    before, after = rewritten(*LEFT[name])
    assert after is before


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 64])
@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_the_meaning_stays(name: str, size: int, backend: str) -> None:
    range_, body, before = {**TAKEN, **LEFT}[name]
    x = np.arange(size, dtype=np.float32)
    found = []
    for text in (body, body + "\n if i < 0 { break }"):  # another use of the index: the loop is left alone
        y = np.full(size, -1, np.float32)
        phobos.jit(TEXT.format(range=range_, body=text, before=before))(
            x, y, np.zeros(size + 127, np.float32), backend=backend
        )
        found.append(y.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("n", [-100, -17, -16, -15, -1, 0, 1, 16, 17])
def test_negative_extents_run_nothing(n: int) -> None:
    y = np.zeros(64, np.float32)
    text = TEXT.format(range="ceildiv(n, 16)", body="Y[i * 16 :+ 16] = Y[i * 16 :+ 16] + 1.0", before="")
    phobos.jit(text)(y.copy(), y, np.zeros(n + 128, np.float32), backend="emulator")
    want = np.zeros(64)
    for i in range(max(0, -(-n // 16))):
        want[16 * i : 16 * i + 16] += 1
    assert y.tolist() == want.tolist()
