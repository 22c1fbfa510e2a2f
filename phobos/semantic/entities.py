"""What a name or an expression can be while a kernel is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from phobos.ir.tile import TensorParam, Value, View
from phobos.ir.types import DType, ValueType
from phobos.source import Span


class Poison:
    """The result of something that was already reported; whatever touches it stays silent."""

    def __repr__(self) -> str:
        return "POISON"


POISON = Poison()


@dataclass(frozen=True)
class ConstVal:
    """A value known at compile time. `dtype` None marks an untyped number, which takes the type of what it meets."""

    value: int | float | bool
    dtype: DType | None = None

    @property
    def untyped_float(self) -> bool:
        return self.dtype is None and isinstance(self.value, float)

    @property
    def is_int(self) -> bool:
        return isinstance(self.value, int) and not isinstance(self.value, bool)


@dataclass(frozen=True, eq=False)
class TensorRef:
    """A whole tensor parameter, which only a subscript can use."""

    param: TensorParam


@dataclass(frozen=True)
class Origin:
    """Why a tile axis may hold masked positions: `dim` ends inside `start :+ length`. Texts are for messages."""

    dim: str
    start: object
    length: int
    start_text: str = field(compare=False)
    tensor: str = field(compare=False)


@dataclass(frozen=True, eq=False)
class ViewRef:
    """A view that is read (by a Load) wherever it is used. `origins`: per axis of the view's shape."""

    view: View
    fill: int | float | bool | None
    name: str
    origins: tuple[Origin | None, ...]
    text: str

    @property
    def dtype(self) -> DType:
        return self.view.tensor.type.dtype


@dataclass(frozen=True, eq=False)
class Poly:
    """A tile expression over `iota` whose shape is not known yet.

    `known` is the broadcast shape of the tiles met so far, `fixed` the extents that `iota(axis, n)` gave,
    `free` the axes whose extent must come from elsewhere. `build(shape)` emits the ops for a full shape.
    """

    dtype: DType
    known: tuple[int, ...]
    fixed: tuple[tuple[int, int], ...]
    free: frozenset[int]
    build: Callable[[tuple[int, ...]], "Value | Poison"]
    span: Span
    # A bare iota is counted in a wider integer type from the start, not converted.
    retype: "Callable[[DType], Poly] | None" = None

    @property
    def min_rank(self) -> int:
        axes = [*self.free, *(axis for axis, _ in self.fixed)]
        return max(len(self.known), 1 + max(axes, default=0))


@dataclass(frozen=True)
class Text:
    """A string literal, an argument of print and assert."""

    value: str


@dataclass(frozen=True)
class Nothing:
    """The result of a call that has none (a store, a print, a function without a value)."""


Operand = Poison | ConstVal | Value | Poly
Entity = Operand | TensorRef | ViewRef | Text | Nothing


@dataclass(kw_only=True, eq=False)
class Binding:
    """A name that cannot be assigned. `kind` is how messages call it."""

    name: str
    kind: str
    entity: Entity
    span: Span | None


@dataclass(kw_only=True, eq=False)
class Variable:
    """A `var`: its type is fixed, `value` is the current SSA value, None where it may be unassigned."""

    name: str
    type: ValueType | Poison
    declared: bool
    value: Value | None
    span: Span


def type_text(entity: Entity) -> str:
    """How messages name the type of `entity`."""
    if isinstance(entity, ConstVal):
        if entity.dtype is not None:
            return str(entity.dtype)
        return "a float literal" if isinstance(entity.value, float) else "an integer literal"
    if isinstance(entity, Value):
        return str(entity.type)
    if isinstance(entity, TensorRef):
        return str(entity.param.type)
    if isinstance(entity, ViewRef):
        shape = entity.view.shape
        return f"tile<{entity.dtype}>[{', '.join(map(str, shape))}]" if shape else str(entity.dtype)
    if isinstance(entity, Poly):
        fixed = dict(entity.fixed)
        pad = entity.min_rank - len(entity.known)
        known = [n if n > 1 else "?" for n in entity.known]
        extents = [fixed.get(i, "?" if i < pad else known[i - pad]) for i in range(entity.min_rank)]
        return f"an iota tile<{entity.dtype}>[{', '.join(map(str, extents))}]"
    if isinstance(entity, Text):
        return "a string"
    if isinstance(entity, Nothing):
        return "nothing"
    return "unknown"
