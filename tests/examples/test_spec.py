"""The language reference: its code compiles, its wrong code is rejected as it says, its tables are complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from phobos.diagnostics import CompileError, Diagnostic
from phobos.ir.tile import KernelIR
from phobos.ir.types import DType
from phobos.resources import grammar_dir
from phobos.semantic.check import check_kernel_with_warnings
from phobos.semantic.signature import signatures
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

SPEC = (grammar_dir() / "SPEC.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """A fenced block: `language` is the word behind the fence, `rest` what follows it, `line` its first line."""

    language: str
    rest: str
    text: str
    line: int


def _blocks() -> list[Block]:
    pattern = re.compile(r"^```([a-z]*) *([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [
        Block(m.group(1), m.group(2), m.group(3), SPEC.count("\n", 0, m.start()) + 2) for m in pattern.finditer(SPEC)
    ]


PROGRAMS = [b for b in _blocks() if b.language == "ph" and not b.rest]
REJECTED = [b for b in _blocks() if b.language == "ph" and b.rest.startswith("error ")]
WARNED = [b for b in _blocks() if b.language == "ph" and b.rest.startswith("warning ")]


def _line(block: Block) -> str:
    return f"line{block.line}"


def _kernels(block: Block) -> Iterator[tuple[KernelIR, tuple[Diagnostic, ...], SourceFile]]:
    """Every kernel of a block with its warnings, under its first configuration and both values of each const."""
    source = SourceFile(f"SPEC.md:{block.line}", block.text)
    module = parse(source)
    for signature in signatures(module):
        config = {name: values[0] for name, values in signature.space.items()}
        dtypes = dict.fromkeys(signature.dtype_params, DType.F32)
        for value in (False, True) if signature.consts else (False,):
            consts = {parameter.name: value for parameter in signature.consts}
            kernel, warnings = check_kernel_with_warnings(module, signature.name, config, dtypes, consts)
            yield kernel, warnings, source


def test_all_code_is_tested() -> None:
    assert len(PROGRAMS) > 12 and REJECTED and WARNED
    assert len(PROGRAMS) + len(REJECTED) + len(WARNED) == sum(b.language == "ph" for b in _blocks())


@pytest.mark.parametrize("block", PROGRAMS, ids=_line)
def test_program_is_clean(block: Block) -> None:
    kernels = list(_kernels(block))
    assert kernels
    for _, warnings, source in kernels:
        assert [w.render(source) for w in warnings] == []


@pytest.mark.parametrize("block", PROGRAMS, ids=_line)
def test_program_is_lowered(block: Block) -> None:
    from phobos.compiler import build_program, default_spec

    for kernel, _, source in _kernels(block):
        program = build_program(kernel, get_target("sm_90a"), default_spec(kernel), source)
        assert kernel.name in program.body


@pytest.mark.parametrize("block", REJECTED, ids=_line)
def test_wrong_program_is_rejected(block: Block) -> None:
    with pytest.raises(CompileError) as caught:
        list(_kernels(block))
    assert [d.code for d in caught.value.diagnostics] == block.rest.removeprefix("error ").split()


@pytest.mark.parametrize("block", WARNED, ids=_line)
def test_warning(block: Block) -> None:
    for _, warnings, _ in _kernels(block):
        assert [d.code for d in warnings] == block.rest.removeprefix("warning ").split()


def test_every_builtin_is_described() -> None:
    from phobos.semantic.catalogue import BUILTINS

    described = set(re.findall(r"`([a-z_0-9]+)\(", SPEC))
    assert set(BUILTINS) - described == set()


def test_links_within_the_page() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", SPEC, re.M)
    }
    for link in re.findall(r"\]\(#([^)]+)\)", SPEC):
        assert link in anchors


def test_every_example_is_listed() -> None:
    listed = SPEC[SPEC.index("\n## Examples") :]
    examples = {path.stem for path in (grammar_dir().parent / "examples").glob("*.ph")}
    assert examples and examples <= set(re.findall(r"`([a-z_0-9]+)`", listed))
