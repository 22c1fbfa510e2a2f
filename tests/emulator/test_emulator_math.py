"""Math helpers against float64 (long double for double): errors in ulp, special values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from emulator.executors import Run, executors
from emulator.support import Out, Shape

RNG = np.random.default_rng(4)
INF, NAN = np.inf, np.nan
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * _erfc(-x / math.sqrt(2)).astype(np.float64)


# helper -> (float64 function, allowed ulp of float, range of |x|)
UNARY: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "ph_exp": (np.exp, 2, 110),
    "ph_exp2": (np.exp2, 2.1, 155),
    "ph_log": (np.log, 2, 1e38),
    "ph_log2": (np.log2, 2, 1e38),
    "ph_sqrt": (np.sqrt, 0.5, 1e38),
    "ph_rsqrt": (lambda x: 1 / np.sqrt(x), 2, 1e38),
    "ph_sin": (np.sin, 2, 1e5),
    "ph_cos": (np.cos, 2, 1e5),
    "ph_tanh": (np.tanh, 2, 20),
    "ph_sigmoid": (_sigmoid, 4, 110),
    "ph_erf": (lambda x: _erf(x).astype(np.float64), 2, 5),
    "ph_gelu": (_gelu, 6, 12),
    "ph_floor": (np.floor, 0, 1e8),
    "ph_ceil": (np.ceil, 0, 1e8),
    "ph_round": (np.rint, 0, 1e8),
    "ph_abs": (np.abs, 0, 1e38),
}
# relative error allowed besides an absolute one
FAST: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float, float, float]] = {
    # function, lowest x, highest x, relative, absolute
    "ph_fast_exp": (np.exp, -80, 80, 2e-5, 0),
    "ph_fast_exp2": (np.exp2, -120, 120, 1e-6, 0),
    "ph_fast_log": (np.log, 1e-30, 1e30, 1e-5, 1e-6),
    "ph_fast_log2": (np.log2, 1e-30, 1e30, 1e-5, 1e-6),
    "ph_fast_rcp": (lambda x: 1 / x, 1e-30, 1e30, 1e-6, 0),
    "ph_fast_sqrt": (np.sqrt, 1e-30, 1e30, 1e-6, 0),
    "ph_fast_rsqrt": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 1e-6, 0),
    "ph_fast_sin": (np.sin, -3, 3, 0, 2e-6),
    "ph_fast_cos": (np.cos, -3, 3, 0, 2e-6),
    "ph_fast_tanh": (np.tanh, -8, 8, 1e-3, 0),
    "ph_fast_sigmoid": (_sigmoid, -60, 60, 1e-5, 0),
    "ph_fast_erf": (lambda x: _erf(x).astype(np.float64), -4, 4, 1e-6, 1e-7),
    "ph_fast_gelu": (_gelu, -4, 4, 1e-5, 1e-6),
}


def text_of(helpers: list[str], kind: str, arguments: int = 1) -> str:
    """A kernel that applies each helper: Y[k * n + i] = helper_k(X0[i], X1[i], ...)."""
    names = "xyz"[:arguments]
    inputs = ", ".join(f"ph_global<const {kind}> {v.upper()}" for v in names)
    loads = " ".join(f"const {kind} {v} = {v.upper()}[i];" for v in names)
    calls = "\n".join(f"    R[{k} * n + i] = {h}({', '.join(names)});" for k, h in enumerate(helpers))
    return f"""
PH_KERNEL(128, 1) math({inputs}, ph_global<{kind}> R, int n) {{
  const int i = ph_ctaid_x() * 128 + ph_tid();
  if (i < n) {{
    {loads}
{calls}
  }}
}}"""


def apply(run: Run, helpers: list[str], inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    n = len(inputs[0])
    kind = "double" if inputs[0].dtype == np.float64 else "float"
    out = np.zeros((len(helpers), n), inputs[0].dtype)
    shape = Shape(threads=128, grid=(-(-n // 128),), granule=4)
    run(text_of(helpers, kind, len(inputs)), "math", shape, [*inputs, Out(out), np.int32(n)])
    return dict(zip(helpers, out, strict=True))


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of float32 at the exact value; subnormals have the smallest one."""
    with np.errstate(over="ignore", divide="ignore"):
        exponent = np.maximum(np.frexp(exact)[1] - 1, -126)
    return np.abs(found.astype(np.float64) - exact) / np.ldexp(1.0, exponent - 23)


