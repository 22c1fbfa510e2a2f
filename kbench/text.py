"""The kernel of a bench: its example, with schedule options added where the command line asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

import phobos
from kbench.bench import Bench
from phobos import resources
from phobos.diagnostics import nearest
from phobos.ir.options import INTEGER_OPTIONS, OPTION_WORDS
from phobos.kernel import Kernel

_KERNEL = re.compile(r"^(@|kernel\b)", re.MULTILINE)


def parse_options(items: Sequence[str]) -> dict[str, str]:
    """`matmul=wmma` and so on as options of the schedule. Raises UsageError for what is none."""
    out: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not value:
            raise click.UsageError(f"--option: {item!r} is not NAME=VALUE")
        known = (*OPTION_WORDS, *(n for n in INTEGER_OPTIONS if n not in OPTION_WORDS))
        if name not in known:
            guess = nearest(name, known)
            hint = f". Did you mean {guess!r}?" if guess else ""
            raise click.UsageError(f"--option: no option {name!r}; known: {', '.join(known)}{hint}")
        words = OPTION_WORDS.get(name, ())
        if value not in words and not (name in INTEGER_OPTIONS and value.isdecimal()):
            raise click.UsageError(f"--option: {name} is {', '.join(words)}, not {value!r}")
        if out.setdefault(name, value) != value:
            raise click.UsageError(f"--option gives {name} twice: {out[name]} and {value}")
    return out


def load_kernel(bench: Bench, options: Mapping[str, str] | None = None) -> Kernel:
    """The bench's kernel. With options the text gets a line `@options(...)`; PH0303 where it has one of its own."""
    path = resources.examples_dir() / bench.example
    if not options:
        return phobos.load(str(path))
    text = path.read_text(encoding="utf-8")
    words = ", ".join(f"{name} = {value}" for name, value in options.items())
    return phobos.jit(_KERNEL.sub(f"@options({words}) \\1", text, count=1), name=str(path))


def implementation(options: Mapping[str, str] | None) -> str:
    """The `impl` of result rows: `phobos`, or `phobos:wmma` and `phobos:stages=2` where options were given."""
    parts = [value if name == "matmul" else f"{name}={value}" for name, value in (options or {}).items()]
    return ":".join(["phobos", *parts])
