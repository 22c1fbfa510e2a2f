"""Packing and launching over a fake driver that keeps what it was given."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

from phobos.diagnostics import LaunchError
from phobos.ir.abi import DimArg, Program, ScalarArg, StrideArg, TensorArg
from phobos.ir.dims import DimBinary, DimConst, DimName
from phobos.ir.types import DType
from phobos.runtime.facts import KernelFacts, TensorFact
from phobos.runtime.launch import Block, Launcher, Packing, check_grid, evaluate_grid
from phobos.runtime.module import Driver, Function
from phobos.runtime.streams import caller_stream, stream_handle

from .fakes import FakeApi

ONE = DimConst(1)
SCALARS = (
    ("h", DType.F16), ("b", DType.BF16), ("f", DType.F32), ("d", DType.F64), ("c", DType.I8), ("u", DType.U8),
    ("i", DType.I32), ("w", DType.U32), ("l", DType.I64), ("o", DType.BOOL), ("e", DType.F8E4M3),
)  # fmt: skip


def make(bits: int = 32, threads: int = 128) -> tuple[Program, KernelFacts]:
    """A program whose arguments come in an order of their own, and lack the tensor Z."""
    program = Program(
        name="k",
        source_name="k.ph",
        body="",
        prelude="",
        args=(
            ScalarArg(name="o", dtype=DType.BOOL),
            DimArg(name="N"),
            TensorArg(name="Y", dtype=DType.F32, read=False, written=True),
            *(ScalarArg(name=n, dtype=t) for n, t in SCALARS if n != "o"),
            StrideArg(tensor="X", axis=0),
            TensorArg(name="X", dtype=DType.F32, read=True, written=False),
        ),
        threads=threads,
        grid=(ONE, ONE, ONE),
        shared_bytes=1000,
        dynamic_shared=True,
        index_bits=bits,
        granule=4,
    )
    names = ("X", "Y", "Z")
    facts = KernelFacts(
        name="k",
        tensors=tuple(TensorFact(name=n, dtype=DType.F32, dims=("N",), read=True, written=n == "Y") for n in names),
        scalars=SCALARS,
        dims=("N",),
        aligned=(),
        grid=(ONE, ONE, ONE),
        index="auto",
        configuration=(),
    )
    return program, facts


def launcher(api: FakeApi, bits: int = 32, threads: int = 128, limit: int = 1024) -> Launcher:
    program, facts = make(bits, threads)
    function = Function(device=0, module=0, handle=0x3001, max_threads=limit, registers=32)
    return Launcher(
        Driver(api),
        function,
        program,
        Packing(program, facts),
        (3, 2, 1),
        {"N": 77},
        {"X": (-5,), "Y": (1,), "Z": (1,)},
    )


VALUES = [0x1111, 0x2222, 0x3333, 1.5, 2.5, 0.1, 0.1, -7, 200, -(2**31), 2**32 - 1, -(2**40), True, 3.0]


def test_dynamic_order_is_tensors_then_scalars() -> None:
    assert launcher(FakeApi()).dynamic == ("X", "Y", "Z", *(n for n, _ in SCALARS))
    assert launcher(FakeApi()).written == {"Y"}


@pytest.mark.parametrize("bits, index", [(32, ctypes.c_int32), (64, ctypes.c_int64)])
def test_every_argument_arrives(bits: int, index: Any) -> None:
    api = FakeApi()
    seen: list[list[Any]] = []
    kinds = [
        ctypes.c_bool, index, ctypes.c_uint64, ctypes.c_uint16, ctypes.c_uint16, ctypes.c_float, ctypes.c_double,
        ctypes.c_int8, ctypes.c_uint8, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint8, index,
        ctypes.c_uint64,
    ]  # fmt: skip
    api.on_launch = lambda launch: seen.append([launch.argument(i, kind) for i, kind in enumerate(kinds)])
    one = launcher(api, bits)
    one.launch(0x51, *one.encode(VALUES))
    (launch,) = api.launches
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((3, 2, 1), (128, 1, 1), 1000, 0x51)
    f16_bits = int(np.float16(1.5).view(np.uint16))
    f32 = float(np.float32(0.1))
    assert seen == [
        [True, 77, 0x2222, f16_bits, 0x4020, f32, 0.1, -7, 200, -(2**31), 2**32 - 1, -(2**40), 0x44, -5, 0x1111]
    ]


def test_arguments_are_naturally_aligned() -> None:
    for bits in (32, 64):
        program, facts = make(bits)
        packing = Packing(program, facts)
        sizes = {DType.BOOL: 1, DType.F8E4M3: 1, DType.I8: 1, DType.U8: 1, DType.F16: 2, DType.BF16: 2}
        taken: set[int] = set()
        for arg, offset in zip(program.args, packing.offsets, strict=True):
            if isinstance(arg, TensorArg):
                size = 8
            elif isinstance(arg, ScalarArg):
                size = sizes.get(arg.dtype, arg.dtype.bytes)
            else:
                size = bits // 8
            assert offset % size == 0 and offset + size <= packing.size
            assert not taken & set(range(offset, offset + size))
            taken |= set(range(offset, offset + size))


def test_threads_do_not_share_an_argument_block() -> None:
    """Two threads inside the driver at once see their own arguments."""
    api = FakeApi()
    one = launcher(api)
    inside = threading.Barrier(2, timeout=20)
    seen: dict[int, int] = {}

    def hold(launch: Any) -> None:
        inside.wait()
        seen[launch.stream] = launch.argument(14, ctypes.c_uint64)
        inside.wait()

    api.on_launch = hold
    rest = one.encode(VALUES)[1:]
    threads = [threading.Thread(target=one.launch, args=(n, 1000 + n, *rest)) for n in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    assert seen == {1: 1001, 2: 1002}


def test_a_launch_without_context_is_tried_in_the_devices_own() -> None:
    api = FakeApi(fail={"cuLaunchKernel": [201]})
    one = launcher(api)
    one.launch(0, *one.encode(VALUES))
    (launch,) = api.launches
    assert launch.context == 0x1000 and api.contexts == []


@pytest.mark.parametrize("fail, name", [([701], "OUT_OF_RESOURCES"), ([400, 400], "INVALID_HANDLE")])
def test_launch_errors(fail: list[int], name: str) -> None:
    api = FakeApi(fail={"cuLaunchKernel": fail})
    one = launcher(api)
    with pytest.raises(LaunchError) as info:
        one.launch(0, *one.encode(VALUES))
    (found,) = info.value.diagnostics
    assert found.code == "PH0730" and name in found.message
    assert "grid (3, 2, 1), 128 threads" in found.notes[0]
    one.launch(0, *one.encode(VALUES))  # the launcher works on
    assert len(api.launches) == 1


def test_too_many_threads_for_the_registers() -> None:
    with pytest.raises(LaunchError) as info:
        launcher(FakeApi(), threads=512, limit=384)
    (found,) = info.value.diagnostics
    assert found.code == "PH0720" and "384" in found.message


def test_block_holds_dims_and_strides_before_a_launch() -> None:
    program, facts = make()
    packing = Packing(program, facts)
    block = Block(packing, (77, -5))
    got = np.frombuffer(block.buffer, np.uint8)
    at = dict(zip(program.args, packing.offsets, strict=True))
    assert got[at[DimArg(name="N")] :][:4].view(np.int32)[0] == 77
    assert got[at[StrideArg(tensor="X", axis=0)] :][:4].view(np.int32)[0] == -5


# --- grids -----------------------------------------------------------------------------------


def test_grid() -> None:
    x = DimBinary("ceildiv", DimName("N"), DimConst(128))
    assert evaluate_grid((x, DimName("M"), ONE), {"N": 1000, "M": 3}, "k") == (8, 3, 1)
    assert evaluate_grid((x, ONE, ONE), {"N": 0}, "k") == (0, 1, 1)
    assert check_grid((2**31 - 1, 65535, 65535), "k") == (2**31 - 1, 65535, 65535)


@pytest.mark.parametrize(
    "grid, dims, text",
    [
        ((DimName("N"), ONE, ONE), {"N": 2**31}, "2147483648 blocks along x"),
        ((ONE, DimName("N"), ONE), {"N": 65536}, "65536 blocks along y"),
        ((ONE, ONE, DimName("N")), {"N": 65536}, "65536 blocks along z"),
        ((DimName("N"), ONE, ONE), {"N": -1}, "-1 blocks"),
        ((DimName("N"), ONE, ONE), {}, "'N'"),
        ((DimBinary("//", ONE, DimName("N")), ONE, ONE), {"N": 0}, "divides by zero"),
    ],
)
def test_bad_grids(grid: Any, dims: dict[str, int], text: str) -> None:
    with pytest.raises(LaunchError, match=text) as info:
        evaluate_grid(grid, dims, "k")
    assert info.value.diagnostics[0].code == "PH0718"


# --- streams ---------------------------------------------------------------------------------


class _Stream:
    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)


class _CoreStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 44


def test_stream_handles() -> None:
    assert stream_handle(0) == 0 and stream_handle(41) == 41
    assert stream_handle(_Stream(cuda_stream=42)) == 42  # torch
    assert stream_handle(_Stream(ptr=43)) == 43  # CuPy
    assert stream_handle(_CoreStream()) == 44  # cuda.core
    assert stream_handle(_Stream(handle=ctypes.c_void_p(45))) == 45  # Numba
    assert stream_handle(_Stream(handle=ctypes.c_void_p(0))) == 0
    driver = pytest.importorskip("cuda.bindings.driver")
    assert stream_handle(driver.CUstream(46)) == 46


@pytest.mark.parametrize("stream", ["x", -1, 2.0, True, object()])
def test_bad_streams(stream: Any) -> None:
    with pytest.raises(LaunchError) as info:
        stream_handle(stream)
    assert info.value.diagnostics[0].code == "PH0722"


def test_default_stream_without_torch() -> None:
    assert caller_stream([], [], 0)() == 0
