"""`Kernel.autotune` and `Kernel.search`: from arguments to a stored configuration that later calls use.

The device is made up: its clock is a formula, its results come from the reference on the candidate's own tile IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phobos
from phobos.runtime import binding
from phobos.runtime.module import Driver
from phobos.runtime.pipeline import Frontend, Request
from phobos.source import SourceFile
from phobos.tuning import store, tune
from phobos.tuning.candidates import Built

from .fakes import TimingApi

ROWS = """
@autotune(BR in {1, 2, 4}, BN in {32, 64})
kernel rows(X: tensor<f32>[M, N], Y: tensor<f32>[M, N], a: f32) {
  let r = ctx.block.x * BR
  let c = ctx.block.y * BN
  Y[r :+ BR, c :+ BN] = a * X[r :+ BR, c :+ BN]
}
"""
BEST = {"BR": 2, "BN": 64}


def clock(config: Mapping[str, Any]) -> float:
    return 1e-5 * (1 + abs(config["BR"] - 2) / 4 + (config["BN"] == 32) / 2)


class MadeUpTimer:
    """In place of CudaTimer. Class attributes: what the clock says, what was timed, and what spoils results."""

    seconds_of: Callable[[Mapping[str, Any]], float] = staticmethod(clock)
    timed: list[dict[str, Any]] = []
    spoil: Callable[[Mapping[str, Any]], bool] = staticmethod(lambda config: False)
    text = ROWS

    def __init__(self, driver: Driver, ordinal: int, call: binding.Call, dtypes: Any, grid: Any = None):
        self.call = call

    def load(self, built: Built) -> Built:
        return built

    def _config(self, built: Built) -> dict[str, Any]:
        return dict(built.facts.configuration)

    def outputs(self, built: Built) -> dict[str, np.ndarray]:
        config = self._config(built)
        arrays = {n: v.copy() for n, v in self.host_arrays().items()}
        arrays["Y"][...] = np.nan
        from phobos import reference

        frontend = Frontend(SourceFile("<string>", self.text))
        request = Request(kernel=built.program.name, config=tuple(sorted(config.items())))
        reference.run(frontend.ir(request), {**arrays, **self.call.scalars})
        if self.spoil(config):
            arrays["Y"].flat[3] += 1
        return {"Y": arrays["Y"]}

    def seconds(self, built: Built, launches: int) -> float:
        self.timed.append(self._config(built))
        return self.seconds_of(self._config(built))

    def host_arrays(self) -> dict[str, np.ndarray]:
        return {n: v.host for n, v in self.call.views.items()}

    def close(self) -> None:
        return None


@pytest.fixture
def device(use_driver: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> type[MadeUpTimer]:
    use_driver(Driver(TimingApi()))

    class Fresh(MadeUpTimer):
        timed: list[dict[str, Any]] = []

    monkeypatch.setattr(tune, "CudaTimer", Fresh)
    return Fresh


def arguments(m: int = 10, n: int = 100) -> dict[str, Any]:
    x = np.random.default_rng(m).standard_normal((m, n)).astype(np.float32)
    return {"X": x, "Y": np.zeros_like(x), "a": 2.0}


def test_the_best_is_returned_stored_and_used_by_later_calls(device: type[MadeUpTimer]) -> None:
    kernel = phobos.jit(ROWS)
    given = arguments()
    before = kernel.compile(dims={"M": 10, "N": 100})
    assert "cost model" in before.report
    result = kernel.search(**given)
    assert result.best == BEST and result.complete and len(result.timed) == result.space_size == 6
    assert result.reference == "the float64 reference" and result.microseconds == pytest.approx(10.0)
    assert not given["Y"].any()  # the caller's memory is as it was
    for other in (kernel, phobos.jit(ROWS)):
        compiled = other.compile(dims={"M": 10, "N": 100})
        assert compiled.configuration.items() >= BEST.items()
        assert "stored best of a search on" in compiled.report and "6 configurations timed" in compiled.report
    # Another shape, another architecture, or too little said of the shape: the cost model's choice.
    others: list[dict[str, Any]] = [
        {"dims": {"M": 10, "N": 101}},
        {"dims": {"M": 10}},
        {"dims": {"M": 10, "N": 100}, "arch": "sm_90a"},
    ]
    for options in others:
        assert "cost model" in phobos.jit(ROWS).compile(**options).report


def test_calls_take_the_stored_best(device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = phobos.jit(ROWS)
    given = arguments()
    chosen: list[Any] = []
    original = binding.check_call

    def spy(facts: Any, params: Any, call: Any) -> None:
        chosen.append(dict(facts.configuration))
        original(facts, params, call)

    kernel.autotune(**given)
    monkeypatch.setattr(binding, "check_call", spy)
    kernel(**given)
    kernel(**arguments(), config={"BR": 4, "BN": 32})
    assert chosen == [BEST, {"BR": 4, "BN": 32}]


def test_a_second_search_is_answered_from_the_store(device: type[MadeUpTimer]) -> None:
    kernel = phobos.jit(ROWS)
    assert kernel.autotune(**arguments()) == BEST
    count = len(device.timed)
    assert phobos.jit("// a remark\n" + ROWS).autotune(**arguments()) == BEST
    store._kept.clear()  # as in another process
    again = phobos.jit(ROWS).search(**arguments())
    assert again.from_store and again.best == BEST and len(device.timed) == count
    fresh = kernel.search(**arguments(), fresh=True)
    assert not fresh.from_store and len(device.timed) > count


def test_a_search_with_a_limit_does_not_answer_for_a_whole_one(device: type[MadeUpTimer]) -> None:
    kernel = phobos.jit(ROWS)
    first = kernel.search(**arguments(), limit=2)
    assert len(first.timed) == 2 and len(first.skipped) == 4 and not first.complete
    assert kernel.search(**arguments(), limit=1).from_store
    assert not kernel.search(**arguments(), limit=3).from_store
    whole = kernel.search(**arguments())
    assert not whole.from_store and whole.complete and kernel.search(**arguments(), limit=2).from_store


def test_pins(device: type[MadeUpTimer]) -> None:
    kernel = phobos.jit(ROWS)
    result = kernel.search(**arguments(), config={"BN": 32})
    assert result.best == {"BR": 2, "BN": 32} and result.space_size == 3
    dims = {"M": 10, "N": 100}
    assert "stored best" in kernel.compile(config={"BN": 32}, dims=dims).report
    assert "cost model" in kernel.compile(config={"BN": 64}, dims=dims).report
    assert "cost model" in kernel.compile(dims=dims).report
    with pytest.raises(phobos.CompileError, match="PH0307"):
        kernel.autotune(**arguments(), config={"BM": 32})
    with pytest.raises(phobos.CompileError) as info:
        kernel.autotune(**arguments(), config={"BN": 33})
    assert "BN" in info.value.diagnostics[0].message and info.value.diagnostics[0].code.startswith("PH03")


def test_wrong_candidates_never_win(device: type[MadeUpTimer]) -> None:
    device.spoil = staticmethod(lambda config: config == BEST)
    result = phobos.jit(ROWS).search(**arguments())
    assert result.best == {"BR": 1, "BN": 64}
    (bad,) = result.skipped
    assert bad.config == BEST and bad.stage == "verify" and "output Y" in (bad.reason or "")
    device.spoil = staticmethod(lambda config: True)
    with pytest.raises(phobos.LaunchError) as info:
        phobos.jit(ROWS).search(**arguments(), fresh=True)
    (found,) = info.value.diagnostics
    assert found.code == "PH0741" and len(found.notes) == 6 and "output Y" in found.notes[0]


def test_what_cannot_run_is_skipped_before_the_cuda_compiler(
    device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken promises and too much shared memory never reach NVRTC."""
    text = """
@autotune(BM in {32, 48, 64}, BK in {16, 512})
@aligned(M = BM)
kernel product(X: tensor<f32>[M, K], Z: tensor<f32>[K, M], Y: tensor<f32>[M, M]) {
  let i = ctx.block.x * BM
  let j = ctx.block.y * BM
  var acc: tile<f32>[BM, BM] = 0.0
  for k in range(0, K, BK) {
    acc += dot(X[i :+ BM, k :+ BK], Z[k :+ BK, j :+ BM])
  }
  Y[i :+ BM, j :+ BM] = acc
}
"""
    from phobos.tuning import candidates

    compiled: list[int] = []
    original = candidates.compile_program
    monkeypatch.setattr(candidates, "compile_program", lambda p, t: compiled.append(p.shared_bytes) or original(p, t))
    monkeypatch.setattr(device, "text", text)
    monkeypatch.setattr(device, "seconds_of", staticmethod(lambda config: 1e-5 * config["BM"]))
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((64, 32)).astype(np.float32), rng.standard_normal((32, 64)).astype(np.float32)
    result = phobos.jit(text).search(x, z, np.zeros((64, 64), np.float32))
    reasons = {(o.config["BM"], o.config["BK"]): (o.stage, o.reason) for o in result.skipped}
    assert set(reasons) == {(32, 512), (64, 512), (48, 16), (48, 512)} and result.best == {"BM": 32, "BK": 16}
    assert reasons[48, 16] == ("promise", "@aligned(M = 48) is broken by M = 64")
    assert reasons[64, 512][0] == "fit" and "bytes" in (reasons[64, 512][1] or "")
    assert len(compiled) == 2 and result.complete


