// flash_attention from flash_attention_fp32.ph: D = 64, BR = 64, BC = 32
// 128 threads, 27648 bytes of static shared memory
PH_KERNEL(128, 1) flash_attention(ph_global<const float> PH_RESTRICT Q,
    ph_global<const float> PH_RESTRICT K,
    ph_global<const float> PH_RESTRICT V,
    ph_global<float> PH_RESTRICT O,
    const float scale,
    const int Nq,
    const int Nk) {
  const int tid = ph_tid();
  const int lane = tid % 32;
  const int warp = tid / 32;
  const int pos_0 = lane / 16 + warp * 2;
  const int pos_1 = (lane % 16) * 4;
  const int pos_2 = lane / 4 + warp * 16;
  const int pos_3 = (lane % 4) * 2;
  // 11: let pid = ctx.block.x
  const int pid_x = ph_ctaid_x();
  // 12: let row = pid * BR
  const int row = pid_x * 64;
  // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
  {
    const auto tile = ph_smem<ph_half>(0) + (pos_0 * 72 + pos_1);
    const auto from = Q + ((row + pos_0) * 64 + pos_1);
    PH_UNROLL
    for (int i = 0; i < 8; ++i) {
#line 23 "flash_attention_fp32.ph"
      const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 512);
      ph_vec<ph_half, 4> c;
      PH_UNROLL
      for (int v = 0; v < 4; ++v) c.v[v] = ph_cvt<ph_half>(t.v[v]);
#line 23 "flash_attention_fp32.ph"
      ph_stv(tile, i * 576, c);
    }
  }
  // 29: s = exp(s - mnew)                         // unnormalized probabilities
  const float scale_1 = scale * 1.442695f;
  // 19: for kt in range(0, Nk, BC) {
  float acc[32];
  PH_UNROLL
  for (int i = 0; i < 32; ++i) acc[i] = 0.0f;
  float m[2];
  PH_UNROLL
  for (int i = 0; i < 2; ++i) m[i] = -1e+30f;
  float l[2];
  PH_UNROLL
  for (int i = 0; i < 2; ++i) l[i] = 0.0f;
  unsigned half = 0u;
  // ahead of the loop
  if (0 < Nk) {
    // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
    {
      const auto tile = (ph_smem<ph_half>(9216 + half)) + (pos_0 * 72 + pos_1);
      const auto from = K + (pos_0 * 64 + pos_1);
      PH_UNROLL
      for (int i = 0; i < 4; ++i) {
#line 23 "flash_attention_fp32.ph"
        const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 512);
        ph_vec<ph_half, 4> c;
        PH_UNROLL
        for (int v = 0; v < 4; ++v) c.v[v] = ph_cvt<ph_half>(t.v[v]);
#line 23 "flash_attention_fp32.ph"
        ph_stv(tile, i * 576, c);
      }
    }
    // 36: acc += dot(s, v)                         // add this block's contribution
    {
      const auto tile = (ph_smem<ph_half>(18432 + half)) + (pos_0 * 72 + pos_1);
      const auto from = V + (pos_0 * 64 + pos_1);
      PH_UNROLL
      for (int i = 0; i < 4; ++i) {
#line 36 "flash_attention_fp32.ph"
        const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 512);
        ph_vec<ph_half, 4> c;
        PH_UNROLL
        for (int v = 0; v < 4; ++v) c.v[v] = ph_cvt<ph_half>(t.v[v]);
#line 36 "flash_attention_fp32.ph"
        ph_stv(tile, i * 576, c);
      }
    }
  }
  // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
  float k_s_next[16];
  // 36: acc += dot(s, v)                         // add this block's contribution
  float v_s_next[16];
  // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
