"""Names and types of the emitted text."""

from __future__ import annotations

import re

from phobos.ir.types import DType

# Names that the emitted text uses itself, C++ keywords, and names that are macros or functions in a prelude.
RESERVED = frozenset(
    "tid lane warp tile from to i j kk step u v x y z t n a b at total old part line "
    "a_tile b_tile a_row b_col a_reg b_reg "
    "and_eq bitand bitor not_eq or_eq xor_eq char8_t char16_t char32_t concept consteval constinit const_cast co_await "
    "co_return co_yield dynamic_cast reinterpret_cast static_cast static_assert thread_local wchar_t requires "
    "alignas alignof and asm auto bool break case catch char class compl const constexpr continue decltype default "
    "delete do double else enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not operator or private protected public register return short signed sizeof static "
    "struct switch template this throw true try typedef typeid typename union unsigned using virtual void volatile "
    "while xor NULL main uint half clock min max abs exp log sin cos floor ceil round sqrt pow tanh erf fma y0 y1 yn j0 "
    "j1 jn gamma lgamma tgamma threadIdx blockIdx blockDim gridDim warpSize quad_t size_t assert printf malloc free "
    "memcpy memset linux unix".split()
)

C_TYPES = {
    DType.F16: "ph_half",
    DType.BF16: "ph_bf16",
    DType.F32: "float",
    DType.F64: "double",
    DType.F8E4M3: "ph_f8e4m3",
    DType.F8E5M2: "ph_f8e5m2",
    DType.I8: "signed char",
    DType.U8: "unsigned char",
    DType.I32: "int",
    DType.U32: "unsigned",
    DType.I64: "ph_i64",
    DType.BOOL: "bool",
}


# Names that the printer makes: positions and parts of threads, strides of tensors.
_GENERATED = re.compile(r"(pos|part|owner)_\d+|\w+_stride\d+")


def c_identifier(name: str) -> str:
    """The C name of a kernel parameter or dim; different for different names."""
    plain = name.rstrip("_")
    taken = plain in RESERVED or _GENERATED.fullmatch(plain) or name.startswith(("ph_", "PH_", "__"))
    return f"{name}_" if taken else name


def c_type(dtype: DType, index_bits: int) -> str:
    if dtype is DType.INDEX:
        return "int" if index_bits == 32 else "ph_i64"
    return C_TYPES[dtype]
