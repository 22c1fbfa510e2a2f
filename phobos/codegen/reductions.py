"""Reductions and scans as C++ text."""

from __future__ import annotations

from phobos.codegen.context import Printer
from phobos.ir.scheduled import ReduceCollect, ReducePublish, ReduceRegisters, ScanShared
from phobos.ir.storage import Expr, Fragment, FragmentRef
from phobos.ir.types import DType
from phobos.layout.loops import Nest, loops, plan
from phobos.layout.register import RegisterLayout
from phobos.transfer.plain import padding_tests

_LOWEST = {
    DType.I8: ("-128", "127"), DType.U8: ("0", "255"), DType.I32: ("(-2147483647 - 1)", "2147483647"),
    DType.U32: ("0u", "4294967295u"), DType.I64: ("(-9223372036854775807LL - 1)", "9223372036854775807LL"),
    DType.BOOL: ("false", "true"),
}  # fmt: skip
_INDEX_LIMIT = "2147483647"


def _identity(p: Printer, kind: str, dtype: DType, init: Expr | None) -> str:
    if kind == "custom":
        assert init is not None
        return p.scalar(init)
    if kind in ("sum", "prod"):
        return p.literal(0 if kind == "sum" else 1, dtype)
    low = kind in ("max", "argmax")
    if dtype.is_float:
        return p.literal(float("-inf") if low else float("inf"), dtype)
    if dtype is DType.INDEX:
        dtype = DType.I32 if p.schedule.index_bits == 32 else DType.I64
    return _LOWEST[dtype][0 if low else 1]


def _combined(p: Printer, kind: str, dtype: DType, a: str, b: str) -> str:
    """One step of a built-in reduction."""
    if kind in ("sum", "prod"):
        op = "+" if kind == "sum" else "*"
        if dtype in (DType.I32, DType.I64):
            unsigned = "unsigned" if dtype is DType.I32 else "ph_u64"
            return f"({p.ctype(dtype)})(({unsigned}){a} {op} ({unsigned}){b})"
        if dtype in (DType.I8, DType.U8):
            return f"({p.ctype(dtype)})({a} {op} {b})"
        return f"{a} {op} {b}"
    if dtype in (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2):
        return f"ph_cvt<{p.ctype(dtype)}>(ph_{kind}(ph_cvt<float>({a}), ph_cvt<float>({b})))"
    return f"ph_{kind}<{p.ctype(dtype)}>({a}, {b})" if dtype.is_integer else f"ph_{kind}({a}, {b})"


def _better(kind: str, dtype: DType) -> str:
    """Is (v, n) before (best_v, best_n)? A NaN comes before any number, and ties go to the first index."""
    sign = ">" if kind == "argmax" else "<"
    if not dtype.is_float:
        return f"v {sign} total || (v == total && n < at)"
    a, b = ("v", "total") if dtype in (DType.F32, DType.F64) else ("ph_cvt<float>(v)", "ph_cvt<float>(total)")
    same = f"({a} == {b} || (ph_isnan({a}) && ph_isnan({b})))"
    return f"{a} {sign} {b} || (ph_isnan({a}) && !ph_isnan({b})) || ({same} && n < at)"


class _Step:
    """Prints `total = total (+) v`, with the index beside it for argmax and argmin."""

    def __init__(self, p: Printer, kind: str, dtype: DType, combine: Expr | None, init: Expr | None):
        self.p, self.kind, self.dtype, self.combine = p, kind, dtype, combine
        self.identity = _identity(p, kind, dtype, init)
        self.indexed = kind in ("argmax", "argmin")
        self.ctype = p.ctype(dtype)

    def begin(self) -> None:
        self.p.writer.line(f"{self.ctype} total = {self.identity};")
        if self.indexed:
            self.p.writer.line(f"int at = {_INDEX_LIMIT};")

    def add(self, value: str, index: str = "", *, memory: bool = False) -> None:
        w = self.p.writer
        if self.indexed:
            w.open("")
            w.line(f"const {self.ctype} v = {value};", memory=memory)
            w.line(f"const int n = {index};", memory=memory)
            w.line(f"if ({_better(self.kind, self.dtype)}) {{ total = v; at = n; }}")
            w.close()
        elif self.combine is not None:
            w.open("")
            w.line(f"const {self.ctype} a = total;")
            w.line(f"const {self.ctype} b = {value};", memory=memory)
            w.line(f"total = {self.p.scalar(self.combine)};")
            w.close()
        else:
            if memory:  # a p[i] must be read into a typed variable before it goes to an overloaded helper
                w.line(f"const {self.ctype} v = {value};", memory=True)
                value = "v"
            w.line(f"total = {_combined(self.p, self.kind, self.dtype, 'total', value)};")

    def finish(self, targets: tuple[Fragment, ...], register: str) -> None:
        self.p.writer.line(f"{targets[0].name}[{register}] = total;")
        if self.indexed:
            self.p.writer.line(f"{targets[1].name}[{register}] = at;")


