"""Shared-memory accesses of products: the addresses that each room's instructions take, from its plan.

Mirrors what the rooms emit; the emulator's recorded addresses prove that it does (tests/trace).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phobos.contraction.fma import FmaPlan
from phobos.contraction.fma_columns import PIECE, ColumnsPlan
from phobos.contraction.interface import ContractionPlan
from phobos.contraction.mma_sync import MmaPlan
from phobos.contraction.wmma import WmmaPlan
from phobos.trace.accesses import MATRIX, OPAQUE, Log, Site

Array = np.ndarray


@dataclass(frozen=True)
class Operand:
    """A tile in shared memory: byte of its first element, its name and element size."""

    name: str
    base: int
    itemsize: int


class Unknown(Exception):
    """No one has said here which addresses this takes."""


def _threads(warps: int) -> tuple[Array, Array]:
    """warp [warps, 1] and lane [1, 32]."""
    return np.arange(warps)[:, None], np.arange(32)[None, :]


def product(log: Log, plan: ContractionPlan, warps: int, a: Operand | None, b: Operand) -> None:
    """All loads of one product. `a` None: the left operand is in registers."""
    if isinstance(plan, FmaPlan):
        if a is None:
            raise Unknown("a product by FMA with an operand in registers")
        _fma(log, plan, warps, a, b)
    elif isinstance(plan, (ColumnsPlan, MmaPlan, WmmaPlan)):
        for k in range(plan.steps):
            step(log, plan, warps, k, a, b)
    else:
        raise Unknown(f"a product by {plan.room}")


def operand(log: Log, plan: ContractionPlan, warps: int, a: Operand) -> None:
    """The left operand as a whole."""
    for k in range(plan.steps):
        step(log, plan, warps, k, a, None)


def step(log: Log, plan: ContractionPlan, warps: int, k: int, a: Operand | None, b: Operand | None) -> None:
    """Loads of step `k` along k."""
    if isinstance(plan, MmaPlan):
        _mma_step(log, plan, warps, k, a, b)
    elif isinstance(plan, WmmaPlan):
        _wmma_step(log, plan, warps, k, a, b)
    elif isinstance(plan, ColumnsPlan):
        _columns_step(log, plan, warps, k, a, b)
    else:
        raise Unknown(f"a step of a product by {plan.room}")


# --- multiply-add ----------------------------------------------------------------------------


def _fma(log: Log, p: FmaPlan, warps: int, a: Operand, b: Operand) -> None:
    q = p.query
    warp, lane = _threads(warps)
    row = warp // p.wn * (p.lm * p.tm) + lane // p.ln
    col = warp % p.wn * (p.ln * p.tn) + lane % p.ln * (1 if q.transpose_b else p.nv)
    pa, pb = p.a_layout.pitch, p.b_layout.pitch

    def clamped(base: Array, offset: int, extent: int, width: int, padded: bool) -> Array:
        return np.minimum(base + offset, extent - width) if padded else base + offset

    a_site = Site("shared", a.name, False, p.kv * a.itemsize)
    b_site = Site("shared", b.name, False, (p.kv if q.transpose_b else p.nv) * b.itemsize)
    for kk in range(0, q.k, p.kv):
        for i in range(p.tm):
            at = clamped(row, i * p.lm, q.m, 1, p.c_layout.padded(0))
            log.add(a_site, a.base + (at * pa + kk) * a.itemsize)
        if q.transpose_b:
            for j in range(p.tn):
                at = clamped(col, j * p.ln, q.n, 1, p.c_layout.padded(1))
                log.add(b_site, b.base + (at * pb + kk) * b.itemsize)
            continue
        for u in range(p.kv):
            for j in range(p.tn // p.nv):
                at = clamped(col, j * p.ln * p.nv, q.n, p.nv, p.c_layout.padded(1))
                log.add(b_site, b.base + ((kk + u) * pb + at) * b.itemsize)


def _columns_step(log: Log, p: ColumnsPlan, warps: int, k: int, a: Operand | None, b: Operand | None) -> None:
    warp, lane = _threads(warps)
    row = warp // p.wn * (p.lm * p.tm) + lane // p.ln * PIECE
    col = warp % p.wn * (p.ln * p.tn) + lane % p.ln * PIECE
    if a is not None:
        for i in range(p.tm // PIECE):
            at = p.a_layout.index([row + i * PIECE * p.lm, np.full_like(row, k)])
            log.add(Site("shared", a.name, False, PIECE * a.itemsize), a.base + at * a.itemsize)
    if b is not None:
        for j in range(p.tn // PIECE):
            place = [np.full_like(col, k), col + j * PIECE * p.ln]
            at = p.b_layout.index(place[::-1] if p.query.transpose_b else place)
            log.add(Site("shared", b.name, False, PIECE * b.itemsize), b.base + at * b.itemsize)


# --- fragments by matrix loads -----------------------------------------------------


def _mma_step(log: Log, p: MmaPlan, warps: int, k: int, a: Operand | None, b: Operand | None) -> None:
    warp, lane = _threads(warps)
    depth = p.query.k // p.steps
    if a is not None:
        rows, columns = warp // p.wn * (16 * p.mt) + lane % 16, lane // 16 * (16 // a.itemsize) + k * depth
        site = Site("shared", a.name, False, 16, MATRIX)
        for i in range(p.mt):
            log.add(site, a.base + p.a_layout.index([rows + i * 16, columns]) * a.itemsize)
    if b is None:
        return
    layout, item = p.b_layout, b.itemsize
    first = warp % p.wn * (8 * p.nt)  # of the warp's columns
    transposed = not p.query.transpose_b
    words = transposed and item == 4
    paired = p.nt % 2 == 0 and not words
    if words:
        site = Site("shared", b.name, False, 4)
        for j in range(p.nt):
            for r in (0, 4):
                at = layout.index([lane % 4 + k * depth + r, first + lane // 4 + j * 8])
                log.add(site, b.base + at * item)
        return
    site = Site("shared", b.name, False, 16, MATRIX)
    # A load of two matrices takes the addresses of the first 16 lanes.
    active = lane < (32 if paired else 16)
    half = lane // 16 * 8 if paired else 0
    for j in range(p.nt // 2 if paired else p.nt):
        across = first + j * (16 if paired else 8)
        if transposed:
            at = layout.index([lane % 16 + k * depth, across + half])
        else:
            at = layout.index([across + lane % 8 + half, lane // 8 % 2 * (16 // item) + k * depth])
        log.add(site, b.base + at * item, active)


# --- opaque fragments ------------------------------------------------------------------


def _elements(rows: int, columns: int, pitch: int) -> list[Array]:
    """Element offsets of a fragment, [1, 32] at a time; which lane takes which is not defined."""
    at = (np.arange(rows)[:, None] * pitch + np.arange(columns)[None, :]).reshape(-1, 32)
    return [part[None, :] for part in at]


def _wmma_step(log: Log, p: WmmaPlan, warps: int, k: int, a: Operand | None, b: Operand | None) -> None:
    warp, _ = _threads(warps)
    if a is not None:
        pitch = p.a_layout.pitch
        for i in range(p.mt):
            start = (warp // p.wn * p.mt + i) * 16 * pitch + k * p.depth
            for part in _elements(16, p.depth, pitch):
                log.add(Site("shared", a.name, False, a.itemsize, OPAQUE), a.base + (start + part) * a.itemsize)
    if b is not None:
        pitch = p.b_layout.pitch
        transposed = p.query.transpose_b
        for j in range(p.nt):
            tile = (warp % p.wn * p.nt + j) * 16
            start = tile * pitch + k * p.depth if transposed else tile + k * p.depth * pitch
            rows, columns = (16, p.depth) if transposed else (p.depth, 16)
            for part in _elements(rows, columns, pitch):
                log.add(Site("shared", b.name, False, b.itemsize, OPAQUE), b.base + (start + part) * b.itemsize)


def deliver(log: Log, plan: ContractionPlan, warps: int, scratch: Operand, *, load: bool) -> None:
    """Elements of opaque sums on their way from (`load`: to) registers of a known layout, through `scratch`."""
    if not isinstance(plan, WmmaPlan):
        raise Unknown(f"opaque sums of {plan.room}")
    p = plan
    warp, lane = _threads(warps)
    pitch = p.scratch.pitch
    part = warp * 16 * pitch
    chunks, fragments = p.nt * 16 // p.span, p.span // 16

    def fragment_accesses(write: bool) -> None:
        for u in range(fragments):
            for at in _elements(16, 16, pitch):
                log.add(Site("shared", scratch.name, write, 4, OPAQUE), scratch.base + (part + u * 16 + at) * 4)

    def rows(write: bool) -> None:
        for r in range(16 * p.lanes // 32):
            at = (lane // p.lanes + r * (32 // p.lanes)) * pitch + lane % p.lanes * 4
            log.add(Site("shared", scratch.name, write, 16), scratch.base + (part + at) * 4)

    for _ in range(p.mt * chunks):
        if load:
            rows(True)
            fragment_accesses(False)
        else:
            fragment_accesses(True)
            rows(False)
