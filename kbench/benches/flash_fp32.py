"""Flash attention of one head in f32: the seed's kernel text. Rated against the f32 peak, as the seed does."""

from __future__ import annotations

import math
from typing import Any

from kbench.bench import COMPUTE, Arrays, Bench, Case, Pins, Scalars, Tensor
from kbench.peers import sdpa


def _case(nq: int, nk: int, d: int = 64, **config: int) -> Case:
    return Case(label=f"B1 H1 M{nq} N{nk} D{d} f32", dims={"Nq": nq, "Nk": nk, "D": d}, config=config)


def _host_cases(pins: Pins) -> tuple[Case, ...]:
    """Whole blocks, as the kernel promises: two of queries and four or five of keys."""
    cases = []
    for size, blocks in ((16, 4), (8, 5)):
        br, bc = (_small(pins.get(name), size) for name in ("BR", "BC"))
        cases.append(_case(2 * br, blocks * bc, BR=br, BC=bc))
    return tuple(cases)


def _small(pin: object, default: int) -> int:
    """The pinned value; what is no block size at all is left for the compiler to refuse."""
    return pin if isinstance(pin, int) and 0 < pin <= 1024 else default


def _tensors(case: Case) -> dict[str, Tensor]:
    nq, nk, d = (case.dims[n] for n in ("Nq", "Nk", "D"))
    return {
        "Q": Tensor(shape=(nq, d), dtype="f32"),
        "K": Tensor(shape=(nk, d), dtype="f32"),
        "V": Tensor(shape=(nk, d), dtype="f32"),
        "O": Tensor(shape=(nq, d), dtype="f32", role="out"),
    }


def _oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    scores = (t["Q"] @ t["K"].T) * s["scale"]
    p = xp.exp(scores - xp.amax(scores, axis=1, keepdims=True))
    return {"O": (p @ t["V"]) / xp.sum(p, axis=1, keepdims=True)}


def _bytes(case: Case) -> float:
    return 4.0 * sum(math.prod(t.shape) for t in _tensors(case).values())


BENCH = Bench(
    name="flash_fp32",
    example="flash_attention_fp32.ph",
    precision="fp32",
    bound=COMPUTE,
    unit="fp32",
    title="attention of one head",
    cases=(_case(4096, 4096),),
    quick_cases=(_case(1024, 1024),),
    host_cases=_host_cases,
    tensors=_tensors,
    scalars=lambda case: {"scale": 1.0 / math.sqrt(case.dims["D"])},
    oracle=_oracle,
    flops=lambda case: 4.0 * case.dims["Nq"] * case.dims["Nk"] * case.dims["D"],
    bytes=_bytes,
    # IEEE f32: a few units of 2^-24 per score, through exp. f16 and bf16 keep 11 and 8 bits of each operand; the rest
    # keep f32's accuracy or nearly so.
    tolerance={
        "ieee": 5e-6,
        "f16": 2e-3,
        "bf16": 1.6e-2,
        "tf32": 2e-3,
        "tf32x3": 1e-5,
        "bf16x3": 1e-4,
        "f16x2": 1e-5,
    },
    peers=(sdpa("torch"),),
)
