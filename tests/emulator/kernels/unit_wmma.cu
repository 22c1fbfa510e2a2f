// D[k] = 2 (A B + S), a and b stored row- or column-major in shared memory by the bits of k
#line 1 "unit_wmma.ph"
template<class T, bool CA, bool CB>
PH_DEVICE void product(ph_shared<T> sA, ph_shared<T> sB, ph_shared<float> sC, ph_global<float> D) {
  const int lane = ph_tid();
  ph_wmma_a<T, CA> a;
  ph_wmma_b<T, CB> b;
  ph_wmma_c c, zero;
  ph_wmma_fill(zero, 0.f);
  ph_wmma_load_a<CA ? 256 : 0>(a, sA, 16);
  ph_wmma_load_b<CB ? 256 : 0>(b, sB, 16);
  ph_wmma_load_c(c, sC, 16);
  ph_wmma_mma(c, a, b);
  ph_syncwarp();
  for (int i = 0; i < 8; i++) c.x[i] = c.x[i] * 2.f + zero.x[i];
  ph_wmma_store(sC + 256, 16, c);
  ph_syncwarp();
  for (int i = lane; i < 256; i += 32) D[i] = sC[256 + i];
  ph_syncwarp();
}
template<class T> PH_DEVICE void products(ph_global<const T> A, ph_global<const T> B, ph_global<const float> S, ph_global<float> D) {
  const int lane = ph_tid();
  const ph_shared<T> sA = ph_smem<T>(0), sB = ph_smem<T>(1024);
  const ph_shared<float> sC = ph_smem<float>(2048);
  for (int i = lane; i < 256; i += 32) {
    const int r = i >> 4, c = i & 15;
    const T a = A[i], b = B[i];
    sA[i] = a;
    sA[256 + c * 16 + r] = a;
    sB[i] = b;
    sB[256 + c * 16 + r] = b;
    const float s = S[i];
    sC[i] = s;
  }
  ph_syncwarp();
  product<T, false, false>(sA, sB, sC, D);
  product<T, true, false>(sA, sB, sC, D + 256);
  product<T, false, true>(sA, sB, sC, D + 512);
  product<T, true, true>(sA, sB, sC, D + 768);
}
PH_KERNEL(32, 1) u_wmma_f16(ph_global<const ph_half> A, ph_global<const ph_half> B, ph_global<const float> S, ph_global<float> D) {
  products(A, B, S, D);
}
PH_KERNEL(32, 1) u_wmma_bf16(ph_global<const ph_bf16> A, ph_global<const ph_bf16> B, ph_global<const float> S, ph_global<float> D) {
  products(A, B, S, D);
}
// tf32: D[k] = 2 (A B + S) with A 16 x 8 and B 8 x 16, in the memory layouts of the bits of k
template<bool CA, bool CB>
PH_DEVICE void product_tf32(ph_shared<float> sA, ph_shared<float> sB, ph_shared<float> sC, ph_global<float> D) {
  const int lane = ph_tid();
  ph_wmma_a<float, CA> a;
  ph_wmma_b<float, CB> b;
  ph_wmma_c_tf32 c, zero;
  ph_wmma_fill(zero, 0.f);
  ph_wmma_load_a<CA ? 128 : 0>(a, sA, CA ? 16 : 8);
  ph_wmma_load_b(b, sB + (CB ? 128 : 0), CB ? 8 : 16);
  ph_wmma_load_c(c, sC, 16);
  ph_wmma_mma(c, a, b);
  ph_syncwarp();
  for (int i = 0; i < 8; i++) c.x[i] = c.x[i] * 2.f + zero.x[i];
  ph_wmma_store(sC + 256, 16, c);
  ph_syncwarp();
  for (int i = lane; i < 256; i += 32) D[i] = sC[256 + i];
  ph_syncwarp();
}
PH_KERNEL(32, 1) u_wmma_tf32(ph_global<const float> A, ph_global<const float> B, ph_global<const float> S, ph_global<float> D) {
  const int lane = ph_tid();
  const ph_shared<float> sA = ph_smem<float>(0), sB = ph_smem<float>(1024), sC = ph_smem<float>(2048);
  for (int i = lane; i < 128; i += 32) {
    const float a = ph_bits<float>(ph_f2tf32(A[i])), b = ph_bits<float>(ph_f2tf32(B[i]));
    sA[i] = a;
    sA[128 + i % 8 * 16 + i / 8] = a;
    sB[i] = b;
    sB[128 + i % 16 * 8 + i / 16] = b;
  }
  for (int i = lane; i < 256; i += 32) {
    const float s = S[i];
    sC[i] = s;
  }
  ph_syncwarp();
  product_tf32<false, false>(sA, sB, sC, D);
  product_tf32<true, false>(sA, sB, sC, D + 256);
  product_tf32<false, true>(sA, sB, sC, D + 512);
  product_tf32<true, true>(sA, sB, sC, D + 768);
}
