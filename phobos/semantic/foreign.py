"""Names of CUDA, Triton and NumPy that people write by habit, and what to write here instead."""

from __future__ import annotations

_THREADS = "a kernel never speaks of threads: it computes whole tiles, and element positions are `iota(axis)`"
_BARRIER = "remove it: the compiler places the barriers"
_POSITIONS = "positions in a tile are `iota(axis)`; `n` elements from `i` are the slice `X[i :+ n]`"
_BLOCK = "write `ctx.block.x`"
_BLOCKS = "write `ctx.grid.x`"

NAMES = {
    "True": "write `true`", "False": "write `false`", "None": "there is no `None`",
    "threadIdx": _THREADS, "warpSize": _THREADS, "blockDim": "a block takes the extents of its tiles, such as `BN`",
    "blockIdx": _BLOCK, "gridDim": _BLOCKS,
    "tl": "the functions stand alone, as in `dot(a, b)`", "np": "the functions stand alone, as in `exp(x)`",
    "torch": "the functions stand alone, as in `exp(x)`", "math": "the functions stand alone, as in `exp(x)`",
}  # fmt: skip

FUNCTIONS = {
    "arange": _POSITIONS, "program_id": _BLOCK, "get_program_id": _BLOCK, "num_programs": _BLOCKS,
    "load": "a load is a slice, `X[i :+ n]`", "store": "a store assigns to a slice, `Y[i :+ n] = y`",
    "__syncthreads": _BARRIER, "syncthreads": _BARRIER, "__syncwarp": _BARRIER, "barrier": _BARRIER,
    "debug_barrier": _BARRIER,
    "softmax": "`let e = exp(x - rowmax(x))`, then `e / rowsum(e)`",
    "mean": "divide a sum by the extent: `rowsum(x) / f32(N)`", "rowmean": "`rowsum(x) / f32(N)`",
    "matmul": "a product is `dot(a, b)`", "mm": "a product is `dot(a, b)`", "einsum": "a product is `dot(a, b)`",
    "maximum": "write `tmax(x, y)`", "minimum": "write `tmin(x, y)`", "fmaxf": "write `tmax(x, y)`",
    "fminf": "write `tmin(x, y)`", "fmax": "write `tmax(x, y)`", "fmin": "write `tmin(x, y)`",
    "select": "write `where(c, x, y)`", "relu": "write `tmax(x, 0.0)`", "silu": "write `x * sigmoid(x)`",
    "cdiv": "write `ceildiv(x, y)`", "trans": "write `transpose(t)`", "printf": "write `print(\"text\", x)`",
    "ones": "write `full(f32, r, c, 1.0)`", "square": "write `x * x`",
    "float": "write `f32(x)`", "half": "write `f16(x)`", "int": "write `i32(x)`", "double": "write `f64(x)`",
    "__float2half": "write `f16(x)`", "__half2float": "write `f32(x)`", "__expf": "write `exp(x)`",
    "log1p": "write `log(1.0 + x)`", "len": "the extent of an axis is its name in the type, such as `N`",
    "permute": "write `transpose(t)`", "concatenate": "write `cat(a, b, axis)`", "concat": "write `cat(a, b, axis)`",
}  # fmt: skip

MEMBERS = {
    "T": "write `transpose(x)`",
    "shape": "the extent of an axis is its name in the type, such as `N`",
    "dtype": "give the kernel a dtype name: `kernel k<T>(X: tensor<T>[N])`",
}

# How a reduction over one axis is called, by the name of the one over the whole tile.
REDUCTIONS = frozenset(("sum", "prod", "max", "min", "argmax", "argmin"))
