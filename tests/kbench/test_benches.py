"""The definitions of the benches: consistent with their kernels and with themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kbench import attention
from kbench.bench import COMPUTE, MEMORY, Bench, Tensor
from kbench.benches import NAMES, get_bench, get_benches
from kbench.device import random_array
from kbench.host import arguments_and_oracle, to_float64
from kbench.roofline import UNITS
from phobos import resources

BENCHES = [bench for name in NAMES for bench in get_benches(name)]
each_bench = pytest.mark.parametrize("bench", BENCHES, ids=lambda b: f"{b.name}-{b.cases[0].label}")


@each_bench
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


@each_bench
def test_sizes(bench: Bench) -> None:
    """Large where it is timed (a memory-bound case must not fit into an L2 cache of 50 MB), small where emulated."""
    for case in bench.cases:
        if bench.bound == MEMORY:
            assert bench.bytes(case) > 4 * 50e6
    for case in bench.host_cases({}):
        assert bench.flops(case) < 2e6


def test_cases_of_the_protocol() -> None:
    labels = {n: [c.label for b in get_benches(n) for c in b.cases] for n in NAMES}
    assert labels["saxpy_fp32"] == ["67108864 f32"]
    assert labels["softmax_fp32"] == ["8192x8192 f32"]
    assert labels["layernorm_fp32"] == ["8192x8192 f32"]
    assert labels["gemm_fp32"] == ["M4096 N4096 K4096 f32"]
    for name, dtype in (("gemm_fp16", "f16"), ("gemm_bf16", "bf16"), ("gemm_fp16tc_fp32acc", "f32")):
        assert labels[name] == [f"M{n} N{n} K{n} {dtype}" for n in (4096, 8192)]
    assert labels["flash_fp32"] == ["B1 H1 M4096 N4096 D64 f32"]
    assert labels["flash_fp16"] == ["B1 H1 M4096 N4096 D64 f16"]
    assert set(labels["attention"]) == {
        *(f"B4 H12 M{n} N{n} D64 {dtype}" for n in (512, 1024, 2048) for dtype in ("f16", "f32")),
        "B4 H12 M2048 N2048 D64 bf16",
        "B4 H12 M2048 N2048 D64 f16 causal",
        "B4 H12 M2048 N2048 D128 f16",
        "B4 H12 M2048 N2048 D128 f16 causal",
        "B4 H16 M8192 N8192 D64 f16",
        "B4 H16 M8192 N8192 D128 f16",
        "B4 H16 M8192 N8192 D128 f16 causal",
    }
    for name in NAMES:
        assert len(set(labels[name])) == len(labels[name])


def test_one_line_of_the_table_for_each_precision() -> None:
    lines = [(b.name, b.precision) for b in BENCHES if b.in_table]
    assert len(set(lines)) == len(lines)
    assert {name for name, _ in lines} == set(NAMES)


def test_flop_counts() -> None:
    """GEMM 2 M N K, attention 4 B H M N D, half of it if causal."""
    count = {b.name: b.flops(b.cases[0]) for b in BENCHES if b.in_table}
    assert count["gemm_fp32"] == 2 * 4096**3
    assert count["flash_fp32"] == 4 * 4096 * 4096 * 64
    attention = {c.label: b.flops(c) for b in get_benches("attention") for c in b.cases}
    assert attention["B4 H12 M2048 N2048 D64 f16"] == 4 * 4 * 12 * 2048**2 * 64
    assert attention["B4 H12 M2048 N2048 D64 f16 causal"] == 2 * 4 * 12 * 2048**2 * 64
    memory = {"saxpy_fp32", "softmax_fp32", "layernorm_fp32"}
    assert {b.name: b.bound for b in BENCHES} == {n: MEMORY if n in memory else COMPUTE for n in NAMES}


def test_units_are_those_that_the_kernels_use() -> None:
    """f32 products of one kernel run on tensor cores and are rated by f32's peak, as the seed does."""
    units = {(b.name, b.precision): b.unit for b in BENCHES}
    half = {("gemm_fp16", "fp16"), ("gemm_bf16", "bf16"), ("gemm_fp16tc_fp32acc", "fp16tc_fp32acc")}
    half |= {("flash_fp16", "fp16"), ("attention", "fp16"), ("attention", "bf16")}
    assert {key for key, unit in units.items() if unit == "fp16tcf32acc"} == half
    assert set(units.values()) == {"fp16tcf32acc", "fp32"}


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


@pytest.mark.parametrize("name", ["gemm_fp16", "gemm_bf16", "gemm_fp16tc_fp32acc"])
def test_all_matrix_products_test_beta(name: str) -> None:
    bench = get_bench(name)
    case = bench.host_cases({})[0]
    tensors, expected = arguments_and_oracle(bench, case)
    a, b, c = (to_float64(tensors[n], bench.tensors(case)[n].dtype) for n in "ABC")
    np.testing.assert_allclose(expected["C"], 1.25 * (a @ b) + 0.5 * c)
    assert bench.scalars(case) == {"alpha": 1.25, "beta": 0.5} and np.abs(c).max() > 1


@pytest.mark.parametrize("causal", [False, True])
def test_attention_oracle(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By loops over batches, heads and rows, with two query heads on a key head; a few rows of scores at a time."""
    bench = get_benches("attention")[causal]
    case = bench.host_cases({})[1]
    monkeypatch.setattr(attention, "_MOST_SCORES", 3 * case.dims["N"])
    tensors, expected = arguments_and_oracle(bench, case)
    q, k, v = (tensors[n].astype(float) for n in "QKV")
    assert (q.shape[1], k.shape[1]) == (4, 2)
    scale, m, n = bench.scalars(case)["scale"], case.dims["M"], case.dims["N"]
    for h, i in ((0, 0), (1, m - 1), (2, 7), (3, 8)):
        keys = range(i + n - m + 1 if causal else n)
        weights = [math.exp(float(q[0, h, i] @ k[0, h // 2, j]) * scale) for j in keys]
        row = sum(w * v[0, h // 2, j] for w, j in zip(weights, keys, strict=True)) / sum(weights)
        np.testing.assert_allclose(expected["O"][0, h, i], row, rtol=1e-9)


def test_linear_attention_oracle() -> None:
    """By the sum over all earlier keys, each weighed with the gates between."""
    bench = get_bench("kda_fp32")
    tensors, expected = arguments_and_oracle(bench, bench.host_cases({})[1])
    q, k, v, g = (tensors[n].astype(float) for n in "QKVG")
    assert -0.2 <= g.min() < g.max() <= 0.0
    for i in (0, 1, 40):
        row = sum(math.exp(g[j + 1 : i + 1, 0].sum()) * (q[i] @ k[j]) * v[j] for j in range(i + 1))
        np.testing.assert_allclose(expected["O"][i], 0.25 * row, rtol=1e-9, atol=1e-12)


def test_layernorm_oracle() -> None:
    bench = get_bench("layernorm_fp32")
    tensors, expected = arguments_and_oracle(bench, bench.host_cases({})[1])
    normal = (expected["Y"] - tensors["beta"]) / tensors["gamma"]
    np.testing.assert_allclose(normal.mean(axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(normal.std(axis=1), 1.0, atol=1e-4)


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
