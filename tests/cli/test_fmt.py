"""`phobos fmt`: in place by rename, --check changes nothing, a text that does not parse is left alone."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from phobos.cli import cli

UGLY = "kernel  k(X:tensor<f32>[N]){\nX[ctx.block.x]=1.0 ;}\n"


def fmt(*args: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(cli, ["fmt", *args], input=stdin)
    assert "Traceback" not in result.output
    return result


def test_in_place(tmp_path: Path) -> None:
    path = tmp_path / "k.ph"
    path.write_text(UGLY)
    assert fmt("--check", str(path)).exit_code == 1
    assert path.read_text() == UGLY
    assert fmt(str(path)).exit_code == 0
    assert path.read_text() != UGLY and "X[ctx.block.x] = 1.0" in path.read_text()
    assert fmt("--check", str(path)).exit_code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["k.ph"]


def test_standard_input() -> None:
    result = fmt("-", stdin=UGLY)
    assert result.exit_code == 0 and "X[ctx.block.x] = 1.0" in result.stdout
    assert fmt("-", "--check", stdin=result.stdout).exit_code == 0
    assert fmt("-", "--check", stdin=UGLY).stdout == ""


def test_a_file_that_does_not_parse_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "k.ph"
    path.write_text("kernel k( {\n")
    result = fmt(str(path))
    assert result.exit_code == 1 and "error[PH01" in result.stderr
    assert path.read_text() == "kernel k( {\n"
    assert fmt(str(tmp_path / "no.ph")).exit_code == 1
    assert fmt().exit_code == 2


def test_the_examples_are_formatted() -> None:
    """But for the seed's file, which stays as it came."""
    folder = Path(__file__).resolve().parents[2] / "examples"
    files = [str(p) for p in sorted(folder.glob("*.ph")) if p.name != "flash_attention_fp32.ph"]
    result = fmt("--check", *files)
    assert result.stderr == "" and result.exit_code == 0
