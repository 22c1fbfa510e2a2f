"""`phobos run`: random inputs, an executor, norms against the float64 reference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from phobos import settings
from phobos.cli import cli
from phobos.commands import run as command
from phobos.diagnostics import Diagnostic, LaunchError
from phobos.runtime import module

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
needs_compiler = pytest.mark.skipif(shutil.which(settings.host_compiler()) is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise LaunchError(Diagnostic(code="PH0920", message="no CUDA driver"))

    monkeypatch.setattr(module, "get_driver", fail)


def run(file: str, *args: str) -> Result:
    result = CliRunner().invoke(cli, ["run", str(EXAMPLES / file), *args])
    assert "Traceback" not in result.output
    return result


def test_text() -> None:
    result = run("softmax_fp32.ph", "--dim", "M=5", "N=300", "--set", "BR=2", "BN=128")
    assert result.exit_code == 0, result.output
    assert "reference (no CUDA device here)" in result.stdout
    assert "tensor<f32>[5, 300], random" in result.stdout and "tensor<f32>[5, 300], written" in result.stdout
    assert "Y against the float64 reference: ok, rel L2" in result.stdout


CASES = {
    "saxpy_fp32.ph": "--dim N=1000 --set BN=256 --scalar a=-2.5",
    "gemm_fp32.ph": "--dim M=33 N=20 K=17 --set BM=16 BN=16 BK=8 --scalar alpha=1.5 beta=0.25",
    "masked_attention_fp32.ph": "--dim Nq=20 Nk=30 --set D=16 BR=16 BC=16 --scalar scale=0.25 causal=true",
    "gemm_int8.ph": "--dim M=20 N=30 K=40 --set BM=16 BN=16 BK=16",
    "rope.ph": "--dim N=20 H=2 --set D=32 BN=8 --dtype T=bf16",
    "permute_rows.ph": "--dim N=20 D=5 --set BN=8 BD=16",
    "quantize_rows.ph": "--dim M=5 N=70 --set BR=4 BN=64",
    "histogram.ph": "--dim N=200 B=90 --set BN=128",
}


@pytest.mark.parametrize("file", CASES)
def test_reference(file: str) -> None:
    result = run(file, *CASES[file].split(), "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["ok"] is True and found["backend"] == "reference"
    assert found["compared"] and all(c["ok"] and c["disagree"] == 0 for c in found["compared"])


@needs_compiler
@pytest.mark.parametrize("file", ["saxpy_fp32.ph", "masked_attention_fp32.ph"])
def test_emulator(file: str) -> None:
    result = run(file, *CASES[file].split(), "--backend", "emulator", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["backend"] == "emulator"


def test_the_seed_decides_the_inputs() -> None:
    def norms(*args: str) -> float:
        found = json.loads(run("saxpy_fp32.ph", "--dim", "N=1000", "--set", "BN=256", "--json", *args).stdout)
        return float(found["compared"][0]["rel_l2"])

    assert norms() == norms("--seed", "0") != norms("--seed", "1")


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison, not the executor, is under test: the oracle is disturbed in one element."""
    honest = command.run_reference

    def disturbed(ir: object, arguments: dict[str, np.ndarray], **options: object) -> None:
        honest(ir, arguments, **options)  # type: ignore[arg-type]
        arguments["Y"][7] += 1.0

    monkeypatch.setattr(command, "run_reference", disturbed)
    result = run("saxpy_fp32.ph", "--dim", "N=100", "--set", "BN=256")
    assert result.exit_code == 1 and "WRONG" in result.stdout
    assert "Y against the float64 reference: WRONG, rel L2" in result.stdout
    assert run("saxpy_fp32.ph", "--dim", "N=100", "--set", "BN=256", "--no-check").exit_code == 0


def test_what_is_not_finite_is_said_before_the_norms_of_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "large.ph"
    path.write_text(
        "kernel large(X: tensor<f32>[N], Y: tensor<f16>[N]) {\n  Y[0 :+ 8] = where(iota(0) < 2, 1.0e6, X[0 :+ 8])\n}\n"
    )
    result = run(str(path), "--dim", "N=8")
    (line,) = [line for line in result.stdout.splitlines() if "WRONG" in line]
    assert result.exit_code == 1
    assert "WRONG, 2 elements are not finite or unwritten in one and not in the other, the rest rel L2" in line


def test_unwritten_elements_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "half.ph"
    path.write_text("kernel half(X: tensor<f32>[N], Y: tensor<f32>[M]) {\n  Y[0 :+ 8] = X[0 :+ 8]\n}\n")
    found = json.loads(run(str(path), "--dim", "N=8", "M=20", "--json").stdout)
    assert found["compared"][0]["unwritten"] == 12 and found["ok"] is True


@pytest.mark.parametrize(
    "args, code",
    [
        ("--set BN=256", "PH1011"),
        ("--set BN=256 --dim N=10 Q=4", "PH1010"),
        ("--set BN=256 --dim N=10 --scalar b=4", "PH1012"),
        ("--set BN=256 --dim N=10 --scalar a=1e300", "PH0717"),
        ("--set BN=256 --dim N=100000000000", "PH1013"),
        ("--set BN=256 --dim N=99999999999999999999", "PH1013"),
        ("--set BM=256 --dim N=10", "PH0307"),
        ("--set BN=100 --dim N=10", "PH0308"),
        ("--set BN=256 --dim N=10 --backend cuda", "PH0920"),
    ],
)
def test_diagnostics(args: str, code: str) -> None:
    result = run("saxpy_fp32.ph", *args.split())
    assert result.exit_code == 1 and result.stdout == ""
    assert f"error[{code}]" in result.stderr


@pytest.mark.parametrize("args", ["--dim N=x", "--scalar a=b", "--backend gpu", "--seed x", "--seed -1", "--dim"])
def test_wrong_usage(args: str) -> None:
    assert run("saxpy_fp32.ph", *args.split()).exit_code == 2


def test_a_promise_is_checked() -> None:
    result = run("flash_attention_fp32.ph", "--dim", "Nq=60", "Nk=64", "--set", "BR=16", "BC=16")
    assert result.exit_code == 1 and "PH0712" in result.stderr and "60" in result.stderr


def test_a_pinned_dim_may_be_named() -> None:
    args = ["--dim", "Nq=16", "Nk=16", "--set", "BR=16", "BC=16", "--scalar", "scale=0.125"]
    assert run("flash_attention_fp32.ph", *args, "--dim", "D=64").exit_code == 0
    result = run("flash_attention_fp32.ph", *args, "--dim", "D=32")
    assert result.exit_code == 1 and "PH1010" in result.stderr
