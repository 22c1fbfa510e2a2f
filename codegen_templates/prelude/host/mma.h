#define PH_LDMATRIX(name, num, trans) \
  PH_I void name(unsigned* r, unsigned at, PH_LN) { ph_rt_ldmatrix(r, at, num, trans, line); } \
  template<class T> PH_I void name(unsigned* r, ph_shared<T> p, PH_LN) { \
    ph_rt_ldmatrix(r, ph_soff(p), num, trans, line); \
  }
#if !PH_CHECK
#undef PH_LDMATRIX
#define PH_LDMATRIX(name, num, trans) \
  PH_I void name(unsigned* r, unsigned at, PH_LN) { ph_rt_ldmatrix(r, at, num, trans, line); } \
  PH_I void name(unsigned* r, const void* p, PH_LN) { ph_rt_ldmatrix(r, ph_soff(p), num, trans, line); }
#endif
PH_LDMATRIX(ph_ldmatrix_x1, 1, 0) PH_LDMATRIX(ph_ldmatrix_x2, 2, 0) PH_LDMATRIX(ph_ldmatrix_x4, 4, 0)
PH_LDMATRIX(ph_ldmatrix_x1_trans, 1, 1) PH_LDMATRIX(ph_ldmatrix_x2_trans, 2, 1) PH_LDMATRIX(ph_ldmatrix_x4_trans, 4, 1)
#define PH_MMA(name, T, kind) \
  PH_I void name(T* c, const unsigned* a, const unsigned* b, PH_LN) { ph_rt_mma(c, a, b, kind, line); }
PH_MMA(ph_mma_f16, float, 0) PH_MMA(ph_mma_bf16, float, 1) PH_MMA(ph_mma_tf32, float, 2) PH_MMA(ph_mma_s8, int, 3)
PH_MMA(ph_mma_u8, int, 4) PH_MMA(ph_mma_e4m3, float, 5) PH_MMA(ph_mma_e5m2, float, 6)
