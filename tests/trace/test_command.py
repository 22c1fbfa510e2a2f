"""`phobos trace` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import phobos
from phobos.cli import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLASH = str(EXAMPLES / "flash_attention_fp32.ph")


def invoke(*args: str) -> tuple[int, str]:
    result: Result = CliRunner().invoke(cli, ["trace", *args])
    return result.exit_code, result.output


def test_page_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, text = invoke(FLASH, "--json", "t.json", "--emulator")
    assert status == 0, text
    assert "45 steps in 2 CTAs" in text and "the same addresses" in text
    assert json.loads(Path("t.json").read_text())["emulator"]["equal"]
    assert not Path("flash_attention_fp32.html").exists()  # JSON was asked for, and nothing else
    status, text = invoke(FLASH, "--dim", "Nq=8", "Nk=8", "--set", "BR=8", "BC=8")
    assert status == 0 and "19 steps in 1 CTA" in text
    assert Path("flash_attention_fp32.html").read_text().startswith("<!doctype html>")


def test_two_configurations(tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    status, text = invoke(FLASH, "--compare", "BR=8 BC=8", "--dim", "Nq=8 Nk=16", "--json", str(out))
    assert status == 0, text
    a, b = json.loads(out.read_text())
    assert a["kernel"]["dims"] == b["kernel"]["dims"]
    assert (a["kernel"]["configuration"]["BR"], b["kernel"]["configuration"]["BR"]) == (4, 8)


def test_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "-" is no file name; what else there is to say goes elsewhere."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["trace", FLASH, "--json", "-"])
    assert result.exit_code == 0 and json.loads(result.stdout)["format"] == "phobos-trace"
    assert "45 steps in 2 CTAs" in result.stderr
    result = CliRunner().invoke(cli, ["trace", FLASH, "-o", "-"])
    assert result.exit_code == 0 and result.stdout.startswith("<!doctype html>")
    assert CliRunner().invoke(cli, ["trace", FLASH, "-o", "-", "--json", "-"]).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_is_done() -> None:
    text = " ".join(invoke("--help")[1].split())
    assert "default 0.5, 1 for integers" in text and "Without -o this is all that is written" in text


def test_values_that_nobody_gave_are_named(tmp_path: Path) -> None:
    out = str(tmp_path / "t.json")
    _, text = invoke(str(EXAMPLES / "windowed_attention.ph"), "--json", out)
    assert "scale=0.5 (not given)" in text and "window=8 (not given)" in text
    assert json.loads(Path(out).read_text())["kernel"]["assumed"] == ["scale", "window"]
    _, text = invoke(str(EXAMPLES / "windowed_attention.ph"), "--json", out, "--scalar", "scale=2", "--set", "window=4")
    assert "scale=2.0" in text and "window=4" in text and "not given" not in text


def test_the_size_can_be_set(tmp_path: Path) -> None:
    out = str(tmp_path / "t.json")
    status, text = invoke(FLASH, "--json", out, "--max-size", "0.05")
    assert status == 1 and "PH1020" in text and "--max-size" in text
    assert invoke(FLASH, "--json", out, "--max-size", "0.2")[0] == 0


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["nothing.ph"], "PH1001"),
        ([FLASH, "--dim", "M=3"], "PH0315"),
        ([FLASH, "--dim", "D=32", "--set", "D=64"], "PH1010"),
        ([FLASH, "--dim", "Nk=13"], "PH0712"),
        ([FLASH, "--scalar", "size=1"], "PH1012"),
        ([FLASH, "--set", "BR=5"], "PH0308"),
        ([FLASH, "--arch", "sm_1"], "PH0901"),
        ([FLASH, "--dim", "Nq=4096"], "PH1020"),
        ([FLASH, "-o", "/no/such/folder/x.html"], "PH1005"),
        ([FLASH, "--kernel", "other"], "PH0208"),
    ],
)
def test_wrong_input_is_one_diagnostic(args: list[str], code: str) -> None:
    result = CliRunner().invoke(cli, ["trace", *args])
    assert result.exit_code == 1
    assert f"error[{code}]" in result.output and "Traceback" not in result.output


WRONG = [
    {"dims": {"M": -5}}, {"dims": "x"}, {"dims": [("M", 3)]}, {"dims": {"M": 1.5}}, {"dims": {"M": "3"}},
    {"dims": {"M": None}}, {"dims": {1: 2}}, {"compare": "x"}, {"compare": [1]}, {"config": "x"}, {"config": 3},
    {"config": {1: 2}}, {"dtypes": "x"}, {"dtypes": {1: 2}}, {"dtypes": {"T": "f16"}}, {"arch": 3},
]  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_arguments_of_the_method_are_checked(arguments: dict[str, Any]) -> None:
    text = "kernel k(X: tensor<f32>[M, K]) { let i = ctx.block.x * 16\n X[i :+ 16, 0 :+ 8] = 1.0 }"
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(text).trace(**arguments)
    assert info.value.diagnostics[0].code in ("PH0315", "PH0606", "PH0607", "PH0901")


@pytest.mark.parametrize("path", [None, 3, b"x"])
def test_a_page_is_saved_to_a_path(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = phobos.jit("kernel k(X: tensor<f32>[M]) { X[0 :+ 4] = 1.0 }").trace()
    with pytest.raises(phobos.CompileError) as info:
        found.save(path)
    assert info.value.diagnostics[0].code == "PH0608" and not list(tmp_path.iterdir())
