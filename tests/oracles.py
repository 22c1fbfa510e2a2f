"""Independent oracles for the kernels of examples/: inputs, float64 NumPy results and error bounds.

Nothing here imports phobos. `ORACLES[kernel]` makes seeded random arguments for given dims and gives, from the
arguments as they were before the run, the expected value of every written tensor and how far a correct run may be
from it (rounding.py says how bounds are derived). Kernels with products are in oracles_products.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
from oracles_products import PRODUCTS
from rounding import (
    F32,
    FUNCTION,
    Arguments,
    Dims,
    Expected,
    Oracle,
    Rounding,
    exact,
    gamma,
    load,
    normal,
    poison,
    store,
    stored,
)

# --- elementwise -----------------------------------------------------------------------------


def _saxpy_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": normal(rng, dims["N"]), "Y": normal(rng, dims["N"]), "a": 1.7}


def _saxpy(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    a = float(np.float32(args["a"]))
    product, y = a * load(args["X"]), load(args["Y"])
    return {"Y": stored(product + y, 2 * r.u * (np.abs(product) + np.abs(y)))}


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
    return {"Y": stored(y, 0.5 * np.abs(x) * (FUNCTION + 4) * r.u + 2 * r.u * np.abs(y), r.dtype)}


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
    return {"Y": stored(y, 2 * r.u * size, r.dtype)}


def _transpose_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": store(normal(rng, dims["M"], dims["N"]), dtype), "Y": poison((dims["N"], dims["M"]), dtype)}


def _transpose(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    return {"Y": exact(load(args["X"], r.dtype).T)}


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
    return {"Y": stored(y, y * relative)}


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
    return {"Y": stored(y + shift, bound)}


def _argmax_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n = dims["M"], dims["N"]
    x = np.round(2.0 * normal(rng, m, n))  # many ties
    x[m // 2] = -np.abs(x[m // 2]) - 1.0  # a row without a positive value: masked zeros must not win
    return {"X": x, "V": poison((m,)), "I": np.full(m, -7, np.int32)}


def _argmax(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"])
    return {"V": exact(x.max(axis=1)), "I": exact(x.argmax(axis=1))}


def _cumsum_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x = normal(rng, dims["M"], dims["N"])
    return {"X": x, "Y": poison(x.shape)}


def _cumsum(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x = load(args["X"])
    return {"Y": stored(np.cumsum(x, axis=1), gamma(x.shape[1], r.u) * np.cumsum(np.abs(x), axis=1))}


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
        "scale": stored(scale[:, 0], r.u * scale[:, 0]),
        "Q": Expected(quotient, np.full(x.shape, 0.5 + 127 * (3 * r.u + 2 * F32))),
    }


def _conv_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x, w = normal(rng, dims["N"], dims["D"]), normal(rng, dims["R"], dims["D"])
    return {"X": x, "W": w, "Y": poison(x.shape)}


def _conv(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, w = load(args["X"]), load(args["W"])
    taps = w.shape[0]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    terms = np.stack([w[t] * padded[t : t + x.shape[0]] for t in range(taps)])
    return {"Y": stored(terms.sum(axis=0), gamma(taps, r.u) * np.abs(terms).sum(axis=0))}


def _heat_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    x = normal(rng, dims["H"], dims["W"])
    return {"X": x, "Y": poison(x.shape), "r": 0.2}


def _heat(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, rate = load(args["X"]), float(np.float32(args["r"]))
    p = np.pad(x, 1)
    around = np.stack([p[1:-1, :-2], p[1:-1, 2:], p[:-2, 1:-1], p[2:, 1:-1]])
    size = np.abs(around).sum(axis=0) + 4 * np.abs(x)
    return {"Y": stored(x + rate * (around.sum(axis=0) - 4 * x), 5 * r.u * (rate * size + np.abs(x)))}


# --- positions -------------------------------------------------------------------------------


def _histogram_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    bins = dims["B"]
    x = rng.integers(-2, bins + 2, dims["N"], dtype=np.int32)
    return {"X": x, "H": rng.integers(0, 10, bins, dtype=np.int32)}


def _histogram(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, before = args["X"], args["H"]
    inside = x[(x >= 0) & (x < before.size)]
    return {"H": exact(before + np.bincount(inside, minlength=before.size))}


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
    return {"out": exact(np.where(inside[:, None], table[np.where(inside, ids, 0)], 0.0))}


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
    return {"d_table": stored(value, gamma(ids.size, r.u) * size)}


def _permute_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    n, d = dims["N"], dims["D"]
    p = rng.permutation(n).astype(np.int32)
    p[:2] = n, -1  # two rows go nowhere, so two rows of Y stay
    return {"X": normal(rng, n, d), "p": p, "Y": normal(rng, n, d)}


def _permute(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, p, y = load(args["X"]), args["p"], load(args["Y"])
    inside = (p >= 0) & (p < y.shape[0])
    y[p[inside]] = x[inside]
    return {"Y": exact(y)}


def _sum_squares_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    return {"X": normal(rng, dims["N"]), "out": np.array([3.0], np.float32)}


def _sum_squares(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    x, before = load(args["X"]), load(args["out"])
    value = before + (x * x).sum()
    return {"out": stored(value, gamma(x.size, r.u) * value)}


def _searchsorted_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    table = np.sort(np.round(4.0 * normal(rng, dims["L"])) / 4.0)  # with repeated values
    queries = np.round(6.0 * normal(rng, dims["N"])) / 4.0
    return {"table": table, "queries": queries, "positions": np.full(dims["N"], -7, np.int32)}


def _searchsorted(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    return {"positions": exact(np.searchsorted(load(args["table"]), load(args["queries"]), side="left"))}


ORACLES: dict[str, Oracle] = {
    "saxpy": Oracle(_saxpy_inputs, _saxpy),
    "softmax": Oracle(_softmax_inputs, _softmax),
    "layernorm": Oracle(_layernorm_inputs, _layernorm),
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
    "sum_squares": Oracle(_sum_squares_inputs, _sum_squares),
    "searchsorted": Oracle(_searchsorted_inputs, _searchsorted),
    "quantize_rows": Oracle(_quantize_inputs, _quantize),
    **PRODUCTS,
}
