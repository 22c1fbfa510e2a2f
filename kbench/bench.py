"""What a benchmark is: a kernel of examples/, its cases, its arguments, an independent oracle, and its peers.

A bench is one small file in `kbench/benches/` with one `Bench`, or with several of one name that differ in dtypes.
Oracles are written once for NumPy and torch: they get the module as `xp` and float64 arrays, and use only what both
spell alike (`xp.exp`, `xp.amax(x, axis=1, keepdims=True)`, `@`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phobos.ir.options import DOT_KINDS

Scalars = Mapping[str, float]
Arrays = Mapping[str, Any]
Pins = Mapping[str, object]  # what the command line fixes of a configuration

COMPUTE, MEMORY = "compute", "memory"
ROLES = ("in", "out", "inout")
DTYPE_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i32": 4, "i64": 8, "i8": 1, "u8": 1}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One problem size. `label` is the `case` of the results, such as `M4096 N4096 K4096 f32`; `config` pins names
    of the kernel's space, `consts` are the values of its `const` parameters."""

    label: str
    dims: Mapping[str, int]
    config: Mapping[str, int] = field(default_factory=dict)
    consts: Mapping[str, int] = field(default_factory=dict)  # bools too


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An argument: `role` is "in", "out" (poisoned before a call that is checked) or "inout" (starts at random).

    `low`, `high`: uniform in that range; without them the elements are standard normal.
    """

    shape: tuple[int, ...]
    dtype: str
    role: str = "in"
    low: float | None = None
    high: float | None = None

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class PeerInput:
    """What a peer is prepared from: torch itself, the case's tensors on the device, its scalars, and the bytes that the
    case moves at least."""

    torch: Any
    tensors: Arrays
    scalars: Scalars
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """`call` enqueues the work once; afterwards `outputs` holds the tensors to verify, by name of the kernel's tensor
    (empty for `copy`, which only moves as many bytes)."""

    call: Callable[[], object]
    outputs: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another implementation of the same work, through torch."""

    name: str
    prepare: Callable[[PeerInput], Prepared]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One benchmark.

    `host_cases` are small sizes for the reference and the emulator, that the pinned names allow. `unit` names the peak
    that a compute-bound bench is rated against (a key of `roofline.UNITS`); a memory-bound one is rated in bytes per
    second against the measured copy rate. `tolerance` is the largest relative L2 error by the kind of operand rounding
    that the compiler chose ("ieee" where it has no contraction, or one of 16-bit operands). The first case is the one
    that the table of all benches (results.csv) shows; `in_table` is False where another bench of this name and
    precision is shown there.
    """

    name: str
    example: str
    precision: str
    bound: str
    unit: str
    title: str
    cases: tuple[Case, ...]
    quick_cases: tuple[Case, ...]
    host_cases: Callable[[Pins], tuple[Case, ...]]
    tensors: Callable[[Case], dict[str, Tensor]]
    scalars: Callable[[Case], dict[str, float]]
    oracle: Callable[[Any, Arrays, Scalars], dict[str, Any]]
    flops: Callable[[Case], float]
    bytes: Callable[[Case], float]
    tolerance: Mapping[str, float]
    peers: tuple[Peer, ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)
    in_table: bool = True

    def tolerance_of(self, kinds: Sequence[str]) -> float:
        """Of a variant whose products round their operands in these ways, none where it has no product."""
        return max(self.tolerance[kind] for kind in kinds or ("ieee",))

    def stands_for_all(self, case: Case) -> bool:
        """Is this the case that the table of all benches shows?"""
        return self.in_table and case in (self.cases[0], self.quick_cases[0])

    def __post_init__(self) -> None:
        if self.bound not in (COMPUTE, MEMORY):
            raise ValueError(f"{self.name}: bound is {COMPUTE!r} or {MEMORY!r}, not {self.bound!r}")
        unknown = set(self.tolerance) - set(DOT_KINDS)
        if unknown or "ieee" not in self.tolerance:
            raise ValueError(f"{self.name}: tolerance needs 'ieee' and knows no {sorted(unknown)}")
