"""Arguments that no kernel can take: one diagnostic each, also where another library's code fails."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phobos
from phobos.runtime.binding import overlaps_itself

ADD = """
kernel add(X: tensor<f32>[M, N], const by: i32) {
  X[0 :+ 4, 0 :+ 4] = X[0 :+ 4, 0 :+ 4] + f32(by)
}
"""


def fault(array: Any, **call: Any) -> phobos.Diagnostic:
    with pytest.raises(phobos.PhobosError) as info:
        phobos.jit(ADD)(array, **{"by": 1, "backend": "reference", **call})
    (found,) = info.value.diagnostics
    return found


def windows() -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.zeros(16, np.float32), (5, 4), (4, 4))


def test_a_written_array_whose_elements_coincide() -> None:
    """Sliding windows share elements although no stride is 0."""
    assert fault(windows()).code == "PH0714"
    phobos.jit(ADD)(np.zeros((8, 8), np.float32).T[::2, ::-2], by=1, backend="reference")


def test_an_empty_array_has_nothing_that_could_coincide() -> None:
    empty = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (0, 64), (0, 0))
    for backend in ("reference", "emulator"):
        phobos.jit(ADD)(empty, by=1, backend=backend)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-12, 12)), max_size=4))
@settings(max_examples=300, deadline=None)
def test_overlaps_itself(axes: list[tuple[int, int]]) -> None:
    shape, strides = tuple(e for e, _ in axes), tuple(s for _, s in axes)
    places = [sum(i * s for i, s in zip(at, strides)) for at in itertools.product(*map(range, shape))]
    assert overlaps_itself(shape, strides) == (len(set(places)) < len(places))


@pytest.mark.parametrize("backend", ["reference", "emulator"])
def test_misaligned_elements(backend: str) -> None:
    array = np.zeros(65, np.uint8)[1:].view(np.float32).reshape(4, 4)
    found = fault(array, backend=backend)
    assert found.code == "PH0706" and "multiple of its element size 4" in found.message


def test_masked_arrays() -> None:
    assert "masked" in fault(np.ma.masked_array(np.zeros((4, 4), np.float32), mask=np.ones((4, 4)))).message


class _Raises:
    @property
    def __array_interface__(self) -> Any:
        raise RuntimeError("boom")


class _NoTable:
    __cuda_array_interface__: dict[str, Any] = {}


class _NoPointer:
    __cuda_array_interface__ = {"typestr": "<f4", "shape": (4, 4), "data": None, "version": 3}


class _NullPointer:
    __array_interface__ = {"typestr": "<f4", "shape": (4, 4), "data": (0, False), "version": 3}


class _NoDict:
    __array_interface__ = 3


class _NoCapsule:
    def __dlpack__(self, **_: Any) -> Any:
        return 3

    def __dlpack_device__(self) -> Any:
        return 1, 0


class _NoDevice(_NoCapsule):
    def __dlpack_device__(self) -> Any:
        return None


@pytest.mark.parametrize("kind", [_Raises, _NoTable, _NoPointer, _NullPointer, _NoDict, _NoCapsule, _NoDevice])
def test_objects_that_break_their_protocol(kind: type) -> None:
    found = fault(kind())
    assert found.code == "PH0706" and kind.__name__ in found.message


def test_a_const_with_two_values() -> None:
    array = np.zeros((4, 4), np.float32)
    assert "given twice" in fault(array, by=1, config={"by": 2}).message
    phobos.jit(ADD)(array, by=2, config={"by": 2}, backend="reference")
    assert (array == 2).all()
    with pytest.raises(phobos.CompileError, match="given twice"):
        phobos.jit(ADD).compile(consts={"by": 1}, config={"by": 2})
