"""Random kernels around products: loops over k with staged operands, epilogues, and online softmax; for the
differential test.

    case = product_case(seed) or attention_case(seed)

The products' values are small multiples of a power of two, so that every kind of rounding keeps them and every order of
summation gives the same bits. Attention is compared by tolerance.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from codegen.differential import Variant, random_array
from codegen.generator import Case

from phobos.ir.types import DType
from phobos.reference.numerics import storage_dtype, to_storage

TILES = (16, 16, 32, 48, 64, 8, 24, 17, 5)
KINDS = (
    "",
    "",
    "@tensorcore",
    "@tensorcore(f16)",
    "@tensorcore(bf16)",
    "@tensorcore(tf32)",
    "@tensorcore(tf32x3)",
    "@tensorcore(bf16x3)",
    "@tensorcore(f16x2)",
)


def _small(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    d = DType(dtype)
    if not d.is_float:
        return rng.integers(0 if dtype == "u8" else -9, 10, shape).astype(storage_dtype(d))
    values = rng.integers(-4, 5, shape) / 2
    return to_storage(values.astype(np.float64 if dtype == "f64" else np.float32), d, storage_dtype(d))


def _options(r: random.Random) -> list[str]:
    words = {
        "matmul": ["auto"] * 8 + ["fma", "fma", "mma", "wmma"], "stages": ["auto", "auto", "1", "2", "3"],
        "pad": ["auto", "off"], "vectorize": ["auto", "auto", "off"], "peel": ["auto", "off"], "fold": ["auto", "off"],
        "swizzle": ["auto", "on", "off"],
    }  # fmt: skip
    chosen = {n: r.choice(w) for n, w in words.items() if r.random() < 0.5}
    text = ", ".join(f"{n} = {w}" for n, w in chosen.items() if w != "auto")
    return [f"@options({text})"] if text else []


def _variant(r: random.Random, names: list[str]) -> Variant:
    forms = tuple((n, r.choice(["padded", "transposed", "inner", "shifted"])) for n in names if r.random() < 0.15)
    return Variant(
        threads=r.choice([None, None, None, 32, 64, 96, 128, 256]), sched=r.randrange(4),
        index_bits=r.choice([32, 32, 32, 64]),
        arch=r.choice(["sm_90a", "sm_90a", "sm_80", "sm_75"]), weak=r.random() < 0.15, forms=forms,
    )  # fmt: skip


def product_case(seed: int) -> Case:
    """C = epilogue(sum over k of a @ b), with operands loaded, transposed, converted or computed, and more in the
    loop."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    operand = r.choice(["f16", "f16", "bf16", "f32", "f32", "i8", "u8", "f64", "f8e4m3", "f8e5m2"])
    acc = {"i8": "i32", "u8": "i32", "f64": "f64"}.get(operand, "f32")
    bm, bn, bk = (r.choice(TILES) for _ in range(3))
    if bm * bn > (4096 if seed % 4 == 0 else 2304):
        bn = 16
    blocks_m, blocks_n, trips = r.choice([1, 2]), r.choice([1, 2]), r.choice([0, 1, 2, 3, 5])
    ragged = r.random() < 0.5
    m, n = (max(1, b * c - (r.randrange(b) if ragged else 0)) for b, c in ((bm, blocks_m), (bn, blocks_n)))
    k = max(1, bk * trips - (r.randrange(bk) if ragged and trips else 0))
    a_t, b_t = r.random() < 0.2, r.random() < 0.4
    arguments = {
        "A": _small(rng, operand, (k, m) if a_t else (m, k)),
        "B": _small(rng, operand, (n, k) if b_t else (k, n)),
        "C": random_array(rng, acc, (m, n)),
        "R": random_array(rng, acc, (m,)),
    }
    a_shape = "K, M" if a_t else "M, K"
    lines = [
        *([r.choice(KINDS)] if operand == "f32" else []), *_options(r), "@dynshared",
        *([f"@aligned(K = {bk})"] if k % bk == 0 and r.random() < 0.4 else []),
        f"@grid({-(-n // bn)}, {-(-m // bm)})",
        f"kernel k(A: tensor<{operand}>[{a_shape}], B: tensor<{operand}>[{'N, K' if b_t else 'K, N'}], "
        f"C: tensor<{acc}>[M, N], R: tensor<{acc}>[M]) {{",
        f"  let row = ctx.block.y * {bm}",
        f"  let col = ctx.block.x * {bn}",
    ]  # fmt: skip
    zero = "0.0" if acc[0] == "f" else "0"
    start = r.choice([zero, zero, "1.0" if acc[0] == "f" else "1"])
    lines.append(f"  var acc: tile<{acc}>[{bm}, {bn}] = {start}")
    extra = r.random() < 0.3
    if extra:
        lines.append(f"  var rows: tile<{acc}>[{bm}, 1] = {zero}")
    if r.random() < 0.15:
        lines.append(
            f"  let fixed: tile<{operand}>[{bm}, {bk}] = A[row :+ {bm}, 0 :+ {bk}]"
            if not a_t
            else f"  let fixed: tile<{operand}>[{bm}, {bk}] = transpose(A[0 :+ {bk}, row :+ {bm}])"
        )
        invariant = True
    else:
        invariant = False
    loop = r.choice([f"range(0, K, {bk})", f"range(0, K, {bk})", f"range({max(0, trips - 1) * bk}, -1, {-bk})"])
    lines.append(f"  for kk in {loop} {{")
    a_view = f"A[kk :+ {bk}, row :+ {bm}]" if a_t else f"A[row :+ {bm}, kk :+ {bk}]"
    lines.append(
        f"    let a = {a_view}"
        if r.random() < 0.7
        else f"    let a: tile<{operand}>[{', '.join(map(str, (bk, bm) if a_t else (bm, bk)))}] = {a_view}"
    )
    b_view = f"B[col :+ {bn}, kk :+ {bk}]" if b_t else f"B[kk :+ {bk}, col :+ {bn}]"
    lines.append(f"    let b = {b_view}" + (f" else {'1.0' if acc[0] == 'f' else '1'}" if r.random() < 0.1 else ""))
    left, right = ("transpose(a)" if a_t else "a"), "b"
    if invariant:
        left = "fixed"
    if operand in ("f16", "bf16", "f32", "f64", "i8") and r.random() < 0.3:
        two = "2.0" if acc[0] == "f" else "2"
        left = r.choice([f"({left} + {left})", f"({left} * {two})", f"(-{left})"])
    if operand in ("f16", "bf16", "f32") and r.random() < 0.2:
        right = f"tmax({right}, 0.0)"
    call = f"dot_t({left}, {right})" if b_t else f"dot({left}, {right})"
    if b_t and r.random() < 0.2:
        call = f"dot({left}, transpose({right}))"
    lines.append(
        "    "
        + r.choice(
            [
                f"acc += {call}",
                f"acc = {call} + acc",
                f"let p = {call}\n    acc = acc + p",
                f"acc += {call} * {'2.0' if acc[0] == 'f' else '2'}",
            ]
        )
    )
    if extra:
        lines.append(f"    rows += rowsum({acc}({'transpose(a)' if a_t else 'a'}))")
    kind = r.random()
    if kind < 0.1:
        lines += [f"    if kk > {bk} {{", "      break", "    }"]
    elif kind < 0.2:
        lines += [
            f"    if kk == {bk} {{",
            "      continue",
            "    }",
            f"    acc = acc + {'1.0' if acc[0] == 'f' else '1'}",
        ]
    elif kind < 0.3:
        lines.append(f"    C[row :+ {bm}, col :+ {bn}] = acc")
    lines.append("  }")
    if extra:
        lines.append("  acc += rows")
    if r.random() < 0.4:
        lines.append(f"  acc = acc + reshape(R[row :+ {bm}], {bm}, 1)")
    if r.random() < 0.4:  # a tile that is loaded only to be combined with one in registers
        two = "2.0" if acc[0] == "f" else "2"
        lines.append(f"  let c = C[row :+ {bm}, col :+ {bn}]")
        if r.random() < 0.4:
            lines.append(f"  C[row :+ {bm}, col :+ {bn}] = acc")
        combined = [f"c * {two} + acc", f"acc - c * {two}", "tmax(acc, c)", f"where(c > {zero}, acc, c)"]
        lines.append(f"  acc = {r.choice(combined)}")
    lines += [f"  C[row :+ {bm}, col :+ {bn}] = acc", "}", ""]
    variant = _variant(r, list(arguments))
    if bm * bn == 4096:
        variant = replace(variant, threads=r.choice([32, 32, 64, None]))
    return Case("\n".join(lines), arguments, variant, seed)


