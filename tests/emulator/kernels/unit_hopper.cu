#line 1 "unit_hopper.ph"
// wgmma from shared memory written by plain stores with the 128-byte swizzle: D[64,128] = A[64,64] B[64,128]; B is N-major in two panels
PH_KERNEL(128, 1) u_wgmma_nmajor(ph_global<const ph_bf16> A, ph_global<const ph_bf16> B, ph_global<float> D) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const ph_shared<ph_bf16> sA = ph_smem<ph_bf16>(0), sB = ph_smem<ph_bf16>(8192);
  for (int i = tid; i < 512; i += 128) {
    const int r = i >> 3, c = i & 7;
    ph_stv(sA, r * 64 + ((c ^ (r & 7)) << 3), ph_ldv<ph_vec<unsigned, 4>>(A, r * 64 + c * 8));
  }
  for (int i = tid; i < 1024; i += 128) {
    const int k = i >> 4, panel = (i >> 3) & 1, c = i & 7;
    ph_stv(sB, panel * 4096 + k * 64 + ((c ^ (k & 7)) << 3), ph_ldv<ph_vec<unsigned, 4>>(B, k * 128 + panel * 64 + c * 8));
  }
  ph_fence_proxy_async();
  ph_syncthreads();
  float d[64];
  const ph_desc da = ph_wg_desc(sA, 16, 1024), db = ph_wg_desc(sB, 8192, 1024);
  ph_wg_fence();
  for (int kk = 0; kk < 4; kk++) ph_wgmma_ss_bf16<128, 1>(d, da + kk * 2, db + kk * 128, kk > 0);
  ph_wg_commit();
  ph_wg_wait<0>(d);
  for (int i = 0; i < 64; i++) D[(warp * 16 + g + 8 * ((i >> 1) & 1)) * 128 + (i >> 2) * 8 + t * 2 + (i & 1)] = d[i];
}
// A from registers, B K-major: D[64,64] = A[64,64] B[64,64]^T
PH_KERNEL(128, 1) u_wgmma_registers(ph_global<const ph_bf16> A, ph_global<const ph_bf16> B, ph_global<float> D) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const ph_shared<ph_bf16> sB = ph_smem<ph_bf16>(0);
  for (int i = tid; i < 512; i += 128) {
    const int r = i >> 3, c = i & 7;
    ph_stv(sB, r * 64 + ((c ^ (r & 7)) << 3), ph_ldv<ph_vec<unsigned, 4>>(B, r * 64 + c * 8));
  }
  ph_fence_proxy_async();
  ph_syncthreads();
  unsigned a[16];
  PH_UNROLL
  for (int i = 0; i < 16; i++)
    a[i] = ph_ldv<unsigned>(A, (warp * 16 + g + 8 * (i & 1)) * 64 + (i >> 2) * 16 + 2 * t + 8 * ((i >> 1) & 1));
  float d[32];
  const ph_desc db = ph_wg_desc(sB, 16, 1024);
  ph_wg_fence();
  PH_UNROLL
  for (int kk = 0; kk < 4; kk++) ph_wgmma_rs_bf16<64, 0>(d, a + 4 * kk, db + kk * 2, kk > 0);
  ph_wg_commit();
  ph_wg_wait<0>(d);
  PH_UNROLL
  for (int i = 0; i < 32; i++) D[(warp * 16 + g + 8 * ((i >> 1) & 1)) * 64 + (i >> 2) * 8 + t * 2 + (i & 1)] = d[i];
}
// TMA tile past the edges, read back with the swizzle
PH_KERNEL(32, 1) u_tma(PH_TENSORMAP m, ph_global<unsigned short> Y, int c0, int c1) {
  const int lane = ph_tid();
  const ph_shared<unsigned short> s = ph_smem<unsigned short>(0);
  const ph_mbar bar = ph_smem<ph_u64>(1024);
  if (lane == 0) { ph_mbar_init(bar, 1); ph_fence_mbar_init(); }
  ph_syncwarp();
  if (lane == 0) { ph_mbar_expect_tx(bar, 1024); ph_tma_load_2d(s, m, c0, c1, bar); }
  while (!ph_mbar_try_wait(bar, 0)) {}
  for (int i = lane; i < 512; i += 32) Y[i] = s[(i >> 6) * 64 + ((((i >> 3) & 7) ^ ((i >> 6) & 7)) << 3) + (i & 7)];
}
// one consumer warp, one producer thread, one buffer: the elected arrive needs a ph_syncwarp in front of it
PH_KERNEL(64, 1) elect(PH_TENSORMAP m, ph_global<unsigned> Y, int n) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31;
  const ph_shared<ph_half> s = ph_smem<ph_half>(0);
  const ph_mbar full = ph_smem<ph_u64>(1024), empty = full + 1;
  if (tid == 0) { ph_mbar_init(full, 1); ph_mbar_init(empty, 1); ph_fence_mbar_init(); }
  ph_syncthreads();
  if (warp == 1) {
    if (lane == 0)
      for (int i = 0; i < n; i++) {
        ph_mbar_wait(empty, (i & 1) ^ 1);
        ph_mbar_expect_tx(full, 1024);
        ph_tma_load_2d(s, m, 0, i * 8, full);
      }
  } else {
    for (int i = 0; i < n; i++) {
      unsigned r[4];
      ph_mbar_wait(full, i & 1);
      ph_ldmatrix_x4(r, s + (lane & 7) * 64 + (((lane >> 3) ^ (lane & 7)) << 3));
      for (int e = 0; e < 4; e++) Y[(i * 32 + lane) * 4 + e] = r[e];
      ph_syncwarp();
      if (lane == 0) ph_mbar_arrive(empty);
    }
  }
}
