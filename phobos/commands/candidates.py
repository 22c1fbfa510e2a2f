"""The configurations of a kernel with what the cost model makes of each (`phobos compile --emit candidates`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phobos.runtime import request
from phobos.runtime.pipeline import Frontend, KernelInfo
from phobos.target import DEFAULT_ARCH, get_target
from phobos.tuning import default
from phobos.tuning.space import config_text

_HEAD = ("relative", "configuration", "threads", "registers", "operands", "blocks", "an SM", "waves")


def text(
    frontend: Frontend,
    info: KernelInfo,
    config: Mapping[str, Any],
    dims: Mapping[str, int],
    dtypes: Mapping[str, str],
    arch: str | None,
) -> str:
    """A table, the least estimated time first and as a multiple of it; then what cannot run, grouped by the reason.

    Registers (32 bits, of a thread) and bytes of operands in shared memory (one stage of them) are estimates too.
    Raises CompileError where nothing can run.
    """
    target = get_target(arch or DEFAULT_ARCH)
    items = dict(request.config_items(config))
    consts = {n: items.pop(n) for n in info.consts if n in items}
    request.check_names(info, items)
    signature, extents = frontend.signatures()[info.name], request.extents(info, dims)
    found = default.candidates(
        signature, frontend.module(), extents, dict(request.parse_dtypes(info, dtypes)), target,
        consts=consts, pinned=items,
    )  # fmt: skip
    chosen, reason = default.choose_from(found, signature, extents, target, items)
    possible = [(c.estimate, c.config) for c in found if c.why_not is None and c.estimate is not None]
    possible.sort(key=lambda x: x[0].cycles)
    least = possible[0][0].cycles
    rows: list[tuple[str, ...]] = [_HEAD]
    marks = [" "]
    for e, point in possible:
        numbers = (e.threads, e.registers, e.shared_bytes, e.blocks, e.blocks_per_sm, e.waves)
        rows.append((f"{e.cycles / least:.2f}", config_text(point), *map(str, numbers)))
        marks.append("*" if point is chosen else " ")
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [f"{info.name} for {target.arch}: {reason}"]
    for mark, row in zip(marks, rows):
        cells = [cell.ljust(width) if n == 1 else cell.rjust(width) for n, (cell, width) in enumerate(zip(row, widths))]
        lines.append(f"{mark} {'  '.join(cells)}".rstrip())
    lines += [f"out: {line}" for line in default.grouped(default.reasons_against(found, config_text))]
    whole = default.size(signature, default.fixed_names(signature, extents, items))
    if whole > len(found):
        lines.append(f"looked at {len(found)} of {whole}, evenly spread")
    return "\n".join(lines) + "\n"
