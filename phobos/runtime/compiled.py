"""What `Kernel.compile` returns: emitted text, machine code, resources and the report of one variant."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from phobos.diagnostics import WARNING, CompileError, Diagnostic, LaunchError, nearest
from phobos.ir.abi import NO_EFFECT, Decision, Program, Specialization
from phobos.runtime import nvrtc
from phobos.runtime.launch import evaluate_grid
from phobos.runtime.pipeline import Configured, Frontend, KernelInfo
from phobos.runtime.request import extent
from phobos.target import Target

if TYPE_CHECKING:
    from phobos.ir.tile import KernelIR


class Compiled:
    """One variant of a kernel for one architecture.

    The CUDA text exists from the start; NVRTC runs (or the disk cache is read) when something first asks for what only
    it knows: `cubin`, `ptx`, `registers`, `spill_bytes`, `stack_bytes`. That may raise CompileError (PH06xx, PH091x).
    """

    def __init__(
        self,
        frontend: Frontend,
        info: KernelInfo,
        configured: Configured,
        program: Program,
        target: Target,
        spec: Specialization,
        reason: str | None,
    ):
        self._frontend = frontend
        self._info = info
        self._configured = configured
        self._reason = reason
        self._lock = threading.Lock()
        self._binary: nvrtc.Binary | None = None
        self.program = program
        self.target = target
        self.spec = spec

    def __repr__(self) -> str:
        config = ", ".join(f"{name}={value}" for name, value in self.configuration.items())
        return f"<phobos.Compiled {self.name} for {self.arch}{f' with {config}' if config else ''}>"

    @property
    def name(self) -> str:
        """The kernel's name in its text. The symbol in the cubin is `program.name`, which C++ may force to differ."""
        return self._info.name

    @property
    def arch(self) -> str:
        return self.target.arch

    @property
    def configuration(self) -> dict[str, Any]:
        """Every name that is fixed in this variant: @autotune names, consts, dtype names."""
        return dict(self._configured.facts.configuration)

    @property
    def cuda(self) -> str:
        """The complete CUDA C++ text; it includes nothing."""
        return self.program.cuda

    @property
    def ir(self) -> KernelIR:
        """The typed tile IR."""
        return self._frontend.ir(self._configured.request)

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.program.threads

    @property
    def shared_bytes(self) -> int:
        """Shared memory per block in bytes, static or dynamic."""
        return self.program.shared_bytes

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return self.program.decisions

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings of the checker, of options without effect (PH0604), and of ptxas where the cubin exists."""
        found = self._configured.warnings + without_effect(self.decisions)
        if self._binary is not None:
            found += tuple(nvrtc.warning_diagnostics(self._binary, self.name))
        return found

    @property
    def binary(self) -> nvrtc.Binary:
        with self._lock:
            if self._binary is None:
                try:
                    self._binary = nvrtc.compile_program(self.program, self.target)
                except CompileError as error:
                    raise CompileError(error.diagnostics, self._frontend.source) from None
            return self._binary

    @property
    def cubin(self) -> bytes:
        return self.binary.cubin

    @property
    def ptx(self) -> str:
        return self.binary.ptx

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return self.binary.registers

    @property
    def spill_bytes(self) -> int:
        """Bytes per thread that ptxas stores and loads for want of registers."""
        return self.binary.spill_bytes

    @property
    def stack_bytes(self) -> int:
        return self.binary.stack_bytes

    def grid(self, dims: Mapping[str, int] | None = None, **more: int) -> tuple[int, int, int]:
        """Blocks along x, y, z for these extents: `c.grid({"N": 4096})` or `c.grid(N=4096)`.

        Raises LaunchError PH0718 where a dim is missing or CUDA's limits are exceeded, PH0724 for an unknown dim and
        for a value that is no extent.
        """
        if dims is not None and not isinstance(dims, Mapping):
            message = f"dims is a mapping such as {{'N': 4096}}, not {dims!r:.60}"
            raise LaunchError(Diagnostic(code="PH0724", message=message))
        known = self._info.dims
        given: dict[str, int] = {}
        for name, value in {**(dims or {}), **more}.items():
            size = extent(value)
            if size is not None:
                given[name] = size
            else:
                message = f"dim {name!r} = {value!r} is not an extent"
                raise LaunchError(Diagnostic(code="PH0724", message=message))
            if name not in known:
                guess = nearest(str(name), known)
                raise LaunchError(
                    Diagnostic(
                        code="PH0724",
                        message=f"kernel {self.name!r} has no dim {name!r}; it has {', '.join(known) or 'none'}",
                        help=f"did you mean {guess!r}?" if guess else None,
                    )
                )
        return evaluate_grid(self.program.grid, given, self.name)

    # --- the report

    @property
    def report(self) -> str:
        """Configuration, assumptions, resources and every decision with its reason, as text."""
        out = [f"kernel {self.name} for {self.arch}"]
        for label, text in self._summary():
            out.append(f"  {label:14} {text}")
        stage = None
        for decision in self.decisions:
            if decision.stage != stage:
                stage = decision.stage
                out += ["", stage]
            where = f" (line {decision.line})" if decision.line else ""
            out.append(f"  {decision.subject}{where}: {decision.choice}")
            if decision.reason:
                out.append(f"      because {decision.reason}")
            out += [f"      not {choice}: {reason}" for choice, reason in decision.rejected]
        return "\n".join(out) + "\n"

    def _summary(self) -> list[tuple[str, str]]:
        program = self.program
        config = ", ".join(f"{name} = {value}" for name, value in self.configuration.items())
        rows = [("configuration", (config or "nothing to choose") + (f" ({self._reason})" if self._reason else ""))]
        rows.append(("assumes", _assumptions(self.spec)))
        grid = ", ".join(str(e) for e in program.grid)
        rows.append(("launch", f"grid ({grid}), {program.threads} threads per block"))
        kind = "dynamic" if program.dynamic_shared else "static"
        rows.append(("shared memory", f"{program.shared_bytes} bytes, {kind}" if program.shared_bytes else "none"))
        try:
            binary = self.binary
        except CompileError as error:
            rows.append(("machine code", f"not made: {error.diagnostics[0].message}"))
            return rows
        spills = f"{binary.spill_bytes} bytes spilled" if binary.spill_bytes else "no spills"
        stack = f", {binary.stack_bytes} bytes of stack" if binary.stack_bytes else ""
        rows.append(("registers", f"{binary.registers} per thread, {spills}{stack}"))
        rows += [("ptxas", text) for text in binary.warnings]
        return rows

    def to_json(self) -> dict[str, Any]:
        """The report as data; `binary` is None where no cubin could be made."""
        try:
            binary: dict[str, Any] | None = {
                "registers": self.binary.registers,
                "spill_bytes": self.binary.spill_bytes,
                "stack_bytes": self.binary.stack_bytes,
                "warnings": list(self.binary.warnings),
                "cubin_bytes": len(self.binary.cubin),
            }
        except CompileError:
            binary = None
        return {
            "version": 1,
            "kernel": self.name,
            "arch": self.arch,
            "configuration": self.configuration,
            "reason": self._reason,
            "threads": self.threads,
            "shared_bytes": self.shared_bytes,
            "dynamic_shared": self.program.dynamic_shared,
            "index_bits": self.program.index_bits,
            "grid": [str(e) for e in self.program.grid],
            "binary": binary,
            "decisions": [d.to_json() for d in self.decisions],
            "warnings": [d.to_json() for d in self.warnings],
        }


def without_effect(decisions: Iterable[Decision]) -> tuple[Diagnostic, ...]:
    """PH0604: what the text asks for and the program does not follow."""
    return tuple(
        Diagnostic(
            code="PH0604",
            severity=WARNING,
            message=f"{'' if d.subject[0] == '@' else 'the option '}{d.subject} has no effect: {d.reason}",
        )
        for d in decisions
        if d.stage == NO_EFFECT
    )


def _assumptions(spec: Specialization) -> str:
    parts = []
    for text, names in (
        ("16-byte aligned", [n for n, t in spec.tensors if t.align16]),
        ("contiguous", [n for n, t in spec.tensors if t.contiguous]),
        ("16-byte aligned and contiguous along another axis", [n for n, t in spec.tensors if t.inner is not None]),
        *(
            (f"multiples of {m}", [n for n, multiple in spec.dim_multiple if multiple == m])
            for m in sorted({m for _, m in spec.dim_multiple if m > 1}, reverse=True)
        ),
        ("sharing memory", sorted(spec.overlap)),
        ("positive", [n for n, sign in spec.sign if sign == 1]),
        ("of either sign", [n for n, sign in spec.sign if sign != 1]),
    ):
        if names:
            parts.append(f"{', '.join(names)} {text}")
    parts.append(f"{spec.index_bits}-bit offsets")
    return "; ".join(parts)
