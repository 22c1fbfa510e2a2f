"""Names and types of the emitted text."""

from __future__ import annotations

import re

from phobos.ir.types import DType

# Names that the emitted text uses itself, C++ keywords, and names that are macros or functions in a prelude.
RESERVED = frozenset(
    "tid lane warp tile from to div_a div_b div_e div_q div_r i j kk step u v x y z t n a b at total old part line "
    "a_tile b_tile a_row b_col a_reg b_reg a_chunk b_chunk b_first "
    "and_eq bitand bitor not_eq or_eq xor_eq char8_t char16_t char32_t concept consteval constinit const_cast co_await "
    "co_return co_yield dynamic_cast reinterpret_cast static_cast static_assert thread_local wchar_t requires "
    "alignas alignof and asm auto bool break case catch char class compl const constexpr continue decltype default "
    "delete do double else enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not operator or private protected public register return short signed sizeof static "
    "struct switch template this throw true try typedef typeid typename union unsigned using virtual void volatile "
    "while xor NULL nullptr main uint half clock min max abs exp log sin cos floor ceil round sqrt pow tanh erf fma y0 "
    "y1 yn j0 j1 jn gamma lgamma tgamma threadIdx blockIdx blockDim gridDim warpSize quad_t size_t assert printf "
    "malloc free memcpy memset linux unix".split()
)

# Functions and types that CUDA declares in the global namespace: a kernel, which is a C symbol, must not have their
# names. PTX has names of its own.
_CUDA_GLOBALS = frozenset(
    "acos acosf acosh acoshf asin asinf asinh asinhf atan atan2 atan2f atanf atanh atanhf cbrt cbrtf ceilf clock64 "
    "clock_t copysign copysignf cosf cosh coshf cospi cospif cyl_bessel_i0 cyl_bessel_i0f cyl_bessel_i1 cyl_bessel_i1f "
    "dim3 erfc erfcf erfcinv erfcinvf erfcx erfcxf erff erfinv erfinvf exp10 exp10f exp2 exp2f expf expm1 expm1f fabs "
    "fabsf fdim fdimf fdivide fdividef floorf fmaf fmax fmaxf fmin fminf fmod fmodf frexp frexpf hypot hypotf ilogb "
    "ilogbf isfinite isinf isnan j0f j1f jnf labs ldexp ldexpf lgammaf llabs llmax llmin llrint llrintf llround "
    "llroundf log10 log10f log1p log1pf log2 log2f logb logbf logf lrint lrintf lround lroundf modf modff nan nanf "
    "nearbyint nearbyintf nextafter nextafterf norm norm3d norm3df norm4d norm4df normcdf normcdff normcdfinv "
    "normcdfinvf normf powf ptrdiff_t rcbrt rcbrtf remainder remainderf remquo remquof rhypot rhypotf rint rintf rnorm "
    "rnorm3d rnorm3df rnorm4d rnorm4df rnormf roundf rsqrt rsqrtf scalbln scalblnf scalbn scalbnf signbit sincos "
    "sincosf sincospi sincospif sinf sinh sinhf sinpi sinpif sqrtf std tan tanf tanhf tgammaf trunc truncf ullmax "
    "ullmin umax umin va_arg va_copy va_end va_list va_start y0f y1f ynf WARP_SZ".split()
)
_CUDA_NAMES = re.compile(r"make_\w+|cuda[A-Z]\w*|CUDA\w*|CUuuid|CU_\w+|NV_\w+")

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


def fresh_name(taken: set[str], hint: str) -> str:
    """The hint or, where it is taken, the hint with a number; the name is taken from then on."""
    name, count = hint, 0
    while name in taken:
        count += 1
        name = f"{hint}_{count}"
    taken.add(name)
    return name


# Names that the printer makes: positions and parts of threads, strides of tensors, fragments of a turned loop's steps.
_GENERATED = re.compile(r"(pos|part|owner)_\d+|\w+_stride\d+|step(_\d+)?_[ab](_at)?")


def c_identifier(name: str) -> str:
    """The C name of a kernel, parameter or dim; different for different names."""
    plain = name.rstrip("_")
    taken = (
        not plain  # no name of PTX
        or plain in RESERVED
        or plain in _CUDA_GLOBALS
        or _GENERATED.fullmatch(plain)
        or _CUDA_NAMES.fullmatch(plain)
        or name.startswith(("ph_", "PH_", "__"))
    )
    return f"{name}_" if taken else name


def c_type(dtype: DType, index_bits: int) -> str:
    if dtype is DType.INDEX:
        return "int" if index_bits == 32 else "ph_i64"
    return C_TYPES[dtype]
