"""The front cache: what a second process reads instead of computing; and the JSON forms."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import phobos
from phobos import compiler
from phobos.ir.dims import DimBinary, DimConst, DimName
from phobos.runtime import facts, pipeline, request
from phobos.runtime.pipeline import Frontend, Request
from phobos.source import SourceFile

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
@launch(64)
@aligned(M = B)
@autotune(B in [8, 16])
kernel scale<T>(X: tensor<T>[M, 2 * B], S: tensor<f32>[M], a: f32, const up: bool) {
  let i = ctx.block.x * B
  let unused = 3
  let s = reshape(S[i :+ B], B, 1)
  if up { X[i :+ B, :] = X[i :+ B, :] * s * a }
}
"""
OPTIONS = {"config": {"B": 8, "up": True}, "dtypes": {"T": "f16"}, "arch": "sm_80"}


def state(c: phobos.Compiled) -> tuple[object, ...]:
    return c.program, c.report, c.cubin, c.warnings, c.configuration, c.spec


def test_second_process_gets_the_same_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = state(phobos.jit(TEXT, name="scale.ph").compile(**OPTIONS))
    assert any(d.code.startswith("PH04") for d in first[3])  # warnings are kept too

    def never(*_: object) -> None:
        raise AssertionError("computed although it is in the cache")

    monkeypatch.setattr(Frontend, "module", never)
    second = phobos.jit(TEXT, name="scale.ph").compile(**OPTIONS)
    assert state(second) == first and second.binary.from_cache
    monkeypatch.undo()
    assert second.ir.name == "scale"


