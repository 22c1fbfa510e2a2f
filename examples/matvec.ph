// y = A @ x for any M and K. The products are summed over a tile at the end of the loop only.
@autotune(BM in [4, 32], BK in [64, 256])
kernel matvec(A: tensor<f32>[M, K], x: tensor<f32>[K], y: tensor<f32>[M]) {
  let row = ctx.block.x * BM
  var acc: tile<f32>[BM, BK] = 0.0
  for k in range(0, K, BK) {
    acc += A[row :+ BM, k :+ BK] * x[k :+ BK]
  }
  y[row :+ BM] = rowsum(acc)
}
