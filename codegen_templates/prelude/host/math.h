#define PH_MATH(name, f32, f64) \
  PH_I float name(float x) { return __builtin_##f32(x); } \
  PH_I double name(double x) { return __builtin_##f64(x); }
PH_MATH(ph_exp, expf, exp) PH_MATH(ph_exp2, exp2f, exp2) PH_MATH(ph_log, logf, log) PH_MATH(ph_log2, log2f, log2)
PH_MATH(ph_sqrt, sqrtf, sqrt) PH_MATH(ph_sin, sinf, sin) PH_MATH(ph_cos, cosf, cos) PH_MATH(ph_tanh, tanhf, tanh)
PH_MATH(ph_erf, erff, erf) PH_MATH(ph_floor, floorf, floor) PH_MATH(ph_ceil, ceilf, ceil) PH_MATH(ph_round, rintf, rint)
PH_MATH(ph_abs, fabsf, fabs)
// by way of double: rounded once, so within half an ulp
PH_I double ph_rsqrt(double x) { return 1. / __builtin_sqrt(x); }
PH_I float ph_rsqrt(float x) { return (float)ph_rsqrt((double)x); }
PH_I double ph_sigmoid(double x) {
  const double e = __builtin_exp(-__builtin_fabs(x));
  return (x < 0. ? e : 1.) / (1. + e);
}
PH_I float ph_sigmoid(float x) { return (float)ph_sigmoid((double)x); }
PH_I double ph_gelu(double x) { return x < -40. ? -0. : x * (0.5 * __builtin_erfc(x * -0.70710678118654752440)); }
PH_I float ph_gelu(float x) { return (float)ph_gelu((double)x); }
PH_I float ph_div(float a, float b) { return a / b; }
PH_I double ph_div(double a, double b) { return a / b; }
PH_I float ph_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PH_I double ph_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
PH_I float ph_pow(float a, float b) { return __builtin_powf(a, b); }
PH_I double ph_pow(double a, double b) { return __builtin_pow(a, b); }
PH_I float ph_mod(float a, float b) { return __builtin_fmodf(a, b); }
PH_I double ph_mod(double a, double b) { return __builtin_fmod(a, b); }
// Integers: the two cases in which the host's instruction traps are a report, and a wrap as on the GPU.
template<class T> PH_I T ph_div(T a, T b, PH_LN) {
  if (b == 0) ph_rt_fault("division-by-zero", "integer division by zero", line);
  return b == 0 ? T(0) : b == T(-1) && T(-1) < T(0) ? (T)(0 - (ph_u64)a) : (T)(a / b);
}
template<class T> PH_I T ph_mod(T a, T b, PH_LN) {
  if (b == 0) ph_rt_fault("division-by-zero", "integer remainder by zero", line);
  return b == 0 || (b == T(-1) && T(-1) < T(0)) ? T(0) : (T)(a % b);
}
template<class T> PH_I bool ph_isnan(T x) { return x != x; }
template<class T> PH_I T ph_abs(T x) { return x < T(0) ? (T)(0 - (ph_u64)x) : x; }
// minimum and maximum of floats propagate NaN
PH_I float ph_max(float a, float b) { return a != a || b != b ? __builtin_nanf("") : __builtin_fmaxf(a, b); }
PH_I float ph_min(float a, float b) { return a != a || b != b ? __builtin_nanf("") : __builtin_fminf(a, b); }
PH_I double ph_max(double a, double b) { return a > b || a != a ? a : b; }
PH_I double ph_min(double a, double b) { return a < b || a != a ? a : b; }
template<class T> PH_I T ph_max(T a, T b) { return a > b ? a : b; }
template<class T> PH_I T ph_min(T a, T b) { return a < b ? a : b; }
template<class T> PH_I T ph_clamp(T x, T lo, T hi) { return ph_min(ph_max(x, lo), hi); }
PH_I float ph_inf() { return __builtin_inff(); }
PH_I float ph_nan() { return __builtin_nanf(""); }
