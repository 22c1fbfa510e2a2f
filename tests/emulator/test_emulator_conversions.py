"""ph_cvt for all pairs of types, packed conversions, integer helpers, against exact rounding in long double."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from emulator.executors import Run, executors
from emulator.support import Out, Shape

RNG = np.random.default_rng(3)


@dataclass(frozen=True)
class Type:
    """A type of the helpers: its C name and the NumPy dtype of its bits; `values` decodes bits to long double."""

    name: str
    storage: str
    mantissa: int = 0  # of the small floats: stored mantissa bits
    bias: int = 0

    @property
    def is_float(self) -> bool:
        return self.storage in ("f4", "f8") or self.mantissa > 0

    def values(self, stored: np.ndarray) -> np.ndarray:
        if not self.mantissa:
            return stored.astype(np.longdouble)
        bits = stored.dtype.itemsize * 8
        code = stored.astype(np.int64)
        magnitude = code & ((1 << (bits - 1)) - 1)
        exponent, fraction = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        scale = np.longdouble(2) ** (np.maximum(exponent, 1) - self.bias - self.mantissa).astype(np.longdouble)
        value = scale * (fraction + np.where(exponent > 0, 1 << self.mantissa, 0))
        top = (1 << (bits - 1 - self.mantissa)) - 1
        if self.name == "ph_f8e4m3":
            value = np.where(magnitude == 0x7F, np.nan, value)
        else:
            value = np.where(exponent == top, np.where(fraction == 0, np.inf, np.nan), value)
        return np.where(code >> (bits - 1), -value, value)


TYPES = (
    Type("float", "f4"),
    Type("double", "f8"),
    Type("ph_half", "u2", 10, 15),
    Type("ph_bf16", "u2", 7, 127),
    Type("ph_f8e4m3", "u1", 3, 7),
    Type("ph_f8e5m2", "u1", 2, 15),
    Type("signed char", "i1"),
    Type("unsigned char", "u1"),
    Type("int", "i4"),
    Type("unsigned", "u4"),
    Type("ph_i64", "i8"),
    Type("bool", "?"),
)
NARROW = tuple(t for t in TYPES if t.mantissa)


def cast(source: np.ndarray, kind: Type, to: Type) -> np.ndarray:
    """Expected values (long double) of the cast of stored elements."""
    x = kind.values(source)
    if to.name == "bool":
        return (x != 0).astype(np.longdouble)
    if to.mantissa:
        return nearest(x, to)
    if to.is_float:
        return x.astype(to.storage).astype(np.longdouble)
    info = np.iinfo(to.storage)
    if kind.is_float:
        whole = np.trunc(np.where(np.isnan(x), 0, x))
        return np.clip(whole, np.longdouble(info.min), np.longdouble(info.max))
    exact = np.array([int(v) for v in source.tolist()], dtype=object)
    wrapped = (exact - info.min) % (1 << (8 * np.dtype(to.storage).itemsize)) + info.min
    return wrapped.astype(np.longdouble)


def nearest(x: np.ndarray, to: Type) -> np.ndarray:
    """The nearest value of a small float, ties to the even code; f8 saturates."""
    count = 1 << (8 * np.dtype(to.storage).itemsize - 1)
    grid = to.values(np.arange(count).astype(to.storage))
    finite = grid[np.isfinite(grid)]
    saturates = to.storage == "u1"
    m = np.abs(np.where(np.isnan(x), 0, x))
    hi = np.searchsorted(finite, m)  # the first code that is not below
    top = len(finite) - 1
    lo = np.clip(hi - 1, 0, top)
    # one step past the largest finite value is where infinity would be, if the exponent range went on
    beyond = finite[top] + (finite[top] - finite[top - 1])
    above = np.where(hi > top, beyond, finite[np.minimum(hi, top)])
    down, up = m - finite[lo], above - m
    take_up = (up < down) | ((up == down) & (hi % 2 == 0))
    with np.errstate(invalid="ignore"):
        result = np.where(take_up, above, finite[lo])
        result = np.where(m == 0, 0, result)
        overflow = (result >= beyond) | (m >= beyond)
        result = np.where(overflow, finite[top] if saturates else np.inf, result)
    result = np.where(np.isnan(x), np.nan, result)
    return np.copysign(result, x)


def samples(kind: Type) -> np.ndarray:
    """All codes of a small type; of a large one special values, random ones of all sizes, and ties of the narrow
    floats."""
    if kind.name == "bool":
        return np.array([False, True])
    if np.dtype(kind.storage).itemsize <= 2:
        return np.arange(1 << (8 * np.dtype(kind.storage).itemsize)).astype(kind.storage)
    if not kind.is_float:
        info = np.iinfo(kind.storage)
        edges = [info.min, info.min + 1, info.max, info.max - 1, *range(-300 if info.min else 0, 300)]
        powers = [v for p in range(1, info.bits - 1) for v in ((1 << p) - 1, 1 << p, (1 << p) + 1)]
        ties = [(2 * k + 1) << s for k in (255, 128, 200, 2047, 1500) for s in range(0, info.bits - 14, 3)]
        near = [v + d for v in ties for d in (-1, 0, 1) if v + d <= info.max]
        random = RNG.integers(info.min, info.max, 2000, dtype=kind.storage).tolist()
        return np.array([*edges, *powers, *near, *random]).astype(kind.storage)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        448,
        464,
        465,
        57344,
        61440,
        65504,
        65519.99,
        65520,
        3.4e38,
        1e-45,
        1e-40,
    ]
    bounds = [v + d for v in (2.0**31, 2.0**32, 2.0**63, 128.0, 255.0, 256.0) for d in (-1, -0.5, 0, 0.5, 1)]
    ties: list[float] = []
    for t in NARROW:
        grid = t.values(np.arange(1 << (8 * np.dtype(t.storage).itemsize - 1)).astype(t.storage))
        grid = grid[np.isfinite(grid)].astype(np.float64)
        grid = grid if len(grid) < 300 else grid[RNG.integers(0, len(grid) - 1, 300)]
        middle = (grid[:-1] + grid[1:]) / 2
        ties += [*grid, *middle, *np.nextafter(middle, np.inf), *np.nextafter(middle, 0)]
    random = RNG.standard_normal(3000) * 10.0 ** RNG.integers(-46, 39, 3000)
    both = np.array([*special, *bounds, *ties, *random])
    with np.errstate(over="ignore"):
        out = np.concatenate([both, -both]).astype(kind.storage)
    if kind.storage == "f4":
        out = np.concatenate([out, np.nextafter(out, np.float32(np.inf)), np.nextafter(out, np.float32(0))])
    else:
        out = np.concatenate([out, [1e300, -1e300, 1e-320]])
    return out


@executors
@pytest.mark.parametrize("kind", TYPES, ids=lambda t: t.name.replace(" ", "_"))
def test_every_pair(run: Run, kind: Type) -> None:
    source = samples(kind)
    outs = [np.zeros(len(source), t.storage) for t in TYPES]
    parameters = ", ".join(f"ph_global<{t.name}> Y{i}" for i, t in enumerate(TYPES))
    stores = "\n".join(f"    Y{i}[i] = ph_cvt<{t.name}>(x);" for i, t in enumerate(TYPES))
    text = f"""
