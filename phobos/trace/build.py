"""From a configured kernel and arguments to the trace as JSON (FORMAT.md): the reference gives the steps, the schedule
gives where and how threads do them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from phobos.codegen.context import Printer
from phobos.codegen.kernel import print_kernel
from phobos.codegen.statements import print_all
from phobos.codegen.writer import Writer
from phobos.ir import scheduled as s
from phobos.ir import tile as ir
from phobos.ir.abi import Program, Specialization, TensorArg
from phobos.ir.scheduled_printer import print_statement
from phobos.ir.storage import Buffer, BufferRef, Expr, Fragment, FragmentRef, Opaque, expr_walk
from phobos.ir.walk import kernel_ops, rewrite_kernel
from phobos.passes import pipeline
from phobos.reference.numerics import from_storage
from phobos.runtime.pipeline import Frontend, Request
from phobos.semantic.check import check_kernel_with_warnings
from phobos.source import SourceFile, Span
from phobos.target import Target
from phobos.trace import record
from phobos.trace.attach import attach, makes
from phobos.trace.encode import Encoder, Json, buffer_json
from phobos.trace.events import BlockRun, Mark, Marker, Step, Touch, follow
from phobos.trace.machine import Executed, Machine

VERSION = 1


def build(
    frontend: Frontend,
    request: Request,
    spec: Specialization,
    target: Target,
    arrays: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any],
    dims: Mapping[str, int],
    grid: tuple[int, int, int],
    *,
    reason: str = "",
    assumed: Sequence[str] = (),
    emulator: bool = False,
    max_size: float = math.inf,
) -> Json:
    """The trace of one run; the arrays stay as they are. `assumed`: scalars and compile-time parameters that nobody
    gave. `emulator`: also runs the emitted text, records its addresses
    and says whether they are those of the layouts.

    Raises CompileError, and LaunchError as the reference does and for runs that are too long or have a trace of more
    than `max_size` MB (PH1020).
    """
    lowered = pipeline.run(frontend.ir(request), target, spec)
    configuration = ", ".join(f"{n} = {v}" for n, v in lowered.kernel.configuration)
    program = print_kernel(lowered.schedule, frontend.source, configuration)
    runs = _steps(frontend, request, lowered.kernel, _copies(arrays), scalars, grid)
    machine = Machine(lowered.schedule, _copies(arrays), scalars, dims, grid)
    hardware = machine.hardware_blocks()
    executed = [machine.run(hardware[run.block]) for run in runs]
    trace = _Writer(lowered, program, frontend.source, arrays, max_size * 1e6).write(runs, executed)
    trace["kernel"] |= {
        "arch": target.arch, "dims": dict(dims), "grid": list(grid), "reason": reason,
        "scalars": {n: _plain(v) for n, v in scalars.items()}, "assumed": list(assumed),
    }  # fmt: skip
    if emulator:
        by_block = dict(zip((run.block for run in runs), executed))
        in_order = [by_block.get(block, []) for block in hardware]
        trace["emulator"] = _emulated(program, arrays, scalars, dims, grid, in_order)
    return trace


def _copies(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies with the same strides."""
    out = {}
    for name, array in arrays.items():
        copy = np.empty_like(array)  # keeps the order of axes
        if copy.strides != array.strides:
            span = sum((n - 1) * abs(st) for n, st in zip(array.shape, array.strides)) + array.itemsize
            if array.size and all(st >= 0 for st in array.strides):
                copy = np.ndarray(array.shape, array.dtype, np.zeros(span, np.uint8).data, 0, array.strides)
        copy[...] = array
        out[name] = copy
    return out


