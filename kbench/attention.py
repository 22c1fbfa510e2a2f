"""The oracle of attention, for one head [N, D] or for batches of heads [B, H, N, D]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbench.bench import Arrays, Scalars

# Scores held at once: 2^26 are 512 MiB of float64, and about four such arrays live at a time.
_MOST_SCORES = 1 << 26


def attention_oracle(*, causal: bool) -> Callable[[Any, Arrays, Scalars], dict[str, Any]]:
    """softmax(Q K^T scale) V; with `causal` query i sees the keys up to i + N - M. Heads of K and V are shared by
    groups of query heads. A part of the queries at a time, so that any size fits."""

    def oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
        q, k, v = t["Q"], t["K"], t["V"]
        if len(q.shape) == 2:
            return {"O": _head(xp, q, k, v, s["scale"], causal)}
        group = q.shape[1] // k.shape[1]
        heads = [
            [_head(xp, q[b, h], k[b, h // group], v[b, h // group], s["scale"], causal) for h in range(q.shape[1])]
            for b in range(q.shape[0])
        ]
        return {"O": xp.stack([xp.stack(batch) for batch in heads])}

    return oracle


def _head(xp: Any, q: Any, k: Any, v: Any, scale: float, causal: bool) -> Any:
    m, n = q.shape[0], k.shape[0]
    rows = max(1, _MOST_SCORES // n)
    parts = []
    for start in range(0, m, rows):
        scores = (q[start : start + rows] @ k.T) * scale
        if causal:
            seen = xp.tril(xp.ones_like(scores), start + n - m)
            scores = xp.where(seen > 0, scores, -float("inf"))
        top = xp.amax(scores, axis=1, keepdims=True)
        p = xp.exp(scores - top)
        parts.append((p @ v) / xp.sum(p, axis=1, keepdims=True))
    return xp.concatenate(parts, axis=0)
