"""What `pip install .` takes is what the tree has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from phobos import resources
from phobos.diagnostics import PACKAGES, missing_package

ROOT = Path(__file__).resolve().parent.parent


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def folder_of(package: str, mapping: dict[str, str]) -> Path:
    """setuptools' rule: the longest mapped prefix, the rest as subfolders."""
    parts = package.split(".")
    for cut in range(len(parts), 0, -1):
        prefix = ".".join(parts[:cut])
        if prefix in mapping:
            return ROOT.joinpath(mapping[prefix], *parts[cut:])
    return ROOT.joinpath(*parts)


def test_every_package_of_the_tree_is_listed() -> None:
    in_tree = {
        ".".join(p.parent.relative_to(ROOT).parts) for top in ("phobos", "kbench") for p in (ROOT / top).rglob("*.py")
    }
    data = {"phobos._examples", "phobos._grammar", "phobos._templates"}
    assert set(project()["tool"]["setuptools"]["packages"]) == in_tree | data


def test_every_listed_package_has_a_folder() -> None:
    options = project()["tool"]["setuptools"]
    missing = [p for p in options["packages"] if not folder_of(p, options["package-dir"]).is_dir()]
    assert missing == []


def test_every_data_file_is_packaged() -> None:
    """Whatever the installed compiler reads at run time matches a package-data pattern of its package."""
    options = project()["tool"]["setuptools"]
    packaged: set[Path] = set()
    for package, patterns in options["package-data"].items():
        base = folder_of(package, options["package-dir"])
        for pattern in patterns:
            packaged.update(base.glob(pattern))
    needed = {resources.grammar_dir() / "phobos.lark", *resources.examples_dir().glob("*.ph")}
    needed |= {p for p in resources.templates_dir().rglob("*") if p.is_file()}
    needed |= {p for p in (ROOT / "phobos").rglob("*") if p.suffix in (".h", ".cpp", ".cuh", ".j2", ".json")}
    assert needed - packaged == set()


def test_resources_of_a_checkout() -> None:
    assert resources.grammar_dir() == ROOT / "grammar"
    assert resources.templates_dir() == ROOT / "codegen_templates"
    assert resources.examples_dir() == ROOT / "examples"


def test_resources_of_an_installed_package(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("_grammar", "_templates", "_examples"):
        (tmp_path / "phobos" / name).mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "phobos")
    assert resources.grammar_dir() == tmp_path / "phobos" / "_grammar"
    assert resources.templates_dir() == tmp_path / "phobos" / "_templates"
    assert resources.examples_dir() == tmp_path / "phobos" / "_examples"


def test_nvrtc_is_no_newer_than_the_oldest_driver() -> None:
    pins = [d for d in project()["project"]["dependencies"] if d.startswith("nvidia-cuda-nvrtc")]
    assert len(pins) == 1 and ">=13.0,<13.1" in pins[0]


def test_a_missing_package_is_named() -> None:
    """Every package that is listed; libraries without a module apart."""
    listed = {re.split(r"[^\w-]", text)[0] for text in project()["project"]["dependencies"]}
    assert set(PACKAGES.values()) == listed - {"nvidia-cuda-nvrtc"}
    assert missing_package(ModuleNotFoundError("", name="lark.lexer")) is not None
    assert missing_package(ModuleNotFoundError("", name="phobos.nothing")) is None
    assert missing_package(ModuleNotFoundError("")) is None
