"""Element types: joins, forbidden mixes, conversions, literals."""

from __future__ import annotations

import numpy as np
import pytest
from semantic.support import check, execute, expect_body, ir, ops

from phobos.ir.tile import Cast, Compute, Constant, Store
from phobos.ir.types import DType

JOINS = [
    ("f16", "f32", "f32"),
    ("f16", "bf16", "f32"),
    ("bf16", "f32", "f32"),
    ("f32", "f64", "f64"),
    ("f8e4m3", "f16", "f16"),
    ("f8e4m3", "f8e5m2", "f16"),
    ("f8e5m2", "bf16", "bf16"),
    ("i32", "f16", "f16"),
    ("i64", "f32", "f32"),
    ("u8", "bf16", "bf16"),
    ("i8", "i32", "i32"),
    ("u8", "u32", "u32"),
    ("u8", "i32", "i32"),
    ("u32", "i64", "i64"),
    ("i32", "i64", "i64"),
]


@pytest.mark.parametrize(("a", "b", "joined"), [*JOINS, *((b, a, j) for a, b, j in JOINS)])
def test_join(a: str, b: str, joined: str) -> None:
    kernel = ir("let z = x + y\nprint(z)", f"x: {a}, y: {b}")
    (add,) = ops(kernel, Compute)
    assert str(add.result.dtype) == joined
    assert all(str(v.dtype) == joined for v in add.args)


@pytest.mark.parametrize(("a", "b"), [("i32", "u32"), ("i8", "u8"), ("i8", "u32"), ("bool", "f32"), ("i32", "bool")])
def test_forbidden_mix(a: str, b: str) -> None:
    # Arithmetic on a bool is wrong whatever it is mixed with.
    code = "PH0212" if "bool" in (a, b) else "PH0210"
    expect_body("print(§x * y)", code, params=f"x: {a}, y: {b}")
    expect_body("print(§x == y)", "PH0210", params=f"x: {a}, y: {b}")


@pytest.mark.parametrize("other", ["i8", "u8", "i32", "u32"])
def test_index_joins_any_integer(other: str) -> None:
    kernel = ir("print(ctx.block.x + x)", f"x: {other}")
    assert ops(kernel, Compute)[0].result.dtype is DType.INDEX


def test_index_with_i64_is_i64() -> None:
    assert ops(ir("print(ctx.block.x + x)", "x: i64"), Compute)[0].result.dtype is DType.I64


LITERALS = [
    ("x + 1", "f16", 1.0),
    ("x + 1.0", "f16", 1.0),
    ("x + 0.1", "f16", float(np.float16(0.1))),
    ("x + 0.1", "f32", float(np.float32(0.1))),
    ("x + 0.1", "f64", 0.1),
    ("x + 7", "u8", 7),
    ("x + 255", "u8", 255),
    ("x + -inf", "f16", float("-inf")),
    ("x + 0x10", "i32", 16),
    ("x + 65504.0", "f16", 65504.0),
]


@pytest.mark.parametrize(("expression", "dtype", "value"), LITERALS)
def test_literal_takes_the_type_of_what_it_meets(expression: str, dtype: str, value: float) -> None:
    kernel = ir(f"print({expression})", f"x: {dtype}")
    (constant,) = ops(kernel, Constant)
    assert constant.value == value and str(constant.result.dtype) == dtype
    assert str(ops(kernel, Compute)[0].result.dtype) == dtype


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("x + -1.0e30", "f16"),
        ("x + 65520.0", "f16"),
        ("x + 1e39", "f32"),
        ("x + 256", "u8"),
        ("x + -1", "u32"),
        ("x + 2147483648", "i32"),
        ("x + 480.0", "f8e4m3"),
        ("x + inf", "f8e4m3"),
    ],
)
def test_literal_overflow(expression: str, dtype: str) -> None:
    expect_body(f"print(§{expression})", "PH0213", params=f"x: {dtype}")


def test_float_literal_makes_an_integer_f32() -> None:
    kernel = ir("print(x * 0.5)", "x: i32")
    assert ops(kernel, Compute)[0].result.dtype is DType.F32


