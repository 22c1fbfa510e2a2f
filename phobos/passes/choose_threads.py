"""choose_threads: the CTA size, from @launch or from the largest tile's work.

Precondition: simplified KernelIR. Result: threads (a multiple of 32 up to 1024) and the reason for the report.
"""

from __future__ import annotations

from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.abi import Decision
from phobos.ir.tile import Dot, KernelIR
from phobos.ir.walk import kernel_ops
from phobos.layout.register import power_of_two_at_least

_RESULTS_PER_THREAD = 64  # an 8 x 8 register tile: the FMA path's best balance of shared reads and registers
# A warp tile of 64 x 64 (or 32 rows of keys and values of 128) for fragments of 16 x 8: attention with 128 rows and D =
# 128 on an H200 ran at 0.91 of FlashAttention-2 with 128 threads and at 0.74 with 256.
_TENSOR_RESULTS = 128
_ELEMENTS_PER_THREAD = 8  # two 16-byte f32 accesses in flight per tensor
_MOST_ELEMENTS = 32  # beyond, values held by a thread crowd its registers (8192 f32 a row on an H200: 256 threads best)


def run(kernel: KernelIR) -> tuple[int, Decision]:
    """Raises CompileError (PH0501) if @launch names a size that no CTA can have."""
    asked = kernel.launch.threads
    if asked is not None:
        if asked % 32 or not 32 <= asked <= 1024:
            raise CompileError(
                Diagnostic(
                    code="PH0501",
                    message=f"@launch({asked}): a CTA has a multiple of 32 threads, from 32 to 1024",
                    span=kernel.span,
                    help=f"use @launch({min(1024, max(32, (asked + 31) // 32 * 32))})",
                )
            )
        return asked, Decision(stage="threads", subject="CTA", choice=f"{asked} threads", reason="@launch")
    dots = [op for op in kernel_ops(kernel) if isinstance(op, Dot)]
    if dots:
        results = max(op.result.shape[0] * op.result.shape[1] for op in dots)
        rows = min(op.result.shape[0] for op in dots)
        tensor = all(op.a.dtype.bytes <= 2 or op.kinds[0] != "ieee" for op in dots)
        # f32 operands are converted on their way through registers, which leaves fewer for results.
        converted = any(op.a.dtype.bytes > 2 for op in dots)
        each, least, warp_rows = (_RESULTS_PER_THREAD, 64, 4)
        if tensor:
            each, least, warp_rows = (each if converted else _TENSOR_RESULTS), 128, 16
        threads = min(256, max(least, power_of_two_at_least(-(-results // each))))
        # A warp should own whole fragments, or at least four rows, of every product.
        while threads > 32 and threads // 32 * warp_rows > power_of_two_at_least(rows):
            threads //= 2
        why = f"the largest product has {results} results, {results // threads} a thread"
    else:
        size = max((v.type.size for op in kernel_ops(kernel) for v in op.defined() if v.is_tile), default=1)  # type: ignore[union-attr]
        threads = min(256, max(32, power_of_two_at_least(-(-size // _ELEMENTS_PER_THREAD))))
        while threads < 1024 and size > threads * _MOST_ELEMENTS:
            threads *= 2
        why = f"the largest tile has {size} elements, {-(-size // threads)} a thread"
    return threads, Decision(stage="threads", subject="CTA", choice=f"{threads} threads", reason=why)