PH_KERNEL(128, 1) convert(ph_global<const {kind.name}> X, {parameters}, int n) {{
  const int i = ph_ctaid_x() * 128 + ph_tid();
  if (i < n) {{
    const {kind.name} x = X[i];
{stores}
  }}
}}"""
    shape = Shape(threads=128, grid=(-(-len(source) // 128),), granule=1)
    run(text, "convert", shape, [source, *[Out(y) for y in outs], np.int32(len(source))])
    for to, y in zip(TYPES, outs, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            expected, found = cast(source, kind, to), to.values(y)
        if kind is to:
            assert np.array_equal(y, source, equal_nan=kind.storage in ("f4", "f8"))
            continue
        same = (expected == found) | (np.isnan(expected) & np.isnan(found))
        if to.is_float:
            same &= (np.signbit(expected) == np.signbit(found)) | np.isnan(expected)
        wrong = np.flatnonzero(~same)
        assert not len(wrong), (to.name, [(kind.values(source[w : w + 1]), expected[w], found[w]) for w in wrong[:5]])
        if to.storage == "u1" and to.mantissa:
            assert (y[np.isnan(kind.values(source))] == 0x7F).all()


@executors
def test_packed_conversions_and_tf32(run: Run) -> None:
    x = samples(TYPES[0])
    x = x[: len(x) // 256 * 256]
    x.view(np.uint32)[:3] = 0x7F800001, 0xFF801FFF, 0x7FC00000  # NaN in bits that tf32 does not have
    half, brain, tf32 = (np.zeros(n, np.uint32) for n in (len(x) // 2, len(x) // 2, len(x)))
    text = """
