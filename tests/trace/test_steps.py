"""Which statements make steps, and what a step knows."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phobos
from phobos.diagnostics import LaunchError
from phobos.kernel import Kernel, jit, load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def array(trace: Any, number: int) -> np.ndarray:
    item = trace["data"][number]
    return np.frombuffer(base64.b64decode(item["base64"]), f"<{item['type']}").reshape(item["shape"])


def steps_of(kernel: Kernel, **options: Any) -> list[dict[str, Any]]:
    return kernel.trace(**options).traces[0]["ctas"][0]["steps"]


def test_the_seed_over_three_key_blocks_has_45_steps() -> None:
    trace = load(EXAMPLES / "flash_attention_fp32.ph").trace().traces[0]
    assert trace["kernel"]["dims"] == {"Nq": 8, "D": 64, "Nk": 12} and trace["kernel"]["configuration"]["BC"] == 4
    for cta in trace["ctas"]:
        assert len(cta["steps"]) == 6 + 3 * 13 == 45
        assert sum(1 for s in cta["steps"] if s["path"]) == 3 * 13
        assert [s["path"] for s in cta["steps"] if s["name"] == "k"] == [[[19, 0]], [[19, 1]], [[19, 2]]]
    kinds = [(s["kind"], s["name"]) for s in trace["ctas"][0]["steps"][:6]]
    assert kinds == [("view", "q"), ("tile", "acc"), ("tile", "m"), ("tile", "l"), ("view", "k"), ("view", "v")]


def test_values_are_those_of_the_kernel() -> None:
    """Softmax rows, step by step, against NumPy in float64."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float32) for n in (8, 12, 12))
    o = np.zeros((8, 64), np.float32)
    kernel = load(EXAMPLES / "flash_attention_fp32.ph")
    trace = kernel.trace(q, k, v, o, scale=0.125, config={"BR": 4, "BC": 4}).traces[0]
    assert not o.any()  # the arguments stay as they are
    for number, cta in enumerate(trace["ctas"]):
        steps = cta["steps"]
        rows = q[4 * number : 4 * number + 4].astype(np.float64)
        scores = [s for s in steps if s["name"] == "s" and s["line"] == 24]
        for block, step in enumerate(scores):
            expected = rows @ k[4 * block : 4 * block + 4].T.astype(np.float64) * 0.125
            assert np.allclose(array(trace, step["value"]), expected, rtol=1e-5, atol=1e-6)
        weights = np.exp(rows @ k.T.astype(np.float64) * 0.125)
        expected = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
        stored = steps[-1]["touches"][0]
        assert stored["write"] and np.allclose(array(trace, stored["values"]), expected, rtol=1e-5, atol=1e-6)


def test_work_is_counted() -> None:
    """dot_t of [4, 64] and [4, 64]: 2 * 4 * 4 * 64 FLOPs, and both views are read there."""
    step = next(s for s in steps_of(load(EXAMPLES / "flash_attention_fp32.ph")) if s["line"] == 23)
    assert step["flops"] == 2 * 4 * 4 * 64
    assert step["bytes_read"] == 2 * 4 * 64 * 4 and step["bytes_written"] == 0
    assert {r["name"] for r in step["reads"]} == {"q", "k"}


def test_scalars_and_loop_heads_are_no_steps() -> None:
    text = """
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[N], n: i32) {
      let i = ctx.block.x * 32
      var count = 0
      var t = X[i :+ 32]
      while count < n {
        count = count + 1
        let scale = 2.0
        t = t * scale
      }
      let total = sum(t)
      if total > 1.0e30 { t = t + 1.0 }
      Y[i :+ 32] = t + total
    }
    """
    steps = steps_of(jit(text), n=3, dims={"N": 32})
    assert [(s["kind"], s["name"], len(s["path"])) for s in steps] == [
        ("tile", "t", 0), ("tile", "t", 1), ("tile", "t", 1), ("tile", "t", 1), ("store", "Y", 0),
    ]  # fmt: skip
    assert [s["path"][0][1] for s in steps[1:4]] == [0, 1, 2]


def test_statements_of_functions_are_steps_at_each_call() -> None:
    text = """
    fn twice(x) {
      let y = x + x
      return y * 1.0
    }
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {
      let a = twice(X[0 :+ 32])
      let b = twice(a)
      Y[0 :+ 32] = b
    }
    """
    steps = steps_of(jit(text), dims={"N": 32})
    assert [(s["name"], s["calls"]) for s in steps] == [
        ("y", ["twice"]), ("a", []), ("y", ["twice"]), ("b", []), ("Y", []),
    ]  # fmt: skip
    assert steps[2]["reads"] == [{"name": "x", "step": 1, "tensor": ""}]  # `a`, as the second call knows it
    assert steps[1]["last_read"] == 3


def test_masked_elements_are_not_counted() -> None:
    text = "kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) { Y[ctx.block.x * 32 :+ 32] = X[ctx.block.x * 32 :+ 32] }"
    trace = jit(text).trace(dims={"N": 40}).traces[0]
    assert [c["steps"][0]["bytes_read"] for c in trace["ctas"]] == [32 * 4, 8 * 4]
    touch = trace["ctas"][1]["steps"][0]["touches"][0]
    assert touch["axes"] == [{"start": 32, "length": 32}]


