"""Row softmax of an f32 matrix, bound by memory: read once, written once."""

from __future__ import annotations

from typing import Any

from kbench.bench import MEMORY, Arrays, Bench, Case, Peer, PeerInput, Prepared, Scalars, Tensor
from kbench.peers import copy_of_bytes


def _case(rows: int, columns: int, **config: int) -> Case:
    return Case(label=f"{rows}x{columns} f32", dims={"M": rows, "N": columns}, config=config)


def _tensors(case: Case) -> dict[str, Tensor]:
    shape = (case.dims["M"], case.dims["N"])
    return {"X": Tensor(shape=shape, dtype="f32"), "Y": Tensor(shape=shape, dtype="f32", role="out")}


def _oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    e = xp.exp(t["X"] - xp.amax(t["X"], axis=1, keepdims=True))
    return {"Y": e / xp.sum(e, axis=1, keepdims=True)}


def _torch(given: PeerInput) -> Prepared:
    x, y = given.tensors["X"], given.tensors["Y"]
    return Prepared(call=lambda: given.torch.softmax(x, 1, out=y), outputs={"Y": y})


BENCH = Bench(
    name="softmax_fp32",
    example="softmax_fp32.ph",
    precision="fp32",
    bound=MEMORY,
    unit="fp32",
    title="row softmax",
    cases=(_case(8192, 8192),),
    quick_cases=(_case(2048, 8192),),
    # One row a tile, and rows longer than a tile.
    host_cases=lambda pins: (_case(6, 256, BR=2, BN=256), _case(5, 203, BR=2, BN=64)),
    tensors=_tensors,
    scalars=lambda case: {},
    oracle=_oracle,
    # Per element: maximum, subtraction, exponential, sum, division.
    flops=lambda case: 5.0 * case.dims["M"] * case.dims["N"],
    bytes=lambda case: 8.0 * case.dims["M"] * case.dims["N"],
    tolerance={"ieee": 1e-6},
    peers=(copy_of_bytes(), Peer(name="torch", prepare=_torch)),
)
