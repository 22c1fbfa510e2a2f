"""Scheduled statements as C++ text. Transfers and products are printed by their rooms."""

from __future__ import annotations

from collections.abc import Iterable

from phobos.codegen import reductions
from phobos.codegen.context import Printer
from phobos.codegen.divisions import row_division
from phobos.codegen.streams import print_streamed
from phobos.contraction.interface import Staged
from phobos.ir.c_names import c_identifier
from phobos.ir.scheduled import (
    AssertStmt,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtAxis,
    AtomicGlobal,
    AtomicScalar,
    Barrier,
    BreakStmt,
    ContinueStmt,
    Contract,
    CopyOrigin,
    DeclareFragment,
    ForStmt,
    GatherAxis,
    GlobalToShared,
    GlobalView,
    IfStmt,
    LoadGlobal,
    LoadScalar,
    Map,
    MoveRegisters,
    OpaqueFill,
    OpaqueLoad,
    OpaqueStore,
    OperandLoad,
    PrintStmt,
    RangeAxis,
    ReadShared,
    ReduceCollect,
    ReducePublish,
    ReduceRegisters,
    ReturnStmt,
    ScanShared,
    SetScalar,
    StepDeclare,
    StepLoad,
    StepMultiply,
    Stmt,
    StoreGlobal,
    StoreScalar,
    WhileStmt,
    WriteShared,
)
from phobos.ir.storage import Buffer, Expr, Fragment, FragmentRef, Literal, Position
from phobos.ir.types import DType
from phobos.layout.loops import loops, one_liner, plan
from phobos.transfer import cp_async, plain
from phobos.transfer.interface import AxisText, GlobalText

_WIDE = {DType.I8: "int", DType.U8: "int", DType.I32: "ph_i64", DType.U32: "ph_i64"}


def _wide_counter(s: ForStmt) -> str | None:
    """The type in which the loop counts where its index's own could wrap past the end of the range, else None."""
    wide = _WIDE.get(s.index.dtype)
    if wide is None or not isinstance(s.step, Literal):
        return wide
    step = int(s.step.value)
    if abs(step) == 1:  # stops at the end itself
        return None
    if isinstance(s.hi, Literal):
        half = 1 << (8 * s.index.dtype.bytes - 1)
        lowest = -half if s.index.dtype.is_signed else 0
        return None if lowest <= int(s.hi.value) + step < lowest + 2 * half else wide
    return wide


def print_all(p: Printer, statements: Iterable[Stmt]) -> None:
    for s in statements:
        first = p.writer.count
        print_statement(p, s)
        p.lines[s] = (first, p.writer.count)


