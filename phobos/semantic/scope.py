"""Lexical scopes: names of values. Functions, dtypes and built-ins live in a namespace of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from phobos.semantic.entities import Binding, Variable


@dataclass(eq=False)
class Scope:
    """Names of one block; `parent` None for the outermost one."""

    parent: "Scope | None"
    names: dict[str, Binding | Variable] = field(default_factory=dict)

    def find(self, name: str) -> Binding | Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def free(self, base: str) -> str:
        """A name like `base` that nothing visible has."""
        name, number = base, 1
        while self.find(name) is not None:
            number += 1
            name = f"{base}{number}"
        return name

    def visible(self) -> list[str]:
        out: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            out.extend(scope.names)
            scope = scope.parent
        return out

    def variables(self) -> Iterator[Variable]:
        """Every `var` of this scope and of those around it, outermost first."""
        if self.parent is not None:
            yield from self.parent.variables()
        for item in self.names.values():
            if isinstance(item, Variable):
                yield item
