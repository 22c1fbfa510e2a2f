"""Everything a call can have wrong, each with its code and the names in its message; and the variant it selects."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from phobos.diagnostics import LaunchError
from phobos.ir.types import DType
from phobos.runtime import binding
from phobos.runtime.facts import KernelFacts, kernel_facts
from phobos.runtime.pipeline import Frontend, KernelInfo, Request
from phobos.source import SourceFile

from .fakes import FakeCupyArray, FakeTorchTensor, fake_torch

TEXT = """
@launch(128)
@aligned(M = B)
@autotune(B in [16, 32])
kernel scale<T>(X: tensor<T>[M, N], Y: tensor<T>[M, N], W: tensor<f32>[N, 4], a: f32, n: i32, const flip: bool) {
  let i = ctx.block.x * B
  let w = W[0, 0]
  if flip {
    Y[i :+ B, 0 :+ 8] = X[i :+ B, 0 :+ 8] * T(a) + T(w) + T(n)
  } else {
    Y[i :+ B, 0 :+ 8] = X[i :+ B, 0 :+ 8]
  }
}
"""


@pytest.fixture(scope="module")
def frontend() -> Frontend:
    return Frontend(SourceFile("scale.ph", TEXT))


@pytest.fixture
def info(frontend: Frontend) -> KernelInfo:
    return frontend.kernel(None)


def facts(frontend: Frontend, dtype: DType = DType.F32) -> KernelFacts:
    request = Request(kernel="scale", config=(("B", 16),), dtypes=(("T", dtype),), consts=(("flip", True),))
    return kernel_facts(frontend.ir(request))


def arguments(**changes: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "X": np.zeros((32, 64), np.float32),
        "Y": np.zeros((32, 64), np.float32),
        "W": np.zeros((64, 4), np.float32),
        "a": 2.0,
        "n": 3,
        "flip": True,
    }
    out.update(changes)
    return out


def bound(info: KernelInfo, **changes: Any) -> binding.Call:
    return binding.bind(info.name, info.params, arguments(**changes))


def codes(info: LaunchError) -> list[str]:
    return [d.code for d in info.diagnostics]


# --- names -----------------------------------------------------------------------------------


def names(info: KernelInfo, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return binding.bind_names(info.name, info.params, args, kwargs)


def test_positions_and_keywords(info: KernelInfo) -> None:
    want = {"X": 1, "Y": 2, "W": 3, "a": 4, "n": 5, "flip": 6}
    assert names(info, 1, 2, 3, 4, 5, 6) == want
    assert names(info, 1, 2, 3, flip=6, n=5, a=4) == want
    assert names(info, **want) == want


@pytest.mark.parametrize(
    "args, kwargs, code, words",
    [
        ((1, 2, 3, 4, 5, 6, 7), {}, "PH0701", ["6 arguments", "7"]),
        ((1, 2), {}, "PH0702", ["'W'", "'a'", "'n'", "'flip'"]),
        ((1, 2, 3, 4, 5), {"flap": 6}, "PH0703", ["'flap'"]),
        ((1, 2, 3, 4, 5, 6), {"a": 6}, "PH0704", ["'a'"]),
    ],
)
def test_wrong_names(info: KernelInfo, args: Any, kwargs: Any, code: str, words: list[str]) -> None:
    with pytest.raises(LaunchError) as caught:
        names(info, *args, **kwargs)
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert all(word in found.message for word in words)
    assert "scale(X: tensor<T>[M, N]" in found.notes[0]
    if code == "PH0703":
        assert found.help == "did you mean 'flip'?"


# --- arrays and scalars ------------------------------------------------------------------------


def test_good_call(info: KernelInfo) -> None:
    call = bound(info)
    assert call.dims == {"M": 32, "N": 64}
    assert call.dtypes == {"T": DType.F32}
    assert call.scalars == {"a": 2.0, "n": 3} and call.consts == {"flip": True}
    assert call.device is None


f16 = np.float16
wrong = [
    ({"X": 3.0}, "PH0705", ["'X'", "float"]),
    ({"X": np.zeros((32, 64), np.complex64), "Y": np.zeros((32, 64), np.complex64)}, "PH0706", ["complex64"]),
    ({"W": np.zeros((64, 4), f16)}, "PH0707", ["'W'", "f32", "f16"]),
    ({"Y": np.zeros((32, 64), f16)}, "PH0708", ["'X'", "'Y'", "f32", "f16"]),
    ({"X": np.zeros(32, np.float32)}, "PH0709", ["'X'", "2 dimensions", "(32)"]),
    ({"Y": np.zeros((32, 65), np.float32)}, "PH0710", ["'N'", "65", "64", "'Y'", "X"]),
    ({"W": np.zeros((64, 5), np.float32)}, "PH0711", ["axis 1", "'W'", "5", "4"]),
    ({"a": "x"}, "PH0716", ["'a'"]),
    ({"a": np.zeros(3)}, "PH0716", ["'a'", "(3,)"]),
    ({"n": 2.5}, "PH0716", ["'n'", "i32"]),
    ({"n": 2**31}, "PH0717", ["'n'", "2147483648"]),
    ({"a": 1e39}, "PH0717", ["'a'", "f32"]),
    ({"flip": 1}, "PH0716", ["'flip'", "bool"]),
]


@pytest.mark.parametrize("changes, code, words", wrong)
def test_wrong_arguments(info: KernelInfo, changes: dict[str, Any], code: str, words: list[str]) -> None:
    with pytest.raises(LaunchError) as caught:
        bound(info, **changes)
    assert set(codes(caught.value)) == {code}
    text = " ".join(d.message for d in caught.value.diagnostics)
    assert all(word in text for word in words), text


def test_several_mistakes_are_reported_together(info: KernelInfo) -> None:
    with pytest.raises(LaunchError) as caught:
        bound(info, X=None, W=np.zeros((63, 4), np.float64), n=2**40)
    assert codes(caught.value) == ["PH0705", "PH0707", "PH0710", "PH0717"]


def test_two_devices(info: KernelInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    on = {n: FakeTorchTensor(a, device=0) for n, a in arguments().items() if n in "XYW"}
    assert bound(info, **on).device == 0
    on["W"] = FakeTorchTensor(arguments()["W"], device=1)
    with pytest.raises(LaunchError) as caught:
        bound(info, **on)
    assert codes(caught.value) == ["PH0715"]
    assert "'X' on CUDA device 0" in str(caught.value) and "'W' on CUDA device 1" in str(caught.value)
    on["W"] = arguments()["W"]
    with pytest.raises(LaunchError, match="the host"):
        bound(info, **on)


# --- the configured kernel ---------------------------------------------------------------------


def check(frontend: Frontend, **changes: Any) -> None:
    info = frontend.kernel(None)
    binding.check_call(facts(frontend), info.params, bound(info, **changes))


def test_aligned_promise_names_dim_value_and_tile(frontend: Frontend) -> None:
    check(frontend)
    odd = {n: np.zeros((40, 64), np.float32) for n in "XY"}
    with pytest.raises(LaunchError) as caught:
        check(frontend, **odd)
    (found,) = caught.value.diagnostics
    assert found.code == "PH0712"
    assert "'M' is 40" in found.message and "16" in found.message
    assert found.help and "48" in found.help


def test_written_read_only_array(frontend: Frontend) -> None:
    frozen = np.zeros((32, 64), np.float32)
    frozen.flags.writeable = False
    check(frontend, X=frozen)
    with pytest.raises(LaunchError) as caught:
        check(frontend, Y=frozen)
    assert codes(caught.value) == ["PH0713"] and "'Y'" in str(caught.value)


def test_written_broadcast(frontend: Frontend) -> None:
    row = np.zeros((1, 64), np.float32)
    spread = np.lib.stride_tricks.as_strided(row, (32, 64), (0, 4))
    check(frontend, X=spread)
    with pytest.raises(LaunchError) as caught:
        check(frontend, Y=spread)
    assert codes(caught.value) == ["PH0714"] and "(0, 1)" in str(caught.value)


def test_pinned_dim() -> None:
    text = "@launch(32)\n@autotune(D in [64])\nkernel k(X: tensor<f32>[N, D], S: tensor<f32>[2 * D]) {\n"
    text += "  X[ctx.block.x, :] = S[0 :+ D]\n}\n"
    frontend = Frontend(SourceFile("k.ph", text))
    info = frontend.kernel(None)
    known = kernel_facts(frontend.ir(Request(kernel="k")))

    def run(width: int, length: int) -> None:
        arrays = {"X": np.zeros((4, width), np.float32), "S": np.zeros(length, np.float32)}
        binding.check_call(known, info.params, binding.bind("k", info.params, arrays))

    run(64, 128)
    with pytest.raises(LaunchError, match=r"dim 'D' of argument 'X' is 32, .*compiled for 64"):
        run(32, 128)
    with pytest.raises(LaunchError, match=r"argument 'S' is 64, .*compiled for 128"):
        run(64, 64)


# --- specialization ----------------------------------------------------------------------------


def spec(frontend: Frontend, signs: tuple[str, ...] = (), dtype: DType = DType.F32, **changes: Any) -> Any:
    info = frontend.kernel(None)
    return binding.specialize(facts(frontend, dtype), bound(info, **changes), signs)


def aligned_array(shape: tuple[int, ...], dtype: Any = np.float32, offset: int = 0) -> np.ndarray:
    """An array whose address is 16 n + offset."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = (-raw.ctypes.data) % 16 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def test_alignment_and_contiguity(frontend: Frontend) -> None:
    big = aligned_array((32, 128))
    for x, align16, contiguous in (
        (aligned_array((32, 64)), True, True),
        (aligned_array((32, 64), offset=4), False, True),
        (big[:, :64], True, False),  # rows 512 bytes apart
        (big[:, 4:68], True, False),
        (big[:, 1:65], False, False),  # begins 4 bytes after a multiple of 16
        (big[:, ::2], False, False),  # not unit stride
        (aligned_array((64, 32)).T, False, False),
        (aligned_array((32, 64))[::-1], True, False),  # negative strides are strides
    ):
        found = spec(frontend, X=x).tensor("X")
        assert (found.align16, found.contiguous) == (align16, contiguous), x.strides