def print_statement(p: Printer, s: Stmt) -> None:
    w = p.writer
    if isinstance(s, DeclareFragment):
        w.at(s.span, s.note)
        p.declare(s.fragment)
    elif isinstance(s, SetScalar):
        _set_scalar(p, s)
    elif isinstance(s, Map):
        w.at(s.span, s.note)
        _map(p, s)
    elif isinstance(s, MoveRegisters):
        w.at(s.span, s.note)
        p.declare(s.target)
        if s.moves == tuple(range(len(s.moves))):
            w.line("PH_UNROLL")
            w.line(f"for (int i = 0; i < {len(s.moves)}; ++i) {s.target.name}[i] = {s.source.name}[i];")
        else:
            for i, m in enumerate(s.moves):
                w.line(f"{s.target.name}[{i}] = {s.source.name}[{m}];")
    elif isinstance(s, (LoadGlobal, LoadScalar, StoreGlobal, StoreScalar, GlobalToShared, AtomicGlobal, AtomicScalar)):
        w.at(s.span, s.note)
        _transfer(p, s)
    elif isinstance(s, (AsyncCopy, AsyncCommit, AsyncWait)):
        w.at(s.span, s.note)
        if isinstance(s, AsyncCopy):
            target = p.stage_pointer(s.buffer, p.atom(s.stage))
            view = global_text(p, s.view)
            cp_async.copy(w, view, s.layout, s.buffer.layout, target, p.threads, s.origin, s.moving)
        elif isinstance(s, AsyncCommit):
            cp_async.commit(w)
        else:
            cp_async.wait(w, s.pending)
    elif isinstance(s, CopyOrigin):
        w.at(s.span, s.note)
        cp_async.origin(w, s.name, global_text(p, s.view), s.layout, p.threads)
    elif isinstance(s, WriteShared):
        w.at(s.span, s.note)
        _write_shared(p, s)
    elif isinstance(s, ReadShared):
        w.at(s.span, s.note)
        _read_shared(p, s)
    elif isinstance(s, ReduceRegisters):
        w.at(s.span, s.note)
        reductions.in_warp(p, s)
    elif isinstance(s, ReducePublish):
        w.at(s.span, s.note)
        reductions.publish(p, s)
    elif isinstance(s, ReduceCollect):
        w.at(s.span, s.note)
        reductions.collect(p, s)
    elif isinstance(s, ScanShared):
        w.at(s.span, s.note)
        reductions.scan(p, s)
    elif isinstance(s, Contract):
        w.at(s.span, s.note or f"{s.plan.room}: {s.plan.description}")
        assert isinstance(s.b, Buffer)
        b = p.pointer(s.b, const=True)
        if isinstance(s.a, Fragment):
            s.plan.emit(w, s.accumulator.name, s.a.name, b, a_in_registers=True)
        else:
            s.plan.emit(w, s.accumulator.name, p.pointer(s.a, const=True), b, a_name=s.a_name)
    elif isinstance(s, OperandLoad):
        w.at(s.span, s.note or "the left operand, once for all iterations")
        s.plan.load_operand(w, s.name, p.pointer(s.a, const=True))
    elif isinstance(s, StepDeclare):
        w.at(s.span, s.note or f"{s.plan.room}: {s.plan.description}, loads one step ahead")
        s.plan.declare(w, s.name, p.stage_pointer(s.a, "0", const=True), p.stage_pointer(s.b, "0", const=True))
    elif isinstance(s, StepLoad):
        w.at(s.span, s.note)
        tiles = [Staged(p.pointer(x, const=True), p.stage(x)) for x in (s.a, s.b)]
        s.plan.load(w, s.name, s.slot, s.step, *tiles)
    elif isinstance(s, StepMultiply):
        w.at(s.span, s.note)
        s.plan.multiply(w, s.name, s.slot, s.accumulator.name, s.part)
    elif isinstance(s, (OpaqueFill, OpaqueLoad, OpaqueStore)):
        w.at(s.span, s.note)
        _opaque(p, s)
    elif isinstance(s, Barrier):
        w.at(s.span)
        w.line("ph_syncthreads();", memory=True)
    elif isinstance(s, (PrintStmt, AssertStmt)):
        w.at(s.span, s.note)
        _debug(p, s)
    else:
        _control(p, s)


def _set_scalar(p: Printer, s: SetScalar) -> None:
    w = p.writer
    w.at(s.span, s.note)
    value = p.scalar(s.value)
    if s.declare:
        const = "const " if s.constant else ""
        w.line(f"{const}{p.ctype(s.target.dtype)} {s.target.name} = {value};", memory="ph_smem" in value)
    else:
        w.line(f"{s.target.name} = {value};", memory="ph_smem" in value)


def _map(p: Printer, s: Map) -> None:
    w = p.writer
    if s.declare:
        p.declare(s.target)
    if s.loads:
        views = [(f.name, p.ctype(f.dtype), global_text(p, view, fill)) for f, view, fill in s.loads]
        print_streamed(p, s, views)
        return
    if row_division(p, s):
        return
    target = FragmentRef(s.target.dtype, s.target)
    nest = plan(s.target.layout, p.threads, (s.value, target))
    value = p.element(s.value, nest)
    if s.unless_one is not None:
        c, one = s.unless_one, p.literal(1.0, s.unless_one.dtype)
        w.open(f"if ({' || '.join(f'{c.name}[{i}] != {one}' for i in range(c.layout.registers))})")
    one_liner(w, nest.groups, f"{nest.fragment(target)} = {value};", memory="ph_smem" in value)
    if s.unless_one is not None:
        w.close()


def _opaque(p: Printer, s: OpaqueFill | OpaqueLoad | OpaqueStore) -> None:
    w = p.writer
    if isinstance(s, OpaqueStore):
        s.source.plan.store_sums(w, s.source.name, s.target.name, p.pointer(s.scratch), add=s.add)
        return
    plan = s.target.plan
    plan.declare_sums(w, s.target.name)
    if isinstance(s, OpaqueFill):
        plan.fill_sums(w, s.target.name, p.scalar(s.value))
    else:
        plan.load_sums(w, s.target.name, s.source.name, p.pointer(s.scratch))


