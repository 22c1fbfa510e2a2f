"""Packing arguments and launching: from a checked call to `cuLaunchKernel`.

A `Launcher` is everything of a launch that does not change while shapes, strides and dtypes stay: function, grid, and
argument blocks in which dims and strides are already in place. A warm launch then writes pointers and scalars with one
`struct` call and enters the driver.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from phobos.diagnostics import Diagnostic, LaunchError
from phobos.ir.abi import DimArg, Program, ScalarArg, StrideArg, TensorArg
from phobos.ir.dims import DimExpr
from phobos.ir.types import DType
from phobos.runtime.arguments import bf16_bits
from phobos.runtime.facts import KernelFacts
from phobos.runtime.module import Driver, Function

# struct formats; bf16 and f8 scalars travel as their bits.
_FORMATS: dict[DType, str] = {
    DType.F16: "e",
    DType.BF16: "H",
    DType.F32: "f",
    DType.F64: "d",
    DType.F8E4M3: "B",
    DType.F8E5M2: "B",
    DType.I8: "b",
    DType.U8: "B",
    DType.I32: "i",
    DType.U32: "I",
    DType.I64: "q",
    DType.BOOL: "?",
}
GRID_LIMITS = (2**31 - 1, 65535, 65535)


def evaluate_grid(grid: Sequence[DimExpr], dims: Mapping[str, int], kernel: str) -> tuple[int, int, int]:
    """Blocks along x, y, z. Raises LaunchError PH0718 where CUDA's limits are exceeded or the expression fails."""
    sizes = []
    for axis, expr in zip("xyz", grid, strict=True):
        try:
            sizes.append(expr.evaluate(dims))
        except ZeroDivisionError as error:
            raise LaunchError(
                Diagnostic(code="PH0718", message=f"the grid of kernel {kernel!r} cannot be computed: {error}")
            ) from None
        except KeyError as error:
            raise LaunchError(
                Diagnostic(
                    code="PH0718",
                    message=f"the grid of kernel {kernel!r} needs dim {error.args[0]!r} (grid.{axis} = {expr})",
                )
            ) from None
    return check_grid(sizes, kernel, [str(e) for e in grid])


def check_grid(sizes: Sequence[int], kernel: str, texts: Sequence[str] = ("", "", "")) -> tuple[int, int, int]:
    """The grid itself if CUDA allows it (a size of 0 is allowed: nothing runs). Raises LaunchError PH0718."""
    for axis, size, limit, text in zip("xyz", sizes, GRID_LIMITS, texts, strict=True):
        if not 0 <= size <= limit:
            raise LaunchError(
                Diagnostic(
                    code="PH0718",
                    message=f"the grid of kernel {kernel!r} has {size} blocks along {axis}; allowed are 0 to {limit}",
                    notes=(f"grid.{axis} = {text}",) if text and text != str(size) else (),
                )
            )
    x, y, z = sizes
    return x, y, z


class Packing:
    """Where each argument of a program lies in its argument block.

    What changes from call to call comes first in the block: addresses of all tensors, then all scalars, each in the
    kernel's order (`dynamic`; one that the program does not take has a place all the same). Dims and strides (`fixed`)
    follow. The driver takes a pointer per argument, so their order in memory is free.
    """

    def __init__(self, program: Program, facts: KernelFacts):
        index = "i" if program.index_bits == 32 else "q"
        tensors = [t.name for t in facts.tensors]
        self.dynamic: tuple[str, ...] = (*tensors, *(name for name, _ in facts.scalars))
        self.encoders = (*(None for _ in tensors), *(_ENCODERS.get(dtype) for _, dtype in facts.scalars))
        self.fixed: tuple[DimArg | StrideArg, ...] = tuple(
            a for a in program.args if isinstance(a, (DimArg, StrideArg))
        )
        self.index_format = index
        front = ["Q"] * len(tensors) + [_FORMATS[dtype] for _, dtype in facts.scalars]
        # Standard mode ("="), because native mode turns a float that does not fit into infinity without a word; it
        # does not align, so the padding is written out.
        text, offsets, end = "=", [], 0
        for position, kind in enumerate(front + [index] * len(self.fixed)):
            size = struct.calcsize("=" + kind)
            padding = -end % size
            offsets.append(end + padding)
            end += padding + size
            if position < len(front):
                text += f"{padding}x{kind}" if padding else kind
        self.size = end
        self.front = struct.Struct(text)
        self.fixed_offsets = tuple(offsets[len(front) :])
        place = dict(zip((*self.dynamic, *map(id, self.fixed)), offsets, strict=True))
        self.offsets = tuple(place[a.name if isinstance(a, (TensorArg, ScalarArg)) else id(a)] for a in program.args)


