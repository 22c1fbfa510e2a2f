"""Random kernels are well-formed, and copies, texts and passes of the tile IR keep their meaning."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from ir.programs import outputs, random_kernel, same

from phobos.ir import tile as ir
from phobos.ir import walk
from phobos.ir.printer import print_kernel
from phobos.ir.verify import verify

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels_are_well_formed_and_copies_compute_the_same(seed: int) -> None:
    kernel = random_kernel(seed)
    verify(kernel)
    before = outputs(kernel, seed)
    clone = replace(kernel, body=walk.clone_block(kernel.body))
    verify(clone)
    assert same(outputs(clone, seed), before)
    assert print_kernel(clone) == print_kernel(kernel)
    swept = replace(kernel, body=walk.remove_dead(kernel.body))
    verify(swept)
    assert same(outputs(swept, seed), before)
    assert walk.remove_dead(swept.body) is swept.body


@pytest.mark.parametrize("seed", SEEDS)
def test_printed_names_are_unique_and_defined(seed: int) -> None:
    text = print_kernel(random_kernel(seed))
    assert "%?" not in text
    body = text.split("{\n", 1)[1]
    left = [line.strip().split(" = ")[0] for line in body.splitlines() if re.match(r"\s*%[^=]* = ", line)]
    defined = [name for names in left for name in re.findall(r"%[\w.]+", names)]
    assert len(defined) == len(set(defined))


def test_the_programs_cover_the_language() -> None:
    kinds = {type(op) for seed in SEEDS for op in walk.kernel_ops(random_kernel(seed))}
    # These have tests of their own.
    missing = {ir.Cat, ir.Transpose, ir.GridSize, ir.Print, ir.Assert, ir.SumParts}
    plain = {k for k in vars(ir).values() if isinstance(k, type) and issubclass(k, ir.Op) and k is not ir.Op}
    assert plain - kinds <= missing
    finite = [np.isfinite(outputs(random_kernel(seed), seed)[1]).mean() for seed in SEEDS]
    assert np.mean(finite) > 0.8  # most of what is compared is numbers
    assert np.mean([len(np.unique(outputs(random_kernel(seed), seed)[1])) for seed in SEEDS]) > 8