# --- memory ----------------------------------------------------------------------------------


def global_text(p: Printer, view: GlobalView, fill: int | float | bool = 0) -> GlobalText:
    """The view with its positions, dims and strides as text."""
    axes: list[AxisText] = []
    for number, (axis, dim) in enumerate(zip(view.axes, view.dims)):
        extent = str(dim) if isinstance(dim, int) else c_identifier(dim)
        stride = p.stride(view.tensor, number)
        if isinstance(axis, AtAxis):
            axes.append(AxisText(p.atom(axis.index), 1, extent, stride, None, axis.low, axis.high))
        elif isinstance(axis, RangeAxis):
            axes.append(AxisText(p.atom(axis.start), axis.length, extent, stride, axis.tile_axis, axis.low, axis.high))
        else:
            assert isinstance(axis, GatherAxis)
            low = axis.index.dtype.is_signed
            # An unsigned number would make the offset one, and negative strides huge.
            cast = f"({p.ctype(DType.INDEX)})" if not low else ""
            axes.append(AxisText("0", 1, extent, stride, axis.tile_axis, low, True, axis.index.name, cast))
    return GlobalText(
        c_identifier(view.tensor), p.ctype(view.dtype), tuple(axes), view.vector, p.literal(fill, view.dtype),
        bool(view.varies),
    )  # fmt: skip


def _one_offset(view: GlobalText) -> str:
    return " + ".join(a.start if not a.stride else f"({a.start}) * {a.stride}" for a in view.axes) or "0"


def _one_guard(view: GlobalText) -> str:
    tests = []
    for a in view.axes:
        if a.low:
            tests.append(f"PH_GUARD({a.start} >= 0)")
        if a.high:
            tests.append(f"PH_GUARD({a.start} < {a.dim})")
    return " && ".join(tests)


def _transfer(p: Printer, s: Stmt) -> None:
    w = p.writer
    if isinstance(s, LoadGlobal):
        if s.declare:
            p.declare(s.target)
        view = global_text(p, s.view, s.fill)
        plain.load_registers(w, view, s.target.layout, s.target.name, p.threads)
    elif isinstance(s, StoreGlobal):
        plain.store_registers(w, global_text(p, s.view), s.source.layout, s.source.name, p.threads)
    elif isinstance(s, GlobalToShared):
        view = global_text(p, s.view, s.fill)
        convert = p.stored(s.buffer, s.view.dtype)
        ctype = p.ctype(s.buffer.dtype)
        plain.global_to_shared(w, view, s.layout, s.buffer.layout, ctype, convert, p.pointer(s.buffer), p.threads)
    elif isinstance(s, LoadScalar):
        view = global_text(p, s.view, s.fill)
        guard, read = _one_guard(view), f"{view.tensor}[{_one_offset(view)}]"
        ctype = p.ctype(s.target.dtype)
        if guard:
            w.line(f"{ctype} {s.target.name} = {view.fill};")
            w.line(f"if ({guard}) {s.target.name} = {read};", memory=True)
        else:
            w.line(f"const {ctype} {s.target.name} = {read};", memory=True)
    elif isinstance(s, StoreScalar):
        view = global_text(p, s.view)
        guard = " && ".join(x for x in ("tid == 0", _one_guard(view)) if x)
        w.line(f"if ({guard}) {view.tensor}[{_one_offset(view)}] = {p.scalar(s.value)};", memory=True)
    elif isinstance(s, AtomicScalar):
        view = global_text(p, s.view)
        args = ", ".join(p.typed(v) for v in s.values)
        call = f"ph_atomic_{s.kind}({view.tensor}, {_one_offset(view)}, {args})"
        guard = _one_guard(view)
        w.open("if (tid == 0)")
        if s.scratch is None:
            w.line(f"if ({guard}) {call};" if guard else f"{call};", memory=True)
        else:
            ctype = p.ctype(s.scratch.dtype)
            w.line(f"{ctype} old = {p.literal(0, s.scratch.dtype)};")
            w.line(f"if ({guard}) old = {call};" if guard else f"old = {call};", memory=True)
            w.line(f"{p.pointer(s.scratch)}[0] = old;", memory=True)
        w.close()
    else:
        assert isinstance(s, AtomicGlobal)
        _atomic(p, s)


