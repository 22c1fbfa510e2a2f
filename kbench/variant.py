"""The variant of a kernel that a bench runs: its configuration, what it uses, and how its products round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbench.bench import Bench, Case
from phobos.ir.options import DOT_KINDS

if TYPE_CHECKING:
    from phobos.kernel import Kernel
    from phobos.runtime.compiled import Compiled

# The choice of a contraction in the report: `fma (ieee)`.
_KIND = re.compile(r"\((\w+)\)")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """`config` holds every name that the variant fixes; `reason` says why where the caller left something open.
    `searched`: it is the result of a search. `kinds` are the operand roundings of its products, none without a product.
    """

    config: Mapping[str, Any]
    reason: str | None
    searched: bool
    kinds: tuple[str, ...]
    paths: tuple[str, ...]
    registers: int
    spills: int
    threads: int
    shared_bytes: int

    def describe(self) -> str:
        config = " ".join(f"{n}={v}" for n, v in self.config.items()) or "nothing to choose"
        why = f" ({self.reason})" if self.reason else ""
        paths = f", products by {', '.join(dict.fromkeys(self.paths))}" if self.paths else ""
        return (
            f"{config}{why}; {self.threads} threads, {self.registers} registers, {self.spills} bytes of spills, "
            f"{self.shared_bytes} bytes shared{paths}"
        )


def variant_of(
    kernel: Kernel, bench: Bench, case: Case, config: Mapping[str, object], searched: bool = False
) -> Variant:
    """Compiles the kernel for a case on the device at hand. Raises CompileError."""
    compiled = kernel.compile(config=config, dims=_dims(kernel, case), dtypes=bench.dtypes, consts=case.consts)
    paths = tuple(d.choice for d in compiled.decisions if d.stage == "contraction")
    reason = compiled.to_json()["reason"]
    names = {name for name, _ in kernel.info.space}
    return Variant(
        config={n: v for n, v in compiled.configuration.items() if n in names or n in config},
        reason=reason,
        searched=searched or (reason is not None and reason.startswith("stored best")),
        kinds=kinds_of(compiled),
        paths=paths,
        registers=compiled.registers,
        spills=compiled.spill_bytes,
        threads=compiled.threads,
        shared_bytes=compiled.shared_bytes,
    )


def kinds_of(compiled: Compiled) -> tuple[str, ...]:
    """The operand roundings of the products of a variant, none where it has no product."""
    found = (_KIND.search(d.choice) for d in compiled.decisions if d.stage == "contraction")
    return tuple(dict.fromkeys(m.group(1) for m in found if m is not None and m.group(1) in DOT_KINDS))


def _dims(kernel: Kernel, case: Case) -> dict[str, int]:
    """Of the case's dims those that are dims of the kernel's text."""
    return {n: v for n, v in case.dims.items() if n in kernel.info.dims}
