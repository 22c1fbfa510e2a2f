"""The cost model's choice against what searches on an H200 measured (results/h200/search): it costs 12 % at most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbench.benches import NAMES, get_benches
from phobos import resources
from phobos.ir.types import DTYPE_BY_NAME
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target
from phobos.tuning.default import preferred
from phobos.tuning.model import Estimate, estimate

FOLDER = Path(__file__).resolve().parents[2] / "results" / "h200" / "search"
SEARCHES = [
    (name, case)
    for name in NAMES
    if (FOLDER / f"{name}.json").is_file()
    for case in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
]


def outcomes(name: str, label: str) -> list[tuple[Estimate, dict[str, Any]]]:
    """(estimate, outcome) of every configuration that the model takes for possible."""
    found = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))[label]
    bench, case = next((b, c) for b in get_benches(name) for c in b.cases if c.label == label)
    path = resources.examples_dir() / bench.example
    module = parse(SourceFile(str(path), path.read_text(encoding="utf-8")))
    dtypes = {n: DTYPE_BY_NAME[d] for n, d in bench.dtypes.items()}
    out = []
    for outcome in found["outcomes"]:
        kernel = check_kernel(
            module, module.kernels[0].name.id, outcome["config"], dtypes, dict(case.consts), strict_space=False
        )
        guess = estimate(kernel, get_target("sm_90a"), case.dims)
        if guess.why_not is None:
            out.append((guess, outcome))
    return out


@pytest.mark.parametrize(("name", "label"), SEARCHES)
def test_the_choice_is_close_to_the_best(name: str, label: str) -> None:
    known = outcomes(name, label)
    _, chosen = preferred(known)
    assert chosen["status"] == "timed", f"{chosen['config']}: {chosen['reason']}"
    best = min(o["microseconds"] for _, o in known if o["status"] == "timed")
    assert chosen["microseconds"] <= 1.12 * best, f"{chosen['config']}: {chosen['microseconds']} us, best {best}"
