"""Built-ins: result types, values on the reference, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from semantic.support import execute, expect_body, failures, ir, ops, wrap

from phobos.ir.tile import Assert, Atomic, Cast, Dot, Print, Reduce, Scan
from phobos.ir.types import DType

X = np.random.default_rng(1).uniform(0.2, 2.0, (4, 6)).astype(np.float32)
erf = np.vectorize(math.erf)

VALUES = [
    ("exp(x)", np.exp),
    ("exp2(x)", np.exp2),
    ("log(x)", np.log),
    ("log2(x)", np.log2),
    ("sqrt(x)", np.sqrt),
    ("rsqrt(x)", lambda x: 1 / np.sqrt(x)),
    ("sin(x)", np.sin),
    ("cos(x)", np.cos),
    ("tanh(x)", np.tanh),
    ("sigmoid(x)", lambda x: 1 / (1 + np.exp(-x))),
    ("erf(x)", erf),
    ("gelu(x)", lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))),
    ("abs(-x)", np.abs),
    ("floor(x)", np.floor),
    ("ceil(x)", np.ceil),
    ("round(x)", np.round),
    ("pow(x, 2.0)", lambda x: x**2),
    ("fma(x, x, 1.0)", lambda x: x * x + 1),
    ("tmax(x, 1.0)", lambda x: np.maximum(x, 1)),
    ("tmin(x, 1.0)", lambda x: np.minimum(x, 1)),
    ("max(1, x)", lambda x: np.maximum(x, 1)),
    ("min(x, 1.0)", lambda x: np.minimum(x, 1)),
    ("clamp(x, 0.5, 1.5)", lambda x: np.clip(x, 0.5, 1.5)),
    ("where(x > 1.0, x, 0.0)", lambda x: np.where(x > 1, x, 0)),
    ("where(isnan(x), 1.0, x)", lambda x: x),
    ("where(true, x, 0.0)", lambda x: x),
    ("-x / x % 0.3", lambda x: np.fmod(-x / x, 0.3)),
    ("x - rowmax(x)", lambda x: x - x.max(1, keepdims=True)),
    ("x - colmin(x)", lambda x: x - x.min(0)),
    ("x * rowsum(x) + colsum(x)", lambda x: x * x.sum(1, keepdims=True) + x.sum(0)),
    ("x * rowprod(x) + colprod(x)", lambda x: x * x.prod(1, keepdims=True) + x.prod(0)),
    ("x + f32(rowargmax(x))", lambda x: x + x.argmax(1)[:, None]),
    ("x + f32(colargmin(x))", lambda x: x + x.argmin(0)),
    ("x + sum(x) + max(x) + min(x)", lambda x: x + x.sum() + x.max() + x.min()),
    ("x * prod(x) + f32(argmax(x))", lambda x: x * x.prod() + x.argmax()),
    ("cumsum(x)", lambda x: np.cumsum(x, 0)),
    ("cumsum(x, 1)", lambda x: np.cumsum(x, 1)),
    ("tril(x)", np.tril),
    ("triu(x)", np.triu),
    ("tril(x, -1)", lambda x: np.tril(x, -1)),
    ("triu(x, 2)", lambda x: np.triu(x, 2)),
    ("transpose(transpose(x))", lambda x: x),
    ("reshape(reshape(x, 24), 4, 6)", lambda x: x),
    ("reshape(transpose(x), 4, 6)", lambda x: x.T.reshape(4, 6)),
    ("x + broadcast(rowmax(x), 4, 6)", lambda x: x + x.max(1, keepdims=True)),
    ("x + broadcast(2.0, 4, 6)", lambda x: x + 2),
    ("zeros(f32, 4, 6) + 1.0", lambda x: np.ones_like(x)),
    ("full(f32, 4, 6, 2.5)", lambda x: np.full_like(x, 2.5)),
    ("cat(x[:, 0 :+ 2], x[:, 2 :+ 4], 1)", lambda x: x),
    ("cat(x[0 :+ 1, :], x[1 :+ 3, :], 0)", lambda x: x),
    ("cat(x[:, 0 :+ 1], x[:, 1 :+ 2], x[:, 3 :+ 3], 1)", lambda x: x),
    ("gather(x, iota(0, 4) * 3 % 4)", lambda x: x[[0, 3, 2, 1]]),
    ("dot(x, transpose(x)) * 0.0 + x[:, 0 :+ 4]", None),
    ("dot(dot_t(x, x), x)", lambda x: (x @ x.T) @ x),
    ("f32(ceildiv(i32(x * 10.0), 4))", lambda x: np.ceil(np.trunc(x * np.float32(10)) / 4)),
]


@pytest.mark.parametrize(("expression", "oracle"), [v for v in VALUES if v[1]], ids=[v[0] for v in VALUES if v[1]])
def test_values(expression: str, oracle) -> None:
    text = f"kernel k(X: tensor<f32>[4, 6], Y: tensor<f32>[4, 6]) {{\nlet x = X[:, :]\nY[:, :] = {expression}\n}}"
    out = execute(text, {"X": X, "Y": np.zeros_like(X)})["Y"]
    np.testing.assert_allclose(out, oracle(X.astype(np.float64)), rtol=2e-5, atol=1e-6)


TYPES = [
    ("rowsum(t)", "f16", (8, 1)),
    ("colmax(t)", "f16", (1, 16)),
    ("rowargmax(t)", "i32", (8, 1)),
    ("max(t)", "f16", ()),
    ("sum(i8(t))", "i32", ()),
    ("rowsum(u8(t))", "i32", (8, 1)),
    ("cumsum(i8(t))", "i32", (8, 16)),
    ("rowmax(i8(t))", "i8", (8, 1)),
    ("transpose(t)", "f16", (16, 8)),
    ("reshape(t, 4, 4, 8)", "f16", (4, 4, 8)),
    ("transpose(reshape(t, 4, 4, 8))", "f16", (4, 8, 4)),
    ("zeros(i32, 3)", "i32", (3,)),
    ("full(bool, 3, true)", "bool", (3,)),
    ("dot_t(t, t)", "f32", (8, 8)),
    ("dot(t, transpose(t))", "f32", (8, 8)),
    ("dot_t(t, f32(t))", "f32", (8, 8)),
    ("dot_t(i8(t), i8(t))", "i32", (8, 8)),
    ("dot_t(u8(t), u8(t))", "i32", (8, 8)),
    ("dot_t(f64(t), t)", "f64", (8, 8)),
    ("dot_t(bf16(t), t)", "f32", (8, 8)),
    ("t > 0.0", "bool", (8, 16)),
    ("isnan(t)", "bool", (8, 16)),
    ("where(t > 0.0, t, 0)", "f16", (8, 16)),
    ("rowmax(reshape(t, 128))", "f16", (1,)),
    ("gather(t, iota(0, 3))", "f16", (3, 16)),
    ("cat(t, f32(t), 0)", "f32", (16, 16)),
    ("tril(t)", "f16", (8, 16)),
    ("broadcast(rowmax(t), 8, 4)", "f16", (8, 4)),
]


@pytest.mark.parametrize(("expression", "dtype", "shape"), TYPES, ids=[t[0] for t in TYPES])
def test_result_types(expression: str, dtype: str, shape: tuple[int, ...]) -> None:
    kernel = ir(f"let t = T[:, :] * 1.0\nlet r = {expression}\nprint(r)", "T: tensor<f16>[8, 16]")
    (value,) = ops(kernel, Print)[0].parts
    assert (str(value.dtype), value.shape) == (dtype, shape) and value.name == "r"


@pytest.mark.parametrize(
    ("attribute", "kinds"),
    [
        ("", ("ieee",)),
        ("@tensorcore", ("f16", "ieee")),
        ("@tensorcore(tf32x3)", ("tf32x3", "ieee")),
        ("@tensorcore(require)", ("f16",)),
        ("@tensorcore(bf16, require)", ("bf16",)),
    ],
)
def test_kinds_of_a_contraction(attribute: str, kinds: tuple[str, ...]) -> None:
    kernel = ir(
        "print(dot_t(P[:, :], P[:, :]))\nprint(dot_t(f16(P[:, :]), f16(P[:, :])))\nprint(dot_t(f64(P[:, :]), f64(P[:, :])))",  # noqa: E501
        attributes=f"@grid(1)\n{attribute}",
    )
    assert [d.kinds for d in ops(kernel, Dot)] == [kinds, ("ieee",), ("ieee",)]


def test_dot_joins_its_operands() -> None:
    kernel = ir("print(dot_t(f16(P[:, :]), P[:, :]))")
    (dot,) = ops(kernel, Dot)
    assert dot.a.dtype is dot.b.dtype is DType.F32 and len(ops(kernel, Cast)) == 2


def test_sums_of_small_integers_widen() -> None:
    kernel = ir("print(rowsum(i8(P[:, :])), cumsum(u8(P[:, :])), rowmax(i8(P[:, :])))")
    assert [r.operand.dtype for r in ops(kernel, Reduce)] == [DType.I32, DType.I8]
    assert ops(kernel, Scan)[0].operand.dtype is DType.I32


def test_atomics() -> None:
    kernel = ir(
        "atomic_add(B[0 :+ 4], 1)\nlet old = atomic_max(I[n], 3)\nlet v = B[4 :+ 4]\natomic_min(v, B[0 :+ 4])\n"
        "let c = atomic_cas(I[0 :+ 4], 0, I[4 :+ 4])\nprint(old, c)"
    )
    atomics = ops(kernel, Atomic)
    assert [(a.kind, a.result is None) for a in atomics] == [
        ("add", True),
        ("max", False),
        ("min", True),
        ("cas", False),
    ]
    assert atomics[1].result.shape == () and atomics[3].result.shape == (4,) and len(atomics[3].values) == 2
    assert all(v.dtype is a.view.tensor.type.dtype for a in atomics for v in a.values)


def test_print_and_assert() -> None:
    kernel = ir(
        'print("a is", a, 3, "and", P[:, :])\nassert(n > 0, "n is positive")\nassert(P[:, :] > 0.0, "p")\nassert(true)'
    )
    assert [p if isinstance(p, str) else p.name for p in ops(kernel, Print)[0].parts] == ["a is", "a", "3", "and", "P"]
    assert [a.text for a in ops(kernel, Assert)] == ["n is positive", "p"]


BAD = [
    ("count", "print(§exp(a, a))", "PH0214"),
    ("count of where", "print(§where(flag, a))", "PH0214"),
    ("count of max", "print(§max(a, a, a))", "PH0214"),
    ("count of zeros", "print(§zeros(f32))", "PH0214"),
    ("conversion count", "print(§f32(a, a))", "PH0214"),
    ("reduction of a scalar", "print(rowmax(§a))", "PH0212"),
    ("max of a scalar", "print(max(§a))", "PH0212"),
    ("sum of bool", "print(§sum(P[:, :] > 0.0))", "PH0212"),
    ("cumsum axis", "print(cumsum(P[:, :], §2))", "PH0226"),
    ("cumsum axis of launch", "print(cumsum(P[:, :], §n))", "PH0215"),
    ("transpose of a vector", "print(§transpose(B[0 :+ 4]))", "PH0226"),
    ("reshape count", "print(§reshape(P[:, :], 4, 4))", "PH0227"),
    ("reshape extent", "print(reshape(P[:, :], §n))", "PH0215"),
    ("broadcast", "print(§broadcast(P[:, :], 8, 8))", "PH0220"),
    ("zeros of a value", "print(zeros(§a, 4))", "PH0204"),
    ("zeros of an expression", "print(zeros(§1 + 1, 4))", "PH0204"),
    ("full of a tile", "print(full(f32, 4, §P[:, :]))", "PH0212"),
    ("full that overflows", "print(full(f16, 4, §1e30))", "PH0213"),
    ("cat of scalars", "print(cat(§a, a, 0))", "PH0212"),
    ("cat of shapes", "print(cat(P[:, :], §P[0 :+ 4, 0 :+ 4], 0))", "PH0221"),
    ("cat axis", "print(cat(P[:, :], P[:, :], §2))", "PH0226"),
    ("gather of a tensor", "print(§gather(B, I[0 :+ 4]))", "PH0212"),
    ("gather by a scalar", "print(gather(P[:, :], §n))", "PH0229"),
    ("gather by floats", "print(gather(P[:, :], §B[0 :+ 4]))", "PH0229"),
    ("tril of a vector", "print(§tril(B[0 :+ 4]))", "PH0226"),
    ("tril diagonal", "print(tril(P[:, :], §P[:, :]))", "PH0212"),
    ("dot of shapes", "print(§dot(P[:, :], P[:, :]))", "PH0228"),
    ("dot of a vector", "print(dot(§B[0 :+ 4], P[:, :]))", "PH0228"),
    ("dot of a scalar", "print(dot(P[:, :], §a))", "PH0212"),
    ("dot of ints", "print(§dot_t(i32(P[:, :]), i32(P[:, :])))", "PH0212"),
    ("dot of signs", "print(§dot_t(i8(P[:, :]), u8(P[:, :])))", "PH0210"),
    ("dot_t of shapes", "print(§dot_t(P[:, :], P[0 :+ 2, 0 :+ 2]))", "PH0228"),
    ("atomic on a tile", "var t = P[:, :]\natomic_add(§t, 1.0)\nP[:, :] = t", "PH0235"),
    ("atomic on a scalar", "atomic_add(§a, 1.0)", "PH0235"),
    ("atomic dtype", "§atomic_add(S[0 :+ 4], 1)", "PH0235"),
    ("atomic value", "atomic_add(I[0], §a)", "PH0211"),
    ("atomic shape", "atomic_add(B[0 :+ 4], §P[:, :])", "PH0221"),
    ("cas of f16", "§atomic_cas(H[0, 0], 0, 1)", "PH0235"),
    ("atomic fill", "atomic_add(B[0 :+ 4] else §1.0, 1.0)", "PH0229"),
    ("assert of an int", 'assert(§n, "text")', "PH0218"),
    ("assert text", "assert(flag, §n)", "PH0236"),
    ("assert that is false", '§assert(1 > 2, "text")', "PH0218"),
    ("barrier", "§grid_barrier()", "PH0238"),
    ("print used", "let x = §print(a)\nB[0] = 1.0", "PH0217"),
    ("iota count", "print(§iota())", "PH0214"),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_builtin_errors(body: str, codes: str) -> None:
    params = "A: tensor<f32>[N, M], B: tensor<f32>[N], H: tensor<f16>[N, M], I: tensor<i32>[N], S: tensor<i8>[N], "
    expect_body(body, *codes.split(), params=params + "P: tensor<f32>[8, 16], n: i32, a: f32, flag: bool")


def test_help_of_a_wrong_contraction() -> None:
    (found,) = failures(wrap("print(dot(P[:, :], P[:, :]))"))
    assert "dot_t" in (found.help or "")


def test_compile_time_functions_match_math() -> None:
    names = "exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid erf gelu floor ceil round abs".split()
    body = "\n".join(f"Y[{i}] = {name}(0.7)" for i, name in enumerate(names))
    out = execute(f"@grid(1)\nkernel k(Y: tensor<f64>[{len(names)}]) {{\n{body}\n}}", {"Y": np.zeros(len(names))})["Y"]
    x = 0.7
    expected = [
        math.exp(x),
        2**x,
        math.log(x),
        math.log2(x),
        x**0.5,
        x**-0.5,
        math.sin(x),
        math.cos(x),
        math.tanh(x),
        1 / (1 + math.exp(-x)),
        math.erf(x),
        0.5 * x * (1 + math.erf(x / 2**0.5)),
        0.0,
        1.0,
        1.0,
        x,
    ]
    np.testing.assert_allclose(out, expected, rtol=1e-15)
