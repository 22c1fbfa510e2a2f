// The approximate unit, as the host can be: accurate, but subnormals are flushed and infinite intermediate results
// stay.
PH_I float ph_flush(float x) { return __builtin_fabsf(x) < 0x1p-126f ? x * 0.f : x; }
PH_I float ph_fast_exp2(float x) { return ph_flush(__builtin_exp2f(ph_flush(x))); }
PH_I float ph_fast_log2(float x) { return __builtin_log2f(ph_flush(x)); }
PH_I float ph_fast_rcp(float x) { return ph_flush(1.f / ph_flush(x)); }
PH_I float ph_fast_sqrt(float x) { return __builtin_sqrtf(ph_flush(x)); }
PH_I float ph_fast_rsqrt(float x) { return 1.f / __builtin_sqrtf(ph_flush(x)); }
PH_I float ph_fast_sin(float x) { return ph_flush(__builtin_sinf(ph_flush(x))); }
PH_I float ph_fast_cos(float x) { return ph_flush(__builtin_cosf(ph_flush(x))); }
PH_I float ph_fast_tanh(float x) { return __builtin_tanhf(x); }
PH_I float ph_fast_exp(float x) { return ph_fast_exp2(x * 1.4426950408889634f); }
PH_I float ph_fast_log(float x) { return ph_fast_log2(x) * 0.6931471805599453f; }
// 2^126 < |b| < inf gives 0, as the instruction does
PH_I float ph_fast_div(float a, float b) {
  const float m = __builtin_fabsf(b);
  if (m > 0x1p126f && m < __builtin_inff()) return __builtin_isinf(a) ? __builtin_nanf("") : 0.f * a;
  return ph_flush(ph_flush(a) / ph_flush(b));
}
PH_I float ph_fast_sigmoid(float x) { return ph_fast_rcp(1.f + ph_fast_exp(-x)); }
PH_I float ph_fast_erf(float x) { return __builtin_erff(x); }
PH_I float ph_fast_gelu(float x) {
  return x < -40.f ? -0.f : 0.5f * x * (1.f + __builtin_erff(x * 0.7071067811865476f));
}
PH_I float ph_fast_pow(float a, float b) { return ph_fast_exp2(b * ph_fast_log2(a)); }
#define PH_FAST_DOUBLE(name) PH_I double ph_fast_##name(double x) { return ph_##name(x); }
PH_FAST_DOUBLE(exp) PH_FAST_DOUBLE(exp2) PH_FAST_DOUBLE(log) PH_FAST_DOUBLE(log2) PH_FAST_DOUBLE(sqrt)
PH_FAST_DOUBLE(rsqrt)
PH_FAST_DOUBLE(sin) PH_FAST_DOUBLE(cos) PH_FAST_DOUBLE(tanh) PH_FAST_DOUBLE(sigmoid) PH_FAST_DOUBLE(erf)
PH_FAST_DOUBLE(gelu)
PH_I double ph_fast_rcp(double x) { return 1. / x; }
PH_I double ph_fast_div(double a, double b) { return a / b; }
PH_I double ph_fast_pow(double a, double b) { return __builtin_pow(a, b); }
