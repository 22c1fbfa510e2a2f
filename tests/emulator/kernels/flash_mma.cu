// flash attention forward, f16, D = 64, BR = 64, BC = 64, 128 threads; mma.sync + ldmatrix + cp.async, two stages.
#line 1 "flash_mma.ph"
PH_DEVICE int swz(int row, int chunk) { return row * 64 + ((chunk ^ (row & 7)) << 3); }   // element offset of a 16-byte chunk

PH_DEVICE void load_tile(ph_shared<ph_half> dst, ph_global<const ph_half> src, int row0, int rows, int tid) {
PH_UNROLL
  for (int i = 0; i < 4; i++) {
    const int c = tid + i * 128, r = c >> 3, ch = c & 7;
    ph_cp_async16(dst + swz(r, ch), src + (long long)(row0 + r) * 64 + ch * 8, row0 + r < rows);
  }
}

PH_KERNEL(128, 1) flash_mma(ph_global<const ph_half> Q, ph_global<const ph_half> K, ph_global<const ph_half> V,
                            ph_global<ph_half> O, int Nq, int Nk, float scale_log2) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
  const int row0 = ph_ctaid_x() * 64;
  const ph_shared<ph_half> sQ = ph_smem<ph_half>(0), sK = ph_smem<ph_half>(8192), sV = ph_smem<ph_half>(24576);

  load_tile(sQ, Q, row0, Nq, tid);
  load_tile(sK, K, 0, Nk, tid);
  load_tile(sV, V, 0, Nk, tid);
  ph_cp_commit();

  float acc[8][4];
  float m[2] = {-1.0e30f, -1.0e30f}, l[2] = {0.f, 0.f};
PH_UNROLL
  for (int j = 0; j < 8; j++)
    for (int e = 0; e < 4; e++) acc[j][e] = 0.f;
  unsigned q[4][4];

  for (int kt = 0, st = 0; kt < Nk; kt += 64, st ^= 1) {
    if (kt + 64 < Nk) {
      load_tile(sK + (st ^ 1) * 4096, K, kt + 64, Nk, tid);
      load_tile(sV + (st ^ 1) * 4096, V, kt + 64, Nk, tid);
    }
    ph_cp_commit();
    ph_cp_wait<1>();
    ph_syncthreads();
    if (kt == 0) {
PH_UNROLL
      for (int kk = 0; kk < 4; kk++)
        ph_ldmatrix_x4(q[kk], sQ + swz(warp * 16 + (lane & 15), kk * 2 + (lane >> 4)));
    }
    const ph_shared<ph_half> k = sK + st * 4096, v = sV + st * 4096;

    // s = dot_t(q, k)
    float s[8][4];
PH_UNROLL
    for (int j = 0; j < 8; j++)
      for (int e = 0; e < 4; e++) s[j][e] = 0.f;
PH_UNROLL
    for (int kk = 0; kk < 4; kk++)
PH_UNROLL
      for (int j = 0; j < 8; j += 2) {
        unsigned b[4];
        ph_ldmatrix_x4(b, k + swz(j * 8 + (lane & 7) + ((lane >> 4) << 3), kk * 2 + ((lane >> 3) & 1)));
        ph_mma_f16(s[j], q[kk], b);
        ph_mma_f16(s[j + 1], q[kk], b + 2);
      }

    // online softmax, rows g and g + 8
PH_UNROLL
    for (int h = 0; h < 2; h++) {
      float mx = m[h];
PH_UNROLL
      for (int j = 0; j < 8; j++) {
PH_UNROLL
        for (int e = 0; e < 2; e++) {
          const int col = kt + j * 8 + t * 2 + e;
          const float x = col < Nk ? s[j][2 * h + e] * scale_log2 : -1.0e30f;
          s[j][2 * h + e] = x;
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
          const float p = ph_fast_exp2(s[j][2 * h + e] - mx);
          s[j][2 * h + e] = p;
          sum += p;
          acc[j][2 * h + e] *= corr;
        }
      }
      l[h] = l[h] * corr + sum;
    }

    // acc += dot(p, v)
PH_UNROLL
    for (int kk = 0; kk < 4; kk++) {
      unsigned a[4];
      a[0] = ph_pack_h2(s[2 * kk][0], s[2 * kk][1]);
      a[1] = ph_pack_h2(s[2 * kk][2], s[2 * kk][3]);
      a[2] = ph_pack_h2(s[2 * kk + 1][0], s[2 * kk + 1][1]);
      a[3] = ph_pack_h2(s[2 * kk + 1][2], s[2 * kk + 1][3]);
PH_UNROLL
      for (int j = 0; j < 8; j += 2) {
        unsigned b[4];
        ph_ldmatrix_x4_trans(b, v + swz(kk * 16 + (lane & 15), j + (lane >> 4)));
        ph_mma_f16(acc[j], a, b);
        ph_mma_f16(acc[j + 1], a, b + 2);
      }
    }
    ph_syncthreads();
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
        ph_stv<unsigned>(O, (long long)row * 64 + j * 8 + t * 2, ph_pack_h2(acc[j][2 * h] * inv, acc[j][2 * h + 1] * inv));
    }
  }
  ph_cp_wait<0>();
}