def test_a_stored_best_that_the_compiler_no_longer_takes(device: type[MadeUpTimer]) -> None:
    import dataclasses

    kernel = phobos.jit(ROWS)
    result = kernel.search(**arguments())
    dims = {"M": 10, "N": 100}
    key = store.key_of(ROWS, kernel.info, Request(kernel="rows"), dims, tune.get_driver().device(0))
    assert key is not None
    store.save(key, dataclasses.replace(result, compiler="older"))
    assert "by another version of the compiler" in phobos.jit(ROWS).compile(dims=dims).report
    assert not phobos.jit(ROWS).search(**arguments()).from_store
    store.save(key, dataclasses.replace(result, compiler="older", best={"BR": 3, "BN": 64}))
    with pytest.warns(store.TuningWarning, match="PH0932"):
        assert "cost model" in phobos.jit(ROWS).compile(dims=dims).report


@pytest.mark.parametrize("best", [{"BR": 3, "BN": 64}, {"BR": 2}, {"BR": 2, "BN": 64, "Z": 1}, {"BR": "2", "BN": 64}])
def test_a_stored_best_that_is_none_of_the_kernel_breaks_no_call(
    device: type[MadeUpTimer], best: dict[str, Any]
) -> None:
    import dataclasses

    dims = {"M": 10, "N": 100}
    result = phobos.jit(ROWS).search(**arguments())
    key = store.key_of(ROWS, phobos.jit(ROWS).info, Request(kernel="rows"), dims, tune.get_driver().device(0))
    assert key is not None
    store.save(key, dataclasses.replace(result, best=best))
    with pytest.warns(store.TuningWarning, match="PH0932.*'rows'.*the next search replaces it") as caught:
        report = phobos.jit(ROWS).compile(dims=dims).report
        phobos.jit(ROWS).compile(dims=dims)
    assert len(caught) == 1 and "cost model" in report and "is not used: PH03" in report
    again = phobos.jit(ROWS).search(**arguments(), limit=2)  # replaces what it looked at less than
    assert not again.from_store and "stored best" in phobos.jit(ROWS).compile(dims=dims).report


