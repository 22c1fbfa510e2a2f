"""Gated linear attention by chunks, one head, one block: S_t = a_t S_(t-1) + k_t^T v_t, o_t = scale q_t S_t."""

from __future__ import annotations

import math
from typing import Any

from kbench.bench import COMPUTE, Arrays, Bench, Case, Scalars, Tensor


def _case(n: int, d: int, **config: int) -> Case:
    return Case(label=f"N{n} D{d} f32", dims={"N": n, "D": d}, config=config)


def _tensors(case: Case) -> dict[str, Tensor]:
    n, d = case.dims["N"], case.dims["D"]
    return {
        "Q": Tensor(shape=(n, d), dtype="f32"),
        "K": Tensor(shape=(n, d), dtype="f32"),
        "V": Tensor(shape=(n, d), dtype="f32"),
        "G": Tensor(shape=(n, 1), dtype="f32", low=-0.2, high=0.0),  # log a
        "O": Tensor(shape=(n, d), dtype="f32", role="out"),
    }


def _oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    """The recurrence, one row after another: no chunks."""
    q, k, v, decay = t["Q"], t["K"], t["V"], xp.exp(t["G"])
    state = 0.0 * (k[0][:, None] * v[0][None, :])
    rows = []
    for i in range(q.shape[0]):
        state = decay[i] * state + k[i][:, None] * v[i][None, :]
        rows.append(q[i] @ state)
    return {"O": s["scale"] * xp.stack(rows)}


BENCH = Bench(
    name="kda_fp32",
    example="kda_fp32.ph",
    precision="fp32",
    bound=COMPUTE,
    unit="fp32",
    title="gated linear attention by chunks, one head in one block",
    cases=(_case(4096, 64),),
    quick_cases=(_case(1024, 64),),
    host_cases=lambda pins: (_case(48, 32, D=32, C=16), _case(69, 16, D=16, C=32)),
    tensors=_tensors,
    scalars=lambda case: {"scale": 1.0 / math.sqrt(case.dims["D"])},
    oracle=_oracle,
    # Of the recurrence: the outer product into the state and the product with it, 2 D^2 each.
    flops=lambda case: 4.0 * case.dims["N"] * case.dims["D"] ** 2,
    bytes=lambda case: float(sum(t.bytes for t in _tensors(case).values())),
    # About ten keys in memory at a time, each through products of D and a few factors of two ulp.
    tolerance={"ieee": 5e-6},
)
