"""The benches, in the order of the table. A new one is a file here with a `BENCH` (or `BENCHES`, several of one name),
and its name in this list."""

from __future__ import annotations

from importlib import import_module

from kbench.bench import Bench

NAMES: tuple[str, ...] = (
    "saxpy_fp32",
    "softmax_fp32",
    "layernorm_fp32",
    "gemm_fp32",
    "gemm_fp16tc_fp32acc",
    "gemm_fp16",
    "gemm_bf16",
    "flash_fp32",
    "flash_fp16",
    "attention",
    "kda_fp32",
)


def get_benches(name: str) -> tuple[Bench, ...]:
    """The benches of this name: one, or one for each dtype. Raises KeyError for a name that is not in NAMES."""
    if name not in NAMES:
        raise KeyError(name)
    module = import_module(f"kbench.benches.{name}")
    found = getattr(module, "BENCHES", None) or (module.BENCH,)
    assert all(isinstance(b, Bench) and b.name == name for b in found)
    return found


def get_bench(name: str) -> Bench:
    """The first bench of this name."""
    return get_benches(name)[0]
