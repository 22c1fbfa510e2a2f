"""The text and the schedule of three examples. PHOBOS_UPDATE_GOLDEN=1 rewrites the goldens, so that a change is a
diff to review."""

from __future__ import annotations

import os
from pathlib import Path

import harness
import pytest
from codegen.differential import arranged, kernel_of, lowered
from codegen.generator import generate

from phobos.compiler import build_schedule, default_spec
from phobos.ir import scheduled as s
from phobos.ir.scheduled_printer import print_schedule
from phobos.target import get_target

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CASES = [
    ("saxpy_fp32", "saxpy", (("BN", 256),)),
    ("softmax_fp32", "softmax", (("BR", 4), ("BN", 64))),
    ("flash_attention_fp32", "flash_attention", (("D", 64), ("BR", 64), ("BC", 32))),
]


def compare(path: Path, text: str) -> None:
    if os.environ.get("PHOBOS_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} differs; PHOBOS_UPDATE_GOLDEN=1 accepts the change"


@pytest.mark.parametrize("file, kernel, config", CASES, ids=[kernel for _, kernel, _ in CASES])
def test_text(file: str, kernel: str, config: tuple[tuple[str, int], ...]) -> None:
    program = harness.build(harness.kernel_ir(file, kernel, config), file)
    compare(GOLDEN / "codegen" / f"{kernel}.cu", program.body + "\n")


@pytest.mark.parametrize("file, kernel, config", CASES, ids=[kernel for _, kernel, _ in CASES])
def test_schedule(file: str, kernel: str, config: tuple[tuple[str, int], ...]) -> None:
    ir = harness.kernel_ir(file, kernel, config)
    schedule = build_schedule(ir, get_target("sm_90a"), default_spec(ir))
    text = print_schedule(schedule)
    compare(GOLDEN / "scheduled" / f"{kernel}.txt", text)
    # Every statement has a line of its own, with the line of the kernel text that it comes from.
    body = text.split("\nbody\n")[1].splitlines()
    statements = [x for x in body if x[:4].strip().isdigit()]
    assert len(statements) == sum(1 for _ in s.walk(schedule.body))
    assert all(buffer.name in text for buffer in schedule.offsets)


def test_text_does_not_depend_on_the_run() -> None:
    """No order of a set reaches the text, by which the cache is addressed: values lie elsewhere in memory each time."""
    file, kernel, config = CASES[2]
    texts = set()
    kept = []
    for count in (0, 1000, 7):
        kept.append([object() for _ in range(count)])
        harness.kernel_ir.cache_clear()
        texts.add(harness.build(harness.kernel_ir(file, kernel, config), file).body)
        for seed in (205, 209, 213):
            case = generate(seed)
            kernel_of.cache_clear()
            ir = kernel_of(case.text)
            texts.add(lowered(ir, arranged(case.arguments, case.variant), case.variant)[1].body)
    assert len(texts) == 4