def _f8_encoder(dtype: DType) -> Any:
    def encode(value: float) -> int:
        return f8_bits(value, dtype)

    return encode


def f8_bits(value: float, dtype: DType) -> int:
    """The 8 bits of a number rounded to f8 (nearest even; larger than the largest finite one saturates)."""
    import math

    mantissa, bias, top = (3, 7, 448.0) if dtype is DType.F8E4M3 else (2, 15, 57344.0)
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    if math.isnan(value):
        return 0x7F
    if math.isinf(value) and dtype is DType.F8E5M2:
        return sign | 0x7C
    magnitude = min(abs(value), top)
    exponent = max(math.frexp(magnitude)[1] - 1, 1 - bias) if magnitude else 1 - bias
    steps = round(math.ldexp(magnitude, mantissa - exponent))  # Python rounds ties to even
    # A carry of the mantissa runs into the exponent by itself; subnormals have exponent field 0.
    bits = steps if steps < 1 << mantissa else ((exponent + bias - 1) << mantissa) + steps
    return sign | bits


_ENCODERS: dict[DType, Any] = {
    DType.BF16: bf16_bits,
    DType.F8E4M3: _f8_encoder(DType.F8E4M3),
    DType.F8E5M2: _f8_encoder(DType.F8E5M2),
}


class Block:
    """One argument block: `buffer` holds the arguments, `pointers` is the address of the driver's pointer list."""

    __slots__ = ("_list", "buffer", "pointers")

    def __init__(self, packing: Packing, fixed_values: Sequence[int]):
        self.buffer = ctypes.create_string_buffer(max(1, packing.size))
        base = ctypes.addressof(self.buffer)
        for offset, value in zip(packing.fixed_offsets, fixed_values, strict=True):
            struct.pack_into("=" + packing.index_format, self.buffer, offset, value)
        self._list = (ctypes.c_void_p * max(1, len(packing.offsets)))(*(base + o for o in packing.offsets))
        self.pointers = ctypes.addressof(self._list)


