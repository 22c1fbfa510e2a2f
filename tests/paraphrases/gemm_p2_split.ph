// gemm_fp16 with its statements split and merged: loads bound by `let`, blocks of K counted, the sum written out, a store on each
// side of the `if`.
@dynshared
@autotune(BM in [32, 256], BN in [32, 256], BK in [16, 128])
kernel gemm_split(A: tensor<f16>[M, K], B: tensor<f16>[K, N], C: tensor<f16>[M, N], alpha: f32, beta: f32) {
  let row = ctx.block.y * BM
  let col = ctx.block.x * BN
  let blocks = ceildiv(K, BK)
  var acc = zeros(f32, BM, BN)
  for number in range(blocks) {
    let k = number * BK
    let a = A[row :+ BM, k :+ BK]
    let b: tile<f16>[BK, BN] = B[k :+ BK, col :+ BN]
    let d = dot(a, b)
    acc = d + acc
  }
  if beta == 0.0 {
    C[row :+ BM, col :+ BN] = alpha * acc
  } else {
    let before = f32(C[row :+ BM, col :+ BN])
    let scaled = acc * alpha
    C[row :+ BM, col :+ BN] = scaled + beta * before
  }
}
