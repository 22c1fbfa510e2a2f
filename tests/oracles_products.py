"""Oracles of the kernels with products: matrices, attention, linear attention. rounding.py explains the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
from rounding import (
    FUNCTION,
    SMALLEST,
    UNIT,
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

# --- matrices --------------------------------------------------------------------------------


def _gemm_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n, k = dims["M"], dims["N"], dims["K"]
    a, b, c = (store(normal(rng, *shape), dtype) for shape in ((m, k), (k, n), (m, n)))
    return {"A": a, "B": b, "C": c, "alpha": 1.25, "beta": -0.5}


def _gemm(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    a, b = load(args["A"], r.dtype), load(args["B"], r.dtype)
    alpha, beta = float(args["alpha"]), float(args["beta"])
    product, size = alpha * (a @ b), abs(alpha) * (np.abs(a) @ np.abs(b))
    before = beta * load(args["C"], r.dtype) if beta else np.zeros_like(product)
    bound = (gamma(a.shape[1], r.u) + 2 * r.operand) * size + 3 * r.u * (np.abs(product) + np.abs(before))
    return {"C": stored(product + before, bound, r.dtype)}


def _int8_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, n, k = dims["M"], dims["N"], dims["K"]
    a, b = (rng.integers(-128, 128, (rows, k), dtype=np.int8) for rows in (m, n))
    return {"A": a, "B": b, "C": np.full((m, n), -999_999_999, np.int32)}


def _int8(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    return {"C": exact(load(args["A"]) @ load(args["B"]).T)}


def _matvec_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    m, k = dims["M"], dims["K"]
    return {"A": normal(rng, m, k), "x": normal(rng, k), "y": poison((m,))}


def _matvec(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    a, x = load(args["A"]), load(args["x"])
    return {"y": stored(a @ x, gamma(a.shape[1], r.u) * (np.abs(a) @ np.abs(x)))}


# --- attention -------------------------------------------------------------------------------


def _visible(m: int, n: int, consts: Mapping[str, Any]) -> np.ndarray:
    """[M, N]: which key each query sees. The last query stands at the last key."""
    distance = np.arange(m)[:, None] + n - m - np.arange(n)[None, :]  # how far a key lies behind the query
    seen = np.ones((m, n), bool)
    if consts.get("causal", False) or "window" in consts:
        seen &= distance >= 0
    if "window" in consts:
        seen &= distance < consts["window"]
    return seen


def _head(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, seen: np.ndarray, r: Rounding) -> Expected:
    """One head in float64, [M, D] of q, k, v [N, D], and its bound before the store."""
    d, nk = q.shape[1], k.shape[0]
    s, size = q @ k.T * scale, np.abs(q) @ np.abs(k).T * abs(scale)
    top = np.where(seen, s, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    p = np.where(seen, np.exp(np.where(seen, s - top, 0.0)), 0.0)
    total = p.sum(axis=1, keepdims=True)
    total = np.where(total == 0.0, 1.0, total)
    weights = p / total
    # Error of a score, absolute; it is the relative error of its weight, and enters once more through the sum of the
    # row. A rounded operand of either product adds its own roundoff twice (two operands).
    score_error = np.where(seen, (gamma(d, r.u) + 2 * r.operand) * size + r.u * np.abs(s), 0.0)
    span = np.where(seen, top - s, 0.0)
    weight_error = score_error + score_error.max(axis=1, keepdims=True, initial=0.0) + r.u * 2 * span
    common = r.u * (2 * FUNCTION + 8) + 2 * gamma(nk, r.u) + 2 * r.operand
    lost = 0.0
    if r.dtype != "f32":
        # p is rounded to the 16-bit type; a p that is subnormal there loses up to SMALLEST. Its exponential may be
        # taken as exp2 of s log2(e) - top log2(e), which rounds both terms and the factor.
        weight_error = weight_error + 4 * r.u * (np.abs(np.where(seen, s, 0.0)) + np.abs(top))
        common += UNIT[r.dtype]
        lost = SMALLEST[r.dtype] / total * np.where(seen, 1.0, 0.0)
    return Expected(weights @ v, (weights * (weight_error + common) + lost) @ np.abs(v))


def _attention_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    nq, nk, d = dims["Nq"], dims["Nk"], dims["D"]
    q, k, v = (store(normal(rng, n, d), dtype) for n in (nq, nk, nk))
    return {"Q": q, "K": k, "V": v, "O": poison((nq, d), dtype), "scale": 1.0 / sqrt(d)}


def _attention(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    q, k, v = (load(args[n], r.dtype) for n in "QKV")
    found = _head(q, k, v, float(np.float32(args["scale"])), _visible(len(q), len(k), consts), r)
    return {"O": stored(found.value, found.bound, r.dtype)}


def _heads_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    """[B, H, M, D] of Q and O, [B, HK, N, D] of K and V; without B and HK: [H, M, D] and [H, N, D]."""
    batch = (dims["B"],) if "B" in dims else ()
    d = dims["D"]
    queries, keys = (*batch, dims["H"], dims["M"], d), (*batch, dims.get("HK", dims["H"]), dims["N"], d)
    q, k, v = (store(normal(rng, *shape), dtype) for shape in (queries, keys, keys))
    return {"Q": q, "K": k, "V": v, "O": poison(queries, dtype), "scale": 1.0 / sqrt(d)}


def _heads(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    q, k, v = (load(args[n], r.dtype) for n in "QKV")
    heads, key_heads = q.shape[-3], k.shape[-3]
    seen, scale = _visible(q.shape[-2], k.shape[-2], consts), float(np.float32(args["scale"]))
    value, bound = np.zeros_like(q), np.zeros_like(q)
    for at in np.ndindex(q.shape[:-2]):
        group = at[-1] // (heads // key_heads)
        if group >= key_heads:
            continue  # H is no multiple of HK: the last query heads have no keys, and reading past the end gives zeros
        keys = (*at[:-1], group)
        found = _head(q[at], k[keys], v[keys], scale, seen, r)
        value[at], bound[at] = found.value, found.bound
    return {"O": stored(value, bound, r.dtype)}


# --- linear attention ------------------------------------------------------------------------

_CHUNK = 128  # the longest chunk of the examples' configurations


def _kda_inputs(rng: np.random.Generator, dims: Dims, dtype: str) -> Arguments:
    n, d = dims["N"], dims["D"]
    q, k, v = normal(rng, n, d), normal(rng, n, d), normal(rng, n, d)
    gates = -np.abs(0.2 * normal(rng, n, 1))
    gates[3:6] = -60.0  # closed gates, one after another: exp of a difference of the wrong sign would overflow
    return {"Q": q, "K": k, "V": v, "G": gates, "O": poison((n, d)), "scale": 1.0 / sqrt(d)}


def _kda(args: Mapping[str, Any], consts: Mapping[str, Any], r: Rounding) -> dict[str, Expected]:
    q, k, v, g = (load(args[name]) for name in "QKVG")
    n, d = q.shape
    scale = float(np.float32(args["scale"]))
    state, value = np.zeros((d, d)), np.zeros((n, d))
    for t in range(n):  # the definition itself
        state = np.exp(g[t, 0]) * state + np.outer(k[t], v[t])
        value[t] = scale * q[t] @ state
    # The weight of key j for query t is exp(sum of g from j + 1 to t). Its exponent is a difference of prefix sums
    # within a chunk, whose errors are relative to the sum of the whole chunk; each chunk between adds two factors.
    log = np.cumsum(g[:, 0])
    between = np.tril(log[:, None] - log[None, :])
    chunk = max(-g[i : i + _CHUNK].sum() for i in range(n))
    weights = np.tril(np.exp(between)) * (np.abs(q) @ np.abs(k).T)
    factors = 2 * (n / 16 + 1)  # at most: the shortest chunks have 16 rows
    exponent = gamma(_CHUNK, r.u) * (2 * chunk - between)
    relative = gamma(d, r.u) + gamma(n, r.u) + exponent + r.u * (FUNCTION + 2) * factors
    return {"O": stored(value, abs(scale) * (weights * relative) @ np.abs(v))}


PRODUCTS: dict[str, Oracle] = {
    "gemm": Oracle(_gemm_inputs, _gemm),
    "gemm_fp16": Oracle(_gemm_inputs, _gemm),
    "gemm_bf16": Oracle(_gemm_inputs, _gemm),
    "gemm_fp16tc_fp32acc": Oracle(_gemm_inputs, _gemm),
    "gemm_int8": Oracle(_int8_inputs, _int8),
    "matvec": Oracle(_matvec_inputs, _matvec),
    "flash_attention": Oracle(_attention_inputs, _attention),
    "flash_attention_fp16": Oracle(_attention_inputs, _attention),
    "masked_attention": Oracle(_attention_inputs, _attention),
    "attention": Oracle(_heads_inputs, _heads),
    "windowed_attention": Oracle(_heads_inputs, _heads),
    "kda": Oracle(_kda_inputs, _kda),
}
