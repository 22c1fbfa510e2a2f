// part: hopper
// needs: core
// provides: ph_mbar ph_mbar_init ph_mbar_arrive ph_mbar_expect_tx ph_mbar_try_wait ph_mbar_wait ph_tma_load_2d
// provides: ph_fence_proxy_async ph_fence_mbar_init ph_reg_inc ph_reg_dec ph_desc ph_wg_desc ph_wg_fence
// provides: ph_wg_commit ph_wg_wait
// mbarriers, TMA and the frame of wgmma; the products themselves are in the part `wgmma`, one for each shape in use.
typedef ph_u64* ph_mbar;
typedef ph_u64 ph_desc;
#if __CUDA_ARCH__ >= 900
PH_I void ph_mbar_init(ph_mbar b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ph_soff(b)), "r"(count) : "memory");
}
PH_I void ph_mbar_arrive(ph_mbar b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ph_soff(b)) : "memory");
}
PH_I void ph_mbar_expect_tx(ph_mbar b, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(ph_soff(b)), "r"(bytes) : "memory");
}
PH_I bool ph_mbar_try_wait(ph_mbar b, int parity) {
  unsigned ok;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
    : "=r"(ok) : "r"(ph_soff(b)), "r"(parity) : "memory");
  return ok;
}
PH_I void ph_mbar_wait(ph_mbar b, int parity) {
  while (!ph_mbar_try_wait(b, parity)) {}
}
template<class T> PH_I void ph_tma_load_2d(T* dst, const ph_tmap& map, int c0, int c1, ph_mbar b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%0], [%1, {%2,%3}], [%4];"
    ::"r"(ph_soff(dst)), "l"((ph_u64)&map), "r"(c0), "r"(c1), "r"(ph_soff(b)) : "memory");
}
PH_I void ph_fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PH_I void ph_fence_mbar_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
template<int REGS> PH_I void ph_reg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGS)); }
template<int REGS> PH_I void ph_reg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGS)); }
// the hardware's bits: address >> 4, LBO >> 4 from bit 16, SBO >> 4 from bit 32, 1 << 62 for the 128-byte swizzle
template<class T> PH_I ph_desc ph_wg_desc(T* p, unsigned lbo, unsigned sbo) {
  return (ph_u64)((ph_soff(p) & 0x3FFFF) >> 4) | ((ph_u64)(lbo >> 4) << 16) | ((ph_u64)(sbo >> 4) << 32) | (1ull << 62);
}
PH_I void ph_wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PH_I void ph_wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// The empty statements keep every use of the registers behind the wait.
template<int N> PH_I void ph_wg_touch(float (&d)[N]) {
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template<int PENDING, int... N> PH_I void ph_wg_wait(float (&... d)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
  (ph_wg_touch(d), ...);
}
#endif
