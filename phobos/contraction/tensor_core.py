"""What the rooms of tensor-core instructions share: stored dtypes of operands, splits over warps, shared layouts."""

from __future__ import annotations

from collections.abc import Collection

from phobos.contraction.interface import ContractionQuery, padded_pitch, registers_for_tiles
from phobos.ir.types import DType
from phobos.layout.register import WARP
from phobos.layout.shared import SharedLayout

_KINDS = {"f16": DType.F16, "bf16": DType.BF16, "tf32": DType.F32}  # roundings of f32 operands -> stored dtype


def stored_dtype(query: ContractionQuery, exact: Collection[DType]) -> tuple[DType, str] | None:
    """(dtype in shared memory, kind): operands of a dtype in `exact` as they are, f32 ones rounded. None otherwise."""
    if query.operand in exact:
        return query.operand, "ieee"
    if query.operand is DType.F32:
        for kind in query.kinds:
            if kind in _KINDS:
                return _KINDS[kind], kind
    return None


def warp_splits(query: ContractionQuery, rows: int, columns: int) -> list[tuple[int, int]]:
    """(warps along m, along n) that give every warp whole fragments of rows x columns results."""
    return [
        (wm, query.warps // wm)
        for wm in range(1, query.warps + 1)
        if query.warps % wm == 0 and query.m % (rows * wm) == 0 and query.n % (columns * (query.warps // wm)) == 0
    ]


def misfit(query: ContractionQuery, rows: int, columns: int, depth: int) -> str | None:
    """Why fragments of rows x columns results and steps of `depth` along k do not make up the product, or None."""
    for extent, unit, what in ((query.m, rows, "m"), (query.n, columns, "n"), (query.k, depth, "k")):
        if extent % unit:
            return f"{what} = {extent} is not a multiple of {unit}"
    if not warp_splits(query, rows, columns):
        return f"{query.warps} warps cannot share {query.m} x {query.n} results in fragments of {rows} x {columns}"
    return None


def operand_layouts(
    query: ContractionQuery, stored: DType, matrix_loads: bool = False
) -> tuple[SharedLayout, SharedLayout]:
    """The shared layouts of a and b, both free of conflicts: padded, or swizzled for a room that reads them by
    `matrix_loads`.

    By default operands are swizzled that asynchronous copies can bring in: such a copy writes aligned 32 bytes at once,
    which padding splits in every second row (128x256x32 tiles of f16 on an H200: copies alone 303 and 187 us). Beside
    an online softmax registers are worth more than the copies: padded tiles need one address, swizzled ones up to four.
    """
    a, b = _padded_layouts(query, stored)
    copied = query.target.has_cp_async and stored is query.operand and not query.whole_rows and not query.a_computed
    wanted = query.options.swizzle
    if matrix_loads and (wanted == "on" or (wanted == "auto" and copied)):
        a = SharedLayout.swizzled((query.m, query.k), stored.bytes) or a
        if query.transpose_b or stored.bytes != 4:  # 32-bit elements with n contiguous come in plain reads
            shape = (query.n, query.k) if query.transpose_b else (query.k, query.n)
            b = SharedLayout.swizzled(shape, stored.bytes) or b
    return a, b


def _padded_layouts(query: ContractionQuery, stored: DType) -> tuple[SharedLayout, SharedLayout]:
    item, pad = stored.bytes, query.options.pad != "off"
    a = SharedLayout((query.m, query.k), item, (0, 1), padded_pitch(query.k, item, pad))
    shape = (query.n, query.k) if query.transpose_b else (query.k, query.n)
    pitch = padded_pitch(shape[1], item, pad)
    if stored is DType.F32 and not query.transpose_b and pad:
        # Plain reads of four rows by eight columns: rows must be 8 banks apart.
        pitch = shape[1] + (8 - shape[1]) % 32
    return a, SharedLayout(shape, item, (0, 1), pitch)


def leaves_room_for_tiles(query: ContractionQuery, stored: DType, accumulators: int, one: int, two: int) -> bool:
    """May a thread hold two sets of fragments (`two` registers, where one set takes `one`) as far as tiles are
    concerned that a loop takes ahead through registers?

    Such a tile hides more than a second set does: 128x256x32 tiles of f32 rounded to f16 take 537 us for 4096^3 on an
    H200 with the next tile on its way and one set, 1020 with two sets and the tile loaded in its own iteration.
    """
    copied = query.target.has_cp_async and stored is query.operand and stored is not DType.F32
    if copied or query.options.stages == 1:
        return True  # no tile passes through registers meanwhile
    size = query.n * query.k + (0 if query.a_computed else query.m * query.k)
    tile = size * max(1, query.operand.bytes // 4) // (WARP * query.warps)
    return not registers_for_tiles(accumulators, two) < tile <= registers_for_tiles(accumulators, one)