def _plain(value: Any) -> Any:
    """As JSON has it; infinities and NaN as text."""
    value = value.item() if hasattr(value, "item") else value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _steps(
    frontend: Frontend, request: Request, lowered: ir.KernelIR, arrays: Mapping[str, np.ndarray],
    scalars: Mapping[str, Any], grid: tuple[int, int, int],
) -> list[BlockRun]:  # fmt: skip
    """The reference's run of the text as it stands, with products of the kinds that the compiler chose."""
    marker = Marker()
    kernel, _ = check_kernel_with_warnings(
        frontend.module(), request.kernel, config=dict(request.config), dtypes=dict(request.dtypes),
        consts=dict(request.consts), observe=marker,
    )  # fmt: skip
    kinds: dict[Span, str | None] = {op.span: op.kind for op in kernel_ops(lowered) if isinstance(op, ir.Dot)}

    def fix(op: ir.Op, values: Any) -> Sequence[ir.Op] | None:
        if isinstance(op, ir.Dot) and kinds.get(op.span) is not None:
            return [replace(op, kind=kinds[op.span])]
        return None

    kernel = rewrite_kernel(kernel, fix)
    return follow(kernel, marker.marks, {**arrays, **scalars}, grid, frontend.source)


def _emulated(
    program: Program, arrays: Mapping[str, np.ndarray], scalars: Mapping[str, Any], dims: Mapping[str, int],
    grid: tuple[int, int, int], executed: Sequence[Sequence[Executed]],
) -> Json:  # fmt: skip
    from phobos import emulator

    result = emulator.run(program, {**_copies(arrays), **scalars}, dims=dims, grid=grid, record=True)
    tensors = [a.name for a in program.args if isinstance(a, TensorArg)]
    assert result.accesses is not None
    found = record.differences(record.as_records(executed, tensors), result.accesses, record.opaque_lines(executed))
    return {
        "accesses": len(result.accesses), "equal": not found, "differences": found,
        "reports": [f"line {r.line}: {r.kind}: {r.text}" for r in result.reports],
    }  # fmt: skip


# --- the document ------------------------------------------------------------------------------


