"""The public object: jit, load, compile, and calls on the host's backends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phobos
from phobos.runtime import module, nvrtc

from .fakes import CONFIG, SAXPY, FakeTorchTensor, codes, data, fake_torch

COPY = """
@launch(64)
kernel copy<T>(X: tensor<T>[M, N], Y: tensor<T>[M, N], const negate: bool) {
  let i = ctx.block.x * 8
  if negate { Y[i :+ 8, 0 :+ 16] = -X[i :+ 8, 0 :+ 16] } else { Y[i :+ 8, 0 :+ 16] = X[i :+ 8, 0 :+ 16] }
}
"""


# --- making kernels ----------------------------------------------------------------------------


def test_jit_reports_syntax_errors_at_once() -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit("kernel k(X: tensor<f32>[N]) {\n  X[0] = = 1.0\n}\n", name="bad.ph")
    found = info.value.diagnostics[0]
    assert found.span is not None and (found.span.file, found.span.line) == ("bad.ph", 2)
    assert "X[0] = = 1.0" in str(info.value)


def test_jit_takes_text_only() -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(Path("x.ph"))  # type: ignore[arg-type]
    assert codes(info) == ["PH0608"]


def test_jit_of_a_path_points_to_load() -> None:
    for path in ("gemm.ph", "some/folder/gemm.ph\n"):
        with pytest.raises(phobos.CompileError, match="is the name of a file") as info:
            phobos.jit(path)
        assert codes(info) == ["PH0608"] and info.value.diagnostics[0].help == "for a file use phobos.load(path)"


def test_picking_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "two.ph"
    path.write_text(SAXPY + COPY)
    assert phobos.load(path, kernel="copy").name == "copy"
    assert repr(phobos.load(str(path), "saxpy")).startswith("<phobos.Kernel saxpy(X: tensor<f32>[N], Y:")
    for kernel, words in ((None, ["2 kernels", "saxpy, copy"]), ("sapxy", ["'sapxy'", "did you mean 'saxpy'"])):
        with pytest.raises(phobos.CompileError) as info:
            phobos.load(path, kernel=kernel)
        assert codes(info) == ["PH0208"] and all(w in str(info.value) for w in words)
    for text in ("fn f(x: f32) -> f32 { return x }\n", "", "// nothing\n"):
        with pytest.raises(phobos.CompileError, match="kernel"):
            phobos.jit(text)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.load(tmp_path / "none.ph")
    assert codes(info)[0].startswith("PH100")


# --- compiling ---------------------------------------------------------------------------------


def test_compiled() -> None:
    c = phobos.jit(SAXPY, name="saxpy.ph").compile(config=CONFIG, arch="sm_80")
    assert "saxpy" in c.cuda and "#include" not in c.cuda and '"saxpy.ph"' in c.cuda
    assert c.arch == "sm_80" and c.threads == 64 and c.configuration == CONFIG
    assert c.cubin[:4] == b"\x7fELF" and ".target sm_80" in c.ptx
    assert c.registers > 0 and c.spill_bytes == 0
    assert c.ir.name == "saxpy"
    assert c.grid({"N": 1000}) == (16, 1, 1) and c.grid(N=64) == (1, 1, 1)
    assert "B = 64" in c.report and "no spills" in c.report
    assert all(d.choice in c.report for d in c.decisions)
    assert c.to_json()["threads"] == 64


def test_compiled_text_needs_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_loaded", None)
    monkeypatch.setattr(nvrtc, "library_path", lambda: None)
    monkeypatch.setattr(nvrtc, "library_fingerprint", lambda: "")
    c = phobos.jit(SAXPY).compile(config=CONFIG, arch="sm_80")
    assert "saxpy" in c.cuda
    assert "not made: NVRTC" in c.report and c.to_json()["binary"] is None
    with pytest.raises(phobos.CompileError) as info:
        _ = c.cubin
    assert codes(info) == ["PH0910"]


def test_dims_guide_what_a_variant_assumes() -> None:
    k = phobos.jit(COPY)
    free = k.compile({"negate": True}, arch="sm_80", dtypes={"T": "f16"})
    ragged = k.compile({"negate": True}, arch="sm_80", dtypes={"T": "f16"}, dims={"N": 1001})
    assert free.spec.tensor("X").align16 and free.spec.multiple("N") == 16
    assert not ragged.spec.tensor("X").align16 and ragged.spec.multiple("N") == 1 and ragged.spec.multiple("M") == 16
    assert free.cuda != ragged.cuda
    assert free.configuration["negate"] is True
    huge = k.compile({"negate": True}, dtypes={"T": "f32"}, dims={"M": 2**20, "N": 2**12})
    assert huge.spec.index_bits == 64


@pytest.mark.parametrize(
    "options, code",
    [
        ({"config": {"Q": 64}}, "PH0307"),
        ({"config": {"B": 3}}, "PH0308"),
        ({"config": [64]}, "PH0607"),
        ({"config": {"B": [64]}}, "PH0607"),
        ({"config": CONFIG, "arch": "sm_8"}, "PH0901"),
        ({"config": CONFIG, "dims": {"M": 4}}, "PH0315"),
        ({"config": CONFIG, "dims": {"N": -4}}, "PH0607"),
        ({"config": CONFIG, "dtypes": {"T": "f16"}}, "PH0606"),
        ({"config": CONFIG, "consts": {"c": True}}, "PH0310"),
    ],
)
def test_bad_requests(options: dict[str, Any], code: str) -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(SAXPY).compile(**options)
    assert code in codes(info)


def test_bad_dtypes() -> None:
    for dtypes in ({"T": "f15"}, {"T": "index"}):
        with pytest.raises(phobos.CompileError) as info:
            phobos.jit(COPY).compile({"negate": True}, dtypes=dtypes)
        assert codes(info) == ["PH0606"]


def test_unknown_dim_of_grid() -> None:
    c = phobos.jit(SAXPY).compile(CONFIG)
    for dims, code in (({"M": 3}, "PH0724"), ({}, "PH0718")):
        with pytest.raises(phobos.LaunchError) as info:
            c.grid(dims)
        assert codes(info) == [code]


# --- host backends -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "emulator"])
def test_numpy_in_place(backend: str) -> None:
    k = phobos.jit(SAXPY)
    x, y, want = data()
    k(x, y, 2.0, config=CONFIG, backend=backend)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    x, y, want = data()
    k(a=np.float32(2.0), Y=y[::-1], X=x[::-1], config=CONFIG, backend=backend)
    np.testing.assert_allclose(y, want, rtol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "emulator"])
@pytest.mark.parametrize("negate", [False, True])
def test_const_and_dtype_parameters(backend: str, negate: bool) -> None:
    k = phobos.jit(COPY)
    x = np.arange(9 * 16, dtype=np.float16).reshape(9, 16)
    y = np.zeros_like(x)
    k(x, y, negate, backend=backend)
    np.testing.assert_array_equal(y, -x if negate else x)
    bits = np.random.default_rng(3).integers(0, 0x7F00, (9, 16)).astype(np.uint16)
    out = np.zeros_like(bits)
    k(X=bits, Y=out, negate=negate, backend=backend)
    np.testing.assert_array_equal(out, bits ^ 0x8000 if negate else bits)


def test_torch_tensors_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    x, y, want = data()
    phobos.jit(SAXPY)(
        FakeTorchTensor(x, device=None), FakeTorchTensor(y, device=None), 2.0, config=CONFIG, backend="reference"
    )
    np.testing.assert_allclose(y, want, rtol=1e-6)


def test_auto_is_the_reference_without_a_device(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_driver_library_loads", lambda: False)
    x, y, want = data()
    k = phobos.jit(SAXPY)
    k(x, y, 2.0, config=CONFIG)
    np.testing.assert_allclose(y, want, rtol=1e-6)
    with pytest.raises(phobos.LaunchError) as info:
        k(x, y, 2.0, config=CONFIG, backend="cuda")
    assert codes(info) == ["PH0920"]


def test_emulator_reports_are_launch_errors() -> None:
    k = phobos.jit('@launch(32)\nkernel k(X: tensor<f32>[N]) {\n  assert(X[0] > 0.0, "positive")\n  X[1] = 2.0\n}\n')
    good = np.ones(4, np.float32)
    k(good, backend="emulator")
    with pytest.raises(phobos.LaunchError) as info:
        k(-good, backend="emulator")
    found = info.value.diagnostics[0]
    assert found.code.startswith("PH08") and found.span is not None and found.span.line == 3
    assert "positive" in found.message


@pytest.mark.parametrize(
    "call, code",
    [
        (lambda k, x, y: k(x, y, 2.0, 3.0), "PH0701"),
        (lambda k, x, y: k(x, y), "PH0702"),
        (lambda k, x, y: k(x, y, b=2.0), "PH0703"),
        (lambda k, x, y: k(x, y, 2.0, X=x), "PH0704"),
        (lambda k, x, y: k(x, y, 2.0, backend="gpu"), "PH0721"),
        (lambda k, x, y: k(x, y, 2.0, backend="reference", stream=3, config=CONFIG), "PH0722"),
        (lambda k, x, y: k(x, y, "a", config=CONFIG), "PH0716"),
        (lambda k, x, y: k(x, y[:50], 2.0, config=CONFIG), "PH0710"),
        (lambda k, x, y: k(x, y, 2.0, config=CONFIG, grid=(1, 2, 3, 4)), "PH0718"),
        (lambda k, x, y: k(x, y, 2.0, config=CONFIG, grid="x"), "PH0718"),
        (lambda k, x, y: k(x, y, 2.0, config=CONFIG, grid=(1, 65536)), "PH0718"),
    ],
)
def test_wrong_calls(call: Callable[..., None], code: str) -> None:
    x, y, _ = data()
    before = y.copy()
    with pytest.raises(phobos.LaunchError) as info:
        call(phobos.jit(SAXPY), x, y)
    assert codes(info) == [code]
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize(
    "config, code", [({"C": 1}, "PH0307"), ({"B": 63}, "PH0308"), (3, "PH0607"), ({1: 2}, "PH0607")]
)
def test_wrong_configurations(config: Any, code: str) -> None:
    x, y, _ = data()
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(SAXPY)(x, y, 2.0, config=config, backend="reference")
    assert codes(info)[0] == code


HALF = """
@autotune(F in {1, 1.0})
kernel k(X: tensor<f32>[N]) {
  X[ctx.block.x * 256 :+ 256] = f32(F / 2)
}
"""


EQUAL = (1, 1.0, np.float64(1.0), np.int64(1), True)


@pytest.mark.parametrize("values", [EQUAL, EQUAL[::-1], EQUAL[2:] + EQUAL[:2]])
def test_configurations_that_python_counts_as_equal_are_told_apart(values: tuple[Any, ...]) -> None:
    """Whatever was asked for before: each has its own facts, program, choice and variant."""
    kernel, narrow = phobos.jit(HALF), phobos.jit(HALF.replace("{1, 1.0}", "{1, 4}"))
    for value in values:
        x = np.zeros(4, np.float32)
        if value is True:
            with pytest.raises(phobos.CompileError, match="PH0308"):
                kernel(x, config={"F": value}, backend="reference")
        else:
            kernel(x, config={"F": value}, backend="reference")
            assert x[0] == (0.5 if isinstance(value, float) else 0.0)
            plain = float(value) if isinstance(value, float) else int(value)
            assert repr(kernel.compile(config={"F": value}).configuration["F"]) == repr(plain)
        if isinstance(value, (bool, float)):
            with pytest.raises(phobos.CompileError, match="PH0308"):
                narrow.compile(config={"F": value})
        else:
            narrow.compile(config={"F": value})


def test_the_sign_of_zero_counts() -> None:
    kernel = phobos.jit("kernel k(X: tensor<f32>[N], const z: f32) {\n  X[ctx.block.x * 4 :+ 4] = 1.0 / z\n}\n")
    x = np.zeros(4, np.float32)
    for zero, want in ((0.0, np.inf), (-0.0, -np.inf), (0.0, np.inf)):
        kernel(x, z=zero, backend="reference")
        assert x[0] == want


def test_shape_decides_a_searched_dim() -> None:
    k = phobos.jit(
        "@launch(32)\n@autotune(D in {16, 32})\nkernel k(X: tensor<f32>[N, D]) {\n  X[ctx.block.x, :] = 1.0\n}\n"
    )
    x = np.zeros((3, 32), np.float32)
    k(x, backend="reference")
    assert x.all()
    with pytest.raises(phobos.LaunchError) as info:
        k(np.zeros((3, 24), np.float32), backend="reference")
    assert codes(info) == ["PH0711"] and "{16, 32}" in str(info.value)
    with pytest.raises(phobos.LaunchError) as info:
        k(x, backend="reference", config={"D": 16})
    assert codes(info) == ["PH0711"]


def test_warnings_of_the_checker_are_shown_once() -> None:
    text = "@launch(32)\nkernel k(X: tensor<f32>[N]) {\n  let unused = 3\n  X[0] = 1.0\n}\n"
    k = phobos.jit(text)
    x = np.zeros(4, np.float32)
    with pytest.warns(phobos.KernelWarning, match=r"PH0402[\s\S]*let unused") as caught:
        k(x, backend="reference")
        k(x, backend="reference")
    assert len(caught) == 1 and caught[0].filename == __file__
    assert [d.code for d in k.compile().warnings] == ["PH0402"]


def test_misfits_do_not_show_pythons_own_error() -> None:
    with pytest.raises(phobos.LaunchError) as info:
        phobos.jit(SAXPY)(1, 2, 3, 4)
    assert info.value.__suppress_context__


def test_autotune_declines_where_nothing_can_be_timed(no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_driver_library_loads", lambda: False)
    x, y, _ = data()
    for backend in ("auto", "reference", "emulator"):
        with pytest.raises(phobos.LaunchError) as info:
            phobos.jit(SAXPY).autotune(x, y, 2.0, backend=backend)
        assert codes(info) == ["PH0740"]
    with pytest.raises(phobos.LaunchError) as info:
        phobos.jit(SAXPY).autotune(x, y)
    assert codes(info) == ["PH0702"]


@pytest.mark.parametrize("grid", [(2,), 2, np.int64(2), [np.int32(2), 1]])
def test_grid_override(grid: Any) -> None:
    x, y, want = data(256)
    start = y.copy()
    phobos.jit(SAXPY)(x, y, 2.0, config=CONFIG, backend="reference", grid=grid)
    np.testing.assert_allclose(y[:128], want[:128], rtol=1e-6)
    np.testing.assert_array_equal(y[128:], start[128:])


def test_empty_tensors() -> None:
    empty = np.zeros(0, np.float32)
    for backend in ("reference", "emulator"):
        phobos.jit(SAXPY)(empty, empty.copy(), 2.0, config=CONFIG, backend=backend)


def test_an_extent_that_contradicts_what_is_fixed() -> None:
    """By a pin, by a name of one value, or by what the configuration chose: never ignored."""
    text = "@autotune(D in [64], BN in [64, 128])\nkernel k(X: tensor<f32>[N, D]) {\n"
    text += "X[ctx.block.x * BN :+ BN, :] = 1.0\n}"
    for given in ({"dims": {"D": 128}}, {"config": {"N": 64}, "dims": {"N": 65}}):
        with pytest.raises(phobos.CompileError) as caught:
            phobos.jit(text).compile(arch="sm_80", **given)
        (found,) = caught.value.diagnostics
        assert found.code == "PH0607" and "is fixed at 64 here, not" in found.message
    assert phobos.jit(text).compile(arch="sm_80", dims={"D": 64, "N": 100}).configuration["D"] == 64


@pytest.mark.parametrize("backend", ["emulator", "reference"])
def test_one_block_of_an_empty_tensor_touches_nothing(backend: str) -> None:
    text = "@grid(1)\nkernel k(Y: tensor<f32>[N], Z: tensor<f32>[M]) {\n"
    text += "let a = Y[ctx.block.x] + 1.0\nZ[ctx.block.x] = a\n}"
    for n, m in ((0, 0), (0, 3), (3, 0)):
        y, z = np.zeros(n, np.float32), np.zeros(m, np.float32)
        phobos.jit(text)(y, z, backend=backend)
        assert z.tolist() == ([1.0, 0.0, 0.0] if m else [])


def test_a_grid_beyond_the_kernels_own_is_refused() -> None:
    """Its positions would not be masked: they are known to lie inside for the blocks of the kernel's grid."""
    kernel = phobos.jit("kernel k(Y: tensor<f32>[N]) {\nY[ctx.block.x] = 1.0\n}")
    for backend in ("emulator", "reference"):
        y = np.zeros(5, np.float32)
        kernel(y, grid=3, backend=backend)
        assert y.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]
        for grid in (7, (5, 2)):
            with pytest.raises(phobos.LaunchError, match="PH0718"):
                kernel(y, grid=grid, backend=backend)


def test_a_pinned_dim_beside_open_names() -> None:
    text = """@autotune(BM in {64, 128})
kernel k(X: tensor<f32>[M, 64]) {
  let t: tile<f32>[M, 64] = X[0 :+ M, :]
  X[0 :+ M, :] = t * 2.0 + f32(BM)
}"""
    assert phobos.jit("@grid(1)\n" + text).compile(config={"M": 16}, arch="sm_80").configuration["M"] == 16
