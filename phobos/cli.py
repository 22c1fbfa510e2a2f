"""The command line: `phobos compile | check | run | trace | fmt | doctor | kbench`.

Exit status: 0, 1 for diagnostics, 2 for wrong usage, 130 for Ctrl-C, 141 for a closed pipe. Nothing but click is
imported before a command is known, so that each starts as fast as what it needs.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from phobos import __version__
from phobos.commands.assignments import (
    Assignments,
    Positive,
    SpreadCommand,
    Value,
    flatten,
    integers,
    numbers,
    parse_value,
)
from phobos.console import paint, print_diagnostics
from phobos.diagnostics import Diagnostic, PhobosError, missing_package

EMITS = ("cuda", "ptx", "cubin", "ir", "scheduled", "report", "candidates")
BACKENDS = ("auto", "cuda", "emulator", "reference")

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

# What a write to a full or broken standard output fails with; unlike those of open, such errors name no file.
_WRITE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF)


class _ClosedPipe(Exception):
    """A BrokenPipeError on its way out; click would turn that into exit status 1, which means diagnostics here."""


class Guarded(click.Command):
    """A command of which every way out is an exit status and a message, never a traceback."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        extra["standalone_mode"] = False
        _complete_streams()
        try:
            with _plain_warnings():
                status = super().main(args=args, prog_name=prog_name or self.name, **extra)
            _flush()
        except click.exceptions.NoArgsIsHelpError as e:
            click.echo(e.ctx.get_help() if e.ctx else e.message, err=True)
            sys.exit(2)
        except click.ClickException as e:
            e.show()
            sys.exit(e.exit_code)
        except PhobosError as e:
            print_diagnostics(e.diagnostics, e.source)
            sys.exit(1)
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            sys.exit(130)
        except _ClosedPipe:
            _abandon_output()
            sys.exit(141)
        except MemoryError as e:
            detail = f": {e}" if str(e) else ""
            print_diagnostics([Diagnostic(code="PH1098", message=f"there is not enough memory{detail}")])
            sys.exit(1)
        except OSError as e:
            if e.errno not in _WRITE_ERRORS or e.filename is not None:
                _internal_error(e)
            _abandon_output()
            print_diagnostics([Diagnostic(code="PH1006", message=f"cannot write standard output: {e.strerror}")])
            sys.exit(1)
        except ModuleNotFoundError as e:
            missing = missing_package(e)
            if missing is None:
                _internal_error(e)
            print_diagnostics([missing])
            sys.exit(1)
        except Exception as e:
            _internal_error(e)
        sys.exit(status if isinstance(status, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:  # --help and --version print here
            return super().make_context(*args, **extra)
        except BrokenPipeError as e:
            raise _ClosedPipe from e

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as e:
            raise _ClosedPipe from e


class Cli(Guarded, click.Group):
    """The root group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "kbench"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name == "kbench":
            from kbench.cli import command

            return command
        return super().get_command(ctx, name)


def _complete_streams() -> None:
    """A process may be started without standard streams, which Python gives as None: they are then empty."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def _abandon_output() -> None:
    """Nobody takes what is still buffered; without this Python complains when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Python warnings (the cache cannot be used) without the place in the code: each kind once, of those about kernels
    each text."""
    before = warnings.showwarning
    seen: set[object] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        kernel = sys.modules.get("phobos.kernel")
        what = str(message) if kernel is not None and issubclass(category, kernel.KernelWarning) else category
        if what not in seen:
            seen.add(what)
            click.echo(paint("warning", str(message), err=True), err=True)

    warnings.showwarning = show  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = before


def _write_binary(data: bytes) -> None:
    """To standard output. Unbuffered streams (PYTHONUNBUFFERED) may write less than they are given."""
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) or 0 :]
    sys.stdout.buffer.flush()


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError as e:
        raise _ClosedPipe from e


def _internal_error(error: BaseException) -> NoReturn:
    from phobos import settings

    if settings.show_traceback():
        raise error
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at is not None else "unknown place"
    diagnostic = Diagnostic(
        code="PH1099",
        message=f"internal error at {where}: {type(error).__name__}: {error}",
        notes=("this is a fault of Phobos, not of the kernel",),
        help="PHOBOS_TRACEBACK=1 shows where it comes from",
    )
    print_diagnostics([diagnostic])
    sys.exit(1)


@click.group("phobos", cls=Cli, context_settings=HELP)
@click.version_option(__version__, prog_name="phobos", message="%(prog)s %(version)s")
def cli() -> None:
    """Phobos compiles tile kernels (.ph) to CUDA, and runs them on a GPU, on a checking CPU emulator or on NumPy."""


