"""approximate: exponentials that feed f16 or bf16 results, and no others."""

from __future__ import annotations

import pytest
from passes.algebra import OFF, run_passes

from phobos.ir.tile import Compute
from phobos.ir.walk import kernel_ops

TEXT = """\
{attribute}
kernel k(X: tensor<{x}>[M, N], W: tensor<{w}>[N, 16], Y: tensor<{y}>[M, 16], c: f32) {{
  let row = ctx.block.x * 16
  var acc: tile<f32>[16, 16] = 0.0
  for kt in range(0, N, 16) {{
    let x: tile<f32>[16, 16] = X[row :+ 16, kt :+ 16]
    {body}
  }}
  Y[row :+ 16, :] = {result}
}}
"""


def approximate(
    body: str, *, x: str = "f32", w: str = "f16", y: str = "f32", result: str = "acc", attribute: str = ""
) -> list[bool]:
    """Whether each exponential of the kernel may be approximate, in order of the text; the report says the same."""
    text = TEXT.format(body=body, x=x, w=w, y=y, result=result, attribute=attribute)
    made = run_passes(text, **OFF)
    exps = [op for op in kernel_ops(made.after) if isinstance(op, Compute) and op.fn in ("exp", "exp2")]
    said = [d.choice for d in made.decisions if d.subject.startswith("exp")]
    assert said == ["approximate" if op.approximate else "IEEE" for op in exps]
    assert not any(op.approximate for op in kernel_ops(made.before) if isinstance(op, Compute))
    return [op.approximate for op in exps]


FEEDS = {
    "cast to f16": ("acc += dot(f16(exp(x)), W[kt :+ 16, :])", {}),
    "cast to bf16": ("acc += dot(bf16(exp2(x)), W[kt :+ 16, :])", {"w": "bf16"}),
    "by arithmetic": ("acc += dot(f16(where(x > 0.0, -(exp(x) * 2.0 + 1.0) / 3.0, x)), W[kt :+ 16, :])", {}),
    "stored as f16": ("acc += exp(x)", {"y": "f16", "result": "f16(acc)"}),
    "a factor in a loop, stored as f16": ("acc = acc * exp(x[:, 0 :+ 1]) + x", {"y": "f16", "result": "f16(acc)"}),
    "a product that rounds": ("acc += dot(exp(x), W[kt :+ 16, :])", {"w": "f32", "attribute": "@tensorcore(f16)"}),
    "transposed": ("acc += dot(f16(transpose(exp(x))), W[kt :+ 16, :])", {}),
    "reshaped": ("acc += dot(f16(reshape(reshape(exp(x), 1, 256), 16, 16)), W[kt :+ 16, :])", {}),
    "broadcast": ("acc += dot(f16(broadcast(exp(x[:, 0 :+ 1]), 16, 16)), W[kt :+ 16, :])", {}),
    "sliced": ("acc += dot(f16(cat(exp(x)[:, 8 :+ 8], x[:, 0 :+ 8], 1)), W[kt :+ 16, :])", {}),
    "inserted": ("var y = x; y[0 :+ 8, :] = exp(x[0 :+ 8, :]); acc += dot(f16(y), W[kt :+ 16, :])", {}),
    "in a branch": ("var y = x; if kt > 32 { y = exp(x) }; acc += dot(f16(y), W[kt :+ 16, :])", {}),
    "in another loop": (
        "var y = x; var n = 0; while n < 3 { n += 1; y = exp(y); if n > c { break } }\n"
        "acc += dot(f16(y), W[kt :+ 16, :])",
        {},
    ),
    "a factor per column, carried": (
        "acc = transpose(exp(x[0 :+ 1, :])) * acc + dot(f16(acc), W[kt :+ 16, :])", {},
    ),
    "a product that rounds to bf16": (
        "acc += dot(exp(x), W[kt :+ 16, :])",
        {"w": "f32", "attribute": "@tensorcore(bf16)"},
    ),
}


@pytest.mark.parametrize("name", FEEDS)
def test_it_marks(name: str) -> None:
    body, options = FEEDS[name]
    assert approximate(body, **options) == [True]


NONE = "no f16 or bf16 result depends on it"
KEEPS = {  # body, options, and why
    "stored as f32": ("acc += exp(x)", {}, NONE),
    "an IEEE product": ("acc += dot(exp(x), W[kt :+ 16, :])", {"w": "f32"}, NONE),
    "a product in tf32": ("acc += dot(exp(x), W[kt :+ 16, :])", {"w": "f32", "attribute": "@tensorcore(tf32)"}, NONE),
    "a product, then rounded": (
        "acc += dot(exp(x), W[kt :+ 16, :])", {"w": "f32", "y": "f16", "result": "f16(acc)"}, "the product in line 7",
    ),
    "compared": ("acc += dot(f16(where(exp(x) > 2.0, 1.0, 0.0)), W[kt :+ 16, :])", {}, "`gt` in line 7"),
    "summed first": ("acc += dot(f16(x), W[kt :+ 16, :]) * rowsum(exp(x))", {}, NONE),
    "summed, then rounded": ("acc += dot(f16(x * rowsum(exp(x))), W[kt :+ 16, :])", {}, "the reduction in line 7"),
    "summed down, then rounded": ("acc += dot(f16(cumsum(exp(x))), W[kt :+ 16, :])", {}, "the prefix sum in line 7"),
    "another function": ("acc += dot(f16(log(transpose(exp(x)))), W[kt :+ 16, :])", {}, "`log` in line 7"),
    "cast to an integer": ("acc += f32(i32(exp(x)))", {}, NONE),
    "an integer, then rounded": ("acc += f32(f16(i32(exp(x))))", {}, "the conversion to i32 in line 7"),
    "cast to f64": ("acc += f32(f64(exp(x)))", {}, NONE),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPS)
def test_it_leaves(name: str) -> None:
    body, options, why = KEEPS[name]
    assert approximate(body, **options) == [False]
    asked = {"x": "f32", "w": "f16", "y": "f32", "result": "acc", "attribute": "", **options}
    made = run_passes(TEXT.format(body=body, **asked), **OFF)
    (reason,) = [d.reason for d in made.decisions if d.choice == "IEEE"]
    assert reason == why or f"only through {why}" in reason and "rounded to 16 bits in line" in reason


def test_other_types_are_left() -> None:
    body = "acc += dot(f16(exp(X[row :+ 16, kt :+ 16])), W[kt :+ 16, :])"
    made = run_passes(TEXT.format(body=body, x="f64", w="f16", y="f32", result="acc", attribute=""), **OFF)
    (found,) = [op for op in kernel_ops(made.after) if isinstance(op, Compute) and op.fn == "exp"]
    assert not found.approximate


def test_each_exponential_by_itself() -> None:
    body = "acc += dot(f16(exp(x)), W[kt :+ 16, :])\n    acc += exp2(x)"
    assert approximate(body) == [True, False]
