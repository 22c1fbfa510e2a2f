// gemm_fp16 on B stored as [N, K]: the strides of its axes are exchanged.
@dynshared
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 128])
kernel gemm_strides(A: tensor<f16>[M, K], B: tensor<f16>[N, K], C: tensor<f16>[M, N], alpha: f32, beta: f32) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = 0.0
  for k in range(0, K, BK) {
    let columns = B[col :+ BN, k :+ BK]
    acc += dot(A[row :+ BM, k :+ BK], transpose(columns))
  }
  acc = alpha * acc
  if beta != 0.0 {
    acc += beta * C[row :+ BM, col :+ BN]
  }
  C[row :+ BM, col :+ BN] = acc
}
