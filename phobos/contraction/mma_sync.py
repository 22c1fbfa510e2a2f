"""Contractions by warp-level tensor-core instructions (m16n8k16 and relatives) with known fragment layouts.

A warp owns mt x nt fragments of 16 x 8 results. Operands come from shared memory by matrix loads, whose eight rows
of 16 bytes start in eight different bank groups because rows are an odd number of 16-byte chunks apart. A left operand
that an earlier product left in registers is packed in place: the accumulator fragments of two neighbouring column
tiles are the left fragment of one step along k (g = lane / 4, t = lane % 4: rows g and g + 8,
columns 2t, 2t + 1 of both tiles).

Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16 / m16n8k8 / m16n8k32".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phobos.contraction.interface import ContractionPlan, ContractionQuery, Staged, columns_of, warp_texts
from phobos.contraction.tensor_core import leaves_room_for_tiles, misfit, operand_layouts, stored_dtype, warp_splits
from phobos.ir.c_names import C_TYPES
from phobos.ir.types import DType
from phobos.layout.register import Digit, RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter

name = "mma"
_MAX_ACCUMULATORS = 128
_PRODUCT = 8.0  # cycles of an SM quarter for one instruction: 6.5 measured in the best loops on an H200
# Cycles of an SM quarter per column tile of the right operand: its matrix loads share one pipe with three other
# quarters (64 rows in four warps at D = 128 on an H200: 1.6 times the time of 128 rows, twice the loads a product).
_MATRIX_LOAD = 14.0
# operand dtype in shared memory -> (helper, k of one instruction)
_INSTRUCTIONS = {
    DType.F16: ("ph_mma_f16", 16),
    DType.BF16: ("ph_mma_bf16", 16),
    DType.F32: ("ph_mma_tf32", 8),
    DType.I8: ("ph_mma_s8", 32),
    DType.U8: ("ph_mma_u8", 32),
}
_EXACT = (DType.F16, DType.BF16, DType.I8, DType.U8)  # operands that are multiplied as they are


def accumulator_layout(m: int, n: int, wm: int, wn: int) -> RegisterLayout:
    """The result of wm x wn warps, each with fragments of 16 x 8: registers (column pair, row half, column tile, row
    tile)."""
    mt, nt = m // (16 * wm), n // (8 * wn)
    reg = [Digit(1, 2, 1), Digit(0, 2, 8)]
    if nt > 1:
        reg.append(Digit(1, nt, 8))
    if mt > 1:
        reg.append(Digit(0, mt, 16))
    warp = []
    if wn > 1:
        warp.append(Digit(1, wn, 8 * nt))
    if wm > 1:
        warp.append(Digit(0, wm, 16 * mt))
    return RegisterLayout.make((m, n), reg, [Digit(1, 4, 2), Digit(0, 8, 1)], warp)


@dataclass(frozen=True, kw_only=True)
class MmaPlan(ContractionPlan):
    """wm x wn warps with mt x nt fragments each."""

    wm: int
    wn: int
    mt: int
    nt: int

    @property
    def operand_registers(self) -> int:
        return 2 * (4 * self.mt + 2 * self.nt) if self.ahead else 4 * self.mt + 4

    def emit(
        self, out: TextWriter, accumulator: str, a: str, b: str, *,
        a_in_registers: bool = False, a_name: str | None = None,
    ) -> None:  # fmt: skip
        fragments = _Fragments(self, "a_reg", "b_reg", a, a_in_registers)
        steps = self.steps
        out.open("")
        if a_name is not None:
            fragments = _Fragments(self, a_name, "b_reg")
            fragments.pointers(out, None, b)
            out.line("PH_UNROLL")
            out.open(f"for (int kk = 0; kk < {steps}; ++kk)")
            out.line("PH_UNROLL")
            out.open(f"for (int j = 0; j < {fragments.b_loads}; ++j)")
            out.line(f"unsigned b_reg[1][{fragments.b_words}];")
            fragments.load_b(out, "", "kk", "0")
            fragments.multiply(out, accumulator, "", "0", a_buffer="[kk]")
            out.close()
            out.close()
            out.close()
            return
        fragments.pointers(out, a, b)
        if self.loads_ahead:
            fragments.declare(out)
            fragments.load(out, "[0]", "0")
            out.line("PH_UNROLL")
            out.open(f"for (int kk = 0; kk < {steps}; ++kk)")
            out.open(f"if (kk + 1 < {steps})")
            fragments.load(out, "[(kk + 1) % 2]", "(kk + 1)")
            out.close()
            fragments.multiply_all(out, accumulator, "[kk % 2]")
        else:
            out.line("PH_UNROLL")
            out.open(f"for (int kk = 0; kk < {steps}; ++kk)")
            out.line(f"unsigned a_reg[{self.mt}][4];")
            fragments.load_a(out, "", "kk")
            out.line("PH_UNROLL")
            out.open(f"for (int j = 0; j < {fragments.b_loads}; ++j)")
            out.line(f"unsigned b_reg[1][{fragments.b_words}];")
            fragments.load_b(out, "", "kk", "0")
            fragments.multiply(out, accumulator, "", "0")
            out.close()
        out.close()
        out.close()

    @property
    def loads_ahead(self) -> bool:
        return self.ahead and self.steps > 1

    @property
    def a_registers(self) -> int:
        return self.steps * self.mt * 4

    def load_operand(self, out: TextWriter, name: str, a: str) -> None:
        fragments = _Fragments(self, name, "")
        out.line(f"unsigned {name}[{self.steps}][{self.mt}][4];")
        out.open("")
        fragments.pointers(out, a, None)
        out.line("PH_UNROLL")
        out.open(f"for (int kk = 0; kk < {self.steps}; ++kk)")
        fragments.load_a(out, "[kk]", "kk")
        out.close()
        out.close()

    @property
    def steps(self) -> int:
        return self.query.k // _INSTRUCTIONS[self.a_dtype][1]

    def declare(self, out: TextWriter, name: str, a: str, b: str) -> None:
        fragments = _Fragments(self, f"{name}_a", f"{name}_b")
        fragments.declare(out)
        fragments.places(out, a, b)

    def load(self, out: TextWriter, name: str, slot: int, step: int, a: Staged, b: Staged) -> None:
        fragments = _Fragments(self, f"{name}_a", f"{name}_b")
        out.open("")
        fragments.load_placed(out, slot, step, a, b)
        out.close()

    def multiply(
        self, out: TextWriter, name: str, slot: int, accumulator: str, part: tuple[int, int] = (0, 1)
    ) -> None:
        _Fragments(self, f"{name}_a", f"{name}_b").multiply_all(out, accumulator, f"[{slot}]", part)


@dataclass(frozen=True)
class _Fragments:
    """Loads of one step along k into registers named `a_reg`, `b_reg`, and the products with them."""

    plan: MmaPlan
    a_reg: str
    b_reg: str
    a: str = ""  # the accumulator fragment that is the left operand, if it is `a_in_registers`
    a_in_registers: bool = False

    @property
    def helper(self) -> str:
        return _INSTRUCTIONS[self.plan.a_dtype][0]

    @property
    def depth(self) -> int:
        return _INSTRUCTIONS[self.plan.a_dtype][1]

    @property
    def trans(self) -> bool:
        return not self.plan.query.transpose_b

    @property
    def b_loads(self) -> int:
        return self.plan.nt // 2 if self._paired else self.plan.nt

    @property
    def b_words(self) -> int:
        return 4 if self._paired else 2

    @property
    def _single_words(self) -> bool:
        """32-bit elements with n contiguous: there is no transposed load, so b comes in plain reads."""
        return self.trans and self.plan.b_dtype.bytes == 4

    @property
    def _paired(self) -> bool:
        """Two column tiles by one load."""
        return self.plan.nt % 2 == 0 and not self._single_words

    def pointers(self, out: TextWriter, a: str | None, b: str | None) -> None:
        """Declares a_tile and b_tile: where this lane's first matrix rows lie."""
        p = self.plan
        chunk = 16 // p.a_dtype.bytes  # elements of a 16-byte row of a matrix
        warp_m, warp_n = warp_texts(p.wm, p.wn)
        row0 = f"({warp_m}) * {16 * p.mt} + " if warp_m else ""
        col0 = f"({warp_n}) * {8 * p.nt} + " if warp_n else ""
        pa, pb = p.a_layout.pitch, p.b_layout.pitch
        if a is not None and not self.a_in_registers:
            at = f"({row0}lane % 16) * {pa}"
            if p.a_layout.swizzle:
                out.line(f"const int a_chunk = lane / 16 ^ {p.a_layout.line_text('lane % 16')};")
            else:
                at += f" + lane / 16 * {chunk}"
            out.line(f"const ph_shared<const {C_TYPES[p.a_dtype]}> a_tile = {a} + {at};")
        if b is None:
            return
        if p.b_layout.swizzle:
            self._swizzled_b(out, b, warp_n)
            return
        if self._single_words:
            at = f"lane % 4 * {pb} + {col0}lane / 4"
        elif self.trans:
            at = f"lane % 16 * {pb} + {col0}" + ("lane / 16 * 8" if self._paired else "0")
        else:
            row = f"{col0}lane % 8" + (" + lane / 16 * 8" if self._paired else "")
            at = f"({row}) * {pb} + lane / 8 % 2 * {chunk}"
        out.line(f"const ph_shared<const {C_TYPES[p.b_dtype]}> b_tile = {b} + {at};")

    def _swizzled_b(self, out: TextWriter, b: str, warp_n: str) -> None:
        """b_tile: this lane's row. b_chunk: the chunk of its first matrix as it is stored; others are an xor away."""
        p = self.plan
        layout = p.b_layout
        if self.trans:
            row, half, chunks = "lane % 16", "lane / 16" if self._paired else "0", p.nt * 8 // layout.chunk
            at = f"lane % 16 * {layout.pitch}"
            if warp_n and chunks % layout.swizzle == 0:
                at += f" + ({warp_n}) * {8 * p.nt}"
            elif warp_n:  # warps begin within a group of chunks
                out.line(f"const int b_first = ({warp_n}) * {chunks};")
        else:
            row, half = ("lane % 8 + lane / 16 * 8" if self._paired else "lane % 8"), "lane / 8 % 2"
            at = f"({f'({warp_n}) * {8 * p.nt} + ' if warp_n else ''}{row}) * {layout.pitch}"
        out.line(f"const int b_chunk = {half} ^ {layout.line_text(row)};")
        out.line(f"const ph_shared<const {C_TYPES[p.b_dtype]}> b_tile = {b} + {at};")

    def places(self, out: TextWriter, a: str, b: str) -> None:
        """Declares a_reg_at and b_reg_at: where this lane reads its first matrices, one place for each way in which
        steps or columns permute chunks. Everything else about an address is a constant and the stage."""
        p = self.plan
        out.line(f"unsigned {self.a_reg}_at[{self._a_places}];")
        if not self._single_words:
            out.line(f"unsigned {self.b_reg}_at[{self._b_places}];")
        out.open("")
        self.pointers(out, a, None if self._single_words else b)
        for slot in range(self._a_places):
            along = self._a_along(str(slot)) if p.a_layout.swizzle else "0"
            out.line(f"{self.a_reg}_at[{slot}] = ph_place(a_tile + {along});")
        for slot in range(0 if self._single_words else self._b_places):
            at = "0"
            if p.b_layout.swizzle:
                at = self._b_across(str(slot)) if self.trans else self._b_along(str(slot))
            out.line(f"{self.b_reg}_at[{slot}] = ph_place(b_tile + {at});")
        out.close()

    @property
    def _a_places(self) -> int:
        return self._ways(self.plan.a_layout, self.plan.steps, self.depth)

    @property
    def _b_places(self) -> int:
        layout = self.plan.b_layout
        if not self.trans:
            return self._ways(layout, self.plan.steps, self.depth)
        return self.b_loads if self._warps_apart else self._ways(layout, self.b_loads, self._columns)

    @staticmethod
    def _ways(layout: SharedLayout, times: int, elements: int) -> int:
        """In how many ways steps of so many elements along a line permute its chunks."""
        return min(times, max(1, layout.swizzle * layout.chunk // elements)) if layout.swizzle else 1

    def load_placed(self, out: TextWriter, slot: int, step: int, a: Staged, b: Staged) -> None:
        """Loads of one step from the places."""
        p = self.plan
        n = self._a_places
        at = f"{self.a_reg}_at[{step % n}] + {a.offset}"
        apart = 16 * p.a_layout.pitch * p.a_dtype.bytes
        rest = step // n * n * self.depth * p.a_dtype.bytes
        out.line("PH_UNROLL")
        line = f"ph_ldmatrix_x4({self.a_reg}[{slot}][i], {at} + {_sum(f'i * {apart}', rest)});"
        out.line(f"for (int i = 0; i < {p.mt}; ++i) {line}", memory=True)
        if self._single_words:
            self.pointers(out, None, b.pointer)
            out.line("PH_UNROLL")
            out.open(f"for (int j = 0; j < {self.b_loads}; ++j)")
            self.load_b(out, f"[{slot}]", str(step), "j")
            out.close()
            return
        item, pitch, n = p.b_dtype.bytes, p.b_layout.pitch, self._b_places
        if self.trans:
            place = "0" if n == 1 else "j" if n == self.b_loads else f"j % {n}"
            across = "" if n == self.b_loads else f"{f'j / {n}' if n > 1 else 'j'} * {n * self._columns * item}"
            rest = step * self.depth * pitch * item
        else:
            place = str(step % n)
            across = f"j * {self._columns * pitch * item}"
            rest = step // n * n * self.depth * item
        load = f"ph_ldmatrix_x{self.b_words}{'_trans' if self.trans else ''}"
        line = f"{load}({self.b_reg}[{slot}][j], {self.b_reg}_at[{place}] + {b.offset} + {_sum(across, rest)});"
        out.line("PH_UNROLL")
        out.line(f"for (int j = 0; j < {self.b_loads}; ++j) {line}", memory=True)

    def declare(self, out: TextWriter) -> None:
        """Two sets of registers."""
        out.line(f"unsigned {self.a_reg}[2][{self.plan.mt}][4];")
        out.line(f"unsigned {self.b_reg}[2][{self.b_loads}][{self.b_words}];")

    def multiply_all(self, out: TextWriter, accumulator: str, buffer: str, part: tuple[int, int] = (0, 1)) -> None:
        first, end = columns_of(part, self.b_loads)
        if first == end:
            return
        out.line("PH_UNROLL")
        out.open(f"for (int j = {first}; j < {end}; ++j)")
        self.multiply(out, accumulator, buffer)
        out.close()

    def load(self, out: TextWriter, buffer: str, step: str) -> None:
        self.load_a(out, buffer, step)
        out.line("PH_UNROLL")
        out.open(f"for (int j = 0; j < {self.b_loads}; ++j)")
        self.load_b(out, buffer, step, "j")
        out.close()

    def load_a(self, out: TextWriter, buffer: str, step: str) -> None:
        p = self.plan
        out.line("PH_UNROLL")
        out.open(f"for (int i = 0; i < {p.mt}; ++i)")
        if self.a_in_registers:
            self._pack(out, buffer, step)
        else:
            at = f"a_tile + i * {16 * p.a_layout.pitch} + {self._a_along(step)}"
            out.line(f"ph_ldmatrix_x4({self.a_reg}{buffer}[i], {at});", memory=True)
        out.close()

    def load_b(self, out: TextWriter, buffer: str, step: str, slot: str) -> None:
        p = self.plan
        pitch = p.b_layout.pitch
        target = f"{self.b_reg}{buffer}[{slot}]"
        if self._single_words:
            for word, row in enumerate((0, 4)):
                name = f"b{word}"
                at = f"{step} * {self.depth * pitch} + {row * pitch} + j * 8"
                out.line(f"const float {name} = b_tile[{at}];", memory=True)
                out.line(f"{target}[{word}] = ph_bits<unsigned>({name});")
            return
        load = f"ph_ldmatrix_x{self.b_words}{'_trans' if self.trans else ''}"
        along_k = f"{step} * {self.depth * pitch}" if self.trans else self._b_along(step)
        across = self._b_across("j") if self.trans else f"j * {self._columns * pitch}"
        out.line(f"{load}({target}, b_tile + {along_k} + {across});", memory=True)

    @property
    def _columns(self) -> int:
        return 16 if self._paired else 8

    @property
    def _warps_apart(self) -> bool:
        """Do warps begin within a group of permuted chunks?"""
        p = self.plan
        return (
            self.trans and p.wn > 1 and p.b_layout.swizzle > 0 and p.nt * 8 // p.b_layout.chunk % p.b_layout.swizzle > 0
        )

    def _a_along(self, step: str) -> str:
        """Element index of a step along k in this lane's row of a."""
        return self._permuted("a_chunk", self.plan.a_layout, step, self.depth)

    def _b_along(self, step: str) -> str:
        """The same in b with k contiguous."""
        return self._permuted("b_chunk", self.plan.b_layout, step, self.depth)

    def _b_across(self, load: str) -> str:
        """Element index of a load in this lane's row of b with n contiguous."""
        return self._permuted(
            "b_chunk", self.plan.b_layout, load, self._columns, "b_first + " if self._warps_apart else ""
        )

    @staticmethod
    def _permuted(chunk: str, layout: SharedLayout, number: str, elements: int, first: str = "") -> str:
        if not layout.swizzle:
            return f"{number} * {elements}"
        moved = f"{number} * {elements // layout.chunk}"
        return f"({chunk} ^ {f'({first}{moved})' if first else moved}) * {layout.chunk}"

    def multiply(
        self, out: TextWriter, accumulator: str, buffer: str, slot: str = "j", a_buffer: str | None = None
    ) -> None:
        """Products of one load of b with every fragment of a.

        Every second column of fragments goes through a from the far end, so that an instruction shares an operand with
        the one before it: 62 instead of 48 of 64 come from the reuse cache, and a product of 4096^3 takes 2 % less
        energy (which is its time, on a card at its power limit).
        """
        p = self.plan
        a_buffer = buffer if a_buffer is None else a_buffer
        for half in range(2 if self._paired else 1):
            column = f"(2 * j + {half})" if self._paired and half else "2 * j" if self._paired else "j"
            b = f"{self.b_reg}{buffer}[{slot}]" + (" + 2" if half else "")
            at = f"4 * {column}" if p.mt == 1 else f"4 * (i * {p.nt} + {column})"
            text = f"{self.helper}({accumulator} + {at}, {self.a_reg}{a_buffer}[{'0' if p.mt == 1 else 'i'}], {b});"
            if p.mt == 1:
                out.line(text, memory=True)
            else:
                out.line("PH_UNROLL")
                head = f"int i = {p.mt - 1}; i >= 0; --i" if half else f"int i = 0; i < {p.mt}; ++i"
                out.line(f"for ({head}) {text}", memory=True)

    def _pack(self, out: TextWriter, buffer: str, step: str) -> None:
        """a_reg[i] from the accumulator fragments 2 step and 2 step + 1 of an earlier product."""
        p = self.plan
        tiles = p.query.k // 8
        out.line("PH_UNROLL")
        out.open("for (int u = 0; u < 4; ++u)")
        tile = f"2 * {step} + u / 2"
        at = f"4 * (i * {tiles} + {tile}) + u % 2 * 2" if p.mt > 1 else f"4 * ({tile}) + u % 2 * 2"
        if p.query.operand is DType.F32:
            pack = "ph_pack_h2" if p.a_dtype is DType.F16 else "ph_pack_b2"
            out.line(f"{self.a_reg}{buffer}[i][u] = {pack}({self.a}[{at}], {self.a}[{at} + 1]);")
        else:
            out.line(f"{self.a_reg}{buffer}[i][u] = {self.a}[{at}].x | (unsigned){self.a}[{at} + 1].x << 16;")
        out.close()


def _sum(moving: str, fixed: int) -> str:
    """A number of bytes that stays together as a constant when the loop around is unrolled."""
    return f"({moving} + {fixed})" if moving and fixed else f"({moving})" if moving else str(fixed)


def reject(query: ContractionQuery) -> str | None:
    if query.options.matmul not in ("auto", "mma"):
        return f"the option matmul = {query.options.matmul} excludes it"
    stored = stored_dtype(query, _EXACT)
    if stored is None:
        if query.operand is DType.F32:
            wanted = [k for k in query.kinds if k != "ieee"]
            return f"kind {wanted[0]} is not built yet" if wanted else "f32 operands stay unrounded without @tensorcore"
        return f"multiplies f16, bf16, i8, u8 and rounded f32, not {query.operand}"
    dtype, _ = stored
    if query.target.capability < (8, 0) and dtype not in (DType.F16, DType.I8, DType.U8):
        return f"{query.target.arch} has no {dtype if dtype is not DType.F32 else 'tf32'} tensor cores"
    if query.accumulator not in (DType.F32, DType.I32):
        return f"accumulates in f32 or i32, not {query.accumulator}"
    depth = _INSTRUCTIONS[dtype][1]
    if dtype in (DType.I8, DType.U8) and not query.transpose_b:
        return "8-bit operands need b with k contiguous (dot_t): there is no transposed 8-bit load"
    return misfit(query, 16, 8, max(16, depth))


def _ahead(query: ContractionQuery, stored: DType, mt: int, nt: int) -> bool:
    """Two sets of fragments hide the latency of matrix loads, if registers allow (beside an online softmax they do
    not, nor where a tile on its way through registers needs them)."""
    if query.options.overlap != "auto":
        return query.options.overlap == "on"
    sums, one, two = 4 * mt * nt, 4 * mt + 4, 2 * (4 * mt + 2 * nt)
    fits = not query.whole_rows and sums + two <= 200
    return fits and leaves_room_for_tiles(query, stored, sums, one, two)


def plans(query: ContractionQuery) -> Sequence[MmaPlan]:
    stored = stored_dtype(query, _EXACT)
    assert stored is not None
    dtype, kind = stored
    a_layout, b_layout = operand_layouts(query, dtype, matrix_loads=True)
    depth = _INSTRUCTIONS[dtype][1]
    out = []
    for wm, wn in warp_splits(query, 16, 8):
        mt, nt = query.m // (16 * wm), query.n // (8 * wn)
        # Cycles of an SM quarter for one step of k: products, and matrix loads through the shared pipe of four
        # quarters.
        a_loads = 0.0 if query.a_computed and wn == 1 and dtype is not DType.F32 else 16.0 * mt
        cost = (mt * nt * _PRODUCT + a_loads + _MATRIX_LOAD * nt) * query.k / depth
        in_registers = query.a_computed and wn == 1 and dtype in (DType.F16, DType.BF16)
        out.append(
            MmaPlan(
                room=name, kind=kind, query=query, c_layout=accumulator_layout(query.m, query.n, wm, wn),
                a_layout=a_layout, b_layout=b_layout, a_dtype=dtype, b_dtype=dtype,
                rounding="tf32" if kind == "tf32" else "",
                a_fragment=accumulator_layout(query.m, query.k, wm, 1) if in_registers else None,
                row_split=(wm, mt), cost=cost, wm=wm, wn=wn, mt=mt, nt=nt, ahead=_ahead(query, dtype, mt, nt),
                description=f"{mt}x{nt} fragments of 16x8 a warp, warps {wm}x{wn}, k in steps of {depth}",
            )  # fmt: skip
        )
    fitting = [p for p in out if 4 * p.mt * p.nt <= _MAX_ACCUMULATORS]
    return fitting or out
