"""The tile IR as text: stable, for goldens, reports and `--emit ir`.

    kernel scale(X: tensor<f32>[N], Y: tensor<f32>[N], %a: f32) grid (ceildiv(N, 64), 1, 1) {
      %pid = block.x : index
      %row = mul %pid, 64 : index
      %x = load X[%row :+ 64?] : tile<f32>[64]
      %t = mul %x, %a : tile<f32>[64]
      store Y[%row :+ 64?] = %t
      return
    }

SSA values are named after the user's names, made unique by a suffix in textual order (`%acc`, `%acc.1`). Scalar
constants are written where they are used and have no line of their own. `?` after a range marks a guarded axis: its
positions are masked. A value that is used but defined nowhere is printed as `%?name`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimExpr
from phobos.ir.walk import walk

Names = Mapping[ir.Value, str]
_AXES = {0: "x", 1: "y", 2: "z"}


def print_kernel(kernel: ir.KernelIR, locations: bool = False) -> str:
    """The kernel as text, ending in a newline. `locations` appends `// line:column` to each op."""
    printer = _Printer(value_names(kernel), locations)
    head = _list(f"kernel {kernel.name}", list(_parameters(kernel)), 0)
    grid = ", ".join(print_dim(e) for e in kernel.grid)
    lines = [f"{head} grid ({grid}){_attributes(kernel)} {{"]
    lines.extend(printer.block(kernel.body, 1))
    lines.append("}")
    return "\n".join(lines) + "\n"


def print_op(op: ir.Op, names: Names) -> str:
    """One op as text, nested blocks included."""
    return "\n".join(_Printer(names, False).op(op, 0))


def value_names(kernel: ir.KernelIR) -> dict[ir.Value, str]:
    """The printed form of every value: a unique `%name`, or the literal of a constant."""
    out: dict[ir.Value, str] = {}
    used: set[str] = set()
    suffix: dict[str, int] = {}

    def add(value: ir.Value) -> None:
        if value in out:
            return
        base = "%" + (re.sub(r"\W", "_", value.name) or "t")
        name = base
        while name in used:
            suffix[base] = suffix.get(base, 0) + 1
            name = f"{base}.{suffix[base]}"
        used.add(name)
        out[value] = name

    for scalar in kernel.scalars:
        add(scalar.value)
    for dim in kernel.dims:
        add(dim.value)
    for op in walk(kernel.body):
        if isinstance(op, ir.Constant):
            out[op.result] = print_literal(op.value)
            continue
        for value in op.defined():
            add(value)
        for block in op.blocks():
            for value in block.params:
                add(value)
    return out


def print_literal(value: int | float | bool) -> str:
    """A literal as the kernel language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "-inf" if value < 0 else "inf"
        return repr(value)
    return str(value)


def print_dim(expression: DimExpr) -> str:
    """A dim expression in the kernel language's operators (`/` for the truncating division)."""
    if isinstance(expression, DimBinary):
        left, right = print_dim(expression.left), print_dim(expression.right)
        if expression.op.isalpha():
            return f"{expression.op}({left}, {right})"
        op = "/" if expression.op == "//" else expression.op
        return f"({left} {op} {right})"
    return str(expression)


def _list(before: str, items: Sequence[str], depth: int) -> str:
    """`before(items)`, on one line if it is short, else one item a line."""
    line = f"{before}({', '.join(items)})"
    if len(line) + 2 * depth <= 100:
        return line
    pad = "  " * depth + "      "
    return f"{before}(\n" + ",\n".join(pad + item for item in items) + ")"


def _parameters(kernel: ir.KernelIR) -> Iterator[str]:
    tensors = {t.name: t for t in kernel.tensors}
    scalars = {s.name: s for s in kernel.scalars}
    for name in kernel.order:
        yield f"{name}: {tensors[name].type}" if name in tensors else f"%{name}: {scalars[name].type}"


