"""Contractions by warp matrix instructions (wmma, 16x16x16 and for tf32 16x16x8) with opaque fragments.

A warp owns mt x nt fragments of 16 x 16 results. Which lane holds which element of a fragment is not defined, so the room
offers a loop that carries its sum in fragments (`OpaquePlan`), and otherwise *delivers* results into registers of a known
layout through shared memory: 16 rows by `span` columns at a time, each warp in its own part, so that no other warp need
wait. The known layout gives a warp the very results that its fragments hold.

Shared memory. Rows of operands are whole 16-byte chunks and, padded, an odd number of them (`padded_pitch`): wmma loads of
16-bit and of k-contiguous 32-bit operands are matrix loads of eight rows of 16 bytes, which then start in eight different
bank groups. Fragments start on 32 bytes, as the instructions ask: 16 rows are whole 256 bytes, 16 columns of 16-bit and 8 of
32-bit elements are 32 bytes. Rows of delivered results are 8 or 24 words apart modulo 32: stores by half-warps take four
rows of 32 bytes, reads whole rows of at least 128 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log2

from phobos.contraction.interface import ContractionQuery, OpaquePlan, padded_pitch
from phobos.ir.c_names import C_TYPES
from phobos.ir.types import DType
from phobos.layout.register import WARP, Digit, RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter

name = "wmma"
_TILE = 16  # rows and columns of results of one fragment
_MAX_ACCUMULATORS = 128
_KINDS = {"f16": DType.F16, "bf16": DType.BF16, "tf32": DType.F32}  # roundings of f32 operands -> stored dtype
_VECTOR = 4  # results of a thread in one access to delivered rows
# Issue slots to deliver one result of a thread, by lanes along a row: four lanes' rows collide in banks, and sixteen give
# global stores of whole 128-byte lines.
_DELIVERY = {4: 4.0, 8: 2.5, 16: 2.0}


@dataclass(frozen=True, kw_only=True)
class WmmaPlan(OpaquePlan):
    """wm x wn warps with mt x nt fragments each; results are delivered with `lanes` lanes along a row."""

    wm: int
    wn: int
    mt: int
    nt: int
    lanes: int
    ahead: bool  # fragments of the next step are loaded before the products of this one

    @property
    def depth(self) -> int:
        return _depth(self.a_dtype)

    @property
    def span(self) -> int:
        """Columns delivered at a time."""
        return self.lanes * _VECTOR

    @property
    def accumulators(self) -> tuple[object, ...]:
        return name, self.depth, self.query.m, self.query.n, self.wm, self.wn

    # --- the product -----------------------------------------------------------------------

    def emit(self, out: TextWriter, accumulator: str, a: str, b: str, *, a_in_registers: bool = False) -> None:
        q = self.query
        ctype_a, ctype_b = C_TYPES[self.a_dtype], C_TYPES[self.b_dtype]
        pa, pb = self.a_layout.pitch, self.b_layout.pitch
        steps = q.k // self.depth
        ahead = self.ahead and steps > 1
        warp_m = "" if self.wm == 1 else "warp" if self.wn == 1 else f"(warp / {self.wn})"
        warp_n = "" if self.wn == 1 else "warp" if self.wm == 1 else f"(warp % {self.wn})"
        a_start = f" + {warp_m} * {_TILE * self.mt * pa}" if warp_m else ""
        b_start = f" + {warp_n} * {_TILE * self.nt * (pb if q.transpose_b else 1)}" if warp_n else ""
        column_major = "true" if q.transpose_b else "false"
        a_step, a_row = self.depth, _TILE * pa
        b_step, b_column = (self.depth, _TILE * pb) if q.transpose_b else (self.depth * pb, _TILE)
        sets = "[2]" if ahead else ""

        def load(which: str, slot: str, count: int, at: str) -> None:
            out.line("PH_UNROLL")
            out.line(f"for (int i = 0; i < {count}; ++i) ph_wmma_load_{which}({which}_reg{slot}[i], {at});", memory=True)

        def load_both(slot: str, step: str) -> None:
            load("a", slot, self.mt, f"a_tile + (i * {a_row} + {step} * {a_step}), {pa}")
            load("b", slot, self.nt, f"b_tile + (i * {b_column} + {step} * {b_step}), {pb}")

        out.open("")
        out.line(f"const ph_shared<const {ctype_a}> a_tile = {a}{a_start};")
        out.line(f"const ph_shared<const {ctype_b}> b_tile = {b}{b_start};")
        if ahead:
            out.line(f"ph_wmma_a<{ctype_a}, false> a_reg{sets}[{self.mt}];")
            out.line(f"ph_wmma_b<{ctype_b}, {column_major}> b_reg{sets}[{self.nt}];")
            load_both("[0]", "0")
        out.line("PH_UNROLL")
        out.open(f"for (int kk = 0; kk < {steps}; ++kk)")
        if ahead:
            out.open(f"if (kk + 1 < {steps})")
            load_both("[(kk + 1) % 2]", "(kk + 1)")
            out.close()
            a_now, b_now = "a_reg[kk % 2][i]", "b_reg[kk % 2][j]"
        else:
            out.line(f"ph_wmma_a<{ctype_a}, false> a_reg[{self.mt}];")
            load("a", "", self.mt, f"a_tile + (i * {a_row} + kk * {a_step}), {pa}")
            a_now, b_now = "a_reg[i]", "b_reg"
        out.line("PH_UNROLL")
        out.open(f"for (int j = 0; j < {self.nt}; ++j)")
        if not ahead:
            out.line(f"ph_wmma_b<{ctype_b}, {column_major}> b_reg;")
            out.line(f"ph_wmma_load_b(b_reg, b_tile + (j * {b_column} + kk * {b_step}), {pb});", memory=True)
        out.line("PH_UNROLL")
        out.line(
            f"for (int i = 0; i < {self.mt}; ++i) ph_wmma_mma({accumulator}[i * {self.nt} + j], {a_now}, {b_now});",
            memory=True,
        )
        out.close()
        out.close()
        out.close()

    # --- opaque accumulators ---------------------------------------------------------------

    def declare(self, out: TextWriter, accumulator: str) -> None:
        out.line(f"{'ph_wmma_c_tf32' if self.a_dtype is DType.F32 else 'ph_wmma_c'} {accumulator}[{self.mt * self.nt}];")

    def fill(self, out: TextWriter, accumulator: str, value: str) -> None:
        out.line("PH_UNROLL")
        out.line(f"for (int i = 0; i < {self.mt * self.nt}; ++i) ph_wmma_fill({accumulator}[i], {value});")

    def store(self, out: TextWriter, accumulator: str, target: str, scratch: str, *, add: bool) -> None:
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

    def load(self, out: TextWriter, accumulator: str, source: str, scratch: str) -> None:
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
        """Loops over row tiles i and column pieces j, with `tile` the warp's part of the scratch; gives the index in it of the
        lane's elements in row step r."""
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


