"""Values that no method of the public objects can take, and what crosses from one process to another."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phobos

from .fakes import SAXPY


@pytest.mark.parametrize("dims", [{"N": -1}, {"N": 2.5}, {"N": "3"}, {"N": True}, {"N": None}, {3: 3}, [4096], 3])
def test_grid_takes_extents(dims: Any) -> None:
    compiled = phobos.jit(SAXPY).compile(arch="sm_80", config={"B": 128})
    with pytest.raises(phobos.LaunchError) as info:
        compiled.grid(dims)
    assert info.value.diagnostics[0].code == "PH0724"
    assert compiled.grid({"N": np.int64(200)}) == (2, 1, 1)
    assert all(type(n) is int for n in compiled.grid({"N": np.int64(300)}))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"arch": b"sm_80"}, "PH0901"),
        ({"dtypes": 3}, "PH0606"),
        ({"dtypes": {1: "f32"}}, "PH0606"),
        ({"dims": 3}, "PH0607"),
        ({"dims": {1: 2}}, "PH0315"),
        ({"config": 3}, "PH0607"),
        ({"config": {1: 2}}, "PH0607"),
    ],
)
def test_compile_takes_names_and_mappings(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(SAXPY).compile(**arguments)
    assert info.value.diagnostics[0].code == code


@pytest.mark.parametrize("path", [None, 3, 1.5, ["k.ph"]])
def test_load_takes_a_path(path: Any) -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.load(path)
    assert info.value.diagnostics[0].code == "PH0608"


def test_the_number_of_an_architecture() -> None:
    assert phobos.jit(SAXPY).compile(arch=80).arch == "sm_80"  # type: ignore[arg-type]


def test_a_kernel_name_that_is_no_text() -> None:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(SAXPY, 3)  # type: ignore[arg-type]
    assert info.value.diagnostics[0].code == "PH0208"


def test_a_path_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "k.ph").write_text(SAXPY)
    assert phobos.load(bytes(tmp_path / "k.ph")).name == "saxpy"  # type: ignore[arg-type]


@pytest.mark.parametrize("across", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_what_crosses_processes(across: Any) -> None:
    """A pool of processes pickles results and errors; an error that cannot be unpickled hangs it."""
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit("kernel k(X: tensor<f32>[N]) {\n X[0] = q\n}")(np.zeros(3, np.float32), backend="reference")
    other = across(info.value)
    assert type(other) is phobos.CompileError
    assert (other.diagnostics, str(other)) == (info.value.diagnostics, str(info.value))

    x = np.arange(5, dtype=np.float32)
    y = np.ones(5, np.float32)
    across(phobos.jit(SAXPY))(x, y, 2.0, backend="reference")
    assert y.tolist() == [1, 3, 5, 7, 9]
