"""What the compiler knows about an architecture: frozen facts per compute capability."""

from __future__ import annotations

from dataclasses import dataclass

from phobos.diagnostics import CompileError, Diagnostic, nearest


@dataclass(frozen=True, kw_only=True)
class Target:
    """Limits from the CUDA programming guide's table of compute capabilities.

    Shared sizes in bytes; `shared_per_block` is the opt-in limit for dynamic shared memory.
    """

    arch: str
    capability: tuple[int, int]
    shared_per_block: int
    shared_per_sm: int
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32

    @property
    def shared_reserved(self) -> int:
        """Bytes of shared memory that the system takes for each block."""
        return 1024 if self.capability >= (8, 0) else 0

    @property
    def has_cp_async(self) -> bool:
        return self.capability >= (8, 0)

    @property
    def has_bf16_mma(self) -> bool:
        return self.capability >= (8, 0)

    @property
    def has_f8(self) -> bool:
        return self.capability >= (8, 9)

    @property
    def has_wgmma(self) -> bool:
        return self.arch == "sm_90a"


STATIC_SHARED_LIMIT = 48 * 1024

_TARGETS = {
    t.arch: t
    for t in (
        Target(
            arch="sm_75", capability=(7, 5),
            shared_per_block=65536, shared_per_sm=65536, threads_per_sm=1024, blocks_per_sm=16,
        ),
        Target(arch="sm_80", capability=(8, 0), shared_per_block=166912, shared_per_sm=167936),
        Target(
            arch="sm_86", capability=(8, 6),
            shared_per_block=101376, shared_per_sm=102400, threads_per_sm=1536, blocks_per_sm=16,
        ),
        Target(
            arch="sm_89", capability=(8, 9),
            shared_per_block=101376, shared_per_sm=102400, threads_per_sm=1536, blocks_per_sm=24,
        ),
        Target(arch="sm_90a", capability=(9, 0), shared_per_block=232448, shared_per_sm=233472),
        Target(arch="sm_100a", capability=(10, 0), shared_per_block=232448, shared_per_sm=233472),
        Target(
            arch="sm_120a", capability=(12, 0),
            shared_per_block=101376, shared_per_sm=102400, threads_per_sm=1536, blocks_per_sm=24,
        ),
    )
}
ARCHITECTURES: tuple[str, ...] = tuple(_TARGETS)
DEFAULT_ARCH = "sm_90a"
_ALIASES = {"sm_90": "sm_90a", "sm_100": "sm_100a", "sm_120": "sm_120a", "sm_87": "sm_86"}
# Names of devices, by what to write for them.
_DEVICES = {
    "t4": "sm_75", "a100": "sm_80", "a10": "sm_86", "a40": "sm_86", "l4": "sm_89", "l40": "sm_89", "l40s": "sm_89",
    "h100": "sm_90a", "h200": "sm_90a", "gh200": "sm_90a", "hopper": "sm_90a", "ampere": "sm_80", "ada": "sm_89",
    "b200": "sm_100a", "blackwell": "sm_100a",
}  # fmt: skip


def get_target(arch: str) -> Target:
    """The Target of an architecture name such as "sm_90a" (also "sm_90" or "90a").

    Raises CompileError (PH0901) with the known names for anything else.
    """
    arch = str(arch)  # 80 is taken too
    name = arch if arch.startswith("sm_") else f"sm_{arch}"
    name = _ALIASES.get(name, name)
    if name in _TARGETS:
        return _TARGETS[name]
    guess = _DEVICES.get(arch.lower()) or nearest(name, _TARGETS)
    help = f"did you mean {guess!r}?" if guess else None
    number = name.removeprefix("sm_").rstrip("af")
    if number.isdigit() and 10 <= int(number) < 75:
        help = "the oldest that is supported is sm_75 (Turing)"
    raise CompileError(
        Diagnostic(code="PH0901", message=f"unknown architecture {arch!r}; known: {', '.join(_TARGETS)}", help=help)
    )


def target_for_capability(major: int, minor: int) -> Target:
    """The best known Target for a device of this compute capability.

    Raises CompileError (PH0902) if the device is older than sm_75 or of an unknown major version.
    """
    fitting = [t for t in _TARGETS.values() if t.capability[0] == major and t.capability <= (major, minor)]
    if not fitting:
        raise CompileError(
            Diagnostic(
                code="PH0902",
                message=f"no target for a device of compute capability {major}.{minor}; known: {', '.join(_TARGETS)}",
            )
        )
    return max(fitting, key=lambda t: t.capability)
