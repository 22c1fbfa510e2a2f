"""Oracles and peers through torch, on its CPU device (skipped where torch is not installed)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from kbench.bench import Bench, PeerInput
from kbench.benches import NAMES, get_benches
from kbench.host import arguments_and_oracle, to_float64
from kbench.peers import sdpa
from phobos.norms import error_norms

torch = pytest.importorskip("torch")
BENCHES = [bench for name in NAMES for bench in get_benches(name)]
each_bench = pytest.mark.parametrize("bench", BENCHES, ids=lambda b: f"{b.name}-{b.cases[0].label}")


def as_torch(array: np.ndarray, dtype: str) -> Any:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(array)


@each_bench
def test_the_oracle_is_the_same_in_torch(bench: Bench) -> None:
    case = bench.host_cases({})[-1]
    tensors, expected = arguments_and_oracle(bench, case)
    specs = bench.tensors(case)
    inputs = [n for n, t in specs.items() if t.role != "out"]
    wide = {n: torch.from_numpy(to_float64(tensors[n], specs[n].dtype)) for n in inputs}
    found = bench.oracle(torch, wide, bench.scalars(case))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-12, atol=1e-12)


# Peers that torch has on a CUDA device only.
_NOT_ON_CPU = ("cudnn", "mem_efficient")


@each_bench
def test_peers_compute_the_same(bench: Bench) -> None:
    case = bench.host_cases({})[0]
    if case.consts.get("causal"):  # torch lines up the first query with the first key: as many of both
        case = dataclasses.replace(case, dims={**case.dims, "N": case.dims["M"]})
    _, expected = arguments_and_oracle(bench, case)
    tolerance = 10 * max(bench.tolerance.values())
    for peer in bench.peers:
        if peer.name in _NOT_ON_CPU:
            continue
        tensors, _ = arguments_and_oracle(bench, case)
        given = PeerInput(
            torch=torch,
            tensors={n: as_torch(t, bench.tensors(case)[n].dtype) for n, t in tensors.items()},
            scalars=bench.scalars(case),
            bytes=bench.bytes(case),
        )
        prepared = peer.prepare(given)
        prepared.call()
        assert set(prepared.outputs) == (set() if peer.name == "copy" else set(expected))
        for name, out in prepared.outputs.items():
            assert error_norms(out.double(), torch.from_numpy(expected[name])).within(tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_grouped_heads(causal: bool) -> None:
    """Torch groups heads as the benches do."""
    bench = get_benches("attention")[causal]
    case = bench.host_cases({})[1]
    case = dataclasses.replace(case, dims={**case.dims, "N": case.dims["M"]})
    assert case.dims["H"] != case.dims["HK"]
    tensors, expected = arguments_and_oracle(bench, case)
    wide = {n: as_torch(t, "f16").float() for n, t in tensors.items()}
    given = PeerInput(torch=torch, tensors=wide, scalars=bench.scalars(case), bytes=0.0)
    prepared = sdpa("math", "MATH", causal=causal).prepare(given)
    for _ in range(2):  # a backend is pinned for each call anew
        prepared.call()
    assert error_norms(prepared.outputs["O"].double(), torch.from_numpy(expected["O"])).within(1e-5)
