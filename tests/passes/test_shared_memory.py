"""pack_shared and place_barriers against walks through the schedule: no byte is lost, no hazard is left, no barrier is
idle."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import harness
import numpy as np
import pytest
from cases import CASES
from codegen.differential import Variant, arranged, kernel_of, specialization
from codegen.generator import Case, generate
from codegen.products import attention_case, product_case
from passes.paths import access_map, bytes_of, is_ring, touched, walk_path

import phobos
from phobos.diagnostics import CompileError
from phobos.ir import scheduled as s
from phobos.ir.abi import Specialization
from phobos.ir.storage import Buffer
from phobos.ir.tile import KernelIR
from phobos.passes import pack_shared, pipeline, place_barriers
from phobos.target import get_target

WALKS = 6
_ONE = {case.kernel: case for case in CASES}
SOURCES: list[str] = [
    *(f"generate {n}" for n in range(200, 216)),
    *(f"product {n}" for n in range(200, 210)),
    *(f"attention {n}" for n in range(200, 206)),
    *_ONE,
]


@cache
def lowered(source: str, tight: bool = False) -> s.Schedule:
    """The final schedule of a source; `tight` packs as if shared memory were scarce."""
    kernel, spec, arch, threads = _kernel(source)
    if threads is not None:
        kernel = replace(kernel, launch=replace(kernel.launch, threads=threads))
    found: list[s.Schedule] = []

    def observe(stage: str, state: object) -> None:
        if stage == "pack_shared":
            assert isinstance(state, s.Schedule)
            found.append(state)

    try:
        done = pipeline.run(kernel, get_target(arch), spec, observe=observe).schedule
    except CompileError as error:
        pytest.skip(error.diagnostics[0].code)
    if not tight:
        return done
    offsets, total = pack_shared._place(pack_shared.lifetimes(found[0].body, whole_loops=False))
    return place_barriers.run(replace(found[0], offsets=offsets, shared_bytes=total))


def _kernel(source: str) -> tuple[KernelIR, Specialization, str, int | None]:
    if source in _ONE:
        kernel = harness.case_ir(_ONE[source])
        return kernel, harness.specialization(kernel, harness.case_arguments(_ONE[source])), "sm_90a", None
    kind, seed = source.split()
    makers: dict[str, Callable[[int], Case]] = {
        "generate": generate,
        "product": product_case,
        "attention": attention_case,
    }
    case = makers[kind](int(seed))
    try:
        kernel = kernel_of(case.text)
    except CompileError as error:
        pytest.skip(error.diagnostics[0].code)
    spec = specialization(kernel, arranged(case.arguments, case.variant), Variant())
    return kernel, spec, case.variant.arch, case.variant.threads


every_packing = pytest.mark.parametrize("tight", [False, True], ids=["apart", "tight"])


@every_packing
@pytest.mark.parametrize("source", SOURCES)
def test_bytes_still_hold_what_is_read(source: str, tight: bool) -> None:
    """On every walk each byte of a buffer that is read was last written for that buffer."""
    schedule = lowered(source, tight)
    for buffer, offset in schedule.offsets.items():
        assert offset % 16 == 0 and offset + buffer.bytes <= schedule.shared_bytes
    for seed in range(WALKS):
        owner: list[Buffer | None] = [None] * schedule.shared_bytes
        for x in walk_path(schedule, seed):
            read, written = touched(x)
            for buffer in read:
                if buffer in written:
                    continue  # it writes before it reads
                lost = {owner[i] for i in bytes_of(buffer, schedule.offsets)} - {buffer}
                if is_ring(buffer):
                    lost.discard(None)  # stages that no iteration has filled
                assert not lost, f"line {x.span.line}: {buffer.name} was overwritten by {lost}"
            for buffer in written:
                for i in bytes_of(buffer, schedule.offsets):
                    owner[i] = buffer


@every_packing
@pytest.mark.parametrize("source", SOURCES)
def test_no_hazard_between_two_barriers(source: str, tight: bool) -> None:
    """Between two barriers an element of shared memory is touched by one thread, unless all only read it."""
    schedule = lowered(source, tight)
    for seed in range(WALKS):
        since: list[tuple[s.Stmt, Buffer, bool]] = []
        for x in walk_path(schedule, seed):
            if isinstance(x, s.Barrier):
                since = []
                continue
            read, written = touched(x)
            now = [(x, b, True) for b in written] + [(x, b, False) for b in read if b not in written]
            for entry in now:
                for before in since:
                    assert not _hazard(before, entry, schedule), (
                        f"line {entry[0].span.line}: {entry[1].name} after line {before[0].span.line}: {before[1].name}"
                    )
            since += now


_Entry = tuple[s.Stmt, Buffer, bool]


def _hazard(a: _Entry, b: _Entry, schedule: s.Schedule) -> bool:
    (first, left, writes), (second, right, overwrites) = a, b
    if not (writes or overwrites):
        return False
    x, y = bytes_of(left, schedule.offsets), bytes_of(right, schedule.offsets)
    if x.stop <= y.start or y.stop <= x.start:
        return False
    if left is not right:
        return not (writes and is_ring(left))  # which is filled for iterations that follow: none at its last read
    if is_ring(left):
        return False  # ordered by waits and barriers of its own, which the emulator checks
    ours, theirs = access_map(first, left, writes), access_map(second, right, overwrites)
    if ours is None or theirs is None:
        return True
    return any(len(threads | theirs[at]) > 1 for at, threads in ours.items() if at in theirs)


@every_packing
@pytest.mark.parametrize("source", SOURCES)
def test_no_barrier_is_idle(source: str, tight: bool) -> None:
    """Without any one of them the analysis finds a conflict."""
    schedule = lowered(source, tight)
    if any(is_ring(b) for b in schedule.offsets):
        pytest.skip("the barriers of a ring are its own")
    barriers = [x for x in s.walk(schedule.body) if isinstance(x, s.Barrier)]
    for barrier in barriers:
        without = replace(schedule, body=_without(schedule.body, barrier))
        assert not place_barriers.suffice(without, set()), f"line {barrier.span.line}: {barrier.reasons}"


def _without(statements: tuple[s.Stmt, ...], barrier: s.Barrier) -> tuple[s.Stmt, ...]:
    out: list[s.Stmt] = []
    for x in statements:
        if x is barrier:
            continue
        if isinstance(x, s.ForStmt):
            x = replace(x, body=_without(x.body, barrier))
        elif isinstance(x, s.WhileStmt):
            x = replace(x, head=_without(x.head, barrier), body=_without(x.body, barrier))
        elif isinstance(x, s.IfStmt):
            x = replace(x, then=_without(x.then, barrier), orelse=_without(x.orelse, barrier))
        out.append(x)
    return tuple(out)


def _barriers(schedule: s.Schedule) -> int:
    return sum(isinstance(x, s.Barrier) for x in s.walk(schedule.body))


def test_kernels_without_exchange_have_no_barrier() -> None:
    assert _barriers(lowered("saxpy")) == 0
    assert lowered("saxpy").shared_bytes == 0


def test_too_much_shared_memory() -> None:
    """PH0530, with the largest tiles and what to do; @dynshared lifts the cap."""
    text = """
    {0}
    kernel k(X: tensor<f32>[M, N], Y: tensor<f32>[N, M]) {{
      let r = ctx.block.x * 128
      Y[0 :+ 128, r :+ 128] = transpose(X[r :+ 128, 0 :+ 128])
    }}
    """
    target = get_target("sm_90a")
    spec = Specialization()
    with pytest.raises(CompileError) as caught:
        pipeline.run(kernel_of(text.format("")), target, spec)
    (d,) = caught.value.diagnostics
    assert d.code == "PH0530" and "49152" in d.message and "@dynshared" in (d.help or "")
    schedule = pipeline.run(kernel_of(text.format("@dynshared")), target, spec).schedule
    assert schedule.dynamic_shared and schedule.shared_bytes > 49152
    with pytest.raises(CompileError) as caught:
        pipeline.run(kernel_of(text.format("@dynshared").replace("128", "256")), target, spec)
    assert caught.value.diagnostics[0].code == "PH0530"


@pytest.mark.parametrize("depth", [1, 2, 3, 24])
def test_deep_loops(depth: int) -> None:
    """The work grows with the depth of loops, not with two to its power (20 levels took 67 s)."""
    heads = "".join(f"for i{n} in range(0, K, 16) {{\n" for n in range(depth))
    text = f"""
