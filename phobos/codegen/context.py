"""What the printing of statements shares: the writer, thread positions, names of storage."""

from __future__ import annotations

from collections.abc import Callable

from phobos.codegen.expressions import PRIMARY, Environment, expression, linear_index, number
from phobos.codegen.writer import Writer
from phobos.ir.abi import StrideArg
from phobos.ir.c_names import c_identifier, c_type
from phobos.ir.scheduled import ForStmt, Schedule, Stmt, walk
from phobos.ir.storage import Buffer, Expr, Fragment, FragmentRef, Literal
from phobos.ir.types import DType
from phobos.layout.loops import Nest, plan
from phobos.layout.positions import ThreadPositions


class Printer:
    def __init__(self, schedule: Schedule, writer: Writer):
        self.schedule, self.writer = schedule, writer
        self.threads = ThreadPositions()
        self.lines: dict[Stmt, tuple[int, int]] = {}  # first and past-the-last line of each statement's text
        self._strides = {(a.tensor, a.axis) for a in schedule.args if isinstance(a, StrideArg)}

    # --- names and types -------------------------------------------------------------------

    def ctype(self, dtype: DType) -> str:
        return c_type(dtype, self.schedule.index_bits)

    def literal(self, value: int | float | bool, dtype: DType) -> str:
        return number(value, dtype, self.schedule.index_bits).text

    def stride(self, tensor: str, axis: int) -> str:
        """Element stride of an axis as text, "" where it is 1."""
        dims = self.schedule.tensor_dims[tensor]
        if (tensor, axis) in self._strides:
            return f"{c_identifier(tensor)}_stride{axis}"
        passed = any(name == tensor for name, _ in self._strides)
        if axis == len(dims) - 1 or passed:  # the one whose stride is not passed
            return ""
        known = 1
        names: list[str] = []
        for d in dims[axis + 1 :]:
            if isinstance(d, int):
                known *= d
            else:
                names.append(c_identifier(d))
        # Gathered positions are 32 bits wide: with 64-bit offsets the product must not be.
        literal = f"{known}LL" if self.schedule.index_bits == 64 and not names and known != 1 else str(known)
        text = " * ".join([*names, *([literal] if known != 1 or not names else [])])
        return "" if text == "1" else text if len(names) + (known != 1) <= 1 else f"({text})"

    def pointer(self, buffer: Buffer, const: bool = False) -> str:
        """ph_shared pointer to the tile; of a ring, to its current stage."""
        return self.stage_pointer(buffer, self.stage(buffer), const)

    def stage(self, buffer: Buffer) -> str:
        """Bytes from the first stage of a ring to the current one."""
        return buffer.stage.name if buffer.stage is not None else "0"

    def stage_pointer(self, buffer: Buffer, stage: str, const: bool = False) -> str:
        ctype = self.ctype(buffer.dtype)
        first = self.schedule.offsets[buffer]
        number = stage.removesuffix("u")
        if number.isdigit():
            place = str(first + int(number))
        else:
            place = f"{first} + {stage}" if first else stage
        return f"ph_smem<{'const ' if const else ''}{ctype}>({place})"

    def stored(self, buffer: Buffer, source: DType) -> Callable[[str], str]:
        """What becomes of an element of type `source` (given as text) when it is written to the buffer."""
        if buffer.rounding == "tf32":
            return lambda text: f"ph_bits<float>(ph_f2tf32({text}))"
        if source is buffer.dtype:
            return lambda text: text
        ctype = self.ctype(buffer.dtype)
        return lambda text: f"ph_cvt<{ctype}>({text})"

    def declare(self, fragment: Fragment) -> None:
        self.writer.line(f"{self.ctype(fragment.dtype)} {fragment.name}[{fragment.layout.registers}];")

    # --- expressions -----------------------------------------------------------------------

    def _environment(self, nest: Nest | None, inner: str = "") -> Environment:
        def fragment(ref: FragmentRef) -> str:
            if nest is not None:
                return nest.fragment(ref, inner)
            if ref.fragment.layout.registers != 1:
                raise AssertionError(f"{ref.fragment.name} is not a single value")
            return f"{ref.fragment.name}[0]"

        def position(axis: int) -> str:
            if nest is None:
                raise AssertionError("a position outside a loop over elements")
            return nest.position(axis, inner)

        return self.environment(fragment, position)

    def environment(self, fragment: Callable[[FragmentRef], str], position: Callable[[int], str]) -> Environment:
        return Environment(self.schedule.index_bits, self.schedule.offsets, fragment, position)

    def scalar(self, e: Expr) -> str:
        return expression(e, self._environment(None)).text

    def atom(self, e: Expr) -> str:
        """A scalar expression that can stand as an operand."""
        return expression(e, self._environment(None)).at(PRIMARY)

    def typed(self, e: Expr) -> str:
        """A scalar expression of exactly its dtype's C type (helpers are overloaded on it)."""
        text = self.scalar(e)
        return f"({self.ctype(e.dtype)})({text})" if not isinstance(e, Literal) or e.dtype.is_integer else text

    def element(self, e: Expr, nest: Nest, inner: str = "") -> str:
        return expression(e, self._environment(nest, inner)).text

    def operand(self, e: Expr, nest: Nest) -> str:
        """`element` that can stand as an operand."""
        return expression(e, self._environment(nest)).at(PRIMARY)

    def linear(self, buffer: Buffer, at: tuple[Expr, ...], nest: Nest) -> str:
        return linear_index(buffer, at, self._environment(nest)).text

    def slot(self, fragment: Fragment) -> str:
        """The current register of a fragment in the loops of `plan(fragment.layout, ..., (FragmentRef,))`."""
        ref = FragmentRef(fragment.dtype, fragment)
        return plan(fragment.layout, self.threads, (ref,)).fragment(ref)

    def unrolls(self, loop: ForStmt) -> bool:
        """May the C++ compiler unroll this loop as it likes? Loops around tiles are long enough as they are."""
        return not any(True for _ in walk(loop.body)) or all(type(s).__name__ == "SetScalar" for s in walk(loop.body))
