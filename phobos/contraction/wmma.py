"""Contractions by warp matrix instructions (wmma, 16x16x16 and for tf32 16x16x8) with opaque fragments.

A warp owns mt x nt fragments of 16 x 16 results. Which lane holds which element of a fragment is not defined, so a loop
may carry its sum in fragments (`OpaquePlan`), and whoever needs elements has them *delivered* into registers of a known
layout through shared memory: 16 rows by `span` columns at a time, each warp in its own part, so that no warp waits for
another. The known layout gives a warp the very results that its fragments hold.

Shared memory. Rows of operands are whole 16-byte chunks and, padded, an odd number of them (`padded_pitch`): 16-bit
operands are loaded as matrices of eight rows of 16 bytes, and 32-bit ones with k contiguous as eight rows of four
words, which in both cases lie in different banks. Fragments start on 32 bytes, as the instructions ask: 16 rows are
whole 256 bytes, and 16 columns of 16-bit or 8 of 32-bit elements are 32 bytes. Rows of delivered results are 8 or 24
words apart modulo 32: stores take four rows of 32 bytes by a half-warp, and reads one row of 128 bytes by a quarter-
warp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log2

from phobos.contraction.interface import ContractionQuery, OpaquePlan, Staged, columns_of, warp_texts
from phobos.contraction.tensor_core import leaves_room_for_tiles, misfit, operand_layouts, stored_dtype, warp_splits
from phobos.ir.c_names import C_TYPES
from phobos.ir.types import DType
from phobos.layout.register import WARP, Digit, RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter

name = "wmma"
_TILE = 16  # rows and columns of results of one fragment
_MAX_ACCUMULATORS = 128
_PRODUCT = 16.0  # cycles of an SM quarter for one instruction, which is two of the machine's
_BESIDE = 56  # registers of a GEMM's main loop beside accumulators and fragments
_EXACT = (DType.F16, DType.BF16)  # operands that are multiplied as they are
_VECTOR = 4  # results of a thread in one access to delivered rows
# Issue slots to deliver one result of a thread, by lanes along a row: four lanes' rows collide in banks, and sixteen
# give global stores of whole 128-byte lines.
_DELIVERY = {4: 4.0, 8: 2.5, 16: 2.0}


@dataclass(frozen=True, kw_only=True)
class WmmaPlan(OpaquePlan):
    """wm x wn warps with mt x nt fragments each; results are delivered with `lanes` lanes along a row."""

    wm: int
    wn: int
    mt: int
    nt: int
    lanes: int

    @property
    def depth(self) -> int:
        return _depth(self.a_dtype)

    @property
    def span(self) -> int:
        """Columns delivered at a time."""
        return self.lanes * _VECTOR

    @property
    def operand_registers(self) -> int:
        return 2 * 4 * (self.mt + self.nt) if self.ahead else 4 * (self.mt + self.nt)

    # --- products --------------------------------------------------------------------------

    def emit(
        self,
        out: TextWriter,
        accumulator: str,
        a: str,
        b: str,
        *,
        a_in_registers: bool = False,
        a_name: str | None = None,
    ) -> None:
        steps = self.steps
        kept = a_name is not None  # the whole left operand is in registers
        a_reg = f"{a_name}[kk]" if kept else "a_reg"
        out.open("")
        self._tiles(out, None if kept else a, b)
        if self.loads_ahead and not kept:
            self._declare(out, "a_reg", "b_reg", "[2]")
            self._load(out, "a", "a_reg[0]", 0)
            self._load(out, "b", "b_reg[0]", 0)
            out.line("PH_UNROLL")
            out.open(f"for (int kk = 0; kk < {steps}; ++kk)")
            out.open(f"if (kk + 1 < {steps})")
            self._step(out, "kk + 1", a=True)
            self._load(out, "a", "a_reg[(kk + 1) % 2]")
            self._load(out, "b", "b_reg[(kk + 1) % 2]")
            out.close()
            self._multiply(out, accumulator, "a_reg[kk % 2]", "b_reg[kk % 2]")
        else:
            out.line("PH_UNROLL")
            out.open(f"for (int kk = 0; kk < {steps}; ++kk)")
            self._declare(out, None if kept else "a_reg", "b_reg")
            self._step(out, "kk", a=not kept)
            if not kept:
                self._load(out, "a", "a_reg")
            self._load(out, "b", "b_reg")
            self._multiply(out, accumulator, a_reg, "b_reg")
        out.close()
        out.close()

    @property
    def loads_ahead(self) -> bool:
        return self.ahead and self.steps > 1

    @property
    def a_registers(self) -> int:
        return self.steps * self.mt * 4

    def load_operand(self, out: TextWriter, name: str, a: str) -> None:
        self._declare(out, name, None, f"[{self.steps}]")
        out.open("")
        self._tiles(out, a, None)
        out.line("PH_UNROLL")
        out.open(f"for (int kk = 0; kk < {self.steps}; ++kk)")
        self._step(out, "kk", b=False)
        self._load(out, "a", f"{name}[kk]")
        out.close()
        out.close()

    @property
    def steps(self) -> int:
        return self.query.k // self.depth

    def declare(self, out: TextWriter, name: str, a: str, b: str) -> None:
        self._declare(out, f"{name}_a", f"{name}_b", "[2]")

    def load(self, out: TextWriter, name: str, slot: int, step: int, a: Staged, b: Staged) -> None:
        out.open("")
        self._tiles(out, a.pointer, b.pointer)
        self._load(out, "a", f"{name}_a[{slot}]", step)
        self._load(out, "b", f"{name}_b[{slot}]", step)
        out.close()

    def multiply(
        self, out: TextWriter, name: str, slot: int, accumulator: str, part: tuple[int, int] = (0, 1)
    ) -> None:
        self._multiply(out, accumulator, f"{name}_a[{slot}]", f"{name}_b[{slot}]", part)

    def _tiles(self, out: TextWriter, a: str | None, b: str | None) -> None:
        """Declares a_tile and b_tile: where the warp's first fragments lie."""
        if a is not None:
            warp, _ = warp_texts(self.wm, self.wn)
            at = f" + {_operand(warp)} * {_TILE * self.mt * self.a_layout.pitch}" if warp else ""
            out.line(f"const ph_shared<const {C_TYPES[self.a_dtype]}> a_tile = {a}{at};")
        if b is not None:
            warp = "" if self.wn == 1 else "warp" if self.wm == 1 else f"warp % {self.wn}"
            at = f" + {_operand(warp)} * {self.nt * self._b_column}" if warp else ""
            out.line(f"const ph_shared<const {C_TYPES[self.b_dtype]}> b_tile = {b}{at};")

    @property
    def _b_column(self) -> int:
        """Elements from one column tile of b to the next."""
        return _TILE * self.b_layout.pitch if self.query.transpose_b else _TILE

    def _declare(self, out: TextWriter, a: str | None, b: str | None, sets: str = "") -> None:
        if a is not None:
            out.line(f"ph_wmma_a<{C_TYPES[self.a_dtype]}, false> {a}{sets}[{self.mt}];")
        if b is not None:
            order = "true" if self.query.transpose_b else "false"
            out.line(f"ph_wmma_b<{C_TYPES[self.b_dtype]}, {order}> {b}{sets}[{self.nt}];")

    def _step(self, out: TextWriter, step: str, *, a: bool = True, b: bool = True) -> None:
        """Declares a_step and b_step: the fragments of a step that is known only when the loop is unrolled."""
        by = f"({step})" if " " in step else step
        if a:
            out.line(f"const auto a_step = a_tile + {by} * {self.depth};")
        if b:
            along_k = self.depth if self.query.transpose_b else self.depth * self.b_layout.pitch
            out.line(f"const auto b_step = b_tile + {by} * {along_k};")

    def _load(self, out: TextWriter, side: str, registers: str, step: int | None = None) -> None:
        """One step along k of an operand: at a_step, or at a known step of a_tile. Offsets are literals, so that all
        loads share an address."""
        if side == "a":
            count, tile, along_k, pitch = self.mt, _TILE * self.a_layout.pitch, self.depth, self.a_layout.pitch
        else:
            count, tile, pitch = self.nt, self._b_column, self.b_layout.pitch
            along_k = self.depth if self.query.transpose_b else self.depth * pitch
        base = f"{side}_step" if step is None else f"{side}_tile"
        for i in range(count):
            offset = i * tile + (step or 0) * along_k
            out.line(f"ph_wmma_load_{side}<{offset}>({registers}[{i}], {base}, {pitch});", memory=True)

    def _multiply(
        self, out: TextWriter, accumulator: str, a: str, b: str, part: tuple[int, int] = (0, 1)
    ) -> None:
        first, end = columns_of(part, self.nt)
        if first == end:
            return
        out.line("PH_UNROLL")
        out.line(f"for (int j = {first}; j < {end}; ++j)")
        out.line("  PH_UNROLL")
        out.line(
            f"  for (int i = 0; i < {self.mt}; ++i) ph_wmma_mma({accumulator}[i * {self.nt} + j], {a}[i], {b}[j]);",
            memory=True,
        )

    # --- opaque accumulators ---------------------------------------------------------------

    @property
    def accumulators(self) -> tuple[object, ...]:
        return name, self.depth, self.query.m, self.query.n, self.wm, self.wn

    def declare_sums(self, out: TextWriter, accumulator: str) -> None:
        ctype = "ph_wmma_c_tf32" if self.a_dtype is DType.F32 else "ph_wmma_c"
        out.line(f"{ctype} {accumulator}[{self.mt * self.nt}];")

    def fill_sums(self, out: TextWriter, accumulator: str, value: str) -> None:
        out.line("PH_UNROLL")
        out.line(f"for (int i = 0; i < {self.mt * self.nt}; ++i) ph_wmma_fill({accumulator}[i], {value});")

    def store_sums(self, out: TextWriter, accumulator: str, target: str, scratch: str, *, add: bool) -> None:
        fragments, pitch = self.span // _TILE, self.scratch.pitch
        with self._pieces(out, scratch) as at:
            out.line("PH_UNROLL")
            out.line(
                f"for (int u = 0; u < {fragments}; ++u) "
                f"ph_wmma_store(tile + u * {_TILE}, {pitch}, {accumulator}[i * {self.nt} + j * {fragments} + u]);",
                memory=True,
            )
            out.line("ph_syncwarp();", memory=True)
            self._rows(out)
            out.line(f"const ph_vec<float, {_VECTOR}> t = ph_ldv<ph_vec<float, {_VECTOR}>>(tile, {at});", memory=True)
            out.line("PH_UNROLL")
            out.line(f"for (int v = 0; v < {_VECTOR}; ++v) {target}[{self._register}] {'+=' if add else '='} t.v[v];")
            out.close()

    def load_sums(self, out: TextWriter, accumulator: str, source: str, scratch: str) -> None:
        fragments, pitch = self.span // _TILE, self.scratch.pitch
        with self._pieces(out, scratch) as at:
            self._rows(out)
            out.line(f"ph_vec<float, {_VECTOR}> t;")
            out.line("PH_UNROLL")
            out.line(f"for (int v = 0; v < {_VECTOR}; ++v) t.v[v] = {source}[{self._register}];")
            out.line(f"ph_stv(tile, {at}, t);", memory=True)
            out.close()
            out.line("ph_syncwarp();", memory=True)
            out.line("PH_UNROLL")
            out.line(
                f"for (int u = 0; u < {fragments}; ++u) "
                f"ph_wmma_load_c({accumulator}[i * {self.nt} + j * {fragments} + u], tile + u * {_TILE}, {pitch});",
                memory=True,
            )

    @property
    def _register(self) -> str:
        """Register of the known layout: piece i, j, row r, element v."""
        chunks, rows = self.nt * _TILE // self.span, _TILE * self.lanes // WARP
        row = f"(i * {rows} + r)" if self.mt > 1 else "r"
        return f"({row} * {chunks} + j) * {_VECTOR} + v" if chunks > 1 else f"{row} * {_VECTOR} + v"

    @contextmanager
    def _pieces(self, out: TextWriter, scratch: str) -> Iterator[str]:
        """Loops over row tiles i and column pieces j, with `tile` the warp's part of the scratch; gives the index in it
        of the lane's elements in row step r."""
        pitch, chunks = self.scratch.pitch, self.nt * _TILE // self.span
        out.open("")
        out.line(f"const ph_shared<float> tile = {scratch} + warp * {_TILE * pitch};")
        out.line("PH_UNROLL")
        out.open(f"for (int i = 0; i < {self.mt}; ++i)")
        out.line("PH_UNROLL")
        out.open(f"for (int j = 0; j < {chunks}; ++j)")
        if self.mt * chunks > 1:
            out.line("if (i + j > 0) ph_syncwarp();", memory=True)
        yield f"(lane / {self.lanes} + r * {WARP // self.lanes}) * {pitch} + lane % {self.lanes} * {_VECTOR}"
        out.close()
        out.close()
        out.close()

    def _rows(self, out: TextWriter) -> None:
        out.line("PH_UNROLL")
        out.open(f"for (int r = 0; r < {_TILE * self.lanes // WARP}; ++r)")


