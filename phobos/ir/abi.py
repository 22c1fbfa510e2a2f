"""The contract between the code generator and what runs its text: parameters, launch facts, the program itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd

from phobos.ir.dims import DimExpr
from phobos.ir.types import DType


@dataclass(frozen=True, kw_only=True)
class TensorFacts:
    """What a compiled variant may assume of a tensor argument, checked at launch.

    `align16`: the base address and every stride but the last (times the element size) are multiples of 16 bytes,
    and the last stride is 1. `contiguous`: row-major without gaps, so strides follow from dims. `inner`: the axis whose
    stride is 1 where that is not the last one, and base and all other strides are multiples of 16 bytes; the other two
    are False then.
    """

    align16: bool = True
    contiguous: bool = True
    inner: int | None = None


@dataclass(frozen=True, kw_only=True)
class Specialization:
    """What distinguishes compiled variants of one configured kernel.

    `tensors` by name; `dim_multiple`: a power of two up to 16 that divides a dim (`known_multiples`);
    `index_bits` 32 or 64;
    `overlap`: tensors whose byte ranges overlap a written one (no load moves across a store to them);
    `sign`: sign class of scalar parameters where a pass asked for it: 1 for > 0, 0 for anything else.
    """

    tensors: tuple[tuple[str, TensorFacts], ...] = ()
    dim_multiple: tuple[tuple[str, int], ...] = ()
    index_bits: int = 32
    overlap: frozenset[str] = frozenset()
    sign: tuple[tuple[str, int], ...] = ()

    def tensor(self, name: str) -> TensorFacts:
        return dict(self.tensors).get(name, TensorFacts())

    def multiple(self, dim: str) -> int:
        return dict(self.dim_multiple).get(dim, 1)


def known_multiples(
    dims: Iterable[str], sizes: Mapping[str, int], tensors: Iterable[tuple[tuple[int | str, ...], TensorFacts]]
) -> tuple[tuple[str, int], ...]:
    """What a variant is told about each dim. `tensors`: dims and facts of each.

    Along a contiguous axis whose rows begin at multiples of 16 bytes every power of two up to 16 may widen accesses (8
    halves are 16 bytes). Other dims are multiples of 16 or nothing, since each value that is told apart is another
    variant to compile.
    """
    aligned = [(shape, facts) for shape, facts in tensors if shape and (facts.align16 or facts.inner is not None)]
    inner = {shape[-1 if facts.inner is None else facts.inner] for shape, facts in aligned}
    return tuple((d, gcd(sizes[d], 16) if d in inner else 16 if sizes[d] % 16 == 0 else 1) for d in dims)


@dataclass(frozen=True, kw_only=True)
class TensorArg:
    """Device pointer of tensor `name`; on the emulator `{T* p; ph_tensor* t}`."""

    name: str
    dtype: DType
    read: bool
    written: bool


@dataclass(frozen=True, kw_only=True)
class ScalarArg:
    """A scalar by value. C type: float f32 (also for f16/bf16 as their 16-bit struct), double, int, unsigned, long
    long, bool."""

    name: str
    dtype: DType


@dataclass(frozen=True, kw_only=True)
class DimArg:
    """Extent of dim `name`, `int` or `long long` by index_bits."""

    name: str


@dataclass(frozen=True, kw_only=True)
class StrideArg:
    """Stride in elements of axis `axis` of tensor `tensor`, `int` or `long long` by index_bits."""

    tensor: str
    axis: int


AbiArg = TensorArg | ScalarArg | DimArg | StrideArg


NO_EFFECT = "options"  # the stage of decisions about options that nothing acts on


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One line of the report: what was decided about what, and why; `line` in the kernel text or 0."""

    stage: str
    subject: str
    choice: str
    reason: str
    line: int = 0
    rejected: tuple[tuple[str, str], ...] = ()  # (alternative, reason)

    def to_json(self) -> dict[str, object]:
        return {
            "stage": self.stage,
            "subject": self.subject,
            "choice": self.choice,
            "reason": self.reason,
            "line": self.line,
            "rejected": [{"choice": c, "reason": r} for c, r in self.rejected],
        }


@dataclass(frozen=True, kw_only=True)
class Program:
    """Emitted text and everything needed to run it.

    `body` is the text that both executors share: only `ph_*` helpers, no prelude. `prelude` is the CUDA prelude
    (already selected parts) that goes in front of it for NVRTC. `shared_bytes` is the total; `dynamic_shared` says
    whether it is given at launch. `granule` is the smallest element size touching shared memory (1, 2, 4).
    """

    name: str
    source_name: str
    body: str
    prelude: str
    args: tuple[AbiArg, ...]
    threads: int
    grid: tuple[DimExpr, DimExpr, DimExpr]
    shared_bytes: int
    dynamic_shared: bool
    index_bits: int
    granule: int
    min_blocks: int | None = None
    max_regs: int | None = None
    fast_math: bool = False
    debug: bool = False
    decisions: tuple[Decision, ...] = field(default=())

    @property
    def cuda(self) -> str:
        """The complete CUDA C++ translation unit."""
        return self.prelude + self.body
