"""Names of the emitted text: none that C++, CUDA, PTX or the printer have taken, and different for different names."""

from __future__ import annotations

import pytest

from phobos.ir.c_names import RESERVED, c_identifier


@pytest.mark.parametrize(
    "name",
    "nullptr int tid norm rsqrt dim3 std exp2 WARP_SZ make_float4 cudaArrayDefault CUDART_VERSION CU_UUID_X NV_IF "
    "_ __ __x ph_x PH_x pos_0 X_stride1".split(),
)
def test_taken_names_change(name: str) -> None:
    assert c_identifier(name) != name


@pytest.mark.parametrize("name", "saxpy X Y row acc cu Cuda cuda norm2 pos stride make stride_0 NVIDIA".split())
def test_other_names_stay(name: str) -> None:
    assert c_identifier(name) == name


def test_different_names_stay_different() -> None:
    names = [base + "_" * n for base in (*sorted(RESERVED), "norm", "", "pos_1", "x") for n in range(4)]
    names = [n for n in dict.fromkeys(names) if n]
    assert len({c_identifier(n) for n in names}) == len(names)
