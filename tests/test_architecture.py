"""The rules of the house, read from the sources: imports go one way, files stay small, hardware stays in its rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "phobos"

# Later ones may import earlier ones and their own, never the reverse. Those in one entry are siblings that may use
# each other.
ORDER: list[tuple[str, ...]] = [
    ("source", "diagnostics", "settings", "resources", "target", "files"),
    ("syntax",),
    ("ir",),
    ("semantic",),
    ("layout",),
    ("contraction", "transfer"),
    ("passes",),
    ("codegen",),
    ("compiler", "tuning.default", "tuning.model", "tuning.space"),  # the cost model, which needs no device
    ("reference", "emulator", "runtime", "norms"),
    ("tuning",),
    ("trace",),
    ("kernel",),
    ("__init__",),
    ("ops", "console", "doctor"),
    ("commands",),
    ("cli",),
    ("__main__",),
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

MAX_LINES = {"phobos": 550, "kbench": 550, "codegen_templates": 550, "tests": 700}  # "about 500"

# The scheduled IR carries layouts and plans, and names their types in annotations; it does not import them to run.
TYPES_ONLY = {
    ("ir/storage.py", "layout"),
    ("ir/storage.py", "contraction"),
    ("ir/scheduled.py", "layout"),
    ("ir/scheduled.py", "contraction"),
}

# Words of the instruction set; only the rooms that own the instructions may know them.
HARDWARE_WORDS = (
    "mma.sync",
    "wgmma.",
    "cp.async",
    "ldmatrix",
    "stmatrix",
    "mbarrier.",
    "wmma.",
    "tensormap.",
    "setmaxnreg",
    "bar.sync",
    "shfl.sync",
    "ex2.approx",
)
ROOMS = ("contraction", "transfer", "emulator")  # the emulator implements the instructions on the CPU
ROOM_FILES = ("codegen/prelude.py", "target.py")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def unit(path: Path) -> str:
    """The folder or top-level module of `phobos` that a file belongs to."""
    return unit_of_module(path.relative_to(PACKAGE).with_suffix("").parts)


def unit_of_module(parts: tuple[str, ...]) -> str:
    """`parts` follow `phobos`: ("ir", "tile") is of "ir"; a name that `phobos` itself exports is of "__init__"."""
    if ".".join(parts[:2]) in RANK:
        return ".".join(parts[:2])
    return parts[0] if parts and parts[0] in RANK else "__init__"


def imported_units(path: Path, types_too: bool = True) -> Iterator[tuple[int, str]]:
    """(line, unit) of each import of phobos in a file, those inside functions included, and with `types_too` those in
    TYPE_CHECKING blocks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    types_only: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            types_only.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if node in types_only and not types_too:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "phobos":
                yield getattr(node, "lineno", 0), unit_of_module(tuple(parts[1:]))
            elif parts[0] == "kbench":
                yield getattr(node, "lineno", 0), "kbench"


def test_every_unit_has_a_rank() -> None:
    top = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in sources()}
    assert top <= set(RANK)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    mine = unit(path)
    at_run_time = set(imported_units(path, types_too=False))
    name = path.relative_to(PACKAGE).as_posix()
    upward = [
        f"line {line}: {mine} imports {other}"
        for line, other in imported_units(path)
        if (line, other) in at_run_time or (name, other) not in TYPES_ONLY
        if not (other == "kbench" and mine == "cli") and (other == "kbench" or RANK[other] > RANK[mine])
    ]
    assert upward == []


def test_an_upward_import_would_be_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "def f():\n    from phobos.codegen import kernel\n    import phobos.cli\n    from phobos import target\n"
    )
    assert list(imported_units(bad)) == [(2, "codegen"), (3, "cli"), (4, "target")]


def test_kbench_is_imported_only_by_the_command_line() -> None:
    users = {unit(p) for p in sources() for _, other in imported_units(p) if other == "kbench"}
    assert users == {"cli"}


@pytest.mark.parametrize("folder", MAX_LINES)
def test_files_stay_small(folder: str) -> None:
    kinds = {".py", ".j2", ".cuh", ".h", ".cpp", ".lark"}
    long = {
        str(p.relative_to(ROOT)): lines
        for p in (ROOT / folder).rglob("*")
        if p.suffix in kinds and (lines := len(p.read_text(encoding="utf-8").splitlines())) > MAX_LINES[folder]
    }
    assert long == {}


def code_text(path: Path) -> str:
    """The code of a file without comments and docstrings, where the instructions may be talked about."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body[0] = ast.Pass()
    return ast.unparse(tree)


def test_instruction_names_stay_in_their_rooms() -> None:
    found = {
        str(p.relative_to(ROOT)): words
        for p in sources()
        if unit(p) not in ROOMS and p.relative_to(PACKAGE).as_posix() not in ROOM_FILES
        if any(w in p.read_text(encoding="utf-8") for w in HARDWARE_WORDS)
        if (words := [w for w in HARDWARE_WORDS if w in code_text(p)])
    }
    assert found == {}


def test_no_silenced_errors() -> None:
    """No handler that does nothing at all: what is ignored is ignored for a reason that the code shows."""
    silent = []
    for path in (*sources(), *sorted((ROOT / "kbench").rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ExceptHandler) and all(isinstance(s, ast.Pass) for s in node.body):
                silent.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert silent == []
