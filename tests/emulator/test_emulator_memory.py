"""Memory accesses, thread indices, shuffles, barriers and atomics against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.executors import Run, executors
from emulator.support import Out, Shape, from_bf16, kernel_text, to_bf16

RNG = np.random.default_rng(1)
SCHEDULES = (0, 1, 2, 3)


@executors
@pytest.mark.parametrize("sched", (0, 1))
def test_accesses_of_every_type_and_width(run: Run, sched: int) -> None:
    bits = RNG.integers(0, 256, 64 * 8, dtype=np.uint8)
    arrays = [bits[: 64 * np.dtype(t).itemsize].copy().view(t) for t in ("u4", "u8", "u2", "u1", "i8")]
    arrays += [bits[:64] % 2, bits[:64].copy()]
    widths = [4, 2, 8, 16, 1, 8, 2]
    outs = [np.zeros(256, a.dtype) for a in arrays]
    run(
        kernel_text("unit_types"),
        "u_copies",
        Shape(threads=64, shared=512, granule=1),
        [x for a, y in zip(arrays, outs, strict=True) for x in (a, Out(y))],
        sched=sched,
    )
    for a, y, n in zip(arrays, outs, widths, strict=True):
        reversed_vectors = a.reshape(-1, n)[::-1].reshape(-1)
        assert np.array_equal(y.reshape(4, 64), np.stack([a, reversed_vectors, a, a]))


@executors
def test_block_and_grid_indices(run: Run) -> None:
    y = np.zeros((2, 4, 3, 3, 96), np.int32)
    run(kernel_text("unit_types"), "u_grid", Shape(threads=96, grid=(3, 4, 2)), [Out(y), np.int32(5)])
    z, yy, x = np.indices((2, 4, 3))
    assert (y[..., 0, :] == (x * 100 + yy * 10 + z)[..., None]).all()
    assert (y[..., 1, :] == 342).all()
    assert (y[..., 2, :] == np.maximum(0, 5 + 28 * np.arange(96) - 10)).all()


@executors
def test_update_in_place(run: Run) -> None:
    x = np.arange(32, dtype=np.float32)
    run(kernel_text("unit_types"), "u_update", Shape(), [Out(x, init=True)])
    assert np.array_equal(x, ((np.arange(32) + 3) * 2 - 1) / 4)


@executors
@pytest.mark.parametrize("sched", SCHEDULES)
def test_shuffles_move_1_2_4_and_8_bytes(run: Run, sched: int) -> None:
    source = RNG.integers(0, 2**63, 64, dtype=np.int64)
    arrays = [
        source.astype(np.float32),
        source.astype(np.float64),
        source.astype(np.uint16),
        (source % 2).astype(np.uint8),
        source,
        source.astype(np.int8),
    ]
    outs = [np.zeros((4, 2, 32), a.dtype) for a in arrays]
    flat = [x for a, y in zip(arrays, outs, strict=True) for x in (a, Out(y))]
    run(kernel_text("unit"), "u_shuffle", Shape(threads=64), flat, sched=sched)
    lane = np.arange(32)
    froms = [lane ^ 5, np.where(lane < 3, lane, lane - 3), np.where(lane + 7 > 31, lane, lane + 7), np.full(32, 9)]
    for a, y in zip(arrays, outs, strict=True):
        assert np.array_equal(y, np.stack([a.reshape(2, 32)[:, f] for f in froms]))


@executors
@pytest.mark.parametrize("sched", SCHEDULES)
def test_named_barriers_order_a_producer_and_two_consumers(run: Run, sched: int) -> None:
    x = RNG.integers(0, 1000, (5, 32)).astype(np.int32)
    y = np.zeros((2, 5, 32), np.int32)
    run(kernel_text("unit"), "u_named", Shape(threads=96, shared=128, granule=4), [x, Out(y), np.int32(5)], sched=sched)
    assert np.array_equal(y, np.broadcast_to(x[:, ::-1], (2, 5, 32)))


@executors
@pytest.mark.parametrize("sched", SCHEDULES)
def test_atomics_of_several_blocks(run: Run, sched: int) -> None:
    x = RNG.integers(0, 1000, 256).astype(np.int32)
    histogram, total = np.zeros(16, np.int32), np.zeros(1, np.float32)
    arguments = [x, Out(histogram, init=True), Out(total, init=True)]
    run(kernel_text("unit"), "u_atomic", Shape(threads=64, grid=(4,), shared=64, granule=4), arguments, sched=sched)
    assert np.array_equal(histogram, np.bincount(x & 15, minlength=16))
    assert total[0] == x.sum()


@executors
@pytest.mark.parametrize("sched", (0, 1))
def test_atomics_of_every_type(run: Run, sched: int) -> None:
    # small integers: sums are exact in every type, so the order does not matter
    numbers = RNG.integers(-8, 9, 64).astype(np.int64)
    numbers[:12] = np.arange(12) - 6  # distinct where compare-and-swap looks
    types = ["f4", "f8", "i4", "u4", "i8", "f2", "bf16"]
    arguments: list = []
    outs = []
    for t in types:
        values = numbers - numbers.min() if t == "u4" else numbers
        stored = to_bf16(values) if t == "bf16" else values.astype(t)
        y = np.zeros(28, stored.dtype)
        y[12:16] = stored[:4]
        old = np.zeros(72, stored.dtype)
        old_base = y.copy()
        arguments += [stored, Out(y, init=True), Out(old, init=True)]
        outs.append((t, values, old_base, y, old))
    run(kernel_text("unit_types"), "u_atomics", Shape(threads=64, shared=128, granule=2), arguments, sched=sched)
    for t, values, before, y, old in outs:

        def plain(a: np.ndarray, t: str = t) -> np.ndarray:
            return (from_bf16(a) if t == "bf16" else a).astype(np.float64)

        by_place = values.reshape(16, 4).astype(np.float64)
        start = plain(before)
        expected = [by_place.sum(0), np.maximum(by_place.max(0), 0), np.minimum(by_place.min(0), 0)]
        shared_start = values[:12].reshape(3, 4)
        shared = [
            shared_start[0] + by_place.sum(0),
            np.maximum(shared_start[1], by_place.max(0)),
            np.minimum(shared_start[2], by_place.min(0)),
        ]
        assert np.array_equal(plain(y[:12]), np.concatenate(expected)), t
        assert np.array_equal(plain(y[16:28]), np.concatenate(shared)), t
        assert np.array_equal(plain(y[12:16]), values[4:8]), t
        assert np.array_equal(plain(old[64:68]), start[12:16]), t
        assert np.array_equal(plain(old[68:72]), values[4:8]), t
        # the old values of one place, in some order, are the partial sums
        for place in range(4):
            order = np.argsort(plain(old[:64]).reshape(16, 4)[:, place], kind="stable")
            found = sorted(plain(old[:64]).reshape(16, 4)[:, place] + by_place[:, place])
            begun = sorted(plain(old[:64]).reshape(16, 4)[:, place])
            assert len(order) == 16
            assert sorted([*begun, expected[0][place]]) == sorted([0.0, *found]), t
