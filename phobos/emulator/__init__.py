"""Runs emitted kernel text on the CPU and checks every access: bounds, alignment, initialisation, races, waits."""

from phobos.emulator.conflicts import AccessCost, conflicts
from phobos.emulator.reports import EmulatorReport, EmulatorResult
from phobos.emulator.run import run

__all__ = ["AccessCost", "EmulatorReport", "EmulatorResult", "conflicts", "run"]
