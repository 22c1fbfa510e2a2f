// f32 GEMM by FMA: 128 x 128 tile, K step 16, 256 threads, 8 x 8 a thread, A stored transposed in shared memory.
#line 1 "gemm_fma.ph"
PH_KERNEL(256, 1) gemm_fma(ph_global<const float> A, ph_global<const float> B, ph_global<float> C, int M, int N, int K) {
  const int tid = ph_tid(), tx = tid & 15, ty = tid >> 4, row0 = ph_ctaid_y() * 128, col0 = ph_ctaid_x() * 128;
  const ph_shared<float> sA = ph_smem<float>(0), sB = ph_smem<float>(16 * 132 * 4);       // sA[k][row] padded, sB[k][col]
  float acc[8][8];
PH_UNROLL
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) acc[i][j] = 0.f;
  for (int k0 = 0; k0 < K; k0 += 16) {
PH_UNROLL
    for (int i = 0; i < 2; i++) {
      const int c = tid + i * 256, r = c >> 2, kq = (c & 3) * 4;
      const ph_vec<float, 4> v = ph_ldv<ph_vec<float, 4>>(A, (long long)(row0 + r) * K + k0 + kq);
      sA[(kq + 0) * 132 + r] = v.v[0];
      sA[(kq + 1) * 132 + r] = v.v[1];
      sA[(kq + 2) * 132 + r] = v.v[2];
      sA[(kq + 3) * 132 + r] = v.v[3];
      const int kb = c >> 5, cb = (c & 31) * 4;
      ph_stv(sB, kb * 128 + cb, ph_ldv<ph_vec<float, 4>>(B, (long long)(k0 + kb) * N + col0 + cb));
    }
    ph_syncthreads();
PH_UNROLL
    for (int k = 0; k < 16; k++) {
      const ph_vec<float, 4> a0 = ph_ldv<ph_vec<float, 4>>(sA, k * 132 + ty * 4);
      const ph_vec<float, 4> a1 = ph_ldv<ph_vec<float, 4>>(sA, k * 132 + 64 + ty * 4);
      const ph_vec<float, 4> b0 = ph_ldv<ph_vec<float, 4>>(sB, k * 128 + tx * 4);
      const ph_vec<float, 4> b1 = ph_ldv<ph_vec<float, 4>>(sB, k * 128 + 64 + tx * 4);
      float a[8], b[8];
PH_UNROLL
      for (int i = 0; i < 4; i++) {
        a[i] = a0.v[i];
        a[i + 4] = a1.v[i];
        b[i] = b0.v[i];
        b[i + 4] = b1.v[i];
      }
PH_UNROLL
      for (int i = 0; i < 8; i++)
PH_UNROLL
        for (int j = 0; j < 8; j++) acc[i][j] = ph_fma(a[i], b[j], acc[i][j]);
    }
    ph_syncthreads();
  }
PH_UNROLL
  for (int i = 0; i < 8; i++) {
    const long long row = row0 + (i >> 2) * 64 + ty * 4 + (i & 3);
    for (int j = 0; j < 2; j++) {
      const ph_vec<float, 4> v = {acc[i][4 * j], acc[i][4 * j + 1], acc[i][4 * j + 2], acc[i][4 * j + 3]};
      ph_stv(C, row * N + col0 + j * 64 + tx * 4, v);
    }
  }
}
