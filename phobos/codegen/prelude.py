"""The CUDA prelude: device helpers `ph_*`, split into parts of which a program gets those that it uses.

NVRTC time counts, so the text in front of a kernel holds only the parts whose helpers occur in it. A part is a file
`codegen_templates/prelude/<part>.cuh` (or `.cuh.j2`) that begins with the lines

    // part: <name>
    // needs: <parts that must stand before it>
    // provides: <helpers>                              (any number of such lines)

The host prelude of the emulator has the same parts: `host/<part>.h` where the host differs, else the same file.
HELPERS.md beside the parts is the reference of every helper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import jinja2

from phobos.resources import templates_dir

# Parts in the order in which they are printed: a part needs only earlier ones.
PARTS = (
    "core", "vector", "shuffle", "integer", "rounding", "half", "convert", "float8", "math", "math_fast", "atomic",
    "debug", "mma", "wmma", "cp_async", "hopper", "wgmma",
)  # fmt: skip
_NAME = re.compile(r"\b(?:ph|PH)_\w+")
_WGMMA = re.compile(r"\bph_wgmma_(ss|rs)_(\w+?)<\s*(\d+)\s*,\s*(\d+)")


@dataclass(frozen=True)
class Part:
    """A part: its text for the GPU (without the heading) and for the host, the parts it needs, the helpers it
    provides."""

    name: str
    text: str
    host_text: str
    needs: tuple[str, ...]
    provides: tuple[str, ...]
    is_template: bool


@cache
def parts() -> Mapping[str, Part]:
    """All parts by name, in printing order."""
    return {name: _read(name) for name in PARTS}


def _read(name: str) -> Part:
    folder = templates_dir() / "prelude"
    path = folder / f"{name}.cuh"
    is_template = not path.is_file()
    if is_template:
        path = folder / f"{name}.cuh.j2"
    needs: list[str] = []
    provides: list[str] = []
    body: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("// needs:"):
            needs += line.removeprefix("// needs:").split()
        elif line.startswith("// provides:"):
            provides += line.removeprefix("// provides:").split()
        elif not line.startswith("// part:"):
            body.append(line)
    text = "\n".join(body) + "\n"
    host = folder / "host" / f"{name}.h"
    host_text = host.read_text(encoding="utf-8") if host.is_file() else text
    return Part(name, text, host_text, tuple(needs), tuple(provides), is_template)


@cache
def helpers() -> Mapping[str, tuple[str, ...]]:
    """Helper name -> the parts that a text using it needs (nearly always one)."""
    out: dict[str, tuple[str, ...]] = {}
    for part in parts().values():
        for helper in part.provides:
            out[helper] = (*out.get(helper, ()), part.name)
    return out


def parts_of(body: str) -> tuple[str, ...]:
    """The parts that `body` needs, in printing order."""
    known = helpers()
    wanted = {"core"}
    for name in set(_NAME.findall(body)):
        wanted.update(known.get(name, ()))
    pending = list(wanted)
    while pending:
        for need in parts()[pending.pop()].needs:
            if need not in wanted:
                wanted.add(need)
                pending.append(need)
    return tuple(name for name in PARTS if name in wanted)


def select(body: str, *, dynamic_shared: bool, shared_bytes: int) -> str:
    """The CUDA prelude for `body`: the parts whose helpers occur in it, with what they need, and no `#include`.

    `shared_bytes` of shared memory are declared: as a static array of exactly that size, or as dynamic shared memory
    aligned to 1024 bytes whose size the launch gives.
    """
    chosen = parts_of(body)
    out = []
    if dynamic_shared:
        out.append("#define PH_SHARED_DYNAMIC 1\n")
    elif shared_bytes > 0:
        # 128-byte swizzled tiles of TMA and wgmma repeat every 1024 bytes; everything else is content with a bank row.
        align = 1024 if "hopper" in chosen else 128
        out.append(f"#define PH_SHARED_BYTES {shared_bytes}\n#define PH_SHARED_ALIGN {align}\n")
    for name in chosen:
        part = parts()[name]
        out.append(_render(part.text, body) if part.is_template else part.text)
    return "".join(out)


def select_host(body: str) -> str:
    """The host prelude for `body`: the same parts as `select`, as C++17 for the emulator's runtime."""
    return "".join(parts()[name].host_text for name in parts_of(body))


def _render(template: str, body: str) -> str:
    """A templated part for the instruction shapes in `body`: `shapes` is (operand a: ss or rs, dtype, N, transposed
    b)."""
    shapes = sorted({(a, dtype, int(n), int(t)) for a, dtype, n, t in _WGMMA.findall(body)})
    # Braces and percent signs belong to the PTX in these templates.
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        line_statement_prefix="%%",
    )
    return environment.from_string(template).render(shapes=shapes)
