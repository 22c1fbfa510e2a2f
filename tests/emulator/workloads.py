"""Launches of the larger kernel texts with their expected results: attention, GEMM, reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from emulator.support import Out, Shape, Tma, Value, emulate, from_bf16, to_bf16

from phobos.emulator.reports import EmulatorResult

RNG = np.random.default_rng(2)
SCALE_LOG2 = 0.125 * 1.4426950408889634


@dataclass(frozen=True)
class Workload:
    """`make` gives new arguments, the output among them, and the expected output."""

    file: str
    name: str
    shape: Shape
    make: Callable[[], tuple[list[Value], np.ndarray, np.ndarray]]
    tolerance: float = 1e-3

    def run(self, text: str, *, sched: int = 0, workers: int = 1, check: bool = True) -> tuple[EmulatorResult, float]:
        """The result and the largest error."""
        arguments, out, expected = self.make()
        result = emulate(text, self.name, self.shape, arguments, sched=sched, workers=workers, check=check)
        error = np.abs(out.astype(np.float64) - expected).max()
        return result, float(error)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    s = (q.astype(np.float64) @ k.astype(np.float64).T) * 0.125
    p = np.exp(s - s.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v.astype(np.float64)


def _attention_workload(file: str, rows: int, keys: int, block: int, threads: int, shared: int, tma: bool) -> Workload:
    q, k, v = (RNG.standard_normal((n, 64)).astype(np.float16) for n in (rows, keys, keys))
    expected = _attention(q, k, v)

    def make() -> tuple[list[Value], np.ndarray, np.ndarray]:
        out = np.full((rows, 64), np.nan, np.float16)
        inputs: list[Value] = [Tma(x, (64, 64)) for x in (q, k, v)] if tma else [q, k, v]
        arguments = [*inputs, Out(out, name="O"), np.int32(rows), np.int32(keys), np.float32(SCALE_LOG2)]
        return arguments, out, expected

    return Workload(file, file, Shape(threads, (-(-rows // block),), shared), make)


FLASH_MMA = _attention_workload("flash_mma", 128, 256, 64, 128, 40960, tma=False)
FLASH_MMA_RAGGED = _attention_workload("flash_mma", 100, 256, 64, 128, 40960, tma=False)
FLASH_WGMMA = _attention_workload("flash_wgmma", 128, 256, 64, 128, 41008, tma=True)
# a ring of two stages needs six blocks of keys before the second parity flips
FLASH_WGMMA_LONG = _attention_workload("flash_wgmma", 64, 512, 64, 128, 41008, tma=True)
FLASH_WS = _attention_workload("flash_ws", 128, 512, 128, 384, 49224, tma=True)


def _gemm() -> tuple[list[Value], np.ndarray, np.ndarray]:
    a, b = RNG.standard_normal((128, 64)).astype(np.float32), RNG.standard_normal((64, 128)).astype(np.float32)
    out = np.full((128, 128), np.nan, np.float32)
    return [a, b, Out(out, name="C"), np.int32(128), np.int32(128), np.int32(64)], out, a.astype(np.float64) @ b


def _block_sum() -> tuple[list[Value], np.ndarray, np.ndarray]:
    x = RNG.standard_normal(512).astype(np.float32)
    out = np.full(4, np.nan, np.float32)
    return [x, Out(out, name="Y"), np.int32(512)], out, x.reshape(4, 128).astype(np.float64).sum(1)


def _transpose() -> tuple[list[Value], np.ndarray, np.ndarray]:
    x = RNG.standard_normal((32, 32)).astype(np.float32)
    out = np.full((32, 32), np.nan, np.float32)
    return [x, Out(out, name="Y")], out, x.T.astype(np.float64)


def _elect() -> tuple[list[Value], np.ndarray, np.ndarray]:
    m = np.arange(32 * 64, dtype=np.uint16).reshape(32, 64)
    out = np.zeros((4, 32, 4), np.uint32)
    pairs = m.reshape(4, 8, 64)[:, :, :32].reshape(4, 8, 4, 4, 2).transpose(0, 1, 3, 2, 4).reshape(4, 32, 4, 2)
    return (
        [Tma(m, (64, 8)), Out(out, name="Y"), np.int32(4)],
        out,
        pairs[..., 0] | pairs[..., 1].astype(np.uint32) << 16,
    )


def _wgmma() -> tuple[list[Value], np.ndarray, np.ndarray]:
    a, b = to_bf16(RNG.standard_normal((64, 64))), to_bf16(RNG.standard_normal((64, 128)))
    out = np.zeros((64, 128), np.float32)
    return [a, b, Out(out, name="D")], out, from_bf16(a).astype(np.float64) @ from_bf16(b)


GEMM = Workload("gemm_fma", "gemm_fma", Shape(256, (1, 1), 16 * 132 * 4 + 8192, 4), _gemm)
BLOCK_SUM = Workload("reduce", "block_sum", Shape(128, (4,), 16, 4), _block_sum)
TRANSPOSE = Workload("reduce", "transpose_warp", Shape(32, (1,), 33 * 128, 4), _transpose)
ELECT = Workload("unit_hopper", "elect", Shape(64, (1,), 1040), _elect)
WGMMA = Workload("unit_hopper", "u_wgmma_nmajor", Shape(128, (1,), 24576), _wgmma)
ALL = {
    "flash_mma": FLASH_MMA,
    "flash_mma_ragged": FLASH_MMA_RAGGED,
    "flash_wgmma": FLASH_WGMMA,
    "flash_wgmma_long": FLASH_WGMMA_LONG,
    "flash_ws": FLASH_WS,
    "gemm_fma": GEMM,
    "block_sum": BLOCK_SUM,
    "transpose_warp": TRANSPOSE,
    "elect": ELECT,
    "wgmma": WGMMA,
}
