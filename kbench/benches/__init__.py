"""The benches, in the order of the table. A new one is a file here with a `BENCH`, and its name in this list."""

from __future__ import annotations

from importlib import import_module

from kbench.bench import Bench

NAMES: tuple[str, ...] = ("saxpy_fp32", "softmax_fp32", "gemm_fp32", "flash_fp32")


def get_bench(name: str) -> Bench:
    """The bench of this name. Raises KeyError for a name that is not in NAMES."""
    if name not in NAMES:
        raise KeyError(name)
    bench = import_module(f"kbench.benches.{name}").BENCH
    assert isinstance(bench, Bench)
    return bench
