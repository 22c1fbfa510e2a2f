"""Attributes: @launch, @autotune, @aligned, @tensorcore, @dynshared, @options, reserved and unknown ones."""

from __future__ import annotations

import pytest
from semantic.support import check, expect, failures, module

from phobos.ir.options import LaunchOptions, ScheduleOptions, TensorCoreRequest
from phobos.semantic.signature import signatures

K = "kernel k(X: tensor<f32>[N, D], Y: tensor<f32>[M], W: tensor<f32>[64]) {\n}"


def signature(attributes: str, kernel: str = K):
    return signatures(module(f"{attributes}\n{kernel}"))[0]


SPACES = [
    ("X1 in [4, 128]", (4, 8, 16, 32, 64, 128)),
    ("X1 in [3, 20]", (3, 6, 12, 20)),
    ("X1 in [64]", (64,)),
    ("X1 in [128, 4]", (128, 4)),
    ("X1 in [1, 2, 8]", (1, 2, 8)),
    ("X1 in {4, 128}", (4, 128)),
    ("X1 in {fma, mma}", ("fma", "mma")),
    ("X1 in [auto]", ("auto",)),
    ("X1 in {0, 1}", (0, 1)),
    ("X1 in [0.5, 2.0]", (0.5, 1.0, 2.0)),
    ("X1 in {true, false}", (True, False)),
    ("X1 in {auto, 2, 3}", ("auto", 2, 3)),
    ("X1 in [W, W * 4]", (8, 16, 32)),
    ("X1 in {-1, 1}", (-1, 1)),
]


@pytest.mark.parametrize(("entry", "values"), SPACES)
def test_space(entry: str, values: tuple) -> None:
    found = signature(f"const W = 8\n@autotune({entry})", "kernel k(X: tensor<f32>[N]) {\n}").space["X1"]
    assert found == values and [type(v) for v in found] == [type(v) for v in values]


def test_configurations_enumerate_the_space_in_order() -> None:
    found = list(signature("@autotune(BR in [4, 8], Q in {fma, mma, 2})").configurations())
    assert len(found) == 6 and found[0] == {"BR": 4, "Q": "fma"} and found[1] == {"BR": 4, "Q": "mma"}
    assert list(signature("").configurations()) == [{}]


def test_signature_is_enough_for_a_launcher() -> None:
    text = "const C = 3\n@autotune(D in [64], BR in [4, 8])\n"
    text += (
        "kernel k<T>(scale: f32, X: tensor<T>[N, D], const causal: bool, n: T, Y: tensor<bf16>[N, M, 4, C, D * 2]) {\n}"
    )
    (found,) = signatures(module(text))
    assert found.name == "k" and found.dtype_params == ("T",) and found.order == ("scale", "X", "n", "Y")
    assert [p.kind for p in found.params] == ["scalar", "tensor", "const", "scalar", "tensor"]
    assert found.parameter("X").dims == ("N", "D") and found.parameter("X").dtype_param == "T"
    assert found.parameter("Y").dims == ("N", "M", 4, "C", "(D * 2)") and str(found.parameter("Y").dtype) == "bf16"
    assert found.launch_dims == ("N", "M") and found.pinned == ("C", "D", "BR", "causal") and found.fixed == {"D": 64}
    assert found.parameter("causal").text() == "const causal: bool"
    assert found.parameter("X").text() == "X: tensor<T>[N, D]"


def test_resolved_attributes() -> None:
    text = "@launch(TH, 2, 128)\n@autotune(TH in {64, 128}, S in {2, 3}, MM in {fma, mma})\n@aligned(N = 16, M = TH)\n@tensorcore(tf32, require)\n"  # noqa: E501
    text += "@dynshared\n@options(matmul = MM, stages = S, pad = off, index = 64, precision = fast)\n" + K
    kernel = check(text, config={"TH": 128, "S": 3, "MM": "mma"})
    assert kernel.launch == LaunchOptions(threads=128, min_blocks=2, max_regs=128)
    assert kernel.options == ScheduleOptions(matmul="mma", stages=3, pad="off", index=64, precision="fast")
    assert kernel.tensorcore == TensorCoreRequest(kind="tf32", require=True) and kernel.dynshared
    assert [(p.dim, p.multiple) for p in kernel.aligned] == [("N", 16), ("M", 128)]
    assert dict(kernel.configuration) == {"TH": 128, "S": 3, "MM": "mma"}


def test_defaults() -> None:
    kernel = check(K)
    assert kernel.launch == LaunchOptions() and kernel.options == ScheduleOptions()
    assert kernel.tensorcore is None and not kernel.dynshared and kernel.aligned == () and kernel.configuration == ()
    assert [str(g) for g in kernel.grid] == ["1", "1", "1"]


