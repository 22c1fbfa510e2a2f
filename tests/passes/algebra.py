"""Kernels with an online softmax over given scores, what the algebra passes make of them, and a NumPy oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from phobos import reference
from phobos.compiler import default_spec
from phobos.ir.abi import Decision, Specialization
from phobos.ir.tile import KernelIR
from phobos.ir.verify import verify
from phobos.passes import pipeline
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

ROWS, BLOCK, WIDTH = 8, 16, 16
OFF = {"rescale": "off", "sums": "off", "fold": "off", "peel": "off"}

# O = softmax(S) @ V and L = log of the sums, over blocks of BLOCK scores; D is WIDTH.
SOFTMAX = """\
kernel k(S: tensor<f32>[M, N], V: tensor<f16>[N, 16], O: tensor<f32>[M, 16], L: tensor<f32>[M, 1], c: f32) {
  let row = ctx.block.x * 8
  var acc: tile<f32>[8, 16] = 0.0
  var m: tile<f32>[8, 1] = -inf
  var l: tile<f32>[8, 1] = 0.0
  for kt in range(0, N, 16) {
    let s = S[row :+ 8, kt :+ 16] else -inf
    let mnew = tmax(m, rowmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot(f16(p), V[kt :+ 16, :])
    m = mnew
  }
  O[row :+ 8, :] = acc / where(l == 0.0, 1.0, l)
  L[row :+ 8, :] = m + log(l)
}
"""

Edits = tuple[tuple[str, str], ...]


def edited(*edits: tuple[str, str], text: str = SOFTMAX) -> str:
    """The text with each first string, which must be there, replaced by the second."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Result:
    """The kernel before the algebra passes and after them, and what they decided."""

    before: KernelIR
    after: KernelIR
    decisions: tuple[Decision, ...]

    def choice(self, subject: str) -> tuple[str, str]:
        """(choice, reason) of the last decision about something that begins with `subject`."""
        *_, found = [d for d in self.decisions if d.subject.startswith(subject)]
        assert found.stage == "algebra"
        return found.choice, found.reason


@cache
def run_passes(text: str, *, positive: bool = True, fast: bool = False, **options: str) -> Result:
    """Everything up to the end of the algebra passes, verified after each. `positive`: scalars are known to be."""
    kernel = check_kernel(parse(SourceFile("case.ph", text)), "k")
    kernel = replace(kernel, options=replace(kernel.options, **options))
    spec = replace(default_spec(kernel), dim_multiple=())
    if not positive:
        spec = replace(spec, sign=())
    return passes_of(kernel, spec, fast=fast)


def passes_of(kernel: KernelIR, spec: Specialization, *, fast: bool = False) -> Result:
    def observe(stage: str, state: object) -> None:
        assert isinstance(state, KernelIR)
        verify(state, after=stage)

    chosen = pipeline.choose(kernel, get_target("sm_90a"), spec, observe)
    after, decisions = pipeline.algebra(chosen.kernel, spec, observe, fast=fast)
    verify(after, after="algebra")
    return Result(chosen.kernel, after, decisions)


def scores(kind: str, rows: int = 19, columns: int = 83) -> np.ndarray:
    """f32 scores of a kind that online softmax must get right. Blocks of columns are BLOCK wide."""
    rng = np.random.default_rng(len(kind))
    s = rng.standard_normal((rows, columns)) * 2
    block = np.arange(columns) // BLOCK
    if kind == "slowly growing":  # each block by less than the lag, all together by more
        s = s / 4 + 3.0 * block
    elif kind == "growing":
        s = s + 1000.0 * block
    elif kind == "falling":
        s = s - 40.0 * block
    elif kind == "masked":
        s[rng.random(s.shape) < 0.5] = -np.inf
        s[3] = -np.inf  # a row without scores
        s[:, :BLOCK] = -np.inf  # blocks without scores, first and later
        s[5:9, 2 * BLOCK : 4 * BLOCK] = -np.inf
    elif kind == "not numbers":
        s[2, 40] = np.nan
        s[4, 0] = np.inf
        s[6, 70] = np.inf
        s[8, 20], s[8, 60] = np.inf, np.nan
        s[10] = -np.inf
        s[10, 50] = np.nan
    elif kind == "large":
        s = s * 1e4
    else:
        assert kind == "ordinary"
    return s.astype(np.float32)


KINDS = ("ordinary", "slowly growing", "growing", "falling", "masked", "not numbers", "large")


def arguments(s: np.ndarray, dtype: Any = np.float32) -> dict[str, Any]:
    rows, columns = s.shape
    v = np.random.default_rng(7).standard_normal((columns, WIDTH)).astype(np.float16)
    empty = np.zeros((rows, WIDTH), dtype)
    return {"S": s, "V": v, "O": empty, "L": np.zeros((rows, 1), dtype), "c": 0.75}


def in_float64(kernel: KernelIR, s: np.ndarray, **hooks: Any) -> Mapping[str, Any]:
    """What the kernel computes for these scores, in float64 throughout."""
    arrays = arguments(s, np.float64)
    reference.run(kernel, arrays, float64=True, **hooks)
    return arrays


def assert_same(kernel: KernelIR, other: KernelIR, s: np.ndarray) -> None:
    """Both compute the same but for rounding in float64; NaN where the other has NaN."""
    one, two = in_float64(kernel, s), in_float64(other, s)
    for name in ("O", "L"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-10, atol=1e-12, equal_nan=True)
