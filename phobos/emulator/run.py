"""Runs a Program on the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from phobos import settings
from phobos.diagnostics import Diagnostic, LaunchError
from phobos.emulator.build import kernel_library
from phobos.emulator.launch import Argument, LaunchShape, Tensor, launch
from phobos.emulator.reports import EmulatorResult
from phobos.ir.abi import AbiArg, DimArg, Program, ScalarArg, StrideArg, TensorArg
from phobos.ir.types import DType
from phobos.reference.numerics import BITS_ONLY, encode_bits, storage_dtype


def run(
    program: Program,
    arguments: Mapping[str, Any],
    *,
    dims: Mapping[str, int],
    grid: tuple[int, ...] | None = None,
    sched: int = 0,
    check: bool = True,
    timeout: float | None = None,
    record: bool = False,
    workers: int = 2,
    opt: str = "-O1",
) -> EmulatorResult:
    """Runs the emitted text of `program` on the CPU and writes into the arrays of the tensors that it may write.

    `arguments`: parameter name -> array (f16 np.float16, bf16 np.uint16 bits, f8 np.uint8 bits, otherwise the dtype
    itself; any strides) or Python number; `dims`: value of each dim. `grid` overrides the program's grid. `sched` 0
    .. 3 is the order in which threads run and asynchronous loads land. `check` False runs about twice as fast and
    finds only crashes. `timeout` in seconds, default settings.emulator_timeout(). `record` fills `accesses`. `opt` is
    the host compiler's optimisation level.

    Faults of the kernel are reports in the result, never exceptions. Raises LaunchError (PH0825) for arguments that
    do not fit the program, CompileError (PH094x) where the host compiler is missing or fails.
    """
    values = [_argument(arg, arguments, dims, program.index_bits) for arg in program.args]
    extents = grid if grid is not None else tuple(g.evaluate(dims) for g in program.grid)
    if len(extents) > 3 or any(n < 0 for n in extents):
        raise _error(f"the grid of kernel '{program.name}' is {extents}; it has up to three extents, none negative")
    x, y, z = (*extents, 1, 1, 1)[:3]
    if program.threads % 32 or not 32 <= program.threads <= 1024:
        raise _error(
            f"kernel '{program.name}' has blocks of {program.threads} threads; "
            "the emulator runs whole warps, up to 1024 threads"
        )
    shape = LaunchShape(
        grid=(x, y, z), threads=program.threads, shared_bytes=program.shared_bytes, granule=program.granule
    )
    return launch(
        kernel_library(program.body, program.name, check=check, opt=opt),
        shape,
        values,
        sched=sched,
        check=check,
        workers=workers,
        timeout=settings.emulator_timeout() if timeout is None else timeout,
        record=record,
    )


def _argument(arg: AbiArg, arguments: Mapping[str, Any], dims: Mapping[str, int], index_bits: int) -> Argument:
    if isinstance(arg, TensorArg):
        array = _array(arg.name, arguments)
        if array.itemsize != arg.dtype.bytes:
            raise _error(
                f"tensor '{arg.name}' is {arg.dtype}, of {arg.dtype.bytes} bytes; the array's dtype is {array.dtype}"
            )
        if arg.written and not array.flags.writeable:
            raise _error(f"the kernel writes '{arg.name}', but the array is read-only")
        return Tensor(name=arg.name, array=array, writable=arg.written, init=arg.read)
    index = np.dtype(np.int64 if index_bits == 64 else np.int32)
    if isinstance(arg, DimArg):
        if arg.name not in dims:
            raise _error(f"there is no value for dim '{arg.name}'")
        return _integer(f"dim '{arg.name}'", dims[arg.name], index)
    if isinstance(arg, StrideArg):
        array = _array(arg.tensor, arguments)
        stride, rest = divmod(array.strides[arg.axis], array.itemsize)
        if rest:
            raise _error(
                f"axis {arg.axis} of '{arg.tensor}' has a stride of {array.strides[arg.axis]} bytes, no whole elements"
            )
        return _integer(f"stride {arg.axis} of '{arg.tensor}'", stride, index)
    if arg.name not in arguments:
        raise _error(f"there is no value for '{arg.name}'")
    return _scalar(arg, arguments[arg.name], index)


def _array(name: str, arguments: Mapping[str, Any]) -> np.ndarray:
    value = arguments.get(name)
    if not isinstance(value, np.ndarray):
        raise _error(f"'{name}' needs a NumPy array, not {type(value).__name__}")
    return value


def _scalar(arg: ScalarArg, value: Any, index: np.dtype[Any]) -> bytes:
    dtype = arg.dtype
    if dtype in BITS_ONLY:
        return encode_bits(np.float64(value), dtype).tobytes()
    if dtype is DType.INDEX or dtype.is_integer:
        return _integer(f"'{arg.name}'", value, index if dtype is DType.INDEX else storage_dtype(dtype))
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(storage_dtype(dtype)).tobytes()


def _integer(what: str, value: Any, dtype: np.dtype[Any]) -> bytes:
    number = int(value)
    info = np.iinfo(dtype)
    if not info.min <= number <= info.max:
        raise _error(f"{what} is {number}, which does not fit {dtype}")
    return np.asarray(number, dtype).tobytes()


def _error(message: str) -> LaunchError:
    return LaunchError(Diagnostic(code="PH0825", message=message))