def attention_case(seed: int) -> Case:
    """Online softmax between two products, masked in several ways."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    dtype = r.choice(["f16", "bf16", "f32", "f32"])
    d, br, bc = r.choice([16, 32, 64, 24, 8]), r.choice([16, 32, 64, 4, 20]), r.choice([16, 32, 64, 8, 12])
    nq, nk = r.choice([br, 2 * br, br + 3, 1]), r.choice([bc, 3 * bc, 2 * bc + 5, 1, bc - 1])
    arguments: dict[str, object] = {
        name: to_storage(rng.standard_normal((n, d)).astype(np.float32), DType(dtype), storage_dtype(DType(dtype)))
        for name, n in (("Q", nq), ("K", nk), ("V", nk))
    }
    arguments["O"] = np.zeros((nq, d), storage_dtype(DType(dtype)))
    scale = r.choice(["scale", "scale", "0.25", "-0.5"])
    arguments["scale"] = float(np.float32(r.choice([0.25, 0.125, -0.3])))
    masked = r.choice(["inf", "inf", "finite", "causal"])
    low = "-inf" if masked != "finite" else "-1.0e30"
    mask = "iota(1) < Nk - kt"
    if masked == "causal":
        mask = "iota(1) + kt <= iota(0) + row && iota(1) < Nk - kt"
    guarded = low == "-inf"
    p = "p" if dtype == "f32" else f"{dtype}(p)"
    promise = []
    if nq % br == 0 and nk % bc == 0 and r.random() < 0.5 and masked != "causal":
        promise, mask = [f"@aligned(Nq = {br}, Nk = {bc})"], r.choice([mask, ""])
    lines = [
        *([r.choice(KINDS[:4])] if dtype == "f32" else []), *promise, *_options(r), "@dynshared",
        f"kernel k(Q: tensor<{dtype}>[Nq, {d}], K: tensor<{dtype}>[Nk, {d}], V: tensor<{dtype}>[Nk, {d}], "
        f"O: tensor<{dtype}>[Nq, {d}], scale: f32) {{",
        f"  let row = ctx.block.x * {br}",
        f"  let q = Q[row :+ {br}, :]",
        f"  var acc: tile<f32>[{br}, {d}] = 0.0",
        f"  var m: tile<f32>[{br}, 1] = {low}",
        f"  var l: tile<f32>[{br}, 1] = 0.0",
        f"  for kt in range(0, Nk, {bc}) {{",
        f"    var s: tile<f32>[{br}, {bc}] = dot_t(q, K[kt :+ {bc}, :]) * {scale}",
        *([f"    s = where({mask}, s, {low})"] if mask else []),
        "    let mnew = tmax(m, rowmax(s))",
        "    let safe = where(mnew == -inf, 0.0, mnew)" if guarded else "    let safe = mnew",
        "    let corr = exp(m - safe)",
        "    let p = exp(s - safe)",
        "    l = l * corr + rowsum(p)",
        f"    acc = acc * corr + dot({p}, V[kt :+ {bc}, :])",
        "    m = mnew",
        "  }",
        f"  O[row :+ {br}, :] = acc / {'where(l == 0.0, 1.0, l)' if masked == 'causal' else 'l'}",
        "}", "",
    ]  # fmt: skip
    variant = _variant(r, ["Q", "K", "V", "O"])
    sign = (("scale", int(arguments["scale"] > 0)),) if r.random() < 0.7 else ()
    tolerance = {"f32": 3e-3 if "@tensorcore" in lines[0] else 1e-4, "f16": 4e-3}.get(dtype, 3e-2)
    if "bf16" in lines[0]:
        tolerance = 2e-2
    return Case("\n".join(lines), arguments, replace(variant, sign=sign, tolerance=tolerance), seed)
