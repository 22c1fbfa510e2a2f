"""Expressions of the scheduled IR over the slots of all threads, with the shared-memory reads that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phobos.ir.storage import (
    Apply,
    BufferRef,
    Convert,
    Expr,
    FragmentRef,
    Literal,
    Position,
    ScalarRef,
    Special,
    expr_walk,
)
from phobos.layout.register import RegisterLayout
from phobos.reference.elementwise import cast, compute
from phobos.reference.numerics import carrier_dtype
from phobos.trace.accesses import Log, Site
from phobos.trace.slots import fragment_registers

if TYPE_CHECKING:
    from phobos.trace.machine import Machine

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Shared:
    """One read of an expression: byte offsets and who reads, over slots."""

    site: Site
    offsets: Array
    active: Array


class Evaluator:
    """Evaluates for all slots of a layout at once; `log` gets the reads in the order of registers."""

    def __init__(self, machine: "Machine", log: Log):
        self.machine, self.log = machine, log
        self._layout: RegisterLayout | None = None
        self._reads: list[Shared] = []

    def scalar(self, e: Expr) -> Any:
        """A value that is the same for all threads; every thread reads what it needs from shared memory."""
        self._layout, self._reads = None, []
        value = self._value(e, np.ones((self.machine.warps, 32, 1), dtype=bool))
        for read in self._reads:
            self._emit(read, 0)
        return np.asarray(value).reshape(-1)[0] if np.ndim(value) else value

    def slots(self, e: Expr, layout: RegisterLayout, order: list[int]) -> Array:
        """[warps, 32, registers]: the value at every slot."""
        self._layout, self._reads = layout, []
        shape = (self.machine.warps, 32, layout.registers)
        value = self._value(e, np.ones(shape, dtype=bool))
        if self._reads:
            for register in order:
                for read in self._reads:
                    self._emit(read, register)
        return np.broadcast_to(value, shape)

    def _emit(self, read: Shared, register: int) -> None:
        shape = (self.machine.warps, 32, read.active.shape[-1])
        offsets, active = np.broadcast_to(read.offsets, shape), read.active
        self.log.add(read.site, offsets[:, :, register], active[:, :, register])

    def _value(self, e: Expr, active: Array) -> Any:
        if isinstance(e, Literal):
            return np.asarray(e.value).astype(carrier_dtype(e.dtype))[()]
        if isinstance(e, ScalarRef):
            return self.machine.scalars[e.name]
        if isinstance(e, Special):
            source = self.machine.block if e.kind == "ctaid" else self.machine.grid
            return np.int64(source[e.axis])
        if isinstance(e, Position):
            assert self._layout is not None
            return self._layout.positions[..., e.axis]
        if isinstance(e, FragmentRef):
            held = self.machine.fragment(e.fragment)
            return held[:, :, fragment_registers(self._layout, e)] if self._layout is not None else held[:, :, :1]
        if isinstance(e, BufferRef):
            return self._buffer(e, active)
        if isinstance(e, Convert):
            return cast(self._value(e.arg, active), e.arg.dtype, e.dtype, False)
        assert isinstance(e, Apply)
        return self._apply(e, active)

    def _apply(self, e: Apply, active: Array) -> Any:
        lazy = e.fn in ("where", "and", "or") and any(isinstance(x, BufferRef) for x in expr_walk(e))
        if not lazy:
            args = [self._value(a, active) for a in e.args]
        else:
            # As in C, the branch not taken and what a decided condition does not need are not read.
            first = self._value(e.args[0], active)
            flag = np.broadcast_to(np.asarray(first, dtype=bool), active.shape)
            if e.fn == "where":
                args = [first, self._value(e.args[1], active & flag), self._value(e.args[2], active & ~flag)]
            else:
                args = [first, self._value(e.args[1], active & (flag if e.fn == "and" else ~flag))]
        dtype = e.args[-1].dtype
        value = compute(e.fn, args, dtype, False)
        return np.asarray(value, dtype=carrier_dtype(e.dtype))[()] if np.ndim(value) == 0 else value

    def _buffer(self, e: BufferRef, active: Array) -> Any:
        m, buffer = self.machine, e.buffer
        index: Any = buffer.layout.index([np.asarray(self._value(at, active)).astype(np.int64) for at in e.at])
        taking = active
        if e.guard is not None:
            taking = taking & np.broadcast_to(self._value(e.guard, active), active.shape)
        contents = m.contents(buffer)[m.stage(buffer) if buffer.stages > 1 else 0]
        site = Site("shared", buffer.name, False, buffer.dtype.bytes)
        base = m.schedule.offsets[buffer]
        index = np.broadcast_to(index, active.shape)
        self._reads.append(Shared(site, base + index * buffer.dtype.bytes, taking))
        values = contents[np.clip(index, 0, contents.size - 1)]
        if e.guard is not None:
            values = np.where(taking, values, np.asarray(e.fill).astype(values.dtype))
        return values
