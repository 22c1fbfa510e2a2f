// warp-specialised attention, FA3 style: 384 threads = producer warpgroup + two consumers of 64 rows, rings of two stages,
// QK of block n+1 issued before the softmax of block n, named-barrier ping-pong. D = 64, BR = 128, BC = 64.
#line 1 "flash_ws.ph"
PH_DEVICE void qk(float (&s)[32], ph_desc q, ph_desc k) {
PH_UNROLL
  for (int kk = 0; kk < 4; kk++) ph_wgmma_ss_f16<64, 0>(s, q + kk * 2, k + kk * 2, kk > 0);
  ph_wg_commit();
}
PH_DEVICE void pv(float (&o)[32], const unsigned (&p)[16], ph_desc v) {
PH_UNROLL
  for (int kk = 0; kk < 4; kk++) ph_wgmma_rs_f16<64, 1>(o, p + 4 * kk, v + kk * 128, 1);
  ph_wg_commit();
}
PH_DEVICE void softmax(float (&s)[32], float (&m)[2], float (&l)[2], float (&corr)[2], float scale_log2) {
PH_UNROLL
  for (int h = 0; h < 2; h++) {
    float mx = m[h];
PH_UNROLL
    for (int j = 0; j < 16; j++) mx = ph_max(mx, s[4 * (j >> 1) + 2 * h + (j & 1)] * scale_log2);
    mx = ph_max(mx, ph_shfl_xor(mx, 1));
    mx = ph_max(mx, ph_shfl_xor(mx, 2));
    corr[h] = ph_fast_exp2(m[h] - mx);
    m[h] = mx;
    float sum = 0.f;
PH_UNROLL
    for (int j = 0; j < 16; j++) {
      const float p = ph_fast_exp2(ph_fma(s[4 * (j >> 1) + 2 * h + (j & 1)], scale_log2, -mx));
      s[4 * (j >> 1) + 2 * h + (j & 1)] = p;
      sum += p;
    }
    l[h] = l[h] * corr[h] + sum;
  }
}
PH_KERNEL(384, 1) flash_ws(PH_TENSORMAP tQ, PH_TENSORMAP tK, PH_TENSORMAP tV, ph_global<ph_half> O, int Nq, int Nk, float scale_log2) {
  const int tid = ph_tid(), wg = tid >> 7, warp = (tid >> 5) & 3, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const int row0 = ph_ctaid_x() * 128, blocks = Nk / 64;
  const ph_shared<ph_half> sQ = ph_smem<ph_half>(0), sK = ph_smem<ph_half>(16384), sV = ph_smem<ph_half>(32768);
  const ph_mbar fullQ = ph_smem<ph_u64>(49152), fullK = fullQ + 1, emptyK = fullQ + 3, fullV = fullQ + 5, emptyV = fullQ + 7;
  if (tid == 0) {
    ph_mbar_init(fullQ, 1);
    for (int i = 0; i < 2; i++) {
      ph_mbar_init(fullK + i, 1);
      ph_mbar_init(fullV + i, 1);
      ph_mbar_init(emptyK + i, 8);
      ph_mbar_init(emptyV + i, 8);
    }
    ph_fence_mbar_init();
    ph_fence_proxy_async();
  }
  ph_syncthreads();
  if (wg == 0) {
    ph_reg_dec<24>();
    if (tid == 0) {
      ph_mbar_expect_tx(fullQ, 16384);
      ph_tma_load_2d(sQ, tQ, 0, row0, fullQ);
      ph_tma_load_2d(sQ + 4096, tQ, 0, row0 + 64, fullQ);
      for (int n = 0; n < blocks; n++) {
        const int st = n & 1, ph = ((n >> 1) & 1) ^ 1;
        ph_mbar_wait(emptyK + st, ph);
        ph_mbar_expect_tx(fullK + st, 8192);
        ph_tma_load_2d(sK + st * 4096, tK, 0, n * 64, fullK + st);
        ph_mbar_wait(emptyV + st, ph);
        ph_mbar_expect_tx(fullV + st, 8192);
        ph_tma_load_2d(sV + st * 4096, tV, 0, n * 64, fullV + st);
      }
    }
  } else {
    ph_reg_inc<240>();
    const int cw = wg - 1;
    float s[32], o[32];
    unsigned p[16];
    float m[2] = {-1.0e30f, -1.0e30f}, l[2] = {0.f, 0.f}, corr[2];
PH_UNROLL
    for (int i = 0; i < 32; i++) o[i] = 0.f;
    const ph_desc dQ = ph_wg_desc(sQ + cw * 4096, 16, 1024), dK = ph_wg_desc(sK, 16, 1024), dV = ph_wg_desc(sV, 16, 1024);
    if (cw == 1) ph_bar_arrive(1, 256);
    ph_mbar_wait(fullQ, 0);
    ph_mbar_wait(fullK, 0);
    ph_wg_fence();
    qk(s, dQ, dK);
    ph_wg_wait<0>(s);
    if (lane == 0) ph_mbar_arrive(emptyK);
    softmax(s, m, l, corr, scale_log2);
PH_UNROLL
    for (int i = 0; i < 16; i++) p[i] = ph_pack_h2(s[2 * i], s[2 * i + 1]);
    for (int n = 0; n + 1 < blocks; n++) {
      const int st = (n + 1) & 1, vst = n & 1;
      ph_mbar_wait(fullK + st, ((n + 1) >> 1) & 1);
      ph_bar_sync(1 + cw, 256);
      ph_wg_fence();
      qk(s, dQ, dK + st * 512);
      ph_mbar_wait(fullV + vst, (n >> 1) & 1);
      ph_wg_fence();
      pv(o, p, dV + vst * 512);
      ph_bar_arrive(2 - cw, 256);
      ph_wg_wait<1>(s);
      if (lane == 0) ph_mbar_arrive(emptyK + st);
      softmax(s, m, l, corr, scale_log2);
      ph_wg_wait<0>(o);
      if (lane == 0) ph_mbar_arrive(emptyV + vst);
PH_UNROLL
      for (int i = 0; i < 32; i++) o[i] *= corr[(i >> 1) & 1];
PH_UNROLL
      for (int i = 0; i < 16; i++) p[i] = ph_pack_h2(s[2 * i], s[2 * i + 1]);
    }
    const int vst = (blocks - 1) & 1;
    ph_mbar_wait(fullV + vst, ((blocks - 1) >> 1) & 1);
    ph_wg_fence();
    pv(o, p, dV + vst * 512);
    ph_wg_wait<0>(o);
PH_UNROLL
    for (int h = 0; h < 2; h++) {
      float sum = l[h];
      sum += ph_shfl_xor(sum, 1);
      sum += ph_shfl_xor(sum, 2);
      const float inv = 1.f / sum;
      const int row = row0 + cw * 64 + warp * 16 + g + 8 * h;
      if (row < Nq) {
PH_UNROLL
        for (int j = 0; j < 8; j++)
          ph_stv<unsigned>(O, (long long)row * 64 + j * 8 + t * 2, ph_pack_h2(o[4 * j + 2 * h] * inv, o[4 * j + 2 * h + 1] * inv));
      }
    }
  }
}
