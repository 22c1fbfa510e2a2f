// the same attention with TMA, mbarriers and wgmma: 128 threads (one warpgroup), K/V ring of two stages.
#line 1 "flash_wgmma.ph"
PH_KERNEL(128, 1) flash_wgmma(PH_TENSORMAP tQ, PH_TENSORMAP tK, PH_TENSORMAP tV, ph_global<ph_half> O, int Nq, int Nk, float scale_log2) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const int row0 = ph_ctaid_x() * 64, blocks = (Nk + 63) / 64;
  const ph_shared<ph_half> sQ = ph_smem<ph_half>(0), sK = ph_smem<ph_half>(8192), sV = ph_smem<ph_half>(24576);
  const ph_mbar bars = ph_smem<ph_u64>(40960);
  const ph_mbar fullQ = bars, full = bars + 1, empty = bars + 3;       // full[2], empty[2]
  if (tid == 0) {
    ph_mbar_init(fullQ, 1);
    for (int i = 0; i < 2; i++) { ph_mbar_init(full + i, 1); ph_mbar_init(empty + i, 4); }
    ph_fence_mbar_init();
    ph_fence_proxy_async();
  }
  ph_syncthreads();
  if (tid == 0) {
    ph_mbar_expect_tx(fullQ, 8192);
    ph_tma_load_2d(sQ, tQ, 0, row0, fullQ);
    for (int i = 0; i < 2 && i < blocks; i++) {
      ph_mbar_expect_tx(full + i, 16384);
      ph_tma_load_2d(sK + i * 4096, tK, 0, i * 64, full + i);
      ph_tma_load_2d(sV + i * 4096, tV, 0, i * 64, full + i);
    }
  }
  float acc[32], s[32];
  float m[2] = {-1.0e30f, -1.0e30f}, l[2] = {0.f, 0.f};
PH_UNROLL
  for (int i = 0; i < 32; i++) acc[i] = 0.f;
  ph_mbar_wait(fullQ, 0);
  const ph_desc dQ = ph_wg_desc(sQ, 16, 1024), dK = ph_wg_desc(sK, 16, 1024), dV = ph_wg_desc(sV, 16, 1024);

  for (int n = 0; n < blocks; n++) {
    const int st = n & 1, phase = (n >> 1) & 1;
    if (tid == 0 && n > 0 && n + 1 < blocks) {                          // refill the other stage
      const int o = st ^ 1;
      ph_mbar_wait(empty + o, ((n - 1) >> 1) & 1);
      ph_mbar_expect_tx(full + o, 16384);
      ph_tma_load_2d(sK + o * 4096, tK, 0, (n + 1) * 64, full + o);
      ph_tma_load_2d(sV + o * 4096, tV, 0, (n + 1) * 64, full + o);
    }
    ph_mbar_wait(full + st, phase);
    ph_wg_fence();
PH_UNROLL
    for (int kk = 0; kk < 4; kk++)                                      // s = dot_t(q, k)
      ph_wgmma_ss_f16<64, 0>(s, dQ + kk * 2, dK + st * 512 + kk * 2, kk > 0);
    ph_wg_commit();
    ph_wg_wait<0>(s);
PH_UNROLL
    for (int h = 0; h < 2; h++) {
      float mx = m[h];
PH_UNROLL
      for (int j = 0; j < 8; j++) {
PH_UNROLL
        for (int e = 0; e < 2; e++) {
          const int col = n * 64 + j * 8 + t * 2 + e;
          const float x = col < Nk ? s[4 * j + 2 * h + e] * scale_log2 : -1.0e30f;
          s[4 * j + 2 * h + e] = x;
          mx = ph_max(mx, x);
        }
      }
      mx = ph_max(mx, ph_shfl_xor(mx, 1));
      mx = ph_max(mx, ph_shfl_xor(mx, 2));
      const float corr = ph_fast_exp2(m[h] - mx);
      m[h] = mx;
      float sum = 0.f;
PH_UNROLL
      for (int j = 0; j < 8; j++) {
PH_UNROLL
        for (int e = 0; e < 2; e++) {
          const float p = ph_fast_exp2(s[4 * j + 2 * h + e] - mx);
          s[4 * j + 2 * h + e] = p;
          sum += p;
          acc[4 * j + 2 * h + e] *= corr;
        }
      }
      l[h] = l[h] * corr + sum;
    }
    unsigned p[16];
PH_UNROLL
    for (int i = 0; i < 16; i++) p[i] = ph_pack_h2(s[2 * i], s[2 * i + 1]);
    ph_wg_fence();
PH_UNROLL
    for (int kk = 0; kk < 4; kk++)                                      // acc += dot(p, v)
      ph_wgmma_rs_f16<64, 1>(acc, p + 4 * kk, dV + st * 512 + kk * 128, 1);
    ph_wg_commit();
    ph_wg_wait<0>(acc);
    if (lane == 0) ph_mbar_arrive(empty + st);
  }
PH_UNROLL
  for (int h = 0; h < 2; h++) {
    float sum = l[h];
    sum += ph_shfl_xor(sum, 1);
    sum += ph_shfl_xor(sum, 2);
    const float inv = 1.f / sum;
    const int row = row0 + warp * 16 + g + 8 * h;
    if (row < Nq) {
PH_UNROLL
      for (int j = 0; j < 8; j++)
        ph_stv<unsigned>(O, (long long)row * 64 + j * 8 + t * 2, ph_pack_h2(acc[4 * j + 2 * h] * inv, acc[4 * j + 2 * h + 1] * inv));
    }
  }
}
