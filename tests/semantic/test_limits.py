"""Tiles that are no tiles: too many axes, too many elements."""

from __future__ import annotations

import pytest

import phobos


def faults(body: str, parameters: str = "X: tensor<f32>[N]") -> list[str]:
    with pytest.raises(phobos.CompileError) as info:
        phobos.jit(f"const HUGE = 9223372036854775807\nkernel k({parameters}) {{\n{body}\n}}").compile(arch="sm_80")
    return [f"{d.code} {d.message}" for d in info.value.diagnostics]


@pytest.mark.parametrize("body", ["X[0 :+ 2, :, :, :] = 1.0", "X[:, :, :, 0 :+ 2] += X[:, :, :, 0 :+ 2]"])
def test_a_slice_of_four_axes(body: str) -> None:
    found = faults(body, "X: tensor<f32>[2, 2, 2, 2]")
    assert found and all("PH0224 a slice of 4 axes is no tile" in f for f in found)


@pytest.mark.parametrize(
    "body",
    [
        "X[0 :+ 4294967296] = 1.0",
        "X[0 :+ HUGE + 1] = 1.0",
        "let t = zeros(f32, 1024, 1025)\n X[0] = sum(t)",
        "let t = iota(0, 2048) + iota(1, 1024)\n X[0] = f32(i32(sum(t)))",
        "for i in range(2) { X[i] = sum(X[0 :+ 1048577]) }",
    ],
)
def test_more_elements_than_a_block_can_hold(body: str) -> None:
    found = faults(body)
    assert found and all("PH0224" in f and "the most is 1048576" in f for f in found)


def test_the_largest_tile() -> None:
    assert phobos.jit("kernel k(X: tensor<f32>[N]) {\n X[0 :+ 1048576] = 1.0\n}").compile(arch="sm_80").cuda
