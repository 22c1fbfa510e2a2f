"""The definitions of the benches: consistent with their kernels and with themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kbench.bench import COMPUTE, MEMORY, Bench, Tensor
from kbench.benches import NAMES, get_bench
from kbench.device import random_array
from kbench.host import arguments_and_oracle, to_float64
from kbench.roofline import UNITS
from phobos import resources

BENCHES = [get_bench(n) for n in NAMES]


@pytest.mark.parametrize("bench", BENCHES, ids=NAMES)
def test_definition(bench: Bench) -> None:
    assert (resources.examples_dir() / bench.example).is_file()
    assert bench.unit in UNITS
    for case in (*bench.cases, *bench.quick_cases, *bench.host_cases({})):
        specs = bench.tensors(case)
        assert any(t.role != "in" for t in specs.values())
        assert all(t.role in ("in", "out", "inout") for t in specs.values())
        # Each input is read and each output written at least once.
        least = sum(t.bytes * (2 if t.role == "inout" else 1) for t in specs.values())
        assert bench.bytes(case) == least
        assert bench.flops(case) > 0


@pytest.mark.parametrize("bench", BENCHES, ids=NAMES)
def test_sizes(bench: Bench) -> None:
    """Large where it is timed (a memory-bound case must not fit into an L2 cache of 50 MB), small where emulated."""
    for case in bench.cases:
        if bench.bound == MEMORY:
            assert bench.bytes(case) > 4 * 50e6
    for case in bench.host_cases({}):
        assert bench.flops(case) < 2e6


def test_cases_of_the_protocol() -> None:
    labels = {b.name: [c.label for c in b.cases] for b in BENCHES}
    assert labels["saxpy_fp32"] == ["67108864 f32"]
    assert labels["softmax_fp32"] == ["8192x8192 f32"]
    assert labels["gemm_fp32"] == ["M4096 N4096 K4096 f32"]
    assert labels["flash_fp32"] == ["B1 H1 M4096 N4096 D64 f32"]


def test_flop_counts() -> None:
    """GEMM 2 M N K, attention 4 M N D."""
    count = {b.name: b.flops(b.cases[0]) for b in BENCHES}
    assert count["gemm_fp32"] == 2 * 4096**3
    assert count["flash_fp32"] == 4 * 4096 * 4096 * 64
    assert {b.name: b.bound for b in BENCHES} == {
        "saxpy_fp32": MEMORY,
        "softmax_fp32": MEMORY,
        "gemm_fp32": COMPUTE,
        "flash_fp32": COMPUTE,
    }


def test_arguments_are_random_and_outputs_poisoned() -> None:
    bench = get_bench("softmax_fp32")
    tensors, expected = arguments_and_oracle(bench, bench.host_cases({})[0])
    assert np.isnan(tensors["Y"]).all() and np.isfinite(expected["Y"]).all()
    assert 0.5 < tensors["X"].std() < 1.5
    np.testing.assert_allclose(expected["Y"].sum(axis=1), 1.0)


def test_gemm_tests_beta() -> None:
    bench = get_bench("gemm_fp32")
    tensors, expected = arguments_and_oracle(bench, bench.host_cases({})[1])
    product = tensors["A"].astype(float) @ tensors["B"].astype(float)
    assert np.abs(expected["C"] - 1.25 * product).max() > 0.1
    np.testing.assert_allclose(expected["C"] - 0.5 * tensors["C"], 1.25 * product)


def test_flash_oracle() -> None:
    """By a loop over rows, with Python's own exp."""
    bench = get_bench("flash_fp32")
    tensors, expected = arguments_and_oracle(bench, bench.host_cases({})[0])
    q, k, v = (tensors[n].astype(float) for n in "QKV")
    for i in (0, 7):
        scores = [sum(q[i, d] * k[j, d] for d in range(q.shape[1])) * 0.125 for j in range(len(k))]
        weights = [math.exp(s) for s in scores]
        row = sum(w * v[j] for j, w in enumerate(weights)) / sum(weights)
        np.testing.assert_allclose(expected["O"][i], row, rtol=1e-9)


def test_bf16_arrays_are_bits_rounded_to_nearest_even() -> None:
    spec = Tensor(shape=(1000,), dtype="f32")
    exact = random_array(spec, 5).astype(float)
    bits = random_array(Tensor(shape=(1000,), dtype="bf16"), 5)
    assert bits.dtype == np.uint16
    assert np.abs(to_float64(bits, "bf16") - exact).max() <= np.abs(exact).max() * 2**-8
    low = random_array(Tensor(shape=(100,), dtype="f32", low=-3.0, high=-1.0), 1)
    assert low.min() >= -3 and low.max() <= -1


def test_a_bad_definition_is_refused() -> None:
    import dataclasses

    bench = get_bench("saxpy_fp32")
    with pytest.raises(ValueError, match="bound"):
        dataclasses.replace(bench, bound="latency")
    with pytest.raises(ValueError, match="tolerance"):
        dataclasses.replace(bench, tolerance={"f16": 1e-3})
    with pytest.raises(KeyError):
        get_bench("os")
