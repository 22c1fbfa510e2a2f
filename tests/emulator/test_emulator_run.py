"""emulator.run: arguments, strides, overlap, reports of crashes and time limits, records, diagnostics."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from phobos import emulator
from phobos.diagnostics import LaunchError
from phobos.ir.abi import AbiArg, DimArg, Program, ScalarArg, StrideArg, TensorArg
from phobos.ir.dims import DimBinary, DimConst, DimExpr, DimName
from phobos.ir.types import DType

ONE = DimConst(1)


def program(
    body: str,
    args: tuple[AbiArg, ...],
    *,
    threads: int = 32,
    grid: tuple[DimExpr, DimExpr, DimExpr] = (ONE, ONE, ONE),
    shared: int = 0,
    index_bits: int = 32,
    granule: int = 4,
) -> Program:
    return Program(
        name="k",
        source_name="test.ph",
        body=f'#line 1 "test.ph"\n{body}\n',
        prelude="",
        args=args,
        threads=threads,
        grid=grid,
        shared_bytes=shared,
        dynamic_shared=False,
        index_bits=index_bits,
        granule=granule,
    )


def tensor(name: str, *, written: bool = False, read: bool = True, dtype: DType = DType.F32) -> TensorArg:
    return TensorArg(name=name, dtype=dtype, read=read, written=written)


COPY = """PH_KERNEL(32, 1) k(ph_global<const float> X, ph_global<float> Y, int N, int sx, int sy) {
  const int i = ph_ctaid_x() * 32 + ph_tid();
  if (i < N) {
    const float x = X[i * sx];
    Y[i * sy] = x;
  }
}"""
COPY_ARGS = (
    tensor("X"),
    tensor("Y", written=True, read=False),
    DimArg(name="N"),
    StrideArg(tensor="X", axis=0),
    StrideArg(tensor="Y", axis=0),
)
COPY_GRID = (DimBinary("ceildiv", DimName("N"), DimConst(32)), ONE, ONE)


@pytest.mark.parametrize("steps", ((1, 1), (3, 1), (1, 2), (-1, 1), (2, -3)))
def test_strided_arrays_and_the_grid_from_dims(steps: tuple[int, int]) -> None:
    x = np.arange(300, dtype=np.float32)[:: steps[0]][:100]
    base = np.full(300, -1, np.float32)
    y = base[:: steps[1]][:100]
    result = emulator.run(program(COPY, COPY_ARGS, grid=COPY_GRID), {"X": x, "Y": y}, dims={"N": 100})
    assert not result.reports and result.unwritten == {"Y": 0}
    assert np.array_equal(y, x) and (base == -1).sum() == 200


def test_a_grid_given_by_the_caller_and_unwritten_elements() -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    result = emulator.run(program(COPY, COPY_ARGS, grid=COPY_GRID), {"X": x, "Y": y}, dims={"N": 100}, grid=(2,))
    assert result.unwritten == {"Y": 36} and np.array_equal(y[:64], x[:64]) and not y[64:].any()
    empty = emulator.run(program(COPY, COPY_ARGS, grid=COPY_GRID), {"X": x[:0], "Y": y[:0]}, dims={"N": 0})
    assert not empty.reports and empty.unwritten == {"Y": 0}


def test_the_gaps_of_a_strided_tensor_are_out_of_bounds() -> None:
    y = np.zeros((10, 8), np.float32)[:, :4]
    body = COPY.replace("Y[i * sy]", "Y[i]")
    result = emulator.run(program(body, COPY_ARGS), {"X": np.zeros(6, np.float32), "Y": y}, dims={"N": 6})
    assert {r.kind for r in result.reports} == {"out-of-bounds"}
    assert "between the elements" in result.reports[0].text and result.reports[0].count == 2
    assert result.unwritten == {"Y": 36}


def test_misaligned_base_addresses_stay_misaligned() -> None:
    body = """PH_KERNEL(32, 1) k(ph_global<const float> X, ph_global<float> Y) {
  const ph_vec<float, 4> v = ph_ldv<ph_vec<float, 4>>(X, 0);
  if (ph_tid() < 4) Y[ph_tid()] = v.v[ph_tid()];
}"""
    args = (tensor("X"), tensor("Y", written=True, read=False))
    raw = np.zeros(64, np.float32)
    first = (-raw.ctypes.data % 16) // 4
    for shift, kinds in ((0, set()), (1, {"misaligned"})):
        x = raw[first + shift : first + shift + 8]
        result = emulator.run(program(body, args), {"X": x, "Y": np.zeros(4, np.float32)}, dims={})
        assert {r.kind for r in result.reports} == kinds


SCALARS: list[tuple[DType, str, Any, Any]] = [
    (DType.F32, "float", 0.1, np.float32(0.1)),
    (DType.F64, "double", 0.1, np.float64(0.1)),
    (DType.F16, "ph_half", 0.1, np.float16(0.1)),
    (DType.BF16, "ph_bf16", 1.0 + 3 / 256, np.uint16(0x3F82)),  # a tie, to even
    (DType.F8E4M3, "ph_f8e4m3", 1000.0, np.uint8(0x7E)),  # saturates at 448
    (DType.F8E5M2, "ph_f8e5m2", -1.5, np.uint8(0xBE)),
    (DType.I8, "signed char", -7, np.int8(-7)),
    (DType.U8, "unsigned char", 200, np.uint8(200)),
    (DType.I32, "int", -(2**31), np.int32(-(2**31))),
    (DType.U32, "unsigned", 2**32 - 1, np.uint32(2**32 - 1)),
    (DType.I64, "ph_i64", -(2**40), np.int64(-(2**40))),
    (DType.BOOL, "bool", True, np.bool_(True)),
]


@pytest.mark.parametrize(("dtype", "c_name", "value", "stored"), SCALARS, ids=[str(s[0]) for s in SCALARS])
def test_scalars_of_every_type(dtype: DType, c_name: str, value: Any, stored: Any) -> None:
    parameters = f"{c_name} before, ph_global<{c_name}> Y, {c_name} after"
    body = f"PH_KERNEL(32, 1) k({parameters}) {{ if (ph_tid() < 2) Y[ph_tid()] = ph_tid() ? after : before; }}"
    y = np.zeros(2, np.asarray(stored).dtype)
    args = (
        ScalarArg(name="a", dtype=dtype),
        tensor("Y", written=True, read=False, dtype=dtype),
        ScalarArg(name="b", dtype=dtype),
    )
    result = emulator.run(program(body, args, granule=1), {"Y": y, "a": value, "b": value}, dims={})
    assert not result.reports and y.tolist() == [stored, stored]


def test_64_bit_indices() -> None:
    body = "PH_KERNEL(32, 1) k(ph_global<ph_i64> Y, ph_i64 N, ph_i64 s) { if (ph_tid() == 0) { Y[0] = N; Y[1] = s; } }"
    args = (tensor("Y", written=True, read=False, dtype=DType.I64), DimArg(name="N"), StrideArg(tensor="Y", axis=0))
    y = np.zeros(2, np.int64)
    emulator.run(program(body, args, index_bits=64), {"Y": y}, dims={"N": 2**35})
    assert y.tolist() == [2**35, 1]


OVERLAP = """PH_KERNEL(32, 1) k(ph_global<const float> X, ph_global<float> Y) {
  const int i = ph_tid();
  const float x = X[i];
  Y[i] = x + 1.f;
}"""
OVERLAP_ARGS = (tensor("X"), tensor("Y", written=True, read=False))


def test_arguments_that_overlap_stay_one_memory() -> None:
    x = np.arange(40, dtype=np.float32)
    same = emulator.run(program(OVERLAP, OVERLAP_ARGS), {"X": x[:32], "Y": x[:32]}, dims={})
    assert not same.reports and np.array_equal(x[:32], np.arange(32) + 1) and np.array_equal(x[32:], np.arange(32, 40))
    for sched in range(4):
        x = np.arange(40, dtype=np.float32)
        shifted = emulator.run(program(OVERLAP, OVERLAP_ARGS), {"X": x[:32], "Y": x[3:35]}, dims={}, sched=sched)
        assert {r.kind for r in shifted.reports} == {"race"}


def test_several_readers_of_one_element_race_with_a_later_write() -> None:
    body = """PH_KERNEL(64, 1) k(ph_global<float> Y) {
  float s = 0.f;
  for (int i = 0; i < 4; i++) { const float y = Y[i]; s += y; }
  SYNC
  if (ph_tid() == WRITER) Y[2] = s;
}"""
    for writer in (0, 63):
        for sync, kinds in (("", {"race"}), ("ph_syncthreads();", set())):
            text = body.replace("SYNC", sync).replace("WRITER", str(writer))
            for sched in range(4):
                y = np.ones(4, np.float32)
                args = (tensor("Y", written=True),)
                result = emulator.run(program(text, args, threads=64), {"Y": y}, dims={}, sched=sched)
                assert {r.kind for r in result.reports} == kinds, (writer, sync, sched)


def test_block_that_reads_what_another_block_reads_and_writes_races() -> None:
    body = """PH_KERNEL(32, 1) k(ph_global<float> Y) {
  const float y = Y[0];
  if (ph_ctaid_x() == 2 && ph_tid() == 0) Y[0] = y + 1.f;
}"""
    result = emulator.run(
        program(body, (tensor("Y", written=True),), grid=(DimConst(3), ONE, ONE)),
        {"Y": np.ones(1, np.float32)},
        dims={},
    )
    assert "race" in {r.kind for r in result.reports} and "another block" in result.reports[0].text


def test_stores_to_an_input_and_read_only_loads_of_an_output() -> None:
    body = """PH_KERNEL(32, 1) k(ph_global<float> X, ph_global<float> Y) {
  const float x = ph_ldg(Y, ph_tid());
  X[ph_tid()] = x;
}"""
    x = np.ones(32, np.float32)
    args = (tensor("X"), tensor("Y", written=True))
    result = emulator.run(program(body, args), {"X": x, "Y": np.zeros(32, np.float32)}, dims={})
    assert [(r.kind, r.line, r.count) for r in result.reports] == [("read-only", 2, 32), ("read-only", 3, 32)]
    assert (x == 1).all()


SPIN = """PH_KERNEL(32, 1) k(ph_global<float> Y) {
  Y[ph_tid()] = 1.f;
  volatile int busy = 1;
  while (busy) {}
}"""
Y_ARGS = (tensor("Y", written=True, read=False),)


@pytest.mark.parametrize("check", (True, False))
def test_an_endless_loop_without_helpers_ends_at_the_time_limit(check: bool) -> None:
    y = np.zeros(32, np.float32)
    emulator.run(program(SPIN, Y_ARGS), {"Y": y}, dims={}, timeout=0.1, check=check)  # what follows is compiled
    start = time.monotonic()
    result = emulator.run(program(SPIN, Y_ARGS), {"Y": y}, dims={}, timeout=0.4, check=check)
    assert 0.4 <= time.monotonic() - start < 5
    assert [r.kind for r in result.reports] == ["timeout"]
    assert "0.4 s" in result.reports[0].text
    if check:
        assert result.reports[0].line == 2 and "thread 0 of block (0,0,0)" in result.reports[0].text


def test_the_default_time_limit_is_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOBOS_EMULATOR_TIMEOUT", "0.2")
    result = emulator.run(program(SPIN, Y_ARGS), {"Y": np.zeros(32, np.float32)}, dims={})
    assert [r.kind for r in result.reports] == ["timeout"] and "0.2 s" in result.reports[0].text


def test_a_deadlock_is_reported_at_once() -> None:
    body = """PH_KERNEL(64, 1) k(ph_global<float> Y) {
  if (ph_tid() < 32) ph_bar_sync(1, 64);
  Y[ph_tid()] = 1.f;
}"""
    for _ in range(2):  # the second time it is compiled
        start = time.monotonic()
        result = emulator.run(program(body, Y_ARGS, threads=64), {"Y": np.zeros(64, np.float32)}, dims={}, timeout=30)
        seconds = time.monotonic() - start
    assert seconds < 5
    assert [(r.kind, r.line) for r in result.reports] == [("deadlock", 2)]
    assert "threads 0-31 wait at barrier 1" in result.reports[0].text


CRASHES = {
    "segmentation fault": ("volatile int* p = (volatile int*)8; *p = 1;", "SIGSEGV"),
    "stack overflow": ("volatile char big[400000]; for (int i = 0; i < 400000; i += 64) big[i] = 1;", "stack overflow"),
    "division": ("volatile int zero = 0; volatile int x = 7 / zero;", "division by zero"),
    "illegal instruction": ("__builtin_trap();", "SIGILL"),
}


@pytest.mark.parametrize("name", CRASHES)
@pytest.mark.parametrize("check", (True, False))
def test_a_crash_is_a_report(name: str, check: bool) -> None:
    statement, expected = CRASHES[name]
    body = (
        f"PH_KERNEL(32, 1) k(ph_global<float> Y) {{\n  Y[ph_tid()] = 1.f;\n  if (ph_tid() == 5) {{ {statement} }}\n}}"
    )
    result = emulator.run(program(body, Y_ARGS), {"Y": np.zeros(32, np.float32)}, dims={}, check=check)
    crash = next(r for r in result.reports if r.kind == "crash")
    # the whole frame is taken on entry, so the first thread overflows
    thread = 0 if name == "stack overflow" else 5
    assert expected in crash.text and f"thread {thread} of block (0,0,0)" in crash.text


def test_printed_text_and_failed_assertions() -> None:
    body = """PH_KERNEL(32, 1) k(ph_global<float> Y) {
  if (ph_tid() == 3) ph_printf("y %d %s %.2f\\n", ph_tid(), "three", 0.5);
  if (ph_tid() == 7) ph_assert_fail("N is even", 3);
  Y[ph_tid()] = 1.f;
}"""
    result = emulator.run(program(body, Y_ARGS), {"Y": np.zeros(32, np.float32)}, dims={})
    assert result.output == "y 3 three 0.50\n"
    assert [(r.kind, r.line) for r in result.reports] == [("assert", 3)] and "N is even" in result.reports[0].text


def test_integer_faults() -> None:
    body = """PH_KERNEL(32, 1) k(ph_global<int> Y, int n) {
  int r[4] = {1, 2, 3, 4};
  Y[0 * ph_tid() + ph_tid()] = r[ph_tid() == 9 ? n : 0];
  const int big = 2147483647 - 100 + n * 25;
  const int shifted = ph_tid() == 3 ? 1 << (n * 8) : 0;
  const int quotient = ph_div(5, n - 4);
  if (ph_tid() == 0) Y[0] = big + shifted + quotient;
}"""
    args = (tensor("Y", written=True, read=False, dtype=DType.I32), ScalarArg(name="n", dtype=DType.I32))
    result = emulator.run(program(body, args), {"Y": np.zeros(32, np.int32), "n": 4}, dims={}, opt="-O0")
    found = {(r.kind, r.line) for r in result.reports}
    assert {("register-index", 3), ("shift", 5), ("division-by-zero", 6)} <= found
    more = emulator.run(program(body, args), {"Y": np.zeros(32, np.int32), "n": 5}, dims={}, opt="-O0")
    assert ("integer-overflow", 4) in {(r.kind, r.line) for r in more.reports}


def test_uninitialised_registers_are_poisoned() -> None:
    body = "PH_KERNEL(32, 1) k(ph_global<float> Y) { float x; Y[ph_tid()] = x; }"
    y = np.zeros(32, np.float32)
    emulator.run(program(body, Y_ARGS), {"Y": y}, dims={})
    assert (np.abs(y) > 1e37).all()


def test_two_workers_give_the_result_of_one() -> None:
    x = np.arange(4096, dtype=np.float32)
    outs = []
    for workers in (1, 2):
        y = np.zeros(4096, np.float32)
        result = emulator.run(
            program(COPY, COPY_ARGS, grid=COPY_GRID), {"X": x, "Y": y}, dims={"N": 4096}, workers=workers
        )
        assert not result.reports
        outs.append(y)
    assert np.array_equal(outs[0], outs[1]) and np.array_equal(outs[0], x)


def test_a_cached_launch_is_quick() -> None:
    arguments = {"X": np.zeros(64, np.float32), "Y": np.zeros(64, np.float32)}
    times = []
    for _ in range(6):
        start = time.perf_counter()
        emulator.run(program(COPY, COPY_ARGS, grid=COPY_GRID), arguments, dims={"N": 64})
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05


def test_reports_become_diagnostics_at_their_lines() -> None:
    body = COPY.replace("if (i < N)", "if (i <= N)")
    arguments = {"X": np.zeros(40, np.float32), "Y": np.zeros(40, np.float32)}
    result = emulator.run(program(body, COPY_ARGS, grid=COPY_GRID), arguments, dims={"N": 40})
    assert result.total == 2
    read, write = result.diagnostics("test.ph")
    assert (read.code, write.code) == ("PH0801", "PH0801")
    assert read.span is not None and (read.span.file, read.span.line) == ("test.ph", 4)
    assert "thread 8" in read.message and "block (1,0,0)" in read.message and "X bytes [160,164)" in read.message


WRONG: dict[str, tuple[dict[str, Any], dict[str, int], str]] = {
    "missing tensor": ({"X": np.zeros(4, np.float32)}, {"N": 4}, "'Y' needs a NumPy array"),
    "missing dim": ({"X": np.zeros(4, np.float32), "Y": np.zeros(4, np.float32)}, {}, "dim 'N'"),
    "wrong dtype": ({"X": np.zeros(4, np.float64), "Y": np.zeros(4, np.float32)}, {"N": 4}, "float64"),
    "dim too large": ({"X": np.zeros(4, np.float32), "Y": np.zeros(4, np.float32)}, {"N": 2**31}, "does not fit int32"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_do_not_fit(name: str) -> None:
    arguments, dims, message = WRONG[name]
    with pytest.raises(LaunchError, match=message) as error:
        emulator.run(program(COPY, COPY_ARGS), arguments, dims=dims)
    assert error.value.diagnostics[0].code == "PH0825"


def test_an_output_that_cannot_be_written() -> None:
    y = np.zeros(4, np.float32)
    y.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        emulator.run(program(COPY, COPY_ARGS), {"X": np.zeros(4, np.float32), "Y": y}, dims={"N": 4})
    with pytest.raises(LaunchError, match="whole warps"):
        emulator.run(program(COPY, COPY_ARGS, threads=48), {"X": y, "Y": y.copy()}, dims={"N": 4})