def _depth(stored: DType) -> int:
    """k of one instruction."""
    return 8 if stored is DType.F32 else 16


def stored_dtype(query: ContractionQuery) -> tuple[DType, str] | None:
    """(dtype in shared memory, kind) that this room would use, or None."""
    if query.operand in (DType.F16, DType.BF16):
        return query.operand, "ieee"
    if query.operand is DType.F32:
        for kind in query.kinds:
            if kind in _KINDS:
                return _KINDS[kind], kind
    return None


def reject(query: ContractionQuery) -> str | None:
    if query.options.matmul not in ("auto", "wmma"):
        return f"the option matmul = {query.options.matmul} excludes it"
    stored = stored_dtype(query)
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
    for extent, unit, what in ((query.m, _TILE, "m"), (query.n, _TILE, "n"), (query.k, _depth(dtype), "k")):
        if extent % unit:
            return f"{what} = {extent} is not a multiple of {unit}"
    if not _splits(query):
        return f"{query.warps} warps cannot share {query.m} x {query.n} results in fragments of 16 x 16"
    return None


def _splits(query: ContractionQuery) -> list[tuple[int, int]]:
    return [
        (wm, query.warps // wm)
        for wm in range(1, query.warps + 1)
        if query.warps % wm == 0 and query.m % (_TILE * wm) == 0 and query.n % (_TILE * (query.warps // wm)) == 0
    ]


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


def _ahead(query: ContractionQuery, mt: int, nt: int) -> bool:
    """Two sets of fragments hide the latency of loads, if registers allow (beside an online softmax they do not)."""
    if query.options.overlap != "auto":
        return query.options.overlap == "on"
    return not query.whole_rows and 8 * mt * nt + 2 * 4 * (mt + nt) <= 160


def plans(query: ContractionQuery) -> Sequence[WmmaPlan]:
    stored = stored_dtype(query)
    assert stored is not None
    dtype, kind = stored
    q, item, pad, depth = query, dtype.bytes, query.options.pad != "off", _depth(dtype)
    a_layout = SharedLayout((q.m, q.k), item, (0, 1), padded_pitch(q.k, item, pad))
    b_shape = (q.n, q.k) if q.transpose_b else (q.k, q.n)
    pitch = padded_pitch(b_shape[1], item, pad)
    if dtype is DType.F32 and not q.transpose_b and pad:
        # Plain reads of four rows by eight columns: rows must be 8 banks apart.
        pitch = b_shape[1] + (8 - b_shape[1]) % 32
    b_layout = SharedLayout(b_shape, item, (0, 1), pitch)
    out = []
    for wm, wn in _splits(q):
        mt, nt = q.m // (_TILE * wm), q.n // (_TILE * wn)
        # Cycles of an SM quarter for one step of k: products, and matrix loads through the shared pipe of four quarters.
        product = (mt * nt * 32.0 + 16.0 * mt + 16.0 * nt) * q.k / depth
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
                    wm=wm, wn=wn, mt=mt, nt=nt, lanes=lanes, ahead=_ahead(q, mt, nt),
                    description=f"{mt}x{nt} fragments of 16x16 a warp, warps {wm}x{wn}, k in steps of {depth}",
                )  # fmt: skip
            )
    fitting = [p for p in out if 8 * p.mt * p.nt <= _MAX_ACCUMULATORS]
    return fitting or out


def _scratch(warps: int, span: int) -> SharedLayout:
    """16 rows for every warp, 8 or 24 words apart modulo 32."""
    return SharedLayout((warps * _TILE, span), DType.F32.bytes, (0, 1), span + 8)
