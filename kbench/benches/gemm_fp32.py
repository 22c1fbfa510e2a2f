"""C = alpha A B + beta C in IEEE f32."""

from __future__ import annotations

from kbench.bench import COMPUTE, Bench
from kbench.gemm import SCALARS, gemm_bytes, gemm_case, gemm_flops, gemm_oracle, gemm_tensors
from kbench.peers import cublas_gemm

BENCH = Bench(
    name="gemm_fp32",
    example="gemm_fp32.ph",
    precision="fp32",
    bound=COMPUTE,
    unit="fp32",
    title="C = alpha A B + beta C",
    cases=(gemm_case(4096, 4096, 4096, "f32"),),
    quick_cases=(gemm_case(2048, 2048, 2048, "f32"),),
    host_cases=lambda pins: (
        gemm_case(64, 64, 64, "f32", BM=32, BN=32, BK=16),
        gemm_case(50, 37, 29, "f32", BM=16, BN=32, BK=8),
    ),
    tensors=gemm_tensors("f32"),
    scalars=lambda case: SCALARS,
    oracle=gemm_oracle,
    flops=gemm_flops,
    bytes=gemm_bytes(4),
    # Rounding errors of K = 4096 products in sequence grow as their square root: about 32 * 2^-24.
    tolerance={"ieee": 5e-6},
    peers=(cublas_gemm(),),
)
