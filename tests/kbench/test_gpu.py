"""The way of a case through verification, timing and rows, on a device made of NumPy arrays (or of torch's CPU
tensors) and a clock of fixed steps; kernels run on the reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from array_device import ArrayDevice, small

from kbench import gpu
from kbench.bench import Bench, Peer, Prepared, Tensor
from kbench.benches import NAMES, get_benches
from kbench.device import random_array
from kbench.protocol import Plan
from kbench.roofline import Peaks
from phobos.kernel import Kernel
from phobos.tuning.result import Outcome, SearchResult

PLAN = Plan(warmup_calls=1, warmup_seconds=0.0, rounds=3, calls=2, graph_below_us=0.0)
PEAKS = Peaks(flops={"fp32": 20e12, "fp16tcf32acc": 300e12}, copy_bytes=4e12)
BENCHES = [bench for name in NAMES for bench in get_benches(name)]
each_bench = pytest.mark.parametrize("bench", BENCHES, ids=lambda b: f"{b.name}-{b.cases[0].label}")


@each_bench
def test_a_case_without_torch(bench: Bench) -> None:
    case = bench.host_cases({})[0]
    found = gpu.run_case(bench, case, ArrayDevice(), PEAKS, config={}, plan=PLAN)
    assert found.good
    (row,) = found.rows
    assert (row.bench, row.case, row.impl, row.peer, row.ratio) == (bench.name, case.label, "phobos", None, None)
    assert (row.median_us, row.min_us, row.max_us) == pytest.approx((100.0, 100.0, 100.0))
    assert row.rel_l2 < max(bench.tolerance.values()) and row.config.items() >= dict(case.config).items()
    assert row.device == "test device" and row.driver == "580" and row.searched is False
    if bench.bound == "memory":
        assert row.gbps == pytest.approx(bench.bytes(case) / 100e-6 / 1e9) and row.tflops is None
        assert (row.peak, row.unit) == (pytest.approx(4000), "copy")
    else:
        assert row.tflops == pytest.approx(bench.flops(case) / 100e-6 / 1e12) and row.gbps is None
        assert (row.peak, row.unit) == (pytest.approx(PEAKS.flops[bench.unit] * 1e-12), bench.unit)
    (line,) = found.csv
    assert line.gflops == pytest.approx(bench.flops(case) / 100e-6 / 1e9)
    assert line.pct_of_peak == pytest.approx(row.pct_of_peak)
    assert any("no peer was timed" in n for n in found.notes)


def test_an_option_of_the_schedule_names_the_implementation() -> None:
    """The rows say so, and the kernel is another one: WMMA instead of the compiler's choice."""
    bench, case = small("gemm_fp16")
    said: list[str] = []
    found = gpu.run_case(
        bench, case, ArrayDevice(), PEAKS, config={}, plan=PLAN, options={"matmul": "wmma"}, say=said.append
    )
    assert found.good and {r.impl for r in found.rows} == {c.impl for c in found.csv} == {"phobos:wmma"}
    assert "products by wmma" in said[0]
    plain = gpu.run_case(bench, case, ArrayDevice(), PEAKS, config={}, plan=PLAN, say=said.append)
    assert {r.impl for r in plain.rows} == {"phobos"} and "products by mma" in said[1]


def test_rotation_exceeds_the_cache() -> None:
    """A memory-bound case gets as many sets as three times L2 holds, two at least; a compute-bound one gets one."""
    sizes: dict[str, int] = {}
    for name in ("saxpy_fp32", "gemm_fp32"):
        bench, case = small(name)
        sizes[name] = len(gpu._buffer_sets(bench, case, ArrayDevice()))
    assert sizes == {"saxpy_fp32": 96, "gemm_fp32": 1}  # 3 MiB over 32 KiB


def test_a_wrong_kernel_is_not_timed() -> None:
    bench, case = small("saxpy_fp32")
    wrong = dataclasses.replace(bench, oracle=lambda xp, t, s: {"Y": t["X"] + t["Y"]})
    found = gpu.run_case(wrong, case, ArrayDevice(), PEAKS, config={}, plan=PLAN)
    assert not found.good and found.rows == () and found.csv == ()
    assert "WRONG" in found.notes[0]