class _Writer:
    def __init__(
        self, lowered: pipeline.Lowered, program: Program, source: SourceFile, arrays: Mapping[str, np.ndarray],
        most: float,
    ):  # fmt: skip
        self.kernel, self.schedule = lowered.kernel, lowered.schedule
        self.program, self.source, self.arrays = program, source, arrays
        self.encoder = Encoder(most)
        self.statements: dict[s.Stmt, int] = {}
        self.fragments: dict[str, Fragment | Opaque] = {}
        self.static: list[Json] = []
        self.cuda = program.body.splitlines()
        self.lines = self._cuda_lines()

    def _cuda_lines(self) -> dict[s.Stmt, tuple[int, int]]:
        """First and past-the-last line in the emitted body, from 0, of each statement."""
        writer = Writer(self.source)
        printer = Printer(self.schedule, writer)
        body = self.schedule.body
        print_all(printer, body[:-1] if body and isinstance(body[-1], s.ReturnStmt) else body)
        text = writer.text().splitlines()
        start = next((i for i in range(len(self.cuda)) if self.cuda[i : i + len(text)] == text), None)
        if start is None or not text:
            return {}
        return {x: (first + start, last + start) for x, (first, last) in printer.lines.items()}

    def write(self, runs: Sequence[BlockRun], executed: Sequence[Sequence[Executed]]) -> Json:
        ctas = [self._cta(run, done) for run, done in zip(runs, executed)]
        kernel = self.kernel
        written = {a.name for a in self.program.args if isinstance(a, TensorArg) and a.written}
        read = {a.name for a in self.program.args if isinstance(a, TensorArg) and a.read}
        tensors = []
        for t in kernel.tensors:
            array = self.arrays[t.name]
            tensors.append(
                {
                    "name": t.name,
                    "dtype": str(t.type.dtype),
                    "type": str(t.type),
                    "shape": list(array.shape),
                    "strides": [st // array.itemsize for st in array.strides],
                    "itemsize": t.type.dtype.bytes,
                    "read": t.name in read,
                    "written": t.name in written,
                    "initial": self.encoder.array(from_storage(array, t.type.dtype)),
                }  # fmt: skip
            )
        fragments = [
            {"name": f.name, "dtype": str(f.dtype) if isinstance(f, Fragment) else "f32",
             "opaque": isinstance(f, Opaque), "layout": self.encoder.layout(f.layout)}
            for f in self.fragments.values()
        ]  # fmt: skip
        buffers = [buffer_json(b, self.schedule.offsets[b]) for b in self.schedule.offsets]
        return {
            "format": "phobos-trace",
            "version": VERSION,
            "kernel": {
                "name": kernel.name, "file": self.source.name, "source": list(self.source.lines),
                "configuration": {n: _plain(v) for n, v in kernel.configuration}, "threads": self.schedule.threads,
                "shared_bytes": self.schedule.shared_bytes, "index_bits": self.schedule.index_bits,
            },
            "tensors": tensors,
            "fragments": fragments,
            "buffers": buffers,
            "statements": self.static,
            "decisions": [d.to_json() for d in self.schedule.decisions],
            "cuda": self.cuda,
            "ctas": ctas,
            "layouts": self.encoder.layouts.items,
            "patterns": self.encoder.patterns.items,
            "accesses": self.encoder.accesses.items,
            "data": self.encoder.data.items,
        }  # fmt: skip

    # --- statements ------------------------------------------------------------------------

    def _statement(self, x: s.Stmt) -> int:
        found = self.statements.get(x)
        if found is not None:
            return found
        reads, writes = _storage(x)
        for held in (*reads, *writes):
            if not isinstance(held, Buffer):
                self.fragments.setdefault(held.name, held)
        item: Json = {
            "kind": type(x).__name__.removesuffix("Stmt"), "line": x.span.line, "text": print_statement(x),
            "note": x.note,
            "cuda": list(self.lines[x]) if x in self.lines else None,
            "reads": [i.name for i in reads], "writes": [i.name for i in writes],
        }  # fmt: skip
        if isinstance(x, s.Barrier):
            item["reasons"] = list(x.reasons)
        if isinstance(x, s.AsyncWait):
            item["pending"] = x.pending
        plan = getattr(x, "plan", None)
        if plan is not None:
            item["room"], item["description"] = plan.room, plan.description
        self.static.append(item)
        self.statements[x] = len(self.static) - 1
        return len(self.static) - 1

    # --- blocks ----------------------------------------------------------------------------

    def _cta(self, run: BlockRun, executed: Sequence[Executed]) -> Json:
        steps = []
        for step, numbers in zip(run.steps, attach(run.steps, executed)):
            steps.append(self._step(step, [executed[n] for n in numbers], numbers))
        last: dict[int, int] = {}
        for i, step in enumerate(run.steps):
            for _, made, _ in step.reads:
                if made >= 0:
                    last[made] = i
        for i, item in enumerate(steps):
            item["last_read"] = last.get(i, i)
            if "value" in item and not item["held"]:
                item["folded"] = self._folded(i, run.steps, steps)
        return {"block": list(run.block), "steps": steps}

    def _step(self, step: Step, executed: Sequence[Executed], numbers: Sequence[int]) -> Json:
        mark = step.mark
        span = mark.span
        item: Json = {
            "kind": mark.kind, "name": mark.name, "line": span.line, "column": span.column, "end_line": span.end_line,
            "end_column": span.end_column, "path": [list(p) for p in step.path], "calls": list(mark.calls),
            "reads": [{"name": n, "step": made, "tensor": t} for n, made, t in step.reads],
            "touches": [self._touch(t) for t in step.touches],
            "flops": step.flops, "bytes_read": step.bytes_read, "bytes_written": step.bytes_written,
        }  # fmt: skip
        if step.value is not None:
            assert mark.value is not None
            item["dtype"], item["shape"] = str(mark.value.dtype), list(mark.value.shape)
            item["value"] = self.encoder.array(step.value)
        if step.box is not None:
            item["box"] = self._touch(step.box)
        done = []
        for e, number in zip(executed, numbers):
            entry: Json = {"order": number, "statement": self._statement(e.statement)}
            if e.path:
                entry["path"] = [list(p) for p in e.path]
            if e.log.requests:
                entry["accesses"] = self.encoder.log(e.log)
            if e.log.shuffles:
                entry["shuffles"] = [list(x) for x in e.log.shuffles]
            if e.unknown:
                entry["unknown"] = e.unknown
            done.append(entry)
        item["executions"] = done
        self.encoder.count(400 + 60 * len(done))
        item["held"] = self._held(mark, executed)
        return item

    def _held(self, mark: Mark, executed: Sequence[Executed]) -> Json:
        """Where the tile that the step makes is: {"registers": fragment, "shared": buffer}; empty where it is evaluated
        only inside of what reads it."""
        best: dict[str, tuple[tuple[bool, int], str]] = {}
        if mark.value is None:
            return {}
        for place, e in enumerate(executed):
            for item in _storage(e.statement)[1]:
                if tuple(item.layout.shape) != mark.value.shape:
                    continue
                named = item.name == mark.name or item.name.startswith(f"{mark.name}_")
                where = "shared" if isinstance(item, Buffer) else "registers"
                if where == "shared" and not named:
                    continue  # a tile of the same shape on its way elsewhere
                if where not in best or (named, place) >= best[where][0]:
                    best[where] = ((named, place), item.name)
        return {where: name for where, (_, name) in best.items()}

    def _folded(self, number: int, steps: Sequence[Step], items: Sequence[Json]) -> Json:
        """Of a tile without statements that write it: the first step whose statements do its work, and where its
        variable is there; empty where nothing reads it."""
        readers: set[int] = {number}
        for i in range(number + 1, len(steps)):
            if not any(made in readers for _, made, _ in steps[i].reads):
                continue
            if not items[i]["executions"]:
                readers.add(i)  # folded as well
                continue
            out: Json = {"step": i}
            for e in items[i]["executions"]:
                statement = self.static[e["statement"]]
                for name in (*statement["writes"], *statement["reads"]):
                    held = self.fragments.get(name)
                    if held is not None and makes(steps[number], name, tuple(held.layout.shape)):
                        out.setdefault("registers", name)
            return out
        return {}

    def _touch(self, t: Touch) -> Json:
        axes: list[Any] = []
        for index in t.axes:
            if len(index) and (np.diff(index) == 1).all():
                axes.append({"start": int(index[0]), "length": len(index)})
            else:
                axes.append({"positions": [int(i) for i in index]})
        out: Json = {"tensor": t.tensor, "write": t.write, "axes": axes, "dropped": list(t.dropped)}
        if t.atomic:
            out["atomic"] = True
        if t.values is not None:
            out["values"] = self.encoder.array(t.values)
        return out


# What of a statement is written; the rest of its storage is read.
_WRITTEN = frozenset({"target", "targets", "accumulator", "old"})
_WRITES_BUFFER = (s.GlobalToShared, s.AsyncCopy, s.WriteShared)


def _storage(x: s.Stmt) -> tuple[list[Fragment | Opaque | Buffer], list[Fragment | Opaque | Buffer]]:
    """Registers and buffers that the statement reads, and those that it writes."""
    reads: dict[Any, None] = {}
    writes: dict[Any, None] = {}
    for f in fields(x):
        if f.name in ("body", "head", "then", "orelse", "span"):
            continue
        value = getattr(x, f.name)
        written = (
            f.name in _WRITTEN
            or (f.name == "buffer" and isinstance(x, _WRITES_BUFFER))
            or (f.name == "scratch" and isinstance(x, s.ReducePublish))
        )
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, (Fragment, Opaque, Buffer)):
                (writes if written else reads)[item] = None
            elif isinstance(item, s.GlobalView):
                for axis in item.axes:
                    if isinstance(axis, s.GatherAxis):
                        reads[axis.index] = None
            elif isinstance(item, Expr):
                for e in expr_walk(item):
                    if isinstance(e, FragmentRef):
                        reads[e.fragment] = None
                    elif isinstance(e, BufferRef):
                        reads[e.buffer] = None
    return list(reads), list(writes)
