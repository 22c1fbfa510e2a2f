// Opaque fragments of 16x16x16: register e of a lane is matrix element ph_wmma_pos(operand, lane, e), a permutation
// that is not the GPU's on purpose and differs between a, b and c and between memory layouts, so that a text which
// mixes them up gives wrong numbers.
template<class T, bool COL> struct ph_wmma_a { unsigned x[8]; };
template<class T, bool COL> struct ph_wmma_b { unsigned x[8]; };
struct ph_wmma_c { float x[8]; };
enum { PH_WMMA_A, PH_WMMA_A_COL, PH_WMMA_B, PH_WMMA_B_COL, PH_WMMA_C };
PH_I int ph_wmma_pos(int operand, int lane, int e) {
  return ((lane * 8 + e) * (37 + 2 * operand) + 11 * operand + 5) & 255;
}
#define PH_WMMA_LOAD(operand, COL, kind) \
  template<class T, class P> PH_I void ph_wmma_load_##operand(ph_wmma_##operand<T, COL>& f, P p, int ld, PH_LN) { \
    for (int e = 0; e < 8; e++) { \
      const int q = ph_wmma_pos(kind, ph_tid() & 31, e), r = q >> 4, c = q & 15; \
      f.x[e] = ph_ldv<T>(p, COL ? (long long)c * ld + r : (long long)r * ld + c, line).x; \
    } \
  }
PH_WMMA_LOAD(a, false, PH_WMMA_A) PH_WMMA_LOAD(a, true, PH_WMMA_A_COL)
PH_WMMA_LOAD(b, false, PH_WMMA_B) PH_WMMA_LOAD(b, true, PH_WMMA_B_COL)
PH_I void ph_wmma_fill(ph_wmma_c& f, float v) {
  for (int e = 0; e < 8; e++) f.x[e] = v;
}
template<class P> PH_I void ph_wmma_load_c(ph_wmma_c& f, P p, int ld, PH_LN) {
  for (int e = 0; e < 8; e++) {
    const int q = ph_wmma_pos(PH_WMMA_C, ph_tid() & 31, e);
    f.x[e] = ph_ldv<float>(p, (long long)(q >> 4) * ld + (q & 15), line);
  }
}
template<class P> PH_I void ph_wmma_store(P p, int ld, const ph_wmma_c& f, PH_LN) {
  for (int e = 0; e < 8; e++) {
    const int q = ph_wmma_pos(PH_WMMA_C, ph_tid() & 31, e);
    ph_stv<float>(p, (long long)(q >> 4) * ld + (q & 15), f.x[e], line);
  }
}
template<class T> struct ph_wmma_kind;
template<> struct ph_wmma_kind<ph_half> { enum { value = 0 }; };
template<> struct ph_wmma_kind<ph_bf16> { enum { value = 1 }; };
template<class T, bool COLA, bool COLB>
PH_I void ph_wmma_mma(ph_wmma_c& c, const ph_wmma_a<T, COLA>& a, const ph_wmma_b<T, COLB>& b, PH_LN) {
  ph_rt_wmma(c.x, a.x, b.x, ph_wmma_kind<T>::value | COLA << 1 | COLB << 2, line);
}
