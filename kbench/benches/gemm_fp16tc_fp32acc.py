"""C = alpha A B + beta C on f32 matrices with operands rounded to f16 and sums in f32."""

from __future__ import annotations

from kbench.bench import COMPUTE, Bench, Peer, PeerInput, Prepared
from kbench.gemm import (
    SCALARS,
    gemm_bytes,
    gemm_case,
    gemm_flops,
    gemm_oracle,
    gemm_tensors,
    tensor_core_host_cases,
)


def _cublas(given: PeerInput) -> Prepared:
    """cuBLAS on f16: matrices are rounded once, beforehand, which is not timed."""
    s = given.scalars
    a, b, c = (given.tensors[n].to(given.torch.float16) for n in "ABC")
    return Prepared(call=lambda: c.addmm_(a, b, beta=s["beta"], alpha=s["alpha"]), outputs={"C": c})


BENCH = Bench(
    name="gemm_fp16tc_fp32acc",
    example="gemm_fp16tc_fp32acc.ph",
    precision="fp16tc_fp32acc",
    bound=COMPUTE,
    unit="fp16tcf32acc",
    title="C = alpha A B + beta C on f32, rounded to f16, f32 sums",
    cases=(gemm_case(4096, 4096, 4096, "f32"), gemm_case(8192, 8192, 8192, "f32")),
    quick_cases=(gemm_case(2048, 2048, 2048, "f32"),),
    host_cases=tensor_core_host_cases("f32"),
    tensors=gemm_tensors("f32"),
    scalars=lambda case: SCALARS,
    oracle=gemm_oracle,
    flops=gemm_flops,
    bytes=gemm_bytes(4),
    # Two operands, each off by at most 2^-11.
    tolerance={"ieee": 5e-6, "f16": 1e-3},
    peers=(Peer(name="cublas", prepare=_cublas),),
)
