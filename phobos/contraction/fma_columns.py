"""Multiply-add products of tiles that are stored one line for each k: a part of the fma room.

An operand whose rows run along k is transposed on its way to shared memory (asynchronous copies of single elements: a
warp brings 8 of four rows, whose places lie in 32 different banks). A thread then reads what one k needs in 16-byte
pieces of neighbouring rows and columns, a step ahead of its products, and multiplies in an order that snakes over
columns. In the layout of fma.py it reads four k at once, and ptxas mixes them, so that consecutive multiply-adds no
longer share a register: 0.80 of cuBLAS for 4096^3 on an H200, 1.01 this way.
"""

from __future__ import annotations

from dataclasses import dataclass

from phobos.contraction.interface import ContractionPlan, ContractionQuery, Staged, columns_of, warp_texts
from phobos.ir.c_names import C_TYPES
from phobos.ir.types import DType
from phobos.layout.register import WARP, Digit, RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter

# Issue slots of a scheduler for a load of 16 bytes: it is a step ahead of its products, which hide it.
_LOAD = 2.0
PIECE = 4  # elements of 16 bytes
_PAD = 4  # lines start 4 banks apart
# Multiply-adds of a loop body, all unrolled: 2048 are 35 KB of instructions. On an H200 they are no slower than 1024
# (128x256x16 and x8: 2666 and 2872 us for 4096^3); bodies of 4096 were not tried.
_MOST_IN_BODY = 2048
_REGISTERS = 224  # of 255: addresses need the rest


@dataclass(frozen=True, kw_only=True)
class ColumnsPlan(ContractionPlan):
    """Thread tile tm x tn in pieces of four, lanes lm x ln, warps wm x wn."""

    wm: int
    wn: int
    lm: int
    ln: int
    tm: int
    tn: int

    @property
    def operand_registers(self) -> int:
        return 2 * (self.tm + self.tn)

    @property
    def steps(self) -> int:
        return self.query.k

    @property
    def address_registers(self) -> int:
        return 0  # one place for each operand, constants beside it

    def emit(
        self, out: TextWriter, accumulator: str, a: str, b: str, *, a_in_registers: bool = False,
        a_name: str | None = None,
    ) -> None:  # fmt: skip
        out.open("")
        self._places(out, "a_at", "b_at", a, b)
        out.line("PH_UNROLL")
        out.open(f"for (int kk = 0; kk < {self.query.k}; ++kk)")
        for name, count in (("a_reg", self.tm), ("b_reg", self.tn)):
            out.line(f"{self._element} {name}[{count}];")
        self._load(out, "a_reg", "a_at", self.tm, self.lm, f"kk * {self._line(self.a_layout)}")
        self._load(out, "b_reg", "b_at", self.tn, self.ln, f"kk * {self._line(self.b_layout)}")
        self._multiply(out, accumulator, "a_reg", "b_reg", (0, 1))
        out.close()
        out.close()

    def declare(self, out: TextWriter, name: str, a: str, b: str) -> None:
        for side, count in (("a", self.tm), ("b", self.tn)):
            out.line(f"{self._element} {name}_{side}[2][{count}];")
        self._places(out, f"{name}_a_at", f"{name}_b_at", a, b)

    def load(self, out: TextWriter, name: str, slot: int, step: int, a: Staged, b: Staged) -> None:
        for side, tile, layout, count, lanes in (
            ("a", a, self.a_layout, self.tm, self.lm),
            ("b", b, self.b_layout, self.tn, self.ln),
        ):
            at = f"{tile.offset} + {step * self._line(layout)}"
            self._load(out, f"{name}_{side}[{slot}]", f"{name}_{side}_at", count, lanes, at)

    def multiply(
        self, out: TextWriter, name: str, slot: int, accumulator: str, part: tuple[int, int] = (0, 1)
    ) -> None:
        self._multiply(out, accumulator, f"{name}_a[{slot}]", f"{name}_b[{slot}]", part)

    @property
    def _element(self) -> str:
        return C_TYPES[self.query.operand]

    @staticmethod
    def _line(layout: SharedLayout) -> int:
        """Bytes from one k to the next."""
        return layout.pitch * layout.itemsize

    def _places(self, out: TextWriter, a_at: str, b_at: str, a: str, b: str) -> None:
        """Declares a_at and b_at: where this thread's first row and column lie in the tiles at `a` and `b`."""
        warp_m, warp_n = warp_texts(self.wm, self.wn)
        for name, tile, warp, per_warp, lane in (
            (a_at, a, warp_m, self.lm * self.tm, f"lane / {self.ln}"),
            (b_at, b, warp_n, self.ln * self.tn, f"lane % {self.ln}"),
        ):
            first = f"({warp}) * {per_warp} + {lane} * {PIECE}" if warp else f"{lane} * {PIECE}"
            out.line(f"const unsigned {name} = ph_place({tile} + ({first}));")

    def _load(self, out: TextWriter, registers: str, place: str, count: int, lanes: int, at: str) -> None:
        """What one k needs of a tile, whose line begins `at` bytes behind the place."""
        vector = f"ph_vec<{self._element}, {PIECE}>"
        out.line("PH_UNROLL")
        out.open(f"for (int i = 0; i < {count // PIECE}; ++i)")
        apart = PIECE * lanes * self.query.operand.bytes
        out.line(f"const {vector} piece = ph_ldp<{vector}>({place} + {at} + i * {apart});", memory=True)
        out.line("PH_UNROLL")
        out.line(f"for (int v = 0; v < {PIECE}; ++v) {registers}[i * {PIECE} + v] = piece.v[v];")
        out.close()

    def _multiply(self, out: TextWriter, accumulator: str, a: str, b: str, part: tuple[int, int]) -> None:
        first, end = columns_of(part, self.tn)
        if first == end:
            return
        out.line("PH_UNROLL")
        out.open(f"for (int j = {first}; j < {end}; ++j)")
        out.line("PH_UNROLL")
        out.open(f"for (int n = 0; n < {self.tm}; ++n)")
        out.line(f"const int i = (j & 1) ? {self.tm - 1} - n : n;")
        target = f"{accumulator}[i * {self.tn} + j]"
        out.line(f"{target} = ph_fma({a}[i], {b}[j], {target});")
        out.close()
        out.close()


