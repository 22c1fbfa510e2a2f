"""The JSON trace: its schema, its size, the layouts in it; the page that carries it."""

from __future__ import annotations

import json
import math
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phobos.diagnostics import LaunchError
from phobos.files import read_source
from phobos.kernel import Kernel, load
from phobos.runtime.pipeline import Frontend
from phobos.trace.api import Trace

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.ph"))
KERNELS = [(p, k.name) for p in EXAMPLES for k in Frontend(read_source(str(p))).kernels()]


@cache
def traced(path: Path, name: str) -> tuple[Trace, float]:
    kernel = Kernel(Frontend(read_source(str(path))), name)
    begin = time.perf_counter()
    found = kernel.trace()
    found.to_json()
    return found, time.perf_counter() - begin


@cache
def validator() -> Any:
    import jsonschema

    schema = json.loads((ROOT / "phobos" / "trace" / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(("path", "name"), KERNELS, ids=lambda x: x.stem if isinstance(x, Path) else x)
def test_examples_are_valid_small_and_quick(path: Path, name: str) -> None:
    found, seconds = traced(path, name)
    text = found.to_json()
    trace = json.loads(text)
    assert [str(e.message)[:200] for e in validator().iter_errors(trace)] == []
    assert seconds < 5 and len(text) < 5_000_000
    assert len(found.html()) < 5_000_000
    assert 1 <= len(trace["ctas"]) <= 8
    assert 1 <= max(len(c["steps"]) for c in trace["ctas"]) <= 60
    assert not any("unknown" in e for c in trace["ctas"] for s in c["steps"] for e in s["executions"])


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda t: t.pop("kernel"), "kernel"),
        (lambda t: t["ctas"][0]["steps"][0].pop("flops"), "flops"),
        (lambda t: t["patterns"][0].pop(), "patterns"),
        (lambda t: t.update(version=2), "version"),
        (lambda t: t["accesses"][0].update(memory="disk"), "memory"),
        (lambda t: t.update(extra=1), "extra"),
    ],
)
def test_the_schema_rejects_what_is_wrong(change: Any, where: str) -> None:
    trace = json.loads(traced(*KERNELS[0])[0].to_json())
    change(trace)
    assert list(validator().iter_errors(trace)), where


def test_the_schema_is_that_of_a_comparison_too() -> None:
    kernel = load(ROOT / "examples" / "flash_attention_fp32.ph")
    both = kernel.trace(config={"BR": 4, "BC": 4}, compare={"BR": 8}, dims={"Nq": 8, "Nk": 8})
    pair = json.loads(both.to_json())
    assert len(pair) == 2 and list(validator().iter_errors(pair)) == []
    assert list(validator().iter_errors(pair[:1])) and list(validator().iter_errors([*pair, pair[0]]))
    pair[1]["version"] = 2
    assert list(validator().iter_errors(pair)) and list(validator().iter_errors(7))


def test_a_trace_that_is_too_large_is_not_made() -> None:
    kernel = load(ROOT / "examples" / "gemm_fp32.ph")
    with pytest.raises(LaunchError) as error:
        kernel.trace(config={"BM": 64, "BN": 64, "BK": 16}, dims={"M": 512, "N": 512, "K": 256})
    assert error.value.diagnostics[0].code == "PH1020" and "20 MB" in error.value.diagnostics[0].message
    small = kernel.trace()
    size = len(small.to_json()) / 1e6
    assert kernel.trace(max_size=size).to_json() == small.to_json()
    with pytest.raises(LaunchError):
        kernel.trace(max_size=size / 2)
    assert kernel.trace(max_size=np.float32(2 * size)).to_json() == small.to_json()
    for wrong in (math.nan, 0, -1, True, "x"):
        with pytest.raises(LaunchError, match="PH1020"):
            kernel.trace(max_size=wrong)


def test_numbers_stay_inside_their_tables() -> None:
    for path, name in KERNELS:
        t = traced(path, name)[0].traces[0]
        for access in t["accesses"]:
            assert all(r[1] < len(t["patterns"]) for r in access["requests"])
        for f in t["fragments"]:
            assert f["layout"] < len(t["layouts"])
        names = {f["name"] for f in t["fragments"]} | {b["name"] for b in t["buffers"]}
        for s in t["statements"]:
            assert set(s["reads"]) | set(s["writes"]) <= names
            assert s["cuda"] is None or 0 <= s["cuda"][0] <= s["cuda"][1] <= len(t["cuda"])
        for cta in t["ctas"]:
            for i, step in enumerate(cta["steps"]):
                assert all(r["step"] < i for r in step["reads"]) and step["last_read"] >= i
                assert "value" not in step or t["data"][step["value"]]["shape"] == step["shape"]
                for e in step["executions"]:
                    assert e["statement"] < len(t["statements"])
                    assert all(a < len(t["accesses"]) for a in e.get("accesses", []))


