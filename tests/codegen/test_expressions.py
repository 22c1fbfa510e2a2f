"""Printed expressions, compiled by the host compiler, against the reference semantics of the same trees."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from phobos import emulator
from phobos.codegen.expressions import Environment, expression, number
from phobos.ir.abi import Program, TensorArg
from phobos.ir.c_names import c_type
from phobos.ir.dims import DimConst
from phobos.ir.storage import Apply, Convert, Expr, Literal, ScalarRef
from phobos.ir.types import DType
from phobos.reference.elementwise import cast, compute
from phobos.reference.numerics import carrier_dtype, from_storage, largest_finite, round_value, storage_dtype

FLOATS = (DType.F32, DType.F64, DType.F16, DType.BF16)
INTEGERS = (DType.I32, DType.U32, DType.I64, DType.I8, DType.U8, DType.INDEX)
_INTEGER_FNS = "neg add sub mul div mod bitand bitor bitxor bitnot shl shr abs min max clamp where".split()
_FLOAT_FNS = "neg add sub mul div mod min max clamp abs floor ceil round sqrt where".split()
_BOOL_FNS = "and or not lt le gt ge eq ne isnan".split()


class Trees:
    """Random trees over literals and scalars; integers of every kind wrap, `index` stays small."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.scalars: dict[str, tuple[DType, Any]] = {}

    def constant(self, dtype: DType) -> Any:
        r = self.r
        if dtype is DType.BOOL:
            return r.random() < 0.5
        if dtype is DType.INDEX:
            return r.choice([0, 1, -1, 2, 7, -13, 100])
        if dtype.is_integer:
            info = np.iinfo(carrier_dtype(dtype))
            return r.choice(
                [0, 1, 2, 3, 7, 100, info.min, info.max, info.max - 1, info.max // 3, *((-1, -5) if info.min else ())]
            )
        top = largest_finite(dtype)
        value = r.choice(
            [0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -3.75, 1e-3, 1e30, math.inf, -math.inf, math.nan, top, -top, 1 / 3, 6e-8]
        )
        return float(round_value(np.float64(value), dtype))

    def leaf(self, dtype: DType) -> Expr:
        value = self.constant(dtype)
        if self.r.random() < 0.5:
            return Literal(dtype, value)
        name = f"s{len(self.scalars)}"
        self.scalars[name] = dtype, value
        return ScalarRef(dtype, name)

    def tree(self, dtype: DType, depth: int) -> Expr:
        r = self.r
        if depth == 0 or r.random() < 0.1:
            return self.leaf(dtype)
        if dtype is DType.BOOL:
            fn = r.choice(_BOOL_FNS)
            if fn in ("and", "or"):
                return Apply(dtype, fn, (self.tree(dtype, depth - 1), self.tree(dtype, depth - 1)))
            if fn == "not":
                return Apply(dtype, fn, (self.tree(dtype, depth - 1),))
            operand = r.choice(FLOATS if fn == "isnan" else (*FLOATS, *INTEGERS))
            return Apply(dtype, fn, tuple(self.tree(operand, depth - 1) for _ in range(1 if fn == "isnan" else 2)))
        if r.random() < 0.15 and dtype is not DType.INDEX:
            source = r.choice((*FLOATS, *INTEGERS, DType.BOOL))
            return Convert(dtype, self.tree(source, depth - 1))
        if dtype is DType.INDEX:
            fn = r.choice(["neg", "add", "sub", "min", "max", "where", "div", "mod"])
            depth = min(depth, 3)
        else:
            fn = r.choice(_INTEGER_FNS if dtype.is_integer else _FLOAT_FNS)
        if fn == "where":
            return Apply(
                dtype, fn, (self.tree(DType.BOOL, depth - 1), self.tree(dtype, depth - 1), self.tree(dtype, depth - 1))
            )
        if fn in ("shl", "shr"):
            return Apply(
                dtype, fn, (self.tree(dtype, depth - 1), Literal(dtype, r.choice([0, 1, 3, 7, 8, 31, 33, 70])))
            )
        count = {"neg": 1, "abs": 1, "bitnot": 1, "floor": 1, "ceil": 1, "round": 1, "sqrt": 1, "clamp": 3}.get(fn, 2)
        return Apply(dtype, fn, tuple(self.tree(dtype, depth - 1) for _ in range(count)))

    def value(self, e: Expr) -> Any:
        """What the reference computes for the tree."""
        if isinstance(e, Literal):
            return carrier_dtype(e.dtype).type(e.value)
        if isinstance(e, ScalarRef):
            dtype, value = self.scalars[e.name]
            return carrier_dtype(dtype).type(value)
        if isinstance(e, Convert):
            return cast(self.value(e.arg), e.arg.dtype, e.dtype, False)
        assert isinstance(e, Apply)
        args = [np.asarray(self.value(a)) for a in e.args]
        return compute(e.fn, args, e.args[-1].dtype, False)


def run(expressions: list[Expr], scalars: dict[str, tuple[DType, Any]], index_bits: int) -> list[Any]:
    """The values that the emulator computes for the printed texts."""
    env = Environment(index_bits, {}, lambda ref: "", lambda axis: "")
    dtypes = [DType.I64 if e.dtype is DType.INDEX else e.dtype for e in expressions]
    lines = []
    for name, (dtype, value) in scalars.items():
        # Not a constant for the compiler: what it would fold, it might fold differently.
        ctype = c_type(dtype, index_bits)
        lines.append(
            f"volatile {ctype} {name}_v = {number(value, dtype, index_bits).text};" if dtype not in _NARROW else ""
        )
        lines.append(f"const {ctype} {name} = {f'{name}_v' if dtype not in _NARROW else number(value, dtype).text};")
    for n, (e, dtype) in enumerate(zip(expressions, dtypes, strict=True)):
        lines.append(f"{{ const {c_type(dtype, index_bits)} value = {expression(e, env).text}; out{n}[0] = value; }}")
    params = ", ".join(f"ph_global<{c_type(d, index_bits)}> out{n}" for n, d in enumerate(dtypes))
    inner = "\n  ".join(lines)
    body = f"PH_KERNEL(32, 1) k({params}) {{\n  if (ph_tid() == 0) {{\n  {inner}\n  }}\n}}\n"
    program = Program(
        name="k", source_name="case.ph", body=body, prelude="", threads=32, grid=(DimConst(1),) * 3, shared_bytes=0,
        args=tuple(TensorArg(name=f"out{n}", dtype=d, read=False, written=True) for n, d in enumerate(dtypes)),
        dynamic_shared=False, index_bits=index_bits, granule=4,
    )  # fmt: skip
    arrays = {f"out{n}": np.zeros(1, storage_dtype(d)) for n, d in enumerate(dtypes)}
    result = emulator.run(program, arrays, dims={})
    assert [str(r) for r in result.reports] == [], body
    return [from_storage(arrays[f"out{n}"], d)[0] for n, d in enumerate(dtypes)]


_NARROW = frozenset({DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2})


@pytest.mark.parametrize("index_bits", [32, 64])
@pytest.mark.parametrize("seed", range(4))
def test_random_trees(seed: int, index_bits: int) -> None:
    trees = Trees(seed * 2 + index_bits)
    expressions = [trees.tree(d, 4) for d in (*FLOATS, *INTEGERS, DType.BOOL) for _ in range(5)]
    actual = run(expressions, trees.scalars, index_bits)
    env = Environment(index_bits, {}, lambda ref: "", lambda axis: "")
    with np.errstate(all="ignore"):
        for e, found in zip(expressions, actual, strict=True):
            expected = trees.value(e)
            same = found == expected or (found != found and expected != expected)
            assert same, f"{expression(e, env).text} is {found!r}, not {expected!r}"


@pytest.mark.parametrize(
    "dtype", [*FLOATS, DType.F8E4M3, DType.F8E5M2, DType.I32, DType.U32, DType.I64, DType.I8, DType.U8, DType.BOOL]
)
def test_literals(dtype: DType) -> None:
    """Every literal is the very value, signs of zero and infinities included."""
    if dtype is DType.BOOL:
        values: list[Any] = [True, False]
    elif dtype.is_integer:
        info = np.iinfo(carrier_dtype(dtype))
        values = [
            0,
            1,
            int(info.max),
            int(info.min),
            int(info.max) - 1,
            int(info.min) + 1,
            77,
            *([-1, -2] if info.min else []),
        ]
    else:
        rng = np.random.default_rng(7)
        wide = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.1,
            1 / 3,
            1e-40,
            1e30,
            123456.78,
            math.inf,
            -math.inf,
            math.nan,
            largest_finite(dtype),
        ]
        wide += list(np.exp2(rng.uniform(-20, 15, 20)) * rng.choice([-1, 1], 20))
        values = [float(v) for v in round_value(np.array(wide), dtype)]
    found = run([Literal(dtype, v) for v in values], {}, 32)
    for v, f in zip(values, found, strict=True):
        if isinstance(v, float):
            assert (math.isnan(v) and math.isnan(f)) or (v == f and math.copysign(1, v) == math.copysign(1, f)), (v, f)
        else:
            assert v == f


