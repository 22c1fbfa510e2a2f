"""What a contraction room is: it checks a product, plans it, and emits it. Only the room knows its instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from phobos.ir.options import ScheduleOptions
from phobos.ir.types import DType
from phobos.layout.register import RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter
from phobos.target import Target


@dataclass(frozen=True, kw_only=True)
class ContractionQuery:
    """One product: a [m, k] times b [k, n] (or b [n, k] where `transpose_b`), summed in `accumulator` type.

    `kinds` are the permitted roundings of the operands, best first (options.DOT_KINDS). `require`: only instructions of
    tensor cores may compute it. `whole_rows` asks that a warp own whole rows of the result, since row statistics of it
    are needed. `a_computed`: a is computed by the block (not loaded), so it is in registers when the product starts.
    `registers`: what a thread may use, 32 bits each.
    """

    m: int
    n: int
    k: int
    operand: DType
    accumulator: DType
    kinds: tuple[str, ...]
    transpose_b: bool
    warps: int
    whole_rows: bool
    require: bool = False
    a_computed: bool = False
    registers: int = 255
    options: ScheduleOptions
    target: Target


@dataclass(frozen=True)
class Staged:
    """An operand in the current stage of its ring: the expression of its shared pointer, and of its distance from the
    first stage in bytes."""

    pointer: str
    offset: str


@dataclass(frozen=True, kw_only=True)
class ContractionPlan:
    """A room's answer: which rounding, where the result lives, and in which shared layouts it reads the operands.

    Operands are stored there as `a_dtype` and `b_dtype` (narrower than the product's operands where the kind rounds
    them), further rounded by `rounding` ("tf32") where their dtype does not say it. `a_fragment`: the register layout
    in which a may stay in registers instead. `row_split` is what plans must agree on for their results' rows to line
    up; its first number is the warps along rows. `cost` is issue slots of one thread for the whole product, comparable
    within a room.
    """

    room: str
    kind: str
    query: ContractionQuery
    c_layout: RegisterLayout
    a_layout: SharedLayout
    b_layout: SharedLayout
    row_split: tuple[int, int]
    cost: float
    description: str
    a_dtype: DType
    b_dtype: DType
    rounding: str = ""
    a_fragment: RegisterLayout | None = None
    ahead: bool = False  # whether loading one step ahead is worth its registers

    def emit(
        self, out: TextWriter, accumulator: str, a: str, b: str, *, a_in_registers: bool = False,
        a_name: str | None = None,
    ) -> None:  # fmt: skip
        """Prints `accumulator += a @ b`; `a` and `b` are expressions of shared pointers to the operands' tiles, `a` the
        name of a fragment of layout `a_fragment` where it is `a_in_registers`. `a_name`: what `load_operand` filled
        before."""
        raise NotImplementedError

    @property
    def operand_registers(self) -> int:
        """32-bit registers of a thread for operands while it multiplies (for estimates)."""
        return 24

    @property
    def a_registers(self) -> int:
        """32-bit registers of a thread for the whole left operand; 0 if the room cannot keep it there."""
        return 0

    @property
    def loads_ahead(self) -> bool:
        """Does what `emit` prints load a step ahead of its products?"""
        return False

    def load_operand(self, out: TextWriter, name: str, a: str) -> None:
        """Declares registers `name` and loads the whole left operand into them."""
        raise NotImplementedError

    # A room that can split a product into steps along k lets a loop load the next step while it multiplies this one.

    @property
    def steps(self) -> int:
        """Steps along k; 0 if the room does not split its products."""
        return 0

    @property
    def address_registers(self) -> int:
        """32-bit registers of a thread for addresses of steps that are unrolled (for estimates)."""
        return 6 * max(0, self.steps - 4)

    def declare(self, out: TextWriter, name: str, a: str, b: str) -> None:
        """Declares registers `name...` for two steps; `a` and `b` are expressions of shared pointers to the first
        stages of the operands' rings."""
        raise NotImplementedError

    def load(self, out: TextWriter, name: str, slot: int, step: int, a: Staged, b: Staged) -> None:
        """Loads step `step` of both operands into set `slot` (0 or 1)."""
        raise NotImplementedError

    def multiply(
        self, out: TextWriter, name: str, slot: int, accumulator: str, part: tuple[int, int] = (0, 1)
    ) -> None:
        """accumulator += the product of the step in set `slot`, `part` (number, of how many) of its columns."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class OpaquePlan(ContractionPlan):
    """A plan whose sums are in *opaque accumulators*: registers of which only its instructions know which holds what.

    `emit` and `multiply` add to accumulators that `declare_sums` declared. Elements enter and leave them through shared
    memory of layout `scratch` (f32), from and to registers of layout `c_layout`, every warp in its own part.
    """

    scratch: SharedLayout

    @property
    def accumulators(self) -> tuple[object, ...]:
        """Products whose plans agree in this can add to the same opaque accumulators."""
        raise NotImplementedError

    def declare_sums(self, out: TextWriter, accumulator: str) -> None:
        raise NotImplementedError

    def fill_sums(self, out: TextWriter, accumulator: str, value: str) -> None:
        """accumulator = value, a scalar expression."""
        raise NotImplementedError

    def load_sums(self, out: TextWriter, accumulator: str, source: str, scratch: str) -> None:
        """accumulator = source, the name of a fragment; `scratch` is the expression of a shared pointer."""
        raise NotImplementedError

    def store_sums(self, out: TextWriter, accumulator: str, target: str, scratch: str, *, add: bool) -> None:
        """target = accumulator or, with `add`, target += accumulator."""
        raise NotImplementedError


def warp_texts(wm: int, wn: int) -> tuple[str, str]:
    """Row and column of a thread's warp among wm x wn, as C text; empty where there is one."""
    row = "" if wm == 1 else "warp" if wn == 1 else f"warp / {wn}"
    return row, "" if wn == 1 else f"warp % {wn}"


_FOR_TILES, _OF_A_LOOP = 48, 200


def registers_for_tiles(accumulators: int, operands: int) -> int:
    """32-bit registers of a thread that tiles on their way to shared memory may take during a loop of products with so
    many for accumulators and operands."""
    return max(0, min(_FOR_TILES, _OF_A_LOOP - accumulators - operands))


def columns_of(part: tuple[int, int], columns: int) -> tuple[int, int]:
    """From which column to which a part goes."""
    number, parts = part
    return number * columns // parts, (number + 1) * columns // parts


class Room(Protocol):
    name: str

    def reject(self, query: ContractionQuery) -> str | None:
        """Why this room cannot do the product, or None."""
        ...

    def plans(self, query: ContractionQuery) -> Sequence[ContractionPlan]:
        """All arrangements worth considering; empty only if none fits."""
        ...


def padded_pitch(columns: int, itemsize: int, pad: bool) -> int:
    """Elements between rows of a staged operand.

    Rows of whole 16-byte chunks are spaced by an odd number of chunks: then eight consecutive rows start in eight
    different 16-byte bank groups, and reads of one chunk of each are free of conflicts.
    """
    row = columns * itemsize
    if not pad or row % 16:
        return columns
    chunks = row // 16
    return (chunks if chunks % 2 else chunks + 1) * 16 // itemsize