def test_a_poisoned_element_is_noticed() -> None:
    """A kernel that leaves the end of its output alone."""
    bench, case = small("softmax_fp32")

    class Short(ArrayDevice):
        def float64(self, buffer: Any) -> Any:
            out = buffer.astype(np.float64)
            if np.isfinite(out).all() and (out > 0).all():  # the output after the call
                out[-1, -1] = np.nan
            return out

    assert not gpu.run_case(bench, case, Short(), PEAKS, config={}, plan=PLAN).good


def test_above_the_peak_is_said() -> None:
    bench, case = small("gemm_fp32")
    found = gpu.run_case(bench, case, ArrayDevice(), Peaks(flops={"fp32": 1e9}), config={}, plan=PLAN)
    assert any("above 105 %" in n for n in found.notes)


def test_copy_rate() -> None:
    assert gpu.measured_copy_rate(ArrayDevice(), PLAN) == pytest.approx(2 * (1 << 30) / 100e-6)


def test_a_search_comes_first_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, case = small("saxpy_fp32")
    case = dataclasses.replace(case, config={})
    asked: list[dict[str, Any]] = []

    def search(kernel: Kernel, **arguments: Any) -> SearchResult:
        asked.append(arguments)
        timed = Outcome(config={"BN": 512}, status="timed", microseconds=7.5, launches=5)
        skipped = Outcome(config={"BN": 256}, status="skipped", stage="verify", reason="wrong")
        return SearchResult(
            kernel="saxpy", device="d", capability=(9, 0), dims={}, dtypes={}, consts={}, pins={}, best={"BN": 512},
            microseconds=7.5, complete=True, interrupted=False, limit=None, space_size=2, reference="r", seconds=1.0,
            date="2026-01-01", compiler="c", outcomes=(timed, skipped),
        )  # fmt: skip

    monkeypatch.setattr(Kernel, "search", search)
    said: list[str] = []
    found = gpu.run_case(
        bench, case, ArrayDevice(), PEAKS, config={}, plan=PLAN, search=True, fresh=True, say=said.append
    )
    assert found.good and found.search is not None
    (row,) = found.rows
    assert row.config == {"BN": 512} and row.searched
    assert asked[0].keys() == {"X", "Y", "a", "config", "backend", "fresh"} and asked[0]["fresh"]
    assert "BN=512: timed 7.50 us" in said[0] and "BN=256: skipped (verify): wrong" in said[0]


class TorchCpuDevice(ArrayDevice):
    def __init__(self, torch: Any):
        self.torch = self.xp = torch

    def random(self, spec: Tensor, seed: int) -> Any:
        array = random_array(spec, seed)
        if spec.dtype == "bf16":
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def clone(self, buffer: Any) -> Any:
        return buffer.clone()

    def poison(self, buffer: Any) -> None:
        buffer.fill_(float("nan"))

    def float64(self, buffer: Any) -> Any:
        return buffer.double()


@each_bench
def test_a_case_beside_its_peers(bench: Bench) -> None:
    torch = pytest.importorskip("torch")
    case = bench.host_cases({})[0]
    if case.consts.get("causal"):  # torch lines up the first query with the first key: as many of both
        case = dataclasses.replace(case, dims={**case.dims, "N": case.dims["M"]})
    found = gpu.run_case(bench, case, TorchCpuDevice(torch), PEAKS, config={}, plan=PLAN)
    assert found.good, found.notes
    peers = [p.name for p in bench.peers if p.name not in ("cudnn", "mem_efficient")]  # which the CPU lacks
    assert [r.peer for r in found.rows] == (peers or [None])
    assert all(r.ratio == pytest.approx(1.0) and r.peer_median_us == pytest.approx(100.0) for r in found.rows if peers)
    assert [c.impl for c in found.csv] == ["phobos", *(name for name in peers if name != "copy")]
    for name in ("cudnn", "mem_efficient"):
        said = any(f"peer {name} cannot run" in note for note in found.notes)
        assert said == (name in [p.name for p in bench.peers])


def test_a_peer_that_differs_is_not_timed() -> None:
    torch = pytest.importorskip("torch")
    bench, case = small("saxpy_fp32")
    lazy = Peer(name="lazy", prepare=lambda given: Prepared(call=lambda: None, outputs={"Y": given.tensors["Y"]}))
    found = gpu.run_case(
        dataclasses.replace(bench, peers=(lazy, *bench.peers)), case, TorchCpuDevice(torch), PEAKS, config={}, plan=PLAN
    )
    assert not found.good and "lazy" not in [r.peer for r in found.rows] and len(found.rows) == 2
