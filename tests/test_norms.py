from __future__ import annotations

import numpy as np
import pytest

from phobos.norms import error_norms


def test_norms() -> None:
    norms = error_norms(np.array([1.0, 2.0, 3.0, 4.5]), np.array([1.0, 2.0, 3.5, 4.5]))
    assert norms.max_abs == 0.5
    assert norms.mean_abs == 0.125
    assert norms.rmse == pytest.approx(0.25)
    assert norms.rel_l2 == pytest.approx(0.5 / np.sqrt(1 + 4 + 3.5**2 + 4.5**2))
    assert norms.within(0.1) and not norms.within(0.05)


def test_an_unwritten_element_fails() -> None:
    out = np.zeros((64, 64), np.float32)
    out[3, 5] = np.nan
    assert not error_norms(out, np.zeros((64, 64))).within(1e9)


def test_a_reference_of_zeros() -> None:
    assert error_norms(np.zeros(4), np.zeros(4)).within(0.0)
    assert not error_norms(np.full(4, 1e-3), np.zeros(4)).within(1e-4)


def test_single_precision_does_not_overflow() -> None:
    big = np.full(10, 1e30, np.float32)
    assert error_norms(big, big.astype(np.float64)).rel_l2 == 0.0


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        error_norms(np.zeros(4), np.zeros((4, 1)))


def test_empty() -> None:
    assert error_norms(np.zeros(0), np.zeros(0)).within(0.0)
