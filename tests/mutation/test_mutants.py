"""The mutation harness itself: what it deletes, and that it leaves everything else alone."""

from __future__ import annotations

import re

import pytest
from mutants import SWITCH, mutants, switched, unmatched_synchronisation

BODY = """\
#line 3 "PH_GUARD(x)"
// ph_syncthreads(); in a comment
if (PH_GUARD(i < N && f(j) < (M))) { y[i] = x[i]; }  /* PH_GUARD(z) */
ph_syncthreads();
ph_cp_wait<0>();
s = PH_GUARD(i < N) ? PH_GUARD(g(")")) : 0;
ph_syncwarp();
if (owner_0) {
"""


def test_synchronisation_that_no_mutant_deletes_is_named() -> None:
    assert unmatched_synchronisation(BODY) == []
    assert unmatched_synchronisation(BODY + "if (ph_mbar_wait(b, 1)) ph_cp_async16(a, b);") == ["ph_mbar_wait"]


def test_mutants_of_a_text() -> None:
    found = list(mutants(BODY))
    assert [(m.line, m.what) for m in found] == [
        (4, "ph_syncthreads();"),
        (5, "ph_cp_wait<0>();"),
        (7, "ph_syncwarp();"),
        (8, "owner_0"),
        (3, "PH_GUARD(i < N && f(j) < (M))"),
        (6, "PH_GUARD(i < N)"),
        (6, 'PH_GUARD(g(")"))'),
    ]
    for mutant in found:
        replacement = ";" if mutant.what.endswith(";") else "true"
        at = mutant.body.split("\n")[mutant.line - 1]
        assert BODY.split("\n")[mutant.line - 1].replace(mutant.what, replacement) == at
        others = [line for i, line in enumerate(BODY.split("\n")) if i != mutant.line - 1]
        assert [line for i, line in enumerate(mutant.body.split("\n")) if i != mutant.line - 1] == others


def test_a_switched_text_holds_every_mutant() -> None:
    kernel = "PH_KERNEL(32, 1) k(ph_global<float> Y, const int N) {\n" + BODY + "}\n"
    text, labels = switched(kernel)
    assert labels == tuple(m.label for m in mutants(kernel))
    assert f"const int N, const int {SWITCH}) {{" in text
    assert text.count("\n") == kernel.count("\n")
    for number, mutant in enumerate(mutants(kernel)):
        fixed = text
        for other in range(len(labels)):  # the conditions as they are where the switch has this number
            fixed = fixed.replace(f"{{ if ({SWITCH} != {other}) ", f"{{ if ({'false' if other == number else 'true'}) ")
            fixed = fixed.replace(f"{SWITCH} == {other} || ", "true || " if other == number else "false || ")
        line = fixed.split("\n")[mutant.line - 1]
        wanted = mutant.body.split("\n")[mutant.line - 1]
        line = re.sub(r"\{ if \(false\) [^;]*; \}", ";", line)
        line = re.sub(r"\{ if \(true\) ([^;]*;) \}", r"\1", line)
        line = re.sub(r"PH_GUARD\(true \|\| .*?\)\)(?=\)|;| \?| :)", "true", line) if "GUARD" in mutant.what else line
        line = re.sub(r"\(true \|\| owner_0\)", "true", line)
        assert _plain(line) == _plain(wanted), mutant.label


def _plain(line: str) -> str:
    """Without conditions that a switch has turned off."""
    return re.sub(r"[()\s]", "", line.replace("false || ", ""))


def test_a_switched_text_needs_its_mutants_inside_the_kernel() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        switched(BODY)
    with pytest.raises(ValueError, match="outside"):
        switched(BODY + "PH_KERNEL(32, 1) k() {}\n")
    assert switched("PH_KERNEL(32, 1) k() {}\n") == (f"PH_KERNEL(32, 1) k(const int {SWITCH}) {{}}\n", ())
