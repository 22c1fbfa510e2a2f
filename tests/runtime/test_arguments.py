"""Views of arrays of every library, and scalars with their ranges."""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from typing import Any

import numpy as np
import pytest

from phobos.diagnostics import LaunchError
from phobos.ir.types import DType
from phobos.runtime import arguments, dlpack
from phobos.runtime.arguments import ArrayView, bf16_bits, scalar, view
from phobos.runtime.launch import f8_bits

from .fakes import FakeCupyArray, FakeTorchTensor, fake_torch


def error_of(code: str, *args: Any) -> str:
    """The message of the single diagnostic that `view` (two arguments) or `scalar` (three) raises."""
    with pytest.raises(LaunchError) as info:
        (scalar if len(args) == 3 else view)(*args)
    (found,) = info.value.diagnostics
    assert found.code == code
    return found.message


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("float16", DType.F16), ("float32", DType.F32), ("float64", DType.F64), ("int8", DType.I8),
        ("uint8", DType.U8), ("int32", DType.I32), ("uint32", DType.U32), ("int64", DType.I64), ("bool", DType.BOOL),
        ("uint16", DType.BF16),
    ],
)  # fmt: skip
def test_numpy(name: str, dtype: DType) -> None:
    array = np.zeros((3, 5), name)
    got = view(array, "X")
    assert (got.shape, got.strides, got.dtype, got.device, got.readonly) == ((3, 5), (5, 1), dtype, None, False)
    assert got.pointer == address(array) and np.shares_memory(got.host, array)


def test_numpy_strides_and_flags() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert view(base.T, "X").strides == (1, 6)
    assert view(base[::-2, 1:], "X").strides == (-12, 1)
    assert view(base[::-2, 1:], "X").pointer == address(base) + 4 * (3 * 6 + 1)
    broadcast = view(np.broadcast_to(base[0], (4, 6)), "X")
    assert broadcast.strides == (0, 1) and broadcast.readonly
    base.flags.writeable = False
    assert view(base, "X").readonly
    assert view(np.zeros((0, 4), np.float32), "X").size == 0
    assert view(np.zeros((), np.float32), "X").shape == ()


def test_byte_range() -> None:
    base = np.zeros((4, 6), np.float32)
    start = address(base)
    assert view(base[::-1, ::-1], "X").byte_range(4) == (start, start + 96)
    assert view(base[1:3, 2:4], "X").byte_range(4) == (start + 32, start + 64)
    lo, hi = view(base[:0], "X").byte_range(4)
    assert lo == hi


def test_numpy_memory_that_no_kernel_reads() -> None:
    assert "byte-swapped" in error_of("PH0706", np.zeros(3, ">f4"), "X")
    packed = np.zeros(4, np.dtype([("a", "f4"), ("b", "i2")], align=False))
    assert "strides" in error_of("PH0706", packed["a"], "X")
    complex_view = view(np.zeros(3, np.complex64), "X")
    assert complex_view.dtype is None and complex_view.dtype_name == "complex64"


@pytest.mark.parametrize("value", [[1.0, 2.0], 3, 3.5, "x", None, np.float32(2.0), np.ndarray])
def test_not_arrays(value: Any) -> None:
    assert "'X' is a tensor" in error_of("PH0705", value, "X")


def test_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    array = np.zeros((3, 4), np.float32)
    got = view(FakeTorchTensor(array.T, device=1), "X")
    assert got.shape == (4, 3) and got.strides == (1, 4) and got.dtype is DType.F32 and got.device == 1
    assert got.host is None
    half = view(FakeTorchTensor(np.zeros(4, np.uint16), dtype="bfloat16"), "X")
    assert half.dtype is DType.BF16
    on_host = view(FakeTorchTensor(array, device=None), "X")
    assert on_host.device is None and np.shares_memory(on_host.host, array)
    bits = np.zeros(4, np.int16)
    bf16 = view(FakeTorchTensor(bits, dtype="bfloat16", device=None), "X")
    assert bf16.dtype is DType.BF16 and bf16.host.dtype == np.uint16 and np.shares_memory(bf16.host, bits)
    assert view(FakeTorchTensor(array, dtype="complex64"), "X").dtype is None


