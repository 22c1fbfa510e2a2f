"""The flash attention kernel that shows the language at work: it parses, and its tree is a golden.

PHOBOS_UPDATE_GOLDEN=1 rewrites the golden.
"""

import os
from pathlib import Path

from phobos.source import SourceFile
from phobos.syntax import ast
from phobos.syntax.dump import dump
from phobos.syntax.parser import parse

DATA = Path(__file__).parent / "data"
GOLDEN = Path(__file__).parents[1] / "golden" / "syntax" / "flash_attention_fp32.ast"


def test_seed() -> None:
    path = DATA / "flash_attention_fp32.ph"
    module = parse(SourceFile(path.name, path.read_text(encoding="utf-8")))
    (kernel,) = module.kernels
    assert kernel.name.id == "flash_attention"
    assert [a.name for a in kernel.attributes] == ["tensorcore", "launch", "autotune", "aligned"]
    assert [p.name.id for p in kernel.params] == ["Q", "K", "V", "O", "scale"]
    assert [type(s).__name__ for s in kernel.body] == ["Let"] * 3 + ["Var"] * 3 + ["For"] + ["Assign"] * 2
    loop = kernel.body[6]
    assert isinstance(loop, ast.For) and loop.index.id == "kt" and len(loop.body) == 13


def test_golden() -> None:
    path = DATA / "flash_attention_fp32.ph"
    text = dump(parse(SourceFile(path.name, path.read_text(encoding="utf-8"))), spans=True)
    if os.environ.get("PHOBOS_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text
