"""Control flow: carried values, dead branches, definite assignment, jumps."""

from __future__ import annotations

import numpy as np
import pytest
from semantic.support import check, execute, expect_body, ir, ops

from phobos.ir.tile import Break, Constant, Continue, For, If, Load, Return, While, Yield

# --- values against NumPy or plain Python ------------------------------------------------------


def scalars(body: str, n: int = 5, count: int = 4, **options) -> list[float]:
    text = f"@grid(1)\nkernel k(B: tensor<f32>[{count}], n: i32) {{\n{body}\n}}"
    return execute(text, {"B": np.zeros(count, np.float32), "n": n}, **options)["B"].tolist()


def test_loop_carries_variables() -> None:
    assert scalars("var a = 0\nvar b = 1\nfor i in range(n) {\nlet t = a + b\na = b\nb = t\n}\nB[0] = a\nB[1] = b")[
        :2
    ] == [5, 8]


def test_for_forms() -> None:
    body = "var s = 0\nfor i in range(2, 11, 3) { s = s * 10 + i }\nfor i in range(n, 0, -2) { s = s * 10 + i }\n"
    assert scalars(body + "for i in range(2) { s = s * 2 + i }\nB[0] = s")[0] == 258531 * 4 + 1


def test_nested_loops_break_and_continue() -> None:
    body = """var s = 0
for i in range(n) {
  if i == 1 { continue }
  for j in range(10) {
    if j > i { break }
    s += 1
    if j == 2 { continue }
    s += 10
  }
  if i == 3 { break }
}
B[0] = s"""
    s = 0
    for i in range(5):
        if i == 1:
            continue
        for j in range(10):
            if j > i:
                break
            s += 1
            if j == 2:
                continue
            s += 10
        if i == 3:
            break
    assert scalars(body)[0] == s


def test_while() -> None:
    assert (
        scalars(
            "var x = n\nvar steps = 0\nwhile x != 1 {\nif x % 2 == 0 { x = x / 2 } else { x = 3 * x + 1 }\nsteps += 1\n}\nB[0] = steps",  # noqa: E501
            6,
        )[0]
        == 8
    )


def test_while_true_with_break() -> None:
    assert scalars("var x = 0\nwhile true {\nx += 1\nif x >= n { break }\n}\nB[0] = x")[0] == 5


def test_while_with_effects_in_its_condition() -> None:
    # A condition that changes memory becomes part of the body.
    body = "var x = 0\nwhile atomic_add(B[0], 1.0) < 3.0 {\nx += 1\n}\nB[1] = x"
    assert scalars(body)[:2] == [4.0, 3.0]


def test_if_chains() -> None:
    body = "var x = 1.0\nif n > 10 { x = 2.0 } else if n > 3 { x = 3.0 } else { B[3] = 1.0 }\nB[0] = x"
    assert [scalars(body, n)[0] for n in (11, 5, 1)] == [2.0, 3.0, 1.0]


def test_early_return() -> None:
    body = (
        "B[0] = 1.0\nif n > 3 { return }\nB[1] = 1.0\nfor i in range(10) { if i == n { return }\nB[2] = i }\nB[3] = 1.0"
    )
    assert scalars(body, 5) == [1, 0, 0, 0]
    assert scalars(body, 2) == [1, 1, 1, 0]


def test_both_branches_leave() -> None:
    body = "for i in range(10) {\nB[0] = i\nif i < n { continue } else { break }\n}\nif n > 0 { B[1] = 1.0\nreturn } else { return }"  # noqa: E501
    assert scalars(body, 3)[:2] == [3.0, 1.0]


def test_variables_of_an_inner_block_do_not_leak() -> None:
    assert scalars("var x = 1.0\nif n > 0 {\nvar x = 2.0\nx += 1.0\nB[1] = x\n}\nB[0] = x")[:2] == [1.0, 3.0]


# --- structure -------------------------------------------------------------------------------


def test_only_assigned_variables_are_carried() -> None:
    kernel = ir("var x = a\nvar y = a\nvar z = a\nfor i in range(n) {\ny += x\nvar w = y\nw += 1.0\n}\nprint(x, y, z)")
    (loop,) = ops(kernel, For)
    assert [r.name for r in loop.results] == ["y"]
    assert [p.name for p in loop.body.params] == ["i", "y"]


