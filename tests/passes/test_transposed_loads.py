"""Tensors whose unit stride is not along the last axis: right operands are read along it, everything else as it was."""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
import pytest

import phobos
from phobos import reference
from phobos.compiler import default_spec
from phobos.ir.abi import Specialization, TensorFacts
from phobos.ir.scheduled import AsyncCopy, GlobalToShared, GlobalView, LoadGlobal, StoreGlobal, walk
from phobos.ir.tile import Dot, KernelIR, Load
from phobos.ir.verify import verify
from phobos.ir.walk import kernel_ops
from phobos.passes import pipeline
from phobos.runtime.binding import tensor_facts
from phobos.runtime.facts import spec_from_json, spec_to_json
from phobos.semantic.check import check_kernel
from phobos.source import SourceFile
from phobos.syntax.parser import parse
from phobos.target import get_target

TARGET = get_target("sm_90a")


def text(body: str, dtype: str = "f16", b: str = "[K, N]") -> str:
    return f"""\
@grid(ceildiv(N, 32), ceildiv(M, 32))
kernel k(A: tensor<{dtype}>[M, K], B: tensor<{dtype}>{b}, C: tensor<f32>[M, N]) {{
  let row = ctx.block.y * 32
  let col = ctx.block.x * 32
  var acc: tile<{"i32" if dtype == "i8" else "f32"}>[32, 32] = 0
  for k in range(0, K, 32) {{
    {body}
  }}
  C[row :+ 32, col :+ 32] = {"f32(acc)" if dtype == "i8" else "acc"}
}}
"""


DOT = "acc += dot(A[row :+ 32, k :+ 32], B[k :+ 32, col :+ 32])"
DOT_T = "acc += dot_t(A[row :+ 32, k :+ 32], B[col :+ 32, k :+ 32])"
TWICE = "let b = B[k :+ 32, col :+ 32]\n    acc += dot(A[row :+ 32, k :+ 32], b) + dot(A[row :+ 32, k :+ 32] * 2.0, b)"
KEPT = {
    "a left operand": "acc += dot(B[k :+ 32, col :+ 32], A[row :+ 32, k :+ 32])",
    "both operands": "let b = B[k :+ 32, col :+ 32]\n    acc += dot(b, b)",
    "read as it is, too": "let b = B[k :+ 32, col :+ 32]\n    acc += dot(A[row :+ 32, k :+ 32], b) + f32(b)",
    "computed": "acc += dot(A[row :+ 32, k :+ 32], B[k :+ 32, col :+ 32] * 2.0)",
}


def kernel_of(source: str) -> KernelIR:
    return check_kernel(parse(SourceFile("case.ph", source)), "k")


def lowered(source: str, inner: int | None = 0, tensor: str = "B") -> pipeline.Lowered:
    kernel = kernel_of(source)
    facts = dict(default_spec(kernel).tensors)
    facts[tensor] = TensorFacts(align16=inner is None, contiguous=inner is None, inner=inner)
    spec = Specialization(tensors=tuple(facts.items()), dim_multiple=default_spec(kernel).dim_multiple)
    return pipeline.run(kernel, TARGET, spec)


def views(found: pipeline.Lowered, tensor: str) -> list[GlobalView]:
    moves = (AsyncCopy, GlobalToShared, LoadGlobal, StoreGlobal)
    return [s.view for s in walk(found.schedule.body) if isinstance(s, moves) and s.view.tensor == tensor]


@pytest.mark.parametrize("body, b", [(DOT, "[K, N]"), (DOT_T, "[N, K]"), (TWICE, "[K, N]")])
def test_a_right_operand_is_read_along_the_contiguous_axis(body: str, b: str) -> None:
    found, plain = lowered(text(body, b=b)), lowered(text(body, b=b), None)
    assert {v.vector for v in views(found, "B")} == {v.vector for v in views(plain, "B")} == {8}
    flipped = [op.transpose_b for op in kernel_ops(found.kernel) if isinstance(op, Dot)]
    assert flipped == [not op.transpose_b for op in kernel_ops(plain.kernel) if isinstance(op, Dot)]
    (load,) = (op for op in kernel_ops(found.kernel) if isinstance(op, Load) and op.view.tensor.name == "B")
    assert load.transposed
    (said,) = (d for d in found.schedule.decisions if d.choice == "read with their axes exchanged")
    assert said.subject == "tiles of B" and said.reason == "axis 0 is the contiguous one"
    access = [d.choice for d in found.schedule.decisions if d.subject.startswith("copy") and d.subject.endswith(" B")]
    assert access and all("16 bytes an access" in choice for choice in access)


@pytest.mark.parametrize("name", KEPT)
def test_other_tiles_stay_as_they_are(name: str) -> None:
    found = lowered(text(KEPT[name]))
    assert not any(op.transposed for op in kernel_ops(found.kernel) if isinstance(op, Load))
    assert {v.vector for v in views(found, "B")} == {1}


