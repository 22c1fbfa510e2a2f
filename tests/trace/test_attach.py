"""Which step the work of threads is shown in: never a later iteration, never across the end of a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from codegen.generator import Case as Random
from codegen.generator import generate
from codegen.hazards import hazard_case
from codegen.products import attention_case, product_case

from phobos.diagnostics import CompileError, LaunchError
from phobos.files import read_source
from phobos.ir import scheduled as s
from phobos.kernel import Kernel, jit, load
from phobos.runtime.pipeline import Frontend
from phobos.trace import build
from phobos.trace.attach import _Rings, attach
from phobos.trace.events import Step
from phobos.trace.machine import Executed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FLASH = "flash_attention_fp32"

# Accumulators that are set under the line of a loop, a loop in a loop, a function with a loop that is called twice.
LOOPS = """
fn total(X, n) {
  var s: tile<f32>[32] = 0.0
  for i in range(0, n) {
    s += X[i * 32 :+ 32]
  }
  return s * 1.0
}
kernel loops(X: tensor<f32>[N], Y: tensor<f32>[N], Z: tensor<f32>[N], n: i32) {
  var a: tile<f32>[32] = 0.0
  var b: tile<f32>[32] = 1.0
  for i in range(0, n) {
    let x = X[i * 32 :+ 32]
    a += x
    for j in range(0, n) {
      b = b * x
    }
  }
  let c = total(X, n)
  let d = total(Y, n)
  while sum(a) < 10.0 {
    a = a + 1.0
  }
  Z[0 :+ 32] = a + b + c + d
}
"""


@cache
def flash(size: int) -> dict[str, Any]:
    return dict(load(EXAMPLES / f"{FLASH}.ph").trace(config={"BR": size, "BC": size}).traces[0])


def executions(trace: dict[str, Any], cta: int = 0) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """(execution, its statement, its step) in the order of execution."""
    found = [(e, trace["statements"][e["statement"]], s) for s in trace["ctas"][cta]["steps"] for e in s["executions"]]
    return sorted(found, key=lambda x: x[0]["order"])


def fills_ahead(statement: dict[str, Any]) -> bool:
    """Whether the statement belongs to a later iteration on purpose: it fills a ring for that."""
    return statement["kind"] in ("AsyncCopy", "AsyncCommit") or any(x in statement["text"] for x in ("stage=", "_next"))


def misplaced(trace: dict[str, Any]) -> list[str]:
    """Executions in a step of another iteration, of a loop that is over, or of a later iteration than the first."""
    out = []
    for cta in range(len(trace["ctas"])):
        found = executions(trace, cta)
        last: dict[tuple[Any, ...], int] = {}
        for e, _, _ in found:
            path = tuple(map(tuple, e.get("path", [])))
            for depth in range(1, len(path) + 1):
                last[path[:depth]] = e["order"]
        for e, statement, step in found:
            if fills_ahead(statement):
                continue
            done, shown = (tuple(map(tuple, x.get("path", []))) for x in (e, step))
            common = next((k for k, (a, b) in enumerate(zip(done, shown)) if a != b), min(len(done), len(shown)))
            wrong = ""
            if common < len(done) and common < len(shown):
                wrong = "other iteration"
            elif common < len(shown) and last.get(shown[: common + 1], e["order"]) < e["order"]:
                wrong = "the loop is over"
            elif common < len(shown) and any(turn for _, turn in shown[common:]):
                wrong = "not the first iteration"
            if wrong:
                out.append(
                    f"{wrong}: order {e['order']} {done}, shown in line {step['line']} {shown}: {statement['text']}"
                )
    return out


@pytest.mark.parametrize("size", [16, 64])
def test_work_before_a_loop_is_shown_where_it_is_needed_first(size: int) -> None:
    """Staging of Q, its barrier and its load into registers: the first product of scores."""
    hoisted = [
        (statement["kind"], step)
        for e, statement, step in executions(flash(size))
        if "path" not in e and statement["line"] == 23
    ]
    assert {"GlobalToShared"} < {kind for kind, _ in hoisted}
    assert {(step["line"], str(step["path"])) for _, step in hoisted} == {(23, "[[19, 0]]")}


@pytest.mark.parametrize("size", [16, 64])
def test_barriers_at_the_head_of_a_loop_are_shown_in_their_iteration(size: int) -> None:
    """With the work that comes next: the product that reads what they publish."""
    heads = [
        (e, step)
        for e, statement, step in executions(flash(size))
        if statement["kind"] in ("Barrier", "AsyncWait") and statement["line"] == 19
    ]
    assert len({e["path"][0][1] for e, _ in heads}) == 3
    for e, step in heads:
        assert step["line"] == 23 and step["path"] == e["path"]


def test_a_group_of_copies_is_closed_in_the_step_of_the_copies() -> None:
    found = executions(flash(16))
    for (_, copy, step), (_, commit, closed) in zip(found, found[1:]):
        if (copy["kind"], commit["kind"]) == ("AsyncCopy", "AsyncCommit"):
            assert step is closed


@pytest.mark.parametrize("size", [4, 16, 64])
def test_work_after_a_loop_is_shown_after_it(size: int) -> None:
    """The lanes' sums of l are added once, for the division."""
    shuffles = [(e, step) for e, _, step in executions(flash(size)) if "shuffles" in e and "path" not in e]
    assert shuffles and all(step["line"] == 41 and step["path"] == [] for _, step in shuffles)


