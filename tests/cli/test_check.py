"""`phobos check`: diagnostics as text and JSON, kernels with their expanded spaces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from phobos.cli import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def check(text: str | Path, *args: str) -> Result:
    file, stdin = (str(text), None) if isinstance(text, Path) else ("-", text)
    result = CliRunner().invoke(cli, ["check", file, *args], input=stdin)
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ph")), ids=lambda p: p.stem)
def test_examples_are_clean(path: Path) -> None:
    result = check(path)
    assert result.exit_code == 0 and result.stderr == ""


def test_the_space_is_printed_expanded() -> None:
    lines = check(EXAMPLES / "flash_attention_fp32.ph").stdout.splitlines()
    assert lines[0].startswith("kernel flash_attention(Q: tensor<f32>[Nq, D], ")
    assert lines[1:] == ["D in {64}", "BR in {4, 8, 16, 32, 64, 128}", "BC in {4, 8, 16, 32, 64, 128}"]


def test_several_files(tmp_path: Path) -> None:
    bad = tmp_path / "bad.ph"
    bad.write_text(BAD)
    files = [str(EXAMPLES / "saxpy_fp32.ph"), str(bad), str(tmp_path / "none.ph")]
    result = CliRunner().invoke(cli, ["check", *files])
    assert result.exit_code == 1
    assert [line for line in result.stdout.splitlines() if line in files] == files
    assert result.stderr.count("error[PH02") == 2 and result.stderr.count("error[PH1001]") == 1
    found = json.loads(CliRunner().invoke(cli, ["check", "--json", *files]).stdout)
    assert [f["file"] for f in found] == files
    assert [len(f["diagnostics"]) for f in found] == [0, 2, 1]
    assert [k["name"] for f in found for k in f["kernels"]] == ["saxpy", "k"]
    assert CliRunner().invoke(cli, ["check"]).exit_code == 2


def test_json_of_a_good_file() -> None:
    found = json.loads(check(EXAMPLES / "masked_attention_fp32.ph", "--json").stdout)
    assert set(found) == {"version", "diagnostics", "kernels"}
    assert found["version"] == 1 and found["diagnostics"] == []
    (kernel,) = found["kernels"]
    assert kernel["name"] == "masked_attention"
    assert kernel["space"]["D"] == [16, 32, 64, 128]
    assert kernel["params"][0] == {"name": "Q", "kind": "tensor", "type": "tensor<f32>[Nq, D]"}
    assert [p["name"] for p in kernel["params"]] == ["Q", "K", "V", "O", "scale", "causal"]
    assert kernel["params"][-1] == {"name": "causal", "kind": "const", "type": "bool"}


BAD = """kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {
  let i = ctx.block.x * 4
  Y[i :+ 4] = X[i :+ 4] + missing
  Y[i :+ 4] = nothere(X[i :+ 4])
}
"""


def test_several_errors_in_one_run() -> None:
    result = check(BAD)
    assert result.exit_code == 1
    assert "missing" in result.stderr and "nothere" in result.stderr
    assert result.stderr.count("error[") == 2 and result.stderr.rstrip().endswith("2 errors")
    assert result.stdout.startswith("kernel k(")


def test_json_of_a_bad_file() -> None:
    result = check(BAD, "--json")
    assert result.exit_code == 1 and result.stderr == ""
    found = json.loads(result.stdout)
    assert [d["severity"] for d in found["diagnostics"]] == ["error", "error"]
    first = found["diagnostics"][0]
    assert set(first) == {"code", "severity", "message", "span", "notes", "help"}
    assert first["span"] == {"file": "<stdin>", "line": 3, "column": 27, "end_line": 3, "end_column": 34}


def test_json_even_where_nothing_could_be_read(tmp_path: Path) -> None:
    for text, code in ((tmp_path / "no.ph", "PH1001"), ("kernel (", None), ("// nothing\n", "PH0126")):
        result = check(text, "--json")
        found = json.loads(result.stdout)
        assert result.exit_code == 1 and found["version"] == 1
        assert found["diagnostics"][0]["code"] == code or (code is None and found["diagnostics"])


def test_warnings_do_not_fail() -> None:
    result = check(
        "kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[M, N]) {\n"
        "  let x: tile<f32>[4, 8] = X[ctx.block.x * 4 :+ 4, 0 :+ 8]\n"
        "  Y[ctx.block.x * 4 :+ 4, 0 :+ 8] = exp(x - rowmax(x))\n}\n"
    )
    assert result.exit_code == 0
    assert result.stderr.startswith("warning[PH04") and "error" not in result.stderr


def test_both_values_of_a_bool_const_are_checked() -> None:
    text = (
        "kernel k(X: tensor<f32>[N], const double: bool) {\n  let i = ctx.block.x * 4\n"
        "  if double {\n    X[i :+ 4] = X[i :+ 4] + gone\n  }\n  X[i :+ 4] = X[i :+ 4] * 2.0\n}\n"
    )
    assert check(text).exit_code == 1
    assert check(text, "--set", "double=false").exit_code == 0


def test_a_kernel_that_suits_some_dtypes_only() -> None:
    text = "kernel k<T>(X: tensor<T>[N]) {\n  X[ctx.block.x * 4 :+ 4] = X[ctx.block.x * 4 :+ 4] & 3\n}\n"
    assert check(text).exit_code == 0
    assert check(text, "--dtype", "T=i32").exit_code == 0
    assert check(text, "--dtype", "T=f32").exit_code == 1
    assert check(text, "--dtype", "U=f32").exit_code == 1
    assert check(text, "--dtype", "T=float").exit_code == 1


def test_a_kernel_that_suits_some_configurations_only() -> None:
    text = (
        "@autotune(B in {3, 4, 6})\nkernel k(X: tensor<f32>[N]) {\n  let x: tile<f32>[B] = X[ctx.block.x * B :+ B]\n"
        "  let y = reshape(x, 3, B / 3)\n  X[ctx.block.x * B :+ B] = reshape(y * 2.0, B)\n}\n"
    )
    assert check(text).exit_code == 0
    assert check(text, "--set", "B=4").exit_code == 1
    assert check(text, "--set", "B=5").exit_code == 1
    assert check(text, "--set", "C=5").exit_code == 1


def test_one_kernel_of_several() -> None:
    text = "kernel a(X: tensor<f32>[N]) {\n  X[ctx.block.x] = 1.0\n}\n" + BAD
    assert check(text).exit_code == 1
    result = check(text, "--kernel", "a")
    assert result.exit_code == 0 and result.stdout.count("kernel ") == 1
    unknown = check(text, "--kernel", "b")
    assert unknown.exit_code == 1 and "PH0208" in unknown.stderr


SLIP = """@autotune(BM in [32, 128], BN in [32, 128])
kernel k(A: tensor<f32>[M, N], bias: tensor<f32>[N], C: tensor<f32>[M, N]) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  C[row :+ BM, col :+ BN] = A[row :+ BM, col :+ BN] + bias[col :+ BM]
}
"""


def test_configurations_that_are_no_valid_kernels_are_counted() -> None:
    """BM for BN: the few configurations in which the two are equal hide it."""
    result = check(SLIP)
    assert result.exit_code == 0
    assert "warning[PH0409]: 6 of 9 configurations of kernel `k` are no valid kernels" in result.stderr
    assert "with BM = 32, BN = 64: line 5: " in result.stderr and "(PH0220)" in result.stderr
    assert "PH0409" not in check(SLIP.replace("col :+ BM", "col :+ BN")).stderr
    assert "3 of 3 configurations" not in check(SLIP, "--set", "BM=64").stderr
    (found,) = json.loads(check(SLIP, "--json").stdout)["diagnostics"]
    assert found["code"] == "PH0409" and found["severity"] == "warning"


def test_one_configuration_that_checks_is_found() -> None:
    text = """@autotune(BM in {8, 16, 24, 40}, BN in {8, 16, 24, 40})
kernel g(A: tensor<f32>[M, N]) {
  const C = (BM - BN) * (BN / 16) * (24 / BN)
  var t: tile<f32>[C, BN] = 1.0
  A[ctx.block.x * 8 :+ C, 0 :+ BN] = t
}
"""
    result = check(text)
    assert result.exit_code == 0, result.stderr
    assert "warning[PH0409]: 15 of 16 configurations" in result.stderr
