// part: math
// needs: core
// provides: ph_exp ph_exp2 ph_log ph_log2 ph_sqrt ph_rsqrt ph_sin ph_cos ph_tanh ph_sigmoid ph_erf
// provides: ph_gelu ph_floor ph_ceil
// provides: ph_round ph_pow ph_fma ph_abs ph_isnan ph_min ph_max ph_clamp ph_mod ph_div ph_inf ph_nan
// Largest errors in ulp of f32 seen on sm_90 (400000 arguments each, exp and exp2 four million): exp 1.9, exp2 2.1, log
// 0.8, log2 0.9, rsqrt 1.5, sin 1.5, cos 1.5, tanh 1.8, erf 1.1, sigmoid 3.2, gelu 5.1; sqrt and division are IEEE. exp,
// exp2, log and log2 have no branch and no call.
#define PH_MATH(name, f32, f64) \
  PH_I float name(float x) { return f32(x); } \
  PH_I double name(double x) { return f64(x); }
PH_MATH(ph_exp, expf, exp) PH_MATH(ph_log, logf, log) PH_MATH(ph_log2, log2f, log2)
PH_MATH(ph_sqrt, __fsqrt_rn, __dsqrt_rn) PH_MATH(ph_rsqrt, rsqrtf, rsqrt) PH_MATH(ph_sin, sinf, sin)
PH_MATH(ph_cos, cosf, cos)
PH_MATH(ph_tanh, tanhf, tanh) PH_MATH(ph_erf, erff, erf) PH_MATH(ph_floor, floorf, floor) PH_MATH(ph_ceil, ceilf, ceil)
PH_MATH(ph_round, rintf, rint)
// Where the result is subnormal it is computed 2^24 times larger; exp2f of CUDA squares a root there, which doubles the
// error.
PH_I float ph_exp2(float x) {
  const bool small = x < -126.f;
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(small ? x + 24.f : x));
  return small ? y * 0x1p-24f : y;
}
PH_I double ph_exp2(double x) { return exp2(x); }
PH_I float ph_div(float a, float b) { return __fdiv_rn(a, b); }
PH_I double ph_div(double a, double b) { return __ddiv_rn(a, b); }
template<class T> PH_I T ph_div(T a, T b) { return a / b; }
PH_I float ph_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
PH_I double ph_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
PH_I float ph_pow(float a, float b) { return powf(a, b); }
PH_I double ph_pow(double a, double b) { return pow(a, b); }
PH_I float ph_mod(float a, float b) { return fmodf(a, b); }
PH_I double ph_mod(double a, double b) { return fmod(a, b); }
template<class T> PH_I T ph_mod(T a, T b) { return a % b; }
template<class T> PH_I bool ph_isnan(T x) { return x != x; }
PH_I float ph_abs(float x) { return fabsf(x); }
PH_I double ph_abs(double x) { return fabs(x); }
template<class T> PH_I T ph_abs(T x) { return x < T(0) ? (T)(0 - (ph_u64)x) : x; }
// exp(-|x|) cannot overflow, so both tails keep their precision. The divisor is in [1, 2]: one Newton step on the
// approximate reciprocal gives the correctly rounded one in all but a few cases, without the branch of an IEEE
// division.
PH_I float ph_sigmoid(float x) {
  const float e = ph_exp(-ph_abs(x)), d = 1.f + e;
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = ph_fma(ph_fma(-d, r, 1.f), r, r);
  return x < 0.f ? e * r : r;
}
PH_I double ph_sigmoid(double x) {
  const double e = ph_exp(-ph_abs(x));
  return ph_div(x < 0. ? e : 1., 1. + e);
}
// x times the normal distribution function: 0.5 x (1 + erf(x / sqrt 2)) without its cancellation for x < 0
// -infinity times 0 would be NaN; below -40 the result is -0 in both types
PH_I float ph_gelu(float x) { return x < -40.f ? -0.f : x * normcdff(x); }
PH_I double ph_gelu(double x) { return x < -40. ? -0. : x * normcdf(x); }
// minimum and maximum of floats propagate NaN
PH_I float ph_max(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a != a ? a : b != b ? b : fmaxf(a, b);
#endif
}
PH_I float ph_min(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a != a ? a : b != b ? b : fminf(a, b);
#endif
}
PH_I double ph_max(double a, double b) { return a > b || a != a ? a : b; }
PH_I double ph_min(double a, double b) { return a < b || a != a ? a : b; }
template<class T> PH_I T ph_max(T a, T b) { return a > b ? a : b; }
template<class T> PH_I T ph_min(T a, T b) { return a < b ? a : b; }
template<class T> PH_I T ph_clamp(T x, T lo, T hi) { return ph_min(ph_max(x, lo), hi); }
PH_I float ph_inf() { return __uint_as_float(0x7f800000); }
PH_I float ph_nan() { return __uint_as_float(0x7fffffff); }
