"""C = alpha A B + beta C on f16 with sums in f32."""

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
    name="gemm_fp16",
    example="gemm_fp16.ph",
    precision="fp16",
    bound=COMPUTE,
    unit="fp16tcf32acc",
    title="C = alpha A B + beta C on f16, f32 sums",
    cases=(gemm_case(4096, 4096, 4096, "f16"), gemm_case(8192, 8192, 8192, "f16")),
    quick_cases=(gemm_case(2048, 2048, 2048, "f16"),),
    host_cases=tensor_core_host_cases("f16"),
    tensors=gemm_tensors("f16"),
    scalars=lambda case: SCALARS,
    oracle=gemm_oracle,
    flops=gemm_flops,
    bytes=gemm_bytes(2),
    # The store rounds to f16: at most 2^-11 of each element.
    tolerance={"ieee": 6e-4},
    peers=(cublas_gemm(),),
)