BAD = [
    ("§@lunch(128)", "PH0301"),
    ("§@cluster(2)", "PH0314"),
    ("§@persistent", "PH0314"),
    ("§@pipeline(2)", "PH0302"),
    ("@tensorcore\n§@tensorcore(tf32)", "PH0303"),
    ("@launch(§100)", "PH0302"),
    ("@launch(§2048)", "PH0302"),
    ("@launch(§0)", "PH0302"),
    ("@launch(128, §0)", "PH0302"),
    ("@launch(128, 1, §999)", "PH0302"),
    ("@launch(§1.5)", "PH0302"),
    ("@launch(§T)", "PH0201"),
    ("§@launch(1, 2, 3, 4)", "PH0302"),
    ("@launch(§threads = 128)", "PH0302"),
    ("§@dynshared(1)", "PH0302"),
    ("@tensorcore(§tf16)", "PH0302"),
    ("@tensorcore(tf32, §f16)", "PH0302"),
    ("@tensorcore(§32)", "PH0302"),
    ("@tensorcore(§ieee)", "PH0302"),
    ("@aligned(§Q = 4)", "PH0315"),
    ("@aligned(N = §0)", "PH0313"),
    ("@aligned(N = §1.5)", "PH0313"),
    ("@aligned(§N)", "PH0313"),
    ("@aligned(N = 4, §N = 8)", "PH0313"),
    ("@aligned(N = §BR)", "PH0201"),
    ("§@aligned()", None),
    ("@autotune(D in [64])\n@aligned(§D = 48)", "PH0313"),
    ("@options(§matmull = fma)", "PH0304"),
    ("@options(matmul = §ffma)", "PH0304"),
    ("@options(stages = §0)", "PH0304"),
    ("@options(stages = §on)", "PH0304"),
    ("@options(pad = §1)", "PH0304"),
    ("@options(index = §16)", "PH0304"),
    ("@options(precision = §auto)", "PH0304"),
    ("@options(§fma)", "PH0302"),
    ("@options(pad = on, §pad = off)", "PH0302"),
    ("@options(pad = §true)", "PH0304"),
    ("@autotune(§BR)", "PH0305"),
    ("@autotune(§BR = 4)", "PH0305"),
    ("@autotune(BR in [4], §BR in [8])", "PH0305"),
    ("@autotune(§auto in [4, 8])", "PH0305"),
    ("@autotune(§tf32 in [4, 8])", "PH0305"),
    ("@autotune(BR in §[0, 8])", "PH0305"),
    ("@autotune(BR in {4, §4})", "PH0305"),
    ("@autotune(BR in {4, 4.0, §4.0})", "PH0305"),
    ("@autotune(BR in {nan, §nan})", "PH0305"),
    ("@autotune(BR in {fma, §mmaa})", "PH0305"),
    ("@autotune(BR in {1, §1 / 0})", "PH0219"),
    ("@autotune(BR in §[-4, 8])", "PH0305"),
    ("@grid(1, 1, 1, 1)", "PH0302"),
    ("@grid(§Q)", "PH0312"),
    ("@grid(§N < 2)", "PH0312"),
    ("@grid(§0)", "PH0312"),
    ("@grid(§N / 0)", "PH0312"),
    ("@grid(§1.5)", "PH0312"),
    ("@grid(§exp(N))", "PH0312"),
    ("@grid(§x = N)", "PH0302"),
]


@pytest.mark.parametrize(("attributes", "code"), [b for b in BAD if b[1]])
def test_attribute_errors(attributes: str, code: str) -> None:
    expect(f"{attributes}\n{K}", code)


def test_nearest_names() -> None:
    (found,) = failures(f"@lunch(128)\n{K}")
    assert found.help == "did you mean `@launch`?"
    (found,) = failures(f"@options(swizle = on)\n{K}")
    assert found.help == "did you mean `swizzle`?"
    (found,) = failures(f"@options(matmul = wgmm)\n{K}")
    assert found.help == "did you mean `wgmma`?"
    (found,) = failures(f"@tensorcore(tf23)\n{K}")
    assert "tf32" in (found.help or "")
    (found,) = failures("@aligned(Rows = 4)\nkernel k(X: tensor<f32>[rows]) {\n}")
    assert found.help == "did you mean `rows`?"


def test_all_header_errors_in_one_run() -> None:
    found = failures("@lunch(1)\n@options(pat = on)\nkernel k(grid: f32, X: tensor<f>[N]) {\n}")
    assert [d.code for d in found] == ["PH0301", "PH0304", "PH0206", "PH0204"]


def test_words_are_no_numbers() -> None:
    text = "@grid(1)\n@autotune(MM in {fma, mma})\nkernel k(X: tensor<f32>[4]) {\nX[0] = §MM\n}"
    expect(text, "PH0217", config={"MM": "fma"})