def test_torch_layouts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    sparse = FakeTorchTensor(np.zeros(3, np.float32))
    sparse.layout = "sparse_coo"
    assert "sparse_coo" in error_of("PH0706", sparse, "X")
    monkeypatch.setattr(FakeTorchTensor, "is_neg", lambda self: True)
    assert "negated" in error_of("PH0706", FakeTorchTensor(np.zeros(3, np.float32)), "X")


def test_cuda_array_interface() -> None:
    array = np.zeros((3, 4), np.float16)
    got = view(FakeCupyArray(array, stream=7, readonly=True, device=2), "X")
    assert (got.pointer, got.strides, got.dtype) == (address(array), (4, 1), DType.F16)
    assert (got.device, got.readonly, got.stream) == (2, True, 7)
    assert view(FakeCupyArray(array.T), "X").strides == (1, 4)
    masked = FakeCupyArray(array)
    masked.__cuda_array_interface__["mask"] = object()
    assert "masked" in error_of("PH0706", masked, "X")


class DlpackOnly:
    """Exports a NumPy array by DLPack alone; `versioned` False stands for producers before DLPack 1.0."""

    def __init__(self, array: np.ndarray, versioned: bool = True):
        self.array = array
        self.versioned = versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and "max_version" in options:
            raise TypeError("unexpected keyword max_version")
        return self.array.__dlpack__(**{k: v for k, v in options.items() if k == "max_version"})


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[1:, ::2]
    got = view(DlpackOnly(array, versioned), "X")
    assert (got.shape, got.strides, got.dtype, got.device) == ((3, 3), (6, 2), DType.F32, None)
    assert got.pointer == address(array)
    np.testing.assert_array_equal(got.host, array)
    got.host[0, 0] = 99.0
    assert array[0, 0] == 99.0


def test_dlpack_read_only_and_types() -> None:
    array = np.zeros(4, np.int64)
    array.flags.writeable = False
    got = view(DlpackOnly(array), "X")
    assert got.readonly and not got.host.flags.writeable and got.dtype is DType.I64
    assert view(DlpackOnly(np.zeros(4, np.complex64)), "X").dtype is None
    assert view(DlpackOnly(np.zeros((0, 4), np.uint8)), "X").size == 0


def test_dlpack_refusals() -> None:
    class Elsewhere(DlpackOnly):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (8, 0)  # Metal

    class Unwilling(DlpackOnly):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("requires grad")

    assert "device type 8" in error_of("PH0706", Elsewhere(np.zeros(3)), "X")
    assert "requires grad" in error_of("PH0706", Unwilling(np.zeros(3)), "X")
    with pytest.raises(TypeError):
        dlpack.read(object())


def test_dlpack_capsule_keeps_the_memory() -> None:
    got: ArrayView = view(DlpackOnly(np.full(1000, 3.0)), "X")
    assert got.host.sum() == 3000.0
    address_of = ctypes.cast(got.pointer, ctypes.POINTER(ctypes.c_double))
    assert address_of[999] == 3.0


# --- scalars ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, dtype, want",
    [
        (3, DType.I32, 3), (np.int64(3), DType.I32, 3), (np.array(3), DType.I32, 3), (2**31 - 1, DType.I32, 2**31 - 1),
        (-(2**31), DType.I32, -(2**31)), (2**32 - 1, DType.U32, 2**32 - 1),
        (255, DType.U8, 255), (2**62, DType.I64, 2**62), (7, DType.INDEX, 7),
        (0.125, DType.F32, 0.125), (3, DType.F32, 3.0), (np.float32(0.5), DType.F16, 0.5),
        (math.inf, DType.F16, math.inf),
        (np.array(2.5), DType.F64, 2.5), (True, DType.BOOL, True), (np.bool_(False), DType.BOOL, False),
        (3.4028235e38, DType.F32, 3.4028235e38), (65519.0, DType.F16, 65519.0),
    ],
)  # fmt: skip
def test_scalars(value: Any, dtype: DType, want: float) -> None:
    got = scalar(value, "a", dtype)
    assert got == want and type(got) in (int, float, bool)