def _atomic(p: Printer, s: AtomicGlobal) -> None:
    w = p.writer
    layout = s.values[0].layout
    view = global_text(p, s.view)
    nest = plan(layout, p.threads, merge=False)
    guard = plain.guard_text(view, nest)
    args = ", ".join(nest.fragment(FragmentRef(v.dtype, v)) for v in s.values)
    call = f"ph_atomic_{s.kind}({view.tensor}, {plain.offset_text(view, nest)}, {args});"
    if s.old is not None:
        p.declare(s.old)
        slot = nest.fragment(FragmentRef(s.old.dtype, s.old))
        one_liner(
            w,
            plan(layout, p.threads, (FragmentRef(s.old.dtype, s.old),)).groups,
            f"{p.slot(s.old)} = {p.literal(0, s.old.dtype)};",
        )
        call = f"{slot} = {call}"
    owner = p.threads.owner(layout)
    if owner:
        w.open(f"if ({owner})")
    with loops(w, nest.groups):
        w.line(f"if ({guard}) {call}" if guard else call, memory=True)
    if owner:
        w.close()


def _write_shared(p: Printer, s: WriteShared) -> None:
    w = p.writer
    layout = s.source.layout
    shared = s.buffer.layout
    last = layout.rank - 1
    straight = len(s.at) == layout.rank and all(isinstance(e, Position) and e.axis == n for n, e in enumerate(s.at))
    vector = 1
    if straight and s.guard is None and not layout.padded(last):
        run = layout.contiguous_run(last)
        vector = shared.vector_width(last, 16)
        while vector > 1 and (run % vector or vector * shared.itemsize > 16):
            vector //= 2
    nest = plan(layout, p.threads, vector=vector, merge=False)
    tests = [f"PH_GUARD({t})" for t in plain.padding_tests(nest)]
    if s.guard is not None:
        tests.append(f"PH_GUARD({p.element(s.guard, nest)})")
    guard = " && ".join(tests)
    owner = p.threads.owner(layout)
    target = p.pointer(s.buffer) if s.stage is None else p.stage_pointer(s.buffer, p.scalar(s.stage))
    w.open(f"if ({owner})" if owner else "")
    w.line(f"const ph_shared<{p.ctype(s.buffer.dtype)}> tile = {target};")
    index = p.linear(s.buffer, s.at, nest)
    source = FragmentRef(s.source.dtype, s.source)
    convert = p.stored(s.buffer, s.source.dtype)
    if vector == 1:
        text = f"tile[{index}] = {convert(nest.fragment(source))};"
        one_liner(w, nest.groups, f"if ({guard}) {text}" if guard else text, memory=True)
    else:
        pack = f"ph_vec<{p.ctype(s.buffer.dtype)}, {vector}>"
        with loops(w, nest.groups):
            if guard:
                w.open(f"if ({guard})")
            w.line(f"{pack} t;")
            w.line("PH_UNROLL")
            w.line(f"for (int v = 0; v < {vector}; ++v) t.v[v] = {convert(nest.fragment(source, 'v'))};")
            w.line(f"ph_stv(tile, {index}, t);", memory=True)
            if guard:
                w.close()
    w.close()


def _read_shared(p: Printer, s: ReadShared) -> None:
    w = p.writer
    layout, shared = s.target.layout, s.buffer.layout
    last = layout.rank - 1
    vector = shared.vector_width(last, layout.contiguous_run(last)) if not layout.padded(last) else 1
    nest = plan(layout, p.threads, vector=vector, merge=False)
    guard = " && ".join(f"PH_GUARD({t})" for t in plain.padding_tests(nest))
    base, step = plain.split_shared(nest, shared)
    ctype = p.ctype(s.target.dtype)
    target = FragmentRef(s.target.dtype, s.target)
    p.declare(s.target)
    w.open("")
    plain.pointer(w, "tile", f"ph_smem<const {ctype}>({p.schedule.offsets[s.buffer]})", base)
    if vector == 1:
        slot = nest.fragment(target)
        read = f"{slot} = tile[{step}];"
        if guard:
            zero = p.literal(0, s.target.dtype)
            read = f"{{ {slot} = {zero}; if ({guard}) {slot} = tile[{step}]; }}"
        one_liner(w, nest.groups, read, memory=True)
    else:
        with loops(w, nest.groups):
            w.open(f"if ({guard})" if guard else "")
            w.line(f"const ph_vec<{ctype}, {vector}> t = ph_ldv<ph_vec<{ctype}, {vector}>>(tile, {step});", memory=True)
            w.line("PH_UNROLL")
            w.line(f"for (int v = 0; v < {vector}; ++v) {nest.fragment(target, 'v')} = t.v[v];")
            w.close()
    w.close()