def test_every_variable_is_set_in_its_own_step() -> None:
    trace = jit(LOOPS).trace(n=3, dims={"N": 96}).traces[0]
    maps = [
        (statement, step)
        for e, statement, step in executions(trace)
        if statement["kind"] == "Map" and "path" not in e and "value=0.0" in statement["text"]
    ]
    maps += [(s, step) for e, s, step in executions(trace) if s["kind"] == "Map" and "value=1.0" in s["text"]]
    assert len(maps) == 4  # a, b, and s of both calls
    for statement, step in maps:
        assert statement["writes"][0].split("_")[0] == step["name"]
    assert len({id(step) for _, step in maps}) == 4


def test_calls_of_a_function_with_a_loop_are_kept_apart() -> None:
    trace = jit(LOOPS).trace(n=3, dims={"N": 96}).traces[0]
    names = {
        (trace["accesses"][a]["name"], step["touches"][0]["tensor"])
        for e, _, step in executions(trace)
        for a in e.get("accesses", [])
        if step["line"] == 5
    }
    assert names == {("X", "X"), ("Y", "Y")}


RANDOM: list[tuple[Callable[[int], Random], range]] = [
    (generate, range(16, 32)), (hazard_case, range(8)), (attention_case, range(3)), (product_case, range(3)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "seeds"), RANDOM, ids=lambda x: getattr(x, "__name__", None))
def test_random_kernels_stay_in_their_iterations(
    make: Callable[[int], Random], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the iteration of a statement has steps, one of them shows it, unless it fills a ring ahead."""
    checked = 0

    def check(steps: Sequence[Step], executed: Sequence[Executed]) -> list[list[int]]:
        nonlocal checked
        out = attach(steps, executed)
        assert sorted(n for numbers in out for n in numbers) == list(range(len(executed)))
        having = {step.turns[:depth] for step in steps for depth in range(len(step.turns) + 1)}
        rings = _Rings(executed)
        for step, numbers in zip(steps, out):
            for e in (executed[n] for n in numbers):
                ahead = rings.fill(e) is not None or isinstance(e.statement, s.AsyncCommit)
                if not ahead and e.path in having:
                    checked += 1
                    assert step.turns[: len(e.path)] == e.path, (step.mark.span, step.turns, e.path, e.statement)
        return out

    monkeypatch.setattr(build, "attach", check)
    for seed in seeds:
        case = make(seed)
        with suppress(CompileError, LaunchError):
            jit(case.text).trace(**case.arguments)
    assert checked > 100


def test_nothing_is_shown_in_another_iteration() -> None:
    for path in sorted(EXAMPLES.glob("*.ph")):
        for kernel in Frontend(read_source(str(path))).kernels():
            trace = Kernel(Frontend(read_source(str(path))), kernel.name).trace().traces[0]
            assert misplaced(dict(trace)) == [], path.stem
    for size in (4, 16, 64):
        assert misplaced(flash(size)) == []
