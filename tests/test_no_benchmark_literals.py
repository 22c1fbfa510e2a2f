"""No literal of a benchmark's shape, and no name of a benchmark's kernel, decides anything in the compiler.

Every Python file of phobos/ is parsed, so that comments and docstrings do not count and constant expressions do
(`1 << 12` is 4096); of the templates the text without comments is searched. What is legitimate is listed below with its
reason; an entry that no longer matches is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "phobos").rglob("*.py"))
# The device's text; prelude/host is the emulator's own.
TEMPLATES = sorted(p for p in (ROOT / "codegen_templates").rglob("*") if p.suffix in (".cuh", ".j2"))
TEMPLATES = [p for p in TEMPLATES if "host" not in p.parts]

# Extents of the benchmarks' cases that are no unit of any hardware: matrices, sequences, rows.
SHAPES = frozenset({2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768})
# Head sizes and tile extents: legitimate as widths and limits, suspicious where a branch asks for exactly one of them.
EXTENTS = frozenset({32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256, 512, 1024}) | SHAPES
# Words by which a compiler could recognise a benchmark; the names of the examples' kernels and of benches are added.
WORDS = {"gemm", "attention", "flash", "softmax", "saxpy", "layernorm", "kda"}

# (file, what, a part of the line): reason. `what` is as in Finding; "*" is any file.
ALLOWED: dict[tuple[str, str, str], str] = {
    ("*", "branch on 32", "bits == 32"): "the width of positions in bits",
    ("*", "branch on 64", "bits == 64"): "the width of positions in bits",
    ("phobos/semantic/resolve.py", "branch on 32", 'option == "index"'): "the width of positions in bits",
    ("phobos/semantic/resolve.py", "branch on 64", 'option == "index"'): "the width of positions in bits",
    ("phobos/contraction/fma_columns.py", "shape 2048", "_MOST_IN_BODY"): "multiply-adds of an unrolled loop body",
    ("phobos/runtime/arguments.py", "table of 32", '(1, 32): "uint32"'): "DLPack's dtypes by bits",
    ("phobos/runtime/arguments.py", "table of 32", '(2, 32): "float32"'): "DLPack's dtypes by bits",
    ("phobos/runtime/arguments.py", "table of 64", '(0, 64): "int64"'): "DLPack's dtypes by bits",
    ("phobos/runtime/arguments.py", "table of 64", '(2, 64): "float64"'): "DLPack's dtypes by bits",
    ("phobos/reference/numerics.py", "shape 4096", "0x1000"): "half of the last place of tf32",
    ("phobos/target.py", "shape 2048", "threads_per_sm"): "threads that a multiprocessor holds",
    ("phobos/runtime/request.py", "shape 4096", "_LARGE = "): "an extent that nobody named; a call names all",
    ("phobos/tuning/model.py", "shape 4096", "UNKNOWN_DIM = "): "an extent that nobody named; a call names all",
    ("phobos/runtime/warm.py", "shape 4096", "_MAX_RECORDS"): "launches that a kernel remembers",
    ("phobos/tuning/space.py", "shape 4096", "MOST = "): "configurations whose estimate is looked at",
    ("phobos/semantic/foreign.py", "name softmax", '"softmax": "'): "help for a name that other languages have",
}


@dataclass(frozen=True)
class Finding:
    """`what`: "shape 4096", "branch on 64", "table of 64" or "name gemm"."""

    file: str
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}: {self.text}"


def kernel_names() -> set[str]:
    """Names of the examples' kernels, and of the benches."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.ph")]
    names = {name for text in texts for name in re.findall(r"^kernel (\w+)", text, re.MULTILINE)}
    return names | {path.stem for path in (ROOT / "kbench" / "benches").glob("*.py") if path.stem != "__init__"}


def value_of(node: ast.expr) -> int | None:
    """The integer that a constant expression is."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = value_of(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp):
        return None
    a, b = value_of(node.left), value_of(node.right)
    if a is None or b is None:
        return None
    if isinstance(node.op, ast.Mult):
        return a * b
    if isinstance(node.op, ast.Add):
        return a + b
    if isinstance(node.op, ast.Sub):
        return a - b
    if isinstance(node.op, (ast.LShift, ast.Pow)) and 0 <= b < 64:
        return a << b if isinstance(node.op, ast.LShift) else a**b
    return None


def exact(node: ast.expr) -> Iterator[int]:
    """Integers that a comparison for equality asks for: `x == 64`, `x in (64, 128)`, `(m, n) == (64, 128)`."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for item in node.elts:
            yield from exact(item)
    elif isinstance(node, ast.Call):  # frozenset({64, 128})
        for item in node.args:
            yield from exact(item)
    elif (value := value_of(node)) is not None:
        yield value


def docstrings(tree: ast.Module) -> set[ast.AST]:
    """Strings that stand as statements: they are for readers."""
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {value for value in statements if isinstance(value, ast.Constant)}


