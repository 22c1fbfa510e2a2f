"""Each mask that an example's own text states is needed: without it the reference gives wrong numbers at some size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import harness
import pytest
from cases import CASES

from phobos import reference
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile, Span
from phobos.syntax import ast
from phobos.syntax.parser import parse


def _nodes(node: object) -> Iterator[ast.Node]:
    if isinstance(node, ast.Node):
        yield node
    if isinstance(node, tuple):
        for item in node:
            yield from _nodes(item)
    elif is_dataclass(node) and not isinstance(node, (Span, SourceFile)):
        for f in fields(node):
            yield from _nodes(getattr(node, f.name))


def _offset(source: SourceFile, line: int, column: int) -> int:
    return sum(len(text) + 1 for text in source.lines[: line - 1]) + column - 1


def _cut(source: SourceFile, span: Span) -> tuple[int, int]:
    return _offset(source, span.line, span.column), _offset(source, span.end_line, span.end_column)


def _is_literal(node: ast.Expr) -> bool:
    inner = node.operand if isinstance(node, ast.Unary) else node
    return isinstance(inner, (ast.FloatLiteral, ast.IntLiteral))


def _masks(file: str) -> list[tuple[str, str]]:
    """(what is deleted, the text without it): a `where` gives way to its branch that is no literal, a fill to zero."""
    source, module = harness.load_example(file)
    out = []
    for node in _nodes(module):
        start, end = _cut(source, node.span)
        if isinstance(node, ast.Subscript) and node.fill is not None:
            fill_start, fill_end = _cut(source, node.fill.span)
            keep = source.text[start : source.text.rindex("else", start, fill_start)]
            out.append((f"line {node.span.line}: fill {source.text[fill_start:fill_end]}", start, fill_end, keep))
        elif isinstance(node, ast.Call) and node.function.id == "where":
            _, yes, no = node.args
            literal = _is_literal(yes)
            if not literal and not _is_literal(no):
                continue  # a choice between two values, not a mask
            kept_start, kept_end = _cut(source, (no if literal else yes).span)
            what = f"line {node.span.line}: {source.text[start:end]}"
            out.append((what, start, end, f"({source.text[kept_start:kept_end]})"))
    return [(what, source.text[:start] + keep + source.text[end:]) for what, start, end, keep in out]


_FILES = {file: masks for file in sorted({case.file for case in CASES}) if (masks := _masks(file))}
_MUTANTS = [(file, what, text) for file, masks in _FILES.items() for what, text in masks]


def test_masks_are_found() -> None:
    assert {"softmax_fp32", "layernorm_fp32", "masked_attention_fp32", "argmax_rows", "histogram"} <= set(_FILES)
    assert [what.split(": ")[1] for what, _ in _FILES["masked_attention_fp32"]] == [
        "where(iota(1) < Nk - kt, s, -inf)",
        "where(kt + iota(1) <= row + iota(0) + Nk - Nq, s, -inf)",
        "where(mnew == -inf, 0.0, mnew)",
        "where(l == 0.0, 1.0, l)",
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("file, what, text", _MUTANTS, ids=[f"{file}-{what}" for file, what, _ in _MUTANTS])
def test_every_mask_of_the_text_is_needed(file: str, what: str, text: str) -> None:
    module = parse(SourceFile(f"{file}.ph", text))
    for case in CASES:
        if case.file != file:
            continue
        dtypes = {"T": case.dtype} if case.generic else {}
        kernel = check_kernel(module, case.kernel, dict(case.config), dtypes, dict(case.consts))
        before = harness.case_arguments(case)
        after = harness.copy_arguments(before)
        reference.run(kernel, after)
        rounding = harness.rounding_of(kernel, case.dtype)
        if harness.failures(case.kernel, before, after, dict(case.consts), rounding):
            return
    pytest.fail(f"no case needs {what}")