class Launcher:
    """A variant loaded on a device, for fixed dims and strides. Safe for several threads.

    `dynamic` names the values that `launch` takes after the stream: addresses of tensors and scalars (as numbers;
    `encode` turns bf16 and f8 scalars into bits).
    """

    __slots__ = (
        "_blocks", "_cu_launch", "_driver", "_fixed", "_pack_into", "device", "dynamic", "function", "grid", "packing",
        "shared", "threads", "written",
    )  # fmt: skip

    def __init__(
        self,
        driver: Driver,
        function: Function,
        program: Program,
        packing: Packing,
        grid: tuple[int, int, int],
        dims: Mapping[str, int],
        strides: Mapping[str, Sequence[int]],
    ):
        if program.threads > function.max_threads:
            raise LaunchError(
                Diagnostic(
                    code="PH0720",
                    message=f"kernel {program.name!r} has {program.threads} threads per block, but with its "
                    f"{function.registers} registers per thread the device allows {function.max_threads}",
                    help="use fewer threads, or cap the registers: @launch(threads, min_blocks, max_regs)",
                )
            )
        self.device = function.device
        self.function = function.handle
        self.grid = grid
        self.threads = program.threads
        self.shared = program.shared_bytes if program.dynamic_shared else 0
        self.packing = packing
        self.dynamic = packing.dynamic
        self.written = frozenset(a.name for a in program.args if isinstance(a, TensorArg) and a.written)
        self._fixed = [dims[a.name] if isinstance(a, DimArg) else strides[a.tensor][a.axis] for a in packing.fixed]
        self._driver = driver
        self._cu_launch = driver.api.cuLaunchKernel
        self._pack_into = packing.front.pack_into
        self._blocks = [Block(packing, self._fixed)]

    def new_block(self) -> Block:
        return Block(self.packing, self._fixed)

    def encode(self, values: Sequence[Any]) -> list[Any]:
        """Values of `dynamic` as the block holds them."""
        return [
            value if encoder is None else encoder(value)
            for value, encoder in zip(values, self.packing.encoders, strict=True)
        ]

    def launch(self, stream: Any, *values: Any) -> None:
        """Launch with encoded values of `dynamic`. Raises struct.error where one does not fit, LaunchError PH0730 where
        the driver refuses."""
        blocks = self._blocks
        try:
            block = blocks.pop()
        except IndexError:  # another thread is launching
            block = self.new_block()
        try:
            self._pack_into(block.buffer, 0, *values)
            x, y, z = self.grid
            status = self._cu_launch(
                self.function, x, y, z, self.threads, 1, 1, self.shared, stream, block.pointers, 0
            )[0]
            if status:
                self._recover(status, stream, block)
        finally:
            # The driver has copied the arguments.
            blocks.append(block)

    def _recover(self, status: Any, stream: Any, block: Block) -> None:
        """A refused launch is tried once more in the device's primary context: the calling thread may have another
        device's context, or none. Looking before every launch would cost a tenth of it."""
        name, text = self._driver.error_names(status)
        if name in ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_CONTEXT_IS_DESTROYED"):
            with self._driver.current(self.device):
                status = self._cu_launch(
                    self.function, *self.grid, self.threads, 1, 1, self.shared, stream, block.pointers, 0
                )[0]
            if not status:
                return
            name, text = self._driver.error_names(status)
        raise LaunchError(
            Diagnostic(
                code="PH0730",
                message=f"cuLaunchKernel failed: {name} ({text})",
                notes=(
                    f"grid {self.grid}, {self.threads} threads, {self.shared} bytes of dynamic shared memory",
                    "an error of an earlier kernel may be reported here",
                ),
            )
        )


class Prepared:
    """A launch with its arguments bound: calling it does little more than enter the driver.

    It keeps the arguments alive and uses their memory as it was when `prepare` was called. The stream is the one given
    to `prepare`, else the caller's current one at each call.
    """

    __slots__ = ("_arguments", "_block", "_launcher", "_tail", "_head", "_current_stream", "_stream", "_cu_launch")

    def __init__(self, launcher: Launcher, values: Sequence[Any], arguments: Any, stream: Any, current_stream: Any):
        self._arguments = arguments
        self._launcher = launcher
        self._block = launcher.new_block()
        launcher.packing.front.pack_into(self._block.buffer, 0, *values)
        self._cu_launch = launcher._cu_launch
        self._head = (launcher.function, *launcher.grid, launcher.threads, 1, 1, launcher.shared)
        self._tail = self._block.pointers
        self._stream = stream
        self._current_stream = current_stream

    @property
    def grid(self) -> tuple[int, int, int]:
        return self._launcher.grid

    def __call__(self) -> None:
        stream = self._stream
        if stream is None:
            stream = self._current_stream()
        status = self._cu_launch(*self._head, stream, self._tail, 0)[0]
        if status:
            self._launcher._recover(status, stream, self._block)


class NothingToLaunch:
    """A prepared launch of an empty grid."""

    grid = (0, 0, 0)

    def __init__(self, grid: tuple[int, int, int]):
        self.grid = grid

    def __call__(self) -> None:
        return None