def plans(query: ContractionQuery) -> list[ColumnsPlan]:
    """Arrangements of f32 products whose operands come from memory in a loop; none where the layout does not suit."""
    q = query
    if not (q.operand is q.accumulator is DType.F32 and q.target.has_cp_async):
        return []
    if q.whole_rows or q.a_computed or q.options.vectorize == "off" or q.options.overlap == "off" or q.k % 2:
        return []
    out = []
    for wm in (w for w in range(1, q.warps + 1) if q.warps % w == 0):
        wn = q.warps // wm
        for lm in (2, 4, 8, 16):
            ln = WARP // lm
            tm, tn = q.m // (wm * lm), q.n // (wn * ln)
            if tm * wm * lm != q.m or tn * wn * ln != q.n or tm % PIECE or tn % PIECE or not tm * tn:
                continue
            if tm * tn * q.k > _MOST_IN_BODY or tm * tn + 2 * (tm + tn) > _REGISTERS:
                continue
            # Of two alike the one with longer rows: whole lines are stored, and more multiply-adds share a column.
            loads = 1.01 * tm / PIECE * max(1.0, lm / 8) + tn / PIECE * max(1.0, ln / 8) + 0.1 * (ln < 8)
            out.append(_plan(q, (wm, wn, lm, ln, tm, tn), (tm * tn + _LOAD * loads) * q.k))
    return out


def _plan(q: ContractionQuery, split: tuple[int, int, int, int, int, int], cost: float) -> ColumnsPlan:
    wm, wn, lm, ln, tm, tn = split
    item = q.operand.bytes
    layout = RegisterLayout.make(
        (q.m, q.n),
        [Digit(1, PIECE, 1), Digit(1, tn // PIECE, PIECE * ln), Digit(0, PIECE, 1),
         Digit(0, tm // PIECE, PIECE * lm)],
        [Digit(1, ln, PIECE), Digit(0, lm, PIECE)],
        [Digit(a, w, n) for a, w, n in ((1, wn, ln * tn), (0, wm, lm * tm)) if w > 1],
    )  # fmt: skip
    return ColumnsPlan(
        room="fma", kind="ieee", a_dtype=q.operand, b_dtype=q.operand, query=q, c_layout=layout,
        a_layout=_transposed((q.m, q.k)),
        b_layout=_transposed((q.n, q.k)) if q.transpose_b else SharedLayout((q.k, q.n), item, (0, 1), q.n),
        row_split=(wm, lm), cost=cost, ahead=True, wm=wm, wn=wn, lm=lm, ln=ln, tm=tm, tn=tn,
        description=f"{tm}x{tn} results a thread, lanes {lm}x{ln}, warps {wm}x{wn}, one k at a time, "
        + ("both transposed" if q.transpose_b else "a transposed"),
    )  # fmt: skip


def _transposed(shape: tuple[int, int]) -> SharedLayout:
    return SharedLayout(shape, DType.F32.bytes, (1, 0), shape[0] + _PAD)