def test_rows_that_are_no_multiple_of_16_bytes(frontend: Frontend) -> None:
    found = spec(
        frontend,
        X=aligned_array((32, 63)),
        Y=aligned_array((32, 63)),
        W=aligned_array((63, 4)),
    )
    assert not found.tensor("X").align16 and found.tensor("X").contiguous
    assert found.tensor("W").align16
    assert dict(found.dim_multiple) == {"M": 16, "N": 1}


@pytest.mark.parametrize(
    "columns, multiple",
    [(64, 16), (72, 8), (68, 4), (66, 1), (63, 1)],  # rows of 264 and 252 bytes begin anywhere
)
def test_multiples_of_extents_along_rows(frontend: Frontend, columns: int, multiple: int) -> None:
    """Rows of whole 16 bytes are told apart by what divides their length; other dims only by 16."""
    x, y, w = (aligned_array(shape) for shape in ((24, columns), (24, columns), (columns, 4)))
    assert dict(spec(frontend, X=x, Y=y, W=w).dim_multiple) == {"M": 1, "N": multiple}


def test_strides_of_unit_axes_do_not_matter() -> None:
    assert binding.normalized_strides((1, 64), (7, 1)) == (64, 1)
    assert binding.normalized_strides((5, 1), (9, 3)) == (9, 1)
    assert binding.normalized_strides((0, 4), (1, 99)) == (4, 1)
    assert binding.normalized_strides((2, 3), (-3, 1)) == (-3, 1)
    assert binding.is_contiguous((1, 64), binding.normalized_strides((1, 64), (7, 1)))


