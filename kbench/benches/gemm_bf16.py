"""C = alpha A B + beta C on bf16 with sums in f32."""

from __future__ import annotations

from kbench.bench import COMPUTE, Bench
from kbench.gemm import (
    SCALARS,
    gemm_bytes,
    gemm_case,
    gemm_flops,
    gemm_oracle,
    gemm_tensors,
    tensor_core_host_cases,
)
from kbench.peers import cublas_gemm

BENCH = Bench(
    name="gemm_bf16",
    example="gemm_bf16.ph",
    precision="bf16",
    bound=COMPUTE,
    unit="fp16tcf32acc",
    title="C = alpha A B + beta C on bf16, f32 sums",
    cases=(gemm_case(4096, 4096, 4096, "bf16"), gemm_case(8192, 8192, 8192, "bf16")),
    quick_cases=(gemm_case(2048, 2048, 2048, "bf16"),),
    host_cases=tensor_core_host_cases("bf16"),
    tensors=gemm_tensors("bf16"),
    scalars=lambda case: SCALARS,
    oracle=gemm_oracle,
    flops=gemm_flops,
    bytes=gemm_bytes(2),
    # The store rounds to bf16: at most 2^-8 of each element.
    tolerance={"ieee": 5e-3},
    peers=(cublas_gemm(),),
)