@grid(1)
kernel deep(A: tensor<f32>[M, K], B: tensor<f32>[K, M], C: tensor<f32>[M, M]) {{
  var acc: tile<f32>[32, 32] = 0.0
  {heads}
  acc += dot(A[0 :+ 32, i0 :+ 16], B[i{depth - 1} :+ 16, 0 :+ 32])
  acc = acc + rowsum(acc) * 0.125
  {"}" * depth}
  C[0 :+ 32, 0 :+ 32] = acc
}}
"""
    kernel = phobos.jit(text)
    begin = time.perf_counter()
    assert kernel.compile(arch="sm_80").cuda.count("ph_syncthreads();") >= 1
    assert time.perf_counter() - begin < 20
    if depth > 3:
        return
    rng = np.random.default_rng(depth)
    a, b = rng.standard_normal((32, 32)), rng.standard_normal((32, 32))
    c = np.zeros((32, 32), np.float32)
    kernel(a.astype(np.float32), b.astype(np.float32), c, backend="emulator")
    want = np.zeros((32, 32))
    for where in np.ndindex((2,) * depth):
        first, last = 16 * where[0], 16 * where[-1]
        want += a[:, first : first + 16] @ b[last : last + 16]
        want += want.sum(axis=1, keepdims=True) * 0.125
    assert np.linalg.norm(c - want) < 1e-5 * np.linalg.norm(want)
