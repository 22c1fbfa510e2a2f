#define PH_WGMMA(type, kind) \
  template<int N, int TRANS_B> \
  PH_I void ph_wgmma_ss_##type(float (&d)[N / 2], ph_desc a, ph_desc b, int scale_d, PH_LN) { \
    ph_rt_wgmma(d, nullptr, a, b, N, TRANS_B, scale_d, kind, line); \
  } \
  template<int N, int TRANS_B> \
  PH_I void ph_wgmma_rs_##type(float (&d)[N / 2], const unsigned* a, ph_desc b, int scale_d, PH_LN) { \
    ph_rt_wgmma(d, a, 0, b, N, TRANS_B, scale_d, kind, line); \
  }
PH_WGMMA(f16, 0) PH_WGMMA(bf16, 1)