_file = click.argument("file", metavar="FILE")
_kernel = click.option("--kernel", metavar="NAME", help="Which kernel, where the file has several.")
_set = click.option(
    "--set", "settings", type=Assignments(), multiple=True, help="Fix an @autotune name or a const: --set BR=64."
)
_dtype = click.option("--dtype", "dtypes", type=Assignments(), multiple=True, help="Bind a dtype name: --dtype T=f16.")
_dim = click.option("--dim", "dims", type=Assignments(), multiple=True, help="Extent of a dim: --dim N=4096.")


@cli.command("compile", cls=SpreadCommand)
@_file
@click.option("--arch", metavar="ARCH", help="Architecture, such as sm_80; the device's own, else sm_90a, if left out.")
@_set
@_dtype
@_dim
@_kernel
@click.option("--emit", type=click.Choice(EMITS), help="Write this stage instead of a summary.")
@click.option("-o", "--output", metavar="OUT", help="Where --emit goes (default: standard output).")
@click.option("--fast-math", is_flag=True, help="Approximate exp and division, denormals flushed to zero.")
@click.option("--debug", is_flag=True, help="Keep print and assert.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
def compile_command(
    file: str,
    arch: str | None,
    settings: Sequence[Sequence[tuple[str, str]]],
    dtypes: Sequence[Sequence[tuple[str, str]]],
    dims: Sequence[Sequence[tuple[str, str]]],
    kernel: str | None,
    emit: str | None,
    output: str | None,
    fast_math: bool,
    debug: bool,
    as_json: bool,
) -> None:
    """Compile FILE ("-": standard input) and print what was decided. Needs no GPU.

    --dim says for which extents: they guide the choice of a configuration, and what divides them decides how wide
    accesses are. Extents that are left out count as 4096.
    """
    from phobos.commands import compile as command
    from phobos.files import check_outputs, write_output

    emit = emit or command.emit_for_suffix(output)
    if output is not None and emit is None:
        raise click.UsageError(f"-o {output} needs --emit {'|'.join(EMITS)}")
    if as_json and emit is not None:
        raise click.UsageError("--json is the summary's format; it does not go with --emit")
    request = command.Request(
        file=file,
        arch=arch,
        config={n: parse_value(t) for n, t in flatten(settings, "--set").items()},
        dtypes=flatten(dtypes, "--dtype"),
        dims=integers(flatten(dims, "--dim"), "--dim"),
        kernel=kernel,
        fast_math=fast_math,
        debug=debug,
    )
    if emit is None:
        click.echo(command.summary(request, as_json=as_json))
        return
    check_outputs({"-o": output}, read=file)
    data = command.emit(request, emit)
    if output is not None and output != "-":
        write_output(output, data)
        return
    if emit == "cubin" and sys.stdout.isatty():
        raise click.UsageError("a cubin is binary: give -o OUT or a pipe")
    _write_binary(data)


@cli.command("check", cls=SpreadCommand)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@_set
@_dtype
@_kernel
@click.option("--json", "as_json", is_flag=True, help="Diagnostics, kernels and search spaces as JSON.")
def check_command(
    files: tuple[str, ...],
    settings: Sequence[Sequence[tuple[str, str]]],
    dtypes: Sequence[Sequence[tuple[str, str]]],
    kernel: str | None,
    as_json: bool,
) -> None:
    """Check FILEs and print each kernel with its search space."""
    from phobos.commands import check as command

    config = {n: parse_value(t) for n, t in flatten(settings, "--set").items()}
    types = flatten(dtypes, "--dtype")
    results = [command.check(file, kernel=kernel, config=config, dtypes=types) for file in files]
    if as_json:
        click.echo(command.to_json(dict(zip(files, results, strict=True)) if len(files) > 1 else results[0]))
    else:
        for number, (file, result) in enumerate(zip(files, results, strict=True)):
            if len(files) > 1:
                click.echo(("\n" if number else "") + file)
            print_diagnostics(result.diagnostics, result.source)
            text = result.text()
            if text:
                click.echo(text)
    if not all(r.good for r in results):
        raise click.exceptions.Exit(1)


@cli.command("run", cls=SpreadCommand)
@_file
@_dim
@_set
@_dtype
@click.option(
    "--scalar",
    "scalars",
    type=Assignments(),
    multiple=True,
    help="A scalar argument: --scalar scale=0.125. Left out it is 0.5, an integer 1, a bool true.",
)
@_kernel
@click.option("--backend", type=click.Choice(BACKENDS), default="auto", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
@click.option("--check/--no-check", "compare", default=True, help="Compare with the float64 reference.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def run_command(
    file: str,
    dims: Sequence[Sequence[tuple[str, str]]],
    settings: Sequence[Sequence[tuple[str, str]]],
    dtypes: Sequence[Sequence[tuple[str, str]]],
    scalars: Sequence[Sequence[tuple[str, str]]],
    kernel: str | None,
    backend: str,
    seed: int,
    compare: bool,
    as_json: bool,
) -> None:
    """Run FILE once on random inputs and compare what it wrote with the float64 reference.

    Every dim needs its extent. A dtype name that --dtype does not bind is f32. A vector of integers holds distinct
    positions, other integers are small.
    """
    from phobos.commands import run as command

    result = command.run(
        file,
        dims=integers(flatten(dims, "--dim"), "--dim"),
        config={n: parse_value(t) for n, t in flatten(settings, "--set").items()},
        dtypes=flatten(dtypes, "--dtype"),
        scalars=numbers(flatten(scalars, "--scalar"), "--scalar"),
        kernel=kernel,
        backend=backend,
        seed=seed,
        compare=compare,
    )
    click.echo(result.to_json() if as_json else result.text())
    if not result.good:
        raise click.exceptions.Exit(1)


@cli.command("trace", cls=SpreadCommand)
@_file
@_dim
@_set
@_dtype
@click.option(
    "--scalar",
    "scalars",
    type=Assignments(),
    multiple=True,
    help="A scalar argument (default 0.5, 1 for integers, true for bool).",
)
@_kernel
@click.option("--arch", metavar="ARCH", help="Architecture to compile for (default sm_90a).")
@click.option("--compare", type=Assignments(), multiple=True, help="A second configuration beside: --compare BR=16.")
@click.option("--emulator", is_flag=True, help="Record addresses on the emulator too, and compare them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random inputs.")
@click.option(
    "-o",
    "--output",
    metavar="OUT.html",
    help="Where the page goes, - is standard output (default: FILE's name with .html, here; with --json no page).",
)
@click.option(
    "--json",
    "json_output",
    metavar="OUT.json",
    help="Where the trace goes as JSON, - is standard output. Without -o this is all that is written.",
)
@click.option(
    "--max-size",
    type=Positive(),
    default=20,
    show_default=True,
    metavar="MB",
    help="The largest trace to write.",
)
def trace_command(
    file: str,
    dims: Sequence[Sequence[tuple[str, str]]],
    settings: Sequence[Sequence[tuple[str, str]]],
    dtypes: Sequence[Sequence[tuple[str, str]]],
    scalars: Sequence[Sequence[tuple[str, str]]],
    kernel: str | None,
    arch: str | None,
    compare: Sequence[Sequence[tuple[str, str]]],
    emulator: bool,
    seed: int,
    output: str | None,
    json_output: str | None,
    max_size: float,
) -> None:
    """Show FILE step by step: one page with tiles, lanes, addresses and the compiler's decisions. Needs no GPU.

    What is left open is small: the smallest tiles that compile, two blocks along the grid, three turns of each loop.
    """
    from phobos.commands import trace as command

    if output == json_output == "-":
        raise click.UsageError("the page and the JSON cannot both go to standard output")

    def assigned(pairs: Sequence[Sequence[tuple[str, str]]], option: str) -> dict[str, Value]:
        return {n: parse_value(t) for n, t in flatten(pairs, option).items()}

    for line in command.trace(
        file,
        dims=integers(flatten(dims, "--dim"), "--dim"),
        config=assigned(settings, "--set"),
        dtypes=flatten(dtypes, "--dtype"),
        scalars=numbers(flatten(scalars, "--scalar"), "--scalar"),
        kernel=kernel,
        arch=arch,
        compare=assigned(compare, "--compare") or None,
        emulator=emulator,
        seed=seed,
        output=output,
        json_output=json_output,
        max_size=max_size,
    ):
        click.echo(line, err="-" in (output, json_output))


@cli.command("fmt")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if something would change.")
def fmt_command(files: Sequence[str], check_only: bool) -> None:
    """Format FILEs in place ("-": standard input to standard output)."""
    from phobos.commands.fmt import format_file

    changed = [f for f in files if format_file(f, write=not check_only)]
    for name in changed if check_only or len(files) > 1 else ():
        click.echo(f"{'would reformat' if check_only else 'formatted'} {name}", err=True)
    if check_only and changed:
        raise click.exceptions.Exit(1)


@cli.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="The checks as JSON.")
def doctor_command(as_json: bool) -> None:
    """Say what this machine has and what is missing."""
    from phobos import doctor

    checks = doctor.examine()
    good = doctor.usable(checks)
    if as_json:
        import json

        click.echo(json.dumps({"version": 1, "ok": good, "checks": [c.to_json() for c in checks]}, indent=2))
    else:
        click.echo(doctor.render(checks, paint))
    if not good:
        raise click.exceptions.Exit(1)


def main() -> NoReturn:
    """The console script."""
    cli.main()


if __name__ == "__main__":
    main()
