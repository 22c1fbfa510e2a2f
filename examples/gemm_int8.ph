// C = A @ B^T on signed bytes with exact i32 sums, any M, N and K.
@autotune(BM in [16, 128], BN in [16, 128], BK in [16, 64])
kernel gemm_int8(A: tensor<i8>[M, K], B: tensor<i8>[N, K], C: tensor<i32>[M, N]) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<i32>[BM, BN] = 0
  for k in range(0, K, BK) {
    acc += dot_t(A[row :+ BM, k :+ BK], B[col :+ BN, k :+ BK])
  }
  C[row :+ BM, col :+ BN] = acc
}