def test_a_value_of_a_name_with_one_value_is_checked_where_a_result_is_stored(
    device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ROWS.replace("BN in {32, 64}", "BN in {64}")
    monkeypatch.setattr(device, "text", text)
    kernel = phobos.jit(text)
    kernel.search(**arguments())
    assert kernel.search(**arguments(), config={"BN": 64}).from_store
    for wrong in (32, 64.0):
        with pytest.raises(phobos.CompileError, match="PH0308"):
            kernel.search(**arguments(), config={"BN": wrong})
        with pytest.raises(phobos.CompileError, match="PH0308"):
            kernel.compile(config={"BN": wrong}, dims={"M": 10, "N": 100})


def test_a_grid_of_the_callers_own_is_part_of_the_key(device: type[MadeUpTimer]) -> None:
    strides = ROWS.replace("  let r = ctx.block.x * BR\n", "  for r in range(ctx.block.x * BR, M, ctx.grid.x * BR) {\n")
    strides = strides.replace("c :+ BN]\n}", "c :+ BN]\n  }\n}")
    kernel = phobos.jit(strides.replace("kernel", "@grid(2, ceildiv(N, BN))\nkernel"))
    assert not kernel.search(**arguments(), grid=(1, 2), config={"BN": 64}).from_store
    assert "cost model" in kernel.compile(dims={"M": 10, "N": 100}).report
    assert not kernel.search(**arguments(), config={"BN": 64}).from_store
    assert kernel.search(**arguments(), grid=[1, 2, 1], config={"BN": 64}).from_store


@pytest.mark.parametrize("stored", [True, False])
def test_arguments_are_checked_whether_or_not_a_result_is_stored(device: type[MadeUpTimer], stored: bool) -> None:
    """What a call says of them, once."""
    kernel = phobos.jit(ROWS)
    if stored:
        kernel.search(**arguments())
    given = arguments()
    frozen = np.zeros((10, 100), np.float32)
    frozen.setflags(write=False)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("PH0713", {"Y": frozen}),
        ("PH0714", {"Y": np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), (10, 100), (0, 4))}),
        ("PH0718", {"grid": "x"}),
        ("PH0718", {"grid": (1, 1, 1, 1)}),
        ("PH0718", {"grid": (-1, 1)}),
        ("PH0711", {"config": {"N": 50}}),
        ("PH0722", {"stream": "main"}),
    ]
    for code, change in wrong:
        with pytest.raises(phobos.LaunchError) as info:
            kernel.search(**{**given, **change})
        assert [d.code for d in info.value.diagnostics] == [code], change
    assert not device.timed or stored


