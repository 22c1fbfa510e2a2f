// C = alpha * A @ B + beta * C on bf16 with sums in f32, any M, N and K. As in BLAS, beta = 0 means that C is not read.
@dynshared
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 128])
kernel gemm_bf16(A: tensor<bf16>[M, K], B: tensor<bf16>[K, N], C: tensor<bf16>[M, N], alpha: f32, beta: f32) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = 0.0
  for k in range(0, K, BK) {
    acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])
  }
  acc = alpha * acc
  if beta != 0.0 {
    acc += beta * C[row :+ BM, col :+ BN]
  }
  C[row :+ BM, col :+ BN] = acc  // rounds once, here
}
