"""`phobos trace`: a kernel's run as a page to look at step by step, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phobos.files import check_outputs, read_source, write_output
from phobos.kernel import Kernel
from phobos.runtime.pipeline import Frontend
from phobos.trace.api import Trace, trace_kernel


def trace(
    file: str,
    *,
    dims: Mapping[str, int],
    config: Mapping[str, Any],
    dtypes: Mapping[str, str],
    scalars: Mapping[str, int | float | bool],
    kernel: str | None,
    arch: str | None,
    compare: Mapping[str, Any] | None,
    emulator: bool,
    seed: int,
    output: str | None,
    json_output: str | None,
    max_size: float | None = None,
) -> list[str]:
    """Writes the page, the JSON or both, and says in a few lines what is in them. Without `output` and `json_output`
    the page goes into the current folder under the file's name; "-" is standard output.

    Raises CompileError, LaunchError as `trace_kernel` does; CompileError PH1005 where a file cannot be written, PH1007
    where it is the one that is read or both are one.
    """
    if output is None and json_output is None:
        stem = "trace" if file == "-" else Path(file).stem
        output = f"{stem}.html"
    check_outputs({"-o": output, "--json": json_output}, read=file)
    called = Kernel(Frontend(read_source(file)), kernel)
    info = called.info
    known = [p.name for p in info.params if p.kind == "const"]
    consts = {n: v for n, v in scalars.items() if n in known}
    found = trace_kernel(
        called._frontend, info, (), {n: v for n, v in scalars.items() if n not in known}, config=config,
        compare=compare, dims=dims, dtypes=dtypes, consts=consts, arch=arch, emulator=emulator, seed=seed,
        max_size=max_size,
    )  # fmt: skip
    written = []
    if output is not None:
        written.append(_write(output, found.html()))
    if json_output is not None:
        written.append(_write(json_output, found.to_json() + "\n"))
    return [*summary(found), f"written: {', '.join(written)}"]


def _write(path: str, text: str) -> str:
    """Writes, and says where to."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return "standard output"
    write_output(path, text.encode())
    return path


def _values(values: Mapping[str, Any], assumed: Sequence[str]) -> str:
    return " ".join(f"{n}={v}" + (" (not given)" if n in assumed else "") for n, v in values.items())


def summary(found: Trace) -> list[str]:
    """What the traces hold, a line each, and what the emulator said."""
    out = []
    for t in found.traces:
        kernel = t["kernel"]
        config = _values(kernel["configuration"], kernel["assumed"]) or "nothing to choose"
        sizes = _values(kernel["dims"], ()), _values(kernel["scalars"], kernel["assumed"])
        steps = max((len(c["steps"]) for c in t["ctas"]), default=0)
        blocks = len(t["ctas"])
        out.append(
            f"{kernel['name']} for {kernel['arch']}: {config}" + (f" ({kernel['reason']})" if kernel["reason"] else "")
            + "".join(f"; {part}" for part in sizes if part)
            + f": {steps} step{'s' if steps != 1 else ''} in {blocks} CTA{'s' if blocks != 1 else ''}"
        )  # fmt: skip
        if "emulator" in t:
            e = t["emulator"]
            out.append(
                f"  emulator: {e['accesses']} accesses, " + ("the same addresses" if e["equal"] else "OTHER ADDRESSES")
            )
            out += [f"  {line}" for line in (*e["differences"], *e["reports"])]
    return out
