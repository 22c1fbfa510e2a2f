"""Reading DLPack capsules: the C structures of DLPack 1.0 and of the unversioned protocol before it."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY = 1
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a capsule describes. Strides in elements, None for row-major."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    code: int
    bits: int
    lanes: int
    readonly: bool


def read(capsule: Any) -> Exported:
    """Describe a capsule without consuming it: the memory stays valid while the capsule lives.

    Raises TypeError for anything but an unconsumed DLPack capsule.
    """
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        tensor, readonly = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    else:
        raise TypeError("not a DLPack capsule")
    rank = tensor.ndim
    return Exported(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[:rank]) if rank else (),
        strides=tuple(tensor.strides[:rank]) if rank and tensor.strides else None,
        code=tensor.dtype.code,
        bits=tensor.dtype.bits,
        lanes=tensor.dtype.lanes,
        readonly=readonly,
    )


def as_numpy(tensor: Exported, dtype: str, strides: tuple[int, ...], owner: Any) -> Any:
    """A NumPy array over a host tensor's memory, which `owner` keeps alive."""
    import numpy as np

    item = np.dtype(dtype)
    if math.prod(tensor.shape) == 0:
        return np.empty(tensor.shape, item)

    class _Memory:
        def __init__(self) -> None:
            self.owner = owner
            self.__array_interface__ = {
                "version": 3,
                "shape": tensor.shape,
                "typestr": item.str,
                "data": (tensor.pointer, tensor.readonly),
                "strides": tuple(s * item.itemsize for s in strides),
            }

    return np.asarray(_Memory())
