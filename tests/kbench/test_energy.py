"""The look at energy, on a card that is simulated; and what the command says without one."""

from __future__ import annotations

import click
import pytest
from array_device import ArrayDevice, small
from click.testing import CliRunner

from kbench import energy, figures, paraphrases


class Card:
    """A meter and a clock: every launch takes 100 us and 2 mJ."""

    def __init__(self) -> None:
        self.launches = 0

    def launch(self) -> None:
        self.launches += 1

    def joules(self) -> float:
        return 2e-3 * self.launches

    def megahertz(self) -> int:
        return 1500

    def seconds(self) -> float:
        return 1e-4 * self.launches


def test_means_of_a_launch() -> None:
    card = Card()
    found = energy.steady(card.launch, ArrayDevice(), card, 0.05, card.seconds)  # type: ignore[arg-type]
    assert (found.joules, found.us, found.watts, found.megahertz) == pytest.approx((2e-3, 100.0, 20.0, 1500))
    assert str(found) == "0.0020 J, 100.0 us, 20 W at 1500 MHz"
    assert card.launches >= 750  # half as many to warm up


def test_every_variant_is_verified_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "PAUSE", 0.0)
    bench, case = small("gemm_fp16")
    lines: list[str] = []
    variants = [{}, {"matmul": "wmma"}]
    assert energy.look(bench, case, ArrayDevice(), Card(), variants, 0.01, lines.append)  # type: ignore[arg-type]
    assert [line.split()[0] for line in lines if line.startswith("phobos")] == ["phobos", "phobos:wmma"]
    assert all("J, " in line and "; cool " in line for line in lines)


@pytest.mark.parametrize("text", ["--bench gem", "--bench gemm_fp16 --case zz", "", "--bench gemm_fp16 --seconds nan"])
def test_wrong_usage(text: str) -> None:
    assert CliRunner().invoke(energy.command, text.split()).exit_code == 2


@pytest.mark.parametrize("command", [energy.command, paraphrases.command, figures.main])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(command: click.Command, option: str) -> None:
    result = CliRunner().invoke(command, [option])
    assert result.exit_code == 0 and result.stdout.startswith("Usage: python -m kbench.")


def test_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from phobos.diagnostics import Diagnostic, LaunchError

    def missing() -> None:
        raise LaunchError(Diagnostic(code="PH0920", message="no CUDA driver"))

    monkeypatch.setattr(energy, "open_device", missing)
    result = CliRunner().invoke(energy.command, ["--bench", "gemm_fp16"])
    assert result.exit_code == 1 and result.stderr.startswith("error[PH0920]") and "Traceback" not in result.output
