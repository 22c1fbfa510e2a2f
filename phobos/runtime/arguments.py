"""What callers pass, seen without copying: arrays of any library as `ArrayView`, scalars as Python numbers.

No array library is imported here: an object of a library can only exist where that library is loaded already.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir.types import DType

# Names of element types in torch, NumPy, ml_dtypes and JAX. NumPy has no bf16: uint16 (no type of the language) holds
# its bits.
DTYPES: dict[str, DType] = {
    "float16": DType.F16,
    "half": DType.F16,
    "bfloat16": DType.BF16,
    "uint16": DType.BF16,
    "float32": DType.F32,
    "float64": DType.F64,
    "float8_e4m3fn": DType.F8E4M3,
    "float8_e5m2": DType.F8E5M2,
    "int8": DType.I8,
    "uint8": DType.U8,
    "int32": DType.I32,
    "uint32": DType.U32,
    "int64": DType.I64,
    "bool": DType.BOOL,
}
_TYPESTR = {
    "f2": "float16", "f4": "float32", "f8": "float64", "i1": "int8", "u1": "uint8", "u2": "uint16", "i4": "int32",
    "u4": "uint32", "i8": "int64", "b1": "bool",
}  # fmt: skip
# DLPack: (type code, bits) -> name. Codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 and 12 float8 kinds.
_DLPACK = {
    (0, 8): "int8", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16", (6, 8): "bool",
    (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2",
}  # fmt: skip
# How an element is held in NumPy arrays inside the compiler's executors: bf16 and f8 as their bits.
CARRIER: dict[DType, str] = {
    DType.F16: "float16",
    DType.BF16: "uint16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.F8E4M3: "uint8",
    DType.F8E5M2: "uint8",
    DType.I8: "int8",
    DType.U8: "uint8",
    DType.I32: "int32",
    DType.U32: "uint32",
    DType.I64: "int64",
    DType.BOOL: "bool",
}


class ArrayView(NamedTuple):
    """A strided array in memory. `strides` in elements; `device` is the CUDA ordinal, None on the host.

    A named tuple, because one is made for each argument of each call, at 0.4 of a frozen dataclass's cost.
    `dtype` is None for an element type that the language lacks; `dtype_name` is the library's name for it. On the
    host, `host` is a NumPy array over the same memory, bf16 and f8 as unsigned bits. `stream` is the stream that
    the producer asks consumers to follow, if it does. `keep` owns the memory for the time of the call.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType | None
    dtype_name: str
    device: int | None
    readonly: bool = False
    host: Any = None
    stream: int | None = None
    keep: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def byte_range(self, itemsize: int) -> tuple[int, int]:
        """Addresses [lo, hi) between which all elements lie; empty for an array without elements."""
        if self.size == 0:
            return self.pointer, self.pointer
        lo = hi = 0
        for extent, stride in zip(self.shape, self.strides, strict=True):
            span = (extent - 1) * stride
            if span < 0:
                lo += span
            else:
                hi += span
        return self.pointer + lo * itemsize, self.pointer + (hi + 1) * itemsize


class TypedArray(NamedTuple):
    """A NumPy array with the element type that its bits stand for, where its own dtype would bind a dtype parameter to
    another one: f8 in uint8."""

    array: Any
    dtype: DType


def _fail(code: str, message: str, help: str | None = None) -> LaunchError:
    return LaunchError(Diagnostic(code=code, message=message, help=help))


