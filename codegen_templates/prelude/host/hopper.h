typedef ph_shared<ph_u64> ph_mbar;
typedef ph_u64 ph_desc;
PH_I void ph_mbar_init(ph_mbar b, int count, PH_LN) { ph_rt_mbar_init(ph_soff(b), count, line); }
PH_I void ph_mbar_arrive(ph_mbar b, PH_LN) { ph_rt_mbar_arrive(ph_soff(b), 0, 1, line); }
PH_I void ph_mbar_expect_tx(ph_mbar b, unsigned bytes, PH_LN) { ph_rt_mbar_arrive(ph_soff(b), bytes, 1, line); }
PH_I bool ph_mbar_try_wait(ph_mbar b, int parity, PH_LN) { return ph_rt_mbar_wait(ph_soff(b), parity, line); }
PH_I void ph_mbar_wait(ph_mbar b, int parity, PH_LN) { ph_rt_mbar_wait(ph_soff(b), parity, line); }
template<class P> PH_I void ph_tma_load_2d(P dst, const ph_tmap& map, int c0, int c1, ph_mbar b, PH_LN) {
  ph_rt_tma_load(ph_soff(dst), &map, c0, c1, ph_soff(b), line);
}
PH_I void ph_fence_proxy_async(PH_LN) { ph_rt_fence_proxy(line); }
PH_I void ph_fence_mbar_init(PH_LN) { ph_rt_fence_mbar(line); }
template<int REGS> PH_I void ph_reg_inc() {}
template<int REGS> PH_I void ph_reg_dec() {}
template<class P> PH_I ph_desc ph_wg_desc(P p, unsigned lbo, unsigned sbo) {
  return (ph_u64)((ph_soff(p) & 0x3FFFF) >> 4) | ((ph_u64)(lbo >> 4) << 16) | ((ph_u64)(sbo >> 4) << 32) | (1ull << 62);
}
PH_I void ph_wg_fence(PH_LN) { ph_rt_wg_fence(line); }
PH_I void ph_wg_commit(PH_LN) { ph_rt_wg_commit(line); }
template<int PENDING> PH_I void ph_wg_wait(PH_LN) { ph_rt_wg_wait(PENDING, line); }
template<int PENDING, int N> PH_I void ph_wg_wait(float (&)[N], PH_LN) { ph_rt_wg_wait(PENDING, line); }
template<int PENDING, int N, int M> PH_I void ph_wg_wait(float (&)[N], float (&)[M], PH_LN) {
  ph_rt_wg_wait(PENDING, line);
}
