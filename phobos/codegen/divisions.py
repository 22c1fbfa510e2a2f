"""Division of a tile by one value per row where the quotient is rounded to half precision.

IEEE division of every element costs a dozen instructions and a branch. Here each row has one reciprocal, and each
element a product and one correction step (Markstein, "Computation of elementary functions on the IBM RISC System/6000",
1990): correctly rounded as long as no step overflows or underflows. Rows whose divisor is outside [2^-60, 2^60] divide
plainly; for the others an underflow of the correction lies far below what f16 or bf16 can show.
"""

from __future__ import annotations

from phobos.codegen.context import Printer
from phobos.ir.scheduled import Map
from phobos.ir.storage import Apply, Convert, Expr, FragmentRef, Position, expr_walk
from phobos.ir.types import DType
from phobos.layout.loops import loops, plan

_NARROW = (DType.F16, DType.BF16)
_LEAST, _MOST = "8.6736174e-19f", "1.1529215e+18f"  # 2^-60, 2^60


def row_division(p: Printer, s: Map) -> bool:
    """Prints the statement if it is such a division; False leaves it to the caller."""
    value = s.value
    if not (isinstance(value, Convert) and value.dtype in _NARROW and s.unless_one is None):
        return False
    division = value.arg
    if not (isinstance(division, Apply) and division.fn == "div" and division.dtype is DType.F32 and not division.fast):
        return False
    layout = s.target.layout
    left, right = division.args
    spread = _spread_axes(right, layout.shape)
    if len(spread) != 1 or not any(d.axis in spread for d in layout.reg):
        return False
    rows = tuple(a for a in range(layout.rank) if a not in spread)
    target = FragmentRef(s.target.dtype, s.target)
    nest = plan(layout, p.threads, (left, right, target), merge=False, outer=rows)
    outer = [g for g in nest.groups if layout.reg[g.digits[0]].axis in rows]
    inner = [g for g in nest.groups if g not in outer]
    w = p.writer
    narrow = f"ph_cvt<{p.ctype(value.dtype)}>"
    slot, dividend = nest.fragment(target), p.element(left, nest)
    if not outer:
        w.open("")
    with loops(w, outer):
        w.line(f"const float div_b = {p.element(right, nest)};")
        w.line("const float div_r = 1.0f / div_b;")
        w.open(f"if (ph_abs(div_b) > {_LEAST} && ph_abs(div_b) < {_MOST})")
        with loops(w, inner):
            w.line(f"const float div_a = {dividend};")
            w.line("const float div_q = div_a * div_r;")
            w.line("const float div_e = ph_fma(-div_b, div_q, div_a);")
            w.line(f"{slot} = {narrow}(ph_isnan(div_e) ? div_q : ph_fma(div_e, div_r, div_q));")
        w.reopen("else")
        with loops(w, inner):
            w.line(f"{slot} = {narrow}({dividend} / div_b);")
        w.close()
    if not outer:
        w.close()
    return True


def _spread_axes(e: Expr, shape: tuple[int, ...]) -> set[int]:
    """Axes along which the expression is the same for all positions, if it reads fragments at all."""
    same: set[int] | None = None
    for x in expr_walk(e):
        if isinstance(x, Position):
            return set()
        if isinstance(x, FragmentRef):
            if x.axes is not None:
                return set()
            mine = {a for a, n in enumerate(x.fragment.layout.shape) if n == 1 and shape[a] != 1}
            same = mine if same is None else same & mine
    return same or set()