def test_the_last_axis_needs_no_exchange() -> None:
    assert not any(op.transposed for op in kernel_ops(lowered(text(DOT), None).kernel) if isinstance(op, Load))
    stored = lowered(text(DOT), tensor="C")  # the output transposed: every element by itself, as its strides are known
    assert {v.vector for v in views(stored, "C")} == {1}


def test_bytes_of_8_bits_reach_tensor_cores_by_it() -> None:
    """Their instructions want k contiguous, which a transposed B is."""

    def rooms(found: pipeline.Lowered) -> list[str]:
        return [d.choice for d in found.schedule.decisions if d.stage == "contraction"]

    assert rooms(lowered(text(DOT, "i8"))) == ["mma (ieee)"] and rooms(lowered(text(DOT, "i8"), None)) != ["mma (ieee)"]


def arrays(order: str, m: int, n: int, k: int) -> dict[str, np.ndarray]:
    """A [m, k], B [k, n], C [m, n]; those named in `order` are stored with their axes exchanged."""
    rng = np.random.default_rng(m + n + k)
    made = {"A": rng.standard_normal((m, k)), "B": rng.standard_normal((k, n)), "C": np.full((m, n), np.nan)}
    out = {}
    for name, values in made.items():
        values = values.astype(np.float32 if name == "C" else np.float16)
        out[name] = np.asfortranarray(values) if name in order else values
    return out


@pytest.mark.parametrize("m, n, k", [(64, 32, 64), (48, 40, 72), (33, 35, 37)])
@pytest.mark.parametrize("order", ["B", "A", "C", "ABC"])
def test_calls_with_views(order: str, m: int, n: int, k: int) -> None:
    """Through every check and decision of a call, on the emulator with its checkers."""
    given: dict[str, Any] = arrays(order, m, n, k)
    expected = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    phobos.jit(text(DOT))(given["A"], given["B"], given["C"], backend="emulator")
    np.testing.assert_allclose(given["C"], expected, rtol=1e-5, atol=1e-4)


def test_the_reference_computes_what_was_scheduled() -> None:
    given = arrays("B", 37, 35, 70)
    expected = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    found = lowered(text(DOT))
    verify(found.kernel, after="the passes")
    reference.run(found.kernel, given)
    np.testing.assert_allclose(given["C"], expected, rtol=1e-5, atol=1e-4)


def test_facts_of_a_call() -> None:
    f = TensorFacts
    assert tensor_facts(64, (48, 64), (64, 1), 2) == f(align16=True, contiguous=True)
    assert tensor_facts(64, (48, 64), (1, 48), 2) == f(align16=False, contiguous=False, inner=0)
    assert tensor_facts(64, (3, 48, 64), (3072, 1, 48), 2) == f(align16=False, contiguous=False, inner=1)
    for pointer, strides in ((64, (1, 49)), (66, (1, 48)), (64, (2, 96)), (64, (1, 1))):
        assert tensor_facts(pointer, (48, 64), strides, 2).inner is None
    given = arrays("B", 48, 40, 64)
    spec = harness.specialization(kernel_of(text(DOT)), given)
    assert spec.tensor("B").inner == 0 and spec.tensor("A") == f()
    assert spec_from_json(spec_to_json(spec)) == spec


@pytest.mark.parametrize("matmul", ["auto", "mma", "fma"])
@pytest.mark.parametrize("call", ["dot_t", "dot"])
def test_8_bit_operands_whose_axes_are_exchanged_in_memory(matmul: str, call: str) -> None:
    """There is no transposed 8-bit load: a `dot_t` stays one."""
    b_shape, b_view = ("[N, K]", "col :+ 16, k :+ 32") if call == "dot_t" else ("[K, N]", "k :+ 32, col :+ 16")
    source = f"""
@options(matmul = {matmul})
kernel g(A: tensor<i8>[M, K], B: tensor<i8>{b_shape}, Y: tensor<i32>[M, N]) {{
  let row = ctx.block.y * 32
  let col = ctx.block.x * 16
  var s: tile<i32>[32, 16] = 0
  for k in range(0, K, 32) {{ s += {call}(A[row :+ 32, k :+ 32], B[{b_view}]) }}
  Y[row :+ 32, col :+ 16] = s
}}
"""
    rng = np.random.default_rng(3)
    a = rng.integers(-5, 5, (64, 64)).astype(np.int8)
    stored = rng.integers(-5, 5, (64, 64)).astype(np.int8)
    y = np.zeros((64, 64), np.int32)
    phobos.jit(source)(a, stored.T, y, backend="emulator")
    right = stored if call == "dot_t" else stored.T
    assert np.array_equal(y, a.astype(np.int64) @ right.astype(np.int64))