BAD = [
    ("narrow by itself", "var x = a\nx = §f64(a)", "PH0216"),
    ("bool to number", "B[0] = §flag", "PH0211"),
    ("number to bool", "let x: bool = §n\nprint(x)", "PH0211"),
    ("float to int in let", "let x: i32 = §a\nprint(x)", "PH0211"),
    ("float literal to int", "let x: i32 = §1.5\nprint(x)", "PH0211"),
    ("float to int in store", "I[0] = §a", "PH0211"),
    ("signed to unsigned store", "U[0] = §n", "PH0211"),
    ("overflow in let", "let x: f16 = §1.0e30\nprint(x)", "PH0213"),
    ("overflow in conversion", "print(§i8(300))", "PH0213"),
    ("not of int", "print(§!n)", "PH0212"),
    ("and of int", "print(§n && flag)", "PH0212"),
    ("and of int right", "print(§flag && n)", "PH0212"),
    ("bits of float", "print(§a & 1)", "PH0212"),
    ("bitnot of bool", "print(§~flag)", "PH0212"),
    ("shift of float", "print(§a << 1)", "PH0212"),
    ("minus of bool", "print(§-flag)", "PH0212"),
    ("less of bool", "print(§flag < flag)", "PH0212"),
    ("exp of int", "print(§exp(n))", "PH0212"),
    ("where of int", "print(§where(n, a, a))", "PH0212"),
    ("where of a mix", "print(§where(flag, a, flag))", "PH0210"),
    ("max of bool", "print(§max(flag, flag))", "PH0212"),
    ("division by zero", "print(§n / 0)", "PH0219"),
    ("remainder by zero", "print(§n % 0)", "PH0219"),
    ("constant division", "print(§1 / 0)", "PH0219"),
    ("constant shift", "print(§1 << 70)", "PH0212"),
    ("constant too large", "print(§9223372036854775807 * 4)", "PH0213"),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_type_errors(body: str, codes: str) -> None:
    found = expect_body(body, *codes.split())
    assert found[0].message


GOOD = [
    "B[0] = h",
    "B[0] = f64(a)",
    "H[0, 0] = a",
    "B[0] = n",
    "I[0] = i64(n)",
    "I[0] = ctx.block.x",
    "let x: f16 = a\nprint(x)",
    "let x: f32 = n\nprint(x)",
    "var x: i32 = ctx.block.x\nprint(x)",
    "print(flag & flag, flag | flag, flag ^ flag, flag == flag, flag != flag)",
    "print(n & 3, n | 1, n ^ n, ~n)",
    "print(u >> 2, n << 3, n % 7, a % 2.0)",
    "print(i32(flag) + n, f32(flag) * a, bool(n))",
    "print(-u, abs(n), min(n, 3), max(a, 0), clamp(n, 0, 9), clamp(a, -1, 1))",
]


@pytest.mark.parametrize("body", GOOD)
def test_allowed(body: str) -> None:
    ir(body)


def test_declared_type_rounds_to_nearest_even() -> None:
    kernel = ir("let x: f16 = a\nH[0, 0] = x\nvar y: tile<f16>[8, 16] = P[:, :]\nH[0 :+ 8, 0 :+ 16] = y")
    assert [c.result.dtype for c in ops(kernel, Cast)] == [DType.F16, DType.F16]


def test_declared_var_converts_what_is_assigned() -> None:
    kernel = ir("var x: f16 = 0.0\nx = a\nx += a\nH[0, 0] = x")
    assert ops(kernel, Store)[0].value.dtype is DType.F16
    expect_body("var x = h\nx = §a\nH[0, 0] = x", "PH0216")


def test_widening_assignment_is_allowed() -> None:
    kernel = ir("var x = a\nx = h\nB[0] = x")
    assert ops(kernel, Store)[0].value.dtype is DType.F32


def test_compile_time_arithmetic_follows_the_kernels_rules() -> None:
    body = "const Q = -7 / 2\nconst R = -7 % 2\nconst S = 1 << 4 | 3\nconst E = 2.0 * 0.5\nconst F = min(3, 4) - max(1, 2)\n"  # noqa: E501
    body += (
        "const G = sqrt(16.0)\nI[0] = Q\nI[1] = R\nI[2] = S\nI[3] = i32(E)\nI[4] = F\nI[5] = i32(G)\nI[6] = i32(-2.7)"
    )
    text = f"@grid(1)\nkernel k(I: tensor<i32>[7]) {{\n{body}\n}}"
    out = execute(text, {"I": np.zeros(7, np.int32)})["I"]
    assert out.tolist() == [-3, -1, 19, 1, 1, 4, -2]


def test_typed_constants_round_as_at_run_time() -> None:
    body = "let x: f16 = 0.1\nlet y = x * x\nB[0] = y\nB[1] = f32(f16(2049.0))\nB[2] = f32(i8(i32(300)))"
    out = execute(f"@grid(1)\nkernel k(B: tensor<f32>[3]) {{\n{body}\n}}", {"B": np.zeros(3, np.float32)})["B"]
    assert out[0] == np.float32(np.float16(0.1) * np.float16(0.1))
    assert out[1] == 2048.0 and out[2] == 44.0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", DType.F64])
def test_dtype_parameter(dtype: str | DType) -> None:
    text = "@grid(1)\nkernel k<T>(X: tensor<T>[N], s: T) {\nlet z = T(s)\nX[0 :+ 4] = X[0 :+ 4] * 0.5 + z\n}"
    found = check(text, dtypes={"T": dtype})
    assert found.tensors[0].type.dtype is DType(str(dtype))
    assert ops(found, Compute)[0].result.dtype is DType(str(dtype))
