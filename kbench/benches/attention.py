"""Attention for batches of heads [B, H, M, D], causal or not, in f16, bf16 and f32."""

from __future__ import annotations

import math
from collections.abc import Callable

from kbench.attention import attention_oracle
from kbench.bench import COMPUTE, Bench, Case, Peer, Pins, Tensor
from kbench.peers import sdpa

_PRECISION = {"f16": "fp16", "bf16": "bf16", "f32": "fp32"}
_UNIT = {"f16": "fp16tcf32acc", "bf16": "fp16tcf32acc", "f32": "fp32"}
# Probabilities and outputs are rounded to the 16-bit type: each by at most 2^-11 (f16) or 2^-8 (bf16).
_TOLERANCE = {"f16": 1e-3, "bf16": 8e-3, "f32": 5e-6}


def _case(dtype: str, b: int, h: int, n: int, d: int, *, causal: bool = False) -> Case:
    return Case(
        label=f"B{b} H{h} M{n} N{n} D{d} {dtype}" + (" causal" if causal else ""),
        dims={"B": b, "H": h, "HK": h, "M": n, "N": n, "D": d},
        consts={"causal": causal},
    )


def _host_cases(dtype: str, causal: bool) -> Callable[[Pins], tuple[Case, ...]]:
    """Whole tiles; and ragged ones with two query heads on each key head and more keys than queries."""

    def cases(pins: Pins) -> tuple[Case, ...]:
        out = []
        for h, hk, m, n in ((1, 1, 32, 64), (4, 2, 19, 45)):
            heads = f"H{h}" if h == hk else f"H{h} HK{hk}"
            out.append(
                Case(
                    label=f"B1 {heads} M{m} N{n} D32 {dtype}" + (" causal" if causal else ""),
                    dims={"B": 1, "H": h, "HK": hk, "M": m, "N": n, "D": 32},
                    config={"D": 32, "BR": 16, "BC": 16},
                    consts={"causal": causal},
                )
            )
        return tuple(out)

    return cases


def _tensors(dtype: str) -> Callable[[Case], dict[str, Tensor]]:
    def tensors(case: Case) -> dict[str, Tensor]:
        b, h, hk, m, n, d = (case.dims[name] for name in ("B", "H", "HK", "M", "N", "D"))
        return {
            "Q": Tensor(shape=(b, h, m, d), dtype=dtype),
            "K": Tensor(shape=(b, hk, n, d), dtype=dtype),
            "V": Tensor(shape=(b, hk, n, d), dtype=dtype),
            "O": Tensor(shape=(b, h, m, d), dtype=dtype, role="out"),
        }

    return tensors


def _flops(case: Case) -> float:
    """Two products of M x N x D a head; half of that where a query sees half of the keys."""
    b, h, m, n, d = (case.dims[name] for name in ("B", "H", "M", "N", "D"))
    return 4.0 * b * h * m * n * d * (0.5 if case.consts["causal"] else 1.0)


def _bench(dtype: str, causal: bool, sizes: tuple[tuple[int, int, int, int], ...], peers: tuple[Peer, ...]) -> Bench:
    """`sizes`: B, H, N, D; the first is that of the table of all benches."""
    tensors = _tensors(dtype)
    return Bench(
        name="attention",
        example="attention.ph",
        precision=_PRECISION[dtype],
        bound=COMPUTE,
        unit=_UNIT[dtype],
        title="attention for many heads",
        cases=tuple(_case(dtype, *size, causal=causal) for size in sizes),
        quick_cases=(_case(dtype, 2, 8, 1024, 64, causal=causal),),
        host_cases=_host_cases(dtype, causal),
        tensors=tensors,
        scalars=lambda case: {"scale": 1.0 / math.sqrt(case.dims["D"])},
        oracle=attention_oracle(causal=causal),
        flops=_flops,
        bytes=lambda case: float(sum(t.bytes for t in tensors(case).values())),
        tolerance={"ieee": _TOLERANCE[dtype]},
        peers=peers,
        dtypes={"T": dtype},
        in_table=not causal,
    )


def _half_peers(causal: bool) -> tuple[Peer, ...]:
    return sdpa("fa2", "FLASH_ATTENTION", causal=causal), sdpa("cudnn", "CUDNN_ATTENTION", causal=causal)


BENCHES = (
    _bench(
        "f16",
        False,
        (
            (4, 12, 2048, 64), (4, 12, 1024, 64), (4, 12, 512, 64), (4, 12, 2048, 128), (4, 16, 8192, 64),
            (4, 16, 8192, 128),
        ),
        _half_peers(False),
    ),
    _bench("f16", True, ((4, 12, 2048, 64), (4, 12, 2048, 128), (4, 16, 8192, 128)), _half_peers(True)),
    _bench("bf16", False, ((4, 12, 2048, 64),), _half_peers(False)),
    _bench(
        "f32",
        False,
        ((4, 12, 2048, 64), (4, 12, 1024, 64), (4, 12, 512, 64)),
        (sdpa("mem_efficient", "EFFICIENT_ATTENTION"),),
    ),
)  # fmt: skip
