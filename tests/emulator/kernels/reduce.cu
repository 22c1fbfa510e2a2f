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
