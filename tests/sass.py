"""Instructions of a cubin, by NVIDIA's disassembler where it is installed: to compare loops of kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_LABEL = re.compile(r"\s*(\.L_\w+):")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?)(U?P\w+)\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
_TARGET = re.compile(r"`?\(?(\.L_\w+)")


def disassembler() -> str | None:
    """The path of nvdisasm, from the path or from NVIDIA's wheels; None where it is absent."""
    found = shutil.which("nvdisasm")
    if found is not None:
        return found
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for candidate in sorted(Path(place).glob("*/bin/nvdisasm")):
            return str(candidate)
    return None


@dataclass(frozen=True)
class Instruction:
    """`always`: there is no predicate. `target`: the index that a branch goes to."""

    opcode: str
    always: bool
    target: int | None


def instructions(cubin: bytes, tool: str, folder: Path) -> list[Instruction]:
    """The instructions of the cubin's only kernel."""
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    text = subprocess.run([tool, "-c", str(file)], capture_output=True, text=True, check=True, timeout=60).stdout
    labels: dict[str, int] = {}
    found: list[tuple[str, bool, str]] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label.group(1)] = len(found)
        elif m := _INSTRUCTION.match(line):
            found.append((m.group(3), m.group(2) in (None, "PT"), m.group(4)))
    out = []
    for opcode, always, rest in found:
        target = _TARGET.search(rest) if opcode.startswith("BRA") else None
        out.append(Instruction(opcode, always and "P" not in rest, labels[target.group(1)] if target else None))
    return out


def loops(code: list[Instruction]) -> list[Counter[str]]:
    """Opcodes (without modifiers) of every natural loop: what a jump backwards can come from without passing its
    target, blocks that the compiler placed elsewhere included."""
    before: list[list[int]] = [[] for _ in code]
    for at, i in enumerate(code):
        if i.target is not None:
            before[i.target].append(at)
        leaves = i.always and (i.opcode.startswith(("BRA", "EXIT", "RET")))
        if not leaves and at + 1 < len(code):
            before[at + 1].append(at)
    out = []
    for at, i in enumerate(code):
        if i.target is None or i.target > at:
            continue
        inside, todo = {i.target}, [at]
        while todo:
            x = todo.pop()
            if x not in inside:
                inside.add(x)
                todo.extend(before[x])
        out.append(Counter(code[x].opcode.split(".")[0] for x in inside))
    return out


def main_loop(code: list[Instruction]) -> Counter[str]:
    """The loop with the most tensor-core products; of several with as many, the innermost."""
    products = ("HMMA", "IMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA")
    found = loops(code)
    most = max((sum(c[p] for p in products) for c in found), default=0)
    return min((c for c in found if most and sum(c[p] for p in products) == most), key=lambda c: c.total())
