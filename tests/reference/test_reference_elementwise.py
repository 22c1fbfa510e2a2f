"""Elementwise functions and casts, each against float64 or Python arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir.builder import Builder

from phobos.diagnostics import LaunchError
from phobos.ir.types import DTYPE_BY_NAME, DType
from phobos.ir.verify import verify
from phobos.reference import run
from phobos.reference.numerics import encode_bits, from_storage, storage_dtype

NAMES = {"i8": np.int8, "u8": np.uint8, "i32": np.int32, "u32": np.uint32, "i64": np.int64}


def apply(fn: str, dtype: str, *args: np.ndarray, out: str | None = None, float64: bool = False) -> np.ndarray:
    """Runs `fn` on arrays of one tile; arrays are in storage dtypes, a bool array is a bool operand."""
    n = len(args[0])
    out = out or dtype
    b = Builder()
    values = []
    for number, a in enumerate(args):
        kind = "bool" if a.dtype == np.bool_ and dtype != "bool" else dtype
        values.append(b.load(b.tensor(f"A{number}", kind, n), [b.range(0, n)]))
    b.store(b.tensor("Y", out, n), [b.range(0, n)], b.compute(fn, *values))
    kernel = b.finish()
    verify(kernel)
    y = np.zeros(n, np.float64 if float64 and DTYPE_BY_NAME[out].is_float else storage_dtype(DTYPE_BY_NAME[out]))
    result = run(kernel, {**{f"A{i}": a for i, a in enumerate(args)}, "Y": y}, float64=float64)
    apply.warnings = result.warnings  # type: ignore[attr-defined]
    return y


def cast(x: np.ndarray, source: str, target: str) -> np.ndarray:
    b = Builder()
    n = len(x)
    value = b.load(b.tensor("X", source, n), [b.range(0, n)])
    b.store(b.tensor("Y", target, n), [b.range(0, n)], b.cast(value, target))
    kernel = b.finish()
    verify(kernel)
    y = np.zeros(n, storage_dtype(DTYPE_BY_NAME[target]))
    run(kernel, {"X": x, "Y": y})
    return y


UNARY = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "erf": math.erf,
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "abs": abs,
    "neg": lambda x: -x,
}


@pytest.mark.parametrize("fn", UNARY)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_float_functions(fn: str, dtype: str) -> None:
    d = DTYPE_BY_NAME[dtype]
    rng = np.random.default_rng(5)
    x = rng.uniform(0.01, 8, 64)
    if fn not in ("log", "log2", "sqrt", "rsqrt"):
        x *= rng.choice([-1, 1], 64)
    stored = encode_bits(x, d) if dtype == "bf16" else x.astype(storage_dtype(d))
    x = from_storage(stored, d).astype(np.float64)
    expected = np.array([UNARY[fn](float(v)) for v in x])
    got = from_storage(apply(fn, dtype, stored), d).astype(np.float64)
    ulp = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}[dtype]
    # Computed in float64 and rounded once. In f64 itself, the rounding of x / sqrt(2) costs erfc about x^2 ulp.
    factor = 0.51 if dtype != "f64" else 64 if fn == "gelu" else 4
    # Results below the smallest normal f16 have an absolute spacing.
    assert np.all(np.abs(got - expected) <= factor * ulp * np.abs(expected) + (2.0**-25 if dtype == "f16" else 1e-300))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("fn", ["add", "sub", "mul", "div", "fma"])
def test_arithmetic_rounds_once_per_operation(fn: str, dtype: str) -> None:
    """Against exact fractions rounded to nearest even."""
    d = DTYPE_BY_NAME[dtype]
    rng = np.random.default_rng(6)
    bits = 16 if dtype != "f32" else 32
    raw = [rng.integers(0, 1 << bits, 400, dtype=np.uint64) for _ in range(3)]
    stored = [r.astype(f"uint{bits}").view(storage_dtype(d)) for r in raw]
    values = [from_storage(s, d) for s in stored]
    # Moderate exponents, so that results neither overflow nor underflow.
    ok = np.all([np.isfinite(v) & (np.abs(v) > 2.0**-6) & (np.abs(v) < 2.0**6) for v in values], axis=0)
    extra = [np.array(e) for e in ([1 + 2.0**-7, 1.5], [1 + 2.0**-7, 1 + 2.0**-6], [2.0**-6, 3.0])]
    stored = [
        np.concatenate([s[ok], encode_bits(e, d) if dtype == "bf16" else e.astype(s.dtype)])
        for s, e in zip(stored, extra, strict=True)
    ]
    a, b, c = ([Fraction(float(v)) for v in from_storage(s, d)] for s in stored)
    exact = {
        "add": lambda x, y, z: x + y,
        "sub": lambda x, y, z: x - y,
        "mul": lambda x, y, z: x * y,
        "div": lambda x, y, z: x / y,
        "fma": lambda x, y, z: x * y + z,
    }[fn]
    mantissa = {"f16": 10, "bf16": 7, "f32": 23}[dtype]
    expected = [round_fraction(exact(x, y, z), mantissa) for x, y, z in zip(a, b, c, strict=True)]
    got = from_storage(apply(fn, dtype, *stored[: 3 if fn == "fma" else 2]), d)
    if dtype == "f16":  # subnormal results have fewer bits
        normal = np.abs(expected) >= 2.0**-14
        assert got[normal].tolist() == np.array(expected)[normal].tolist()
    else:
        assert got.tolist() == expected


def round_fraction(x: Fraction, mantissa: int) -> float:
    if x == 0:
        return 0.0
    exponent = math.frexp(float(x))[1] - 1
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (exponent - mantissa)
    return float(round(x / step) * step)  # Python rounds fractions half to even


def test_fma_keeps_what_two_roundings_lose() -> None:
    a, c = np.float32([1 + 2.0**-12]), np.float32([-1 - 2.0**-11])
    assert apply("fma", "f32", a, a, c)[0] == np.float32(2.0**-24)
    assert np.float32(a * a) + c == 0


def test_fma_of_f64_rounds_once() -> None:
    rng = np.random.default_rng(7)
    a, b = (np.ldexp(rng.standard_normal(300), rng.integers(-30, 30, 300)) for _ in range(2))
    c = np.where(rng.random(300) < 0.5, -(a * b) * (1 + rng.integers(-2, 3, 300) * 2.0**-52), rng.standard_normal(300))
    want = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]
    assert apply("fma", "f64", a, b, c).tolist() == want
    big = np.finfo(np.float64).max
    a, b, c = np.array([[big, -1.5, big], [big, 1.5, big], [0.0, -1.0, 0.0], [np.inf, 0.0, 1.0]]).T
    got = apply("fma", "f64", a, b, c)
    assert got[0] == -big / 2 and got[1] == np.inf and got[2] == 0 and not np.signbit(got[2]) and np.isnan(got[3])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_special_values(dtype: str) -> None:
    d = DTYPE_BY_NAME[dtype]

    def stored(*values: float) -> np.ndarray:
        return encode_bits(np.array(values), d) if dtype == "bf16" else np.array(values, storage_dtype(d))

    def value(fn: str, *args: np.ndarray, out: str | None = None) -> list[float]:
        return from_storage(apply(fn, dtype, *args, out=out), DTYPE_BY_NAME[out or dtype]).tolist()

    inf, nan = math.inf, math.nan
    x = stored(inf, -inf, nan, 0.0, -0.0)
    one = stored(1, 1, 1, 1, 1)
    assert value("isnan", x, out="bool") == [False, False, True, False, False]
    assert value("exp", x)[:2] == [inf, 0.0] and math.isnan(value("exp", x)[2])
    assert all(math.isnan(v) for v in (value("sub", x, x)[0], value("div", stored(0.0), stored(0.0))[0]))
    assert value("div", one[:2], stored(0.0, -0.0)) == [inf, -inf]
    for fn, expected in (("max", [inf, 1, nan, 1, 1]), ("min", [1, -inf, nan, 0, 0])):
        for got in (value(fn, x, one), value(fn, one, x)):
            assert [str(v) for v in got[:3]] == [str(float(v)) for v in expected[:3]]
            assert got[3:] == expected[3:]
    assert math.isnan(value("clamp", stored(nan), stored(0), stored(1))[0])
    assert value("clamp", stored(-3, 0.5, 7), stored(0, 0, 0), stored(1, 1, 1)) == [0, 0.5, 1]
    assert math.isnan(value("log", stored(-1))[0]) and value("log", stored(0)) == [-inf]
    assert value("mod", stored(7, -7, 5.5), stored(4, 4, -2)) == [3, -3, 1.5]
    assert value("pow", stored(2, 9, -2), stored(3, 0.5, 2)) == [8, 3, 4]
    assert value("where", np.array([True, False]), stored(1, 2), stored(nan, 4)) == [1, 4]
    assert value("round", stored(0.5, 1.5, -2.5)) == [0, 2, -2]
    assert value("gelu", stored(-inf, inf)) == [0, inf]
    assert value("sigmoid", stored(-inf, inf, 0)) == [0, 1, 0.5]
    comparisons = {"eq": [0, 1, 0], "ne": [1, 0, 1], "lt": [1, 0, 0], "le": [1, 1, 0], "gt": [0, 0, 0], "ge": [0, 1, 0]}
    for fn, flags in comparisons.items():
        assert value(fn, stored(1, 2, nan), stored(2, 2, nan), out="bool") == [bool(f) for f in flags]


# --- integers ----------------------------------------------------------------------------------


def wrapped(value: int, dtype: str) -> int:
    bits = 8 * np.dtype(NAMES[dtype]).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


def c_divide(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


INTEGER = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": c_divide,
    "mod": lambda a, b: a - b * c_divide(a, b),
    "min": min,
    "max": max,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("dtype", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_integer_arithmetic_wraps_and_truncates_like_c(dtype: str, data: st.DataObject) -> None:
    limits = np.iinfo(NAMES[dtype])
    ends = [limits.min, limits.max, 0, 1] + ([-1] if limits.min else [])
    number = st.one_of(st.sampled_from(ends), st.integers(int(limits.min), int(limits.max)))
    a = data.draw(st.lists(number, min_size=1, max_size=8))
    b = data.draw(st.lists(number.filter(bool), min_size=len(a), max_size=len(a)))
    for fn, definition in INTEGER.items():
        expected = [wrapped(definition(x, y), dtype) for x, y in zip(a, b, strict=True)]
        assert apply(fn, dtype, np.array(a, NAMES[dtype]), np.array(b, NAMES[dtype])).tolist() == expected
    for fn, one in (("neg", lambda x: -x), ("bitnot", lambda x: ~x), ("abs", abs)):
        assert apply(fn, dtype, np.array(a, NAMES[dtype])).tolist() == [wrapped(one(x), dtype) for x in a]


@pytest.mark.parametrize("dtype", NAMES)
def test_shifts(dtype: str) -> None:
    limits = np.iinfo(NAMES[dtype])
    bits = 8 * np.dtype(NAMES[dtype]).itemsize
    x = np.array([1, limits.max, limits.min, 37], NAMES[dtype])
    for shift in (0, 1, 5, bits - 1):
        by = np.full(4, shift, NAMES[dtype])
        assert apply("shl", dtype, x, by).tolist() == [wrapped(int(v) << shift, dtype) for v in x]
        assert apply("shr", dtype, x, by).tolist() == [int(v) >> shift for v in x]
    past = np.full(4, bits, NAMES[dtype])
    assert apply("shl", dtype, x, past).tolist() == [0] * 4
    assert apply("shr", dtype, x, past).tolist() == [-1 if v < 0 else 0 for v in x.tolist()]


def test_logic() -> None:
    a, b = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    assert apply("and", "bool", a, b).tolist() == [False, False, False, True]
    assert apply("or", "bool", a, b).tolist() == [False, True, True, True]
    assert apply("not", "bool", a).tolist() == [True, True, False, False]


def test_division_by_zero_in_a_tile_is_a_warning_and_of_scalars_an_error() -> None:
    a = np.array([7, -7, 0, 9], np.int32)
    zero = np.array([0, 0, 0, 3], np.int32)
    assert apply("div", "i32", a, zero).tolist() == [-1, -1, -1, 3]
    assert [w.code for w in apply.warnings] == ["PH0865"]  # type: ignore[attr-defined]
    assert apply("mod", "i32", a, zero).tolist() == [7, -7, 0, 0]
    b = Builder()
    y = b.tensor("Y", "i32", 1)
    b.store(y, [b.at(0)], b.compute("div", b.scalar("a", "i32"), b.scalar("d", "i32")))
    kernel = b.finish()
    out = np.zeros(1, np.int32)
    run(kernel, {"Y": out, "a": -7, "d": 2})
    assert out[0] == -3
    with pytest.raises(LaunchError) as error:
        run(kernel, {"Y": out, "a": 1, "d": 0})
    assert error.value.diagnostics[0].code == "PH0861" and error.value.diagnostics[0].span is not None


# --- casts -------------------------------------------------------------------------------------


def test_float_to_integer_truncates_and_saturates() -> None:
    x = np.array([1.9, -1.9, 300.0, -300.0, np.nan, np.inf, -np.inf, 3e9, -3e9, 1e30], np.float32)
    for name, dtype in NAMES.items():
        limits = np.iinfo(dtype)
        expected = [
            0 if math.isnan(v) else int(limits.max if v > limits.max else limits.min if v < limits.min else int(v))
            for v in x.tolist()
        ]
        assert cast(x, "f32", name).tolist() == expected
    edge = np.array([2.0**63, -(2.0**63), 2.0**63 - 1024], np.float64)
    assert cast(edge, "f64", "i64").tolist() == [2**63 - 1, -(2**63), 2**63 - 1024]


def test_integer_casts_wrap_and_round() -> None:
    x = np.array([-1, 200, 1 << 31, (1 << 40) + 5], np.int64)
    for name in NAMES:
        assert cast(x, "i64", name).tolist() == [wrapped(int(v), name) for v in x]
    big = np.array([(1 << 24) + 1, (1 << 24) + 3, -(1 << 24) - 1], np.int32)
    assert cast(big, "i32", "f32").tolist() == [float(1 << 24), float((1 << 24) + 4), -float(1 << 24)]
    assert cast(np.array([2049, 2051, 70000], np.int32), "i32", "f16").tolist() == [2048.0, 2052.0, math.inf]
    assert cast(np.array([257, 259], np.int32), "i32", "bf16").tolist() == [0x4380, 0x4382]


def test_casts_to_and_from_bool() -> None:
    assert cast(np.array([0.0, -0.0, 2.5, np.nan], np.float32), "f32", "bool").tolist() == [False, False, True, True]
    assert cast(np.array([True, False]), "bool", "f32").tolist() == [1.0, 0.0]
    assert cast(np.array([True, False]), "bool", "u8").tolist() == [1, 0]


def test_float_casts_round_to_nearest_even_once() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.0, 65520.0, 2.0**-25, -(2.0**-25) * 1.01])
    assert cast(x, "f64", "f16").tolist() == [1.0, 1 + 2.0**-9, 65504.0, math.inf, 0.0, -(2.0**-24)]
    assert cast(np.array([449.0, 17.0, np.inf], np.float32), "f32", "f8e4m3").tolist() == [0x7E, 0x58, 0x7E]
    assert cast(np.array([0x3F80, 0xC000], np.uint16), "bf16", "f32").tolist() == [1.0, -2.0]


def test_oracle_mode_does_not_round() -> None:
    x = np.array([1 / 3, 1e-9], np.float64)
    assert apply("add", "f16", x, x, float64=True).tolist() == (x + x).tolist()
    assert np.allclose(apply("exp", "bf16", x, float64=True), np.exp(x), rtol=1e-15)
    assert DType.F16.is_float  # and float64 arrays stood for f16 tensors above
