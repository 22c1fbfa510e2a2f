"""The command line against full and closed streams, names that are no text, and options for one of several kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from phobos.cli import cli

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAXPY = str(EXAMPLES / "saxpy_fp32.ph")
FLASH = str(EXAMPLES / "flash_attention_fp32.ph")
EMBEDDING = str(EXAMPLES / "embedding.ph")


def phobos(*args: str, **environment: str) -> Result:
    result = CliRunner(env=environment).invoke(cli, list(args))
    assert "Traceback" not in result.output and "PH1099" not in result.output, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def shell(text: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[bytes]":
    """`text` with $P for the program; a real shell makes the streams."""
    variables = {**os.environ, **(environment or {}), "P": f"{sys.executable} -m phobos", "F": SAXPY}
    return subprocess.run(["bash", "-c", text], env=variables, capture_output=True, timeout=60)


@pytest.mark.parametrize("command", ["--version", "check $F", "compile $F --arch sm_80 --set BN=1024 --emit cuda"])
def test_full_output(command: str) -> None:
    done = shell(f"$P {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == b"error[PH1006]: cannot write standard output: No space left on device\n"


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["doctor", "check $F", "compile $F --arch sm_80 --set BN=1024 --emit cuda"])
def test_no_streams_at_all(command: str, streams: str) -> None:
    done = shell(f"$P {command} {streams}")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_of_help_that_goes_away() -> None:
    done = shell("$P --help | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) in ((b"141\n", b""), (b"0\n", b""))  # 0 where it wrote before `true` ended


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    good = os.fsencode(tmp_path) + b"/g\xff.ph"
    Path(os.fsdecode(good)).write_text(Path(SAXPY).read_text())
    name = os.fsdecode(good)
    for arguments in (["check"], ["check", "--json"], ["compile", "--arch", "sm_80", "--set", "BN=1024"], ["fmt"]):
        assert phobos(*arguments, name).exit_code == 0
    broken = os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.ph")
    Path(broken).write_text("kernel\n")
    result = phobos("check", broken)
    assert result.exit_code == 1 and "b\ufffd.ph:1:7" in result.output
    assert phobos("compile", SAXPY, "--set", "BN=\udcff").exit_code == 1


def test_fmt_writes_utf8_whatever_the_locale(tmp_path: Path) -> None:
    text = "// é☃\nkernel k(X: tensor<f32>[N]) {\n  X[0] = 1.0\n}\n"
    (tmp_path / "k.ph").write_text(text, encoding="utf-8")
    done = shell(f"$P fmt - < {tmp_path}/k.ph", {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, text, b"")


def test_options_for_one_kernel_of_several() -> None:
    """`embedding` has a dtype name, `embedding_grad` has none."""
    assert phobos("check", EMBEDDING, "--dtype", "T=f16").exit_code == 0
    result = phobos("compile", EMBEDDING, "--arch", "sm_80", "--dtype", "T=f16", "--set", "BN=8,BD=64", "--json")
    assert result.exit_code == 0 and len(json.loads(result.stdout)) == 2
    for command in ("check", "compile"):
        assert phobos(command, EMBEDDING, "--dtype", "U=f16").exit_code == 1
        assert phobos(command, EMBEDDING, "--dtype", "T=f16", "--set", "BX=8").exit_code == 1


@pytest.mark.parametrize("value", ["4096", "7.5", "true"])
def test_a_pinned_value_outside_its_set_is_named_itself(value: str) -> None:
    """Not as the lack of any configuration that fits."""
    for command in (["compile"], ["run", "--dim", "Nq=64", "Nk=64"]):
        result = phobos(command[0], FLASH, "--set", f"BR={value}", *command[1:])
        assert result.exit_code == 1 and result.output.count("error[") == 1
        assert "PH0308" in result.output and f"`BR` cannot be {value}" in result.output


def test_environment(tmp_path: Path) -> None:
    assert phobos("compile", SAXPY, "--set", "BN=1024", "--arch", "sm_80", PHOBOS_CACHE_MB="inf").exit_code == 0
    result = phobos("doctor", PHOBOS_CACHE_DIR=f"{tmp_path}/{'x' * 300}", PHOBOS_NO_CACHE="0")
    assert "File name too long" in result.output


GENERIC = """
@autotune(BN in [32, 128])
kernel add<T>(X: tensor<T>[N], Y: tensor<T>[N], a: T) {
  let i = ctx.block.x * BN
  Y[i :+ BN] = X[i :+ BN] + a
}
"""


@pytest.mark.parametrize("dtype", "f16 bf16 f32 f64 f8e4m3 f8e5m2 i8 u8 i32 u32 i64".split())
def test_run_binds_every_dtype(dtype: str, tmp_path: Path) -> None:
    """NumPy has no f8: its bits alone would run the kernel for u8."""
    file = tmp_path / "add.ph"
    file.write_text(GENERIC)
    result = phobos("run", str(file), "--dim", "N=100", "--dtype", f"T={dtype}", "--backend", "reference", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["configuration"]["T"] == dtype


def test_digits_of_other_scripts_are_no_numbers() -> None:
    result = phobos("run", SAXPY, "--dim", "N=\u0663")
    assert result.exit_code == 2 and "not a size" in result.stderr


@pytest.mark.parametrize("command", ["compile {} --emit cuda -o {}", "trace {} -o {}", "trace {} --json {}"])
@pytest.mark.parametrize("output", ["k.ph", "./k.ph", "here/k.ph", "link.ph", "{folder}/k.ph"])
def test_the_file_that_is_read_is_not_overwritten(
    command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = Path(SAXPY).read_text()
    Path("k.ph").write_text(text)
    Path("link.ph").symlink_to("k.ph")
    Path("here").symlink_to(tmp_path)
    for read in ("k.ph", "link.ph"):
        result = phobos(*command.format(read, output.format(folder=tmp_path)).split())
        assert result.exit_code == 1 and result.stdout == "" and "error[PH1007]" in result.stderr
    assert Path("k.ph").read_text() == text and Path("link.ph").is_symlink()


def test_a_page_and_its_data_are_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.html").write_text(Path(SAXPY).read_text())
    for args in (["k.html"], [SAXPY, "-o", "x", "--json", "./x"], [SAXPY, "-o", "k.html", "--json", "./k.html"]):
        result = phobos("trace", *args)  # without -o the page would be k.html, which is the kernel
        assert result.exit_code == 1 and "error[PH1007]" in result.stderr, args
    assert [p.name for p in tmp_path.iterdir()] == ["k.html"]
    assert phobos("trace", SAXPY, "-o", os.devnull, "--json", os.devnull).exit_code == 0


def test_what_is_no_number_is_written_as_json_has_it(tmp_path: Path) -> None:
    path = tmp_path / "k.ph"
    path.write_text(
        "@autotune(F in {inf, -inf, nan, 2.0})\nkernel k(X: tensor<f32>[N], a: f32) {\n"
        "  X[ctx.block.x * 64 :+ 64] = a * F\n}\n"
    )

    def refuse(word: str) -> None:
        raise AssertionError(word)

    def loaded(*args: str) -> object:
        return json.loads(phobos(*args, "--json").stdout, parse_constant=refuse)

    run = loaded("run", str(path), "--dim", "N=64", "--scalar", "a=-inf", "--set", "F=inf", "--backend", "reference")
    assert (run["configuration"], run["scalars"]) == ({"F": "inf"}, {"a": "-inf"})
    assert loaded("compile", str(path), "--set", "F=nan")["configuration"] == {"F": "nan"}
    kernels = loaded("check", str(path))["kernels"]
    assert kernels[0]["space"] == {"F": ["inf", "-inf", "nan", 2.0]}


@pytest.mark.parametrize("size", ["nan", "0", "-1", "x"])
def test_a_size_is_a_positive_number(size: str) -> None:
    assert phobos("trace", SAXPY, "--json", "-", "--max-size", size).exit_code == 2


@pytest.mark.parametrize(
    ("module", "package", "args"),
    [
        ("lark", "lark", ["check", SAXPY]),
        ("jinja2", "jinja2", ["compile", SAXPY, "--set", "BN=256", "--emit", "cuda"]),
        ("markupsafe", "jinja2", ["compile", SAXPY, "--set", "BN=256", "--emit", "cuda"]),
        ("numpy", "numpy", ["run", SAXPY, "--dim", "N=64", "--backend", "reference"]),
        ("click", "click", ["--version"]),
    ],
)
def test_a_package_that_is_missing_is_named(module: str, package: str, args: list[str]) -> None:
    text = f"import sys; sys.modules[{module!r}] = None; from phobos.__main__ import main; main()"
    environment = {**os.environ, "PHOBOS_NO_CACHE": "1", "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run([sys.executable, "-c", text, *args], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"error[PH0904]: the package {package} is not installed"), done.stderr
    assert f"pip install {package}" in done.stderr and len(done.stderr.splitlines()) == 2