def findings(file: str, text: str) -> list[Finding]:
    tree = ast.parse(text)
    lines = text.splitlines()
    ignored = docstrings(tree)
    words = re.compile("|".join(sorted(WORDS | kernel_names(), key=len, reverse=True)), re.IGNORECASE)
    out: list[Finding] = []

    def say(node: ast.AST, what: str) -> None:
        line = node.lineno  # type: ignore[attr-defined]
        found = Finding(file, line, what, lines[line - 1].strip())
        if found not in out:
            out.append(found)

    inner: set[ast.AST] = set()  # parts of constant expressions that were looked at as a whole
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node not in inner and (value := value_of(node)) is not None:
            inner.update(ast.walk(node))
            if abs(value) in SHAPES:
                say(node, f"shape {abs(value)}")
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, sides, sides[1:]):
                if isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
                    for value in (*exact(left), *exact(right)):
                        if value in EXTENTS:
                            say(node, f"branch on {value}")
        if isinstance(node, ast.MatchValue) and (value := value_of(node.value)) in EXTENTS:
            say(node, f"branch on {value}")
        if isinstance(node, ast.Dict):
            for key in node.keys:
                for value in exact(key) if key is not None else ():
                    if value in EXTENTS:
                        say(key or node, f"table of {value}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in ignored:
            for word in words.findall(node.value):
                say(node, f"name {word.lower()}")
    return out


def template_findings(file: str, text: str) -> list[Finding]:
    """Shapes and names in text that is no comment of Jinja or C++."""
    words = re.compile("|".join(sorted(WORDS | kernel_names(), key=len, reverse=True)), re.IGNORECASE)
    blank = lambda m: re.sub(r"[^\n]", " ", m.group())  # noqa: E731
    code = re.sub(r"\{#.*?#\}|/\*.*?\*/|//[^\n]*", blank, text, flags=re.DOTALL)
    out = []
    for number, line in enumerate(code.splitlines(), 1):
        for literal in re.findall(r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+)(?![\w.])", line):
            if int(literal, 0 if literal[:2].lower() == "0x" else 10) in SHAPES:
                out.append(Finding(file, number, f"shape {int(literal, 0)}", line.strip()))
        out.extend(Finding(file, number, f"name {word.lower()}", line.strip()) for word in words.findall(line))
    return out


def matches(entry: tuple[str, str, str], found: Finding) -> bool:
    file, what, part = entry
    return file in ("*", found.file) and found.what == what and part in found.text


@pytest.fixture(scope="module")
def everything() -> list[Finding]:
    python = (f for p in FILES for f in findings(p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8")))
    other = (
        f for p in TEMPLATES for f in template_findings(p.relative_to(ROOT).as_posix(), p.read_text(encoding="utf-8"))
    )
    return [*python, *other]


def test_no_shape_and_no_kernel_of_a_benchmark_in_the_compiler(everything: list[Finding]) -> None:
    assert len(FILES) > 100 and len(TEMPLATES) > 10
    found = [str(f) for f in everything if not any(matches(entry, f) for entry in ALLOWED)]
    assert found == [], "\n" + "\n".join(found)


def test_every_exception_is_still_needed(everything: list[Finding]) -> None:
    assert [entry for entry in ALLOWED if not any(matches(entry, f) for f in everything)] == []


@pytest.mark.parametrize(
    "text, what",
    [
        ("stages = 4 if n >= 4096 else 2", "shape 4096"),
        ("big = 1 << 13", "shape 8192"),
        ("if query.n == 64: pass", "branch on 64"),
        ("ok = head in (64, 128)", "branch on 128"),
        ("ok = (m, n) != (128, 256)", "branch on 256"),
        ("match n:\n    case 80: pass", "branch on 80"),
        ("plans = {(128, 64): 'a'}", "table of 64"),
        ("fast = kernel.name == 'attention'", "name attention"),
        ("fast = name.startswith('gemm_fp16')", "name gemm_fp16"),
        ("fast = f'{name}' in 'flash_attention_fp16'", "name flash_attention_fp16"),
    ],
)
def test_what_is_found(text: str, what: str) -> None:
    assert what in [f.what for f in findings("x.py", text)]


@pytest.mark.parametrize(
    "text",
    ['"""A tile of 4096, as in gemm_fp16."""', "x = 1  # for n == 64", "limit = 128", "if n > 64: pass", "a = b[64]"],
)
def test_what_is_not_found(text: str) -> None:
    assert findings("x.py", text) == []


def test_what_is_found_in_templates() -> None:
    text = "// 4096\n/* gemm\n8192 */ {# 2048 #}\nif (n == 4096) x1 = 0x1000; // attention\nvoid attention_tail();\n"
    found = [(f.line, f.what) for f in template_findings("x.cuh", text)]
    assert found == [(4, "shape 4096"), (4, "shape 4096"), (5, "name attention")]
