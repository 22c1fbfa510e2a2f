"""The cases that every executor runs the examples on: small, at whole and at ragged sizes, several configurations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One example kernel under one configuration at one size. `dtype` is what the generic name T is bound to; of a
    kernel without one, the type of its tensors. `sizes` are the extents of the oracle's inputs, pinned ones included.
    """

    file: str
    kernel: str
    config: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]
    consts: tuple[tuple[str, int], ...] = ()  # bools too
    dtype: str = "f32"
    scalars: tuple[tuple[str, float], ...] = ()  # replaces scalar arguments of the oracle's inputs

    @property
    def generic(self) -> bool:
        return self.kernel in GENERIC

    @property
    def id(self) -> str:
        parts = [f"{k}{v}" for k, v in (*self.config, *self.sizes, *self.consts, *self.scalars)]
        return "-".join([self.kernel, *([self.dtype] if self.generic else []), *parts])


# Kernels with a dtype name T.
GENERIC = frozenset({"transpose_matrix", "embedding", "rope", "gelu_forward", "attention", "windowed_attention"})

# (file, kernel, [(configuration, [sizes...])...]); each is run at every size of its list.
_TABLE: list[tuple[str, str, list[tuple[dict[str, int], list[dict[str, int]]]]]] = [
    ("saxpy_fp32", "saxpy", [({"BN": 256}, [{"N": 1024}, {"N": 1001}, {"N": 1}]), ({"BN": 1024}, [{"N": 3077}])]),
    (
        "softmax_fp32",
        "softmax",
        [
            ({"BR": 1, "BN": 128}, [{"M": 3, "N": 128}, {"M": 2, "N": 77}, {"M": 2, "N": 300}]),
            ({"BR": 4, "BN": 64}, [{"M": 8, "N": 64}, {"M": 5, "N": 50}, {"M": 6, "N": 130}]),
            ({"BR": 2, "BN": 512}, [{"M": 3, "N": 509}]),
        ],
    ),
    (
        "layernorm_fp32",
        "layernorm",
        [
            ({"BR": 1, "BN": 128}, [{"M": 3, "N": 128}, {"M": 2, "N": 77}, {"M": 2, "N": 300}]),
            ({"BR": 4, "BN": 64}, [{"M": 8, "N": 64}, {"M": 5, "N": 50}, {"M": 6, "N": 130}]),
            ({"BR": 2, "BN": 512}, [{"M": 3, "N": 509}]),
        ],
    ),
    (
        "gemm_fp32",
        "gemm",
        [
            ({"BM": 16, "BN": 16, "BK": 8}, [{"M": 32, "N": 48, "K": 24}, {"M": 37, "N": 21, "K": 19}]),
            ({"BM": 32, "BN": 64, "BK": 16}, [{"M": 64, "N": 64, "K": 32}, {"M": 33, "N": 70, "K": 45}]),
            ({"BM": 64, "BN": 32, "BK": 32}, [{"M": 63, "N": 65, "K": 1}]),
            ({"BM": 128, "BN": 128, "BK": 8}, [{"M": 100, "N": 129, "K": 20}]),
        ],
    ),
    (
        "flash_attention_fp32",
        "flash_attention",
        [
            ({"D": 64, "BR": 4, "BC": 8}, [{"Nq": 8, "Nk": 24, "D": 64}]),
            ({"D": 64, "BR": 16, "BC": 32}, [{"Nq": 32, "Nk": 96, "D": 64}]),
            ({"D": 64, "BR": 64, "BC": 16}, [{"Nq": 64, "Nk": 48, "D": 64}]),
        ],
    ),
    (
        "transpose",
        "transpose_matrix",
        [
            ({"BM": 16, "BN": 32}, [{"M": 32, "N": 64}, {"M": 33, "N": 50}]),
            ({"BM": 64, "BN": 16}, [{"M": 70, "N": 5}]),
        ],
    ),
    (
        "argmax_rows",
        "argmax_rows",
        [
            ({"BR": 1, "BN": 64}, [{"M": 2, "N": 128}, {"M": 3, "N": 150}]),
            ({"BR": 4, "BN": 64}, [{"M": 4, "N": 64}, {"M": 6, "N": 100}]),
            ({"BR": 2, "BN": 256}, [{"M": 3, "N": 7}]),
        ],
    ),
    (
        "histogram",
        "histogram",
        [({"BN": 128}, [{"N": 256, "B": 10}, {"N": 300, "B": 7}]), ({"BN": 512}, [{"N": 700, "B": 130}])],
    ),
    (
        "embedding",
        "embedding",
        [
            ({"BN": 8, "BD": 16}, [{"N": 16, "V": 10, "D": 32}, {"N": 13, "V": 10, "D": 20}]),
            ({"BN": 32, "BD": 64}, [{"N": 35, "V": 50, "D": 70}]),
        ],
    ),
    (
        "embedding",
        "embedding_grad",
        [
            ({"BN": 8, "BD": 16}, [{"N": 16, "V": 10, "D": 32}, {"N": 13, "V": 10, "D": 20}]),
            ({"BN": 32, "BD": 64}, [{"N": 35, "V": 50, "D": 70}]),
        ],
    ),
    (
        "permute_rows",
        "permute_rows",
        [
            ({"BN": 8, "BD": 16}, [{"N": 16, "D": 32}, {"N": 13, "D": 20}]),
            ({"BN": 32, "BD": 64}, [{"N": 35, "D": 70}]),
        ],
    ),
    (
        "cumsum",
        "cumsum_rows",
        [
            ({"BR": 1, "BN": 32}, [{"M": 2, "N": 64}, {"M": 3, "N": 75}]),
            ({"BR": 4, "BN": 64}, [{"M": 8, "N": 128}, {"M": 5, "N": 100}]),
        ],
    ),
    (
        "rope",
        "rope",
        [
            ({"D": 32, "BN": 8}, [{"N": 16, "H": 2, "D": 32}, {"N": 13, "H": 3, "D": 32}]),
            ({"D": 64, "BN": 16}, [{"N": 20, "H": 2, "D": 64}]),
        ],
    ),
    ("gelu", "gelu_forward", [({"BN": 256}, [{"N": 512}, {"N": 333}]), ({"BN": 1024}, [{"N": 1500}])]),
    (
        "stencil",
        "heat_step",
        [
            ({"BH": 4, "BW": 16}, [{"H": 8, "W": 32}, {"H": 7, "W": 19}]),
            ({"BH": 16, "BW": 32}, [{"H": 17, "W": 40}]),
        ],
    ),
    (
        "conv1d",
        "conv1d",
        [
            ({"BN": 16, "BD": 16}, [{"N": 32, "D": 32, "R": 4}, {"N": 37, "D": 21, "R": 3}]),
            ({"BN": 32, "BD": 16}, [{"N": 9, "D": 17, "R": 7}]),
        ],
    ),
    (
        "matvec",
        "matvec",
        [
            ({"BM": 4, "BK": 64}, [{"M": 8, "K": 128}, {"M": 7, "K": 150}]),
            ({"BM": 16, "BK": 128}, [{"M": 19, "K": 333}]),
        ],
    ),
    (
        "sum_squares",
        "sum_squares",
        [({"BN": 128}, [{"N": 1024}, {"N": 999}, {"N": 9000}]), ({"BN": 512}, [{"N": 700}])],
    ),
    (
        "searchsorted",
        "searchsorted",
        [({"BN": 64}, [{"L": 100, "N": 128}, {"L": 33, "N": 100}]), ({"BN": 256}, [{"L": 1, "N": 300}])],
    ),
    (
        "gemm_int8",
        "gemm_int8",
        [
            ({"BM": 16, "BN": 16, "BK": 16}, [{"M": 32, "N": 32, "K": 32}, {"M": 21, "N": 35, "K": 41}]),
            ({"BM": 32, "BN": 64, "BK": 32}, [{"M": 40, "N": 70, "K": 50}]),
        ],
    ),
    (
        "quantize_rows",
        "quantize_rows",
        [
            ({"BR": 1, "BN": 64}, [{"M": 2, "N": 128}, {"M": 3, "N": 150}]),
            ({"BR": 4, "BN": 128}, [{"M": 6, "N": 100}]),
        ],
    ),
]