def _attributes(kernel: ir.KernelIR) -> str:
    out = []
    launch = (kernel.launch.threads, kernel.launch.min_blocks, kernel.launch.max_regs)
    if any(n is not None for n in launch):
        out.append(f"launch({', '.join(str(n) for n in launch if n is not None)})")
    if kernel.aligned:
        out.append(f"aligned({', '.join(f'{p.dim} = {p.multiple}' for p in kernel.aligned)})")
    if kernel.tensorcore is not None:
        require = ", require" if kernel.tensorcore.require else ""
        out.append(f"tensorcore({kernel.tensorcore.kind}{require})")
    if kernel.dynshared:
        out.append("dynshared")
    options = kernel.options.non_default()
    if options:
        out.append(f"options({', '.join(f'{k} = {v}' for k, v in options.items())})")
    return "".join(f" {text}" for text in out)


class _Printer:
    def __init__(self, names: Names, locations: bool):
        self.names = names
        self.locations = locations
        self.depth = 0  # of the op at hand

    # --- pieces ----------------------------------------------------------------------------

    def value(self, value: ir.Value) -> str:
        return self.names.get(value, f"%?{value.name}")

    def values(self, values: Sequence[ir.Value]) -> str:
        return ", ".join(self.value(v) for v in values)

    def axes(self, axes: Sequence[ir.AxisIndex]) -> str:
        out = []
        for axis in axes:
            if isinstance(axis, ir.AxisRange):
                out.append(f"{self.value(axis.start)} :+ {axis.length}{'?' if axis.guarded else ''}")
            else:
                out.append(self.value(axis.index))
        return f"[{', '.join(out)}]"

    def view(self, view: ir.View) -> str:
        return view.tensor.name + self.axes(view.axes)

    def carry(self, before: str, params: Sequence[ir.Value], inits: Sequence[ir.Value]) -> str:
        pairs = [f"{self.value(p)}: {p.type} = {self.value(i)}" for p, i in zip(params, inits, strict=False)]
        return _list(f"{before} carry ", pairs, self.depth) if params else before

    # --- ops and blocks --------------------------------------------------------------------

    def block(self, block: ir.Block, depth: int) -> Iterator[str]:
        for op in block.ops:
            if not isinstance(op, ir.Constant):
                yield from self.op(op, depth)

    def op(self, op: ir.Op, depth: int) -> Iterator[str]:
        """Lines of an op: a head, and for nested blocks `{`, their lines, `}`."""
        pad = "  " * depth
        defined = op.defined()
        head = f"{self.values(defined)} = " if defined else ""
        self.depth = depth
        text, blocks = _FORMATS[type(op)](self, op)
        location = f"  // {op.span.line}:{op.span.column}" if self.locations else ""
        if not blocks:
            kind = f" : {', '.join(str(v.type) for v in defined)}" if defined else ""
            yield f"{pad}{head}{text}{kind}{location}"
            return
        kind = f" -> ({', '.join(str(v.type) for v in defined)})" if isinstance(op, ir.If) and defined else ""
        if isinstance(op, ir.Reduce):
            kind = f" : {op.result.type}"
        yield f"{pad}{head}{text}{kind} {{{location}"
        for number, (title, block) in enumerate(blocks):
            if number:
                yield f"{pad}}} {title} {{"
            yield from self.block(block, depth + 1)
        yield f"{pad}}}"


Formatted = tuple[str, list[tuple[str, ir.Block]]]


def _for(p: _Printer, op: ir.For) -> Formatted:
    # Slices, because malformed IR (a body without an index) is printed too, in the verifier's messages.
    index = ", ".join(f"{p.value(v)}: {v.type}" for v in op.body.params[:1])
    text = f"for {index} in range({p.values((op.lo, op.hi, op.step))})"
    text = p.carry(text, op.body.params[1:], op.inits)
    if op.unroll is not None:
        text += f" unroll({op.unroll})"
    if op.pipeline is not None:
        text += f" pipeline({op.pipeline})"
    return text, [("", op.body)]


def _while(p: _Printer, op: ir.While) -> Formatted:
    body = f"do ({p.values(op.body.params)})" if op.body.params else "do"
    return p.carry("while", op.condition.params, op.inits), [("", op.condition), (body, op.body)]


def _if(p: _Printer, op: ir.If) -> Formatted:
    blocks = [("", op.then)]
    empty = len(op.orelse.ops) == 1 and isinstance(op.orelse.ops[0], ir.Yield) and not op.results
    if not empty:
        blocks.append(("else", op.orelse))
    return f"if {p.value(op.condition)}", blocks


