"""The mutation harness itself: what it deletes, and that it leaves everything else alone."""

from __future__ import annotations

from mutants import mutants, unmatched_synchronisation

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