def view(value: Any, name: str) -> ArrayView:
    """The ArrayView of argument `name`.

    Takes torch tensors, NumPy arrays, and whatever has `__cuda_array_interface__`, `__dlpack__` or
    `__array_interface__`. Raises LaunchError PH0705 for anything else, PH0706 for memory that no view describes.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(value, name, torch)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _numpy_view(value, name)
    if isinstance(value, TypedArray):
        return _numpy_view(value.array, name)._replace(dtype=value.dtype, dtype_name=value.dtype.value)
    if isinstance(value, type):
        raise _not_array(value, name)
    try:
        return _protocol_view(value, name)
    except LaunchError:
        raise
    except Exception as error:  # whatever the code and the tables of another library do
        kind = type(value).__name__
        raise _fail(
            "PH0706", f"argument {name!r} cannot be read as an array: {kind} fails with {type(error).__name__}: {error}"
        ) from error


def _protocol_view(value: Any, name: str) -> ArrayView:
    """The view of an object that says by one of the protocols what it is."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return _cuda_interface_view(value, interface, name)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _dlpack_view(value, name)
    if hasattr(value, "__array_interface__") and not _is_scalar(value):
        import numpy as np

        return _numpy_view(np.asarray(value), name)
    raise _not_array(value, name)


def _not_array(value: Any, name: str) -> LaunchError:
    kind = value.__name__ if isinstance(value, type) else type(value).__name__
    return _fail(
        "PH0705",
        f"argument {name!r} is a tensor of the kernel, but {_article(kind)} was passed",
        "pass a torch, CuPy, JAX, Numba or NumPy array, or another object with DLPack or the CUDA array interface",
    )


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, (int, float, complex)) or (numpy is not None and isinstance(value, numpy.generic))


