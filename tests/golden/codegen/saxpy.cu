// saxpy from saxpy_fp32.ph: BN = 256
// 32 threads, 0 bytes of static shared memory
PH_KERNEL(32, 1) saxpy(ph_global<const float> PH_RESTRICT X,
    ph_global<float> PH_RESTRICT Y,
    const float a_,
    const int N) {
  const int tid = ph_tid();
  const int lane = tid % 32;
  const int warp = tid / 32;
  const int pos_0 = lane * 4;
  // 4: let i = ctx.block.x * BN
  const int pid_x = ph_ctaid_x();
  const int i_1 = pid_x * 256;
  // 5: Y[i :+ BN] = a * X[i :+ BN] + Y[i :+ BN]
  float X_1[8];
  {
    const auto from = X + (i_1 + pos_0);
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      PH_UNROLL
      for (int v = 0; v < 4; ++v) X_1[i * 4 + v] = 0.0f;
      if (PH_GUARD(i_1 + pos_0 + i * 128 < N)) {
#line 5 "saxpy_fp32.ph"
        const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 128);
        PH_UNROLL
        for (int v = 0; v < 4; ++v) X_1[i * 4 + v] = t.v[v];
      }
    }
  }
  float Y_1[8];
  {
    const auto from = Y + (i_1 + pos_0);
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      PH_UNROLL
      for (int v = 0; v < 4; ++v) Y_1[i * 4 + v] = 0.0f;
      if (PH_GUARD(i_1 + pos_0 + i * 128 < N)) {
#line 5 "saxpy_fp32.ph"
        const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 128);
        PH_UNROLL
        for (int v = 0; v < 4; ++v) Y_1[i * 4 + v] = t.v[v];
      }
    }
  }
  PH_UNROLL
  for (int i = 0; i < 8; ++i) X_1[i] = a_ * X_1[i] + Y_1[i];
  {
    const auto to = Y + (i_1 + pos_0);
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (PH_GUARD(i_1 + pos_0 + i * 128 < N)) {
        ph_vec<float, 4> t;
        PH_UNROLL
        for (int v = 0; v < 4; ++v) t.v[v] = X_1[i * 4 + v];
#line 5 "saxpy_fp32.ph"
        ph_stv(to, i * 128, t);
      }
    }
  }
}

