"""Flash attention of one head in f16 with an f32 softmax: the seed's algorithm, any numbers of queries and keys."""

from __future__ import annotations

import math

from kbench.attention import attention_oracle
from kbench.bench import COMPUTE, Bench, Case, Tensor
from kbench.peers import sdpa


def _case(nq: int, nk: int, d: int = 64, **config: int) -> Case:
    return Case(label=f"B1 H1 M{nq} N{nk} D{d} f16", dims={"Nq": nq, "Nk": nk, "D": d}, config=config)


def _tensors(case: Case) -> dict[str, Tensor]:
    nq, nk, d = (case.dims[n] for n in ("Nq", "Nk", "D"))
    return {
        "Q": Tensor(shape=(nq, d), dtype="f16"),
        "K": Tensor(shape=(nk, d), dtype="f16"),
        "V": Tensor(shape=(nk, d), dtype="f16"),
        "O": Tensor(shape=(nq, d), dtype="f16", role="out"),
    }


BENCH = Bench(
    name="flash_fp16",
    example="flash_attention_fp16.ph",
    precision="fp16",
    bound=COMPUTE,
    unit="fp16tcf32acc",
    title="attention of one head in f16",
    cases=(_case(4096, 4096),),
    quick_cases=(_case(1024, 1024),),
    host_cases=lambda pins: (_case(32, 64, D=64, BR=16, BC=32), _case(21, 75, D=64, BR=16, BC=16)),
    tensors=_tensors,
    scalars=lambda case: {"scale": 1.0 / math.sqrt(case.dims["D"])},
    oracle=attention_oracle(causal=False),
    flops=lambda case: 4.0 * case.dims["Nq"] * case.dims["Nk"] * case.dims["D"],
    bytes=lambda case: float(sum(t.bytes for t in _tensors(case).values())),
    # Probabilities and outputs are rounded to f16, each by at most 2^-11.
    tolerance={"ieee": 1e-3},
    peers=(sdpa("fa2", "FLASH_ATTENTION"), sdpa("cudnn", "CUDNN_ATTENTION")),
)