def test_dead_branches_carry_nothing() -> None:
    body = "var x = a\nvar y = a\nfor i in range(n) {\nif c { x += 1.0 } else { y += 1.0 }\n}\nprint(x, y)"
    for value, name in ((True, "x"), (False, "y")):
        kernel = ir(body, "a: f32, n: i32, const c: bool", consts={"c": value})
        (loop,) = ops(kernel, For)
        assert [r.name for r in loop.results] == [name] and not ops(kernel, If)


def test_dead_branches_are_not_checked() -> None:
    ir("if c { print(unknown) } else { print(1) }", "const c: bool", consts={"c": False})
    ir("if c && unknown > 1 { print(1) }\nwhile false { print(unknown) }", "const c: bool", consts={"c": False})
    expect_body("if c { print(§unknown) }", "PH0201", params="const c: bool", consts={"c": True})


def test_if_results() -> None:
    kernel = ir("var x = a\nvar y = a * 2.0\nif flag { x = 1.0 } else { y = x }\nprint(x, y)")
    (branch,) = ops(kernel, If)
    assert [r.name for r in branch.results] == ["x", "y"]
    assert all(isinstance(b.ops[-1], Yield) and len(b.ops[-1].values) == 2 for b in (branch.then, branch.orelse))


def test_terminators() -> None:
    kernel = ir("for i in range(n) {\nif flag { break }\nif a > 1.0 { continue }\n}\nif flag { return }")
    assert len(ops(kernel, Break)) == 1 and len(ops(kernel, Continue)) == 1 and len(ops(kernel, Return)) == 2
    assert isinstance(kernel.body.ops[-1], Return)


def test_unroll_and_pipeline() -> None:
    kernel = ir(
        "@pipeline(S)\nfor<unroll R> i in range(n) {\nprint(i)\n}", attributes="@grid(1)\n@autotune(R in [4], S in [3])"
    )
    (loop,) = ops(kernel, For)
    assert (loop.unroll, loop.pipeline) == (4, 3)


def test_condition_of_while_sees_carried_values() -> None:
    kernel = ir("var x = n\nwhile x > 0 { x -= 1 }")
    (loop,) = ops(kernel, While)
    assert len(loop.condition.params) == len(loop.body.params) == len(loop.results) == 1


def test_spans_and_names_survive() -> None:
    kernel = ir(
        "let q = P[0 :+ 4, :]\nvar s: tile<f32>[4, 16] = q\ns = s * a\nfor i in range(n) {\ns += 1.0\n}\nprint(s)"
    )
    (load,) = ops(kernel, Load)
    assert load.span.line == 5 and load.result.name == "s"
    (loop,) = ops(kernel, For)
    assert loop.span.line == 7 and loop.results[0].name == "s"
    assert all(op.span is not None for op in kernel.body.ops)
    assert len({c.result for c in ops(kernel, Constant)}) == len(ops(kernel, Constant))


# --- errors ----------------------------------------------------------------------------------