def test_every_execution_belongs_to_one_step() -> None:
    for file in ("flash_attention_fp32", "gemm_fp16", "kda_fp32", "searchsorted"):
        trace = load(EXAMPLES / f"{file}.ph").trace().traces[0]
        lines = {s["line"] for cta in trace["ctas"] for s in cta["steps"]}
        for cta in trace["ctas"]:
            orders = [e["order"] for s in cta["steps"] for e in s["executions"]]
            assert sorted(orders) == list(range(len(orders)))
            for step in cta["steps"]:
                # Work with memory or a product stands at the line of its statement, if that makes steps.
                for e in step["executions"]:
                    statement = trace["statements"][e["statement"]]
                    if (e.get("accesses") or statement["kind"] == "Contract") and statement["line"] in lines:
                        assert step["line"] <= statement["line"] <= step["end_line"]


def test_copies_ahead_belong_to_the_iteration_that_reads_them() -> None:
    trace = load(EXAMPLES / "flash_attention_fp32.ph").trace().traces[0]
    for iteration, step in enumerate(s for s in trace["ctas"][0]["steps"] if s["line"] == 23):
        found = [
            trace["accesses"][a]
            for e in step["executions"]
            for a in e.get("accesses", [])
            if trace["accesses"][a]["name"] == "K"
        ]
        assert len(found) == 1
        first = min(r[2] for r in found[0]["requests"])
        assert first == iteration * 4 * 64 * 4  # bytes of the rows of K before this block


def test_arguments_are_checked_as_in_a_call() -> None:
    kernel = load(EXAMPLES / "saxpy_fp32.ph")
    with pytest.raises(LaunchError) as error:
        kernel.trace(np.zeros(8, np.float64), np.zeros(8, np.float32), 2.0)
    assert error.value.diagnostics[0].code == "PH0707"
    with pytest.raises(phobos.CompileError) as unknown:
        kernel.trace(dims={"M": 3})
    assert unknown.value.diagnostics[0].code == "PH0315"
    with pytest.raises(LaunchError) as error:
        kernel.trace(dims={"N": 10**6})
    assert error.value.diagnostics[0].code == "PH1020"
    with pytest.raises(phobos.CompileError) as compile_error:
        kernel.trace(config={"BN": 7})
    assert compile_error.value.diagnostics[0].code == "PH0308"


def test_strided_arguments() -> None:
    wide = np.arange(64, dtype=np.float32)
    x, y = wide[::2], np.zeros(32, np.float32)
    trace = jit("kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) { Y[0 :+ 32] = X[0 :+ 32] }").trace(x, y, emulator=True)
    found = trace.traces[0]
    assert found["emulator"]["equal"] and found["tensors"][0]["strides"] == [2]
    read = next(a for a in found["accesses"] if a["name"] == "X")
    assert read["requests"][0][3:] == [2, 1]  # 64 floats apart: two lines where one would hold the bytes


def test_a_tile_that_no_statement_writes_says_where_its_work_is_done() -> None:
    """`s * scale` goes into the row maximum, `acc * corr` into the product; what nobody reads is not computed."""
    trace = load(EXAMPLES / "flash_attention_fp32.ph").trace(config={"BR": 64, "BC": 64}).traces[0]
    steps = trace["ctas"][0]["steps"]
    folded = {
        (s["line"], steps[s["folded"]["step"]]["line"], s["folded"].get("registers")) for s in steps if "folded" in s
    }
    assert folded == {(24, 27, "s"), (32, 33, "l"), (35, 36, "acc")}
    for s in steps:
        assert ("folded" in s) == ("value" in s and not s["held"])
    text = """
    kernel k(X: tensor<f32>[N], Y: tensor<f32>[N]) {
      let a = X[0 :+ 32] + 1.0
      let unread = a * 3.0
      Y[0 :+ 32] = a
    }
    """
    assert [s.get("folded") for s in steps_of(jit(text), dims={"N": 32})] == [None, {}, None]


def test_atomic_updates_are_marked() -> None:
    steps = steps_of(load(EXAMPLES / "histogram.ph"))
    assert [t.get("atomic", False) for s in steps for t in s["touches"]] == [False, True]


def test_waits_say_how_much_may_be_under_way() -> None:
    trace = load(EXAMPLES / "flash_attention_fp32.ph").trace(config={"BR": 16, "BC": 16}).traces[0]
    waits = [s for s in trace["statements"] if s["kind"] == "AsyncWait"]
    assert waits and all(s["pending"] == 0 for s in waits)


@pytest.mark.parametrize("order", ["auto", "linear", "grouped"])
def test_accesses_are_of_the_block_that_is_shown(order: str) -> None:
    """Also where the hardware's blocks are taken in another order than ctx.block counts."""
    text = f"""@options(order = {order})
kernel k(X: tensor<f32>[N, M], Y: tensor<f32>[N, M]) {{
  let row = ctx.block.y * 16
  let col = ctx.block.x * 32
  var s: tile<f32>[16, 32] = 0.0
  for i in range(0, row + 16, 16) {{ s += X[i :+ 16, col :+ 32] }}
  Y[row :+ 16, col :+ 32] = s
}}
"""
    trace = jit(text).trace(dims={"N": 160, "M": 64}, emulator=True).traces[0]
    assert trace["emulator"]["equal"] and len(trace["ctas"]) == 20
    for cta in trace["ctas"]:
        x, y, _ = cta["block"]
        *_, last = cta["steps"]
        assert last["name"] == "Y" and sum(1 for s in cta["steps"] if s["path"]) == y + 1
        numbers = [n for e in last["executions"] for n in e["accesses"]]
        bases = [r[2] for n in numbers for r in trace["accesses"][n]["requests"] if trace["accesses"][n]["write"]]
        assert min(bases) == (y * 16 * 64 + x * 32) * 4