PH_KERNEL(128, 1) pack(ph_global<const float> X, ph_global<unsigned> H, ph_global<unsigned> B, ph_global<unsigned> T) {
  const int i = ph_ctaid_x() * 128 + ph_tid();
  const float lo = X[2 * i], hi = X[2 * i + 1];
  H[i] = ph_pack_h2(lo, hi);
  B[i] = ph_pack_b2(lo, hi);
  T[2 * i] = ph_f2tf32(lo);
  T[2 * i + 1] = ph_f2tf32(hi);
}"""
    run(text, "pack", Shape(threads=128, grid=(len(x) // 256,)), [x, Out(half), Out(brain), Out(tf32)])
    for kind, packed in ((TYPES[2], half), (TYPES[3], brain)):
        with np.errstate(over="ignore"):
            expected = nearest(TYPES[0].values(x), kind)
        assert np.array_equal(kind.values(packed.view(np.uint16)), expected, equal_nan=True)
    # ties away from zero at bit 13, exponents up to infinity
    finite = np.isfinite(x)
    magnitude = np.abs(x[finite].astype(np.longdouble))
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, -126)
    ulp = np.ldexp(np.longdouble(1), exponent - 10)
    expected = np.copysign(np.floor(magnitude / ulp + np.longdouble(0.5)) * ulp, x[finite])
    with np.errstate(over="ignore"):
        assert np.array_equal(tf32.view(np.float32)[finite], expected.astype(np.float32))
    assert (tf32[finite] & 0x1FFF == 0).all()
    kept = (tf32 & 0xFFFFE000).view(np.float32)  # what a product looks at
    assert np.array_equal(np.isnan(kept), np.isnan(x))


@executors
def test_named_conversions_are_those_of_cvt(run: Run) -> None:
    x = samples(TYPES[0])
    x = x[: len(x) // 128 * 128]
    same = np.zeros(len(x), np.int32)
    text = """
PH_KERNEL(128, 1) named(ph_global<const float> X, ph_global<int> Y) {
  const int i = ph_ctaid_x() * 128 + ph_tid();
  const float x = X[i];
  const ph_half h = ph_f2h(x);
  const ph_bf16 b = ph_f2b(x);
  const ph_f8e4m3 p = ph_f2e4m3(x);
  const ph_f8e5m2 q = ph_f2e5m2(x);
  int same = h.x == ph_cvt<ph_half>(x).x && b.x == ph_cvt<ph_bf16>(x).x;
  same = same && p.x == ph_cvt<ph_f8e4m3>(x).x && q.x == ph_cvt<ph_f8e5m2>(x).x;
  if (x == x) {
    same = same && ph_h2f(h) == ph_cvt<float>(h) && ph_b2f(b) == ph_cvt<float>(b);
    same = same && ph_e4m32f(p) == ph_cvt<float>(p) && ph_e5m22f(q) == ph_cvt<float>(q);
  }
  Y[i] = same;
}"""
    run(text, "named", Shape(threads=128, grid=(len(x) // 128,)), [x, Out(same)])
    assert same.all()


@executors
@pytest.mark.parametrize(
    "kind", [t for t in TYPES if not t.is_float and t.name != "bool"], ids=lambda t: t.name.replace(" ", "_")
)
def test_integers_wrap_and_shift_as_in_ptx(run: Run, kind: Type) -> None:
    a, b = samples(kind)[:900], samples(kind)[-900:]
    n = min(len(a), len(b))
    a, b = a[:n], b[::-1][:n].copy()
    a[:3] = b[:3] = np.iinfo(kind.storage).min
    b[5:9] = -1 if kind.storage[0] == "i" else 0
    a[7:9] = np.iinfo(kind.storage).min
    b[9:12] = 0
    counts = (np.arange(n) % 70).astype(kind.storage)
    outs = [np.zeros(n, kind.storage) for _ in range(13)]
    parameters = ", ".join(f"ph_global<T> Y{i}" for i in range(len(outs)))
    text = f"""