@pytest.mark.parametrize(
    "change",
    [
        {"text": TEXT + "// more\n"},
        {"name": "other.ph"},
        {"config": {"B": 16, "up": True}},
        {"config": {"B": 8, "up": False}},
        {"dtypes": {"T": "bf16"}},
        {"arch": "sm_86"},
        {"dims": {"M": 24}},
        {"debug": True},
        {"fast_math": True},
    ],
)
def test_everything_that_matters_is_in_the_key(change: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    phobos.jit(TEXT, name="scale.ph").compile(**OPTIONS)
    built: list[object] = []
    original = compiler.build_program
    monkeypatch.setattr(compiler, "build_program", lambda *a, **k: (built.append(a), original(*a, **k))[1])
    options = {**OPTIONS, **{k: v for k, v in change.items() if k not in ("text", "name")}}
    phobos.jit(change.get("text", TEXT), name=change.get("name", "scale.ph")).compile(**options)
    assert len(built) == 1


def test_compiler_version_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    phobos.jit(TEXT).compile(**OPTIONS)
    monkeypatch.setattr(pipeline.cache, "compiler_version", lambda: "another")
    parsed: list[int] = []
    original = Frontend.module
    monkeypatch.setattr(Frontend, "module", lambda self: (parsed.append(1), original(self))[1])
    phobos.jit(TEXT).compile(**OPTIONS)
    assert parsed


def test_damaged_front_entries_are_rebuilt(own_cache: Path) -> None:
    first = state(phobos.jit(TEXT, name="scale.ph").compile(**OPTIONS))
    entries = list((own_cache / "front").glob("*.bin"))
    assert len(entries) >= 3
    for path in entries:
        path.write_bytes(path.read_bytes()[:-3])
    assert state(phobos.jit(TEXT, name="scale.ph").compile(**OPTIONS)) == first


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv("PHOBOS_NO_CACHE", "1")
    monkeypatch.setattr(pipeline.cache, "compiler_version", lambda: pytest.fail("not needed"))
    assert "scale" in phobos.jit(TEXT).compile(**OPTIONS).cuda
    assert not own_cache.exists()


def test_errors_are_not_cached() -> None:
    for _ in range(2):
        with pytest.raises(phobos.CompileError) as info:
            phobos.jit(TEXT).compile(config={"B": 9, "up": True}, dtypes={"T": "f16"})
        assert "PH0308" in [d.code for d in info.value.diagnostics]


_HIT = """
import sys
import phobos
c = phobos.load(sys.argv[1]).compile(config={"B": 8, "up": True}, dtypes={"T": "f16"}, arch="sm_80")
heavy = "lark numpy jinja2 phobos.passes phobos.semantic.check phobos.codegen.kernel phobos.ir.tile cuda".split()
print(len(c.cubin), len(c.report), [m for m in heavy if m in sys.modules])
"""


def test_a_hit_imports_neither_parser_nor_code_generator(tmp_path: Path) -> None:
    path = tmp_path / "scale.ph"
    path.write_text(TEXT)
    runs = [
        subprocess.run(
            [sys.executable, "-c", _HIT, str(path)], capture_output=True, text=True, cwd=ROOT, timeout=120, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0].split("[")[0] == runs[1].split("[")[0]
    assert runs[1].rstrip().endswith("[]"), runs[1]


def test_import_is_cheap() -> None:
    text = "import sys; before = set(sys.modules); import phobos; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", text], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == ["__future__", "phobos"]


def test_public_names() -> None:
    assert set(phobos.__all__) <= set(dir(phobos))
    for name in phobos.__all__:
        assert getattr(phobos, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = phobos.nothing  # type: ignore[attr-defined]


# --- JSON forms --------------------------------------------------------------------------------


def test_json_round_trips() -> None:
    frontend = Frontend(SourceFile("scale.ph", TEXT))
    info = frontend.kernel(None)
    assert pipeline._info_from_json(json.loads(json.dumps(pipeline._info_to_json(info)))) == info
    wanted = Request(
        kernel="scale", config=(("B", 8),), dtypes=request.parse_dtypes(info, {"T": "f16"}), consts=(("up", True),)
    )
    configured = frontend.configured(wanted)
    data = json.loads(json.dumps(pipeline._configured_to_json(configured)))
    assert pipeline._configured_from_json(wanted, data) == configured
    assert configured.facts.written == ("X",) and configured.facts.aligned == (("M", 8),)
    c = phobos.jit(TEXT).compile(**OPTIONS)
    assert facts.program_from_json(json.loads(json.dumps(facts.program_to_json(c.program)))) == c.program


def test_dim_expressions_as_json() -> None:
    expr = DimBinary("min", DimBinary("ceildiv", DimName("N"), DimConst(8)), DimConst(65535))
    assert facts.dim_from_json(json.loads(json.dumps(facts.dim_to_json(expr)))) == expr


# --- choosing a configuration ------------------------------------------------------------------


def test_representative_extents() -> None:
    rng = np.random.default_rng(11)
    for size in [65, 100, 1000, 4095, 4096, 4097, 6144, 2**31, *map(int, rng.integers(65, 10**6, 300))]:
        near = request.representative({"N": size}, ())["N"]
        assert size * 0.75 <= near <= size
        assert math.gcd(near, request._DIVISORS) == math.gcd(size, request._DIVISORS)
        assert request.representative({"N": near}, ())["N"] == near
        assert request.representative({"N": size}, ("N",))["N"] == size
    for round_size in (128, 1024, 4096, 5120, 6144, 8192, 2**20):
        assert request.representative({"N": round_size}, ())["N"] == round_size
    odd = {request.representative({"N": n}, ())["N"] for n in range(1025, 1151) if math.gcd(n, request._DIVISORS) == 1}
    assert len(odd) == 1


def test_changing_shapes_share_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    from phobos.tuning import default

    calls: list[object] = []
    original = default.choose
    monkeypatch.setattr(default, "choose", lambda *a, **k: (calls.append(a), original(*a, **k))[1])
    text = "@autotune(B in [64, 256])\nkernel k(X: tensor<f32>[N]) {\n  X[ctx.block.x * B :+ B] = 1.0\n}\n"
    k = phobos.jit(text)
    for n in (1031, 1033, 1039, 1049):
        x = np.zeros(n, np.float32)
        k(x, backend="reference")
        assert x.all()
    assert len(calls) == 1
    k.compile(dims={"N": 1031})  # an explicit extent is taken as it is
    assert len(calls) == 2