def _element_strides(strides: tuple[int, ...], itemsize: int, name: str) -> tuple[int, ...]:
    if any(s % itemsize for s in strides):
        raise _fail(
            "PH0706",
            f"argument {name!r} has strides of {strides} bytes, not multiples of its element size {itemsize}",
            "pass a copy of it",
        )
    return tuple(s // itemsize for s in strides)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


# --- torch -----------------------------------------------------------------------------------


def _torch_view(value: Any, name: str, torch: Any) -> ArrayView:
    if value.layout != torch.strided:
        raise _fail("PH0706", f"argument {name!r} is a {value.layout} tensor; kernels take strided ones")
    kind = value.device.type
    if kind not in ("cuda", "cpu"):
        raise _fail("PH0706", f"argument {name!r} lies on device {str(value.device)!r}; kernels run on CUDA devices")
    if value.is_neg():
        raise _fail("PH0706", f"argument {name!r} is a lazily negated view", "pass value.resolve_neg()")
    dtype_name = str(value.dtype).removeprefix("torch.")
    dtype = DTYPES.get(dtype_name)
    host = None
    if kind == "cpu":
        if value.requires_grad:
            value = value.detach()
        if dtype is not None:
            carrier = {2: torch.int16, 1: torch.uint8}.get(dtype.bytes)
            raw = value.view(carrier) if CARRIER[dtype] != dtype_name else value
            host = raw.numpy()
            if host.dtype.name != CARRIER[dtype]:
                host = host.view(CARRIER[dtype])
    return ArrayView(
        pointer=value.data_ptr(),
        shape=tuple(value.shape),
        strides=tuple(value.stride()),
        dtype=dtype,
        dtype_name=dtype_name,
        device=value.device.index if kind == "cuda" else None,
        host=host,
        keep=value,
    )


# --- NumPy -----------------------------------------------------------------------------------


def _numpy_view(value: Any, name: str) -> ArrayView:
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise _fail("PH0706", f"argument {name!r} is a masked array", "fill it, or pass its .data")
    if not value.dtype.isnative:
        raise _fail("PH0706", f"argument {name!r} has byte-swapped elements ({value.dtype.str})", "pass a native copy")
    dtype_name = value.dtype.name
    dtype = DTYPES.get(dtype_name)
    host = value
    strides = value.strides
    if dtype is not None:
        strides = _element_strides(strides, value.dtype.itemsize, name)
        if CARRIER[dtype] != dtype_name:
            host = value.view(CARRIER[dtype])
    return ArrayView(
        pointer=value.__array_interface__["data"][0],
        shape=value.shape,
        strides=strides,
        dtype=dtype,
        dtype_name=dtype_name,
        device=None,
        readonly=not value.flags.writeable,
        host=host,
        keep=value,
    )


# --- CUDA array interface --------------------------------------------------------------------


def _cuda_interface_view(value: Any, interface: Any, name: str) -> ArrayView:
    typestr = str(interface["typestr"])
    dtype_name = getattr(getattr(value, "dtype", None), "name", None)
    if not isinstance(dtype_name, str) or dtype_name not in DTYPES:
        dtype_name = _TYPESTR.get(typestr[1:], typestr)
    if typestr[0] == (">" if sys.byteorder == "little" else "<"):
        raise _fail("PH0706", f"argument {name!r} has byte-swapped elements ({typestr})", "pass a native copy")
    if interface.get("mask") is not None:
        raise _fail("PH0706", f"argument {name!r} is a masked array")
    shape = tuple(int(n) for n in interface["shape"])
    strides = interface.get("strides")
    pointer, readonly = interface["data"]
    itemsize = int(typestr[2:])
    return ArrayView(
        pointer=int(pointer or 0),
        shape=shape,
        strides=_row_major(shape) if strides is None else _element_strides(tuple(strides), itemsize, name),
        dtype=DTYPES.get(dtype_name),
        dtype_name=dtype_name,
        device=_interface_device(value, int(pointer or 0)),
        readonly=bool(readonly),
        stream=interface.get("stream"),
        keep=value,
    )


def _interface_device(value: Any, pointer: int) -> int:
    """The interface does not say which device it means; CuPy's objects do, else the driver knows the owner."""
    ordinal = getattr(getattr(value, "device", None), "id", None)
    if isinstance(ordinal, int):
        return ordinal
    from phobos.runtime.module import get_driver

    driver = get_driver()
    return driver.pointer_device(pointer) if pointer else driver.current_device()


# --- DLPack ----------------------------------------------------------------------------------

_CPU_KINDS = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
_CUDA_KINDS = (2, 13)  # kDLCUDA, kDLCUDAManaged


def _dlpack_view(value: Any, name: str) -> ArrayView:
    kind, ordinal = (int(x) for x in value.__dlpack_device__())
    if kind not in _CPU_KINDS + _CUDA_KINDS:
        raise _fail("PH0706", f"argument {name!r} lies on DLPack device type {kind}; kernels run on CUDA devices")
    on_host = kind in _CPU_KINDS
    try:
        capsule = _export(value, on_host)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise _fail("PH0706", f"argument {name!r} cannot be exported by DLPack: {error}") from None
    from phobos.runtime import dlpack

    tensor = dlpack.read(capsule)
    dtype_name = _DLPACK.get((tensor.code, tensor.bits), f"dlpack type {tensor.code} of {tensor.bits} bits")
    if tensor.lanes != 1:
        dtype_name = f"{dtype_name} x {tensor.lanes}"
    dtype = DTYPES.get(dtype_name)
    strides = tensor.strides if tensor.strides is not None else _row_major(tensor.shape)
    host = None
    if on_host and dtype is not None:
        host = dlpack.as_numpy(tensor, CARRIER[dtype], strides, capsule)
    return ArrayView(
        pointer=tensor.pointer,
        shape=tensor.shape,
        strides=strides,
        dtype=dtype,
        dtype_name=dtype_name,
        device=None if on_host else ordinal,
        readonly=tensor.readonly,
        host=host,
        keep=(value, capsule),
    )


def _export(value: Any, on_host: bool) -> Any:
    """A DLPack capsule, of the versioned kind where the producer can (only that one tells of read-only memory).

    Stream 1 is the legacy default stream: the producer makes it wait for its own work.
    """
    stream = None if on_host else 1
    try:
        return value.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        return value.__dlpack__(stream=stream)


# --- scalars ---------------------------------------------------------------------------------

_INTEGER_RANGE: dict[DType, tuple[int, int]] = {
    DType.I8: (-(2**7), 2**7 - 1),
    DType.U8: (0, 2**8 - 1),
    DType.I32: (-(2**31), 2**31 - 1),
    DType.U32: (0, 2**32 - 1),
    DType.I64: (-(2**63), 2**63 - 1),
    DType.INDEX: (-(2**63), 2**63 - 1),
}
# (largest finite value, first value that rounds to infinity: half a unit in the last place above it)
_LARGEST: dict[DType, tuple[float, float]] = {
    DType.F16: (65504.0, 65520.0),
    DType.BF16: (3.3895313892515355e38, 3.3961775292304573e38),
    DType.F32: (3.4028234663852886e38, 3.4028235677973366e38),
    DType.F64: (sys.float_info.max, math.inf),
    DType.F8E4M3: (448.0, 480.0),
    DType.F8E5M2: (57344.0, 61440.0),
}


def scalar(value: Any, name: str, dtype: DType) -> int | float | bool:
    """Argument `name` as a Python number that fits `dtype`.

    Takes Python and NumPy scalars and 0-d arrays. Raises LaunchError PH0716 for a wrong kind (a float for an integer,
    a number for a bool), PH0717 for a number out of range.
    """
    value = _plain(value, name)
    if dtype is DType.BOOL:
        if not isinstance(value, bool):
            raise _fail("PH0716", f"argument {name!r} is a bool of the kernel, but {value!r} was passed")
        return value
    if isinstance(value, bool):
        raise _fail("PH0716", f"argument {name!r} is {_article(dtype)} of the kernel, but {value!r} was passed")
    if dtype.is_float:
        try:
            number = float(value)
        except OverflowError:
            raise _range_error(name, value, dtype) from None
        if abs(number) >= _LARGEST[dtype][1] and not math.isinf(number):
            raise _range_error(name, value, dtype)
        return number
    if isinstance(value, float):
        raise _fail(
            "PH0716",
            f"argument {name!r} is {_article(dtype)} of the kernel, but the float {value!r} was passed",
            f"pass int({name})" if value.is_integer() else None,
        )
    low, high = _INTEGER_RANGE[dtype]
    if not low <= value <= high:
        raise _fail("PH0717", f"argument {name!r} = {value} does not fit {dtype} ({low} to {high})")
    return value


def _range_error(name: str, value: int | float, dtype: DType) -> LaunchError:
    text = f"{value:g}" if isinstance(value, float) else f"{str(value)[:20]}..."
    return _fail("PH0717", f"argument {name!r} = {text} does not fit {dtype} (largest {_LARGEST[dtype][0]:g})")


def _article(word: object) -> str:
    """The word with its article; types are spoken as letters: an f32, an i8, a u8."""
    text = str(word)
    if isinstance(word, DType):
        return f"an {text}" if text[0] in "if" else f"a {text}"
    return f"an {text}" if text[:1].lower() in tuple("aeio") or text == "ndarray" else f"a {text}"


def _plain(value: Any, name: str) -> int | float | bool:
    if isinstance(value, (bool, int, float)):
        # numpy.float64 is a float; operations on plain floats are faster and print better.
        return float(value) if type(value) not in (bool, int, float) and isinstance(value, float) else value
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "item"):
        if tuple(shape) == ():
            item = value.item()
            if isinstance(item, (bool, int, float)):
                return item
        else:
            raise _fail(
                "PH0716",
                f"argument {name!r} is a scalar of the kernel, but an array of shape {tuple(shape)} was passed",
            )
    if hasattr(value, "__index__"):
        return int(value.__index__())
    try:
        return float(value) if hasattr(value, "__float__") else _reject(value, name)
    except (TypeError, ValueError):
        return _reject(value, name)


def _reject(value: Any, name: str) -> float:
    given = _article(type(value).__name__)
    raise _fail("PH0716", f"argument {name!r} is a scalar of the kernel, but {given} was passed")


def bf16_bits(value: float) -> int:
    """The 16 bits of a number rounded to bf16 (nearest even)."""
    import struct

    if math.isnan(value):
        return 0x7FC0
    # A double may be half way between bf16 values only after rounding to f32 (double rounding), so the sticky bit of
    # that first rounding is kept: round to odd.
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80
    nearest = struct.unpack("<f", struct.pack("<I", bits))[0]
    if nearest != value and math.isfinite(nearest):
        if abs(nearest) > abs(value):
            bits -= 1
        bits |= 1
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