def test_nan_scalar() -> None:
    assert math.isnan(scalar(math.nan, "a", DType.F32))


@pytest.mark.parametrize(
    "value, dtype",
    [
        (2**31, DType.I32), (-(2**31) - 1, DType.I32), (-1, DType.U32), (256, DType.U8), (128, DType.I8),
        (2**63, DType.I64), (1e39, DType.F32), (65520.0, DType.F16), (10**400, DType.F64), (-1e5, DType.F8E5M2),
    ],
)  # fmt: skip
def test_scalars_out_of_range(value: Any, dtype: DType) -> None:
    message = error_of("PH0717", value, "a", dtype)
    assert "'a'" in message and str(dtype) in message


@pytest.mark.parametrize(
    "value, dtype",
    [
        (2.0, DType.I32), (True, DType.I32), (True, DType.F32), (1, DType.BOOL), ("3", DType.I32), (None, DType.F32),
        (np.zeros(1), DType.F32), ([1], DType.I32), (1j, DType.F32),
    ],
)  # fmt: skip
def test_scalars_of_a_wrong_kind(value: Any, dtype: DType) -> None:
    error_of("PH0716", value, "a", dtype)


def _bf16_by_numpy(value: float) -> int:
    """Nearest even among all finite bf16 values, by search."""
    bits = np.arange(0, 0x7F80, dtype=np.uint32)
    values = (bits << 16).view(np.float32).astype(np.float64)
    distance = np.abs(values - abs(value))
    best = np.flatnonzero(distance == distance.min())
    chosen = int(best[0]) if len(best) == 1 or best[0] % 2 == 0 else int(best[1])
    return chosen | (0x8000 if math.copysign(1, value) < 0 else 0)


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.0, 1.00390625, 1.01171875, -3.14159, 1e-40, 1.0039062500001, 2.5e38, 0.1]
)
def test_bf16_bits(value: float) -> None:
    assert bf16_bits(value) == _bf16_by_numpy(value)


def test_bf16_special() -> None:
    assert bf16_bits(math.inf) == 0x7F80 and bf16_bits(-math.inf) == 0xFF80
    assert bf16_bits(math.nan) & 0x7FFF > 0x7F80


@pytest.mark.parametrize("dtype, exponent, mantissa", [(DType.F8E4M3, 4, 3), (DType.F8E5M2, 5, 2)])
def test_f8_bits(dtype: DType, exponent: int, mantissa: int) -> None:
    bias = 2 ** (exponent - 1) - 1
    finite = 0x7F if dtype is DType.F8E4M3 else 0x7C
    values = []
    for bits in range(finite):
        field, fraction = bits >> mantissa, bits & (2**mantissa - 1)
        scale = 2.0 ** (max(field, 1) - bias)
        values.append(scale * ((1 if field else 0) + fraction / 2**mantissa))
    table = np.array(values)
    rng = np.random.default_rng(5)
    points = np.concatenate([table, (table[1:] + table[:-1]) / 2, np.exp(rng.uniform(-12, 5, 300))])
    for value in points:
        distance = np.abs(table - value)
        best = np.flatnonzero(distance == distance.min())
        want = best[0] if len(best) == 1 or best[0] % 2 == 0 else best[1]
        assert f8_bits(float(value), dtype) == want
        assert f8_bits(-float(value), dtype) == want | 0x80


def test_f16_packs_to_nearest_even() -> None:
    # struct's "e" is what puts f16 scalars into the argument block.
    for value in (1.00048828125, 1.00146484375, 0.1, 6e-8):
        assert struct.pack("e", value) == np.float16(value).tobytes()


def test_dtype_tables_agree() -> None:
    assert set(arguments.CARRIER) == set(arguments.DTYPES.values()) == set(DType) - {DType.INDEX}
    for dtype, name in arguments.CARRIER.items():
        assert np.dtype(name).itemsize == dtype.bytes