def _target_register(nest: Nest, axes: tuple[int, ...]) -> str:
    return nest.register(lambda a: a not in axes)


def _line_position(nest: Nest, axes: tuple[int, ...]) -> str:
    """The row-major position of the current register along the reduced axes."""
    terms: list[str] = []
    weight = 1
    for axis in reversed(axes):
        position = nest.position(axis)
        if position != "0":
            terms.append(position if weight == 1 else f"({position}) * {weight}")
        weight *= nest.layout.shape[axis]
    return " + ".join(terms) or "0"


def in_warp(p: Printer, s: ReduceRegisters) -> None:
    """Registers of the thread in order, then lanes by butterfly: every lane of a line ends with its result."""
    w = p.writer
    layout = s.layout
    kept = tuple(a for a in range(layout.rank) if a not in s.axes)
    nest = plan(layout, p.threads, merge=False, outer=kept)
    outer = [g for g in nest.groups if layout.reg[g.digits[0]].axis in kept]
    inner = [g for g in nest.groups if g not in outer]
    dtype = s.targets[0].dtype
    step = _Step(p, s.kind, dtype, s.combine, s.init)
    for t in s.targets:
        p.declare(t)
    padded = " && ".join(
        f"{nest.position(a)} < {layout.shape[a]}" for a in s.axes if layout.padded(a)
    )
    with loops(w, outer) if outer else _block(p):
        step.begin()
        value = p.operand(s.value, nest) if s.kind in ("sum", "prod") else p.element(s.value, nest)
        index = _line_position(nest, s.axes) if step.indexed else ""
        with loops(w, inner):
            if padded:
                w.open(f"if (PH_GUARD({padded}))")
            step.add(value, index)
            if padded:
                w.close()
        for mask in _lane_masks(layout, s.axes) if s.lanes else ():
            if step.indexed:
                # Both shuffles come first: all lanes take part in them, whatever they decide afterwards.
                w.open("")
                w.line(f"const {step.ctype} v = ph_shfl_xor(total, {mask});", memory=True)
                w.line(f"const int n = ph_shfl_xor(at, {mask});", memory=True)
                w.line(f"if ({_better(s.kind, dtype)}) {{ total = v; at = n; }}")
                w.close()
            elif s.combine is not None:
                step.add(f"ph_shfl_xor(total, {mask})", memory=True)
            else:
                got = f"ph_shfl_xor(total, {mask})"
                w.line(f"total = {_combined(p, s.kind, dtype, 'total', got)};", memory=True)
        step.finish(s.targets, _target_register(nest, s.axes))


class _block:
    """A plain `{ }` where no loop opens one."""

    def __init__(self, p: Printer):
        self.w = p.writer

    def __enter__(self) -> None:
        self.w.open("")

    def __exit__(self, *exc: object) -> None:
        self.w.close()


def _lane_masks(layout: RegisterLayout, axes: tuple[int, ...]) -> list[int]:
    """Xor masks that exchange the lane digits of these axes, all powers of two."""
    masks: list[int] = []
    weight = 1
    for d in layout.lane:
        if d.axis in axes:
            step = 1
            while step < d.extent:
                masks.append(weight * step)
                step *= 2
        weight *= d.extent
    return masks


