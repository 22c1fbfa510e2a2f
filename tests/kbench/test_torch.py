"""Oracles and peers through torch, on its CPU device (skipped where torch is not installed)."""

from __future__ import annotations

import numpy as np
import pytest

from kbench.bench import Bench, PeerInput
from kbench.benches import NAMES, get_bench
from kbench.host import arguments_and_oracle
from phobos.norms import error_norms

torch = pytest.importorskip("torch")
BENCHES = [get_bench(n) for n in NAMES]


@pytest.mark.parametrize("bench", BENCHES, ids=NAMES)
def test_the_oracle_is_the_same_in_torch(bench: Bench) -> None:
    case = bench.host_cases({})[-1]
    tensors, expected = arguments_and_oracle(bench, case)
    written = {n for n, t in bench.tensors(case).items() if t.role == "out"}
    wide = {n: torch.from_numpy(t.copy()).double() for n, t in tensors.items() if n not in written}
    found = bench.oracle(torch, wide, bench.scalars(case))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bench", BENCHES, ids=NAMES)
def test_peers_compute_the_same(bench: Bench) -> None:
    case = bench.host_cases({})[0]
    _, expected = arguments_and_oracle(bench, case)
    for peer in bench.peers:
        tensors, _ = arguments_and_oracle(bench, case)
        given = PeerInput(
            torch=torch,
            tensors={n: torch.from_numpy(t) for n, t in tensors.items()},
            scalars=bench.scalars(case),
            bytes=bench.bytes(case),
        )
        prepared = peer.prepare(given)
        prepared.call()
        assert set(prepared.outputs) == (set() if peer.name == "copy" else set(expected))
        for name, out in prepared.outputs.items():
            assert error_norms(out.double(), torch.from_numpy(expected[name])).within(1e-5)
