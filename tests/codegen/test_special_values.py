"""Infinities, NaN, zeros of both signs, subnormals and extreme integers through elementwise functions and
reductions."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.differential import Variant, kernel_of, run_both

from phobos.ir.types import DType
from phobos.reference.numerics import largest_finite, round_value, storage_dtype, to_storage

ROWS, COLUMNS = 6, 21
UNARY = (
    "-x|abs(x)|floor(x)|ceil(x)|round(x)|sqrt(x)|exp(x)|exp2(x)|log(x)|log2(x)|tanh(x)|sigmoid(x)|erf(x)|"
    "gelu(x)"
)
BINARY = "x + y|x - y|x * y|x / y|tmax(x, y)|tmin(x, y)|where(x < y, x, y)|where(isnan(x), y, x)|where(x == y, x, y)"
FLOAT = f"{UNARY}|{BINARY}|where(x != y, x, y)|clamp(x, -1.0, 1.0)|rsqrt(x)|x % y|pow(x, y)|fma(x, y, x)".split("|")
INTEGER = (
    "-x|abs(x)|~x|x + y|x - y|x * y|tmax(x, y)|tmin(x, y)|x & y|x ^ y|x << 3|x >> 2|x / 3|x % 7|clamp(x, y, 5)"
).split("|")
REDUCTIONS = "rowmax rowmin rowsum colmax colmin colsum".split()


def floats(dtype: str, seed: int, sums: bool = False) -> np.ndarray:
    """`sums`: without values whose sum overflows or not by the order in which they are added."""
    d = DType(dtype)
    top = 8.0 if sums else largest_finite(d)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, top, -top, 0.5, 2.5, -3.5, 1e-3, 3.25, top / 2, -0.25]
    tiny = {"f32": 1e-42, "f64": 1e-310, "f16": 6e-8, "bf16": 1e-40}[dtype]
    values = np.random.default_rng(seed).choice([*special, tiny, -tiny], (ROWS, COLUMNS))
    return to_storage(round_value(values, d), d, storage_dtype(d))


def integers(dtype: str, seed: int) -> np.ndarray:
    info = np.iinfo(storage_dtype(DType(dtype)))
    special = [
        info.min,
        info.max,
        info.min + 1,
        info.max - 1,
        0,
        1,
        2,
        77,
        info.max // 2,
        *([-1, -3] if info.min else []),
    ]
    return np.array(np.random.default_rng(seed).choice(special, (ROWS, COLUMNS)), storage_dtype(DType(dtype)))


def elementwise(dtype: str, terms: list[str]) -> str:
    outputs = "".join(f", O{n}: tensor<{dtype}>[{ROWS}, {COLUMNS}]" for n in range(len(terms)))
    lines = "".join(f"  O{n}[:, :] = {term}\n" for n, term in enumerate(terms))
    return (
        f"kernel k(X: tensor<{dtype}>[{ROWS}, {COLUMNS}], Y: tensor<{dtype}>[{ROWS}, {COLUMNS}]{outputs}) {{\n"
        f"  let x: tile<{dtype}>[{ROWS}, {COLUMNS}] = X[:, :]\n"
        f"  let y: tile<{dtype}>[{ROWS}, {COLUMNS}] = Y[:, :]\n{lines}}}\n"
    )


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_float_functions(dtype: str) -> None:
    x, y = floats(dtype, 1), floats(dtype, 2)
    arguments = {"X": x, "Y": y, **{f"O{n}": np.zeros_like(x) for n in range(len(FLOAT))}}
    assert run_both(kernel_of(elementwise(dtype, FLOAT)), arguments, Variant(threads=64)) == []


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "i8", "u8"])
def test_integer_functions(dtype: str) -> None:
    terms = [t.replace("-x", "0 - x") if dtype[0] == "u" else t for t in INTEGER]
    x, y = integers(dtype, 1), integers(dtype, 2)
    arguments = {"X": x, "Y": y, **{f"O{n}": np.zeros_like(x) for n in range(len(terms))}}
    assert run_both(kernel_of(elementwise(dtype, terms)), arguments, Variant(threads=64)) == []


@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i32", "u32", "i64", "i8", "u8"])
def test_reductions(dtype: str, threads: int) -> None:
    """NaN reaches every extreme, the first position wins, and lanes and warps without a part do not take part."""
    is_float = DType(dtype).is_float
    total = {"i8": "i32", "u8": "i32"}.get(dtype, dtype)
    outputs, lines = [], []
    for n, fn in enumerate([*REDUCTIONS, "rowargmax", "rowargmin", "colargmax", "colargmin"]):
        kind = "i32" if "arg" in fn else total if "sum" in fn else dtype
        shape = f"{ROWS}, 1" if fn.startswith("row") else f"1, {COLUMNS}"
        outputs.append((f"O{n}", kind, shape))
        lines.append(f"  O{n}[:, :] = {fn}(x)\n")
    for n, fn in enumerate(["max", "min", "argmax", "argmin"]):
        outputs.append((f"S{n}", "i32" if "arg" in fn else dtype, "1"))
        lines.append(f"  S{n}[0] = {fn}(x)\n")
    params = "".join(f", {o}: tensor<{k}>[{s}]" for o, k, s in outputs)
    text = (
        f"kernel k(X: tensor<{dtype}>[{ROWS}, {COLUMNS}]{params}) {{\n"
        f"  let x: tile<{dtype}>[{ROWS}, {COLUMNS}] = X[:, :]\n{''.join(lines)}}}\n"
    )
    x = floats(dtype, 3, sums=True) if is_float else integers(dtype, 3)
    if is_float:
        x[0, :] = x[0, 0] if not np.isnan(np.float64(x[0, 0])) else x[1, 0]  # a row of equal values
        x[1, :] = to_storage(np.full(COLUMNS, -np.inf, np.float32), DType(dtype), x.dtype)
    shapes = {o: tuple(map(int, s.split(", "))) for o, _, s in outputs}
    arguments = {"X": x, **{o: np.zeros(shapes[o], storage_dtype(DType(k))) for o, k, _ in outputs}}
    assert run_both(kernel_of(text), arguments, Variant(threads=threads)) == []


def test_fills_and_masks_of_every_type() -> None:
    """A load past the end gives its fill, an infinite one included, in registers and in shared memory."""
    for dtype, fill in (
        ("f32", "-inf"),
        ("f16", "inf"),
        ("bf16", "nan"),
        ("f64", "-1.5"),
        ("i8", "-128"),
        ("u32", "4000000000"),
    ):
        text = (
            f"kernel k(X: tensor<{dtype}>[N], Y: tensor<{dtype}>[M]) {{\n"
            f"  let i = ctx.block.x * 16\n  let x: tile<{dtype}>[16] = X[i :+ 16] else {fill}\n"
            f"  Y[i :+ 16] = reshape(transpose(reshape(x, 4, 4)), 16)\n}}\n"
        )
        d = storage_dtype(DType(dtype))
        arguments = {"X": np.ones(21, d), "Y": np.zeros(32, d)}
        assert run_both(kernel_of("@grid(2)\n" + text), arguments, Variant(threads=64)) == []
