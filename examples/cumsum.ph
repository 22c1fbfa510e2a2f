// Inclusive prefix sum along each row: Y[i, j] = X[i, 0] + ... + X[i, j].
@autotune(BR in {1, 4, 8}, BN in [32, 256])
kernel cumsum_rows(X: tensor<f32>[M, N], Y: tensor<f32>[M, N]) {
  let row = ctx.block.x * BR
  var carry: tile<f32>[BR, 1] = 0.0  // the sum of all columns before c
  for c in range(0, N, BN) {
    let x: tile<f32>[BR, BN] = X[row :+ BR, c :+ BN]
    Y[row :+ BR, c :+ BN] = carry + cumsum(x, 1)
    carry += rowsum(x)
  }
}
