"""The way of the paraphrases through verification, timing and rows, on a device made of NumPy arrays; kernels run on
the reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kbench import paraphrases
from kbench.bench import Case, Tensor
from kbench.device import random_array
from kbench.paraphrases import PARAPHRASES, Paraphrase, cases, originals, permuted, run_case
from kbench.protocol import Call, Plan
from kbench.roofline import DeviceInfo

PLAN = Plan(warmup_calls=1, warmup_seconds=0.0, rounds=3, calls=1, graph_below_us=0.0)


class ArrayDevice:
    """NumPy arrays. A call takes 100 us; one of the third implementation that is timed takes `slow` seconds."""

    info = DeviceInfo(
        name="test device", capability=(9, 0), sm_count=1, clock_hz=1e9, l2_bytes=1 << 20, driver="580", cuda="13.0"
    )
    backend = "reference"
    torch: Any = None
    xp: Any = np

    def __init__(self, slow: float = 100e-6):
        self.slow = slow
        self.seen: list[Call] = []

    def random(self, spec: Tensor, seed: int) -> Any:
        return random_array(spec, seed)

    def clone(self, buffer: Any) -> Any:
        return buffer.copy()

    def poison(self, buffer: Any) -> None:
        buffer.fill(np.nan)

    def float64(self, buffer: Any) -> Any:
        return buffer.astype(np.float64)

    def copy_call(self, bytes_moved: int) -> Call:
        return lambda: None

    def finish(self) -> None:
        return None

    def elapsed(self, calls: Sequence[Call]) -> float:
        self.seen.extend(call for call in calls if call not in self.seen)
        slow = calls[0] in self.seen[2:3]
        return len(calls) * (self.slow if slow else 100e-6)

    def capture(self, calls: Sequence[Call]) -> Call | None:
        return None


def small(name: str) -> tuple[Any, Case]:
    bench = originals()[name]
    return bench, bench.host_cases({})[1]


@pytest.mark.parametrize("name", list(originals()))
def test_a_case(name: str) -> None:
    bench, case = small(name)
    said: list[str] = []
    rows, good = run_case(bench, case, ArrayDevice(), plan=PLAN, config={}, say=said.append)
    assert good, "\n".join(said)
    assert [row.impl for row in rows] == [p.name for p in PARAPHRASES if p.original == name]
    for row in rows:
        assert (row.bench, row.case, row.peer, row.ratio) == ("paraphrases", f"{name} {case.label}", "original", 1.0)
        assert row.rel_l2 < bench.tolerance["ieee"] and row.peer_median_us == pytest.approx(100.0)
        assert row.spills == 0 and row.device == "test device"


def test_one_that_is_too_slow() -> None:
    bench, case = small("gemm_fp16")
    rows, good = run_case(bench, case, ArrayDevice(slow=104e-6), plan=PLAN, config={}, say=lambda text: None)
    slow = [row for row in rows if paraphrases.too_slow(row)]
    assert not good and [(row.impl, row.ratio) for row in slow] == [("p2 split", pytest.approx(100 / 104))]
    assert "TOO SLOW" in paraphrases._line(slow[0])
    rows, good = run_case(bench, case, ArrayDevice(slow=103e-6), plan=PLAN, config={}, say=lambda text: None)
    assert good and min(row.ratio or 0 for row in rows) == pytest.approx(100 / 103)


def test_one_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, case = small("gemm_fp16")
    wrong = Paraphrase(original="gemm_fp16", name="p4", file="gemm_p4_epilogue.ph", extra=paraphrases._bias_and_scale)
    monkeypatch.setattr(paraphrases, "PARAPHRASES", (wrong, PARAPHRASES[0]))
    said: list[str] = []
    rows, good = run_case(bench, case, ArrayDevice(), plan=PLAN, config={}, say=said.append)
    assert not good and [row.impl for row in rows] == ["p1 renamed"]
    assert any("WRONG" in text for text in said)


def test_what_is_timed_on_a_device() -> None:
    assert {name: [case.label for _, case in cases(name, quick=False)] for name in originals()} == {
        "gemm_fp16": ["M4096 N4096 K4096 f16"],
        "attention": ["B4 H12 M2048 N2048 D64 f16", "B4 H12 M2048 N2048 D128 f16", "B4 H12 M2048 N2048 D64 f16 causal"],
    }
    for name in originals():
        for bench, case in cases(name, quick=False):
            assert bench.name == name and bool(case.consts.get("causal")) == ("causal" in case.label)


def test_views() -> None:
    stored = np.arange(24).reshape(2, 3, 4)
    view = permuted(stored, (1, 2, 0))  # stored axis 0 is axis 1 of the view, and so on
    assert view.shape == (4, 2, 3) and all(view[c, a, b] == stored[a, b, c] for a, b, c in np.ndindex(2, 3, 4))

    class Memory:
        shape, dtype = (2, 3, 4), np.dtype(np.int64)
        __cuda_array_interface__ = {"version": 3, "data": (77, False), "shape": (2, 3, 4), "strides": None}

    interface = permuted(Memory(), (1, 2, 0)).__cuda_array_interface__
    assert (interface["strides"], interface["shape"], interface["data"]) == (view.strides, view.shape, (77, False))


@pytest.mark.parametrize("arguments", [["--original", "attenton"], ["--autotune", "BM"], ["--nothing"]])
def test_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(paraphrases.command, arguments)
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paraphrases, "open_device", ArrayDevice)
    monkeypatch.setattr(paraphrases, "FULL", PLAN)
    monkeypatch.setattr(paraphrases, "cases", lambda name, quick: [small(name)])
    out = tmp_path / "h200"
    result = CliRunner().invoke(paraphrases.command, ["--out", str(out), "--original", "gemm_fp16"])
    assert result.exit_code == 0, result.output
    rows = json.loads((out / "paraphrases.json").read_text())
    assert [(row["impl"], row["peer"]) for row in rows] == [
        (p.name, "original") for p in PARAPHRASES if p.original == "gemm_fp16"
    ]
    arguments = ["--quick", "--out", str(tmp_path / "no"), "--original", "gemm_fp16"]
    quick = CliRunner().invoke(paraphrases.command, arguments)
    assert quick.exit_code == 0 and not (tmp_path / "no").exists()


def test_the_command_without_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from phobos.diagnostics import Diagnostic, LaunchError

    def none() -> None:
        raise LaunchError(Diagnostic(code="PH0920", message="no CUDA driver on this machine"))

    monkeypatch.setattr(paraphrases, "open_device", none)
    result = CliRunner().invoke(paraphrases.command, [])
    assert result.exit_code == 1 and result.stderr.startswith("error[PH0920]") and "Traceback" not in result.output
    (tmp_path / "paraphrases.json").write_text("{}")
    result = CliRunner().invoke(paraphrases.command, ["--out", str(tmp_path)])
    assert result.exit_code == 1 and result.stderr.startswith("error[PH1030]")  # before anything else
