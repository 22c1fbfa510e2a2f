// unit kernels: each helper against the layout that the PTX ISA states, written out by hand here
#line 1 "unit.ph"
// D[16,8] = A[16,K] B[K,8] from global memory, fragments filled element by element by the formulas of the PTX ISA
PH_KERNEL(32, 1) u_mma(ph_global<const unsigned short> A, ph_global<const unsigned short> B, ph_global<float> D, int kind) {
  const int lane = ph_tid(), g = lane >> 2, t = lane & 3;
  unsigned a[4], b[2];
  float c[4] = {0.f, 0.f, 0.f, 0.f};
  for (int i = 0; i < 8; i++) {
    const int row = (i < 2 || (i >= 4 && i < 6)) ? g : g + 8, col = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    const unsigned x = (unsigned short)A[row * 16 + col];
    if (i & 1) a[i >> 1] |= x << 16; else a[i >> 1] = x;
  }
  for (int i = 0; i < 4; i++) {
    const int row = t * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    const unsigned x = (unsigned short)B[row * 8 + g];
    if (i & 1) b[i >> 1] |= x << 16; else b[i >> 1] = x;
  }
  if (kind == 0) ph_mma_f16(c, a, b); else ph_mma_bf16(c, a, b);
  for (int i = 0; i < 4; i++) D[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)] = c[i];
}
PH_KERNEL(32, 1) u_tf32(ph_global<const float> A, ph_global<const float> B, ph_global<float> D) {
  const int lane = ph_tid(), g = lane >> 2, t = lane & 3;
  unsigned a[4], b[2];
  float c[4] = {0.f, 0.f, 0.f, 0.f};
  for (int i = 0; i < 4; i++) a[i] = ph_f2tf32(A[((i & 1) ? g + 8 : g) * 8 + (i < 2 ? t : t + 4)]);
  for (int i = 0; i < 2; i++) b[i] = ph_f2tf32(B[(i ? t + 4 : t) * 8 + g]);
  ph_mma_tf32(c, a, b);
  for (int i = 0; i < 4; i++) D[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)] = c[i];
}
// ldmatrix: 32 rows of 8 halves; out[variant][lane][reg]; variants x1 x2 x4 x1t x2t x4t
PH_KERNEL(32, 1) u_ldmatrix(ph_global<const unsigned short> X, ph_global<unsigned> R) {
  const int lane = ph_tid();
  const ph_shared<unsigned short> s = ph_smem<unsigned short>(0);
  for (int j = 0; j < 8; j++) s[lane * 8 + j] = X[lane * 8 + j];
  ph_syncwarp();
  unsigned r[6][4] = {};
  ph_ldmatrix_x1(r[0], ph_place(s) + lane * 16);
  ph_ldmatrix_x2(r[1], s + lane * 8);
  ph_ldmatrix_x4(r[2], s + lane * 8);
  ph_ldmatrix_x1_trans(r[3], s + lane * 8);
  ph_ldmatrix_x2_trans(r[4], ph_place(s + lane * 8));
  ph_ldmatrix_x4_trans(r[5], ph_place(s + lane * 8) + 0u);
  for (int v = 0; v < 6; v++) for (int i = 0; i < 4; i++) R[(v * 32 + lane) * 4 + i] = r[v][i];
}
PH_KERNEL(32, 1) u_place(ph_global<const float> X, ph_global<float> Y) {
  const int lane = ph_tid();
  const ph_shared<float> s = ph_smem<float>(0);
  for (int j = 0; j < 4; j++) s[lane * 4 + j] = X[lane * 4 + j];
  ph_syncwarp();
  const ph_vec<float, 4> v = ph_ldp<ph_vec<float, 4>>(ph_place(s + 4) + (31 - lane) % 31 * 16u);
  for (int j = 0; j < 4; j++) Y[lane * 4 + j] = v.v[j];
}
template<class T> PH_DEVICE void shuffles(ph_global<const T> X, ph_global<T> Y) {
  const int tid = ph_tid();
  const T x = X[tid];
  Y[tid] = ph_shfl_xor(x, 5);
  Y[64 + tid] = ph_shfl_up(x, 3);
  Y[128 + tid] = ph_shfl_down(x, 7);
  Y[192 + tid] = ph_shfl_idx(x, 9);
}
PH_KERNEL(64, 1) u_shuffle(ph_global<const float> A, ph_global<float> AY, ph_global<const double> B, ph_global<double> BY,
                           ph_global<const ph_half> C, ph_global<ph_half> CY, ph_global<const bool> D, ph_global<bool> DY,
                           ph_global<const ph_i64> E, ph_global<ph_i64> EY, ph_global<const signed char> F, ph_global<signed char> FY) {
  shuffles(A, AY);
  shuffles(B, BY);
  shuffles(C, CY);
  shuffles(D, DY);
  shuffles(E, EY);
  shuffles(F, FY);
}
// named barriers: warp 0 produces, warps 1 and 2 consume; 1 = full, 2 = empty
PH_KERNEL(96, 1) u_named(ph_global<const int> X, ph_global<int> Y, int n) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31;
  const ph_shared<int> s = ph_smem<int>(0);
  if (warp == 0) {
    for (int i = 0; i < n; i++) {
      if (i) ph_bar_sync(2, 96);
      s[lane] = X[i * 32 + lane];
      ph_bar_arrive(1, 96);
    }
  } else {
    for (int i = 0; i < n; i++) {
      ph_bar_sync(1, 96);
      Y[((warp - 1) * n + i) * 32 + lane] = s[31 - lane] + 0;
      if (i + 1 < n) ph_bar_arrive(2, 96);
    }
  }
}
PH_KERNEL(64, 1) u_atomic(ph_global<const int> X, ph_global<int> H, ph_global<float> S) {
  const int tid = ph_tid();
  const ph_shared<int> h = ph_smem<int>(0);
  if (tid < 16) h[tid] = 0;
  ph_syncthreads();
  const int x = X[ph_ctaid_x() * 64 + tid];
  ph_atomic_add(h, x & 15, 1);
  ph_atomic_add(S, 0, (float)x);
  ph_syncthreads();
  if (tid < 16) { const int v = h[tid]; ph_atomic_add(H, tid, v); }
}
