"""Benches without a GPU: small sizes on the reference and the emulator, compared with the oracle. Nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kbench.bench import Bench, Case
from kbench.device import BF16_NAN, bf16_to_float64, random_array
from kbench.text import implementation, load_kernel
from kbench.variant import kinds_of
from phobos.diagnostics import PhobosError
from phobos.norms import ErrorNorms, error_norms
from phobos.target import DEFAULT_ARCH


@dataclass(frozen=True, kw_only=True)
class HostCheck:
    """One case on one backend. `problem` says why there are no norms, or why good norms are not enough."""

    bench: str
    case: str
    backend: str
    config: Mapping[str, object]
    norms: ErrorNorms | None
    tolerance: float
    problem: str | None = None
    impl: str = "phobos"

    @property
    def good(self) -> bool:
        return self.problem is None and self.norms is not None and self.norms.within(self.tolerance)


def check_case(
    bench: Bench, case: Case, backend: str, config: Mapping[str, object], options: Mapping[str, str] | None = None
) -> HostCheck:
    """One case on one backend. `config` wins over the case's own; options as `kbench.text` adds them."""
    kernel = load_kernel(bench, options)
    config = {**case.config, **config}
    tensors, expected = arguments_and_oracle(bench, case)
    tolerance = bench.tolerance["ieee"]
    problem = norms = None
    try:
        kinds = kinds_of(kernel.compile(config=config, dtypes=bench.dtypes, consts=case.consts, arch=DEFAULT_ARCH))
        tolerance = bench.tolerance_of(kinds)
        kernel(**tensors, **bench.scalars(case), **case.consts, config=dict(config) or None, backend=backend)
        norms = max(
            (error_norms(to_float64(tensors[n], bench.tensors(case)[n].dtype), expected[n]) for n in expected),
            key=lambda e: e.rel_l2 if e.rel_l2 == e.rel_l2 else float("inf"),
        )
    except PhobosError as e:
        d = e.diagnostics[0]
        problem = f"{d.code}: {d.message}"
    return HostCheck(
        bench=bench.name,
        case=case.label,
        backend=backend,
        config=config,
        norms=norms,
        tolerance=tolerance,
        problem=problem,
        impl=implementation(options),
    )


def arguments_and_oracle(bench: Bench, case: Case) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random NumPy arguments, "out" ones poisoned, and what the oracle says of every written tensor, in float64."""
    specs = bench.tensors(case)
    tensors = {name: random_array(spec, seed=i) for i, (name, spec) in enumerate(specs.items())}
    wide = {name: to_float64(t, specs[name].dtype) for name, t in tensors.items()}
    expected = bench.oracle(np, wide, bench.scalars(case))
    for name, spec in specs.items():
        if spec.role == "out":
            tensors[name][...] = _POISON[spec.dtype] if spec.dtype in _POISON else np.iinfo(tensors[name].dtype).min
    return tensors, expected


_POISON: dict[str, float | int] = {"f16": np.nan, "f32": np.nan, "f64": np.nan, "bf16": BF16_NAN}


def to_float64(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array of this dtype of the language; bf16 comes as its bits in uint16."""
    if dtype == "bf16":
        return bf16_to_float64(array)
    return array.astype(np.float64)
