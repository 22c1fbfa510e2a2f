"""What no schedule could carry out: tiles beyond all registers and shared memory of a block."""

from __future__ import annotations

from phobos.ir.tile import KernelIR, Value
from phobos.ir.walk import kernel_ops
from phobos.semantic import codes
from phobos.semantic.report import Reporter
from phobos.semantic.shapes import shape_text, size
from phobos.source import Span

# A block has 256 KiB of registers and less shared memory. This many elements fit the arithmetic of positions
# everywhere (phobos.runtime.binding, phobos.passes.lowering), and NumPy.
MAX_TILE_ELEMENTS = 1 << 20


def check_tile_sizes(kernel: KernelIR, reporter: Reporter) -> None:
    """Reports the tiles with more than MAX_TILE_ELEMENTS elements, one for each place."""
    seen: set[Span] = set()
    for op in kernel_ops(kernel):
        for value in op.defined():
            if _too_large(value) and value.span not in seen:
                seen.add(value.span)
                reporter.error(
                    codes.BAD_EXTENT,
                    f"a tile of shape {shape_text(value.shape)} has {size(value.shape)} elements; the most is "
                    f"{MAX_TILE_ELEMENTS}",
                    value.span,
                    help="go over the data in a loop",
                )


def _too_large(value: Value) -> bool:
    return value.is_tile and size(value.shape) > MAX_TILE_ELEMENTS
