"""Layer normalisation of the rows of an f32 matrix, bound by memory: read once, written once."""

from __future__ import annotations

from typing import Any

from kbench.bench import MEMORY, Arrays, Bench, Case, Peer, PeerInput, Prepared, Scalars, Tensor
from kbench.peers import copy_of_bytes


def _case(rows: int, columns: int, **config: int) -> Case:
    return Case(label=f"{rows}x{columns} f32", dims={"M": rows, "N": columns}, config=config)


def _tensors(case: Case) -> dict[str, Tensor]:
    m, n = case.dims["M"], case.dims["N"]
    return {
        "X": Tensor(shape=(m, n), dtype="f32"),
        "gamma": Tensor(shape=(n,), dtype="f32"),
        "beta": Tensor(shape=(n,), dtype="f32"),
        "Y": Tensor(shape=(m, n), dtype="f32", role="out"),
    }


def _oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    count = t["X"].shape[1]
    d = t["X"] - xp.sum(t["X"], axis=1, keepdims=True) / count
    variance = xp.sum(d * d, axis=1, keepdims=True) / count
    return {"Y": d / xp.sqrt(variance + s["eps"]) * t["gamma"] + t["beta"]}


def _torch(given: PeerInput) -> Prepared:
    t, eps = given.tensors, given.scalars["eps"]
    norm, outputs = given.torch.nn.functional.layer_norm, {}

    def call() -> None:
        outputs["Y"] = norm(t["X"], t["gamma"].shape, t["gamma"], t["beta"], eps)

    return Prepared(call=call, outputs=outputs)


BENCH = Bench(
    name="layernorm_fp32",
    example="layernorm_fp32.ph",
    precision="fp32",
    bound=MEMORY,
    unit="fp32",
    title="layer norm of rows",
    cases=(_case(8192, 8192),),
    quick_cases=(_case(2048, 8192),),
    # One row a tile, and rows longer than a tile.
    host_cases=lambda pins: (_case(6, 256, BR=2, BN=256), _case(5, 203, BR=2, BN=64)),
    tensors=_tensors,
    scalars=lambda case: {"eps": 1e-5},
    oracle=_oracle,
    # Per element: sum, subtraction, square and its sum, scale by 1 / sigma, scale and shift.
    flops=lambda case: 7.0 * case.dims["M"] * case.dims["N"],
    bytes=lambda case: 8.0 * case.dims["M"] * case.dims["N"] + 8.0 * case.dims["N"],
    tolerance={"ieee": 1e-6},
    peers=(copy_of_bytes(), Peer(name="torch", prepare=_torch)),
)
