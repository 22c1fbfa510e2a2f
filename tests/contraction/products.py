"""Kernels around products, their arguments and float64 oracles, for the tests of the contraction rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from codegen.differential import Variant, dims_of, specialization
from emulator.support import from_bf16, to_bf16

from phobos import emulator
from phobos.compiler import build_program
from phobos.emulator import EmulatorResult
from phobos.ir.abi import Program
from phobos.ir.tile import KernelIR
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

GEMM = """\
{attributes}
kernel k(A: tensor<{dtype}>[M, K], B: tensor<{dtype}>[{b}], C: tensor<f32>[M, N]) {{
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = {start}
  for k in range(0, K, BK) {{
    acc += {dot}
  }}
  C[row :+ BM, col :+ BN] = acc
}}
"""
DOTS = {
    False: ("K, N", "dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])"),
    True: ("N, K", "dot_t(A[row :+ BM, k :+ BK], B[col :+ BN, k :+ BK])"),
}
FLASH = """\
{attributes}
kernel k(Q: tensor<{dtype}>[M, {D}], K: tensor<{dtype}>[N, {D}], V: tensor<{dtype}>[N, {D}], O: tensor<f32>[M, {D}],
         scale: f32) {{
  let row = ctx.block.x * BR
  let q = Q[row :+ BR, :]
  var acc: tile<f32>[BR, {D}] = 0.0
  var m: tile<f32>[BR, 1] = -inf
  var l: tile<f32>[BR, 1] = 0.0
  for kt in range(0, N, BC) {{
    var s: tile<f32>[BR, BC] = dot_t(q, K[kt :+ BC, :]) * scale
    s = where(iota(1) < N - kt, s, -inf)
    let mnew = tmax(m, rowmax(s))
    let safe = where(mnew == -inf, 0.0, mnew)
    let p = exp(s - safe)
    let corr = exp(m - safe)
    l = l * corr + rowsum(p)
    acc = acc * corr + dot({cast}(p), V[kt :+ BC, :])
    m = mnew
  }}
  O[row :+ BR, :] = acc / l
}}
"""
SPACE = "@autotune(BM in [16, 256], BN in [16, 256], BK in [8, 128])"
FLASH_SPACE = "@autotune(BR in [16, 128], BC in [16, 128])"
# operand dtype, attribute, what operands are rounded to
KINDS = {
    "f16": ("f16", "", "f16"),
    "bf16": ("bf16", "", "bf16"),
    "f32 as f16": ("f32", "@tensorcore", "f16"),
    "f32 as bf16": ("f32", "@tensorcore(bf16)", "bf16"),
    "f32 as tf32": ("f32", "@tensorcore(tf32)", "tf32"),
}


def gemm_text(
    kind: str, *, transposed: bool = False, options: str = "matmul = wmma", start: str = "0.0", more: str = ""
) -> str:
    dtype, attribute, _ = KINDS[kind]
    b, dot = DOTS[transposed]
    attributes = "\n".join(a for a in (attribute, f"@options({options})" if options else "", more, SPACE) if a)
    return GEMM.format(attributes=attributes, dtype=dtype, b=b, dot=dot, start=start)


def flash_text(kind: str, depth: int, options: str = "matmul = wmma") -> str:
    dtype, attribute, _ = KINDS[kind]
    attributes = "\n".join(a for a in (attribute, f"@options({options})", FLASH_SPACE) if a)
    return FLASH.format(attributes=attributes, dtype=dtype, D=depth, cast="" if dtype == "f32" else dtype)


@cache
def kernel_of(text: str, config: tuple[tuple[str, int], ...], threads: int | None = None) -> KernelIR:
    kernel = check_kernel(parse(SourceFile("case.ph", text)), "k", config=dict(config), strict_space=False)
    return replace(kernel, launch=replace(kernel.launch, threads=threads)) if threads else kernel


@dataclass(frozen=True)
class Run:
    program: Program
    result: EmulatorResult


def run(
    kernel: KernelIR, arguments: Mapping[str, Any], *, arch: str = "sm_90a", sched: int = 0, record: bool = False
) -> Run:
    """Compiles for these arguments and runs on the emulator, writing into the arrays."""
    spec = specialization(kernel, arguments, Variant())
    program = build_program(kernel, get_target(arch), spec, SourceFile("case.ph", ""))
    dims = dims_of(kernel, arguments)
    result = emulator.run(program, arguments, dims=dims, sched=sched, timeout=60.0, record=record)
    return Run(program, result)


def choices(program: Program, stage: str) -> list[str]:
    return [d.choice for d in program.decisions if d.stage == stage]


# --- operands -----------------------------------------------------------------------------------


def operand(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A tensor argument, and the float64 values that the product multiplies."""
    dtype, _, rounding = KINDS[kind]
    values = rng.standard_normal(shape).astype(np.float32)
    exact = rounded(values, rounding)
    if dtype == "f32":
        return values, exact
    return (values.astype(np.float16) if dtype == "f16" else to_bf16(values)), exact


def rounded(values: np.ndarray, to: str) -> np.ndarray:
    """f32 values rounded to f16, bf16 (nearest even) or tf32 (nearest, ties away), as float64."""
    if to == "f16":
        return values.astype(np.float16).astype(np.float64)
    if to == "bf16":
        return from_bf16(to_bf16(values)).astype(np.float64)
    return ((values.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64)


def assert_product(actual: np.ndarray, a: np.ndarray, b: np.ndarray, start: np.ndarray | float = 0.0) -> None:
    """`actual` is a @ b + start within six times the probable error of k f32 additions."""
    expected = a @ b + start
    bound = 6 * np.sqrt(a.shape[1] + 1) * 2.0**-24 * (np.abs(a) @ np.abs(b) + np.abs(start)) + 1e-30
    worst = np.max(np.abs(actual - expected) / bound)
    assert worst <= 1.0, f"{worst} times the bound"


def softmax_product(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    s = q @ k.T * scale
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v / p.sum(axis=1, keepdims=True)
