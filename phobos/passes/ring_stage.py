"""Which stage of its rings a loop is at: a piece of passes/stage_loads.py."""

from __future__ import annotations

from dataclasses import dataclass

from phobos.ir.c_names import fresh_name
from phobos.ir.scheduled import SetScalar
from phobos.ir.storage import Apply, Literal, ScalarRef, ScalarVar
from phobos.ir.types import DType
from phobos.source import Span


@dataclass(frozen=True)
class RingStage:
    """Where the rings of stages of one size are: the stage of this iteration, and the one that the last iteration
    freed, as bytes behind the first."""

    size: int
    last: Literal
    here: ScalarVar
    freed: ScalarVar

    @staticmethod
    def of(size: int, stages: int, names: set[str]) -> RingStage:
        here, freed = (ScalarVar(fresh_name(names, name), DType.U32) for name in ("stage", "freed"))
        return RingStage(size, Literal(DType.U32, (stages - 1) * size), here, freed)

    def advance(self, span: Span) -> SetScalar:
        return SetScalar(span=span, target=self.here, value=self._beside(self.last, 0, "add"), declare=False)

    def free(self, span: Span) -> SetScalar:
        return SetScalar(
            span=span, target=self.freed, value=self._beside(Literal(DType.U32, 0), self.last.value, "sub")
        )

    def _beside(self, end: Literal, beyond: int | float | bool, step: str) -> Apply:
        """The next stage in a direction: `beyond` behind the `end`."""
        here = ScalarRef(DType.U32, self.here.name)
        moved = Apply(DType.U32, step, (here, Literal(DType.U32, self.size)))
        return Apply(DType.U32, "where", (Apply(DType.BOOL, "eq", (here, end)), Literal(DType.U32, beyond), moved))
