#line 1 "reduce.ph"
PH_KERNEL(128, 1) block_sum(ph_global<const float> X, ph_global<float> Y, int n) {
  const int tid = ph_tid(), warp = tid >> 5, lane = tid & 31;
  const ph_shared<float> part = ph_smem<float>(0);
  const float x = X[ph_ctaid_x() * 128 + tid];
  float w = x;
  for (int m = 16; m > 0; m >>= 1) w += ph_shfl_xor(w, m);
  if (lane == 0) part[warp] = w;
  ph_syncthreads();
  if (tid == 0) {
    float s = 0.f;
    for (int i = 0; i < 4; i++) { const float p = part[i]; s += p; }
    Y[ph_ctaid_x()] = s;
  }
}
PH_KERNEL(32, 1) transpose_warp(ph_global<const float> X, ph_global<float> Y) {
  const int lane = ph_tid();
  const ph_shared<float> s = ph_smem<float>(0);
  for (int i = 0; i < 32; i++) s[i * 33 + lane] = X[i * 32 + lane];
  ph_syncwarp();
  for (int i = 0; i < 32; i++) Y[i * 32 + lane] = s[lane * 33 + i];
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