@pytest.mark.parametrize(
    "tree, text",
    [
        (("add", ("mul", "x", "y"), "z"), "x * y + z"),
        (("mul", ("add", "x", "y"), "z"), "(x + y) * z"),
        (("sub", "x", ("sub", "y", "z")), "x - (y - z)"),
        (("sub", ("sub", "x", "y"), "z"), "x - y - z"),
        (("div", "x", ("mul", "y", "z")), "x / (y * z)"),
        (("neg", ("neg", "x")), "-(-x)"),
        (("neg", ("add", "x", "y")), "-(x + y)"),
        (("sub", "x", ("neg", "y")), "x - -y"),
        (("max", "x", ("add", "y", "z")), "ph_max(x, y + z)"),
    ],
)
def test_no_more_parentheses_than_needed(tree: Any, text: str) -> None:
    def build(t: Any) -> Expr:
        return ScalarRef(DType.F32, t) if isinstance(t, str) else Apply(DType.F32, t[0], tuple(map(build, t[1:])))

    assert expression(build(tree), Environment(32, {}, lambda ref: "", lambda axis: "")).text == text


def test_nested_choices_and_conditions() -> None:
    x, y = ScalarRef(DType.F32, "x"), ScalarRef(DType.F32, "y")
    less = Apply(DType.BOOL, "lt", (x, y))
    both = Apply(DType.BOOL, "and", (less, Apply(DType.BOOL, "or", (less, less))))
    inner = Apply(DType.F32, "where", (less, x, y))
    text = expression(
        Apply(DType.F32, "add", (Apply(DType.F32, "where", (both, inner, x)), y)),
        Environment(32, {}, lambda ref: "", lambda axis: ""),
    ).text
    assert text == "(x < y && (x < y || x < y) ? x < y ? x : y : x) + y"
