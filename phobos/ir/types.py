"""Value types of the tile IR: dtypes, scalars, tiles, tensors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DType(Enum):
    """Element types. The value is the name used in kernel text."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I8 = "i8"
    U8 = "u8"
    I32 = "i32"
    U32 = "u32"
    I64 = "i64"
    BOOL = "bool"
    INDEX = "index"  # sizes and positions: signed, 32 or 64 bits by the compiled variant

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """True for every integer type, `index` included, `bool` excluded."""
        return self not in _FLOATS and self is not DType.BOOL

    @property
    def is_signed(self) -> bool:
        return self.is_float or self in (DType.I8, DType.I32, DType.I64, DType.INDEX)

    @property
    def bytes(self) -> int:
        """Bytes of an element in memory. `index` never is in memory; 8 is its safe bound."""
        return _BYTES[self]

    def __str__(self) -> str:
        return self.value


_FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64, DType.F8E4M3, DType.F8E5M2})
_BYTES = {
    DType.F16: 2,
    DType.BF16: 2,
    DType.F32: 4,
    DType.F64: 8,
    DType.F8E4M3: 1,
    DType.F8E5M2: 1,
    DType.I8: 1,
    DType.U8: 1,
    DType.I32: 4,
    DType.U32: 4,
    DType.I64: 8,
    DType.BOOL: 1,
    DType.INDEX: 8,
}

DTYPE_BY_NAME: dict[str, DType] = {d.value: d for d in DType}


@dataclass(frozen=True)
class ScalarType:
    """One value, the same for all threads of the block (every scalar of the language is uniform)."""

    dtype: DType

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(frozen=True)
class TileType:
    """A block of values of static shape, rank 1 to 3."""

    dtype: DType
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 3 or any(n < 1 for n in self.shape):
            raise ValueError(f"a tile has rank 1 to 3 and positive extents, not {self.shape}")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def __str__(self) -> str:
        return f"tile<{self.dtype}>[{', '.join(map(str, self.shape))}]"


ValueType = ScalarType | TileType


@dataclass(frozen=True)
class TensorType:
    """A kernel parameter in global memory. A dim is an int (pinned at compile time) or the name
    of a dim that the launch binds."""

    dtype: DType
    dims: tuple[int | str, ...]

    @property
    def rank(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        return f"tensor<{self.dtype}>[{', '.join(map(str, self.dims))}]"
