"""The fixed formats of results, and how files are merged."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbench.results import (
    CSV_COLUMNS,
    CsvRow,
    Row,
    merged_csv,
    merged_json,
    merged_search,
    read_old,
    table,
    write_new,
)
from phobos.diagnostics import CompileError
from phobos.tuning.result import Outcome, SearchResult

FIXED = (
    "bench", "case", "impl", "peer", "ratio", "median_us", "min_us", "max_us", "peak", "pct_of_peak", "rel_l2",
    "max_abs", "config", "searched", "spills", "device", "driver", "cuda", "torch", "commit", "date",
)  # fmt: skip

ROW = Row(
    bench="gemm_fp32",
    case="M4096 N4096 K4096 f32",
    impl="phobos",
    peer="cublas",
    ratio=0.75,
    median_us=4000.0,
    min_us=3990.0,
    max_us=4100.0,
    tflops=34.4,
    gbps=None,
    peak=66.9,
    unit="fp32",
    pct_of_peak=51.4,
    rel_l2=3e-7,
    max_abs=1e-4,
    mean_abs=1e-5,
    rmse=2e-5,
    config={"BM": 128},
    searched=False,
    spills=0,
    registers=128,
    peer_median_us=3000.0,
    device="NVIDIA H200",
    driver="580.159",
    cuda="13.0",
    torch="2.11",
    commit="abc",
    date="2026-11-29",
)


def test_a_row_has_the_fixed_fields() -> None:
    item = json.loads(merged_json(None, [ROW]))[0]
    assert set(FIXED) <= set(item)
    assert "tflops" in item and "gbps" not in item
    item = json.loads(merged_json(None, [replace(ROW, tflops=None, gbps=4000.0)]))[0]
    assert "gbps" in item and "tflops" not in item


def test_what_is_no_number_is_written_as_json_has_it() -> None:
    text = merged_json(None, [replace(ROW, ratio=float("inf"))])
    found = json.loads(merged_json(text, [replace(ROW, case="x", peak=float("nan"))]), parse_constant=pytest.fail)
    assert [(r["ratio"], r["peak"]) for r in found] == [("inf", 66.9), (0.75, "nan")]


def test_rows_replace_those_of_the_same_key() -> None:
    old = merged_json(None, [ROW, replace(ROW, case="M64 N64 K64 f32")])
    new = json.loads(merged_json(old, [replace(ROW, median_us=3500.0), replace(ROW, peer="torch")]))
    assert [(r["case"], r["peer"], r["median_us"]) for r in new] == [
        ("M4096 N4096 K4096 f32", "cublas", 3500.0),
        ("M64 N64 K64 f32", "cublas", 4000.0),
        ("M4096 N4096 K4096 f32", "torch", 4000.0),
    ]


def test_a_searched_configuration_stands_beside_the_default() -> None:
    both = json.loads(merged_json(merged_json(None, [ROW]), [replace(ROW, searched=not ROW.searched, median_us=1.0)]))
    assert [(r["searched"], r["median_us"]) for r in both] == [(ROW.searched, 4000.0), (not ROW.searched, 1.0)]


@pytest.mark.parametrize("text", ["{", "{}", "{}x", '[{"bench": 1}]', "[1]", "3", "[" * 100000, "9" * 5000])
def test_a_file_of_something_else_is_not_overwritten(text: str) -> None:
    with pytest.raises(CompileError) as e:
        merged_json(text, [ROW], "results/x.json")
    assert e.value.diagnostics[0].code == "PH1030"
    for old in ("a,b\n1,2\n", "\n", "a" * 200000, '"open', f'{",".join(CSV_COLUMNS)}\n"a"b,,,,,\n', text):
        with pytest.raises(CompileError) as e:
            merged_csv(old, [], "x.csv")
        assert e.value.diagnostics[0].code == "PH1030"


def test_csv() -> None:
    ours = CsvRow(
        benchmark="gemm_fp32", impl="phobos", precision="fp32", gflops=34359.7, peak_gflops=66908.2, pct_of_peak=51.35
    )
    text = merged_csv(None, [ours, replace(ours, impl="cublas", peak_gflops=None, pct_of_peak=None)])
    assert text.splitlines()[0] == "benchmark,impl,precision,gflops,peak_gflops,pct_of_peak"
    assert list(csv.DictReader(io.StringIO(text)))[1] == dict(
        zip(CSV_COLUMNS, ["gemm_fp32", "cublas", "fp32", "34359.7", "", ""], strict=True)
    )
    again = merged_csv(text, [replace(ours, gflops=40000.0), replace(ours, benchmark="flash_fp32")])
    assert [line.split(",")[:2] + line.split(",")[3:4] for line in again.splitlines()[1:]] == [
        ["gemm_fp32", "phobos", "40000.0"],
        ["gemm_fp32", "cublas", "34359.7"],
        ["flash_fp32", "phobos", "34359.7"],
    ]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "h200" / "gemm_fp32.json"
    assert read_old(path) is None
    write_new(path, merged_json(read_old(path), [ROW]))
    write_new(path, merged_json(read_old(path), [replace(ROW, peer="torch")]))
    assert len(json.loads(path.read_text())) == 2
    assert [p.name for p in path.parent.iterdir()] == ["gemm_fp32.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match="PH1031"):
        write_new(tmp_path / "file" / "x.json", "")
    with pytest.raises(CompileError, match="PH1031"):
        read_old(tmp_path)


def test_table_aligns_numbers_to_the_right() -> None:
    assert table(("bench", "us"), [("a", "1.5"), ("bcd", "-100.5")]).splitlines() == [
        "bench  us",
        "a         1.5",
        "bcd    -100.5",
    ]


def test_search_logs_are_merged_by_case() -> None:
    def log(microseconds: float) -> SearchResult:
        timed = Outcome(config={"BR": 4}, status="timed", microseconds=microseconds, launches=5)
        skipped = Outcome(config={"BR": 8}, status="skipped", stage="fit", reason="too large")
        return SearchResult(
            kernel="k", device="d", capability=(9, 0), dims={"N": 4}, dtypes={}, consts={}, pins={}, best={"BR": 4},
            microseconds=microseconds, complete=True, interrupted=False, limit=None, space_size=2, reference="r",
            seconds=1.0, date="2026-01-01", compiler="c", outcomes=(timed, skipped),
        )  # fmt: skip

    first = merged_search(None, {"a": log(1.0), "b": log(2.0)}, "x.json")
    second = json.loads(merged_search(first, {"b": log(3.0)}, "x.json"))
    assert {case: data["microseconds"] for case, data in second.items()} == {"a": 1.0, "b": 3.0}
    skipped = second["a"]["outcomes"][1]
    assert skipped == {"config": {"BR": 8}, "status": "skipped", "stage": "fit", "reason": "too large"}
    for wrong in ("[]", "{", "3", '{"a":' * 100000):
        with pytest.raises(CompileError, match="PH1030"):
            merged_search(wrong, {"a": log(1.0)}, "x.json")