# --- debug and control -------------------------------------------------------------------------


def _debug(p: Printer, s: PrintStmt | AssertStmt) -> None:
    w = p.writer
    if isinstance(s, AssertStmt):
        text = _quoted(s.text)
        if isinstance(s.condition, Expr):
            w.line(f"if (!({p.scalar(s.condition)})) ph_assert_fail({text}, {s.span.line});", memory=True)
            return
        nest = plan(s.condition.layout, p.threads, merge=False)
        valid = " && ".join(plain.padding_tests(nest))
        test = f"!{nest.fragment(FragmentRef(DType.BOOL, s.condition))}"
        w_test = f"{valid} && {test}" if valid else test
        one_liner(w, nest.groups, f"if ({w_test}) ph_assert_fail({text}, {s.span.line});", memory=True)
        return
    tiles = [x for x in s.parts if isinstance(x, Fragment)]
    label, scalars = "", []
    for x in s.parts:
        if isinstance(x, str):
            label += x.replace("%", "%%")
        elif isinstance(x, Expr):
            code, value = _printf(p, x.dtype, p.scalar(x))
            label += code
            scalars.append(value)
    if not tiles:
        w.line(f"if (tid == 0) ph_printf({', '.join([_quoted(label + chr(10)), *scalars])});", memory=True)
        return
    for tile in tiles:
        nest = plan(tile.layout, p.threads, merge=False)
        tests = [t for t in (p.threads.owner(tile.layout), *plain.padding_tests(nest)) if t]
        code, value = _printf(p, tile.dtype, nest.fragment(FragmentRef(tile.dtype, tile)))
        where = ", ".join("%d" for _ in tile.layout.shape)
        form = _quoted(f"{label}{tile.name}[{where}] = {code}\n")
        args = [*scalars, *(nest.position(a) for a in range(tile.layout.rank))]
        call = f"ph_printf({', '.join([form, *args, value])});"
        one_liner(w, nest.groups, f"if ({' && '.join(tests)}) {call}" if tests else call, memory=True)


def _printf(p: Printer, dtype: DType, value: str) -> tuple[str, str]:
    if dtype.is_float:
        return "%g", f"(double)ph_cvt<float>({value})" if dtype is not DType.F64 else value
    if dtype in (DType.I64, DType.INDEX):
        return "%lld", f"(ph_i64)({value})"
    return ("%u", value) if dtype is DType.U32 else ("%d", f"(int)({value})")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _control(p: Printer, s: Stmt) -> None:
    w = p.writer
    w.at(s.span, s.note)
    if isinstance(s, ForStmt):
        name, ctype = s.index.name, p.ctype(s.index.dtype)
        lo, hi, step = p.scalar(s.lo), p.atom(s.hi), p.atom(s.step)
        wide = _wide_counter(s)
        i = name if wide is None else f"ph_{name}"
        if s.down is None:
            test = f"{step} > 0 ? {i} < {hi} : {i} > {hi}"
        else:
            test = f"{i} > {hi}" if s.down else f"{i} < {hi}"
        advance = f"++{i}" if step == "1" else f"{i} += {step}"
        if s.unroll is not None:
            w.line(f"PH_UNROLL_N({s.unroll})")
        elif not p.unrolls(s):
            w.line("PH_NO_UNROLL")
        w.open(f"for ({wide or ctype} {i} = {lo}; {test}; {advance})")
        if wide is not None:
            w.line(f"const {ctype} {name} = ({ctype}){i};")
        print_all(p, s.body)
        w.close()
    elif isinstance(s, WhileStmt):
        w.line("PH_NO_UNROLL")
        w.open("while (true)")
        print_all(p, s.head)
        w.line(f"if (!({p.scalar(s.condition)})) break;")
        print_all(p, s.body)
        w.close()
    elif isinstance(s, IfStmt):
        w.open(f"if ({p.scalar(s.condition)})")
        print_all(p, s.then)
        if s.orelse:
            w.reopen("else")
            print_all(p, s.orelse)
        w.close()
    elif isinstance(s, BreakStmt):
        w.line("break;")
    elif isinstance(s, ContinueStmt):
        w.line("continue;")
    elif isinstance(s, ReturnStmt):
        w.line("return;")
    else:
        raise AssertionError(f"no text for {type(s).__name__}")
