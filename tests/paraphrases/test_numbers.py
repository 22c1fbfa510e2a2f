"""Every paraphrase on the emulator, at ragged sizes, against NumPy in float64, with no report from the checkers."""

from __future__ import annotations

import functools
from typing import Any

import harness
import numpy as np
import pytest

from kbench.bench import Bench, Case
from kbench.benches import get_benches
from kbench.device import random_array
from kbench.paraphrases import PARAPHRASES, Paraphrase, originals
from phobos.compiler import build_program
from phobos.ir.types import DType
from phobos.norms import error_norms
from phobos.semantic.check import check_kernel
from phobos.semantic.signature import signatures
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target


def _gemm(m: int, n: int, k: int, **config: int) -> Case:
    return Case(label=f"M{m} N{n} K{k}", dims={"M": m, "N": n, "K": k}, config=config)


def _attention(b: int, h: int, hk: int, m: int, n: int, d: int, br: int, bc: int, causal: bool) -> Case:
    dims = {"B": b, "H": h, "HK": hk, "M": m, "N": n, "D": d}
    label = " ".join(f"{name}{extent}" for name, extent in dims.items()) + (" causal" if causal else "")
    return Case(label=label, dims=dims, config={"D": d, "BR": br, "BC": bc}, consts={"causal": causal})


CASES: dict[str, tuple[Case, ...]] = {
    "gemm_fp16": (_gemm(50, 75, 83, BM=32, BN=64, BK=16), _gemm(64, 64, 80, BM=32, BN=32, BK=32)),
    "attention": (_attention(1, 4, 2, 21, 45, 32, 16, 16, False), _attention(2, 1, 1, 37, 70, 48, 32, 16, True)),
}


@functools.cache
def _text(file: str) -> tuple[SourceFile, Any]:
    path = next(p.path for p in PARAPHRASES if str(p.path) == file)
    source = SourceFile(path.name, path.read_text(encoding="utf-8"))
    return source, parse(source)


def run(paraphrase: Paraphrase, case: Case, **scalars: float) -> tuple[np.ndarray, np.ndarray, Bench]:
    """(what the kernel stores, what it should, the bench)."""
    original = originals()[paraphrase.original]
    if case.consts.get("causal"):  # the bench of the same dtypes whose oracle hides keys
        same = (b for b in get_benches(paraphrase.original) if b.dtypes == original.dtypes)
        original = next(b for b in same if b.cases[0].consts["causal"])
    bench = paraphrase.bench(original)
    here = paraphrase.case(case)
    source, module = _text(str(paraphrase.path))
    dtypes = {name: DType(dtype) for name, dtype in bench.dtypes.items()}
    kernel = check_kernel(module, signatures(module)[0].name, dict(here.config), dtypes, dict(here.consts))
    specs = bench.tensors(case)
    tensors = {name: random_array(spec, seed=i) for i, (name, spec) in enumerate(specs.items())}
    values = {**bench.scalars(case), **paraphrase.renamed(scalars)}
    ((name, expected),) = bench.oracle(np, {n: t.astype(np.float64) for n, t in tensors.items()}, values).items()
    if specs[name].role == "out" or scalars.get("beta") == 0.0:
        tensors[name][...] = np.nan
    arguments = {**paraphrase.arguments(tensors), **values}
    program = build_program(kernel, get_target("sm_90a"), harness.specialization(kernel, arguments), source)
    result = harness.emulate(program, kernel, arguments)
    assert [str(r) for r in result.reports] == []
    assert {n: count for n, count in result.unwritten.items() if count} == {}
    return tensors[name].astype(np.float64), expected, bench


def near(got: np.ndarray, expected: np.ndarray, bench: Bench) -> None:
    tolerance = bench.tolerance["ieee"]
    assert error_norms(got, expected).within(tolerance)
    # Element by element: no block and no edge is off. Outputs are of the order of their root mean square.
    scale = np.abs(expected) + float(np.sqrt(np.mean(expected**2)))
    assert float(np.max(np.abs(got - expected) / scale)) < 8 * tolerance


@pytest.mark.parametrize(
    "paraphrase, case",
    [
        pytest.param(p, c, id=f"{p.original}-{p.name}-{c.label}".replace(" ", "-"))
        for p in PARAPHRASES
        for c in CASES[p.original]
    ],
)
def test_numbers(paraphrase: Paraphrase, case: Case) -> None:
    near(*run(paraphrase, case))


@pytest.mark.parametrize("name", ["p1 renamed", "p2 split", "p4 epilogue"])
def test_beta_of_zero_reads_no_c(name: str) -> None:
    (paraphrase,) = (p for p in PARAPHRASES if (p.original, p.name) == ("gemm_fp16", name))
    near(*run(paraphrase, CASES["gemm_fp16"][0], beta=0.0))
