// part: math_fast
// needs: core math
// provides: ph_fast_exp ph_fast_exp2 ph_fast_log ph_fast_log2 ph_fast_div ph_fast_rcp ph_fast_sqrt
// provides: ph_fast_rsqrt ph_fast_sin
// provides: ph_fast_cos ph_fast_tanh ph_fast_sigmoid ph_fast_erf ph_fast_gelu ph_fast_pow
// One instruction of the special function unit where there is one; subnormals are flushed. Doubles take the default
// version.
#define PH_APPROX(name, instruction) \
  PH_I float name(float x) { \
    float y; \
    asm(instruction " %0, %1;" : "=f"(y) : "f"(x)); \
    return y; \
  }
PH_APPROX(ph_fast_exp2, "ex2.approx.ftz.f32") PH_APPROX(ph_fast_log2, "lg2.approx.ftz.f32")
PH_APPROX(ph_fast_rcp, "rcp.approx.ftz.f32") PH_APPROX(ph_fast_sqrt, "sqrt.approx.ftz.f32")
PH_APPROX(ph_fast_rsqrt, "rsqrt.approx.ftz.f32") PH_APPROX(ph_fast_sin, "sin.approx.ftz.f32")
PH_APPROX(ph_fast_cos, "cos.approx.ftz.f32") PH_APPROX(ph_fast_tanh, "tanh.approx.f32")
PH_I float ph_fast_exp(float x) { return ph_fast_exp2(x * 1.4426950408889634f); }
PH_I float ph_fast_log(float x) { return ph_fast_log2(x) * 0.6931471805599453f; }
PH_I float ph_fast_div(float a, float b) { return __fdividef(a, b); }
PH_I float ph_fast_sigmoid(float x) { return ph_fast_rcp(1.f + ph_fast_exp(-x)); }
PH_I float ph_fast_erf(float x) { return erff(x); }
PH_I float ph_fast_gelu(float x) { return x < -40.f ? -0.f : 0.5f * x * (1.f + erff(x * 0.7071067811865476f)); }
PH_I float ph_fast_pow(float a, float b) { return ph_fast_exp2(b * ph_fast_log2(a)); }
#define PH_FAST_DOUBLE(name) PH_I double ph_fast_##name(double x) { return ph_##name(x); }
PH_FAST_DOUBLE(exp) PH_FAST_DOUBLE(exp2) PH_FAST_DOUBLE(log) PH_FAST_DOUBLE(log2) PH_FAST_DOUBLE(sqrt)
PH_FAST_DOUBLE(rsqrt)
PH_FAST_DOUBLE(sin) PH_FAST_DOUBLE(cos) PH_FAST_DOUBLE(tanh) PH_FAST_DOUBLE(sigmoid) PH_FAST_DOUBLE(erf)
PH_FAST_DOUBLE(gelu)
PH_I double ph_fast_rcp(double x) { return 1. / x; }
PH_I double ph_fast_div(double a, double b) { return a / b; }
PH_I double ph_fast_pow(double a, double b) { return pow(a, b); }
