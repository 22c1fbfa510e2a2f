"""`phobos compile`: the summary, each stage, where it is written, and wrong usage."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from phobos.cli import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAXPY = str(EXAMPLES / "saxpy_fp32.ph")
FLASH = str(EXAMPLES / "flash_attention_fp32.ph")
SMALL = ["--arch", "sm_80", "--set", "BN=1024"]


def phobos(*args: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(cli, list(args), input=stdin)
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_summary() -> None:
    result = phobos("compile", FLASH, "--arch", "sm_90a", "--set", "BR=32", "--set", "BC=32")
    assert result.exit_code == 0, result.output
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert rows["kernel"].strip() == f"flash_attention of {FLASH} for sm_90a"
    assert rows["configuration"].split() == ["D=64", "BR=32", "BC=32"]
    assert "blocks of 128 threads" in rows["grid"]
    assert "bytes" in rows["shared memory"] and "per thread, no spills" in rows["registers"]
    products = [line for line in result.stdout.splitlines() if line.startswith("product")]
    assert len(products) == 2 and "line 23" in products[0] and "line 36" in products[1]
    assert rows["time"].strip().split()[1] == "s,"


def test_json() -> None:
    result = phobos("compile", SAXPY, *SMALL, "--json")
    found = json.loads(result.stdout)
    assert found["kernel"] == "saxpy" and found["arch"] == "sm_80" and found["configuration"] == {"BN": 1024}
    assert found["threads"] % 32 == 0 and found["binary"]["spill_bytes"] == 0
    assert isinstance(found["cached"], bool) and found["seconds"] > 0


def test_several_set_values_at_once() -> None:
    for spelling in (["--set", "BR=16", "BC=32"], ["--set", "BR=16 BC=32"], ["--set=BR=16,BC=32"]):
        result = phobos("compile", FLASH, *spelling, "--emit", "ir")
        assert result.exit_code == 0, result.output
        assert "16" in result.stdout and "32" in result.stdout


@pytest.mark.parametrize(
    "stage, marks",
    [
        ("cuda", ["saxpy", "PH_KERNEL", "#line"]),
        ("ptx", [".version", ".target sm_80", ".entry saxpy"]),
        ("ir", ["kernel saxpy", "load", "store"]),
        ("scheduled", ["schedule saxpy", "LoadGlobal", "StoreGlobal"]),
        ("report", ["kernel saxpy for sm_80", "configuration", "because"]),
    ],
)
def test_emit(stage: str, marks: list[str], tmp_path: Path) -> None:
    shown = phobos("compile", SAXPY, *SMALL, "--emit", stage)
    assert shown.exit_code == 0, shown.output
    assert all(m in shown.stdout for m in marks)
    out = tmp_path / "out.txt"
    written = phobos("compile", SAXPY, *SMALL, "--emit", stage, "-o", str(out))
    assert written.exit_code == 0 and written.stdout == ""
    assert out.read_text() == shown.stdout
    assert [p.name for p in tmp_path.iterdir()] == ["out.txt"]


def test_emit_by_suffix(tmp_path: Path) -> None:
    out = tmp_path / "k.cubin"
    assert phobos("compile", SAXPY, *SMALL, "-o", str(out)).exit_code == 0
    assert out.read_bytes()[:4] == b"\x7fELF"
    piped = phobos("compile", SAXPY, *SMALL, "--emit", "cubin")
    assert piped.stdout_bytes == out.read_bytes()


def test_standard_input() -> None:
    text = Path(SAXPY).read_text()
    result = phobos("compile", "-", *SMALL, "--emit", "cuda", stdin=text)
    assert result.exit_code == 0 and '"<stdin>"' in result.stdout


def test_flags_reach_the_compiler() -> None:
    plain = phobos("compile", FLASH, "--set", "BR=16", "BC=16", "--emit", "cuda")
    fast = phobos("compile", FLASH, "--set", "BR=16", "BC=16", "--emit", "cuda", "--fast-math")
    assert plain.exit_code == fast.exit_code == 0
    assert plain.stdout != fast.stdout


def test_dims_guide() -> None:
    result = phobos("compile", SAXPY, *SMALL, "--dim", "N=1003", "--emit", "report")
    assert result.exit_code == 0 and "multiples of 16" not in result.stdout
    assert "multiples of 16" in phobos("compile", SAXPY, *SMALL, "--emit", "report").stdout


def test_dtype_and_kernel() -> None:
    generic = str(EXAMPLES / "embedding.ph")
    args = ["compile", generic, "--kernel", "embedding", "--set", "BN=16", "BD=32", "--dtype", "T=f16", "--emit", "ir"]
    result = phobos(*args)
    assert result.exit_code == 0 and "f16" in result.stdout
    several = phobos("compile", generic, "--emit", "ir", "--dtype", "T=f16")
    assert several.exit_code == 1 and "PH0208" in several.stderr


@pytest.mark.parametrize(
    "arch, help", [("h100", "'sm_90a'"), ("A100", "'sm_80'"), ("sm_70", "oldest"), ("sm_8", "sm_8")]
)
def test_unknown_architectures(arch: str, help: str) -> None:
    result = phobos("compile", SAXPY, "--arch", arch)
    assert result.exit_code == 1 and "PH0901" in result.stderr and help in result.stderr.partition("help: ")[2]


@pytest.mark.parametrize(
    "args, code",
    [
        (["no.ph"], "PH1001"),
        (["{examples}"], "PH1002"),
        ([SAXPY, "--arch", "sm_33", "--set", "BN=1024"], "PH0901"),
        ([SAXPY, "--set", "BN=1024", "XX=3"], "PH0307"),
        ([SAXPY, "--set", "BN=1000"], "PH0308"),
        ([SAXPY, "--set", "BN=wide"], "PH0308"),
        ([SAXPY, "--dim", "Q=64", "--set", "BN=1024"], "PH0315"),
        ([SAXPY, "--dtype", "T=f16", "--set", "BN=1024"], "PH0606"),
        ([SAXPY, "--kernel", "sax", "--set", "BN=1024"], "PH0208"),
    ],
)
def test_diagnostics(args: list[str], code: str) -> None:
    result = phobos("compile", *(a.format(examples=EXAMPLES) for a in args))
    assert result.exit_code == 1 and result.stdout == ""
    assert f"[{code}]" in result.stderr, result.stderr
    assert result.stderr.count("error[") == 1


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--emit", "sass"],
        ["--set", "BN"],
        ["--set", "=3"],
        ["--set", ""],
        ["--set", "BN=256", "--set", "BN=512"],
        ["--dim", "N=many"],
        ["--dim", "N=-4"],
        ["--dim", "N=2.5"],
        ["-o", "somewhere"],
        ["--json", "--emit", "cuda"],
        ["--unknown"],
        ["second.ph"],
    ],
)
def test_wrong_usage(args: list[str]) -> None:
    result = phobos("compile", *([SAXPY] if args else []), *args)
    assert result.exit_code == 2 and result.stdout == ""
    assert "Usage:" in result.stderr


def test_syntax_errors_have_carets() -> None:
    result = phobos("compile", "-", stdin="kernel k(X: tensor<f32>[N]) {\n  let y = X[0 :+ 4] +\n}\n")
    assert result.exit_code == 1
    assert "-->" in result.stderr and "^" in result.stderr and "<stdin>:" in result.stderr


def test_an_unwritable_output_leaves_nothing(tmp_path: Path) -> None:
    for out in (tmp_path / "no" / "k.cu", tmp_path):
        result = phobos("compile", SAXPY, *SMALL, "--emit", "cuda", "-o", str(out))
        assert result.exit_code == 1 and "PH1005" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failed_compilation_keeps_the_old_output(tmp_path: Path) -> None:
    out = tmp_path / "k.cu"
    out.write_text("old")
    assert phobos("compile", SAXPY, "--set", "BN=7", "--emit", "cuda", "-o", str(out)).exit_code == 1
    assert out.read_text() == "old"


def test_output_to_a_device() -> None:
    result = phobos("compile", SAXPY, *SMALL, "--emit", "cuda", "-o", os.devnull)
    assert result.exit_code == 0 and not Path(os.devnull).is_file()


def test_an_unwritable_cache_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(tmp_path / "file"))
    result = phobos("compile", SAXPY, *SMALL)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("warning[PH0930]") and result.stderr.count("warning") == 1


def test_candidates() -> None:
    """All configurations, the one that a plain `compile` takes marked, and those that are out with the reason."""
    extents = ["--dim", "Nq=4096", "--dim", "Nk=4096"]
    result = phobos("compile", FLASH, "--emit", "candidates", "--arch", "sm_90a", *extents)
    assert result.exit_code == 0, result.output
    head, columns, *rows = result.stdout.splitlines()
    assert head.startswith("flash_attention for sm_90a: cost model, best of 35: ") and columns.split()[0] == "relative"
    assert len(rows) == 36 and rows[-1].startswith("out: D=64 BR=128 BC=128: ") and "the limit is" in rows[-1]
    (marked,) = [row for row in rows if row.startswith("*")]
    summary = phobos("compile", FLASH, "--arch", "sm_90a", *extents).stdout
    assert " ".join(marked.split()[2:5]) in summary
    times = [float(row[1:].split()[0]) for row in rows[:-1]]
    assert times == sorted(times) and times[0] == 1.0
    pinned = phobos("compile", FLASH, "--emit", "candidates", "--arch", "sm_90a", "--set", "BR=32").stdout
    assert pinned.count("BR=32") == 6 and "BR=16" not in pinned
    assert phobos("compile", FLASH, "--emit", "candidates", "--set", "BQ=2").exit_code == 1


def test_one_candidate_is_marked_where_values_are_equal() -> None:
    text = "@autotune(BN in {1, 1.0, true})\nkernel k(X: tensor<f32>[N]) {\n  X[ctx.block.x * 64 :+ 64] = f32(BN)\n}\n"
    rows = phobos("compile", "-", "--emit", "candidates", "--arch", "sm_80", stdin=text).stdout.splitlines()
    assert [row[0] for row in rows[2:]].count("*") == 1 and any("BN=true" in row for row in rows)
