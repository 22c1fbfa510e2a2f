"""The complete text of a kernel: skeleton from a template, statements from the printer, prelude parts that it uses."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from phobos.codegen.context import Printer
from phobos.codegen.prelude import select
from phobos.codegen.statements import print_all
from phobos.codegen.writer import Writer
from phobos.ir.abi import DimArg, Program, ScalarArg, StrideArg, TensorArg
from phobos.ir.c_names import c_identifier, c_type
from phobos.ir.scheduled import ReturnStmt, Schedule
from phobos.resources import templates_dir
from phobos.source import SourceFile

if TYPE_CHECKING:
    import jinja2


@cache
def _template() -> "jinja2.Template":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("kernel.cu.j2")


def print_kernel(schedule: Schedule, source: SourceFile, configuration: str = "") -> Program:
    """The Program of a schedule that has offsets and barriers."""
    writer = Writer(source)
    printer = Printer(schedule, writer)
    statements = schedule.body
    if statements and isinstance(statements[-1], ReturnStmt):
        statements = statements[:-1]
    print_all(printer, statements)
    body = _template().render(
        name=c_identifier(schedule.name),
        source=" ".join(source.name.split()),
        configuration=configuration or "no configuration",
        threads=schedule.threads,
        shared_bytes=schedule.shared_bytes,
        dynamic_shared=schedule.dynamic_shared,
        launch=_launch(schedule),
        params=_params(schedule),
        declarations=printer.threads.declarations,
        body=writer.text(),
    )
    return Program(
        name=c_identifier(schedule.name),
        source_name=source.name,
        body=body,
        prelude=select(body, dynamic_shared=schedule.dynamic_shared, shared_bytes=schedule.shared_bytes),
        args=schedule.args,
        threads=schedule.threads,
        grid=schedule.grid,
        shared_bytes=schedule.shared_bytes,
        dynamic_shared=schedule.dynamic_shared,
        index_bits=schedule.index_bits,
        granule=_granule(schedule),
        min_blocks=schedule.min_blocks,
        max_regs=schedule.max_regs,
        fast_math=schedule.fast_math,
        debug=schedule.debug,
        decisions=schedule.decisions,
    )


def _launch(s: Schedule) -> str:
    if s.max_regs is not None:
        return f"PH_KERNEL_REGS({s.threads}, {s.min_blocks or 1}, {s.max_regs})"
    return f"PH_KERNEL({s.threads}, {s.min_blocks or 1})"


def _params(s: Schedule) -> list[str]:
    index = "int" if s.index_bits == 32 else "ph_i64"
    out: list[str] = []
    for a in s.args:
        if isinstance(a, TensorArg):
            const = "" if a.written else "const "
            restrict = "PH_RESTRICT " if a.name in s.restrict else ""
            out.append(f"ph_global<{const}{c_type(a.dtype, s.index_bits)}> {restrict}{c_identifier(a.name)}")
        elif isinstance(a, ScalarArg):
            out.append(f"const {c_type(a.dtype, s.index_bits)} {c_identifier(a.name)}")
        elif isinstance(a, DimArg):
            out.append(f"const {index} {c_identifier(a.name)}")
        else:
            assert isinstance(a, StrideArg)
            out.append(f"const {index} {c_identifier(a.tensor)}_stride{a.axis}")
    return out


def _granule(s: Schedule) -> int:
    """The smallest element size in shared memory: 1, 2 or 4 bytes."""
    sizes = [b.dtype.bytes for b in s.offsets]
    return min([4, *sizes])