@executors
@pytest.mark.parametrize("helper", UNARY)
def test_float_within_its_bound(run: Run, helper: str) -> None:
    function, bound, reach = UNARY[helper]
    positive = helper in ("ph_log", "ph_log2", "ph_sqrt", "ph_rsqrt")
    size = np.concatenate(
        [reach * RNG.random(4000), 10.0 ** RNG.uniform(-38, np.log10(reach), 4000), [0.5, 1.5, 2.5, 1.0]]
    )
    x = (size if positive else np.concatenate([size, -size])).astype(np.float32)
    found = apply(run, [helper], [x])[helper]
    with np.errstate(over="ignore"):
        exact = function(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    infinite = np.isinf(rounded)
    assert np.array_equal(found[infinite], rounded[infinite])
    error = ulps(found[~infinite], exact[~infinite])
    # half an ulp is what the rounding of the exact value costs
    worst = int(error.argmax())
    assert error[worst] <= max(bound, 0.5) + 0.01, (helper, x[~infinite][worst], found[~infinite][worst], error[worst])


@executors
def test_double(run: Run) -> None:
    x = np.concatenate([RNG.uniform(1e-3, 20, 2000), [0.5, 1.5, 2.5]])
    found = apply(run, list(UNARY), [x])
    for helper, (function, _, _) in UNARY.items():
        assert np.allclose(found[helper], function(x), rtol=2e-15, atol=0), helper


@executors
@pytest.mark.parametrize("helper", FAST)
def test_approximate_versions(run: Run, helper: str) -> None:
    function, lowest, highest, relative, absolute = FAST[helper]
    x = RNG.uniform(lowest, highest, 4000).astype(np.float32)
    if lowest > 0:
        x = (10.0 ** RNG.uniform(np.log10(lowest), np.log10(highest), 4000)).astype(np.float32)
    found = apply(run, [helper], [x])[helper].astype(np.float64)
    assert np.allclose(found, function(x.astype(np.float64)), rtol=relative, atol=absolute)


SPECIAL = {
    "ph_exp": {-INF: 0.0, INF: INF, NAN: NAN, 0.0: 1.0, 88.8: INF, -104.0: 0.0},
    "ph_exp2": {-INF: 0.0, INF: INF, NAN: NAN, 128.0: INF, -149.0: 2.0**-149, -150.5: 0.0},
    "ph_log": {0.0: -INF, INF: INF, -1.0: NAN, NAN: NAN, 1.0: 0.0},
    "ph_log2": {0.0: -INF, INF: INF, -1.0: NAN, NAN: NAN, 2.0**-149: -149.0},
    "ph_sqrt": {0.0: 0.0, INF: INF, -1.0: NAN, NAN: NAN},
    "ph_rsqrt": {0.0: INF, INF: 0.0, -1.0: NAN, NAN: NAN},
    "ph_tanh": {INF: 1.0, -INF: -1.0, NAN: NAN},
    "ph_sigmoid": {INF: 1.0, -INF: 0.0, NAN: NAN, 0.0: 0.5},
    "ph_erf": {INF: 1.0, -INF: -1.0, NAN: NAN},
    "ph_gelu": {INF: INF, NAN: NAN, 0.0: 0.0},
    "ph_round": {0.5: 0.0, 1.5: 2.0, 2.5: 2.0, -0.5: 0.0, INF: INF, NAN: NAN},
    "ph_abs": {-INF: INF, NAN: NAN},
    "ph_fast_exp": {-INF: 0.0, INF: INF, NAN: NAN},
    "ph_fast_exp2": {-INF: 0.0, INF: INF, NAN: NAN, -140.0: 0.0},
    "ph_fast_log": {0.0: -INF, INF: INF, -1.0: NAN},
    "ph_fast_rcp": {0.0: INF, INF: 0.0},
    "ph_fast_sigmoid": {INF: 1.0, -INF: 0.0},
}


@executors
@pytest.mark.parametrize("helper", SPECIAL)
def test_special_values(run: Run, helper: str) -> None:
    x = np.array(list(SPECIAL[helper]), np.float32)
    expected = np.array(list(SPECIAL[helper].values()), np.float32)
    assert np.array_equal(apply(run, [helper], [x])[helper], expected, equal_nan=True)


@executors
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_two_and_three_arguments(run: Run, dtype: type) -> None:
    special = [0.0, 1.0, -1.5, INF, -INF, NAN, 3.25]
    pairs = np.array([(a, b) for a in special for b in special])
    random = RNG.standard_normal((3000, 2)) * 10.0 ** RNG.integers(-3, 4, (3000, 2))
    x, y = (np.ascontiguousarray(v, dtype) for v in np.concatenate([pairs, random]).T)
    found = apply(run, ["ph_min", "ph_max", "ph_div", "ph_mod"], [x, y])
    with np.errstate(all="ignore"):
        expected = {"ph_min": np.minimum(x, y), "ph_max": np.maximum(x, y), "ph_div": x / y, "ph_mod": np.fmod(x, y)}
    for helper, e in expected.items():
        assert np.array_equal(found[helper], e, equal_nan=True), helper
    z = np.ascontiguousarray(np.roll(y, 5))
    found = apply(run, ["ph_fma", "ph_clamp"], [x, y, z])
    with np.errstate(all="ignore"):
        exact = x.astype(np.longdouble) * y.astype(np.longdouble) + z.astype(np.longdouble)
        clamped = np.minimum(np.maximum(x, y), z)
    assert np.allclose(found["ph_fma"], exact.astype(dtype), rtol=2 * np.finfo(dtype).eps, atol=0, equal_nan=True)
    if dtype is np.float32:  # the long double sum is exact but for its last bits: one rounding is left
        finite = np.isfinite(exact)
        close = np.nextafter(exact[finite].astype(np.float32), found["ph_fma"][finite]) == found["ph_fma"][finite]
        assert close.all() and np.mean(exact[finite].astype(np.float32) == found["ph_fma"][finite]) > 0.999
    assert np.array_equal(found["ph_clamp"], clamped, equal_nan=True)


@executors
def test_pow_and_approximate_division(run: Run) -> None:
    x = np.exp(RNG.uniform(-10, 10, 4000)).astype(np.float32)
    y = RNG.uniform(-3, 3, 4000).astype(np.float32)
    found = apply(run, ["ph_pow", "ph_fast_pow", "ph_fast_div"], [x, y])
    exact = x.astype(np.float64) ** y.astype(np.float64)
    assert ulps(found["ph_pow"], exact).max() <= 4
    assert np.allclose(found["ph_fast_pow"], exact, rtol=1e-4, atol=0)
    assert np.allclose(found["ph_fast_div"], x.astype(np.float64) / y, rtol=1e-6, atol=0)


@executors
def test_isnan_and_constants(run: Run) -> None:
    x = np.array([0.0, INF, -INF, NAN], np.float32)
    y, z = np.zeros(4, np.bool_), np.zeros(3, np.float32)
    text = """
PH_KERNEL(32, 1) constants(ph_global<const float> X, ph_global<bool> Y, ph_global<float> Z) {
  const int i = ph_tid();
  if (i < 4) {
    const float x = X[i];
    Y[i] = ph_isnan(x);
  }
  if (i == 0) {
    Z[0] = ph_inf();
    Z[1] = -ph_inf();
    Z[2] = ph_nan();
  }
}"""
    run(text, "constants", Shape(granule=1), [x, Out(y), Out(z)])
    assert y.tolist() == [False, False, False, True]
    assert np.array_equal(z, np.array([INF, -INF, NAN], np.float32), equal_nan=True)
