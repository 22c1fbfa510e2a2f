"""Warnings that need names and no types: unused names, unreachable statements, hidden variables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from phobos.diagnostics import WARNING, Diagnostic
from phobos.semantic import codes
from phobos.source import Span
from phobos.syntax import ast


def _warning(code: str, message: str, span: Span, help: str | None = None) -> Diagnostic:
    return Diagnostic(code=code, message=message, span=span, severity=WARNING, help=help)


@dataclass(eq=False)
class _Declared:
    kind: str
    span: Span
    read: bool = False


@dataclass(eq=False)
class _Names:
    """Names of a block; reads mark the innermost declaration."""

    parent: "_Names | None"
    names: dict[str, _Declared] = field(default_factory=dict)

    def find(self, name: str) -> _Declared | None:
        scope: _Names | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None


class _Walker:
    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.called: set[str] = set()
        self.declared: list[tuple[str, _Declared]] = []

    def declare(self, scope: _Names, name: ast.Name, kind: str) -> None:
        hidden = scope.parent.find(name.id) if scope.parent is not None else None
        if hidden is not None and kind in ("let", "var") and hidden.kind in ("let", "var"):
            self.found.append(
                _warning(
                    codes.SHADOWED,
                    f"`{name.id}` hides the `{hidden.kind}` of line {hidden.span.line} in this block",
                    name.span,
                    f"assign with `{name.id} = ...`, or choose another name" if hidden.kind == "var" else None,
                )
            )
        item = _Declared(kind, name.span)
        scope.names[name.id] = item
        self.declared.append((name.id, item))

    # --- expressions

    def read(self, node: ast.Node | None, scope: _Names) -> None:
        if node is None:
            return
        if isinstance(node, ast.Name):
            found = scope.find(node.id)
            if found is not None:
                found.read = True
            else:
                # A function handed to `reduce`.
                self.called.add(node.id)
        elif isinstance(node, ast.Call):
            self.called.add(node.function.id)
            for arg in node.args:
                self.read(arg, scope)
        else:
            if isinstance(node, ast.Subscript):
                self.positions(node.items)
            for child in _children(node):
                self.read(child, scope)

    def positions(self, items: Iterable[ast.SubscriptItem]) -> None:
        """Positions such as the -1 of Python, which here lies before the first element."""
        for item in items:
            start = item.index if isinstance(item, ast.IndexItem) else None
            if isinstance(item, ast.RangeItem):
                start = item.start
            if isinstance(start, ast.Unary) and start.op == "-" and isinstance(start.operand, ast.IntLiteral):
                back = start.operand.value
                self.found.append(
                    _warning(
                        codes.NEGATIVE_POSITION,
                        f"the position -{back} is always masked: negative positions do not count from the end",
                        start.span,
                        f"from the end it is `N - {back}`, with the name of the axis for `N`",
                    )
                )

    def type(self, node: ast.TypeExpr | None, scope: _Names) -> None:
        if isinstance(node, ast.ShapedTypeExpr):
            for extent in node.shape:
                self.read(extent, scope)

    # --- statements

    def run(self, statements: Iterable[ast.Stmt], scope: _Names) -> None:
        ended: ast.Stmt | None = None
        for node in statements:
            if ended is not None:
                word = type(ended).__name__.lower()
                self.found.append(
                    _warning(codes.UNREACHABLE, f"this is never reached: `{word}` stands before it", node.span)
                )
                return
            self.statement(node, scope)
            if isinstance(node, (ast.Break, ast.Continue, ast.Return)):
                ended = node

    def statement(self, node: ast.Stmt, scope: _Names) -> None:
        if isinstance(node, (ast.Let, ast.Var, ast.Const)):
            self.read(node.value, scope)
            if not isinstance(node, ast.Const):
                self.type(node.type, scope)
            self.declare(scope, node.name, type(node).__name__.lower())
        elif isinstance(node, ast.Assign):
            # Writing a name is no use of it; writing a slice of a tensor is, of a tile not.
            target = node.target
            if isinstance(target, ast.Subscript):
                base = target.base
                found = scope.find(base.id) if isinstance(base, ast.Name) else None
                if found is None or found.kind != "var":
                    self.read(base, scope)
                self.positions(target.items)
                for item in target.items:
                    self.read(item, scope)
            self.read(node.value, scope)
        elif isinstance(node, ast.For):
            for attribute in node.attributes:
                self.attribute(attribute, scope)
            self.read(node.unroll, scope)
            for arg in node.args:
                self.read(arg, scope)
            inner = _Names(scope)
            self.declare(inner, node.index, "loop index")
            self.run(node.body, _Names(inner))
        elif isinstance(node, ast.While):
            self.read(node.condition, scope)
            self.run(node.body, _Names(scope))
        elif isinstance(node, ast.If):
            self.read(node.condition, scope)
            self.run(node.then, _Names(scope))
            self.run(node.orelse, _Names(scope))
        elif isinstance(node, (ast.Return, ast.ExprStmt)):
            self.read(node.value, scope)

    def attribute(self, node: ast.Attribute, scope: _Names) -> None:
        for arg in node.args:
            if node.name != "autotune":
                self.read(arg.value, scope)

    def unused(self) -> None:
        for name, item in self.declared:
            if item.read or name.startswith("_"):
                continue
            if item.kind in ("let", "var", "const"):
                self.found.append(
                    _warning(
                        codes.UNUSED_VARIABLE, f"`{name}` is never read", item.span, f"remove it, or call it `_{name}`"
                    )
                )
            elif item.kind == "parameter":
                self.found.append(_warning(codes.UNUSED_PARAMETER, f"the parameter `{name}` is never used", item.span))
            elif item.kind == "autotune":
                self.found.append(
                    _warning(
                        codes.UNUSED_AUTOTUNE,
                        f"the autotune name `{name}` is never used",
                        item.span,
                        "each of its values compiles the same kernel",
                    )  # fmt: skip
                )


def _children(node: ast.Node) -> list[ast.Node]:
    if isinstance(node, ast.Unary):
        return [node.operand]
    if isinstance(node, ast.Binary):
        return [node.left, node.right]
    if isinstance(node, ast.Member):
        return [node.base]
    if isinstance(node, ast.Subscript):
        return [node.base, *node.items, *([node.fill] if node.fill else [])]
    if isinstance(node, ast.IndexItem):
        return [node.index]
    if isinstance(node, ast.RangeItem):
        return [x for x in (node.start, node.end) if x is not None]
    if isinstance(node, ast.SpanItem):
        return [node.start, node.length]
    if isinstance(node, ast.ListExpr):
        return list(node.items)
    return []


def _kernel(kernel: ast.Kernel) -> _Walker:
    walker = _Walker()
    outer = _Names(None)
    for attribute in kernel.attributes:
        if attribute.name == "autotune":
            for arg in attribute.args:
                if arg.name is not None:
                    walker.declare(outer, arg.name, "autotune")
    for param in kernel.params:
        walker.declare(outer, param.name, "parameter")
    for param in kernel.params:
        walker.type(param.type, outer)
    for attribute in kernel.attributes:
        walker.attribute(attribute, outer)
    walker.run(kernel.body, _Names(outer))
    walker.unused()
    return walker


def _function(function: ast.Function) -> _Walker:
    walker = _Walker()
    outer = _Names(None)
    for param in function.params:
        walker.declare(outer, param.name, "parameter")
    walker.run(function.body, _Names(outer))
    walker.unused()
    return walker


def kernel_warnings(kernel: ast.Kernel) -> list[Diagnostic]:
    """Warnings about one kernel, in order of place."""
    return _sorted(_kernel(kernel).found)


def module_warnings(module: ast.Module) -> list[Diagnostic]:
    """Warnings about every kernel and function of a file, in order of place."""
    kernels = [_kernel(k) for k in module.kernels]
    functions = {f.name.id: _function(f) for f in module.functions}
    found = [d for walker in [*kernels, *functions.values()] for d in walker.found]
    reached: set[str] = set()
    todo = [name for walker in kernels for name in walker.called]
    while todo:
        name = todo.pop()
        if name in functions and name not in reached:
            reached.add(name)
            todo.extend(functions[name].called)
    for function in module.functions:
        name = function.name.id
        if module.kernels and name not in reached and not name.startswith("_"):
            found.append(
                _warning(
                    codes.UNUSED_FUNCTION,
                    f"no kernel calls `{name}`, so its body is not checked",
                    function.name.span,
                )
            )
    return _sorted(found)


def _sorted(found: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(found, key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0))


def calls(function: ast.Function) -> set[str]:
    """Names that a function calls or hands on."""
    return _function(function).called
