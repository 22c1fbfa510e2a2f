"""README.md as a new user follows it: its kernels check, its commands run, its Python runs without a GPU."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from phobos.cli import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
KERNELS = [text for kind, text in BLOCKS if not kind and "kernel " in text]


@pytest.mark.parametrize("text", KERNELS, ids=range(len(KERNELS)))
def test_kernels_check_and_are_formatted(text: str) -> None:
    result = CliRunner().invoke(cli, ["check", "-"], input=text)
    assert (result.exit_code, result.stderr) == (0, "")
    assert CliRunner().invoke(cli, ["fmt", "--check", "-"], input=text).exit_code == 0


def test_the_first_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rms_norm.ph").write_text(KERNELS[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines() if "rms_norm.ph" in line]
    assert [shlex.split(c)[1] for c in commands] == ["check", "run", "compile"]
    for command in commands:
        result = CliRunner().invoke(cli, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
    assert "Y against the float64 reference: ok" in CliRunner().invoke(cli, shlex.split(commands[1])[1:]).stdout


def test_the_loop_is_that_of_the_example() -> None:
    """But for remarks, empty lines and blanks."""

    def code(text: str) -> list[str]:
        return [line for line in (re.sub(r"\s*//.*", "", full).strip() for full in text.splitlines()) if line]

    (loop,) = [text for kind, text in BLOCKS if not kind and "kernel " not in text]
    example = code((ROOT / "examples" / "flash_attention_fp32.ph").read_text(encoding="utf-8"))
    start = example.index(code(loop)[0])
    assert example[start : start + len(code(loop))] == code(loop)


def test_the_python(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = [text for kind, text in BLOCKS if kind == "python"]
    lines = [line for line in text.splitlines() if ".autotune(" not in line]  # needs a GPU
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec("\n".join(lines), names)  # noqa: S102
    assert names["c"].grid({"Nq": 4096, "Nk": 4096}) == (64, 1, 1)  # type: ignore[attr-defined]


def test_every_command_is_in_the_table() -> None:
    listed = set(re.findall(r"^\| `phobos (\w+)", README, re.M))
    assert set(cli.list_commands(None)) == listed  # type: ignore[arg-type]
