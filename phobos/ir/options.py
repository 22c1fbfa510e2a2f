"""The schedule: everything that changes how a kernel runs and not what it computes."""

from __future__ import annotations

from dataclasses import dataclass, fields

# Allowed words for each option; None marks an option that (also) takes an integer.
OPTION_WORDS: dict[str, tuple[str, ...]] = {
    "matmul": ("auto", "fma", "wmma", "mma", "wgmma"),
    "state": ("auto", "registers", "shared"),
    "stages": ("auto",),
    "vectorize": ("auto", "on", "off"),
    "swizzle": ("auto", "on", "off"),
    "pad": ("auto", "on", "off"),
    "index": ("auto", "32", "64"),
    "roles": ("auto", "on", "off"),
    "overlap": ("auto", "on", "off"),
    "persistent": ("auto", "on", "off"),
    "order": ("auto", "linear", "grouped", "longest"),
    "precision": ("precise", "fast"),
    "fold": ("auto", "off"),
    "peel": ("auto", "off"),
    "rescale": ("auto", "off"),
    "sums": ("auto", "off"),
}
_IDLE = "no pass of this version acts on it"
# Values that the language has and nothing acts on yet, with the reason. They change no result, so they are no errors;
# the report and a warning say that they have no effect.
WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "state": {"shared": "tiles that a loop carries stay in registers"},
    "roles": {"on": _IDLE},
    "persistent": {"on": _IDLE},
}
INTEGER_OPTIONS = frozenset({"stages", "index"})


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """Values of `@options(...)`, one field per option, each a word or, where allowed, an integer."""

    matmul: str = "auto"
    state: str = "auto"
    stages: str | int = "auto"
    vectorize: str = "auto"
    swizzle: str = "auto"
    pad: str = "auto"
    index: str | int = "auto"
    roles: str = "auto"
    overlap: str = "auto"
    persistent: str = "auto"
    order: str = "auto"
    precision: str = "precise"
    fold: str = "auto"
    peel: str = "auto"
    rescale: str = "auto"
    sums: str = "auto"

    def without_effect(self) -> tuple[tuple[str, str, str], ...]:
        """(option, value, reason) of what was asked for and nothing acts on."""
        return tuple(
            (name, value, values[value])
            for name, values in WITHOUT_EFFECT.items()
            if (value := getattr(self, name)) in values
        )

    def non_default(self) -> dict[str, str | int]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """`@launch(threads, min_blocks, max_regs)`; None where the compiler chooses."""

    threads: int | None = None
    min_blocks: int | None = None
    max_regs: int | None = None


# Kinds of operand rounding that a contraction of f32 operands may be given; "ieee" is always allowed.
DOT_KINDS = ("ieee", "f16", "bf16", "tf32", "tf32x3", "bf16x3", "f16x2")


@dataclass(frozen=True, kw_only=True)
class TensorCoreRequest:
    """`@tensorcore`: the kind f32 operands may be rounded to, and whether a fallback is an error."""

    kind: str = "f16"
    require: bool = False
