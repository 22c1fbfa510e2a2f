// C = scale * relu(alpha A @ B + beta C + bias): gemm_fp16 with more at its end, a bias for each column and a scale for each row.
@dynshared
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 128])
kernel gemm_epilogue(A: tensor<f16>[M, K], B: tensor<f16>[K, N], C: tensor<f16>[M, N], bias: tensor<f16>[N], scale: tensor<f32>[M, 1],
                     alpha: f32, beta: f32) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  var acc: tile<f32>[BM, BN] = 0.0
  for k in range(0, K, BK) {
    acc += dot(A[row :+ BM, k :+ BK], B[k :+ BK, col :+ BN])
  }
  acc *= alpha
  if beta != 0.0 {
    acc += beta * C[row :+ BM, col :+ BN]
  }
  let shifted = acc + f32(bias[col :+ BN])
  C[row :+ BM, col :+ BN] = tmax(shifted, 0.0) * scale[row :+ BM, :]
}
