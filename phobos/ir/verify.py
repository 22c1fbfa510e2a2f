"""Checks the invariants of the tile IR. For tests and debugging: a violation is a bug of the compiler, not of its user.

`verify(kernel)` checks structure (one terminator per block, every op in the tree once), SSA (one definition per
value, visible where it is read), the types of every op, control flow (carried values, terminators), views, and the
kernel's own tables. The typing rules themselves are in `phobos.ir.rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimExpr, DimName
from phobos.ir.printer import print_op, value_names
from phobos.ir.rules import op_violations
from phobos.ir.types import DType, ScalarType, TensorType
from phobos.ir.walk import definitions, partial_sum, uses, views, walk


class InternalError(AssertionError):
    """The compiler broke an invariant of its own. `violations` lists what was found."""

    def __init__(self, heading: str, violations: Sequence[str]):
        self.violations = tuple(violations)
        super().__init__("\n".join([heading, *(f"  - {v}" for v in violations)]))


def verify(kernel: ir.KernelIR, after: str = "") -> None:
    """Raises InternalError if the kernel is malformed. `after` names the pass that made it, for the message."""
    found = violations(kernel)
    if found:
        where = f" after {after}" if after else ""
        raise InternalError(f"kernel '{kernel.name}' is malformed{where}: {len(found)} violation(s)", found)


def violations(kernel: ir.KernelIR) -> list[str]:
    """Every broken invariant, as text that names the op and its line."""
    checker = _Checker(kernel)
    checker.kernel_tables()
    visible = set(checker.params)
    checker.block(kernel.body, visible, _Context(owner=None, carried=None, expected=None))
    if not checker.found:  # which follows values through a well-formed kernel
        checker.partial_sums()
    last = kernel.body.ops[-1] if kernel.body.ops else None
    if last is not None and not isinstance(last, ir.Return):
        checker.found.append(f"the kernel's body ends in {type(last).__name__}, not in Return")
    return checker.found


@dataclass(frozen=True)
class _Context:
    """What the terminators of a block may be. `carried`: types carried by the innermost loop, None outside of loops.
    `expected`: types that Yield must give, None where Yield is not allowed. `computes_only`: no stores, loops left, or
    returns (combine functions and conditions)."""

    owner: ir.Op | None
    carried: tuple[object, ...] | None
    expected: tuple[object, ...] | None
    computes_only: bool = False


class _Checker:
    def __init__(self, kernel: ir.KernelIR):
        self.kernel = kernel
        self.names = value_names(kernel)
        self.found: list[str] = []
        self.defined: set[ir.Value] = set()
        self.seen_ops: set[int] = set()
        self.params = [*(s.value for s in kernel.scalars), *(d.value for d in kernel.dims)]
        self.tensors = set(kernel.tensors)
        for value in self.params:
            self.define(value, None)

    def report(self, op: ir.Op | None, message: str) -> None:
        if op is None:
            self.found.append(message)
            return
        text = print_op(op, self.names).splitlines()[0]
        self.found.append(f"line {op.span.line}: {message}, in `{text}`")

    def name(self, value: ir.Value) -> str:
        return self.names.get(value, f"%?{value.name}")

    # --- the kernel's tables -----------------------------------------------------------------

    def kernel_tables(self) -> None:
        kernel = self.kernel
        params = [*(t.name for t in kernel.tensors), *(s.name for s in kernel.scalars)]
        if sorted(kernel.order) != sorted(params):
            self.found.append(f"order {kernel.order} does not list the parameters {params}")
        dims = {d.name for d in kernel.dims}
        for table, names in (("parameter", params), ("dim", [d.name for d in kernel.dims])):
            for twice in sorted({n for n in names if names.count(n) > 1}):
                self.found.append(f"{table} {twice} occurs twice")
        for dim in kernel.dims:
            if dim.value.type != ScalarType(DType.INDEX):
                self.found.append(f"dim {dim.name} has type {dim.value.type}, not index")
        for scalar in kernel.scalars:
            if not isinstance(scalar.value.type, ScalarType) or scalar.value.dtype is DType.INDEX:
                self.found.append(f"scalar argument {scalar.name} has type {scalar.value.type}")
        bound = set()
        for tensor in kernel.tensors:
            if not 1 <= tensor.type.rank <= 5 or tensor.type.dtype is DType.INDEX:
                self.found.append(f"tensor {tensor.name} has type {tensor.type}")
            bound |= _dim_names(tensor.type)
        for name in sorted(bound ^ dims):
            self.found.append(f"dim {name} is {'not declared' if name in bound else 'bound by no tensor'}")
        used = {n for e in kernel.grid for n in _expression_names(e)}
        for name in sorted(used - dims):
            self.found.append(f"the grid uses {name}, which is no dim")

    # --- blocks --------------------------------------------------------------------------------

    def define(self, value: ir.Value, op: ir.Op | None) -> None:
        if value in self.defined:
            self.report(op, f"{self.name(value)} is defined twice")
        self.defined.add(value)

    def block(self, block: ir.Block, visible: set[ir.Value], context: _Context) -> None:
        """Checks the block's ops in order; `visible` is extended by what it defines and so is the block's own."""
        for param in block.params:
            self.define(param, context.owner)
            visible.add(param)
        if not block.ops or not isinstance(block.ops[-1], ir.TERMINATORS):
            self.report(context.owner, "a block does not end in a terminator")
        for number, op in enumerate(block.ops):
            if id(op) in self.seen_ops:
                self.report(op, "the same op object occurs twice")
            self.seen_ops.add(id(op))
            if isinstance(op, ir.TERMINATORS) and number != len(block.ops) - 1:
                self.report(op, "a terminator is not the last op of its block")
            for value in op.operands():
                if value not in visible:
                    what = "outside its scope" if value in self.defined else "but not defined before"
                    self.report(op, f"{self.name(value)} is read {what}")
            for view in views(op):
                if view.tensor not in self.tensors:
                    self.report(op, f"tensor {view.tensor.name} is not a parameter of this kernel")
            if context.computes_only and isinstance(op, (ir.Store, ir.Atomic, ir.Print, ir.Assert)):
                self.report(op, "an effect where only a value may be computed")
            for message in op_violations(op):
                self.report(op, message)
            self.terminator(op, context)
            self.nested(op, visible, context)
            for value in op.defined():
                self.define(value, op)
                visible.add(value)

    def partial_sums(self) -> None:
        """Parts of a sum meet nothing but a carried value of one `for`, which starts at zero, is read only to be scaled
        and added to, and is made whole after the loop."""
        defs, readers = definitions(self.kernel.body), uses(self.kernel.body)
        claimed: set[ir.Value] = set()
        for loop in (op for op in walk(self.kernel.body) if isinstance(op, ir.For)):
            for number, (param, result) in enumerate(zip(loop.body.params[1:], loop.results, strict=True)):
                source = partial_sum(loop, number, defs)
                if source is None:
                    continue
                claimed.add(source.result)
                end = loop.body.ops[-1]
                assert isinstance(end, ir.Yield)
                total = defs[end.values[number]]
                chain = [op for op in readers.get(param, []) if op is not total]
                steps = [source.result, *(v for op in (*chain, total) for v in op.defined())]
                if len(readers.get(param, [])) != 1 or any(len(readers[v]) != 1 for v in steps):
                    self.report(total, f"parts of the sum {self.name(param)} are read where they count as the sum")
                scales = [op for op in chain if isinstance(op, ir.Compute) and op.fn == "mul"]
                if len(scales) < len(chain) or any(op.result not in total.operands() for op in scales):
                    self.report(total, f"parts of the sum {self.name(param)} are not only scaled and added to")
                if any(not isinstance(op, ir.SumParts) for op in readers.get(result, [])):
                    self.report(loop, f"{self.name(result)} is read in parts after the loop")
                start = defs.get(loop.inits[number])
                while isinstance(start, ir.Broadcast):
                    start = defs.get(start.operand)
                if not (isinstance(start, ir.Constant) and start.value == 0):
                    self.report(loop, f"parts of the sum {self.name(param)} do not start at 0")
        for op in walk(self.kernel.body):
            if isinstance(op, ir.Reduce) and op.partial and op.result not in claimed:
                self.report(op, "a partial sum that no loop adds up")
            elif isinstance(op, ir.SumParts):
                before = defs.get(op.operand)
                number = before.results.index(op.operand) if isinstance(before, ir.For) else 0
                if not isinstance(before, ir.For) or partial_sum(before, number, defs) is None:
                    self.report(op, f"{self.name(op.operand)} is no partial sum")

    def terminator(self, op: ir.Op, context: _Context) -> None:
        if not isinstance(op, ir.TERMINATORS):
            return
        types = tuple(v.type for v in op.operands())
        if isinstance(op, ir.Yield):
            if context.expected is None:
                self.report(op, "a yield outside of a nested block")
            elif types != context.expected:
                self.report(op, f"yields {_types(types)}, expected {_types(context.expected)}")
        elif isinstance(op, ir.Return):
            if context.computes_only:
                self.report(op, "a return where only a value may be computed")
        elif context.carried is None or context.computes_only:
            self.report(op, "no loop to act on")
        elif types != context.carried:
            self.report(op, f"carries {_types(types)}, the loop carries {_types(context.carried)}")

    def nested(self, op: ir.Op, visible: set[ir.Value], context: _Context) -> None:
        def enter(block: ir.Block, **changes: object) -> None:
            values = {"carried": context.carried, "computes_only": context.computes_only, **changes}
            self.block(block, set(visible), _Context(owner=op, **values))  # type: ignore[arg-type]

        results = tuple(v.type for v in op.defined())
        if isinstance(op, ir.If):
            enter(op.then, expected=results)
            enter(op.orelse, expected=results)
        elif isinstance(op, ir.For):
            enter(op.body, expected=results, carried=results)
        elif isinstance(op, ir.While):
            enter(op.condition, expected=(ScalarType(DType.BOOL),), carried=None, computes_only=True)
            enter(op.body, expected=results, carried=results)
        elif isinstance(op, ir.Reduce) and op.combine is not None:
            element = ScalarType(op.operand.dtype)
            enter(op.combine, expected=(element,), carried=None, computes_only=True)


def _types(types: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, types))})"


def _dim_names(type: TensorType) -> set[str]:
    return {d for d in type.dims if isinstance(d, str)}


def _expression_names(expression: DimExpr) -> set[str]:
    if isinstance(expression, DimName):
        return {expression.name}
    if isinstance(expression, DimBinary):
        return _expression_names(expression.left) | _expression_names(expression.right)
    return set()