def _scratch_index(nest: Nest, layout: RegisterLayout, shape: tuple[int, ...], part: str) -> str:
    size = 1
    for n in shape[1:]:
        size *= n
    terms = [part if size == 1 else f"{part} * {size}"] if part != "0" else []
    weight = 1
    for axis in reversed(range(layout.rank)):
        if layout.shape[axis] > 1:
            position = nest.position(axis)
            if position != "0":
                terms.append(position if weight == 1 else f"({position}) * {weight}")
        weight *= layout.shape[axis]
    return " + ".join(terms) or "0"


def publish(p: Printer, s: ReducePublish) -> None:
    """scratch[warp part, position] = partial result, by one lane of each line."""
    w = p.writer
    target = s.sources[0].layout
    nest = plan(target, p.threads, merge=False)
    owner = p.threads.owner(s.source_layout, s.axes)
    part = p.threads.warp_part(s.source_layout, s.axes)
    guard = " && ".join(f"PH_GUARD({t})" for t in padding_tests(nest))
    if owner:
        w.open(f"if ({owner})")
    with loops(w, nest.groups):
        if guard:
            w.open(f"if ({guard})")
        for buffer, source in zip(s.scratch, s.sources):
            index = _scratch_index(nest, target, buffer.layout.shape, part)
            w.line(f"{p.pointer(buffer)}[{index}] = {nest.fragment(FragmentRef(source.dtype, source))};", memory=True)
        if guard:
            w.close()
    if owner:
        w.close()


def collect(p: Printer, s: ReduceCollect) -> None:
    """Every thread combines the parts of its positions, in the order of warps."""
    w = p.writer
    target = s.targets[0].layout
    nest = plan(target, p.threads, merge=False)
    step = _Step(p, s.kind, s.targets[0].dtype, s.combine, s.init)
    parts = s.scratch[0].layout.shape[0]
    for t in s.targets:
        p.declare(t)
    guard = " && ".join(f"PH_GUARD({t})" for t in padding_tests(nest))
    with loops(w, nest.groups) if nest.groups else _block(p):
        step.begin()
        if guard:
            w.open(f"if ({guard})")
        w.line("PH_UNROLL")
        w.open(f"for (int part = 0; part < {parts}; ++part)")
        index = _scratch_index(nest, target, s.scratch[0].layout.shape, "part")
        at = f"{p.pointer(s.scratch[1])}[{index}]" if step.indexed else ""
        step.add(f"{p.pointer(s.scratch[0])}[{index}]", at, memory=True)
        w.close()
        if guard:
            w.close()
        step.finish(s.targets, nest.register())


def scan(p: Printer, s: ScanShared) -> None:
    """Inclusive sums in place: one thread runs along each line. Narrow floats are summed in f32."""
    w = p.writer
    layout = s.buffer.layout
    dtype = s.buffer.dtype
    ctype = p.ctype(dtype)
    wide = dtype in (DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2)
    other = [a for a in range(len(layout.shape)) if a != s.axis]
    lines = 1
    for a in other:
        lines *= layout.shape[a]
    w.open(f"for (int line = tid; line < {lines}; line += {s.threads})")
    terms = []
    weight = 1
    for n, a in enumerate(reversed(other)):
        text = "line" if weight == 1 else f"line / {weight}"
        if n != len(other) - 1:
            text += f" % {layout.shape[a]}"
        if layout.shape[a] > 1:
            terms.append(f"({text}) * {layout.strides[a]}")
        weight *= layout.shape[a]
    w.line(f"const ph_shared<{ctype}> tile = {p.pointer(s.buffer)} + ({' + '.join(terms) or '0'});")
    w.line(f"{'float' if wide else ctype} total = 0;")
    w.open(f"for (int i = 0; i < {layout.shape[s.axis]}; ++i)")
    w.line(f"const {ctype} v = tile[i * {layout.strides[s.axis]}];", memory=True)
    value = "ph_cvt<float>(v)" if wide else "v"
    w.line(f"total = {_combined(p, 'sum', DType.F32 if wide else dtype, 'total', value)};")
    w.line(f"tile[i * {layout.strides[s.axis]}] = {f'ph_cvt<{ctype}>(total)' if wide else 'total'};", memory=True)
    w.close()
    w.close()
