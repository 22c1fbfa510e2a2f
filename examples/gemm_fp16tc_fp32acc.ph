// C = alpha * A @ B + beta * C on f32 matrices with operands rounded to f16 and sums in f32, any M, N and K: a product at
// the speed of the tensor cores where 11 bits of each operand are enough. As in BLAS, beta = 0 means that C is not read.
@tensorcore
@dynshared
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 64])
kernel gemm_fp16tc_fp32acc(A: tensor<f32>[M, K], B: tensor<f32>[K, N], C: tensor<f32>[M, N], alpha: f32, beta: f32) {
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