def test_what_the_device_says_of_every_configuration_is_said_once(
    device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: MadeUpTimer, built: Built) -> Built:
        raise phobos.LaunchError(phobos.Diagnostic(code="PH0742", message="there is nothing to time"))

    monkeypatch.setattr(device, "load", refuse)
    with pytest.raises(phobos.LaunchError) as info:
        phobos.jit(ROWS).search(**arguments())
    assert [d.code for d in info.value.diagnostics] == ["PH0742"]


def test_a_promise_that_every_configuration_breaks(device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch) -> None:
    text = ROWS.replace("kernel rows", "@aligned(M = 4)\nkernel rows")
    monkeypatch.setattr(device, "text", text)
    with pytest.raises(phobos.LaunchError) as info:
        phobos.jit(text).search(**arguments())
    assert [d.code for d in info.value.diagnostics] == ["PH0712"]


def test_a_look_replaces_no_whole_search(device: type[MadeUpTimer]) -> None:
    kernel = phobos.jit(ROWS)
    kernel.search(**arguments())
    looked = kernel.search(**arguments(), limit=1, fresh=True)
    assert not looked.from_store and len(looked.timed) == 1
    found = kernel.search(**arguments())
    assert found.from_store and found.limit is None and found.best == BEST


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_clock_that_gives_no_time(device: type[MadeUpTimer], seconds: float) -> None:
    device.seconds_of = staticmethod(lambda config: seconds if config["BN"] == 64 else clock(config))
    result = phobos.jit(ROWS).search(**arguments())
    assert result.best == {"BR": 2, "BN": 32} and len(result.skipped) == 3
    assert "PH0745" in (result.skipped[0].reason or "")
    device.seconds_of = staticmethod(lambda config: seconds)
    with pytest.raises(phobos.LaunchError, match="PH0745"):
        phobos.jit(ROWS).search(**arguments(), fresh=True)