typedef {kind.name} T;
PH_KERNEL(128, 1) integers(ph_global<const T> A, ph_global<const T> B, ph_global<const T> C, {parameters}, int n) {{
  const int i = ph_ctaid_x() * 128 + ph_tid();
  if (i >= n) return;
  const T a = A[i], b = B[i], c = C[i];
  Y0[i] = ph_wrap_add(a, b);
  Y1[i] = ph_wrap_sub(a, b);
  Y2[i] = ph_wrap_mul(a, b);
  Y3[i] = ph_wrap_neg(a);
  Y4[i] = ph_shl(a, c);
  Y5[i] = ph_shr(a, c);
  Y6[i] = ph_min(a, b);
  Y7[i] = ph_max(a, b);
  Y8[i] = ph_abs(a);
  const T d = b == 0 ? T(1) : b;
  Y9[i] = ph_div(a, d);
  Y10[i] = ph_mod(a, d);
  Y11[i] = ph_idiv(a, b);
  Y12[i] = ph_imod(a, b);
}}"""
    shape = Shape(threads=128, grid=(-(-n // 128),), granule=1)
    run(text, "integers", shape, [a, b, counts, *[Out(y) for y in outs], np.int32(n)])
    x, y, c = ([int(v) for v in z.tolist()] for z in (a, b, counts))
    bits = 8 * np.dtype(kind.storage).itemsize
    d = [v or 1 for v in y]
    quotient = [abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in zip(x, d, strict=True)]
    pairs = list(zip(x, y, strict=True))
    expected = [
        [p + q for p, q in pairs],
        [p - q for p, q in pairs],
        [p * q for p, q in pairs],
        [-p for p in x],
        [p << q if 0 <= q < bits else 0 for p, q in zip(x, c, strict=True)],
        [p >> q if 0 <= q < bits else (-1 if p < 0 else 0) for p, q in zip(x, c, strict=True)],
        [min(p, q) for p, q in pairs],
        [max(p, q) for p, q in pairs],
        [abs(p) for p in x],
        quotient,
        [p - q * r for p, q, r in zip(x, d, quotient, strict=True)],
        [r if q else -1 for q, r in zip(y, quotient, strict=True)],
        [p - q * r if q else p for p, q, r in zip(x, y, quotient, strict=True)],
    ]
    low = np.iinfo(kind.storage).min
    for number, (e, found) in enumerate(zip(expected, outs, strict=True)):
        wrapped = [(v - low) % (1 << bits) + low for v in e]
        assert wrapped == found.tolist(), number


@executors
@pytest.mark.parametrize("kind", [TYPES[2], TYPES[3]], ids=["f16", "bf16"])
def test_products_and_sums_rounded_once(kind: Type, run: Run) -> None:
    """Exact fractions, rounded to nearest even; sums next to the middle between two numbers among them."""
    rng = np.random.default_rng(5)
    count, step, least = 2048, 2.0**-kind.mantissa, 1 - kind.bias

    def numbers(n: int) -> np.ndarray:
        return (1 + rng.integers(0, 2**kind.mantissa, n) * step) * rng.choice([-1, 1], n)

    a, b, c = (np.ldexp(numbers(count), rng.integers(least // 2, -least // 2, count)) for _ in range(3))
    a[:512], b[:512], c[:512] = 1 + step, step / 2 * (1 - step) * rng.choice([-1, 1], 512), numbers(512)
    arguments = [x.astype(np.float32) for x in (a, b, c)]
    out = np.zeros(count, np.uint16)
    text = f"""
PH_KERNEL(128, 1) once(ph_global<const float> A, ph_global<const float> B, ph_global<const float> C,
    ph_global<{kind.name}> Y) {{
  const int i = ph_ctaid_x() * 128 + ph_tid();
  Y[i] = ph_cvt<{kind.name}>(ph_fma_odd(A[i], B[i], C[i]));
}}"""
    run(text, "once", Shape(threads=128, grid=(count // 128,)), [*arguments, Out(out)])
    for x, y, z, value in zip(*arguments, kind.values(out).astype(float), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        exponent = least
        while abs(exact) >= Fraction(2) ** (exponent + 1):
            exponent += 1
        unit = Fraction(2) ** (exponent - kind.mantissa)
        assert Fraction(value) == round(exact / unit) * unit, (x, y, z)