BAD = [
    ("read before write", "var x: tile<f32>[4]\nprint(§x)", "PH0230"),
    ("add before write", "var x: f32\n§x += 1.0\nprint(x)", "PH0230"),
    ("slice before write", "var x: tile<f32>[4]\n§x[0] = 1.0", "PH0230"),
    ("one branch", "var x: f32\nif flag { x = 1.0 }\nprint(§x)", "PH0230"),
    ("written in a loop", "var x: f32\nfor i in range(n) { x = 1.0 }\nprint(§x)", "PH0230"),
    ("written late in a loop", "var x: f32\nfor i in range(n) { print(§x)\nx = 1.0 }", "PH0230"),
    ("written in a while", "var x: f32\nvar i = 0\nwhile i < n { x = 1.0\ni += 1 }\nprint(§x)", "PH0230"),
    ("no type, no value", "var §x\nprint(1)", None),
    ("break", "§break", "PH0231"),
    ("continue", "if flag { §continue }", "PH0231"),
    ("tile condition", "if §P[:, :] > 0.0 { print(1) }", "PH0218"),
    ("iota condition", "if §iota(0) < 3 { print(1) }", "PH0218"),
    ("int condition", "if §n { print(1) }", "PH0218"),
    ("float condition", "while §a { print(1) }", "PH0218"),
    ("literal condition", "while §1 { print(1) }", "PH0218"),
    ("step zero", "for i in range(0, n, §0) { print(i) }", "PH0237"),
    ("bound of float", "for i in range(§a) { print(i) }", "PH0237"),
    ("bound of tile", "for i in range(§I[0 :+ 4]) { print(i) }", "PH0237"),
    ("bounds that do not mix", "for i in range(n, §u) { print(i) }", "PH0210"),
    ("no bounds", "for i in range() { print(i) }", None),
    ("unroll zero", "for<unroll §0> i in range(n) { print(i) }", "PH0237"),
    ("unroll dynamic", "for<unroll §n> i in range(n) { print(i) }", None),
    ("value returned", "§return 1.0", "PH0233"),
    ("no effect", "§a + 1.0", "PH0232"),
    ("no effect of a call", "§exp(a)", "PH0232"),
    ("no effect of a name", "§a", "PH0232"),
    (
        "error in a loop is shown once",
        "var x = a\nfor i in range(n) { if false { x = 1.0 }\nprint(§y) }\nprint(x)",
        "PH0201",
    ),
    ("errors in both branches", "if flag { print(§y) } else { print(§z) }", "PH0201 PH0201"),
    ("errors below a wrong condition", "if §y { print(§z) }", "PH0201 PH0201"),
    ("wrong condition does not undefine", "var x: f32\nif §y { x = 1.0 } else { x = 2.0 }\nprint(x)", "PH0201"),
    ("unknown loop attribute", "§@unrol(2)\nfor i in range(n) { print(i) }", "PH0301"),
    ("kernel attribute on a loop", "§@launch(128)\nfor i in range(n) { print(i) }", "PH0302"),
    ("pipeline count", "§@pipeline()\nfor i in range(n) { print(i) }", None),
    ("pipeline depth", "@pipeline(§0)\nfor i in range(n) { print(i) }", "PH0302"),
    ("pipeline dynamic", "@pipeline(§n)\nfor i in range(4) { print(i) }", "PH0215"),
    ("pipeline twice", "@pipeline(2)\n§@pipeline(3)\nfor i in range(4) { print(i) }", "PH0303"),
]


@pytest.mark.parametrize(("body", "codes"), [c[1:] for c in BAD if c[2]], ids=[c[0] for c in BAD if c[2]])
def test_statement_errors(body: str, codes: str) -> None:
    expect_body(body, *codes.split())


def test_tile_condition_suggests_where() -> None:
    (found,) = expect_body("if P[:, :] > 0.0 { print(1) }", "PH0218")
    assert "where" in (found.help or "")


def test_no_effect_explains_newlines() -> None:
    (found,) = expect_body("let x = a\n-a", "PH0232")
    assert any("newline" in note for note in found.notes)


def test_assigned_on_all_paths() -> None:
    ir("var x: f32\nif flag { x = 1.0 } else { x = 2.0 }\nprint(x)")
    ir("var x: f32\nif flag { x = 1.0 } else { return }\nprint(x)")
    ir("for i in range(n) {\nvar x: tile<f32>[4]\nif flag { x = 1.0 } else { continue }\nprint(x)\n}")


def test_deep_nesting_is_no_traceback() -> None:
    depth = 60
    body = "".join(f"{'  ' * i}if n > {i} {{\n" for i in range(depth)) + "print(1)\n" + "}\n" * depth
    assert len(ops(ir(body), If)) == depth


def test_loop_of_dead_assignments_stays_cheap() -> None:
    # Each loop is built again without what only dead branches assign.
    body = (
        "var x = a\n"
        + "".join(f"for i{i} in range(2) {{\n" for i in range(6))
        + "if false { x = 1.0 }\nprint(x)\n"
        + "}\n" * 6
    )
    kernel = check(f"kernel k(a: f32) {{\n{body}}}")
    assert all(not loop.results for loop in ops(kernel, For))
