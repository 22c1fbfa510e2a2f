"""The scheduled IR as text: every statement and every piece of storage of real schedules appears."""

from __future__ import annotations

from pathlib import Path

import pytest

from phobos.compiler import build_schedule, default_spec
from phobos.ir import scheduled as s
from phobos.ir.scheduled_printer import print_expression, print_schedule
from phobos.ir.storage import Apply, Convert, Literal, Position, ScalarRef, Special
from phobos.ir.types import DType
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASES = {
    "flash_attention_fp32": {"BR": 16, "BC": 16},
    "searchsorted": {"BN": 64},  # while, gathers
    "sum_squares": {"BN": 128},  # atomics on a scalar, @grid
    "permute_rows": {"BN": 8, "BD": 16},  # scatter
    "cumsum": {"BR": 4, "BN": 64},  # scan
    "softmax_fp32": {"BR": 2, "BN": 128},  # if with both sides
}


def schedule_of(example: str, config: dict[str, int]) -> s.Schedule:
    source = SourceFile(example, (EXAMPLES / f"{example}.ph").read_text())
    module = parse(source)
    kernel = check_kernel(module, module.kernels[0].name.id, config)
    return build_schedule(kernel, get_target("sm_80"), default_spec(kernel))


@pytest.mark.parametrize("example", CASES)
def test_everything_is_there(example: str) -> None:
    schedule = schedule_of(example, CASES[example])
    text = print_schedule(schedule)
    head, body = text.split("\nbody\n")
    statements = list(s.walk(schedule.body))
    printed = [line for line in body.splitlines() if line[:4].strip()]
    assert [line[:4].strip() for line in printed] == [str(t.span.line) for t in statements]
    assert [line[4:].split()[0] for line in printed] == [type(t).__name__.removesuffix("Stmt") for t in statements]
    assert f"{schedule.threads} threads" in head and f"shared {schedule.shared_bytes} bytes" in head
    for buffer, offset in schedule.offsets.items():
        assert f"  {buffer.name}: {buffer.dtype}, {buffer.bytes} bytes at byte {offset}, " in head
    assert "object at 0x" not in text


def test_expressions() -> None:
    f32, index = DType.F32, DType.INDEX
    x = ScalarRef(f32, "x")
    total = Apply(f32, "add", (x, Apply(f32, "mul", (Literal(f32, 2.0), x))))
    assert print_expression(total) == "(x + (2.0 * x))"
    assert print_expression(Apply(f32, "exp2", (x,), fast=True)) == "exp2.fast(x)"
    assert print_expression(Convert(f32, Position(index, 1))) == "f32(@1)"
    assert print_expression(Special(index, "ctaid", 2)) == "ctaid.z"
