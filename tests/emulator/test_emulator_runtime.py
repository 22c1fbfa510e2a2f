"""The runtime itself: its portable paths, and mutants of it, which conformance tests and planted bugs expose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from phobos.resources import templates_dir

ROOT = Path(__file__).resolve().parents[2]
# Runs the named tests on a runtime built from the templates and flags given, in a process of its own.
SCRIPT = """
import importlib, sys
from pathlib import Path
templates, flags, *names = sys.argv[1:]
sys.path[:0] = ["tests", "."]
from phobos.emulator import build
build.templates_dir = lambda: Path(templates)
build._RUNTIME_FLAGS = tuple(flags.split())
build.runtime_library()
from emulator.executors import on_emulator
failed = []
for name in names:
    module, function, *rest = name.split(":")
    test_module = importlib.import_module("emulator." + module)
    if not rest:
        arguments = {"run": on_emulator, "sched": 0}
    elif hasattr(test_module, "BUGS") and "bug" in function:
        arguments = {"planted": next(b for b in test_module.BUGS if b.title == rest[0])}
    else:
        arguments = {"name": rest[0]}
    try:
        getattr(test_module, function)(**arguments)
    except AssertionError:
        failed.append(name)
print("failed:", *failed, sep="\\n")
"""
FLAGS = "-std=c++17 -O0 -ffp-contract=fast -shared -fPIC -w"
CORE = "test_emulator_tensor_core"
BUG = "test_emulator_bugs:test_bug_is_caught_in_every_schedule"
GOOD = "test_emulator_bugs:test_good_texts_give_no_report"


def failures(templates: Path, flags: str, names: list[str]) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(templates), flags, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("failed:\n")[2].split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("flags", ("-DPH_UCONTEXT", "-march=native"))
def test_portable_and_native_paths(flags: str) -> None:
    """ucontext instead of the hand-written switch, and half precision in software (no -march) or by instructions."""
    names = [f"{CORE}:test_mma_f16_and_bf16", f"{CORE}:test_ldmatrix", f"{GOOD}:flash_mma", f"{GOOD}:flash_ws"]
    assert failures(templates_dir(), f"{FLAGS} {flags}", names) == []


@dataclass(frozen=True)
class Mutant:
    file: str
    old: str
    new: str
    exposed_by: str


MUTANTS = [
    Mutant(
        "tensor_core.h",
        "      const int row = g + 8 * (i & 1);",
        "      const int row = g + 8 * (i >> 1);",
        f"{CORE}:test_mma_tf32",
    ),
    Mutant("tensor_core.h", "trans ? m[8", "!trans ? m[8", f"{CORE}:test_ldmatrix"),
    Mutant("copies.h", "(a >> 7 & 7) << 4", "(a >> 8 & 7) << 4", f"{CORE}:test_tma_past_both_edges"),
    Mutant("wgmma.h", "(n >> 6) * d_lbo(d)", "(n >> 6) * d_sbo(d)", f"{CORE}:test_wgmma_with_b_n_major_in_two_panels"),
    Mutant(
        "barrier.h",
        "kind == 1 ? lane - arg",
        "kind == 2 ? lane - arg",
        "test_emulator_memory:test_shuffles_move_1_2_4_and_8_bytes",
    ),
    Mutant("barrier.h", "join(c.tmp.data(), c.vc(x), c.VCN);", ";", f"{GOOD}:transpose_warp"),
    Mutant("barrier.h", "join(b.vc.data(), c.vc(me), c.VCN);", ";", f"{GOOD}:block_sum"),
    Mutant("shared_memory.h", 'why = "race";', "why = nullptr;", f"{BUG}:missing __syncthreads (reduction)"),
    Mutant("copies.h", 'line) | INFLIGHT, "cp.async to"', 'line), "cp.async to"', f"{BUG}:wrong cp.async wait count"),
    Mutant(
        "global_memory.h",
        "return block != c.serial || (",
        "return block == c.serial && (",
        f"{BUG}:two blocks write the same rows",
    ),
    Mutant("wgmma.h", "memcpy(d + i, &POISON, 4);", ";", f"{GOOD}:flash_wgmma"),
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.file}-{m.exposed_by.split(':')[-1]}".replace(" ", "-"))
def test_mutant_is_exposed(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(templates_dir() / "prelude", tmp_path / "prelude")
    path = tmp_path / "prelude" / "host" / "runtime" / mutant.file
    text = path.read_text(encoding="utf-8")
    edited = text.replace(mutant.old, mutant.new)
    assert edited != text
    path.write_text(edited, encoding="utf-8")
    assert failures(tmp_path, FLAGS, [mutant.exposed_by]) == [mutant.exposed_by]
