// C = alpha * A @ B + beta * C in IEEE f32, any M, N and K. As in BLAS, beta = 0 means that C is not read.
@dynshared
@autotune(BM in [16, 256], BN in [16, 256], BK in [8, 64])
kernel gemm(A: tensor<f32>[M, K], B: tensor<f32>[K, N], C: tensor<f32>[M, N], alpha: f32, beta: f32) {
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
  C[row :+ BM, col :+ BN] = acc
}
