// softmax from softmax_fp32.ph: BR = 4, BN = 64
// 32 threads, 0 bytes of static shared memory
PH_KERNEL(32, 1) softmax(ph_global<const float> PH_RESTRICT X,
    ph_global<float> PH_RESTRICT Y,
    const int M,
    const int N) {
  const int tid = ph_tid();
  const int lane = tid % 32;
  const int warp = tid / 32;
  const int pos_0 = lane / 16;
  const int pos_1 = (lane % 16) * 4;
  // 6: let row = ctx.block.x * BR
  const int pid_x = ph_ctaid_x();
  const int row = pid_x * 4;
  // 7: if N <= BN {
  const bool le = N <= 64;
  if (le) {
    // 8: let x: tile<f32>[BR, BN] = X[row :+ BR, 0 :+ BN] else -inf
    float x_1[8];
    {
      const auto from = X + ((row + pos_0) * N + pos_1);
      PH_UNROLL
      for (int i = 0; i < 2; ++i) {
        PH_UNROLL
        for (int v = 0; v < 4; ++v) x_1[i * 4 + v] = -ph_inf();
        if (PH_GUARD(pos_1 < N)) {
#line 8 "softmax_fp32.ph"
          const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * (2 * N));
          PH_UNROLL
          for (int v = 0; v < 4; ++v) x_1[i * 4 + v] = t.v[v];
        }
      }
    }
    // 9: let e = exp(x - rowmax(x))
    float rowmax[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float total = -ph_inf();
      PH_UNROLL
      for (int j = 0; j < 4; ++j) {
        total = ph_max(total, x_1[i * 4 + j]);
      }
#line 9 "softmax_fp32.ph"
      total = ph_max(total, ph_shfl_xor(total, 1));
#line 9 "softmax_fp32.ph"
      total = ph_max(total, ph_shfl_xor(total, 2));
#line 9 "softmax_fp32.ph"
      total = ph_max(total, ph_shfl_xor(total, 4));
#line 9 "softmax_fp32.ph"
      total = ph_max(total, ph_shfl_xor(total, 8));
      rowmax[i] = total;
    }
    PH_UNROLL
    for (int i = 0; i < 2; ++i)
      PH_UNROLL
      for (int j = 0; j < 4; ++j) x_1[i * 4 + j] = ph_exp(x_1[i * 4 + j] - rowmax[i]);
    // 10: Y[row :+ BR, 0 :+ BN] = e / rowsum(e)
    float rowsum[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float total = 0.0f;
      PH_UNROLL
      for (int j = 0; j < 4; ++j) {
        total = total + x_1[i * 4 + j];
      }
#line 10 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 1);
#line 10 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 2);
#line 10 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 4);
#line 10 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 8);
      rowsum[i] = total;
    }
    PH_UNROLL
    for (int i = 0; i < 2; ++i)
      PH_UNROLL
      for (int j = 0; j < 4; ++j) x_1[i * 4 + j] = x_1[i * 4 + j] / rowsum[i];
    {
      const auto to = Y + ((row + pos_0) * N + pos_1);
      PH_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (PH_GUARD(pos_1 < N)) {
          ph_vec<float, 4> t;
          PH_UNROLL
          for (int v = 0; v < 4; ++v) t.v[v] = x_1[i * 4 + v];
#line 10 "softmax_fp32.ph"
          ph_stv(to, i * (2 * N), t);
        }
      }
    }
  } else {
    // 14: for c in range(0, N, BN) {
    float m[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) m[i] = -ph_inf();
    float l[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) l[i] = 0.0f;
    PH_NO_UNROLL
    for (int c = 0; c < N; c += 64) {
      // 15: let x: tile<f32>[BR, BN] = X[row :+ BR, c :+ BN] else -inf
      float x_2[8];
      {
        const auto from = X + ((row + pos_0) * N + c + pos_1);
        PH_UNROLL
        for (int i = 0; i < 2; ++i) {
          PH_UNROLL
          for (int v = 0; v < 4; ++v) x_2[i * 4 + v] = -ph_inf();
          if (PH_GUARD(c + pos_1 < N)) {
#line 15 "softmax_fp32.ph"
            const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * (2 * N));
            PH_UNROLL
            for (int v = 0; v < 4; ++v) x_2[i * 4 + v] = t.v[v];
          }
        }
      }
      // 16: let mnew = tmax(m, rowmax(x))
      float rowmax_1[2];
      PH_UNROLL
      for (int i = 0; i < 2; ++i) {
        float total = -ph_inf();
        PH_UNROLL
        for (int j = 0; j < 4; ++j) {
          total = ph_max(total, x_2[i * 4 + j]);
        }
#line 16 "softmax_fp32.ph"
        total = ph_max(total, ph_shfl_xor(total, 1));
#line 16 "softmax_fp32.ph"
        total = ph_max(total, ph_shfl_xor(total, 2));
#line 16 "softmax_fp32.ph"
        total = ph_max(total, ph_shfl_xor(total, 4));
#line 16 "softmax_fp32.ph"
        total = ph_max(total, ph_shfl_xor(total, 8));
        rowmax_1[i] = total;
      }
      PH_UNROLL
      for (int i = 0; i < 2; ++i) rowmax_1[i] = ph_max(m[i], rowmax_1[i]);
      // 17: let safe = where(mnew == -inf, 0.0, mnew)  // a row that is all -inf so far: avoid -inf - -inf
      float safe[2];
      PH_UNROLL
      for (int i = 0; i < 2; ++i) safe[i] = rowmax_1[i] == -ph_inf() ? 0.0f : rowmax_1[i];
      // 18: l = l * exp(m - safe) + rowsum(exp(x - safe))
      float rowsum_1[2];
      PH_UNROLL
      for (int i = 0; i < 2; ++i) {
        float total = 0.0f;
        PH_UNROLL
        for (int j = 0; j < 4; ++j) {
          total = total + ph_exp(x_2[i * 4 + j] - safe[i]);
        }
        rowsum_1[i] = total;
      }
      PH_UNROLL
      for (int i = 0; i < 2; ++i) l[i] = l[i] * ph_exp(m[i] - safe[i]) + rowsum_1[i];
      // 14: for c in range(0, N, BN) {
      PH_UNROLL
      for (int i = 0; i < 2; ++i) m[i] = rowmax_1[i];
    }
    float l_1[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float total = 0.0f;
      total = total + l[i];
#line 14 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 1);
#line 14 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 2);
#line 14 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 4);
#line 14 "softmax_fp32.ph"
      total = total + ph_shfl_xor(total, 8);
      l_1[i] = total;
    }
    // 21: for c in range(0, N, BN) {
    PH_NO_UNROLL
    for (int c_1 = 0; c_1 < N; c_1 += 64) {
      // 22: Y[row :+ BR, c :+ BN] = exp(X[row :+ BR, c :+ BN] - m) / l
      float X_1[8];
      {
        const auto from = X + ((row + pos_0) * N + c_1 + pos_1);
        PH_UNROLL
        for (int i = 0; i < 2; ++i) {
          PH_UNROLL
          for (int v = 0; v < 4; ++v) X_1[i * 4 + v] = 0.0f;
          if (PH_GUARD(c_1 + pos_1 < N)) {
#line 22 "softmax_fp32.ph"
            const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * (2 * N));
            PH_UNROLL
            for (int v = 0; v < 4; ++v) X_1[i * 4 + v] = t.v[v];
          }
        }
      }
      PH_UNROLL
      for (int i = 0; i < 2; ++i)
        PH_UNROLL
        for (int j = 0; j < 4; ++j) X_1[i * 4 + j] = ph_exp(X_1[i * 4 + j] - m[i]) / l_1[i];
      {
        const auto to = Y + ((row + pos_0) * N + c_1 + pos_1);
        PH_UNROLL
        for (int i = 0; i < 2; ++i) {
          if (PH_GUARD(c_1 + pos_1 < N)) {
            ph_vec<float, 4> t;
            PH_UNROLL
            for (int v = 0; v < 4; ++v) t.v[v] = X_1[i * 4 + v];
#line 22 "softmax_fp32.ph"
            ph_stv(to, i * (2 * N), t);
          }
        }
      }
    }
  }
}

