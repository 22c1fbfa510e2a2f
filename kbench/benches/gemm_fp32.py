"""C = alpha A B + beta C in IEEE f32; C starts at random, so that beta is tested."""

from __future__ import annotations

from typing import Any

from kbench.bench import COMPUTE, Arrays, Bench, Case, Scalars, Tensor
from kbench.peers import cublas_gemm


def _case(m: int, n: int, k: int, **config: int) -> Case:
    return Case(label=f"M{m} N{n} K{k} f32", dims={"M": m, "N": n, "K": k}, config=config)


def _tensors(case: Case) -> dict[str, Tensor]:
    m, n, k = (case.dims[d] for d in "MNK")
    return {
        "A": Tensor(shape=(m, k), dtype="f32"),
        "B": Tensor(shape=(k, n), dtype="f32"),
        "C": Tensor(shape=(m, n), dtype="f32", role="inout"),
    }


def _oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    return {"C": s["alpha"] * (t["A"] @ t["B"]) + s["beta"] * t["C"]}


BENCH = Bench(
    name="gemm_fp32",
    example="gemm_fp32.ph",
    precision="fp32",
    bound=COMPUTE,
    unit="fp32",
    title="C = alpha A B + beta C",
    cases=(_case(4096, 4096, 4096),),
    quick_cases=(_case(2048, 2048, 2048),),
    host_cases=lambda pins: (_case(64, 64, 64, BM=32, BN=32, BK=16), _case(50, 37, 29, BM=16, BN=32, BK=8)),
    tensors=_tensors,
    # beta < 1, so that repeated calls converge instead of overflowing.
    scalars=lambda case: {"alpha": 1.25, "beta": 0.5},
    oracle=_oracle,
    flops=lambda case: 2.0 * case.dims["M"] * case.dims["N"] * case.dims["K"],
    bytes=lambda case: (
        4.0 * (case.dims["M"] * case.dims["K"] + case.dims["K"] * case.dims["N"])
        + 8.0 * case.dims["M"] * case.dims["N"]
    ),
    # Rounding errors of K = 4096 products in sequence grow as their square root: about 32 * 2^-24.
    tolerance={"ieee": 5e-6},
    peers=(cublas_gemm(),),
)
