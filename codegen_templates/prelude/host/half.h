PH_I float ph_h2f(ph_half h) { return ph_rt_h2f(h.x); }
PH_I ph_half ph_f2h(float f) { return {ph_rt_f2h(f)}; }
PH_I float ph_b2f(ph_bf16 h) { return ph_bits<float>((unsigned)h.x << 16); }
PH_I ph_bf16 ph_f2b(float f) {
  const unsigned u = ph_bits<unsigned>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {(unsigned short)0x7fff};
  return {(unsigned short)((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}
PH_I unsigned ph_pack_h2(float lo, float hi) { return ph_f2h(lo).x | (unsigned)ph_f2h(hi).x << 16; }
PH_I unsigned ph_pack_b2(float lo, float hi) { return ph_f2b(lo).x | (unsigned)ph_f2b(hi).x << 16; }
PH_I unsigned ph_f2tf32(float f) {  // cvt.rna: to nearest, ties away from zero
  const unsigned u = ph_bits<unsigned>(f);
  if (f != f) return 0x7fffffffu;  // the one NaN that the conversion gives: one of low bits only would become infinity
  return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & ~0x1fffu;
}
// a b + c of numbers of up to 24 bits, an odd last bit standing for what was cut off. The product is exact in double, and
// the error of the sum is (TwoSum).
PH_I float ph_fma_odd(float a, float b, float c) {
  const double p = (double)a * b, s = p + c, t = s - p, e = (p - (s - t)) + (c - t);
  ph_u64 wide = ph_bits<ph_u64>(s);
  if (e == e && e != 0. && !(wide & 1)) wide += (e > 0.) == (s > 0.) ? 1 : -1;
  const double odd = ph_bits<double>(wide);
  const float f = (float)odd;
  unsigned narrow = ph_bits<unsigned>(f);
  if (f == f && (double)f != odd && !(narrow & 1)) narrow += (odd > f) == (odd > 0.) ? 1 : -1;
  return ph_bits<float>(narrow);
}
