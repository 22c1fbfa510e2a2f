"""The kernel of a bench: its example, with schedule options added where the command line asks for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import click

import phobos
from kbench.bench import Bench
from phobos import resources
from phobos.diagnostics import nearest
from phobos.ir.options import INTEGER_OPTIONS, OPTION_WORDS
from phobos.kernel import Kernel

_KERNEL = re.compile(r"^(@|kernel\b)", re.MULTILINE)


_Value = TypeVar("_Value")


def known_name(what: str, name: str, known: Collection[str]) -> str:
    """The name. Raises UsageError, with what is known and what may have been meant, for one that is unknown."""
    if name not in known:
        guess = nearest(name, known)
        hint = f". Did you mean {guess!r}?" if guess else ""
        raise click.UsageError(f"no {what} {name!r}; known: {', '.join(known)}{hint}")
    return name


def assignments(texts: Sequence[str], option: str, value_of: Callable[[str], _Value]) -> dict[str, _Value]:
    """`"BR=64 BC=32"` of an option by name. Raises UsageError for another form, and for a name with two values."""
    out: dict[str, _Value] = {}
    for item in " ".join(texts).replace(",", " ").split():
        name, equals, text = item.partition("=")
        if not equals or not name.isidentifier() or not text:
            raise click.UsageError(f"{option}: {item!r} is not NAME=VALUE")
        value = value_of(text)
        if out.setdefault(name, value) != value:
            raise click.UsageError(f"{option} gives {name} twice: {out[name]} and {value}")
    return out


def parse_pins(texts: Sequence[str]) -> dict[str, object]:
    """`"BR=64 BC=32"` as a configuration; words are kept (`matmul=fma`)."""

    def value_of(text: str) -> object:
        try:
            return int(text, 0)
        except ValueError:
            return text

    return assignments(texts, "--autotune", value_of)


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """`matmul=wmma` and so on as options of the schedule. Raises UsageError for what is none."""
    out = assignments(texts, "--option", str)
    known = (*OPTION_WORDS, *(n for n in INTEGER_OPTIONS if n not in OPTION_WORDS))
    for name, value in out.items():
        known_name("option", name, known)
        words = OPTION_WORDS.get(name, ())
        if value not in words and not (name in INTEGER_OPTIONS and value.isdecimal()):
            raise click.UsageError(f"--option: {name} is {', '.join(words)}, not {value!r}")
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
