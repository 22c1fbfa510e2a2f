"""Control flow, the grid, debugging ops, hooks, and what is said about wrong calls."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from ir.builder import Builder, Loop

from phobos.diagnostics import LaunchError
from phobos.ir import tile as ir
from phobos.ir.dims import DimBinary, DimConst, DimName
from phobos.ir.tile import AlignedPromise
from phobos.ir.verify import verify
from phobos.reference import run
from phobos.source import SourceFile, Span

SPAN = Span(file="test.ph", line=3, column=5, end_line=3, end_column=9)


def scalar_program(fn: Any, *scalars: tuple[str, str], count: int = 1) -> ir.KernelIR:
    """A kernel that stores the `count` i32 values that `fn(builder, *scalars)` returns."""
    b = Builder()
    y = b.tensor("Y", "i32", count)
    values = fn(b, *(b.scalar(name, dtype) for name, dtype in scalars))
    for number, value in enumerate(values if isinstance(values, tuple) else (values,)):
        b.store(y, [b.at(number)], value)
    kernel = b.finish()
    verify(kernel)
    return kernel


def result(kernel: ir.KernelIR, count: int = 1, **scalars: Any) -> list[int]:
    y = np.full(count, -99, np.int32)
    run(kernel, {"Y": y, **scalars})
    return y.tolist()


# --- control flow ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lo,hi,step", [(0, 10, 3), (5, 5, 1), (7, 2, 1), (9, -1, -4), (0, 1, 100)])
def test_for_counts_like_range_and_carries(lo: int, hi: int, step: int) -> None:
    def body(b: Builder) -> tuple[ir.Value, ...]:
        zero = b.constant(0, "i32")
        with b.for_(lo, hi, step, [zero, zero]) as loop:
            total, rounds = loop.carried
            assert loop.index is not None
            b.yield_(b.add(total, b.cast(loop.index, "i32")), b.add(rounds, 1))
        return loop.results

    assert result(scalar_program(body, count=2), 2) == [sum(range(lo, hi, step)), len(range(lo, hi, step))]


def test_break_and_continue_carry_their_values() -> None:
    def body(b: Builder, limit: ir.Value) -> tuple[ir.Value, ...]:
        """Sums odd indices until the sum passes the limit."""
        with b.for_(0, 100, 1, [b.constant(0, "i32")]) as loop:
            (total,) = loop.carried
            assert loop.index is not None
            i = b.cast(loop.index, "i32")
            even = b.compute("eq", b.compute("bitand", i, 1), 0)
            b.if_(even, lambda: b.continue_(total))
            new = b.add(total, i)
            b.if_(b.compute("gt", new, limit), lambda: b.break_(new))
            b.yield_(new)
        return loop.results

    kernel = scalar_program(body, ("limit", "i32"))
    for limit in (0, 10, 100, 10**6):
        total = 0
        for i in range(1, 100, 2):
            total += i
            if total > limit:
                break
        assert result(kernel, limit=limit) == [total]


def test_while_runs_its_condition_first() -> None:
    def body(b: Builder, n: ir.Value) -> tuple[ir.Value, ...]:
        """Collatz steps from n to 1, at most 50."""

        def step(x: ir.Value, count: ir.Value) -> None:
            odd = b.compute("ne", b.compute("mod", x, 2), 0)
            (new,) = b.if_(
                odd,
                lambda: b.yield_(b.add(b.mul(x, 3), 1)),
                lambda: b.yield_(b.compute("div", x, 2)),
                results=[x],
            )
            b.if_(b.compute("ge", count, 49), lambda: b.break_(new, b.constant(-1, "i32")))
            b.yield_(new, b.add(count, 1))

        return b.while_([n, b.constant(0, "i32")], lambda x, c: b.compute("ne", x, 1), step)

    kernel = scalar_program(body, ("n", "i32"), count=2)
    assert result(kernel, 2, n=1) == [1, 0]
    assert result(kernel, 2, n=6) == [1, 8]
    assert result(kernel, 2, n=27)[1] == -1


def test_return_ends_its_block_of_the_grid_only() -> None:
    b = Builder()
    y = b.tensor("Y", "i32", "N")
    pid = b.program_id()
    with b.for_(0, 3) as loop:
        assert loop.index is not None
        b.if_(b.compute("eq", pid, loop.index), lambda: b.return_())
    b.store(y, [b.at(pid)], b.cast(pid, "i32"))
    kernel = b.finish(grid=(("N", 1),))
    verify(kernel)
    out = np.full(5, -1, np.int32)
    run(kernel, {"Y": out})
    assert out.tolist() == [-1, -1, -1, 3, 4]


def endless(b: Builder) -> ir.Value:
    true = b.constant(True, "bool")
    (x,) = b.while_([b.constant(0, "i32")], lambda x: true, lambda x: b.yield_(b.add(x, 1)))
    return x


def test_an_endless_loop_is_a_diagnostic() -> None:
    with pytest.raises(LaunchError, match=r"more than 1000 iterations in block \(0, 0, 0\)") as error:
        run(scalar_program(endless), {"Y": np.zeros(1, np.int32)}, max_steps=1000)
    assert error.value.diagnostics[0].code == "PH0862" and error.value.diagnostics[0].span is not None


def test_a_step_of_zero_is_a_diagnostic() -> None:
    b = Builder()
    with b.for_(0, 4, b.cast(b.scalar("s", "i32"), "index")):
        pass
    kernel = b.finish()
    run(kernel, {"s": 1})
    with pytest.raises(LaunchError) as error:
        run(kernel, {"s": 0})
    assert error.value.diagnostics[0].code == "PH0863"


# --- grid ------------------------------------------------------------------------------------------


def grid_kernel() -> ir.KernelIR:
    b = Builder()
    y = b.tensor("Y", "i32", "D", "H", "W")
    place = [b.at(b.program_id(2)), b.at(b.program_id(1)), b.at(b.program_id(0))]
    size = b.mul(b.mul(b.grid_size(0), 100), 1)
    total = b.add(size, b.add(b.mul(b.grid_size(1), 10), b.grid_size(2)))
    b.store(y, place, b.cast(total, "i32"))
    kernel = b.finish(grid=(("W", 1), ("H", 1), ("D", 1)))
    verify(kernel)
    return kernel


def test_the_whole_grid_runs() -> None:
    out = np.zeros((2, 3, 4), np.int32)
    summary = run(grid_kernel(), {"Y": out})
    assert summary.grid == (4, 3, 2) and dict(summary.dims) == {"D": 2, "H": 3, "W": 4}
    assert (out == 432).all()


def test_a_grid_may_be_given_and_may_be_empty() -> None:
    out = np.zeros((2, 3, 4), np.int32)
    assert run(grid_kernel(), {"Y": out}, grid=(2, 1)).grid == (2, 1, 1)
    assert out[0, 0].tolist() == [211, 211, 0, 0] and out[1:].sum() == 0
    assert run(grid_kernel(), {"Y": np.zeros((0, 3, 4), np.int32)}).grid == (4, 3, 0)
    for bad in ((-1,), (1, 1, 1, 1), ()):
        with pytest.raises(LaunchError) as error:
            run(grid_kernel(), {"Y": out}, grid=bad)
        assert error.value.diagnostics[0].code == "PH0858"


def test_a_grid_that_divides_by_zero_is_a_diagnostic() -> None:
    b = Builder()
    b.tensor("X", "f32", "N")
    kernel = b.finish()
    grid = (DimBinary("//", DimConst(8), DimName("N")), DimConst(1), DimConst(1))
    kernel = type(kernel)(**{**vars(kernel), "grid": grid})
    assert run(kernel, {"X": np.zeros(3, np.float32)}).grid == (2, 1, 1)
    with pytest.raises(LaunchError, match="divides by zero") as error:
        run(kernel, {"X": np.zeros(0, np.float32)})
    assert error.value.diagnostics[0].code == "PH0858"


# --- arguments -------------------------------------------------------------------------------------


def pair_kernel(**attributes: Any) -> ir.KernelIR:
    b = Builder("pair", **attributes)
    x, y = b.tensor("X", "f32", "N", 4), b.tensor("Out", "f16", "N", "M")
    b.scalar("a", "f16"), b.scalar("k", "u32"), b.scalar("flag", "bool")
    b.store(y, [b.at(0), b.at(0)], b.cast(b.load(x, [b.at(0), b.at(0)]), "f16"))
    return b.finish()


def good() -> dict[str, Any]:
    out = np.zeros((3, 2), np.float16)
    return {"X": np.ones((3, 4), np.float32), "Out": out, "a": 0.5, "k": 7, "flag": True}


def frozen() -> np.ndarray:
    array = np.zeros((3, 2), np.float16)
    array.flags.writeable = False
    return array


def test_good_arguments_of_several_kinds() -> None:
    integers = {"a": 1, "k": np.uint32(2**32 - 1), "flag": np.bool_(False)}
    for changes in ({}, integers, {"a": np.float64(0.1)}, {"a": np.array(0.5)}):
        arguments = {**good(), **changes}
        run(pair_kernel(), arguments)
        assert arguments["Out"][0, 0] == 1


@pytest.mark.parametrize(
    "changes,code,text",
    [
        ({"Oot": 1}, "PH0850", "no parameter 'Oot'"),
        ({"X": None}, "PH0851", "'X' needs a NumPy array, not NoneType"),
        ({"X": [[1.0]]}, "PH0851", "not list"),
        ({"X": np.ones((3, 4))}, "PH0852", "array of float32, not of float64"),
        ({"X": np.ones((3, 4), ">f4")}, "PH0852", "not of >f4"),
        ({"X": np.ones((3, 4), np.int32)}, "PH0852", "not of int32"),
        ({"X": np.ones(12, np.float32)}, "PH0853", "rank 2, its array has shape (12,)"),
        ({"X": np.ones((3, 5), np.float32)}, "PH0854", "axis 1 of 'X' must have 4 elements, it has 5"),
        ({"X": np.ones((9, 4), np.float32)}, "PH0854", "dim N is 9 in axis 0 of 'X' and 3 in axis 0 of 'Out'"),
        ({"a": "x"}, "PH0855", "scalar 'a' needs a value of type f16, not 'x'"),
        ({"k": -1}, "PH0855", "-1 does not fit scalar 'k' of type u32"),
        ({"k": 2**32}, "PH0855", "does not fit"),
        ({"k": 1.5}, "PH0855", "needs a value of type u32"),
        ({"k": True}, "PH0855", "needs a value of type u32"),
        ({"flag": 1}, "PH0855", "needs a value of type bool"),
        ({"Out": frozen()}, "PH0856", "read-only"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(LaunchError) as error:
        run(pair_kernel(), {**good(), **changes})
    assert [d.code for d in error.value.diagnostics] == [code]
    assert text in error.value.diagnostics[0].message


def test_all_that_is_missing_or_wrong_is_reported_at_once() -> None:
    with pytest.raises(LaunchError) as error:
        run(pair_kernel(), {"out": np.zeros((3, 2)), "k": -1})
    found = error.value.diagnostics
    assert [d.code for d in found] == ["PH0850"] * 5 + ["PH0855"]
    assert found[0].help == "did you mean 'Out'?"
    assert "argument 'X' of kernel 'pair' is missing" in found[1].message


def test_a_broken_aligned_promise_names_dim_value_and_tile() -> None:
    promise = AlignedPromise(dim="N", multiple=4, span=SPAN)
    source = SourceFile("test.ph", "\n\n    @aligned(N = 4)\n")
    with pytest.raises(LaunchError, match="N is 3, but @aligned promises a multiple of 4") as error:
        run(pair_kernel(aligned=(promise,)), good(), source=source)
    assert error.value.diagnostics[0].code == "PH0857"
    assert "^^^^" in str(error.value)
    wide = {**good(), "X": np.ones((4, 4), np.float32), "Out": np.zeros((4, 2), np.float16)}
    run(pair_kernel(aligned=(promise,)), wide)


def test_bool_tensors_may_be_bytes_and_bit_formats_say_so() -> None:
    b = Builder()
    x, y, z = b.tensor("X", "bool", 3), b.tensor("Y", "bool", 3), b.tensor("Z", "bf16", 3)
    b.store(y, [b.range(0, 3)], b.compute("not", b.load(x, [b.range(0, 3)])))
    b.load(z, [b.range(0, 3)])
    kernel = b.finish()
    out = np.zeros(3, np.uint8)
    arguments = {"X": np.array([1, 0, 1], np.uint8), "Y": out, "Z": np.zeros(3, np.uint16)}
    run(kernel, arguments)
    assert out.tolist() == [0, 1, 0]
    with pytest.raises(LaunchError, match="an array of uint16 of bf16 bits, not of float32"):
        run(kernel, {**arguments, "Z": np.zeros(3, np.float32)})


# --- debugging and hooks ---------------------------------------------------------------------------


def test_print_goes_to_stdout_or_to_the_callback(capsys: pytest.CaptureFixture[str]) -> None:
    b = Builder()
    x = b.tensor("X", "f32", "N")
    b.print("x = ", b.load(x, [b.range(0, 2)]), ", block ", b.program_id(), " of ", b.scalar("a", "f32"))
    kernel = b.finish(grid=(2,))
    verify(kernel)
    arguments = {"X": np.array([1.5, -2], np.float32), "a": 0.1}
    run(kernel, arguments)
    assert capsys.readouterr().out == "x = [ 1.5 -2. ], block 0 of 0.1\nx = [ 1.5 -2. ], block 1 of 0.1\n"
    lines: list[Any] = []
    run(kernel, arguments, on_print=lambda text, block: lines.append((text[-1], block)))
    assert lines == [("1", (0, 0, 0)), ("1", (1, 0, 0))] and capsys.readouterr().out == ""


def test_a_failed_assert_names_text_block_and_element() -> None:
    b = Builder()
    x = b.tensor("X", "i32", "N")
    tile = b.load(x, [b.range(b.mul(b.program_id(), 4), 4)])
    b.check(b.compute("ge", tile, 0), "x is not negative")
    kernel = b.finish(grid=(("N", 4),))
    verify(kernel)
    run(kernel, {"X": np.arange(8, dtype=np.int32)})
    with pytest.raises(LaunchError) as error:
        run(kernel, {"X": np.array([0, 1, 2, 3, 4, 5, -6, -7], np.int32)})
    found = error.value.diagnostics[0]
    assert found.code == "PH0860" and found.span is not None
    assert found.message == "assertion failed: x is not negative (block (1, 0, 0) at element (2,))"


def test_the_trace_hook_sees_every_op_with_its_results() -> None:
    def body(b: Builder) -> tuple[ir.Value, ...]:
        with b.for_(0, 3, 1, [b.constant(1, "i32")]) as loop:
            b.yield_(b.mul(loop.carried[0], 2))
        return loop.results

    kernel = scalar_program(body)
    seen: list[tuple[str, tuple[int, int, int]]] = []
    products: list[int] = []

    def on_op(op: ir.Op, block: tuple[int, int, int], env: Any) -> None:
        seen.append((type(op).__name__, block))
        assert all(value in env for value in op.defined())
        if isinstance(op, ir.Compute):
            products.append(int(env[op.result]))

    run(kernel, {"Y": np.zeros(1, np.int32)}, on_op=on_op)
    names = [name for name, _ in seen]
    assert products == [2, 4, 8]
    assert names.count("Yield") == 3 and names[-1] == "Return" and names.index("For") > names.index("Yield")


def test_values_are_never_shared_with_the_arrays() -> None:
    """A tile that was loaded keeps its values when the tensor changes."""
    b = Builder()
    x, y = b.tensor("X", "f32", 4), b.tensor("Y", "f32", 4)
    before = b.load(x, [b.range(0, 4)])
    b.store(x, [b.range(0, 4)], 0.0)
    b.store(y, [b.range(0, 4)], before)
    out = np.zeros(4, np.float32)
    run(b.finish(), {"X": np.arange(4, dtype=np.float32), "Y": out})
    assert out.tolist() == [0, 1, 2, 3]


# --- flash attention -------------------------------------------------------------------------------


def flash(b: Builder, d: int, br: int, bc: int) -> ir.KernelIR:
    """FlashAttention-2 as the seed writes it, with the mask of its ragged form."""
    q_, k_, v_, o_ = (b.tensor(n, "f32", "Nq" if n in "QO" else "Nk", d) for n in "QKVO")
    scale = b.scalar("scale", "f32")
    row = b.mul(b.program_id(), br)
    q = b.load(q_, [b.range(row, br), b.range(0, d)])
    inits = [b.full("f32", (br, d), 0.0), b.full("f32", (br, 1), -1e30), b.full("f32", (br, 1), 0.0)]
    loop: Loop
    with b.for_(0, b.dim("Nk"), bc, inits) as loop:
        acc, m, total = loop.carried
        assert loop.index is not None
        k, v = (b.load(t, [b.range(loop.index, bc), b.range(0, d)]) for t in (k_, v_))
        s = b.mul(b.dot(q, k, True), scale)
        inside = b.compute("lt", b.iota((1, bc), 1, "index"), b.sub(b.dim("Nk"), loop.index))
        s = b.compute("where", inside, s, -1e30)
        new = b.compute("max", m, b.reduce(s, "max", 1))
        p, correction = b.compute("exp", b.sub(s, new)), b.compute("exp", b.sub(m, new))
        b.yield_(
            b.add(b.mul(acc, correction), b.dot(p, v)), new, b.add(b.mul(total, correction), b.reduce(p, "sum", 1))
        )
    acc, _, total = loop.results
    b.store(o_, [b.range(row, br), b.range(0, d)], b.compute("div", acc, total))
    return b.finish(grid=(("Nq", br),))


@pytest.mark.parametrize("nq,nk,br,bc", [(256, 256, 64, 64), (100, 77, 64, 32), (5, 3, 4, 8)])
def test_flash_attention(nq: int, nk: int, br: int, bc: int) -> None:
    kernel = flash(Builder("flash"), 64, br, bc)
    verify(kernel)
    rng = np.random.default_rng(8)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float32) for n in (nq, nk, nk))
    out = np.full((nq, 64), np.nan, np.float32)
    start = time.process_time()
    run(kernel, {"Q": q, "K": k, "V": v, "O": out, "scale": 0.125})
    assert time.process_time() - start < 1.0
    s = q.astype(np.float64) @ k.astype(np.float64).T * 0.125
    p = np.exp(s - s.max(axis=1, keepdims=True))
    expected = p / p.sum(axis=1, keepdims=True) @ v
    assert np.max(np.abs(out - expected)) < 1e-6
    oracle = np.full((nq, 64), np.nan)
    run(kernel, {"Q": q, "K": k, "V": v, "O": oracle, "scale": 0.125}, float64=True)
    assert np.max(np.abs(oracle - expected)) < 1e-14