def test_overlap(frontend: Frontend) -> None:
    base = aligned_array((64, 64))
    apart = spec(frontend, X=base[:32], Y=base[32:])
    assert apart.overlap == frozenset()
    partial = spec(frontend, X=base[:32], Y=base[16:48])
    assert partial.overlap == {"X", "Y"}
    same = spec(frontend, X=base[:32], Y=base[:32])
    assert same.overlap == {"X", "Y"}
    read_twice = spec(frontend, X=base[:32], W=base.reshape(-1)[:256].reshape(64, 4))
    assert read_twice.overlap == frozenset()  # neither is written


def test_sign_classes(frontend: Frontend) -> None:
    assert spec(frontend).sign == ()
    assert spec(frontend, signs=("a",)).sign == (("a", 1),)
    assert spec(frontend, signs=("a",), a=0.0).sign == (("a", 0),)
    assert spec(frontend, signs=("a",), a=float("nan")).sign == (("a", 0),)


def huge(shape: tuple[int, ...], strides: tuple[int, ...]) -> FakeCupyArray:
    """A device array that is only described."""
    out = FakeCupyArray(np.zeros((1, 1), np.float32))
    out.__cuda_array_interface__.update(shape=shape, strides=tuple(4 * s for s in strides), data=(1 << 20, False))
    return out


@pytest.mark.parametrize(
    "rows, stride, bits",
    [
        (32768, 65536, 32),  # last offset 2^31 - 65536 + 63
        (32769, 65536, 64),
        (2, 2**31 - 64, 32),  # last offset 2^31 - 1
        (2, 2**31 - 63, 64),
        (32768, -65536, 32),
        (2**31, 0, 64),  # an extent that is no 32-bit position
    ],
)
def test_index_bits(frontend: Frontend, rows: int, stride: int, bits: int) -> None:
    found = spec(
        frontend,
        X=huge((rows, 64), (stride, 1)),
        Y=huge((rows, 64), (64, 1)) if rows < 2**24 else huge((rows, 64), (0, 1)),
        W=FakeCupyArray(np.zeros((64, 4), np.float32)),
    )
    assert found.index_bits == bits


def test_index_option(frontend: Frontend) -> None:
    info = frontend.kernel(None)
    from dataclasses import replace

    narrow = replace(facts(frontend), index="32")
    call = bound(
        info,
        X=huge((32769, 64), (65536, 1)),
        Y=huge((32769, 64), (64, 1)),
        W=FakeCupyArray(np.zeros((64, 4), np.float32)),
    )
    with pytest.raises(LaunchError) as caught:
        binding.specialize(narrow, call)
    assert codes(caught.value) == ["PH0723"]
    wide = replace(facts(frontend), index="64")
    assert binding.specialize(wide, bound(info)).index_bits == 64


def test_f16(frontend: Frontend) -> None:
    halves = {n: aligned_array((32, 68), f16) for n in "XY"}
    found = spec(frontend, dtype=DType.F16, W=aligned_array((68, 4)), **halves)
    assert not found.tensor("X").align16  # 136 bytes per row
    assert found.tensor("W").align16