def decode(layout: dict[str, Any]) -> set[tuple[int, int, int, tuple[int, ...], bool]]:
    """(warp, lane, register, position, owner) of the slots that hold an element, by the words of FORMAT.md."""

    def table(digits: list[list[int | None]], count: int) -> list[tuple[list[int], bool]]:
        out = []
        for n in range(count):
            at, owner = [0] * len(layout["shape"]), True
            for axis, extent, stride in digits:
                assert extent is not None and stride is not None
                n, value = divmod(n, extent)
                if axis is None:
                    owner = owner and value == 0
                else:
                    at[axis] += value * stride
            out.append((at, owner))
        return out

    warps = int(np.prod([d[1] for d in layout["warp"]], dtype=int))
    parts = table(layout["warp"], warps), table(layout["lane"], 32), table(layout["reg"], layout["registers"])
    out = set()
    for w, (pw, ow) in enumerate(parts[0]):
        for lane, (pl, ol) in enumerate(parts[1]):
            for r, (pr, _) in enumerate(parts[2]):
                at = tuple(a + b + c for a, b, c in zip(pw, pl, pr))
                if all(p < n for p, n in zip(at, layout["shape"])):
                    out.add((w, lane, r, at, ow and ol))
    return out


def test_layouts_are_those_of_the_compiler() -> None:
    """Slots of every layout in the traces of three kernels, decoded from JSON, against RegisterLayout."""
    from phobos.compiler import build_schedule
    from phobos.ir.scheduled import walk
    from phobos.target import get_target
    from phobos.trace.build import _storage

    for file in ("flash_attention_fp32", "gemm_fp16", "argmax_rows"):
        kernel = load(ROOT / "examples" / f"{file}.ph")
        t = kernel.trace().traces[0]
        config = {n: v for n, v in t["kernel"]["configuration"].items() if n in dict(kernel.info.space)}
        compiled = kernel.compile(config=config, arch="sm_90a", dims=t["kernel"]["dims"])
        schedule = build_schedule(compiled.ir, get_target("sm_90a"), compiled.spec)
        layouts = {
            i.name: i.layout
            for s in walk(schedule.body)
            for side in _storage(s)
            for i in side
            if i.name in {f["name"] for f in t["fragments"]}
        }
        assert len(layouts) == len(t["fragments"]) > 0
        for f in t["fragments"]:
            own = layouts[f["name"]]
            expected = {
                (w, lane, r, tuple(int(p) for p in own.positions[w, lane, r]), bool(own.owners[w, lane, r]))
                for w, lane, r in np.argwhere(own.valid).tolist()
            }
            found = decode(t["layouts"][f["layout"]])
            assert found == expected
            owners = [at for *_, at, owner in found if owner]
            assert len(owners) == len(set(owners)) == int(np.prod(own.shape))  # one owner each


def test_the_page_needs_nothing_else() -> None:
    page = traced(ROOT / "examples" / "flash_attention_fp32.ph", "flash_attention")[0].html()
    shell = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:|#)', shell)
    assert "@import" not in shell and "fetch(" not in shell and "XMLHttpRequest" not in shell
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", shell)


def test_text_of_the_kernel_cannot_end_the_script() -> None:
    text = "// </script><script>alert(1)</script> <!--\nkernel k(X: tensor<f32>[N]) { X[0 :+ 32] = 1.0 }"
    from phobos.kernel import jit

    found = jit(text, name='</title><b>"').trace(dims={"N": 32})
    page = found.html()
    assert page.count("</script>") == 2 and "<b>" not in page.split("<script")[0]
    data = page.split('id="traces">')[1].split("</script>")[0]
    assert json.loads(data)[0]["kernel"]["source"][0].startswith("// </script>")
    assert "&lt;script" in found._repr_html_() and found._repr_html_().startswith("<iframe")


def test_saved_by_suffix(tmp_path: Path) -> None:
    found = traced(*KERNELS[0])[0]
    found.save(tmp_path / "t.html")
    found.save(tmp_path / "t.json")
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "t.json").read_text())["format"] == "phobos-trace"
    assert "CTAs of" in repr(found)
