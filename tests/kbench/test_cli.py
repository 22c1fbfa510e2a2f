"""`phobos kbench` on a machine without a GPU, and with one made up."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kbench import cli as kbench_cli
from kbench import device, gpu, host
from kbench.bench import Bench, Case
from kbench.benches import NAMES, get_benches
from kbench.protocol import Timing
from kbench.results import CSV_COLUMNS
from kbench.roofline import DeviceInfo, Peaks
from kbench.variant import Variant
from phobos import settings
from phobos.cli import cli
from phobos.diagnostics import CompileError, Diagnostic, LaunchError
from phobos.norms import ErrorNorms
from phobos.runtime import module
from phobos.tuning.result import SearchResult

needs_compiler = pytest.mark.skipif(shutil.which(settings.host_compiler()) is None, reason="no C++ compiler")


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise LaunchError(Diagnostic(code="PH0920", message="no CUDA driver"))

    monkeypatch.setattr(module, "get_driver", fail)


def kbench(*args: str) -> Result:
    result = CliRunner().invoke(cli, ["kbench", *args])
    assert "Traceback" not in result.output
    return result


def test_list() -> None:
    lines = kbench("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert all("rated by" in line and "peers:" in line for line in lines)


def test_the_list_is_selected() -> None:
    lines = kbench("--list", "--bench", "gemm_fp16", "--bench", "saxpy_fp32").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["gemm_fp16", "saxpy_fp32"]
    (line,) = kbench("--list", "--bench", "gemm_fp16", "--case", "8192").stdout.splitlines()
    assert "M8192" in line and "M4096" not in line
    assert kbench("--list", "--bench", "sapxy").exit_code == 2 and kbench("--list", "--case", "zz").exit_code == 2


@needs_compiler
@pytest.mark.usefixtures("no_device")
def test_without_a_device_everything_is_checked_and_nothing_timed() -> None:
    result = kbench()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    checked = [line for line in lines[1:] if line.startswith(NAMES)]
    assert len(checked) == sum(2 * len(b.host_cases({})) for n in NAMES for b in get_benches(n))
    assert all(line.endswith(" ok") for line in checked)
    assert "nothing was timed" in lines[-1]


@pytest.mark.usefixtures("no_device")
def test_json(tmp_path: Path) -> None:
    result = kbench("--bench", "saxpy_fp32", "--bench", "gemm_fp32", "--backend", "reference", "--json")
    rows = json.loads(result.stdout)
    assert [r["bench"] for r in rows] == ["saxpy_fp32"] * 2 + ["gemm_fp32"] * 2
    assert all(r["ok"] and r["median_us"] is None and r["backend"] == "reference" for r in rows)
    assert "nothing was timed" in result.stderr
    path = tmp_path / "x" / "rows.json"
    assert kbench("--bench", "saxpy_fp32", "--backend", "reference", "--json", str(path)).exit_code == 0
    assert len(json.loads(path.read_text())) == 2
    assert kbench("--bench", "gemm_fp32", "--backend", "reference", "--json", str(path)).exit_code == 0
    again = ("--bench", "saxpy_fp32", "--backend", "reference", "--json", str(path))
    assert kbench(*again).exit_code == 0  # merged
    assert [r["bench"] for r in json.loads(path.read_text())] == ["saxpy_fp32"] * 2 + ["gemm_fp32"] * 2


@pytest.mark.usefixtures("no_device")
def test_checks_without_a_device_overwrite_no_measured_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("something ran")

    monkeypatch.setattr(host, "check_case", never)
    kept = Path(__file__).resolve().parents[2] / "results" / "h200" / "gemm_fp32.json"
    path = tmp_path / "rows.json"
    for text in (kept.read_text(), "{}", "[" * 100000, '[{"bench": 1}]'):
        path.write_text(text)
        result = kbench("--bench", "saxpy_fp32", "--backend", "reference", "--json", str(path))
        assert result.exit_code == 1 and "error[PH1030]" in result.stderr and path.read_text() == text


@pytest.mark.parametrize("device", [True, False])
def test_two_outputs_are_not_one_file(
    device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peaks_seen: list[Peaks]
) -> None:
    monkeypatch.setattr(kbench_cli, "_on_gpu", lambda backend: device)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "old.json").write_text("[]")
    (tmp_path / "link.json").symlink_to("old.json")
    same = [("x", "x"), ("x", "./x"), ("x", str(tmp_path / "x")), ("here/x", "x"), ("link.json", "old.json")]
    for csv, json_path in same:
        result = kbench("--bench", "saxpy_fp32", "--csv", csv, "--json", json_path)
        assert result.exit_code == 1 and "error[PH1007]" in result.stderr, (csv, json_path)
    for option, path in (
        ("--json", "r/h/saxpy_fp32.json"), ("--json", "r/results.csv"), ("--csv", "r/h/../results.csv"),
    ):  # fmt: skip
        result = kbench("--bench", "saxpy_fp32", option, path, "--out", "r/h")
        assert result.exit_code == 1 and "error[PH1007]" in result.stderr, path
    assert not peaks_seen and sorted(p.name for p in tmp_path.iterdir()) == ["here", "link.json", "old.json"]


def test_paths_are_looked_at_before_anything_is_timed(tmp_path: Path, peaks_seen: list[Peaks]) -> None:
    (tmp_path / "file").write_text("something else")
    (tmp_path / "deep").write_text("[" * 100000)
    (tmp_path / "bytes").write_bytes(b"\0\xff")
    (tmp_path / "nul").write_text("benchmark,impl\0")
    wrong = [
        ("--json", tmp_path), ("--csv", tmp_path), ("--json", tmp_path / "file" / "x.json"),
        ("--csv", tmp_path / "file" / "x.csv"), ("--json", tmp_path / "file"), ("--csv", tmp_path / "file"),
        ("--json", tmp_path / "deep"), ("--csv", tmp_path / "deep"), ("--json", tmp_path / "bytes"),
        ("--csv", tmp_path / "bytes"), ("--csv", tmp_path / "nul"), ("--out", tmp_path / "file"),
    ]  # fmt: skip
    for option, path in wrong:
        result = kbench("--bench", "gemm_fp32", option, str(path))
        assert result.exit_code == 1 and "error[PH103" in result.stderr, (option, path)
    assert not peaks_seen


def test_one_output_that_fails_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peaks_seen: list[Peaks]
) -> None:
    """Files that become unusable while cases run."""
    run_case = gpu.run_case

    def spoils(bench: Bench, case: Case, *args: Any, **options: Any) -> gpu.Outcome:
        for name in ("rows.json", "out/gemm_fp16.json"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("{}")
        return run_case(bench, case, *args, **options)

    monkeypatch.setattr(gpu, "run_case", spoils)
    result = kbench(
        "--bench", "gemm_fp16", "--csv", str(tmp_path / "r.csv"), "--json", str(tmp_path / "rows.json"),
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert result.exit_code == 1 and len(peaks_seen) == 2  # both cases
    assert result.stdout.count("NOT WRITTEN") == 2 and "PH1030" in result.stdout and "PH1030" in result.stderr
    for table in (tmp_path / "r.csv", tmp_path / "results.csv"):
        assert len(table.read_text().splitlines()) == 3
    assert (tmp_path / "rows.json").read_text() == "{}"


@pytest.mark.usefixtures("no_device")
def test_results_are_not_written_without_a_device(tmp_path: Path) -> None:
    out = tmp_path / "results" / "h200"
    result = kbench(
        "--bench", "saxpy_fp32", "--backend", "reference", "--out", str(out), "--csv", str(tmp_path / "r.csv")
    )
    assert result.exit_code == 0 and "nothing is written" in result.stdout
    assert list(tmp_path.iterdir()) == []
    assert kbench("--bench", "saxpy_fp32", "--backend", "reference", "--csv").stdout.strip() == ",".join(CSV_COLUMNS)


@pytest.mark.usefixtures("no_device")
def test_cases_are_selected() -> None:
    def cases(*wanted: str) -> list[str]:
        args = [a for text in wanted for a in ("--case", text)]
        result = kbench("--bench", "attention", "--bench", "gemm_fp32", "--backend", "reference", "--json", *args)
        assert result.exit_code == 0, result.output
        return [row["case"] for row in json.loads(result.stdout)]

    assert cases("d32 BF16") == ["B1 H1 M32 N64 D32 bf16", "B1 H4 HK2 M19 N45 D32 bf16"]
    assert cases("B1 H1 M32 N64 D32 f16") == ["B1 H1 M32 N64 D32 f16"], "a whole label means that case alone"
    assert cases("B1 H1 M32", "K29") == [
        "B1 H1 M32 N64 D32 f16",
        "B1 H1 M32 N64 D32 f16 causal",
        "B1 H1 M32 N64 D32 bf16",
        "B1 H1 M32 N64 D32 f32",
        "M50 N37 K29 f32",
    ]
    nothing = kbench("--bench", "gemm_fp32", "--backend", "reference", "--case", "K30")
    assert nothing.exit_code == 2 and "'K30'" in nothing.stderr and "M50 N37 K29 f32" in nothing.stderr


@pytest.mark.usefixtures("no_device")
def test_a_pinned_configuration() -> None:
    result = kbench("--bench", "flash_fp32", "--backend", "reference", "--autotune", "BR=32 BC=16", "--json")
    assert result.exit_code == 0
    assert all((r["config"]["BR"], r["config"]["BC"]) == (32, 16) for r in json.loads(result.stdout))


@pytest.mark.usefixtures("no_device")
def test_a_pin_of_one_bench_among_several() -> None:
    arguments = ("--bench", "flash_fp32", "--bench", "saxpy_fp32", "--backend", "reference", "--json")
    result = kbench(*arguments, "--autotune", "BR=32 BC=16")
    assert result.exit_code == 0
    assert {r["bench"]: r["config"].get("BR") for r in json.loads(result.stdout)} == {
        "flash_fp32": 32,
        "saxpy_fp32": None,
    }
    unknown = kbench(*arguments, "--autotune", "BX=32")
    assert unknown.exit_code == 2 and unknown.stdout == ""
    assert "no configuration name 'BX'; known: " in unknown.stderr and "BC" in unknown.stderr
    for pins in ("BR=48", "BR=banana", "BR=1000000000000"):
        wrong = kbench(*arguments, "--autotune", pins)
        assert wrong.exit_code == 2 and wrong.stdout == "" and "BR cannot be" in wrong.stderr and "64" in wrong.stderr


@pytest.mark.usefixtures("no_device")
def test_options_of_the_schedule() -> None:
    arguments = ("--bench", "gemm_fp16", "--backend", "reference", "--option", "matmul=wmma", "--option", "stages=3")
    result = kbench(*arguments, "--json")
    assert result.exit_code == 0
    assert {r["impl"] for r in json.loads(result.stdout)} == {"phobos:wmma:stages=3"}
    outside = kbench(*arguments, "--option", "index=17")
    assert outside.exit_code == 1 and "PH0304" in outside.stderr


@pytest.mark.usefixtures("no_device")
def test_a_value_that_one_bench_of_several_allows() -> None:
    result = kbench("--bench", "saxpy_fp32", "--bench", "gemm_fp32", "--backend", "reference", "--autotune", "BN=16")
    assert result.exit_code == 1 and "PH0308" in result.stdout and " ok" in result.stdout


@pytest.mark.usefixtures("no_device")
def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = host.arguments_and_oracle

    def disturbed(*args: Any) -> Any:
        tensors, expected = honest(*args)
        expected["Y"][3] += 0.1
        return tensors, expected

    monkeypatch.setattr(host, "arguments_and_oracle", disturbed)
    result = kbench("--bench", "saxpy_fp32", "--backend", "reference")
    assert result.exit_code == 1 and "WRONG" in result.stdout


@pytest.mark.usefixtures("no_device")
def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_CXX", "no-such-compiler")
    result = kbench("--bench", "saxpy_fp32")
    assert result.exit_code == 0
    assert "no-such-compiler" in result.stdout and " emulator  " not in result.stdout
    asked = kbench("--bench", "saxpy_fp32", "--backend", "emulator")
    assert asked.exit_code == 1 and "PH0" in asked.stdout


@pytest.mark.usefixtures("no_device")
def test_a_device_that_is_asked_for_and_missing() -> None:
    result = kbench("--backend", "cuda")
    assert result.exit_code == 1 and "error[PH0920]" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["--bench", "sapxy_fp32"],
        ["--autotune", "BR"],
        ["--autotune", "BR=16 BR=32"],
        ["--option", "matmul"],
        ["--option", "matmul=wmm"],
        ["--option", "matmull=wmma"],
        ["--option", "stages=-1"],
        ["--option", "matmul=fma", "--option", "matmul=mma"],
        ["--peak-fp32", "-1"],
        ["--peak-fp32", "nan"],
        ["--backend", "gpu"],
        ["--csv", "--json"],
        ["extra"],
    ],
)
def test_wrong_usage(args: Sequence[str]) -> None:
    result = kbench(*args)
    assert result.exit_code == 2 and result.stdout == ""
    if args[0] == "--bench":
        assert "saxpy_fp32" in result.stderr


class FakeDevice:
    """Cases are not run on it: what the command does around them is under test."""

    info = DeviceInfo(name="NVIDIA H200", capability=(9, 0), sm_count=132, clock_hz=1.98e9, l2_bytes=1, cuda="13.0")


@pytest.fixture
def peaks_seen(monkeypatch: pytest.MonkeyPatch) -> list[Peaks]:
    """A machine with a device; the list holds the peaks that cases were given."""
    seen: list[Peaks] = []

    def run_case(bench: Bench, case: Case, device: Any, peaks: Peaks, **options: Any) -> gpu.Outcome:
        seen.append(peaks)
        if options["config"] == {"BM": 256}:
            raise CompileError(Diagnostic(code="PH0540", message="too large"))
        timings = {n: Timing(rounds_us=(t,), graph=False) for n, t in (("phobos", 100.0), ("cublas", 90.0))}
        norms = ErrorNorms(max_abs=1e-5, mean_abs=1e-6, rmse=1e-6, rel_l2=1e-7)
        variant = Variant(
            config=options["config"], reason=None, searched=False, kinds=(), paths=(),
            registers=64, spills=0, threads=128, shared_bytes=0,
        )  # fmt: skip
        rows = gpu._rows(bench, case, device, peaks, variant, norms, timings)
        return gpu.Outcome(rows=tuple(rows), csv=tuple(gpu._csv(bench, case, peaks, timings)), notes=(), good=True)

    monkeypatch.setattr(kbench_cli, "_on_gpu", lambda backend: True)
    monkeypatch.setattr(device, "open_device", FakeDevice)
    monkeypatch.setattr(gpu, "measured_copy_rate", lambda *args: 4.2e12)
    monkeypatch.setattr(gpu, "run_case", run_case)
    return seen


@pytest.mark.usefixtures("peaks_seen")
def test_results_are_merged_into_their_files(tmp_path: Path) -> None:
    out = tmp_path / "results" / "h200"
    assert kbench("--bench", "gemm_fp32", "--out", str(out)).exit_code == 0
    result = kbench("--out", str(out))
    assert result.exit_code == 0
    assert sorted(p.name for p in out.iterdir()) == sorted(f"{n}.json" for n in NAMES)
    rows = json.loads((out / "gemm_fp32.json").read_text())
    assert [(r["case"], r["peer"], r["ratio"]) for r in rows] == [("M4096 N4096 K4096 f32", "cublas", 0.9)]
    table = (tmp_path / "results" / "results.csv").read_text().splitlines()
    assert table[0] == "benchmark,impl,precision,gflops,peak_gflops,pct_of_peak"
    assert len(table) == 1 + sum(2 for n in NAMES for b in get_benches(n) if b.in_table)
    assert "ratio" in result.stdout and "0.900" in result.stdout and "copy 4200 GB/s" in result.stdout


def test_a_searched_configuration_has_a_line_of_its_own() -> None:
    (bench,) = get_benches("gemm_fp32")
    timings = {n: Timing(rounds_us=(t,), graph=False) for n, t in (("phobos", 100.0), ("cublas", 90.0))}
    names = [[r.impl for r in gpu._csv(bench, bench.cases[0], Peaks(), timings, searched=s)] for s in (False, True)]
    assert names == [["phobos", "cublas"], ["phobos:searched", "cublas"]]


def test_search_logs_are_written(peaks_seen: list[Peaks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bool, bool]] = []
    plain = gpu.run_case
    log = SearchResult(
        kernel="gemm", device="d", capability=(9, 0), dims={}, dtypes={}, consts={}, pins={}, best={"BM": 64},
        microseconds=9.0, complete=True, interrupted=False, limit=None, space_size=1, reference="r", seconds=1.0,
        date="2026-01-01", compiler="c", outcomes=(),
    )  # fmt: skip

    def run_case(*args: Any, search: bool, fresh: bool, **options: Any) -> gpu.Outcome:
        asked.append((search, fresh))
        return dataclasses.replace(plain(*args, **options), search=log if search else None)

    monkeypatch.setattr(gpu, "run_case", run_case)
    out = tmp_path / "results" / "h200"
    assert kbench("--bench", "gemm_fp32", "--search", "--quick", "--out", str(out)).exit_code == 0
    assert not out.exists()
    assert kbench("--bench", "gemm_fp32", "--search", "--fresh", "--out", str(out)).exit_code == 0
    assert kbench("--bench", "gemm_fp32", "--out", str(out)).exit_code == 0
    assert asked == [(True, False), (True, True), (False, False)]
    written = json.loads((out / "search" / "gemm_fp32.json").read_text())
    assert {case: found["best"] for case, found in written.items()} == {"M4096 N4096 K4096 f32": {"BM": 64}}


@pytest.mark.usefixtures("no_device")
def test_without_a_device_nothing_is_searched() -> None:
    result = kbench("--bench", "saxpy_fp32", "--backend", "reference", "--search")
    assert result.exit_code == 0 and "nothing was searched" in result.stdout
    assert kbench("--fresh").exit_code == 2


@pytest.mark.usefixtures("peaks_seen")
def test_selected_cases_on_a_device(tmp_path: Path) -> None:
    """One case of many; the table of all benches shows the first case only, whichever ran last."""
    out = tmp_path / "results" / "h200"
    assert kbench("--bench", "gemm_fp16", "--case", "8192", "--out", str(out)).exit_code == 0
    assert [r["case"] for r in json.loads((out / "gemm_fp16.json").read_text())] == ["M8192 N8192 K8192 f16"]
    assert not (tmp_path / "results" / "results.csv").exists()
    assert kbench("--bench", "gemm_fp16", "--out", str(out)).exit_code == 0
    rows = json.loads((out / "gemm_fp16.json").read_text())
    assert {(r["case"], r["unit"]) for r in rows} == {
        ("M4096 N4096 K4096 f16", "fp16tcf32acc"),
        ("M8192 N8192 K8192 f16", "fp16tcf32acc"),
    }
    table = (tmp_path / "results" / "results.csv").read_text().splitlines()
    assert [line.split(",")[:4] for line in table[1:]] == [
        ["gemm_fp16", impl, "fp16", f"{2e-9 * 4096**3 / (us * 1e-6):.1f}"]
        for impl, us in (("phobos", 100.0), ("cublas", 90.0))
    ]


@pytest.mark.usefixtures("peaks_seen")
def test_what_was_measured_is_kept_when_a_run_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_case = gpu.run_case

    def broken(bench: Bench, case: Case, *args: Any, **options: Any) -> gpu.Outcome:
        if case.dims["M"] == 8192:
            raise KeyboardInterrupt
        return run_case(bench, case, *args, **options)

    monkeypatch.setattr(gpu, "run_case", broken)
    assert kbench("--bench", "gemm_fp16", "--out", str(tmp_path / "h200")).exit_code != 0
    assert len(json.loads((tmp_path / "h200" / "gemm_fp16.json").read_text())) == 1


@pytest.mark.usefixtures("peaks_seen")
def test_quick_figures_are_no_results(tmp_path: Path) -> None:
    result = kbench("--quick", "--out", str(tmp_path / "results" / "h200"))
    assert result.exit_code == 0 and "nothing was written" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_peaks_can_be_given(peaks_seen: list[Peaks]) -> None:
    assert kbench("--bench", "gemm_fp32", "--peak-fp32", "60").exit_code == 0
    assert peaks_seen[0].of("fp32") == 60e12 and peaks_seen[0].copy_bytes == 4.2e12


@pytest.mark.usefixtures("peaks_seen")
def test_machine_readable_output_is_alone_on_standard_output(tmp_path: Path) -> None:
    rows = json.loads(kbench("--bench", "gemm_fp32", "--json").stdout)
    assert rows[0]["median_us"] == 100.0
    assert kbench("--bench", "gemm_fp32", "--csv").stdout.splitlines()[0] == ",".join(CSV_COLUMNS)
    both = kbench("--bench", "gemm_fp32", "--csv", str(tmp_path / "r.csv"), "--json", str(tmp_path / "r.json"))
    assert both.exit_code == 0 and (tmp_path / "r.csv").exists() and (tmp_path / "r.json").exists()


@pytest.mark.usefixtures("peaks_seen")
def test_a_case_that_fails_does_not_stop_the_others() -> None:
    result = kbench("--bench", "gemm_fp32", "--autotune", "BM=256")
    assert result.exit_code == 1 and "FAILED" in result.stdout and "PH0540" in result.stdout
    assert kbench("--bench", "gemm_fp32", "--autotune", "BM=7").exit_code == 2


@pytest.mark.usefixtures("peaks_seen")
def test_a_results_file_of_something_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "gemm_fp32.json").write_text("{}")
    result = kbench("--bench", "gemm_fp32", "--out", str(tmp_path))
    assert result.exit_code == 1 and "error[PH1030]" in result.stderr
    assert (tmp_path / "gemm_fp32.json").read_text() == "{}"
