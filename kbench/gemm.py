"""What the benches of matrix products share: C = alpha A B + beta C, with C at random, so that beta is tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbench.bench import Arrays, Case, Pins, Scalars, Tensor

# beta < 1, so that repeated calls converge instead of overflowing.
SCALARS: dict[str, float] = {"alpha": 1.25, "beta": 0.5}


def gemm_case(m: int, n: int, k: int, dtype: str, **config: int) -> Case:
    return Case(label=f"M{m} N{n} K{k} {dtype}", dims={"M": m, "N": n, "K": k}, config=config)


def gemm_tensors(dtype: str) -> Callable[[Case], dict[str, Tensor]]:
    def tensors(case: Case) -> dict[str, Tensor]:
        m, n, k = (case.dims[d] for d in "MNK")
        return {
            "A": Tensor(shape=(m, k), dtype=dtype),
            "B": Tensor(shape=(k, n), dtype=dtype),
            "C": Tensor(shape=(m, n), dtype=dtype, role="inout"),
        }

    return tensors


def gemm_oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    return {"C": s["alpha"] * (t["A"] @ t["B"]) + s["beta"] * t["C"]}


def gemm_flops(case: Case) -> float:
    return 2.0 * case.dims["M"] * case.dims["N"] * case.dims["K"]


def gemm_bytes(element: int) -> Callable[[Case], float]:
    """A and B read, C read and written, with `element` bytes each."""

    def count(case: Case) -> float:
        m, n, k = (case.dims[d] for d in "MNK")
        return float(element) * (m * k + k * n + 2 * m * n)

    return count


def tensor_core_host_cases(dtype: str) -> Callable[[Pins], tuple[Case, ...]]:
    """Whole and ragged, of a few fragments."""
    return lambda pins: (
        gemm_case(64, 64, 64, dtype, BM=32, BN=32, BK=16),
        gemm_case(50, 72, 40, dtype, BM=32, BN=64, BK=16),
    )
