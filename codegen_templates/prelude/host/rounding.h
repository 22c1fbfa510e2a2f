// float to integer: truncates, saturates, NaN gives 0. The bounds are exact in the source type; a conversion inside
// them is defined.
template<class I, class F> PH_I I ph_saturating(F v, F lowest, F beyond, I lo, I hi) {
  return v != v ? 0 : v < lowest ? lo : v >= beyond ? hi : (I)v;
}
#define PH_I64_MIN (-0x7fffffffffffffffll - 1)
PH_I int ph_f2i(float v) { return ph_saturating(v, -0x1p31f, 0x1p31f, (int)-0x7fffffff - 1, 0x7fffffff); }
PH_I unsigned ph_f2u(float v) { return ph_saturating(v, 0.f, 0x1p32f, 0u, 0xffffffffu); }
PH_I ph_i64 ph_f2ll(float v) { return ph_saturating(v, -0x1p63f, 0x1p63f, PH_I64_MIN, 0x7fffffffffffffffll); }
PH_I int ph_d2i(double v) { return ph_saturating(v, -0x1p31, 0x1p31, (int)-0x7fffffff - 1, 0x7fffffff); }
PH_I unsigned ph_d2u(double v) { return ph_saturating(v, 0., 0x1p32, 0u, 0xffffffffu); }
PH_I ph_i64 ph_d2ll(double v) { return ph_saturating(v, -0x1p63, 0x1p63, PH_I64_MIN, 0x7fffffffffffffffll); }
PH_I float ph_d2f_rz(double v) { return ph_rt_d2f_rz(v); }
PH_I float ph_ll2f_rz(ph_i64 v) { return ph_rt_ll2f_rz(v); }
