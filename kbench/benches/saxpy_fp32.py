"""Y = a X + Y: three streams of f32, bound by memory."""

from __future__ import annotations

from typing import Any

from kbench.bench import MEMORY, Arrays, Bench, Case, Peer, PeerInput, Prepared, Scalars, Tensor
from kbench.peers import copy_of_bytes


def _case(n: int, **config: int) -> Case:
    return Case(label=f"{n} f32", dims={"N": n}, config=config)


def _tensors(case: Case) -> dict[str, Tensor]:
    shape = (case.dims["N"],)
    return {"X": Tensor(shape=shape, dtype="f32"), "Y": Tensor(shape=shape, dtype="f32", role="inout")}


def _oracle(xp: Any, t: Arrays, s: Scalars) -> dict[str, Any]:
    return {"Y": s["a"] * t["X"] + t["Y"]}


def _torch(given: PeerInput) -> Prepared:
    x, y, a = given.tensors["X"], given.tensors["Y"], given.scalars["a"]
    return Prepared(call=lambda: given.torch.add(y, x, alpha=a, out=y), outputs={"Y": y})


BENCH = Bench(
    name="saxpy_fp32",
    example="saxpy_fp32.ph",
    precision="fp32",
    bound=MEMORY,
    unit="fp32",
    title="Y = a X + Y",
    cases=(_case(64 << 20),),
    quick_cases=(_case(16 << 20),),
    host_cases=lambda pins: (_case(4096, BN=1024), _case(1003, BN=256)),
    tensors=_tensors,
    scalars=lambda case: {"a": 0.75},
    oracle=_oracle,
    flops=lambda case: 2.0 * case.dims["N"],
    bytes=lambda case: 12.0 * case.dims["N"],
    tolerance={"ieee": 1e-6},
    peers=(copy_of_bytes(), Peer(name="torch", prepare=_torch)),
)