def _flags(op: ir.Compute) -> str:
    return f"{' approximate' if op.approximate else ''}{' unless_one' if op.unless_one else ''}"


def _reduce(p: _Printer, op: ir.Reduce) -> Formatted:
    axis = "" if op.axis is None else f" axis={op.axis}"
    text = f"reduce {op.kind} {p.value(op.operand)}{axis}{' partial' if op.partial else ''}"
    if op.combine is None:
        return text, []
    init = "" if op.init is None else f" init={p.value(op.init)}"
    return f"{text}{init} by ({p.values(op.combine.params)})", [("", op.combine)]


def _dot(p: _Printer, op: ir.Dot) -> Formatted:
    name = "dot_t" if op.transpose_b else "dot"
    chosen = f" kind={op.kind}" if op.kind is not None else ""
    return f"{name} {p.value(op.a)}, {p.value(op.b)} kinds=[{', '.join(op.kinds)}]{chosen}", []


def _load(p: _Printer, op: ir.Load) -> Formatted:
    # NaN is not equal to 0 and so is shown.
    fill = "" if op.fill == 0 else f" else {print_literal(op.fill)}"
    return f"load{' transposed' if op.transposed else ''} {p.view(op.view)}{fill}", []


def _print(p: _Printer, op: ir.Print) -> Formatted:
    return "print " + ", ".join(json.dumps(x) if isinstance(x, str) else p.value(x) for x in op.parts), []


def _plain(format: Callable[[_Printer, Any], str]) -> Callable[[_Printer, Any], Formatted]:
    return lambda printer, op: (format(printer, op).rstrip(), [])


_FORMATS: dict[type[ir.Op], Callable[[_Printer, Any], Formatted]] = {
    ir.Constant: _plain(lambda p, op: f"constant {print_literal(op.value)}"),
    ir.ProgramId: _plain(lambda p, op: f"block.{_AXES.get(op.axis, op.axis)}"),
    ir.GridSize: _plain(lambda p, op: f"grid.{_AXES.get(op.axis, op.axis)}"),
    ir.Compute: _plain(lambda p, op: f"{op.fn} {p.values(op.args)}{_flags(op)}"),
    ir.Cast: _plain(lambda p, op: f"cast {p.value(op.operand)}"),
    ir.Broadcast: _plain(lambda p, op: f"broadcast {p.value(op.operand)}"),
    ir.Iota: _plain(lambda p, op: f"iota axis={op.axis}"),
    ir.Transpose: _plain(lambda p, op: f"transpose {p.value(op.operand)}"),
    ir.Reshape: _plain(lambda p, op: f"reshape {p.value(op.operand)}"),
    ir.Cat: _plain(lambda p, op: f"cat {p.values(op.parts)} axis={op.axis}"),
    ir.Extract: _plain(lambda p, op: f"extract {p.value(op.operand)}{p.axes(op.axes)}"),
    ir.Insert: _plain(lambda p, op: f"insert {p.value(op.operand)}{p.axes(op.axes)} = {p.value(op.value)}"),
    ir.Load: _load,
    ir.Store: _plain(lambda p, op: f"store {p.view(op.view)} = {p.value(op.value)}"),
    ir.Atomic: _plain(lambda p, op: f"atomic_{op.kind} {p.view(op.view)}, {p.values(op.values)}"),
    ir.Reduce: _reduce,
    ir.SumParts: _plain(lambda p, op: f"sum_parts {p.value(op.operand)}"),
    ir.Scan: _plain(lambda p, op: f"scan {p.value(op.operand)} axis={op.axis}"),
    ir.Gather: _plain(lambda p, op: f"gather {p.value(op.table)}, {p.value(op.index)}"),
    ir.Dot: _dot,
    ir.Print: _print,
    ir.Assert: _plain(lambda p, op: f"assert {p.value(op.condition)}, {json.dumps(op.text)}"),
    ir.For: _for,
    ir.While: _while,
    ir.If: _if,
    ir.Yield: _plain(lambda p, op: f"yield {p.values(op.values)}"),
    ir.Break: _plain(lambda p, op: f"break {p.values(op.values)}"),
    ir.Continue: _plain(lambda p, op: f"continue {p.values(op.values)}"),
    ir.Return: _plain(lambda p, op: "return"),
}