def _cases() -> Iterator[Case]:
    for file, kernel, rows in _TABLE:
        for config, sizes in rows:
            for dims in sizes:
                yield Case(file, kernel, tuple(config.items()), tuple(dims.items()))
    # beta = 0 takes the other branch of the epilogue; the input C is then NaN (see harness.make_arguments).
    yield Case(
        "gemm_fp32",
        "gemm",
        (("BM", 16), ("BN", 16), ("BK", 8)),
        (("M", 17), ("N", 16), ("K", 9)),
        scalars=(("beta", 0.0),),
    )
    yield from _gemms_of_16_bits()
    yield from _attention()
    for dtype in ("f16", "bf16"):
        yield Case("gelu", "gelu_forward", (("BN", 256),), (("N", 333),), dtype=dtype)
        yield Case("transpose", "transpose_matrix", (("BM", 16), ("BN", 16)), (("M", 33), ("N", 20)), dtype=dtype)
        yield Case("embedding", "embedding", (("BN", 8), ("BD", 16)), (("N", 13), ("V", 9), ("D", 20)), dtype=dtype)
        yield Case("rope", "rope", (("D", 32), ("BN", 8)), (("N", 13), ("H", 2), ("D", 32)), dtype=dtype)
    for causal in (False, True):
        for br, bc, d, lengths in (
            (16, 16, 16, ((32, 32), (37, 50), (50, 20), (1, 1), (3, 70))),
            (32, 16, 32, ((64, 64), (45, 61))),
            (16, 64, 64, ((20, 70),)),
        ):
            for nq, nk in lengths:
                yield Case(
                    "masked_attention_fp32",
                    "masked_attention",
                    (("D", d), ("BR", br), ("BC", bc)),
                    (("Nq", nq), ("Nk", nk), ("D", d)),
                    (("causal", causal),),
                )


