"""What the caller gives: autotune values, pinned dims, dtypes, const parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from semantic.support import check, expect, failures, module, ops

from phobos.diagnostics import CompileError
from phobos.ir.tile import Cast, Store
from phobos.ir.types import DType
from phobos.semantic.check import check_kernel

TUNED = "@grid(1)\n@autotune(BR in {16, 32}, D in [64], MM in {fma, mma})\n@options(matmul = MM)\n"
TUNED += "kernel k(X: tensor<f32>[N, D]) {\nX[0 :+ BR, :] = 1.0\n}"


def test_values_are_pinned() -> None:
    kernel = check(TUNED, config={"BR": 32, "MM": "mma"})
    assert ops(kernel, Store)[0].value.shape == (32, 64) and kernel.tensors[0].type.dims == ("N", 64)
    assert dict(kernel.configuration) == {"BR": 32, "D": 64, "MM": "mma"}


BAD = [
    ({"MM": "fma"}, "PH0306", "BR in {16, 32}"),
    ({"BR": 16}, "PH0306", "MM in {fma, mma}"),
    ({"BR": 17, "MM": "fma"}, "PH0308", "{16, 32}"),
    ({"BR": "16", "MM": "fma"}, "PH0308", "{16, 32}"),
    ({"BR": 16.0, "MM": "fma"}, "PH0308", "{16, 32}"),
    ({"BR": True, "MM": "fma"}, "PH0308", "{16, 32}"),
    ({"BR": None, "MM": "fma"}, "PH0308", "{16, 32}"),
    ({"BR": 16, "MM": "wmma"}, "PH0308", "{fma, mma}"),
    ({"BR": 16, "MM": "fma", "D": 32}, "PH0308", "{64}"),
    ({"BR": 16, "MM": "fma", "BRR": 1}, "PH0307", "BRR"),
    ({"BR": 16, "MM": "fma", "N": 0}, "PH0308", "N"),
    ({"BR": 16, "MM": "fma", "N": "8"}, "PH0308", "N"),
]


@pytest.mark.parametrize(("config", "code", "text"), BAD)
def test_configuration_errors(config: dict, code: str, text: str) -> None:
    (found,) = expect(TUNED, code, config=config)
    assert text in found.message and found.span is not None


def test_all_missing_names_are_told() -> None:
    assert [d.code for d in failures(TUNED)] == ["PH0306", "PH0306"]


def test_space_can_be_left() -> None:
    kernel = check(TUNED, config={"BR": 17, "MM": "wmma", "D": 5}, strict_space=False)
    assert ops(kernel, Store)[0].value.shape == (17, 5) and kernel.options.matmul == "wmma"
    expect(TUNED, "PH0304", config={"BR": 17, "MM": "nonsense"}, strict_space=False)


def test_numpy_integers_are_integers() -> None:
    assert dict(check(TUNED, config={"BR": np.int64(16), "MM": "fma"}).configuration)["BR"] == 16


def test_the_caller_pins_a_dim() -> None:
    text = "kernel k(X: tensor<f32>[N, D]) {\nX[0 :+ 2, :] = f32(D)\n}"
    expect(text.replace("X[0 :+ 2, :]", "X[0 :+ 2, §:]"), "PH0223")
    kernel = check(text, config={"D": 48})
    assert kernel.tensors[0].type.dims == ("N", 48) and [d.name for d in kernel.dims] == ["N"]
    assert dict(kernel.configuration) == {"D": 48}


def test_dtypes() -> None:
    text = "kernel k<T>(X: tensor<T>[4]) {\nX[:] = 1.0e30\n}"
    assert dict(check(text, dtypes={"T": "f32"}).configuration) == {"T": "f32"}
    assert check(text, dtypes={"T": DType.BF16}).tensors[0].type.dtype is DType.BF16
    expect(text, "PH0309")
    expect(text, "PH0309", dtypes={"T": "f33"})
    expect(text, "PH0309", dtypes={"T": "index"})
    expect(text, "PH0309", "PH0309", dtypes={"S": "f32"})
    expect(text.replace("1.0e30", "§1.0e30"), "PH0213", dtypes={"T": "f16"})


CONSTS = (
    "kernel k(X: tensor<f32>[4], const causal: bool, const w: i32, const s: f16) {\nif causal { X[:] = s }\nX[w] = w\n}"
)


def test_consts() -> None:
    kernel = check(CONSTS, consts={"causal": True, "w": 3, "s": 0.1})
    assert dict(kernel.configuration) == {"causal": True, "w": 3, "s": float(np.float16(0.1))}
    assert kernel.order == ("X",) and len(ops(kernel, Store)) == 2 and not ops(kernel, Cast)
    assert len(ops(check(CONSTS, consts={"causal": False, "w": 3, "s": 0.1}), Store)) == 1


@pytest.mark.parametrize(
    "consts",
    [
        {"w": 3, "s": 0.1},
        {"causal": 1, "w": 3, "s": 0.1},
        {"causal": True, "w": True, "s": 0.1},
        {"causal": True, "w": 2**40, "s": 0.1},
        {"causal": True, "w": 1.5, "s": 0.1},
        {"causal": True, "w": 1, "s": 1e9},
        {"causal": True, "w": 1, "s": "x"},
        {"causal": True, "w": 1, "s": 0.1, "W": 2},
    ],
)
def test_const_errors(consts: dict) -> None:
    expect(CONSTS, "PH0310", consts=consts)


def test_const_parameter_as_a_dim() -> None:
    kernel = check("kernel k(X: tensor<f32>[N, W], const W: i32) {\nX[0, :] = 1.0\n}", consts={"W": 8})
    assert kernel.tensors[0].type.dims == ("N", 8)
    expect("kernel k(X: tensor<f32>[N, §W], const W: i32) {\n}", "PH0224", consts={"W": 0})


def test_errors_carry_the_source() -> None:
    with pytest.raises(CompileError) as caught:
        check_kernel(module("kernel k(X: tensor<f32>[4]) {\n  X[0] = yy\n}"), "k")
    assert "  X[0] = yy" in str(caught.value) and "^^" in str(caught.value)


def test_warnings_are_handed_over() -> None:
    found: list = []
    check_kernel(module("kernel k(X: tensor<f32>[4]) {\nlet y = X[0]\n}"), "k", warnings=found)
    assert [d.code for d in found] == ["PH0402"]


@pytest.mark.parametrize("values", ["{1, 1.0, true}", "{0.0, -0.0}", "{nan, 1.0}", "{0, false, 0.0}"])
def test_values_that_python_counts_as_equal_are_told_apart(values: str) -> None:
    text = f"@grid(1)\n@autotune(F in {values})\nkernel k(X: tensor<f32>[N]) {{\nX[0 :+ 4] = f32(F)\n}}"
    kinds = (1, 1.0, True, 0.0, -0.0, math.nan, 0, False, np.float64(1.0))
    good = {repr(check(text, config={"F": v}).configuration[0][1]) for v in kinds if _accepts(text, v)}
    words = {"true": "True", "false": "False"}
    assert good == {words.get(v, v) for v in values.strip("{}").split(", ")}


def _accepts(text: str, value: object) -> bool:
    try:
        check_kernel(module(text), "k", {"F": value})
    except CompileError as error:
        assert [d.code for d in error.diagnostics] == ["PH0308"]
        return False
    return True


def test_a_word_that_looks_like_the_number_is_quoted() -> None:
    assert "`BR` cannot be '16'" in expect(TUNED, "PH0308", config={"BR": "16", "MM": "fma"})[0].message
    assert "`MM` cannot be wmma" in expect(TUNED, "PH0308", config={"BR": 16, "MM": "wmma"})[0].message