def _operand(text: str) -> str:
    return f"({text})" if " " in text else text


def _depth(stored: DType) -> int:
    """k of one instruction."""
    return 8 if stored is DType.F32 else 16


def reject(query: ContractionQuery) -> str | None:
    if query.options.matmul not in ("auto", "wmma"):
        return f"the option matmul = {query.options.matmul} excludes it"
    stored = stored_dtype(query, _EXACT)
    if stored is None:
        if query.operand is DType.F32:
            wanted = [k for k in query.kinds if k != "ieee"]
            return f"has no kind {wanted[0]}" if wanted else "f32 operands stay unrounded without @tensorcore"
        return f"multiplies f16, bf16 and rounded f32, not {query.operand}"
    dtype, _ = stored
    if query.target.capability < (8, 0) and dtype is not DType.F16:
        return f"{query.target.arch} has no {'tf32' if dtype is DType.F32 else dtype} tensor cores"
    if query.accumulator is not DType.F32:
        return f"accumulates in f32, not {query.accumulator}"
    return misfit(query, _TILE, _TILE, _depth(dtype))


def delivered_layout(m: int, n: int, wm: int, wn: int, lanes: int) -> RegisterLayout:
    """Results of wm x wn warps with four neighbouring columns a register group and `lanes` lanes along a row."""
    mt, nt = m // (_TILE * wm), n // (_TILE * wn)
    reg = [Digit(1, _VECTOR, 1)]
    if nt * _TILE > lanes * _VECTOR:
        reg.append(Digit(1, nt * _TILE // (lanes * _VECTOR), lanes * _VECTOR))
    rows = WARP // lanes
    if mt * _TILE > rows:
        reg.append(Digit(0, mt * _TILE // rows, rows))
    warp = []
    if wn > 1:
        warp.append(Digit(1, wn, nt * _TILE))
    if wm > 1:
        warp.append(Digit(0, wm, mt * _TILE))
    return RegisterLayout.make((m, n), reg, [Digit(1, lanes, _VECTOR), Digit(0, rows, 1)], warp)


def _ahead(query: ContractionQuery, stored: DType, mt: int, nt: int) -> bool:
    """Two sets of fragments hide the latency of loads, if registers allow (beside an online softmax they do not, nor
    where a tile on its way through registers needs them)."""
    if query.options.overlap != "auto":
        return query.options.overlap == "on"
    sums, one = 8 * mt * nt, 4 * (mt + nt)
    fits = not query.whole_rows and sums + 2 * one + _BESIDE <= query.registers
    return fits and leaves_room_for_tiles(query, stored, sums, one, 2 * one)


def plans(query: ContractionQuery) -> Sequence[WmmaPlan]:
    stored = stored_dtype(query, _EXACT)
    assert stored is not None
    dtype, kind = stored
    q, depth = query, _depth(dtype)
    a_layout, b_layout = operand_layouts(q, dtype)
    out = []
    for wm, wn in warp_splits(q, _TILE, _TILE):
        mt, nt = q.m // (_TILE * wm), q.n // (_TILE * wn)
        # Cycles of an SM quarter for one step of k: products, and loads through the shared pipe of four quarters.
        product = (mt * nt * _PRODUCT + 8.0 * mt + 8.0 * nt) * q.k / depth
        for lanes, slots in _DELIVERY.items():
            if nt * _TILE % (lanes * _VECTOR):
                continue
            cost = product + slots * 8 * mt * nt
            if q.whole_rows:  # a maximum and a sum over the lanes of every row of a thread
                cost += 4 * (mt * _TILE * lanes // WARP) * log2(lanes)
            out.append(
                WmmaPlan(
                    room=name, kind=kind, query=q, c_layout=delivered_layout(q.m, q.n, wm, wn, lanes),
                    a_layout=a_layout, b_layout=b_layout, a_dtype=dtype, b_dtype=dtype,
                    rounding="tf32" if kind == "tf32" else "", row_split=(wm, WARP // lanes), cost=cost,
                    scratch=_scratch(q.warps, lanes * _VECTOR),
                    wm=wm, wn=wn, mt=mt, nt=nt, lanes=lanes, ahead=_ahead(q, dtype, mt, nt),
                    description=f"{mt}x{nt} fragments of 16x16 a warp, warps {wm}x{wn}, k in steps of {depth}",
                )  # fmt: skip
            )
    fitting = [p for p in out if 8 * p.mt * p.nt <= _MAX_ACCUMULATORS]
    return fitting or out


def _scratch(warps: int, span: int) -> SharedLayout:
    """16 rows for every warp, 8 or 24 words apart modulo 32."""
    return SharedLayout((warps * _TILE, span), DType.F32.bytes, (0, 1), span + 8)
