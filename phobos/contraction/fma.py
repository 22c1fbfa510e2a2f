"""Contractions by fused multiply-add on registers tiles: the path that takes any shape, dtype and target.

Each thread owns tm x tn results. Per step of kv elements of k it reads kv elements of tm rows of a and of tn rows (or
kv rows of tn columns) of b from shared memory in vector accesses, then multiplies in an order that snakes over
columns, so that consecutive FMAs share a register operand (the register cache of the FMA pipe: 5 % of a big GEMM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phobos.contraction import fma_columns
from phobos.contraction.interface import ContractionPlan, ContractionQuery, padded_pitch, warp_texts
from phobos.ir.c_names import C_TYPES
from phobos.layout.register import WARP, Digit, RegisterLayout
from phobos.layout.shared import SharedLayout
from phobos.layout.text import TextWriter

name = "fma"
_MAX_ACCUMULATORS = 160  # of 255 registers; operands and addresses need the rest
# Issue slots of a scheduler for one shared wavefront: the four schedulers share one pipe, and it stalls.
_WAVEFRONT = 8.0
# FMAs of the unrolled loop body. Larger bodies miss the instruction cache and raise the register count: attention with
# 64 x 32 tiles on an H200 ran at 13.5 TFLOP/s with 512 and at 8.5 with 1024.
_BODY_FMAS = 512

@dataclass(frozen=True, kw_only=True)
class FmaPlan(ContractionPlan):
    """Thread tile tm x tn, lanes lm x ln, warps wm x wn; `kv` elements of k and `nv` of n per access."""

    wm: int
    wn: int
    lm: int
    ln: int
    tm: int
    tn: int
    kv: int
    nv: int

    @property
    def operand_registers(self) -> int:
        words = max(1, self.query.operand.bytes // 4)
        return (self.tm + self.tn) * self.kv * words

    def emit(
        self, out: TextWriter, accumulator: str, a: str, b: str, *, a_in_registers: bool = False,
        a_name: str | None = None,
    ) -> None:  # fmt: skip
        q = self.query
        operand, acc = C_TYPES[q.operand], C_TYPES[q.accumulator]
        pa, pb = self.a_layout.pitch, self.b_layout.pitch
        out.open("")
        out.line(f"const ph_shared<const {operand}> a_tile = {a};")
        out.line(f"const ph_shared<const {operand}> b_tile = {b};")
        warp_m, warp_n = warp_texts(self.wm, self.wn)
        lane_m = "" if self.lm == 1 else "lane" if self.ln == 1 else f"lane / {self.ln}"
        lane_n = "" if self.ln == 1 else f"lane % {self.ln}"
        out.line(f"const int a_row = {_sum((warp_m, self.lm * self.tm), (lane_m, 1))};")
        step_n = 1 if q.transpose_b else self.nv
        out.line(f"const int b_col = {_sum((warp_n, self.ln * self.tn), (lane_n, step_n))};")
        unroll = max(1, _BODY_FMAS // (self.kv * self.tm * self.tn))
        trips = q.k // self.kv
        out.line("PH_UNROLL" if unroll >= trips else f"PH_UNROLL_N({unroll})")
        out.open(f"for (int kk = 0; kk < {q.k}; kk += {self.kv})")
        out.line(f"ph_vec<{operand}, {self.kv}> a_reg[{self.tm}];")
        row = _clamped("a_row", f"i * {self.lm}", q.m, 1, self.c_layout.padded(0))
        out.line("PH_UNROLL")
        out.line(
            f"for (int i = 0; i < {self.tm}; ++i) "
            f"a_reg[i] = ph_ldv<ph_vec<{operand}, {self.kv}>>(a_tile, {row} * {pa} + kk);",
            memory=True,
        )
        if q.transpose_b:
            out.line(f"ph_vec<{operand}, {self.kv}> b_reg[{self.tn}];")
            col = _clamped("b_col", f"j * {self.ln}", q.n, 1, self.c_layout.padded(1))
            out.line("PH_UNROLL")
            out.line(
                f"for (int j = 0; j < {self.tn}; ++j) "
                f"b_reg[j] = ph_ldv<ph_vec<{operand}, {self.kv}>>(b_tile, {col} * {pb} + kk);",
                memory=True,
            )
            b_element = "b_reg[j].v[u]"
        else:
            pieces = self.tn // self.nv
            out.line(f"ph_vec<{operand}, {self.nv}> b_reg[{self.kv}][{pieces}];")
            col = _clamped("b_col", f"j * {self.ln * self.nv}", q.n, self.nv, self.c_layout.padded(1))
            out.line("PH_UNROLL")
            out.line(f"for (int u = 0; u < {self.kv}; ++u)")
            out.line("  PH_UNROLL")
            out.line(
                f"  for (int j = 0; j < {pieces}; ++j) b_reg[u][j] = "
                f"ph_ldv<ph_vec<{operand}, {self.nv}>>(b_tile, (kk + u) * {pb} + {col});",
                memory=True,
            )
            b_element = f"b_reg[u][j / {self.nv}].v[j % {self.nv}]" if self.nv > 1 else "b_reg[u][j].v[0]"
        out.line("PH_UNROLL")
        out.line(f"for (int u = 0; u < {self.kv}; ++u)")
        out.line("  PH_UNROLL")
        out.line(f"  for (int j = 0; j < {self.tn}; ++j)")
        out.line("    PH_UNROLL")
        out.open(f"    for (int step = 0; step < {self.tm}; ++step)")
        out.line(f"const int i = (j & 1) ? {self.tm - 1} - step : step;")
        left, right = _widen(operand, acc, "a_reg[i].v[u]"), _widen(operand, acc, b_element)
        target = f"{accumulator}[i * {self.tn} + j]"
        if q.accumulator.is_float:
            out.line(f"{target} = ph_fma({left}, {right}, {target});")
        else:
            out.line(f"{target} = ({acc})((unsigned){target} + (unsigned)({left} * {right}));")
        out.close()
        out.close()
        out.close()


def _sum(*terms: tuple[str, int]) -> str:
    """The sum of term times factor, without what is zero or one."""
    parts = []
    for text, factor in terms:
        if text:
            parts.append(text if factor == 1 else f"{f'({text})' if ' ' in text else text} * {factor}")
    return " + ".join(parts) or "0"


def _clamped(base: str, offset: str, extent: int, width: int, padded: bool) -> str:
    """Position base + offset; rows past the tile repeat its last one, whose results nobody reads."""
    position = f"({base} + {offset})"
    return f"ph_min({base} + {offset}, {extent - width})" if padded else position


def _widen(operand: str, accumulator: str, text: str) -> str:
    return text if operand == accumulator else f"ph_cvt<{accumulator}>({text})"


def reject(query: ContractionQuery) -> str | None:
    if "ieee" not in query.kinds:
        return f"computes with unrounded operands, the kernel demands {' or '.join(query.kinds)}"
    if query.options.matmul not in ("auto", "fma"):
        return f"the option matmul = {query.options.matmul} excludes it"
    if query.require:
        return "`@tensorcore(require)` demands tensor cores, which it does not use"
    if query.operand not in C_TYPES or query.accumulator not in C_TYPES:
        return f"no multiply-add for {query.operand}"
    return None


def _vector(extent: int, pitch: int, itemsize: int, at_most: int) -> int:
    width = 1
    while (
        width * 2 <= at_most and width * 2 * itemsize <= 16 and extent % (width * 2) == 0 and pitch % (width * 2) == 0
    ):
        width *= 2
    return width


def plans(query: ContractionQuery) -> Sequence[ContractionPlan]:
    q = query
    if columns := fma_columns.plans(q):
        return columns
    item = q.operand.bytes
    pad = q.options.pad != "off"
    vectorize = q.options.vectorize != "off"
    pa = padded_pitch(q.k, item, pad)
    b_shape = (q.n, q.k) if q.transpose_b else (q.k, q.n)
    pb = padded_pitch(b_shape[1], item, pad)
    a_layout = SharedLayout((q.m, q.k), item, (0, 1), pa)
    b_layout = SharedLayout(b_shape, item, (0, 1), pb)
    out: list[FmaPlan] = []
    for wm in (w for w in range(1, q.warps + 1) if q.warps % w == 0):
        wn = q.warps // wm
        for lm in (1, 2, 4, 8, 16, 32):
            ln = WARP // lm
            tm, tn = -(-q.m // (wm * lm)), -(-q.n // (wn * ln))
            kv = _vector(q.k, pa, item, 4) if vectorize else 1
            if q.transpose_b:
                kv = min(kv, _vector(q.k, pb, item, 4)) if vectorize else 1
                nv = 1
            else:
                nv = _vector(q.n, pb, item, 4) if vectorize else 1
                tn = -(-tn // nv) * nv
                if nv > 1 and ln * wn * nv > 2 * q.n:  # lanes without work: narrower pieces use more of them
                    nv, tn = 1, -(-q.n // (wn * ln))
            # Issue slots for 4 elements of k: FMAs, and shared wavefronts (an access of more than 8 distinct 16-byte
            # pieces needs several).
            fmas = 4 * tm * tn
            a_loads = 4 / kv * tm * max(1.0, lm * kv * item / 128)
            b_loads = 4 / kv * tn * max(1.0, ln * kv * item / 128) if q.transpose_b else (
                4 * tn / nv * max(1.0, ln * nv * item / 128)
            )
            cost = (fmas + _WAVEFRONT * (a_loads + b_loads)) * q.k / 4
            out.append(_plan(q, a_layout, b_layout, (wm, wn, lm, ln, tm, tn, kv, nv), cost))
    fitting = [p for p in out if p.tm * p.tn <= _MAX_ACCUMULATORS]
    return fitting or out


def _plan(
    q: ContractionQuery,
    a_layout: SharedLayout,
    b_layout: SharedLayout,
    split: tuple[int, int, int, int, int, int, int, int],
    cost: float,
) -> FmaPlan:
    wm, wn, lm, ln, tm, tn, kv, nv = split
    columns = [Digit(1, nv, 1)] if nv > 1 else []
    if tn // nv > 1:
        columns.append(Digit(1, tn // nv, nv * ln))
    rows = [Digit(0, tm, lm)] if tm > 1 else []
    lanes = []
    if ln > 1:
        lanes.append(Digit(1, ln, nv))
    if lm > 1:
        lanes.append(Digit(0, lm, 1))
    warps = []
    if wn > 1:
        warps.append(Digit(1, wn, ln * tn))
    if wm > 1:
        warps.append(Digit(0, wm, lm * tm))
    layout = RegisterLayout.make((q.m, q.n), columns + rows, lanes, warps)
    return FmaPlan(
        room=name, kind="ieee", a_dtype=q.operand, b_dtype=q.operand, query=q, c_layout=layout,
        a_layout=a_layout, b_layout=b_layout, row_split=(wm, lm),
        cost=cost, wm=wm, wn=wn, lm=lm, ln=ln, tm=tm, tn=tn, kv=kv, nv=nv,
        description=f"{tm}x{tn} results a thread, lanes {lm}x{ln}, warps {wm}x{wn}, operands by {kv} along k"
        + (f", {nv} along n" if nv > 1 else ""),
    )  # fmt: skip
