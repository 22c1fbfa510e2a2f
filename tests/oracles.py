"""Independent oracles for the kernels of examples/: inputs, float64 NumPy results and error bounds.

Nothing here imports phobos. `ORACLES[kernel]` makes seeded random arguments for given dims and gives, from the
arguments as they were before the run, the expected value of every written tensor and how far a correct run may be
from it.

How the bounds are derived
--------------------------
`u` is the unit roundoff of the arithmetic (2^-24 for f32, 2^-53 for float64), `store` that of the stored dtype.
A sum or dot product of n terms has the worst-case error (n - 1) u sum|t|. Rounding errors are signed and nearly
independent, so with overwhelming probability the error stays below LAMBDA sqrt(n) u sum|t| whatever the order of
the additions (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41,
2019); LAMBDA = 6 makes a false alarm on any of the outputs here less likely than 1e-7. `gamma(n)` is that factor
plus the rounding of each product. An elementary function is within 2 ulp (the language's contract), which is at
most 4 u relative. An argument t that carries an absolute error d gives exp(t) a relative error of d. Every bound is
per element and uses the magnitudes of this very input, so it stays tight where values are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

Arguments = dict[str, Any]
Dims = Mapping[str, int]

F32 = 2.0**-24
F64 = 2.0**-53
LAMBDA = 6.0
FUNCTION = 4.0  # relative error of exp, erf, sqrt and the like, in units of u
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}  # roundoff of a stored element
OPERAND = {  # roundoff of an f32 operand under each kind of contraction; the split kinds keep about 22 bits
    "ieee": 0.0,
    "f16": 2.0**-11,
    "bf16": 2.0**-8,
    "tf32": 2.0**-11,
    "tf32x3": 2.0**-21,
    "bf16x3": 2.0**-21,
    "f16x2": 2.0**-20,
}
SMALLEST = {"f16": 2.0**-25, "bf16": 2.0**-134, "f32": 2.0**-150}  # half the spacing of the subnormals


@dataclass(frozen=True)
class Expected:
    """The exact value of an output and the largest error of a correct run, both float64 and of its shape."""

    value: np.ndarray
    bound: np.ndarray


@dataclass(frozen=True)
class Rounding:
    """What a run computes in: `u` of its arithmetic, `operand` of what a contraction rounds its f32 operands to
    (0 where it does not), `dtype` of the generic element type T."""

    u: float = F32
    operand: float = 0.0
    dtype: str = "f32"


@dataclass(frozen=True)
class Oracle:
    """`inputs(rng, dims, dtype)` makes the arguments in the kernel's order; `expect(arguments, consts, rounding)` gives
    {written tensor: Expected} for these arguments."""

    inputs: Callable[[np.random.Generator, Dims, str], Arguments]
    expect: Callable[[Mapping[str, Any], Mapping[str, Any], Rounding], dict[str, Expected]]


def gamma(terms: int, u: float) -> float:
    """Relative error of a sum of `terms` products against the sum of their magnitudes."""
    return u * (LAMBDA * sqrt(max(terms, 1)) + 2.0)


# --- storage types ---------------------------------------------------------------------------


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The bits of bfloat16, rounded to nearest even, as uint16. The values are finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def store(values: np.ndarray, dtype: str) -> np.ndarray:
    """An array as a kernel takes it: np.float16, np.float32, or np.uint16 bits for bf16."""
    return to_bf16(values) if dtype == "bf16" else values.astype({"f16": np.float16, "f32": np.float32}[dtype])


def load(array: np.ndarray, dtype: str = "f32") -> np.ndarray:
    """The float64 values of a stored array."""
    return from_bf16(array) if dtype == "bf16" and array.dtype == np.uint16 else array.astype(np.float64)


def poison(shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """An output before the run: NaN everywhere, so that an element that is never written fails the comparison."""
    return store(np.full(shape, np.nan), dtype) if dtype != "bf16" else np.full(shape, 0x7FC0, np.uint16)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def _stored(value: np.ndarray, bound: np.ndarray, dtype: str = "f32") -> Expected:
    """Adds the rounding of the store to a bound."""
    return Expected(value, bound + UNIT[dtype] * np.abs(value) + SMALLEST[dtype])


def _exact(value: np.ndarray) -> Expected:
    value = np.asarray(value, dtype=np.float64)
    return Expected(value, np.zeros_like(value))


# --- elementwise -----------------------------------------------------------------------------


def _saxpy_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": normal(rng, dims["N"]), "Y": normal(rng, dims["N"]), "a": 1.7}


def _saxpy(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    a = float(np.float32(args["a"]))
    product, y = a * load(args["X"]), load(args["Y"])
    return {"Y": _stored(product + y, 2 * r.u * (np.abs(product) + np.abs(y)))}


def erf(x: np.ndarray) -> np.ndarray:
    """The error function in float64, by the C library."""
    from math import erf as scalar_erf

    return np.vectorize(scalar_erf, otypes=[np.float64])(x)


def _gelu_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": store(3.0 * normal(rng, dims["N"]), dtype), "Y": poison((dims["N"],), dtype)}


def _gelu(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"], r.dtype)
    y = 0.5 * x * (1.0 + erf(x / sqrt(2.0)))
    # 1 + erf cancels for negative x: its absolute error, a few u, is multiplied by x / 2. The argument x / sqrt(2) is
    # off by 2 u relative, which moves erf by at most 2 u x pdf(x) <= u.
    return {"Y": _stored(y, 0.5 * np.abs(x) * (FUNCTION + 4) * r.u + 2 * r.u * np.abs(y), r.dtype)}


def _rope_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    n, heads, d = dims["N"], dims["H"], dims["D"]
    angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))[None, :]
    x = store(normal(rng, n, heads, d), dtype)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return {"X": x, "C": cos, "S": sin, "Y": poison((n, heads, d), dtype)}


def _rope(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, c, s = load(args["X"], r.dtype), load(args["C"])[:, None, :], load(args["S"])[:, None, :]
    half = x.shape[2] // 2
    a, b = x[:, :, :half], x[:, :, half:]
    y = np.concatenate([a * c - b * s, b * c + a * s], axis=2)
    size = np.concatenate([np.abs(a * c) + np.abs(b * s), np.abs(b * c) + np.abs(a * s)], axis=2)
    return {"Y": _stored(y, 2 * r.u * size, r.dtype)}


def _transpose_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": store(normal(rng, dims["M"], dims["N"]), dtype), "Y": poison((dims["N"], dims["M"]), dtype)}


def _transpose(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    return {"Y": _exact(load(args["X"], r.dtype).T)}


# --- rows ------------------------------------------------------------------------------------


def _softmax_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x = 4.0 * normal(rng, dims["M"], dims["N"])
    x[0, : dims["N"] // 2] = -np.inf  # the running maximum of the online form starts at -inf
    return {"X": x, "Y": poison(x.shape)}


def _softmax(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"])
    shifted = x - x.max(axis=1, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=1, keepdims=True)
    y = e / total
    # exp: FUNCTION u, and u |x - m| from its argument. In the online form e and l pass through at most one
    # correction a block, each with the error of one exp and one product: 6 u a block, which sqrt(N) covers as blocks
    # hold 32 columns or more, plus the arguments m - mnew, which sum to at most the range of the row.
    weight = np.where(np.isfinite(shifted), -shifted, 0.0)
    spread = (e * weight).sum(axis=1, keepdims=True) / total + weight.max(axis=1, keepdims=True)
    relative = r.u * (weight + spread + 2 * FUNCTION + 4) + gamma(x.shape[1], r.u)
    return {"Y": _stored(y, y * relative)}


def _layernorm_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n = dims["M"], dims["N"]
    x = normal(rng, m, n) * 2.0 + 1.0
    return {"X": x, "gamma": normal(rng, n), "beta": normal(rng, n), "Y": poison(x.shape), "eps": 1e-5}


def _layernorm(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, scale, shift = load(args["X"]), load(args["gamma"]), load(args["beta"])
    n = x.shape[1]
    mean = x.mean(axis=1, keepdims=True)
    d = x - mean
    variance = (d * d).mean(axis=1, keepdims=True)
    rstd = 1.0 / np.sqrt(variance + float(np.float32(args["eps"])))
    y = d * rstd * scale
    d_error = r.u * (np.abs(d) + np.abs(mean)) + gamma(n, r.u) * np.abs(x).mean(axis=1, keepdims=True)
    # Relative error of the variance: its own sum, and sum d = 0 cancels the first order of the error of the mean.
    rstd_error = 0.5 * (gamma(n, r.u) + 4 * r.u) + FUNCTION * r.u + (d_error**2).max() / (variance + 1e-5)
    bound = np.abs(rstd * scale) * d_error + np.abs(y) * (rstd_error + 3 * r.u) + r.u * np.abs(y + shift)
    return {"Y": _stored(y + shift, bound)}


def _argmax_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n = dims["M"], dims["N"]
    x = np.round(2.0 * normal(rng, m, n))  # many ties
    x[m // 2] = -np.abs(x[m // 2]) - 1.0  # a row without a positive value: masked zeros must not win
    return {"X": x, "V": poison((m,)), "I": np.full(m, -7, np.int32)}


def _argmax(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"])
    return {"V": _exact(x.max(axis=1)), "I": _exact(x.argmax(axis=1))}


def _cumsum_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x = normal(rng, dims["M"], dims["N"])
    return {"X": x, "Y": poison(x.shape)}


def _cumsum(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"])
    return {"Y": _stored(np.cumsum(x, axis=1), gamma(x.shape[1], r.u) * np.cumsum(np.abs(x), axis=1))}


def _quantize_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x = normal(rng, dims["M"], dims["N"]) * np.exp(normal(rng, dims["M"], 1))
    x[dims["M"] // 2] = 0.0
    return {"X": x, "Q": np.full(x.shape, 99, np.int8), "scale": poison((dims["M"],))}


def _quantize(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"])
    top = np.abs(x).max(axis=1, keepdims=True)
    scale = np.where(top == 0.0, 1.0, top / 127.0)
    # Any integer nearest to x / scale is right; the quotient itself is off by a few u of at most 127.
    quotient = x / scale
    return {
        "scale": _stored(scale[:, 0], r.u * scale[:, 0]),
        "Q": Expected(quotient, np.full(x.shape, 0.5 + 127 * (3 * r.u + 2 * F32))),
    }


# --- contractions ----------------------------------------------------------------------------


def _gemm_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n, k = dims["M"], dims["N"], dims["K"]
    return {"A": normal(rng, m, k), "B": normal(rng, k, n), "C": normal(rng, m, n), "alpha": 1.25, "beta": -0.5}


def _gemm(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    a, b = load(args["A"]), load(args["B"])
    alpha, beta = float(args["alpha"]), float(args["beta"])
    product, size = alpha * (a @ b), abs(alpha) * (np.abs(a) @ np.abs(b))
    before = beta * load(args["C"]) if beta else np.zeros_like(product)
    bound = (gamma(a.shape[1], r.u) + 2 * r.operand) * size + 3 * r.u * (np.abs(product) + np.abs(before))
    return {"C": _stored(product + before, bound)}


def _int8_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n, k = dims["M"], dims["N"], dims["K"]
    a, b = (rng.integers(-128, 128, (rows, k), dtype=np.int8) for rows in (m, n))
    return {"A": a, "B": b, "C": np.full((m, n), -999_999_999, np.int32)}


def _int8(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    return {"C": _exact(load(args["A"]) @ load(args["B"]).T)}


def _matvec_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, k = dims["M"], dims["K"]
    return {"A": normal(rng, m, k), "x": normal(rng, k), "y": poison((m,))}


def _matvec(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    a, x = load(args["A"]), load(args["x"])
    return {"y": _stored(a @ x, gamma(a.shape[1], r.u) * (np.abs(a) @ np.abs(x)))}


def _attention_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    nq, nk, d = dims["Nq"], dims["Nk"], dims["D"]
    q, k, v = normal(rng, nq, d), normal(rng, nk, d), normal(rng, nk, d)
    return {"Q": q, "K": k, "V": v, "O": poison((nq, d)), "scale": 1.0 / sqrt(d)}


def _attention(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    q, k, v = load(args["Q"]), load(args["K"]), load(args["V"])
    nq, nk, d = q.shape[0], k.shape[0], q.shape[1]
    scale = float(np.float32(args["scale"]))
    s, size = q @ k.T * scale, np.abs(q) @ np.abs(k).T * abs(scale)
    if consts.get("causal", False):
        s = np.where(np.arange(nk)[None, :] <= np.arange(nq)[:, None] + nk - nq, s, -np.inf)
    top = s.max(axis=1, keepdims=True, initial=-np.inf)
    shifted = s - np.where(np.isfinite(top), top, 0.0)
    p = np.exp(shifted)
    total = p.sum(axis=1, keepdims=True)
    weights = p / np.where(total == 0.0, 1.0, total)
    # Error of a score, absolute; it is the relative error of its weight, and enters once more through the sum of the
    # row. A rounded operand of either product adds its own roundoff twice (two operands).
    seen = np.isfinite(shifted)
    score_error = np.where(seen, (gamma(d, r.u) + 2 * r.operand) * size + r.u * np.abs(np.where(seen, s, 0.0)), 0.0)
    span = np.where(seen, -shifted, 0.0)
    weight_error = score_error + score_error.max(axis=1, keepdims=True, initial=0.0) + r.u * 2 * span
    common = r.u * (2 * FUNCTION + 8) + 2 * gamma(nk, r.u) + 2 * r.operand
    return {"O": _stored(weights @ v, (weights * (weight_error + common)) @ np.abs(v))}


def _conv_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x, w = normal(rng, dims["N"], dims["D"]), normal(rng, dims["R"], dims["D"])
    return {"X": x, "W": w, "Y": poison(x.shape)}


def _conv(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, w = load(args["X"]), load(args["W"])
    taps = w.shape[0]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    terms = np.stack([w[t] * padded[t : t + x.shape[0]] for t in range(taps)])
    return {"Y": _stored(terms.sum(axis=0), gamma(taps, r.u) * np.abs(terms).sum(axis=0))}


def _heat_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x = normal(rng, dims["H"], dims["W"])
    return {"X": x, "Y": poison(x.shape), "r": 0.2}


def _heat(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, rate = load(args["X"]), float(np.float32(args["r"]))
    p = np.pad(x, 1)
    around = np.stack([p[1:-1, :-2], p[1:-1, 2:], p[:-2, 1:-1], p[2:, 1:-1]])
    size = np.abs(around).sum(axis=0) + 4 * np.abs(x)
    return {"Y": _stored(x + rate * (around.sum(axis=0) - 4 * x), 5 * r.u * (rate * size + np.abs(x)))}


# --- positions -------------------------------------------------------------------------------


def _histogram_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    bins = dims["B"]
    x = rng.integers(-2, bins + 2, dims["N"], dtype=np.int32)
    return {"X": x, "H": rng.integers(0, 10, bins, dtype=np.int32)}


def _histogram(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, before = args["X"], args["H"]
    inside = x[(x >= 0) & (x < before.size)]
    return {"H": _exact(before + np.bincount(inside, minlength=before.size))}


def _tokens(rng: np.random.Generator, count: int, table: int) -> np.ndarray:
    """Positions in a table of `table` rows, some just outside of it on both sides."""
    ids = rng.integers(-1, table + 1, count, dtype=np.int32)
    ids[:2] = table, -1
    return ids


def _embedding_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    n, v, d = dims["N"], dims["V"], dims["D"]
    ids = _tokens(rng, n, v)
    return {"ids": ids, "table": store(normal(rng, v, d), dtype), "out": poison((n, d), dtype)}


def _embedding(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    ids, table = args["ids"], load(args["table"], r.dtype)
    inside = (ids >= 0) & (ids < table.shape[0])
    return {"out": _exact(np.where(inside[:, None], table[np.where(inside, ids, 0)], 0.0))}


def _embedding_grad_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    n, v, d = dims["N"], dims["V"], dims["D"]
    ids = _tokens(rng, n, v)
    return {"ids": ids, "d_out": normal(rng, n, d), "d_table": normal(rng, v, d)}


def _embedding_grad(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    ids, grad, before = args["ids"], load(args["d_out"]), load(args["d_table"])
    inside = (ids >= 0) & (ids < before.shape[0])
    value, size = before.copy(), np.abs(before)
    np.add.at(value, ids[inside], grad[inside])
    np.add.at(size, ids[inside], np.abs(grad[inside]))
    return {"d_table": _stored(value, gamma(ids.size, r.u) * size)}


def _permute_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    n, d = dims["N"], dims["D"]
    p = rng.permutation(n).astype(np.int32)
    p[:2] = n, -1  # two rows go nowhere, so two rows of Y stay
    return {"X": normal(rng, n, d), "p": p, "Y": normal(rng, n, d)}


def _permute(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, p, y = load(args["X"]), args["p"], load(args["Y"])
    inside = (p >= 0) & (p < y.shape[0])
    y[p[inside]] = x[inside]
    return {"Y": _exact(y)}


def _sum_squares_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": normal(rng, dims["N"]), "out": np.array([3.0], np.float32)}


def _sum_squares(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, before = load(args["X"]), load(args["out"])
    value = before + (x * x).sum()
    return {"out": _stored(value, gamma(x.size, r.u) * value)}


def _searchsorted_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    table = np.sort(np.round(4.0 * normal(rng, dims["L"])) / 4.0)  # with repeated values
    queries = np.round(6.0 * normal(rng, dims["N"])) / 4.0
    return {"table": table, "queries": queries, "positions": np.full(dims["N"], -7, np.int32)}


def _searchsorted(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    return {"positions": _exact(np.searchsorted(load(args["table"]), load(args["queries"]), side="left"))}


ORACLES: dict[str, Oracle] = {
    "saxpy": Oracle(_saxpy_inputs, _saxpy),
    "softmax": Oracle(_softmax_inputs, _softmax),
    "layernorm": Oracle(_layernorm_inputs, _layernorm),
    "gemm": Oracle(_gemm_inputs, _gemm),
    "flash_attention": Oracle(_attention_inputs, _attention),
    "masked_attention": Oracle(_attention_inputs, _attention),
    "transpose_matrix": Oracle(_transpose_inputs, _transpose),
    "argmax_rows": Oracle(_argmax_inputs, _argmax),
    "histogram": Oracle(_histogram_inputs, _histogram),
    "embedding": Oracle(_embedding_inputs, _embedding),
    "embedding_grad": Oracle(_embedding_grad_inputs, _embedding_grad),
    "permute_rows": Oracle(_permute_inputs, _permute),
    "cumsum_rows": Oracle(_cumsum_inputs, _cumsum),
    "rope": Oracle(_rope_inputs, _rope),
    "gelu_forward": Oracle(_gelu_inputs, _gelu),
    "heat_step": Oracle(_heat_inputs, _heat),
    "conv1d": Oracle(_conv_inputs, _conv),
    "matvec": Oracle(_matvec_inputs, _matvec),
    "sum_squares": Oracle(_sum_squares_inputs, _sum_squares),
    "searchsorted": Oracle(_searchsorted_inputs, _searchsorted),
    "gemm_int8": Oracle(_int8_inputs, _int8),
    "quantize_rows": Oracle(_quantize_inputs, _quantize),
}


def mismatch(actual: np.ndarray, expected: Expected, dtype: str = "f32") -> str | None:
    """None where every element is within its bound, else a sentence that names the worst one."""
    got = load(actual, dtype)
    if got.shape != expected.value.shape:
        return f"shape {got.shape} instead of {expected.value.shape}"
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected.value)
    same = (got == expected.value) | (np.isnan(got) & np.isnan(expected.value))
    wrong = ~same & ~(error <= expected.bound)
    if not wrong.any():
        return None
    excess = np.where(wrong, np.where(np.isfinite(error), error - expected.bound, np.inf), -1.0)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), got.shape))
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; at {at}: {got[at]!r} instead of "
        f"{expected.value[at]!r} (error {error[at]:.3g}, bound {expected.bound[at]:.3g})"
    )
