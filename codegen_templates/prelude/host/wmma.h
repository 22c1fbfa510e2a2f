// Opaque fragments of 16x16x16, for tf32 (T float) 16x16x8: register e of a lane is matrix element
// ph_wmma_pos(operand, lane, e), a permutation that is not the GPU's on purpose and differs between a, b and c, between
// memory layouts and between shapes, so that a text which mixes them up gives wrong numbers.
template<class T, bool COL> struct ph_wmma_a { unsigned x[8]; };
template<class T, bool COL> struct ph_wmma_b { unsigned x[8]; };
struct ph_wmma_c { float x[8]; };
struct ph_wmma_c_tf32 { float x[8]; };
enum { PH_WMMA_A, PH_WMMA_A_COL, PH_WMMA_B, PH_WMMA_B_COL, PH_WMMA_C, PH_WMMA_C_TF32 };
PH_I int ph_wmma_pos(int operand, int lane, int e, int registers = 8) {
  return ((lane * registers + e) * (37 + 2 * operand) + 11 * operand + 5) & (32 * registers - 1);
}
// registers of a and b, and log2 of the depth
template<class T> struct ph_wmma_kind;
template<> struct ph_wmma_kind<ph_half> { enum { value = 0, registers = 8, log_k = 4 }; };
template<> struct ph_wmma_kind<ph_bf16> { enum { value = 1, registers = 8, log_k = 4 }; };
template<> struct ph_wmma_kind<float> { enum { value = 8, registers = 4, log_k = 3 }; };
template<class T> PH_I unsigned ph_wmma_bits(T v) { return v.x; }
PH_I unsigned ph_wmma_bits(float v) { return ph_bits<unsigned>(v); }
// What wmma.load and wmma.store ask for: a tile on 32 bytes, rows on 16.
template<class T, class P> PH_I void ph_wmma_aligned(P p, int ld, int line) {
  if (ph_soff(p) % 32 || ld * sizeof(T) % 16)
    ph_rt_fault("misaligned", "a wmma tile starts on 32 bytes, and its rows are whole 16 bytes apart", line);
}
#define PH_WMMA_LOAD(operand, COL, kind, log_columns) \
  template<int OFFSET = 0, class T, class P> \
  PH_I void ph_wmma_load_##operand(ph_wmma_##operand<T, COL>& f, P start, int ld, PH_LN) { \
    typedef ph_wmma_kind<T> K; \
    const P p = start + OFFSET; \
    ph_wmma_aligned<T>(p, ld, line); \
    for (int e = 0; e < K::registers; e++) { \
      const int q = ph_wmma_pos(kind, ph_tid() & 31, e, K::registers); \
      const int r = q >> (log_columns), c = q & ((1 << (log_columns)) - 1); \
      f.x[e] = ph_wmma_bits(ph_ldv<T>(p, COL ? (long long)c * ld + r : (long long)r * ld + c, line)); \
    } \
  }
PH_WMMA_LOAD(a, false, PH_WMMA_A, K::log_k) PH_WMMA_LOAD(a, true, PH_WMMA_A_COL, K::log_k)
PH_WMMA_LOAD(b, false, PH_WMMA_B, 4) PH_WMMA_LOAD(b, true, PH_WMMA_B_COL, 4)
#define PH_WMMA_CD(C, kind) \
  PH_I void ph_wmma_fill(C& f, float v) { \
    for (int e = 0; e < 8; e++) f.x[e] = v; \
  } \
  template<class P> PH_I void ph_wmma_load_c(C& f, P p, int ld, PH_LN) { \
    ph_wmma_aligned<float>(p, ld, line); \
    for (int e = 0; e < 8; e++) { \
      const int q = ph_wmma_pos(kind, ph_tid() & 31, e); \
      f.x[e] = ph_ldv<float>(p, (long long)(q >> 4) * ld + (q & 15), line); \
    } \
  } \
  template<class P> PH_I void ph_wmma_store(P p, int ld, const C& f, PH_LN) { \
    ph_wmma_aligned<float>(p, ld, line); \
    for (int e = 0; e < 8; e++) { \
      const int q = ph_wmma_pos(kind, ph_tid() & 31, e); \
      ph_stv<float>(p, (long long)(q >> 4) * ld + (q & 15), f.x[e], line); \
    } \
  }
PH_WMMA_CD(ph_wmma_c, PH_WMMA_C) PH_WMMA_CD(ph_wmma_c_tf32, PH_WMMA_C_TF32)
template<class T, bool COLA, bool COLB>
PH_I void ph_wmma_mma(ph_wmma_c& c, const ph_wmma_a<T, COLA>& a, const ph_wmma_b<T, COLB>& b, PH_LN) {
  static_assert(ph_wmma_kind<T>::log_k == 4, "tf32 has accumulators of its own");
  ph_rt_wmma(c.x, a.x, b.x, ph_wmma_kind<T>::value | COLA << 1 | COLB << 2, line);
}
template<bool COLA, bool COLB>
PH_I void ph_wmma_mma(ph_wmma_c_tf32& c, const ph_wmma_a<float, COLA>& a, const ph_wmma_b<float, COLB>& b, PH_LN) {
  ph_rt_wmma(c.x, a.x, b.x, ph_wmma_kind<float>::value | COLA << 1 | COLB << 2, line);
}