def _gemms_of_16_bits() -> Iterator[Case]:
    """Tensor-core products: several fragments a warp, K of one to several blocks, ragged in every axis."""
    for kernel, dtype in (("gemm_fp16", "f16"), ("gemm_bf16", "bf16"), ("gemm_fp16tc_fp32acc", "f32")):
        for (bm, bn, bk), sizes in (
            ((32, 64, 16), ((64, 64, 48), (37, 50, 21))),
            ((64, 32, 32), ((80, 96, 112),)),
            ((128, 64, 32), ((100, 70, 90),)),
        ):
            for m, n, k in sizes:
                config = (("BM", bm), ("BN", bn), ("BK", bk))
                yield Case(kernel, kernel, config, (("M", m), ("N", n), ("K", k)), dtype=dtype)
    config = (("BM", 32), ("BN", 32), ("BK", 16))
    yield Case("gemm_fp16", "gemm_fp16", config, (("M", 33), ("N", 16), ("K", 9)), (), "f16", (("beta", 0.0),))


# D, BR, BC, then (B, H, HK, M, N).
_HEADS: list[tuple[tuple[int, int, int], list[tuple[int, int, int, int, int]]]] = [
    ((48, 32, 16), [(1, 1, 1, 33, 61)]),
    ((80, 16, 32), [(1, 1, 1, 19, 45)]),
    ((96, 64, 32), [(1, 1, 1, 70, 64)]),
    ((128, 64, 64), [(1, 1, 1, 64, 130)]),
    ((32, 16, 16), [(1, 2, 1, 37, 50), (1, 1, 1, 50, 20)]),  # grouped queries; queries without a key
    ((64, 32, 32), [(2, 4, 2, 64, 64), (1, 3, 2, 40, 70)]),  # the third query head has no keys
]


def _attention() -> Iterator[Case]:
    for d in (48, 80, 96, 128, 64):
        br, bc = (32, 32) if d < 96 else (64, 64)
        for nq, nk in ((64, 128), (45, 101)) if d == 64 else ((37, 75),):
            config, sizes = (("D", d), ("BR", br), ("BC", bc)), (("Nq", nq), ("Nk", nk), ("D", d))
            yield Case("flash_attention_fp16", "flash_attention_fp16", config, sizes, dtype="f16")
    for dtype in ("bf16", "f32", "f16"):
        for (d, br, bc), lengths in _HEADS:
            if dtype == "f32" and d not in (32, 48):
                continue  # products by FMA: masked_attention_fp32 has more of these
            for number, (b, h, hk, m, n) in enumerate(lengths):
                for causal in (False, True):
                    if dtype != "f16" and (number or causal == (d % 32 == 0)):
                        continue  # f16's text with another instruction: once for each D
                    config = (("D", d), ("BR", br), ("BC", bc))
                    sizes = (("B", b), ("H", h), ("HK", hk), ("M", m), ("N", n), ("D", d))
                    yield Case("attention", "attention", config, sizes, (("causal", causal),), dtype)
    config = (("D", 32), ("BR", 32), ("BC", 16))
    for dtype, window, m, n in (
        ("f32", 24, 64, 96), ("f16", 1, 33, 40), ("f16", 100, 20, 70), ("f16", 40, 50, 21), ("f16", 24, 61, 90),
    ):  # fmt: skip
        sizes = (("H", 2), ("M", m), ("N", n), ("D", 32))
        yield Case("windowed_attention", "windowed_attention", config, sizes, (("window", window),), dtype)
    for d, c, n in ((16, 16, 70), (64, 64, 100), (64, 16, 37), (32, 32, 65)):
        yield Case("kda_fp32", "kda", (("D", d), ("C", c)), (("N", n), ("D", d)))


CASES: tuple[Case, ...] = tuple(_cases())
