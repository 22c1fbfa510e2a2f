"""Planted bugs: each is one edit of a good text, caught in every schedule. The good texts give no report."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from emulator import workloads as w
from emulator.executors import Run, executors
from emulator.support import describe, kernel_text, kinds

SCHEDULES = (0, 1, 2, 3)


@pytest.mark.parametrize("name", w.ALL)
def test_good_texts_give_no_report(name: str) -> None:
    work = w.ALL[name]
    for sched in SCHEDULES:
        result, error = work.run(kernel_text(work.file), sched=sched, workers=1 + sched % 2)
        assert not result.reports, describe(result)
        assert not any(result.unwritten.values())
        assert error < work.tolerance


@pytest.mark.parametrize("name", ("flash_mma", "flash_wgmma", "gemm_fma", "block_sum"))
def test_good_texts_run_without_checks(name: str) -> None:
    work = w.ALL[name]
    result, error = work.run(kernel_text(work.file), check=False)
    assert not result.reports and error < work.tolerance


@executors
@pytest.mark.parametrize("name", w.ALL)
def test_good_texts_are_right_on_both(run: Run, name: str) -> None:
    work = w.ALL[name]
    arguments, out, expected = work.make()
    run(kernel_text(work.file), work.name, work.shape, arguments)
    assert abs(out - expected).max() < work.tolerance


@dataclass(frozen=True)
class Bug:
    title: str
    work: w.Workload
    old: str
    new: str
    kinds: frozenset[str]


def bug(title: str, work: w.Workload, old: str, new: str, *found: str) -> Bug:
    return Bug(title, work, old, new, frozenset(found))


BUGS = [
    bug(
        "missing __syncthreads, buffer refilled while read",
        w.FLASH_MMA,
        "    ph_syncthreads();\n  }\n",
        "  }\n",
        "race",
    ),
    bug("wrong cp.async wait count", w.FLASH_MMA, "ph_cp_wait<1>", "ph_cp_wait<2>", "in-flight"),
    bug("off-by-one store", w.FLASH_MMA_RAGGED, "row < Nq", "row <= Nq", "out-of-bounds"),
    bug("mbarrier parity not flipped (full)", w.FLASH_WGMMA, "phase = (n >> 1) & 1", "phase = 0", "in-flight", "race"),
    bug("race between warps on shared", w.BLOCK_SUM, "part[warp] = w", "part[warp & 1] = w", "race"),
    bug("missing __syncthreads (reduction)", w.BLOCK_SUM, "  ph_syncthreads();\n  if", "  if", "race"),
    bug("missing __syncthreads before compute", w.GEMM, "    ph_syncthreads();\nPH_UNROLL", "PH_UNROLL", "race"),
    bug("missing __syncwarp", w.TRANSPOSE, "  ph_syncwarp();\n", "", "race"),
    bug("parity not flipped (empty)", w.FLASH_WGMMA_LONG, "((n - 1) >> 1) & 1", "0", "race", "in-flight"),
    bug(
        "no wait on empty before the refill",
        w.FLASH_WGMMA,
        "ph_mbar_wait(empty + o, ((n - 1) >> 1) & 1);",
        "",
        "race",
    ),
    bug(
        "empty released before wgmma is waited for",
        w.FLASH_WGMMA,
        "    ph_wg_wait<0>(acc);\n    if (lane == 0) ph_mbar_arrive(empty + st);",
        "    if (lane == 0) ph_mbar_arrive(empty + st);\n    ph_wg_wait<0>(acc);",
        "race",
    ),
    bug("missing wgmma wait", w.FLASH_WGMMA, "    ph_wg_wait<0>(s);\n", "", "wgmma-register"),
    bug("missing wgmma fence", w.FLASH_WGMMA, "    ph_wg_fence();\n", "", "wgmma-fence"),
    bug("missing wait on full", w.FLASH_WGMMA, "    ph_mbar_wait(full + st, phase);\n", "", "in-flight"),
    bug("expect_tx too large", w.FLASH_WGMMA, "expect_tx(full + i, 16384)", "expect_tx(full + i, 16400)", "deadlock"),
    bug(
        "too many arrivals",
        w.FLASH_WGMMA,
        "if (lane == 0) ph_mbar_arrive",
        "if (lane < 2) ph_mbar_arrive",
        "mbarrier",
        "race",
        "in-flight",
    ),
    bug("no barrier after mbarrier.init", w.FLASH_WGMMA, "  ph_syncthreads();\n", "", "race", "mbarrier"),
    bug(
        "divergent barrier",
        w.FLASH_MMA,
        "    ph_cp_wait<1>();\n    ph_syncthreads();",
        "    ph_cp_wait<1>();\n    if (warp < 2) ph_syncthreads();",
        "divergent-barrier",
        "deadlock",
    ),
    bug(
        "early return before a barrier",
        w.FLASH_MMA,
        "  float acc[8][4];",
        "  if (warp == 3) return;\n  float acc[8][4];",
        "divergent-barrier",
    ),
    bug(
        "shuffle in divergent code",
        w.FLASH_MMA,
        "    sum += ph_shfl_xor(sum, 2);",
        "    if (lane < 16) sum += ph_shfl_xor(sum, 2);",
        "divergent-warp",
    ),
    bug("read of unwritten shared bytes", w.GEMM, "k * 132 + 64 + ty * 4", "k * 132 + 68 + ty * 4", "uninitialized"),
    bug("shared out of bounds", w.GEMM, "kb * 128 + cb, ph_ldv", "(kb + 1) * 128 + cb, ph_ldv", "out-of-bounds"),
    bug("misaligned vector load", w.GEMM, "k * 128 + tx * 4);", "k * 128 + tx * 4 + 1);", "misaligned"),
    bug("two blocks write the same rows", w.FLASH_MMA, "row0 = ph_ctaid_x() * 64", "row0 = ph_ctaid_x() * 48", "race"),
    bug("missing fence.proxy.async", w.WGMMA, "  ph_fence_proxy_async();\n", "", "proxy-fence"),
    bug("missing cp.async mask on the last rows", w.FLASH_MMA_RAGGED, "row0 + r < rows);", "true);", "out-of-bounds"),
    bug(
        "wgmma A registers overwritten in flight",
        w.FLASH_WGMMA,
        "    ph_wg_wait<0>(acc);\n",
        "    p[0] = 0;\n    ph_wg_wait<0>(acc);\n",
        "wgmma-register",
    ),
    bug("softmax before its wgmma", w.FLASH_WS, "ph_wg_wait<1>(s)", "ph_wg_wait<2>(s)", "wgmma-register"),
    bug(
        "rescale before the wait",
        w.FLASH_WS,
        "      ph_wg_wait<0>(o);\n      if (lane == 0) ph_mbar_arrive(emptyV + vst);\n",
        "      if (lane == 0) ph_mbar_arrive(emptyV + vst);\n",
        "wgmma-register",
        "race",
    ),
    bug(
        "empty count of one consumer only",
        w.FLASH_WS,
        "emptyV + i, 8",
        "emptyV + i, 4",
        "mbarrier",
        "race",
        "in-flight",
        "deadlock",
    ),
    bug(
        "ping-pong barrier with the wrong count",
        w.FLASH_WS,
        "ph_bar_arrive(2 - cw, 256)",
        "ph_bar_arrive(2 - cw, 128)",
        "barrier",
    ),
    bug(
        "producer does not wait for empty V",
        w.FLASH_WS,
        "        ph_mbar_wait(emptyV + st, ph);\n",
        "",
        "race",
        "in-flight",
    ),
    bug(
        "register array index out of range",
        w.FLASH_MMA,
        "a[2] = ph_pack_h2(s[2 * kk + 1][0]",
        "a[2] = ph_pack_h2(s[2 * kk + 2][0]",
        "register-index",
    ),
    bug(
        "index arithmetic overflows 32 bits",
        w.FLASH_MMA,
        "(long long)(row0 + r) * 64",
        "(row0 + r + 33554432) * 64",
        "integer-overflow",
    ),
    bug(
        "elected arrive without __syncwarp before it",
        w.ELECT,
        "      ph_syncwarp();\n      if (lane == 0) ph_mbar_arrive",
        "      if (lane == 0) ph_mbar_arrive",
        "race",
    ),
    bug("copies not waited for at the end", w.FLASH_MMA, "    ph_cp_wait<1>();\n", "", "in-flight"),
    bug(
        "output read before it is written",
        w.BLOCK_SUM,
        "    Y[ph_ctaid_x()] = s;",
        "    Y[ph_ctaid_x()] += s;",
        "uninitialized",
    ),
    bug("named barrier that nobody completes", w.FLASH_WS, "if (cw == 1) ph_bar_arrive(1, 256);", "", "deadlock"),
]


@pytest.mark.parametrize("planted", BUGS, ids=lambda b: b.title.replace(" ", "-"))
def test_bug_is_caught_in_every_schedule(planted: Bug) -> None:
    text = kernel_text(planted.work.file)
    assert planted.old in text
    edited = text.replace(planted.old, planted.new, 1)
    for sched in SCHEDULES:
        result, _ = planted.work.run(edited, sched=sched)
        assert kinds(result) & planted.kinds, (sched, describe(result))
        hit = next(r for r in result.reports if r.kind in planted.kinds)
        assert 1 <= hit.line <= edited.count("\n") and hit.count >= 1 and "thread" in hit.text


def test_never_written_outputs_are_counted() -> None:
    text = kernel_text("reduce").replace("if (tid == 0) {", "if (tid == 0 && ph_ctaid_x() != 2) {")
    result, _ = w.BLOCK_SUM.run(text)
    assert result.unwritten == {"Y": 1}
