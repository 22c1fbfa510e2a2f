// Narrow floats for the tensor core operations and for the header's conversions.
#pragma once
#include <cfenv>
#include <cmath>
#include <cstring>
#ifdef __F16C__
#include <immintrin.h>
#endif
static inline float bits_f(u32 u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline u32 f_bits(float f) {
  u32 u;
  memcpy(&u, &f, 4);
  return u;
}
// round to nearest even, NaN -> 0x7fff as cvt.rn.f16.f32
extern "C" unsigned short ph_soft_f2h(float f) {
  u32 u = f_bits(f), sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return 0x7fff;
  if (u >= 0x477ff000u) return sign | 0x7c00;  // >= 65520 rounds to inf
  if (u < 0x38800000u) {                       // subnormal half: let the FPU round at 2^-24
    const u32 r = f_bits(bits_f(u) + bits_f(0x3f000000u));
    return sign | (r - 0x3f000000u);
  }
  u += 0xc8000fffu + ((u >> 13) & 1);  // rebias by -112, round half to even
  return sign | (u >> 13);
}
extern "C" float ph_soft_h2f(unsigned short h) {
  const u32 sign = (u32)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
  if (e == 31) return bits_f(sign | 0x7f800000u | m << 13);
  if (e == 0) {
    const float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
  }
  return bits_f(sign | (e + 112) << 23 | m << 13);
}
#ifdef __F16C__
static inline float h2f(unsigned short h) { return _cvtsh_ss(h); }
extern "C" unsigned short ph_rt_f2h(float f) { return f != f ? 0x7fff : _cvtss_sh(f, 0); }
#else
static inline float h2f(unsigned short h) { return ph_soft_h2f(h); }
extern "C" unsigned short ph_rt_f2h(float f) { return ph_soft_f2h(f); }
#endif
extern "C" float ph_rt_h2f(unsigned short h) { return h2f(h); }
// toward zero: the nearest value, one step back where it is too large
extern "C" float ph_rt_d2f_rz(double v) {
  const float f = (float)v;
  return std::fabs((double)f) > std::fabs(v) ? std::nextafterf(f, 0.f) : f;
}
extern "C" float ph_rt_ll2f_rz(long long v) {
  u64 m = v < 0 ? 0 - (u64)v : (u64)v;
  if (m >> 24) m &= ~0ull << (40 - __builtin_clzll(m));  // the 24 leading bits
  return v < 0 ? -(float)m : (float)m;
}
static inline float b2f(unsigned short h) { return bits_f((u32)h << 16); }
static inline float e4m3_f(unsigned char x) {
  const int e = x >> 3 & 15, m = x & 7;
  const float f = e == 15 && m == 7 ? NAN : e ? std::ldexp(1.f + m / 8.f, e - 7) : std::ldexp(m / 8.f, -6);
  return x & 0x80 ? -f : f;
}
static inline float e5m2_f(unsigned char x) { return h2f((unsigned short)(x << 8)); }
enum Kind { F16, BF16, TF32, S8, U8, E4M3, E5M2 };  // operand kinds of the matrix instructions
static inline float f16_of(int kind, unsigned short h) { return kind == BF16 ? b2f(h) : h2f(h); }
