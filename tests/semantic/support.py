"""Kernel texts with marks: `§` stands before each place where a diagnostic is expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.tile import KernelIR, Op
from phobos.ir.verify import verify
from phobos.ir.walk import kernel_ops
from phobos.reference.interpreter import run
from phobos.semantic.check import check_kernel, check_kernel_with_warnings
from phobos.source import SourceFile
from phobos.syntax import ast
from phobos.syntax.parser import parse

MARK = "§"
PARAMS = (
    "A: tensor<f32>[N, M], B: tensor<f32>[N], H: tensor<f16>[N, M], I: tensor<i32>[N], U: tensor<u32>[N], "
    "P: tensor<f32>[8, 16], n: i32, u: u32, a: f32, h: f16, flag: bool"
)


def module(text: str) -> ast.Module:
    return parse(SourceFile("<test>", text))


def split(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without marks, and the 1-based (line, column) of each mark."""
    places, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        while MARK in line:
            places.append((number, line.index(MARK) + 1))
            line = line.replace(MARK, "", 1)
        lines.append(line)
    return "\n".join(lines), places


def wrap(body: str, params: str = PARAMS, attributes: str = "@grid(1)", before: str = "") -> str:
    """A kernel `k` around statements."""
    return f"{before}\n{attributes}\nkernel k({params}) {{\n{body}\n}}\n"


def check(text: str, name: str = "k", **options: Any) -> KernelIR:
    """The verified IR of a kernel."""
    kernel = check_kernel(module(text), name, **options)
    verify(kernel)
    return kernel


def ir(body: str, params: str = PARAMS, attributes: str = "@grid(1)", before: str = "", **options: Any) -> KernelIR:
    return check(wrap(body, params, attributes, before), **options)


def ops(kernel: KernelIR, kind: type[Op]) -> list[Any]:
    return [op for op in kernel_ops(kernel) if isinstance(op, kind)]


def failures(text: str, name: str = "k", **options: Any) -> tuple[Diagnostic, ...]:
    try:
        check_kernel(module(text), name, **options)
    except CompileError as error:
        return error.diagnostics
    return ()


def expect(text: str, *codes: str, name: str = "k", **options: Any) -> tuple[Diagnostic, ...]:
    """Asserts that exactly these codes are reported, at the marks."""
    text, places = split(text)
    found = failures(text, name, **options)
    shown = "\n".join(f"{d.code} {d.span and (d.span.line, d.span.column)} {d.message}" for d in found)
    assert [d.code for d in found] == list(codes), shown
    if places:
        assert sorted((d.span.line, d.span.column) for d in found if d.span) == sorted(places), shown
    return found


def expect_body(
    body: str, *codes: str, params: str = PARAMS, attributes: str = "@grid(1)", before: str = "", **options
):
    return expect(wrap(body, params, attributes, before), *codes, **options)


def warnings(text: str, name: str = "k", **options: Any) -> tuple[Diagnostic, ...]:
    return check_kernel_with_warnings(module(text), name, **options)[1]


def expect_warnings(text: str, *codes: str, name: str = "k", **options: Any) -> tuple[Diagnostic, ...]:
    text, places = split(text)
    found = warnings(text, name, **options)
    shown = "\n".join(f"{d.code} {d.span and (d.span.line, d.span.column)} {d.message}" for d in found)
    assert [d.code for d in found] == list(codes), shown
    if places:
        assert sorted((d.span.line, d.span.column) for d in found if d.span) == sorted(places), shown
    return found


def execute(text: str, arguments: Mapping[str, Any], name: str = "k", **options: Any) -> dict[str, Any]:
    """Runs a kernel on the reference on copies of the arguments, which it returns."""
    kernel = check(text, name, **options)
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    run(kernel, copies)
    return copies
