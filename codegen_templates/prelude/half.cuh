// part: half
// needs: core
// provides: ph_h2f ph_f2h ph_b2f ph_f2b ph_pack_h2 ph_pack_b2 ph_f2tf32 ph_fma_odd
PH_I float ph_h2f(ph_half h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.x));
  return f;
}
PH_I ph_half ph_f2h(float f) {
  ph_half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.x) : "f"(f));
  return h;
}
// As one move of two halves: shifts are hoisted to the loads, and 128 loaded numbers then take 128 registers (168 bytes
// spilled in a product of 128x256 with beta).
PH_I float ph_b2f(ph_bf16 h) {
  float f;
  asm("mov.b32 %0, {%1, %2};" : "=f"(f) : "h"((unsigned short)0), "h"(h.x));
  return f;
}
PH_I ph_bf16 ph_f2b(float f) {
  ph_bf16 h;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.x) : "f"(f));
#else
  const unsigned u = __float_as_uint(f);
  h.x = f != f ? 0x7fff : (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
#endif
  return h;
}
PH_I unsigned ph_pack_h2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  unsigned d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
#else
  return ph_f2h(lo).x | (unsigned)ph_f2h(hi).x << 16;
#endif
}
PH_I unsigned ph_pack_b2(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
  unsigned d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
#else
  return ph_f2b(lo).x | (unsigned)ph_f2b(hi).x << 16;
#endif
}
// to nearest, ties away from zero; the low 13 bits are 0
PH_I unsigned ph_f2tf32(float f) {
  unsigned d;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(d) : "f"(f));
  if (f != f) d = 0x7fffffffu;  // on an H200 a NaN of low bits only became infinity
#else
  d = __float_as_uint(f);
  d = (d & 0x7f800000u) == 0x7f800000u ? d : (d + 0x1000u) & ~0x1fffu;
#endif
  return d;
}
// a b + c, an odd last bit standing for what was cut off
PH_I float ph_fma_odd(float a, float b, float c) {
  return ph_bits<float>(ph_bits<unsigned>(__fmaf_rz(a, b, c)) | (__fmaf_rd(a, b, c) != __fmaf_ru(a, b, c)));
}