#line 23 "flash_attention_fp32.ph"
  ph_syncthreads();
  // the left operand, once for all iterations
  unsigned q_s_r[4][1][4];
  {
    const ph_shared<const ph_half> a_tile = ph_smem<const ph_half>(0) + ((warp) * 16 + lane % 16) * 72 + lane / 16 * 8;
    PH_UNROLL
    for (int kk = 0; kk < 4; ++kk) {
      PH_UNROLL
      for (int i = 0; i < 1; ++i) {
#line 23 "flash_attention_fp32.ph"
        ph_ldmatrix_x4(q_s_r[kk][i], a_tile + i * 1152 + kk * 16);
      }
    }
  }
  // 19: for kt in range(0, Nk, BC) {
  PH_NO_UNROLL
  for (int kt = 0; kt < Nk; kt += 32) {
#line 19 "flash_attention_fp32.ph"
    ph_syncthreads();
    if (kt + 32 < Nk) {
      // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
      {
        const auto from = K + (((kt + 32) + pos_0) * 64 + pos_1);
        PH_UNROLL
        for (int i = 0; i < 4; ++i) {
          {
#line 23 "flash_attention_fp32.ph"
            const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 512);
            PH_UNROLL
            for (int v = 0; v < 4; ++v) k_s_next[i * 4 + v] = t.v[v];
          }
        }
      }
      // 36: acc += dot(s, v)                         // add this block's contribution
      {
        const auto from = V + (((kt + 32) + pos_0) * 64 + pos_1);
        PH_UNROLL
        for (int i = 0; i < 4; ++i) {
          {
#line 36 "flash_attention_fp32.ph"
            const ph_vec<float, 4> t = ph_ldv<ph_vec<float, 4>>(from, i * 512);
            PH_UNROLL
            for (int v = 0; v < 4; ++v) v_s_next[i * 4 + v] = t.v[v];
          }
        }
      }
    }
    // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
    float s[16];
    PH_UNROLL
    for (int i = 0; i < 16; ++i) s[i] = 0.0f;
    // mma: 1x4 fragments of 16x8 a warp, warps 4x1, k in steps of 16
    {
      const ph_shared<const ph_half> b_tile = ph_smem<const ph_half>(9216 + half) + (lane % 8 + lane / 16 * 8) * 72 + lane / 8 % 2 * 8;
      PH_UNROLL
      for (int kk = 0; kk < 4; ++kk) {
        PH_UNROLL
        for (int j = 0; j < 2; ++j) {
          unsigned b_reg[1][4];
#line 23 "flash_attention_fp32.ph"
          ph_ldmatrix_x4(b_reg[0], b_tile + kk * 16 + j * 1152);
#line 23 "flash_attention_fp32.ph"
          ph_mma_f16(s + 4 * 2 * j, q_s_r[kk][0], b_reg[0]);
#line 23 "flash_attention_fp32.ph"
          ph_mma_f16(s + 4 * (2 * j + 1), q_s_r[kk][0], b_reg[0] + 2);
        }
      }
    }
    // 27: var mnew: tile<f32>[BR, 1] = rowmax(s)
    float mnew[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float total = -ph_inf();
      PH_UNROLL
      for (int j = 0; j < 4; ++j) {
        PH_UNROLL
        for (int k = 0; k < 2; ++k) {
          total = ph_max(total, s[j * 4 + i * 2 + k]);
        }
      }
#line 27 "flash_attention_fp32.ph"
      total = ph_max(total, ph_shfl_xor(total, 1));
#line 27 "flash_attention_fp32.ph"
      total = ph_max(total, ph_shfl_xor(total, 2));
      mnew[i] = total;
    }
    // 28: mnew = tmax(m, mnew)
    PH_UNROLL
    for (int i = 0; i < 2; ++i) mnew[i] = ph_max(m[i], mnew[i] * scale);
    PH_UNROLL
    for (int i = 0; i < 2; ++i) mnew[i] = mnew[i] - m[i] <= 5.5451774f ? m[i] : mnew[i];
    // 29: s = exp(s - mnew)                         // unnormalized probabilities
    float mnew_1[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) mnew_1[i] = mnew[i] * -1.442695f;
    PH_UNROLL
    for (int i = 0; i < 4; ++i)
      PH_UNROLL
      for (int j = 0; j < 2; ++j)
        PH_UNROLL
        for (int k = 0; k < 2; ++k) s[i * 4 + j * 2 + k] = ph_fast_exp2(ph_fma(s[i * 4 + j * 2 + k], scale_1, mnew_1[j]));
    // 30: var corr: tile<f32>[BR, 1] = exp(m - mnew) // rescales the carried state
    PH_UNROLL
    for (int i = 0; i < 2; ++i) m[i] = ph_exp(m[i] - mnew[i]);
    // 33: l += rowsum(s)
    float rowsum[2];
    PH_UNROLL
    for (int i = 0; i < 2; ++i) {
      float total = 0.0f;
      PH_UNROLL
      for (int j = 0; j < 4; ++j) {
        PH_UNROLL
        for (int k = 0; k < 2; ++k) {
          total = total + s[j * 4 + i * 2 + k];
        }
      }
      rowsum[i] = total;
    }
    PH_UNROLL
    for (int i = 0; i < 2; ++i) l[i] = l[i] * m[i] + rowsum[i];
    // 36: acc += dot(s, v)                         // add this block's contribution
    if (m[0] != 1.0f || m[1] != 1.0f) {
      PH_UNROLL
      for (int i = 0; i < 8; ++i)
        PH_UNROLL
        for (int j = 0; j < 2; ++j)
          PH_UNROLL
          for (int k = 0; k < 2; ++k) acc[i * 4 + j * 2 + k] = acc[i * 4 + j * 2 + k] * m[j];
    }
    // mma: 1x8 fragments of 16x8 a warp, warps 4x1, k in steps of 16
    {
      const ph_shared<const ph_half> b_tile = ph_smem<const ph_half>(18432 + half) + lane % 16 * 72 + lane / 16 * 8;
      PH_UNROLL
      for (int kk = 0; kk < 2; ++kk) {
        unsigned a_reg[1][4];
        PH_UNROLL
        for (int i = 0; i < 1; ++i) {
          PH_UNROLL
          for (int u = 0; u < 4; ++u) {
            a_reg[i][u] = ph_pack_h2(s[4 * (2 * kk + u / 2) + u % 2 * 2], s[4 * (2 * kk + u / 2) + u % 2 * 2 + 1]);
          }
        }
        PH_UNROLL
        for (int j = 0; j < 4; ++j) {
          unsigned b_reg[1][4];
#line 36 "flash_attention_fp32.ph"
          ph_ldmatrix_x4_trans(b_reg[0], b_tile + kk * 1152 + j * 16);
#line 36 "flash_attention_fp32.ph"
          ph_mma_f16(acc + 4 * 2 * j, a_reg[0], b_reg[0]);
#line 36 "flash_attention_fp32.ph"
          ph_mma_f16(acc + 4 * (2 * j + 1), a_reg[0], b_reg[0] + 2);
        }
      }
    }
    // 19: for kt in range(0, Nk, BC) {
    PH_UNROLL
    for (int i = 0; i < 2; ++i) m[i] = mnew[i];
    if (kt + 32 < Nk) {
      // 23: var s: tile<f32>[BR, BC] = dot_t(q, k)   // [BR, BC] = q @ k.T
      {
        const ph_shared<ph_half> tile = ph_smem<ph_half>(9216 + 4608u - half);
        PH_UNROLL
        for (int i = 0; i < 4; ++i) {
          ph_vec<ph_half, 4> t;
          PH_UNROLL
          for (int v = 0; v < 4; ++v) t.v[v] = ph_cvt<ph_half>(k_s_next[i * 4 + v]);
#line 23 "flash_attention_fp32.ph"
          ph_stv(tile, (pos_0 + i * 8) * 72 + pos_1, t);
        }
      }
      // 36: acc += dot(s, v)                         // add this block's contribution
      {
        const ph_shared<ph_half> tile = ph_smem<ph_half>(18432 + 4608u - half);
        PH_UNROLL
        for (int i = 0; i < 4; ++i) {
          ph_vec<ph_half, 4> t;
          PH_UNROLL
          for (int v = 0; v < 4; ++v) t.v[v] = ph_cvt<ph_half>(v_s_next[i * 4 + v]);
#line 36 "flash_attention_fp32.ph"
          ph_stv(tile, (pos_0 + i * 8) * 72 + pos_1, t);
        }
      }
    }
    // 19: for kt in range(0, Nk, BC) {
    half = 4608u - half;
  }
  float l_1[2];
  PH_UNROLL
  for (int i = 0; i < 2; ++i) {
    float total = 0.0f;
    total = total + l[i];
#line 19 "flash_attention_fp32.ph"
    total = total + ph_shfl_xor(total, 1);
#line 19 "flash_attention_fp32.ph"
    total = total + ph_shfl_xor(total, 2);
    l_1[i] = total;
  }
  // 41: acc = acc / l
  PH_UNROLL
  for (int i = 0; i < 8; ++i)
    PH_UNROLL
    for (int j = 0; j < 2; ++j)
      PH_UNROLL
      for (int k = 0; k < 2; ++k) acc[i * 4 + j * 2 + k] = acc[i * 4 + j * 2 + k] / l_1[j];
  // 42: O[row :+ BR, :] = acc
  {
    const auto to = O + ((row + pos_2) * 64 + pos_3);
    PH_UNROLL
    for (int i = 0; i < 8; ++i) {
      PH_UNROLL
      for (int j = 0; j < 2; ++j) {
        {
          ph_vec<float, 2> t;
          PH_UNROLL
          for (int v = 0; v < 2; ++v) t.v[v] = acc[i * 4 + j * 2 + v];
#line 42 "flash_attention_fp32.ph"
          ph_stv(to, j * 512 + i * 8, t);
        }
      }
    }
  }
}

