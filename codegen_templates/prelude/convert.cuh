// part: convert
// needs: core rounding half
// provides: ph_cvt
// Serves both preludes. ph_cvt<To>(from) chooses ph_cvt_to(ph_tag<To>, from) by overload; the float8 part adds its own
// overloads.
template<class To> struct ph_tag {};
template<class T> PH_I T ph_cvt_to(ph_tag<T>, T v) { return v; }
#define PH_CVT(To, From, expression) PH_I To ph_cvt_to(ph_tag<To>, From v) { return expression; }
#define PH_CVT_PLAIN(To, From) PH_CVT(To, From, (To)v)
#define PH_CVT_INTS(To) \
  PH_CVT_PLAIN(To, signed char) PH_CVT_PLAIN(To, unsigned char) PH_CVT_PLAIN(To, int) \
  PH_CVT_PLAIN(To, unsigned) PH_CVT_PLAIN(To, ph_i64) PH_CVT_PLAIN(To, bool)
PH_CVT_INTS(float) PH_CVT_INTS(double)
// int to int wraps, to bool is != 0: what the language does
#define PH_CVT_FIVE(To, A, B, C, D, E) \
  PH_CVT_PLAIN(To, A) PH_CVT_PLAIN(To, B) PH_CVT_PLAIN(To, C) PH_CVT_PLAIN(To, D) PH_CVT_PLAIN(To, E)
PH_CVT_FIVE(signed char, unsigned char, int, unsigned, ph_i64, bool)
PH_CVT_FIVE(unsigned char, signed char, int, unsigned, ph_i64, bool)
PH_CVT_FIVE(int, signed char, unsigned char, unsigned, ph_i64, bool)
PH_CVT_FIVE(unsigned, signed char, unsigned char, int, ph_i64, bool)
PH_CVT_FIVE(ph_i64, signed char, unsigned char, int, unsigned, bool)
PH_CVT_FIVE(bool, signed char, unsigned char, int, unsigned, ph_i64)
PH_I int ph_saturate(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }
PH_CVT(int, float, ph_f2i(v)) PH_CVT(unsigned, float, ph_f2u(v)) PH_CVT(ph_i64, float, ph_f2ll(v))
PH_CVT(signed char, float, (signed char)ph_saturate(ph_f2i(v), -128, 127))
PH_CVT(unsigned char, float, (unsigned char)ph_saturate(ph_f2i(v), 0, 255))
PH_CVT(bool, float, v != 0.f)
PH_CVT(int, double, ph_d2i(v)) PH_CVT(unsigned, double, ph_d2u(v)) PH_CVT(ph_i64, double, ph_d2ll(v))
PH_CVT(signed char, double, (signed char)ph_saturate(ph_d2i(v), -128, 127))
PH_CVT(unsigned char, double, (unsigned char)ph_saturate(ph_d2i(v), 0, 255))
PH_CVT(bool, double, v != 0.)
PH_CVT_PLAIN(float, double) PH_CVT_PLAIN(double, float)
// From more than 24 bits to 16 or 8: an odd last bit stands for what was cut off, so that the second rounding is the
// only one.
PH_I float ph_odd(float toward_zero, bool inexact) { return ph_bits<float>(ph_bits<unsigned>(toward_zero) | inexact); }
PH_I float ph_to_odd(double v) {
  const float f = ph_d2f_rz(v);
  return ph_odd(f, (double)f != v && v == v);
}
PH_I float ph_to_odd(int v) { return ph_to_odd((double)v); }
PH_I float ph_to_odd(unsigned v) { return ph_to_odd((double)v); }
PH_I float ph_to_odd(ph_i64 v) {
  const float f = ph_ll2f_rz(v);
  return ph_odd(f, ph_f2ll(f) != v);
}
// the other pairs of a narrow float F go by way of float, which holds F exactly
#define PH_CVT_NARROW(F, narrow) \
  PH_CVT(F, double, narrow(ph_to_odd(v))) PH_CVT(F, int, narrow(ph_to_odd(v))) \
  PH_CVT(F, unsigned, narrow(ph_to_odd(v))) \
  PH_CVT(F, ph_i64, narrow(ph_to_odd(v))) PH_CVT(F, signed char, narrow((float)v)) \
  PH_CVT(F, unsigned char, narrow((float)v)) PH_CVT(F, bool, narrow((float)v)) PH_CVT(F, float, narrow(v))
#define PH_CVT_WIDEN_TO(To, F, widen) PH_CVT(To, F, ph_cvt_to(ph_tag<To>(), widen(v)))
#define PH_CVT_WIDEN(F, widen) \
  PH_CVT(float, F, widen(v)) PH_CVT_WIDEN_TO(double, F, widen) PH_CVT_WIDEN_TO(int, F, widen) \
  PH_CVT_WIDEN_TO(unsigned, F, widen) \
  PH_CVT_WIDEN_TO(ph_i64, F, widen) PH_CVT_WIDEN_TO(signed char, F, widen) PH_CVT_WIDEN_TO(unsigned char, F, widen) \
  PH_CVT_WIDEN_TO(bool, F, widen)
PH_CVT_NARROW(ph_half, ph_f2h) PH_CVT_NARROW(ph_bf16, ph_f2b)
PH_CVT_WIDEN(ph_half, ph_h2f) PH_CVT_WIDEN(ph_bf16, ph_b2f)
PH_CVT(ph_half, ph_bf16, ph_f2h(ph_b2f(v))) PH_CVT(ph_bf16, ph_half, ph_f2b(ph_h2f(v)))
template<class To, class From> PH_I To ph_cvt(From v) { return ph_cvt_to(ph_tag<To>(), v); }
