// part: float8
// needs: core half convert
// provides: ph_f8e4m3 ph_f8e5m2 ph_f2e4m3 ph_e4m32f ph_f2e5m2 ph_e5m22f
// Serves both preludes. Rounds to nearest even and saturates to the largest finite value (.satfinite in PTX); NaN gives
// 0x7f.
template<int MANTISSA, int BIAS, unsigned LARGEST> PH_I unsigned char ph_f2f8(float f) {
  const unsigned u = ph_bits<unsigned>(f), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7f;
  unsigned code;
  if (magnitude < (unsigned)(128 - BIAS) << 23) {
    // subnormal: the sum with 2^(24 - BIAS - MANTISSA) has its last bit where the result has, so the addition rounds
    const unsigned offset = (unsigned)(151 - BIAS - MANTISSA) << 23;
    code = ph_bits<unsigned>(ph_bits<float>(magnitude) + ph_bits<float>(offset)) - offset;
  } else {
    const unsigned cut = 23 - MANTISSA, odd = magnitude >> cut & 1;
    code = ((magnitude + (1u << (cut - 1)) - 1 + odd) >> cut) - ((unsigned)(127 - BIAS) << MANTISSA);
    code = code > LARGEST ? LARGEST : code;
  }
  return (unsigned char)(sign | code);
}
PH_I ph_f8e4m3 ph_f2e4m3(float f) { return {ph_f2f8<3, 7, 0x7e>(f)}; }
PH_I ph_f8e5m2 ph_f2e5m2(float f) { return {ph_f2f8<2, 15, 0x7b>(f)}; }
// An e4m3 code has the fields of an f16 whose exponent is 8 too small, so 2^8 times that f16 is its value; the code
// 0x7f is NaN.
PH_I float ph_e4m32f(ph_f8e4m3 v) {
  const unsigned magnitude = v.x & 0x7f, sign = (unsigned)(v.x & 0x80) << 8;
  if (magnitude == 0x7f) return ph_bits<float>(0x7fffffffu);
  return ph_h2f(ph_half{(unsigned short)(sign | magnitude << 7)}) * 256.f;
}
// an e5m2 code is the upper half of an f16
PH_I float ph_e5m22f(ph_f8e5m2 v) { return ph_h2f(ph_half{(unsigned short)(v.x << 8)}); }
#define PH_CVT_F8(F, narrow, widen) \
  PH_CVT_NARROW(F, narrow) PH_CVT_WIDEN(F, widen) PH_CVT(F, ph_half, narrow(ph_h2f(v))) \
  PH_CVT(F, ph_bf16, narrow(ph_b2f(v))) \
  PH_CVT(ph_half, F, ph_f2h(widen(v))) PH_CVT(ph_bf16, F, ph_f2b(widen(v)))
PH_CVT_F8(ph_f8e4m3, ph_f2e4m3, ph_e4m32f) PH_CVT_F8(ph_f8e5m2, ph_f2e5m2, ph_e5m22f)
PH_CVT(ph_f8e4m3, ph_f8e5m2, ph_f2e4m3(ph_e5m22f(v))) PH_CVT(ph_f8e5m2, ph_f8e4m3, ph_f2e5m2(ph_e4m32f(v)))
