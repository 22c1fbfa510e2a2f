"""Traversal and rewriting: structure is checked directly, meaning by running both forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ir.builder import Builder

from phobos.ir import tile as ir
from phobos.ir import walk
from phobos.ir.verify import verify
from phobos.reference import run


def sample() -> ir.KernelIR:
    """Every way in which an op holds values: views, gathers, slices, branches, loops, combine functions."""
    b = Builder("sample")
    x, y, i = b.tensor("X", "f32", "N"), b.tensor("Y", "f32", "N"), b.tensor("I", "i32", 4)
    a = b.scalar("a", "f32")
    start = b.mul(b.program_id(), 4)
    tile = b.load(x, [b.range(start, 4)])
    picked = b.load(x, [b.by(b.load(i, [b.range(0, 4)]))], fill=1.0)
    with b.for_(0, 5, 1, [tile, picked]) as loop:
        t, p = loop.carried
        assert loop.index is not None
        element = b.extract(t, [b.at(loop.index)])
        changed = b.insert(t, [b.range(loop.index, 2)], b.broadcast(b.add(element, a), 2))
        big = b.compute("gt", element, 20.0)
        b.if_(big, lambda: b.break_(changed, p))
        (q,) = b.if_(
            b.compute("lt", element, a),
            lambda: b.yield_(b.mul(p, 2.0)),
            lambda: b.yield_(b.sub(p, changed)),
            results=[p],
        )
        b.yield_(changed, q)
    t, p = loop.results

    def grow(s: ir.Value, n: ir.Value) -> None:
        b.yield_(b.add(s, b.add(n, 1.0)), b.add(n, 1.0))

    total = b.reduce(t, "custom", None, b.combine("f32", lambda u, v: b.add(b.mul(u, 0.5), v)), 1.0)
    s, _ = b.while_([total, b.constant(0.0, "f32")], lambda s, n: b.compute("lt", n, 3.0), grow)
    b.store(y, [b.range(start, 4)], b.add(b.mul(p, s), t))
    return b.finish(grid=(("N", 4),))


def outcome(kernel: ir.KernelIR) -> list[float]:
    x = np.random.default_rng(0).uniform(-3, 9, 11).astype(np.float32)
    y = np.zeros(11, np.float32)
    run(kernel, {"X": x, "Y": y, "I": np.array([3, 10, 11, 0], np.int32), "a": 2.5})
    return y.tolist()


def test_the_sample_is_worth_testing() -> None:
    kernel = sample()
    verify(kernel)
    assert len(set(outcome(kernel))) == 11
    kinds = {type(op) for op in walk.kernel_ops(kernel)}
    assert {ir.For, ir.While, ir.If, ir.Break, ir.Reduce, ir.Extract, ir.Insert} <= kinds


def test_walk_visits_every_op_once_outer_first() -> None:
    kernel = sample()
    ops = list(walk.kernel_ops(kernel))
    assert len({id(op) for op in ops}) == len(ops)
    place = {id(op): n for n, op in enumerate(ops)}
    for op in ops:
        for block in op.blocks():
            assert all(place[id(inner)] > place[id(op)] for inner in block.ops)
    assert sum(len(block.ops) for block in walk.walk_blocks(kernel.body)) == len(ops)
    assert [type(op).__name__ for op in ops if isinstance(op, (ir.Store, ir.Return))] == ["Store", "Return"]


def test_definitions_and_uses() -> None:
    kernel = sample()
    defined, used = walk.definitions(kernel.body), walk.uses(kernel.body)
    for op in walk.kernel_ops(kernel):
        for value in op.defined():
            assert defined[value] is op
        for value in op.operands():
            assert op in used[value]
    start = next(op.result for op in kernel.body.ops if isinstance(op, ir.Compute))
    assert [type(op) for op in used[start]] == [ir.Load, ir.Store]  # read through views only
    loop = next(op for op in kernel.body.ops if isinstance(op, ir.For))
    assert loop.body.params[0] not in defined
    store = next(op for op in kernel.body.ops if isinstance(op, ir.Store))
    assert used[walk.kernel_values(kernel)[0]] and walk.terminator(kernel.body) is kernel.body.ops[-1]
    assert walk.views(store) == (store.view,) and walk.views(loop) == ()


def test_free_values_are_those_from_outside() -> None:
    kernel = sample()
    loop = next(op for op in kernel.body.ops if isinstance(op, ir.For))
    free = walk.free_values(loop.body)
    scalar = kernel.scalars[0].value
    assert scalar in free and len(free) == len(set(free))
    assert not set(free) & walk.defined_in(loop.body)
    assert walk.free_values(kernel.body) == (scalar,)


def test_terminator_of_an_open_block_is_an_error() -> None:
    with pytest.raises(ValueError):
        walk.terminator(ir.Block(ops=()))


def test_rewriting_nothing_keeps_every_object() -> None:
    kernel = sample()
    assert walk.rewrite_kernel(kernel, lambda op, values: None) is kernel
    assert walk.rewrite_kernel(kernel, lambda op, values: [op]) is kernel
    assert walk.Rewriter().kernel(kernel) is kernel
    assert walk.substitute(kernel.body, {}) is kernel.body
    for op in walk.kernel_ops(kernel):
        assert walk.map_operands(op, lambda v: v) is op
        assert walk.map_results(op, lambda v: v) is op


def test_a_clone_shares_no_value_and_means_the_same() -> None:
    kernel = sample()
    values: walk.ValueMap = {}
    clone = walk.clone_block(kernel.body, values)
    copied = replace(kernel, body=clone)
    verify(copied)
    assert not walk.defined_in(clone) & walk.defined_in(kernel.body)
    assert set(values) == walk.defined_in(kernel.body)
    assert not {id(op) for op in walk.walk(clone)} & {id(op) for op in walk.walk(kernel.body)}
    assert outcome(copied) == outcome(kernel)


def test_substitute_reaches_views_slices_and_nested_blocks() -> None:
    kernel = sample()
    every = {v for op in walk.kernel_ops(kernel) for v in op.operands()}
    for value in every:
        new = walk.fresh(value, "new")
        body = walk.substitute(kernel.body, {value: new})
        before, after = walk.uses(kernel.body), walk.uses(body)
        assert value not in after and len(after[new]) == len(before[value])


def test_a_rewrite_may_replace_by_several_ops_by_none_and_by_another_value() -> None:
    kernel = sample()

    def lower(op: ir.Op, values: walk.ValueMap) -> Sequence[ir.Op] | None:
        """Subtraction as addition of the negative; multiplication of a tile by 2 as x + x; drops constants 2.0."""
        if isinstance(op, ir.Compute) and op.fn == "sub":
            a, b = op.args
            negative = ir.Compute(span=op.span, result=walk.fresh(b, "neg"), fn="neg", args=(b,))
            total = ir.Compute(span=op.span, result=walk.fresh(op.result), fn="add", args=(a, negative.result))
            values[op.result] = total.result
            return [negative, total]
        if isinstance(op, ir.Compute) and op.fn == "mul" and op.args[1] in twos:
            return [replace(op, fn="add", args=(op.args[0], op.args[0]))]
        if isinstance(op, ir.Constant) and op.value == 2.0:
            twos.add(op.result)
            return []
        return None

    twos: set[ir.Value] = set()
    rewritten = walk.rewrite_kernel(kernel, lower)
    verify(rewritten)
    functions = [op.fn for op in walk.kernel_ops(rewritten) if isinstance(op, ir.Compute)]
    assert "sub" not in functions and "neg" in functions and len(twos) == 1
    assert outcome(rewritten) == outcome(kernel)


def test_values_replaced_twice_are_followed() -> None:
    kernel = sample()

    class Chain(walk.Rewriter):
        def visit(self, op: ir.Op) -> Sequence[ir.Op]:
            if isinstance(op, ir.Compute):
                first, second = walk.fresh(op.result), walk.fresh(op.result)
                self.replace_value(op.result, first)
                self.replace_value(first, second)
                self.replace_value(second, op.result)  # would close a circle: ignored
                return (replace(op, result=second),)
            return (op,)

    rewritten = Chain().kernel(kernel)
    verify(rewritten)
    assert outcome(rewritten) == outcome(kernel)


def test_ops_after_a_terminator_are_dropped() -> None:
    kernel = sample()

    def leave(op: ir.Op, values: walk.ValueMap) -> Sequence[ir.Op] | None:
        return [ir.Return(span=op.span)] if isinstance(op, ir.Store) else None

    body = walk.rewrite_block(kernel.body, leave)
    assert isinstance(body.ops[-1], ir.Return) and sum(isinstance(op, ir.Return) for op in body.ops) == 1


def test_a_loop_unrolled_with_inline_block_means_the_same() -> None:
    b = Builder()
    y = b.tensor("Y", "f32", 4)
    with b.for_(0, 6, 2, [b.full("f32", (4,), 1.0)]) as loop:
        assert loop.index is not None
        b.yield_(b.add(b.mul(loop.carried[0], 2.0), b.cast(loop.index, "f32")))
    b.store(y, [b.range(0, 4)], loop.results[0])
    kernel = b.finish()

    def unroll(op: ir.Op, values: walk.ValueMap) -> Sequence[ir.Op] | None:
        if not isinstance(op, ir.For):
            return None
        out: list[ir.Op] = []
        carried: tuple[ir.Value, ...] = op.inits
        for i in range(0, 6, 2):
            index = walk.fresh(op.lo)
            out.append(ir.Constant(span=op.span, result=index, value=i))
            ops, end = walk.inline_block(op.body, (index, *carried))
            out.extend(ops)
            carried = end.operands()
        values.update(zip(op.results, carried, strict=True))
        return out

    flat = walk.rewrite_kernel(kernel, unroll)
    verify(flat)
    assert not any(isinstance(op, ir.For) for op in walk.kernel_ops(flat))
    results = []
    for k in (kernel, flat):
        out = np.zeros(4, np.float32)
        run(k, {"Y": out})
        results.append(out.tolist())
    assert results[0] == results[1] == [16.0] * 4  # ((1*2 + 0)*2 + 2)*2 + 4
    with pytest.raises(ValueError):
        walk.inline_block(kernel.body, (kernel.dims[0].value,) if kernel.dims else (loop.results[0],))


def effects_of(build: Any) -> bool:
    b = Builder()
    b.tensor("Y", "f32", 4)
    build(b)
    body = b.finish().body
    return walk.has_effects(body.ops[-2])


def test_effects() -> None:
    def loop(inner: Any) -> Any:
        def build(b: Builder) -> None:
            with b.for_(0, 3):
                inner(b)

        return build

    def branch(inner: Any) -> Any:
        return lambda b: b.if_(b.constant(True, "bool"), lambda: inner(b))

    def store(b: Builder) -> None:
        b.store(b.tensors[0], [b.at(0)], 1.0)

    assert effects_of(store) and effects_of(loop(store)) and effects_of(branch(store))
    assert effects_of(lambda b: b.print("x")) and effects_of(lambda b: b.check(b.constant(True, "bool"), "t"))
    assert effects_of(loop(branch(lambda b: b.return_())))
    assert effects_of(lambda b: b.while_([], lambda: b.constant(False, "bool"), lambda: b.yield_()))
    assert not effects_of(lambda b: b.load(b.tensors[0], [b.at(0)]))
    assert not effects_of(loop(lambda b: b.constant(1, "i32")))
    assert not effects_of(loop(branch(lambda b: b.break_()))) and not effects_of(loop(branch(lambda b: b.continue_())))
    kernel = sample()
    loop_op = next(op for op in kernel.body.ops if isinstance(op, ir.For))
    breaking = next(op for op in loop_op.body.ops if isinstance(op, ir.If))
    assert walk.has_effects(breaking) and not walk.has_effects(loop_op)
    assert walk.has_effects(kernel.body.ops[-1])


def test_remove_dead_keeps_what_is_needed() -> None:
    kernel = sample()
    clean = replace(kernel, body=walk.remove_dead(kernel.body))
    verify(clean)
    assert clean.body is kernel.body or outcome(clean) == outcome(kernel)

    def add_dead(op: ir.Op, values: walk.ValueMap) -> Sequence[ir.Op] | None:
        if isinstance(op, ir.Compute) and op.fn == "add":
            dead = replace(op, result=walk.fresh(op.result, "dead"))
            more = replace(op, result=walk.fresh(op.result, "dead"), args=(dead.result, dead.result))
            return [op, dead, more]
        return None

    dirty = walk.rewrite_kernel(clean, add_dead)
    assert len(list(walk.kernel_ops(dirty))) > len(list(walk.kernel_ops(clean)))
    again = walk.remove_dead(dirty.body)
    assert [id(op) for op in again.ops if not op.blocks()] == [id(op) for op in clean.body.ops if not op.blocks()]
    assert len(list(walk.walk(again))) == len(list(walk.kernel_ops(clean)))
    # Without the store nothing is needed (a `while` counts as an effect, so it goes by hand).
    unstored = walk.rewrite_block(clean.body, lambda op, values: [] if isinstance(op, (ir.Store, ir.While)) else None)
    assert [type(op) for op in walk.remove_dead(unstored).ops] == [ir.Return]
    kept = walk.remove_dead(unstored, live=[op.result for op in unstored.ops if isinstance(op, ir.Reduce)])
    assert any(isinstance(op, ir.For) for op in kept.ops)