def test_names_that_are_dims_are_pinned_by_the_shape(
    device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
@autotune(D in {16, 32}, BR in {1, 2})
kernel rows(X: tensor<f32>[M, D], Y: tensor<f32>[M, D], a: f32) {
  let r = ctx.block.x * BR
  Y[r :+ BR, :] = a * X[r :+ BR, :]
}
"""
    monkeypatch.setattr(device, "text", text)
    monkeypatch.setattr(device, "seconds_of", staticmethod(lambda config: 1e-5 * config["BR"]))
    kernel = phobos.jit(text)
    result = kernel.search(**arguments(10, 32))
    assert result.best == {"D": 32, "BR": 1} and result.space_size == 2
    for guide in ({"dims": {"M": 10, "D": 32}}, {"dims": {"M": 10}, "config": {"D": 32}}):
        assert "stored best" in kernel.compile(**guide).report  # type: ignore[arg-type]
    assert "cost model" in kernel.compile(dims={"M": 10, "D": 16}).report


def test_progress_and_options(device: type[MadeUpTimer]) -> None:
    kernel = phobos.jit(ROWS)
    seen: list[Any] = []
    kernel.autotune(**arguments(), progress=seen.append)
    assert seen[-1].phase == "done" and seen[-1].best.config == BEST
    assert kernel.search(**arguments(), limit=np.int64(3), fresh=np.True_).limit == 3
    for wrong in ({"limit": 0}, {"limit": 2.0}, {"limit": "3"}, {"limit": True}, {"fresh": 1}, {"progress": "yes"}):
        with pytest.raises(phobos.LaunchError, match="PH0744"):
            kernel.autotune(**arguments(), **wrong)
    with pytest.raises(phobos.LaunchError, match="PH0703"):
        kernel.autotune(**arguments(), limits=3)


def test_a_parameter_goes_before_an_option_of_its_name(
    device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ROWS.replace("a: f32", "limit: f32").replace("= a *", "= limit *")
    monkeypatch.setattr(device, "text", text)
    given = arguments()
    given["limit"] = given.pop("a")
    assert len(phobos.jit(text).search(**given).timed) == 6


def test_nothing_is_timed_without_a_device(use_driver: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from phobos.runtime import module

    monkeypatch.setattr(module, "_driver_library_loads", lambda: False)
    for backend in ("auto", "reference", "emulator", "cuda"):
        with pytest.raises(phobos.LaunchError) as info:
            phobos.jit(ROWS).autotune(**arguments(), backend=backend)
        (found,) = info.value.diagnostics
        assert found.code == "PH0740" and "nothing can be timed" in found.message
        assert bool(found.notes) == (backend == "cuda")


def test_a_read_only_cache_still_tunes(
    device: type[MadeUpTimer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("PHOBOS_CACHE_DIR", str(blocked))
    with pytest.warns(UserWarning, match="PH0930") as caught:
        kernel = phobos.jit(ROWS)
        assert kernel.autotune(**arguments()) == BEST
        assert "stored best" in kernel.compile(dims={"M": 10, "N": 100}).report
    assert len(caught) == 1


def test_candidates_compile_in_processes_too(device: type[MadeUpTimer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_JOBS", "2")
    result = phobos.jit(ROWS).search(**arguments())
    assert result.best == BEST and len(result.timed) == 6


def test_the_terminal_line() -> None:
    from phobos.tuning.progress import line
    from phobos.tuning.result import TIMED, Outcome
    from phobos.tuning.search import Progress

    best = Outcome(config=BEST, status=TIMED, microseconds=412.3)
    progress = Progress(phase="timing", done=12, total=36, seconds_left=8.2, best=best)
    assert line(progress) == "timing 12/36, 8 s left, best 412.30 us with BR=2 BN=64"
    assert line(Progress(phase="examining", done=0, total=36)) == "examining 0/36"
